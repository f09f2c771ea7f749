//! Records changes, bytes included, so that every state a power cut could leave can be made afterwards
//! ([`CrashStates`](crate::CrashStates)).
//!
//! One lock is held while an operation is done and logged, flushes included: the log has the order in which
//! the device below was changed, and when a flush is logged, all writes logged before it had returned before
//! it began, and none was under way. So everything before a [`Event::Flush`] is durable, without exceptions;
//! before a [`Event::FlushOf`], everything in its range. Parts share the lock and the log of the whole.
//! Writers wait for each other and for flushes; that is one legal schedule of a disk, not a fast one.
//!
//! Hazards:
//! - An operation that fails is not logged, though it may have changed something. Failures that are part of a
//!   test belong above this layer, not below.
//! - The log keeps every byte ever written.

use crate::device::{check_change, copy_through_memory, of_inner, total_len};
use crate::os::BorrowedFd;
use crate::{Device, Operation, Result, SliceDevice, Span};
use hectare_units::{Bytes, index_of};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::sync::Arc;

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A write that returned.
    Write {
        /// Where its first byte went.
        at: Bytes,
        /// What was written.
        data: Arc<[u8]>,
        /// Whether it was durable when it returned ([`Device::write_durable`]); that says nothing of others.
        durable: bool,
    },
    /// A range that was made zero.
    Zero(Span),
    /// A range that was discarded.
    Discard(Span),
    /// A new length.
    Resize(Bytes),
    /// A flush that succeeded: everything before it is durable.
    Flush,
    /// A flush of a [part](RecordDevice::part) that succeeded: what was done to that range before it is
    /// durable.
    FlushOf(Span),
    /// A mark set by the test.
    Mark(u64),
}

impl Event {
    /// Whether it changes what the device holds.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self, Self::Flush | Self::FlushOf(_) | Self::Mark(_))
    }
}

/// A device that records what changes it.
pub struct RecordDevice<D> {
    inner: D,
    log: Arc<Mutex<Vec<Event>>>,
    /// The part of the logged device that this is; all of it, if none.
    part: Option<Span>,
}

impl<D: Device> RecordDevice<D> {
    /// Records what changes `inner` from here on.
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self { inner, log: Arc::default(), part: None }
    }

    /// A range of the device as a device of its own, such as a second disk: its events go to the same log,
    /// with their places in the whole, but its flushes are for this range alone.
    ///
    /// # Errors
    /// If the range does not lie inside the device.
    pub fn part(&self, at: Bytes, len: Bytes) -> Result<RecordDevice<SliceDevice<D>>>
    where
        D: Clone,
    {
        let part = Some(Span::new(self.start() + at, len));
        let inner = SliceDevice::new(self.inner.clone(), at, len)?;
        Ok(RecordDevice { inner, log: Arc::clone(&self.log), part })
    }

    /// Where this begins in the logged device.
    fn start(&self) -> Bytes {
        self.part.map_or(Bytes::ZERO, |part| part.at)
    }

    fn span(&self, at: Bytes, len: Bytes) -> Span {
        Span::new(self.start() + at, len)
    }

    /// The device below.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Puts a mark into the log, such as "this is known to be durable", and says how many events there are
    /// up to and with it.
    pub fn mark(&self, mark: u64) -> usize {
        let mut log = self.log.lock();
        log.push(Event::Mark(mark));
        log.len()
    }

    /// How many events there are.
    #[must_use]
    pub fn events(&self) -> usize {
        self.log.lock().len()
    }

    /// All events so far, oldest first.
    #[must_use]
    pub fn log(&self) -> Arc<[Event]> {
        self.log.lock().as_slice().into()
    }

    /// Takes the events out; the record begins anew.
    #[must_use]
    pub fn take_log(&self) -> Arc<[Event]> {
        std::mem::take(&mut *self.log.lock()).into()
    }

    fn logged(&self, event: Event, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut log = self.log.lock();
        work()?;
        log.push(event);
        Ok(())
    }
}

