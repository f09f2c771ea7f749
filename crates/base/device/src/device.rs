//! The [`Device`] trait, with the plain versions of what every backend can do.

use crate::os::{self, BorrowedFd, Errno};
use crate::scratch::with_scratch;
use crate::{Error, Extent, Fence, Operation, Reason, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use std::io::IoSlice;
use std::sync::Arc;

/// A flat range of bytes that can be read and written at any offset, from any number of threads.
///
/// Offsets and lengths are in bytes and need no alignment ([`Device::alignment`] says what is fast). A range
/// that does not lie inside the device is refused with [`Reason::OutOfRange`] before anything is touched; a
/// change to a device opened for reading only is refused with [`Reason::ReadOnly`]. An empty range is fine
/// anywhere up to the end.
#[allow(clippy::len_without_is_empty)] // the length of a device, not of a collection
pub trait Device: Send + Sync {
    /// What error messages call the device: usually its path.
    fn name(&self) -> &str;

    /// The length in bytes.
    fn len(&self) -> Bytes;

    /// Fills `buf` from offset `at`.
    ///
    /// # Errors
    /// If the range lies outside or the storage fails; `buf` is then undefined.
    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()>;

    /// As [`Device::read_at`], but gives what the storage holds now, with changes of others, also where a layer
    /// has kept an earlier content in memory. Without such a layer both are the same.
    ///
    /// # Errors
    /// As [`Device::read_at`].
    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.read_at(at, buf)
    }

    /// Writes all of `data` at offset `at`.
    ///
    /// # Errors
    /// If the range lies outside, the device is read-only or the storage fails; in the last case the range
    /// then holds old bytes, new bytes or a mixture.
    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()>;

    /// Writes several buffers to one contiguous place, the first at offset `at`.
    ///
    /// # Errors
    /// As [`Device::write_at`], for the range of all parts together.
    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, total_len(parts)))?;
        let mut at = at;
        for part in parts {
            self.write_at(at, part)?;
            at += Bytes::of(part.len());
        }
        Ok(())
    }

    /// Writes several buffers to one contiguous place and makes just this write durable before it returns; of
    /// others it says nothing. Where the storage can, that is cheaper than a write and a flush.
    ///
    /// # Errors
    /// As [`Device::write_at`] and [`Device::flush`]; how far it came is then unknown.
    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.write_all_at(at, parts)?;
        self.flush()
    }

    /// Makes every write that has returned durable. A device opened for reading only does nothing.
    ///
    /// # Errors
    /// If the storage fails. What was written since the last successful flush may then be lost, and a later
    /// flush that succeeds does not mean otherwise.
    fn flush(&self) -> Result<()>;

    /// Makes a range read as zeros, without using storage for it where the backend can.
    ///
    /// # Errors
    /// As [`Device::write_at`].
    fn zero(&self, at: Bytes, len: Bytes) -> Result<()>;

    /// Hints that the range is not needed; its content is undefined afterwards. A backend that
    /// has no use for the hint does nothing.
    ///
    /// # Errors
    /// If the range lies outside, the device is read-only or the storage fails.
    fn discard(&self, at: Bytes, len: Bytes) -> Result<()>;

    /// Copies `len` bytes from an open file, from its offset `source_at`, to offset `at`, and says how many
    /// there were: fewer than `len` only where the source ended early. The file's own offset is not used.
    /// Holes of the source are copied as zeros.
    ///
    /// # Errors
    /// As [`Device::write_at`]; [`Reason::Source`] if it was the source that could not be read.
    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        check_change(self, Operation::Copy, Span::new(at, len))?;
        copy_through_memory(self, at, source, source_at, len)
    }

    /// Copies `len` bytes from offset `from` of this device to offset `to`; the ranges don't overlap. A host
    /// that can share blocks between both places is asked to.
    ///
    /// # Errors
    /// As [`Device::read_at`] and [`Device::write_at`].
    fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
        check_range(self, Operation::Read, Span::new(from, len))?;
        check_change(self, Operation::Copy, Span::new(to, len))?;
        copy_inside(self, from, to, len)
    }

    /// Changes the length. What is gained reads as zeros.
    ///
    /// # Errors
    /// If the storage fails, and always where the length is given by the hardware or by another device.
    fn resize(&self, len: Bytes) -> Result<()>;

    /// Whether every byte that was not written since this value was made reads as zero, so that a formatter
    /// need not write the zeros of a fresh volume.
    fn is_zeroed(&self) -> bool;

    /// Whether what was given up with [`Device::discard`] reads as zeros. To be asked after a discard: only
    /// that shows what the storage can.
    fn discards_to_zeros(&self) -> bool {
        false
    }

    /// What is known of the start of a range without reading it: how many of its bytes read as zeros, or how
    /// many may hold data. Others may change that at any time, as they may change the bytes.
    ///
    /// # Errors
    /// If the range lies outside or the storage fails.
    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        check_range(self, Operation::Read, Span::new(at, len))?;
        Ok(Extent::data(len))
    }

    /// Whether changes are refused.
    fn is_read_only(&self) -> bool;

    /// Puts a fence around the device, whose mark begins at byte `at`, until [`Device::remove_fence`]: a device
    /// that cuts operations into requests, or makes requests again by itself, asks it before each one that
    /// changes something. Others do nothing: [`FencedDevice`](crate::FencedDevice) asks for operations. Layers
    /// that keep content in memory forget it: until now, others may have changed the storage.
    fn add_fence(&self, at: Bytes, fence: &Arc<dyn Fence>) {
        let _ = (at, fence);
    }

    /// Takes a fence away, by its identity; one that is not there is none.
    fn remove_fence(&self, fence: &Arc<dyn Fence>) {
        let _ = fence;
    }

    /// Offsets and lengths in multiples of this many bytes (a power of two) are served without a detour; 1
    /// where all are alike.
    fn alignment(&self) -> u32 {
        1
    }
}

