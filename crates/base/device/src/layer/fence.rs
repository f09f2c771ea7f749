//! Asks a [`Fence`] before each operation that changes a device.
//!
//! A device that cuts operations into requests, or makes requests again by itself, has to ask for each of them
//! ([`Device::add_fence`]); this layer asks once for each operation.

use crate::device::{check_change, copy_through_memory, of_inner, once_passed};
use crate::fence::pass;
use crate::os::BorrowedFd;
use crate::{Device, Error, Fence, Operation, Reason, Result, Span};
use hectare_units::Bytes;
use std::io::IoSlice;
use std::sync::Arc;

/// A device that takes changes only as long as a fence admits them.
pub struct FencedDevice<D> {
    inner: D,
    at: Bytes,
    fence: Arc<dyn Fence>,
}

impl<D: Device> FencedDevice<D> {
    /// Puts a fence around a device; its mark begins at byte `at`.
    #[must_use]
    pub fn new(inner: D, at: Bytes, fence: Arc<dyn Fence>) -> Self {
        Self { inner, at, fence }
    }

    /// The device inside, which the fence does not protect.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn pass(&self, operation: Operation, span: Option<Span>) -> Result<()> {
        pass(&*self.fence, |mark| self.inner.read_fresh(self.at, mark))?
            .map_err(|who| Error::new(self.name(), operation, span, Reason::Taken(who)))
    }
}

impl<D: Device> Device for FencedDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);
    // A flush changes nothing, but its caller is promised something that the next owner may undo.
    once_passed!(write_at, write_all_at, flush, zero, discard);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_fresh(at, buf)
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.pass(Operation::Write, Some(Span::new(at, crate::total_len(parts))))?;
        self.inner.write_durable(at, parts)
    }

    /// Through memory, so that each piece is asked for: the whole may take long.
    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        check_change(self, Operation::Copy, Span::new(at, len))?;
        copy_through_memory(self, at, source, source_at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.pass(Operation::Resize, Some(Span::new(Bytes::ZERO, len)))?;
        self.inner.resize(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::READ_AGAIN;
    use crate::{Mark, MemoryDevice};
    use parking_lot::Mutex;
    use std::time::Duration;

    /// A mark of one byte: 1 is ours, 2 is another process's, 3 can't be understood.
    #[derive(Default)]
    struct Byte {
        fresh: Mutex<bool>,
        judged: Mutex<u32>,
    }

    impl Fence for Byte {
        fn mark_len(&self) -> usize {
            1
        }

        fn is_fresh(&self) -> bool {
            *self.fresh.lock()
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn judge(&self, _: Duration, mark: &[u8]) -> Mark {
            *self.judged.lock() += 1;
            match mark {
                [1] => Mark::Ours,
                [2] => Mark::Lost("host b has it".to_owned()),
                _ => Mark::Unclear("it is 3".to_owned()),
            }
        }
    }

    type Change = fn(&dyn Device) -> Result<()>;

    const CHANGES: [Change; 7] = [
        |device| device.write_at(Bytes::new(8), b"x"),
        |device| device.write_all_at(Bytes::new(8), &[IoSlice::new(b"x")]),
        |device| device.write_durable(Bytes::new(8), &[IoSlice::new(b"x")]),
        |device| device.flush(),
        |device| device.zero(Bytes::new(8), Bytes::new(1)),
        |device| device.discard(Bytes::new(8), Bytes::new(1)),
        |device| device.resize(Bytes::kib(1)),
    ];

    #[test]
    fn nothing_is_changed_once_the_mark_is_anothers() {
        let (fence, memory) = (Arc::new(Byte::default()), Arc::new(MemoryDevice::new(Bytes::kib(4))));
        memory.write_at(Bytes::new(8), b"abc").unwrap();
        memory.write_at(Bytes::new(5), &[2]).unwrap();
        let device = FencedDevice::new(Arc::clone(&memory), Bytes::new(5), fence as _);
        let before = memory.to_vec();
        for change in CHANGES {
            let error = change(&device).unwrap_err().to_string();
            assert!(error.contains("host b has it"), "{error}");
        }
        let source = std::fs::File::open("/dev/zero").unwrap();
        let copied =
            device.copy_from(Bytes::ZERO, std::os::fd::AsFd::as_fd(&source), Bytes::ZERO, Bytes::new(9));
        assert!(copied.is_err());
        assert!(memory.to_vec() == before);
        device.read_at(Bytes::ZERO, &mut [0; 9]).unwrap();
    }

    #[test]
    fn the_mark_is_read_only_when_it_was_not_seen_for_long() {
        let (fence, memory) = (Arc::new(Byte::default()), Arc::new(MemoryDevice::new(Bytes::kib(4))));
        memory.write_at(Bytes::ZERO, &[1]).unwrap();
        let device = FencedDevice::new(memory, Bytes::ZERO, Arc::clone(&fence) as _);
        CHANGES.iter().for_each(|change| change(&device).unwrap());
        assert_eq!(*fence.judged.lock(), 7);
        *fence.fresh.lock() = true;
        CHANGES.iter().for_each(|change| change(&device).unwrap());
        assert_eq!(*fence.judged.lock(), 7);
    }

    #[test]
    fn a_mark_that_stays_unclear_ends_changes() {
        let (fence, memory) = (Arc::new(Byte::default()), Arc::new(MemoryDevice::new(Bytes::kib(4))));
        let device = FencedDevice::new(memory, Bytes::ZERO, Arc::clone(&fence) as _);
        let error = device.write_at(Bytes::ZERO, b"x").unwrap_err().to_string();
        assert!(error.contains("can't be read: it is 3"), "{error}");
        assert_eq!(*fence.judged.lock(), READ_AGAIN);
    }
}
