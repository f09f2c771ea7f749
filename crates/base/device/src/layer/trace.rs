//! Records operations: kind, place, time. The newest records are kept in a ring of fixed size; a callback,
//! if there is one, sees them all.
//!
//! Hazard: records appear in the order in which operations *ended*. The ring is behind one lock, so a trace
//! slows many threads down; it is for inspection, not for measuring.

use crate::device::{of_inner, total_len};
use crate::os::BorrowedFd;
use crate::{Device, Operation, Request, Result};
use hectare_units::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// One operation that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What was asked.
    pub request: Request,
    /// When it began, counted from the making of the trace.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// Whether it succeeded.
    pub succeeded: bool,
}

type Callback = Box<dyn Fn(&Record) + Send + Sync>;

/// A device that records its operations.
pub struct TraceDevice<D> {
    inner: D,
    start: Instant,
    ring: Mutex<Ring>,
    callback: Option<Callback>,
}

struct Ring {
    records: VecDeque<Record>,
    records_max: usize,
    dropped: u64,
}

impl<D: Device> TraceDevice<D> {
    /// Records what reaches `inner`, keeping the newest `records_max` records.
    #[must_use]
    pub fn new(inner: D, records_max: usize) -> Self {
        let ring = Ring { records: VecDeque::new(), records_max, dropped: 0 };
        Self { inner, start: Instant::now(), ring: Mutex::new(ring), callback: None }
    }

    /// Also calls `callback` after each operation, on the thread that asked.
    #[must_use]
    pub fn with_callback(mut self, callback: impl Fn(&Record) + Send + Sync + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// The device below.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Takes the records out, oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<Record> {
        self.ring.lock().records.drain(..).collect()
    }

    /// How many records were dropped because the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.ring.lock().dropped
    }

    fn traced<T>(
        &self,
        operation: Operation,
        at: Bytes,
        len: Bytes,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let began = self.start.elapsed();
        let result = work();
        let record = Record {
            request: Request::new(operation, at, len),
            began,
            took: self.start.elapsed().saturating_sub(began),
            succeeded: result.is_ok(),
        };
        self.ring.lock().push(record);
        if let Some(callback) = &self.callback {
            callback(&record);
        }
        result
    }
}

impl Ring {
    fn push(&mut self, record: Record) {
        self.records.push_back(record);
        if self.records.len() > self.records_max {
            self.records.pop_front();
            self.dropped += 1;
        }
    }
}

impl<D: Device> Device for TraceDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.traced(Operation::Read, at, Bytes::of(buf.len()), || self.inner.read_at(at, buf))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.traced(Operation::Write, at, Bytes::of(data.len()), || self.inner.write_at(at, data))
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.traced(Operation::Write, at, total_len(parts), || self.inner.write_all_at(at, parts))
    }

    /// Recorded as one write.
    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.traced(Operation::Write, at, total_len(parts), || self.inner.write_durable(at, parts))
    }

    fn flush(&self) -> Result<()> {
        self.traced(Operation::Flush, Bytes::ZERO, Bytes::ZERO, || self.inner.flush())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.traced(Operation::Zero, at, len, || self.inner.zero(at, len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.traced(Operation::Discard, at, len, || self.inner.discard(at, len))
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        self.traced(Operation::Copy, at, len, || self.inner.copy_from(at, source, source_at, len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.traced(Operation::Resize, Bytes::ZERO, len, || self.inner.resize(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_newest_records_are_kept_and_all_are_called_back() {
        let seen = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&seen);
        let device = TraceDevice::new(MemoryDevice::new(Bytes::kib(4)), 2).with_callback(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        device.write_at(Bytes::new(7), &[1; 9]).unwrap();
        device.zero(Bytes::new(8), Bytes::new(2)).unwrap();
        device.read_at(Bytes::kib(4), &mut [0]).unwrap_err();
        let records = device.take();
        let shown: Vec<_> = records.iter().map(|r| (r.request, r.succeeded)).collect();
        assert_eq!(
            shown,
            [
                (Request::new(Operation::Zero, Bytes::new(8), Bytes::new(2)), true),
                (Request::new(Operation::Read, Bytes::kib(4), Bytes::new(1)), false),
            ]
        );
        assert!(records[0].began <= records[1].began);
        assert_eq!((device.dropped(), seen.load(Ordering::Relaxed)), (1, 3));
    }
}