macro_rules! forward {
    ($pointer:ty) => {
        impl<D: Device + ?Sized> Device for $pointer {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn len(&self) -> Bytes {
                (**self).len()
            }
            fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
                (**self).read_at(at, buf)
            }
            fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
                (**self).read_fresh(at, buf)
            }

            fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
                (**self).write_at(at, data)
            }
            fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
                (**self).write_all_at(at, parts)
            }
            fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
                (**self).write_durable(at, parts)
            }
            fn flush(&self) -> Result<()> {
                (**self).flush()
            }
            fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
                (**self).zero(at, len)
            }
            fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
                (**self).discard(at, len)
            }
            fn copy_from(
                &self,
                at: Bytes,
                source: BorrowedFd<'_>,
                source_at: Bytes,
                len: Bytes,
            ) -> Result<Bytes> {
                (**self).copy_from(at, source, source_at, len)
            }
            fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
                (**self).copy_within(from, to, len)
            }
            fn resize(&self, len: Bytes) -> Result<()> {
                (**self).resize(len)
            }
            fn is_zeroed(&self) -> bool {
                (**self).is_zeroed()
            }
            fn discards_to_zeros(&self) -> bool {
                (**self).discards_to_zeros()
            }
            fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
                (**self).extent_at(at, len)
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn add_fence(&self, at: Bytes, fence: &Arc<dyn Fence>) {
                (**self).add_fence(at, fence);
            }
            fn remove_fence(&self, fence: &Arc<dyn Fence>) {
                (**self).remove_fence(fence);
            }
            fn alignment(&self) -> u32 {
                (**self).alignment()
            }
        }
    };
}

forward!(&D);
forward!(Box<D>);
forward!(Arc<D>);