/// All parts in one piece of memory.
fn joined(parts: &[IoSlice<'_>]) -> Arc<[u8]> {
    let mut bytes = Vec::with_capacity(index_of(total_len(parts).get()));
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.into()
}

impl<D: Device> Device for RecordDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let event = Event::Write { at: self.start() + at, data: data.into(), durable: false };
        self.logged(event, || self.inner.write_at(at, data))
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let event = Event::Write { at: self.start() + at, data: joined(parts), durable: false };
        self.logged(event, || self.inner.write_all_at(at, parts))
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let event = Event::Write { at: self.start() + at, data: joined(parts), durable: true };
        self.logged(event, || self.inner.write_durable(at, parts))
    }

    fn flush(&self) -> Result<()> {
        self.logged(self.part.map_or(Event::Flush, Event::FlushOf), || self.inner.flush())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.logged(Event::Zero(self.span(at, len)), || self.inner.zero(at, len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.logged(Event::Discard(self.span(at, len)), || self.inner.discard(at, len))
    }

    /// Through memory, so that the bytes are seen; each buffer full is a write.
    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        check_change(self, Operation::Copy, Span::new(at, len))?;
        copy_through_memory(self, at, source, source_at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.logged(Event::Resize(len), || self.inner.resize(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultDevice, MemoryDevice, Outcome, Rule};

    #[test]
    fn what_succeeds_is_logged_in_order() {
        let faulty = FaultDevice::new(MemoryDevice::new(Bytes::kib(8)));
        faulty.add(Rule::new(Outcome::IO).on(&[Operation::Flush]).times(1));
        let device = RecordDevice::new(faulty);
        device.write_at(Bytes::new(1), b"one").unwrap();
        device.flush().unwrap_err();
        assert_eq!((device.mark(7), device.events()), (2, 2));
        device.write_all_at(Bytes::new(4), &[IoSlice::new(b"tw"), IoSlice::new(b"o")]).unwrap();
        device.write_at(Bytes::kib(8), b"outside").unwrap_err();
        device.flush().unwrap();
        device.zero(Bytes::new(2), Bytes::new(3)).unwrap();
        device.discard(Bytes::kib(4), Bytes::kib(4)).unwrap();
        device.write_durable(Bytes::new(9), &[IoSlice::new(b"fast")]).unwrap();
        let write =
            |at, data: &[u8], durable| Event::Write { at: Bytes::new(at), data: data.into(), durable };
        let expected = [
            write(1, b"one", false),
            Event::Mark(7),
            write(4, b"two", false),
            Event::Flush,
            Event::Zero(Span::new(Bytes::new(2), Bytes::new(3))),
            Event::Discard(Span::new(Bytes::kib(4), Bytes::kib(4))),
            write(9, b"fast", true),
        ];
        assert_eq!(*device.log(), expected);
        assert_eq!(*device.take_log(), expected);
        assert_eq!(device.events(), 0);
    }

    #[test]
    fn parts_share_a_log_and_are_flushed_alone() {
        let whole = RecordDevice::new(Arc::new(MemoryDevice::new(Bytes::kib(8))));
        let part = whole.part(Bytes::kib(4), Bytes::kib(4)).unwrap();
        whole.write_at(Bytes::ZERO, b"w").unwrap();
        part.write_at(Bytes::new(7), b"p").unwrap();
        part.zero(Bytes::new(9), Bytes::new(1)).unwrap();
        part.flush().unwrap();
        whole.flush().unwrap();
        assert!(part.write_at(Bytes::kib(4), b"outside").is_err());
        assert!(whole.part(Bytes::kib(5), Bytes::kib(4)).is_err());
        let write = |at, data: &[u8]| Event::Write { at: Bytes::new(at), data: data.into(), durable: false };
        let flush = Event::FlushOf(Span::new(Bytes::kib(4), Bytes::kib(4)));
        let zero = Event::Zero(Span::new(Bytes::new(4105), Bytes::new(1)));
        assert_eq!(*whole.log(), [write(0, b"w"), write(4103, b"p"), zero, flush, Event::Flush]);
        let mut byte = [0];
        whole.read_at(Bytes::new(4103), &mut byte).unwrap();
        assert_eq!(byte, *b"p");
    }
}
