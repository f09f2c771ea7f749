//! Counts operations, bytes and failures of each kind. Counting is a few relaxed additions and takes no
//! lock, so the layer can stay in place in production.
//!
//! Hazard: a snapshot taken while operations run is not of one moment; each number in it is right by itself.

use crate::device::{of_inner, total_len};
use crate::os::BorrowedFd;
use crate::{Device, Operation, Result};
use hectare_units::{Bytes, u64_of};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};

const KINDS: usize = Operation::ON_DEVICE.len();

/// What was counted of one kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Operations that succeeded.
    pub done: u64,
    /// The bytes they moved, zeroed or gave up.
    pub bytes: Bytes,
    /// Operations that failed.
    pub failed: u64,
}

/// All counters at about one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Snapshot([Counters; KINDS]);

impl Snapshot {
    /// The counters of one kind of operation; none for kinds that never reach a device.
    #[must_use]
    pub fn of(&self, operation: Operation) -> Counters {
        index(operation).map(|kind| self.0[kind]).unwrap_or_default()
    }

    /// What was counted after an earlier snapshot of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (now, then) in difference.0.iter_mut().zip(&earlier.0) {
            now.done = now.done.saturating_sub(then.done);
            now.bytes = now.bytes.saturating_sub(then.bytes);
            now.failed = now.failed.saturating_sub(then.failed);
        }
        difference
    }
}

fn index(operation: Operation) -> Option<usize> {
    Operation::ON_DEVICE.iter().position(|known| *known == operation)
}

#[derive(Default)]
struct Tally {
    done: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
}

/// A device that counts its operations.
pub struct StatsDevice<D> {
    inner: D,
    kinds: [Tally; KINDS],
}

impl<D: Device> StatsDevice<D> {
    /// Counts what reaches `inner`, from zero.
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self { inner, kinds: Default::default() }
    }

    /// The device below.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The counters as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Snapshot(std::array::from_fn(|kind| {
            let Tally { done, bytes, failed } = &self.kinds[kind];
            Counters { done: load(done), bytes: Bytes::new(load(bytes)), failed: load(failed) }
        }))
    }

    fn count(&self, operation: Operation, moved: std::result::Result<Bytes, ()>) {
        let Some(kind) = index(operation).map(|kind| &self.kinds[kind]) else { return };
        match moved {
            Ok(bytes) => {
                kind.done.fetch_add(1, Ordering::Relaxed);
                kind.bytes.fetch_add(bytes.get(), Ordering::Relaxed);
            }
            Err(()) => {
                kind.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn counted(&self, operation: Operation, len: Bytes, result: Result<()>) -> Result<()> {
        self.count(operation, result.as_ref().map(|()| len).map_err(|_| ()));
        result
    }
}

impl<D: Device> Device for StatsDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let len = Bytes::new(u64_of(buf.len()));
        self.counted(Operation::Read, len, self.inner.read_at(at, buf))
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let len = Bytes::new(u64_of(buf.len()));
        self.counted(Operation::Read, len, self.inner.read_fresh(at, buf))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.counted(Operation::Write, Bytes::of(data.len()), self.inner.write_at(at, data))
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.counted(Operation::Write, total_len(parts), self.inner.write_all_at(at, parts))
    }

    /// Counted as a write, and as a flush if it succeeded.
    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let result = self.inner.write_durable(at, parts);
        if result.is_ok() {
            self.count(Operation::Flush, Ok(Bytes::ZERO));
        }
        self.counted(Operation::Write, total_len(parts), result)
    }

    fn flush(&self) -> Result<()> {
        self.counted(Operation::Flush, Bytes::ZERO, self.inner.flush())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.counted(Operation::Zero, len, self.inner.zero(at, len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.counted(Operation::Discard, len, self.inner.discard(at, len))
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        let result = self.inner.copy_from(at, source, source_at, len);
        self.count(Operation::Copy, result.as_ref().copied().map_err(|_| ()));
        result
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.counted(Operation::Resize, Bytes::ZERO, self.inner.resize(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn successes_bytes_and_failures_are_told_apart() {
        let device = StatsDevice::new(MemoryDevice::new(Bytes::kib(8)));
        device.write_at(Bytes::ZERO, &[1; 1000]).unwrap();
        device.write_at(Bytes::kib(8), &[1]).unwrap_err();
        let before = device.snapshot();
        device.write_all_at(Bytes::ZERO, &[IoSlice::new(&[1; 10]), IoSlice::new(&[2; 5])]).unwrap();
        device.flush().unwrap();
        device.write_durable(Bytes::ZERO, &[IoSlice::new(&[3; 5])]).unwrap();
        let after = device.snapshot();
        assert_eq!(before.of(Operation::Write), Counters { done: 1, bytes: Bytes::new(1000), failed: 1 });
        let since = after.since(&before);
        assert_eq!(since.of(Operation::Write), Counters { done: 2, bytes: Bytes::new(20), failed: 0 });
        assert_eq!((since.of(Operation::Flush).done, since.of(Operation::Open).done), (2, 0));
    }
}