/// Inside `impl Device` for a layer: these methods answer as the device below does, which is its field
/// `inner`.
macro_rules! of_inner {
    (name) => {
        fn name(&self) -> &str {
            self.inner.name()
        }
    };
    (len) => {
        fn len(&self) -> Bytes {
            self.inner.len()
        }
    };
    (is_zeroed) => {
        fn is_zeroed(&self) -> bool {
            self.inner.is_zeroed()
        }
    };
    (discards_to_zeros) => {
        fn discards_to_zeros(&self) -> bool {
            self.inner.discards_to_zeros()
        }
    };
    (is_read_only) => {
        fn is_read_only(&self) -> bool {
            self.inner.is_read_only()
        }
    };
    (extent_at) => {
        fn extent_at(&self, at: Bytes, len: Bytes) -> $crate::Result<$crate::Extent> {
            self.inner.extent_at(at, len)
        }
    };
    (fences) => {
        fn add_fence(&self, at: Bytes, fence: &std::sync::Arc<dyn $crate::Fence>) {
            self.inner.add_fence(at, fence);
        }

        fn remove_fence(&self, fence: &std::sync::Arc<dyn $crate::Fence>) {
            self.inner.remove_fence(fence);
        }
    };
    (alignment) => {
        fn alignment(&self) -> u32 {
            self.inner.alignment()
        }
    };
    ($($method:ident),+) => {
        $($crate::device::of_inner!($method);)+
    };
}
pub(crate) use of_inner;

/// Inside `impl Device` for a layer that may refuse operations: these methods ask its method `pass`, with the
/// operation and its place, and are then done by the device below, which is its field `inner`.
macro_rules! once_passed {
    (write_at) => {
        fn write_at(&self, at: Bytes, data: &[u8]) -> $crate::Result<()> {
            self.pass($crate::Operation::Write, Some($crate::Span::new(at, Bytes::of(data.len()))))?;
            self.inner.write_at(at, data)
        }
    };
    (write_all_at) => {
        fn write_all_at(&self, at: Bytes, parts: &[std::io::IoSlice<'_>]) -> $crate::Result<()> {
            self.pass($crate::Operation::Write, Some($crate::Span::new(at, $crate::total_len(parts))))?;
            self.inner.write_all_at(at, parts)
        }
    };
    (flush) => {
        fn flush(&self) -> $crate::Result<()> {
            self.pass($crate::Operation::Flush, None)?;
            self.inner.flush()
        }
    };
    (zero) => {
        fn zero(&self, at: Bytes, len: Bytes) -> $crate::Result<()> {
            self.pass($crate::Operation::Zero, Some($crate::Span::new(at, len)))?;
            self.inner.zero(at, len)
        }
    };
    (discard) => {
        fn discard(&self, at: Bytes, len: Bytes) -> $crate::Result<()> {
            self.pass($crate::Operation::Discard, Some($crate::Span::new(at, len)))?;
            self.inner.discard(at, len)
        }
    };
    ($($method:ident),+) => {
        $($crate::device::once_passed!($method);)+
    };
}
pub(crate) use once_passed;

/// The length of all parts together.
#[must_use]
pub fn total_len(parts: &[IoSlice<'_>]) -> Bytes {
    // Slices in memory cannot add up to 2^64 bytes unless one is listed absurdly often; that then fits no
    // device.
    Bytes::new(parts.iter().fold(0, |sum, part| u64_of(part.len()).saturating_add(sum)))
}

/// Refuses a range that does not lie inside the device: for implementations of [`Device`].
///
/// # Errors
/// [`Reason::OutOfRange`].
pub fn check_range<D: Device + ?Sized>(device: &D, operation: Operation, span: Span) -> Result<()> {
    check_fits(device.name(), device.len(), operation, span)
}

/// Refuses a range that does not lie inside a device of `size` bytes; for a device whose length is already
/// held still by a lock.
pub(crate) fn check_fits(name: &str, size: Bytes, operation: Operation, span: Span) -> Result<()> {
    if span.fits(size) {
        return Ok(());
    }
    Err(Error::new(name, operation, Some(span), Reason::OutOfRange(size)))
}

/// Refuses a change outside the device, or to one that is read-only: for implementations of [`Device`].
///
/// # Errors
/// [`Reason::OutOfRange`] or [`Reason::ReadOnly`].
pub fn check_change<D: Device + ?Sized>(device: &D, operation: Operation, span: Span) -> Result<()> {
    if device.is_read_only() {
        return Err(Error::new(device.name(), operation, Some(span), Reason::ReadOnly));
    }
    check_range(device, operation, span)
}

/// Copies by reading into a buffer and writing that; the range is already checked.
pub(crate) fn copy_through_memory<D: Device + ?Sized>(
    device: &D,
    at: Bytes,
    source: BorrowedFd<'_>,
    source_at: Bytes,
    len: Bytes,
) -> Result<Bytes> {
    let fail = |errno: Errno| {
        Error::new(
            device.name(),
            Operation::Copy,
            Some(Span::new(at, len)),
            Reason::Source(errno.raw_os_error()),
        )
    };
    with_scratch(|buf| {
        let mut copied = Bytes::ZERO;
        while copied < len {
            let want = index_of((len - copied).get().min(u64_of(buf.len())));
            let from = source_at.checked_add(copied).ok_or_else(|| fail(Errno::INVAL))?;
            let got = read_up_to(source, &mut buf[..want], from).map_err(fail)?;
            device.write_at(at + copied, &buf[..got])?;
            copied += Bytes::of(got);
            if got < want {
                break;
            }
        }
        Ok(copied)
    })
}

/// Copies from one place of a device to another; the ranges are already checked.
pub(crate) fn copy_inside<D: Device + ?Sized>(device: &D, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
    with_scratch(|buf| {
        let mut copied = Bytes::ZERO;
        while copied < len {
            let some = index_of((len - copied).get().min(u64_of(buf.len())));
            device.read_at(from + copied, &mut buf[..some])?;
            device.write_at(to + copied, &buf[..some])?;
            copied += Bytes::of(some);
        }
        Ok(())
    })
}

/// Reads until `buf` is full or the file ends.
fn read_up_to(source: BorrowedFd<'_>, buf: &mut [u8], at: Bytes) -> std::result::Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match os::read_at(source, &mut buf[done..], at.get().saturating_add(u64_of(done)))? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mark, MemoryDevice};
    use parking_lot::Mutex;
    use std::time::Duration;

    /// Counts the fences around it.
    struct Counting(MemoryDevice, Mutex<i32>);

    impl Device for Counting {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn len(&self) -> Bytes {
            self.0.len()
        }
        fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
            self.0.read_at(at, buf)
        }
        fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
            self.0.write_at(at, data)
        }
        fn flush(&self) -> Result<()> {
            self.0.flush()
        }
        fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
            self.0.zero(at, len)
        }
        fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
            self.0.discard(at, len)
        }
        fn resize(&self, len: Bytes) -> Result<()> {
            self.0.resize(len)
        }
        fn is_zeroed(&self) -> bool {
            self.0.is_zeroed()
        }
        fn is_read_only(&self) -> bool {
            self.0.is_read_only()
        }
        fn add_fence(&self, _: Bytes, _: &Arc<dyn Fence>) {
            *self.1.lock() += 1;
        }
        fn remove_fence(&self, _: &Arc<dyn Fence>) {
            *self.1.lock() += 100;
        }
    }

    struct Open;

    impl Fence for Open {
        fn mark_len(&self) -> usize {
            1
        }
        fn is_fresh(&self) -> bool {
            true
        }
        fn now(&self) -> Duration {
            Duration::ZERO
        }
        fn judge(&self, _: Duration, _: &[u8]) -> Mark {
            Mark::Ours
        }
    }

    #[test]
    fn regression_fences_pass_through_pointers() {
        fn around(device: impl Device) {
            let fence: Arc<dyn Fence> = Arc::new(Open);
            device.add_fence(Bytes::ZERO, &fence);
            device.remove_fence(&fence);
        }
        let counting = Arc::new(Counting(MemoryDevice::new(Bytes::kib(4)), Mutex::new(0)));
        around(&*counting);
        around(Arc::clone(&counting));
        around(Arc::clone(&counting) as Arc<dyn Device>);
        around(Box::new(Arc::clone(&counting) as Arc<dyn Device>));
        assert_eq!(*counting.1.lock(), 404);
    }
}
