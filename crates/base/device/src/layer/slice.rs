//! A window of another device: a partition of a disk image, a volume that lies inside a larger file.
//!
//! Hazard: offsets inside the window are checked against the window before the offset of the window is added,
//! so nothing reaches the device around it. Failures of the device below name that device and its own
//! offsets.

use crate::device::{check_change, check_range, of_inner, total_len};
use crate::os::BorrowedFd;
use crate::{Device, Error, Extent, Fence, Operation, Reason, Result, Span};
use hectare_units::Bytes;
use std::io::IoSlice;
use std::sync::Arc;

/// A range of another device as a device of its own.
pub struct SliceDevice<D> {
    inner: D,
    window: Span,
    name: String,
}

impl<D: Device> SliceDevice<D> {
    /// The `len` bytes of `inner` from offset `at` on.
    ///
    /// # Errors
    /// If they do not lie inside `inner`.
    pub fn new(inner: D, at: Bytes, len: Bytes) -> Result<Self> {
        let window = Span::new(at, len);
        check_range(&inner, Operation::Open, window)?;
        let name = if at == Bytes::ZERO { inner.name().to_owned() } else { format!("{}@{at}", inner.name()) };
        Ok(Self { inner, window, name })
    }

    /// The device around it.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn place(&self, at: Bytes) -> Bytes {
        self.window.at + at
    }
}

impl<D: Device> Device for SliceDevice<D> {
    of_inner!(is_zeroed, discards_to_zeros, is_read_only, alignment);

    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        self.window.len
    }

    fn add_fence(&self, at: Bytes, fence: &Arc<dyn Fence>) {
        self.inner.add_fence(self.place(at), fence);
    }

    fn remove_fence(&self, fence: &Arc<dyn Fence>) {
        self.inner.remove_fence(fence);
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        check_range(self, Operation::Read, Span::new(at, Bytes::of(buf.len())))?;
        self.inner.read_at(self.place(at), buf)
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        check_range(self, Operation::Read, Span::new(at, Bytes::of(buf.len())))?;
        self.inner.read_fresh(self.place(at), buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, Bytes::of(data.len())))?;
        self.inner.write_at(self.place(at), data)
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, total_len(parts)))?;
        self.inner.write_all_at(self.place(at), parts)
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, total_len(parts)))?;
        self.inner.write_durable(self.place(at), parts)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Zero, Span::new(at, len))?;
        self.inner.zero(self.place(at), len)
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Discard, Span::new(at, len))?;
        self.inner.discard(self.place(at), len)
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        check_range(self, Operation::Read, Span::new(at, len))?;
        self.inner.extent_at(self.place(at), len)
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        check_change(self, Operation::Copy, Span::new(at, len))?;
        self.inner.copy_from(self.place(at), source, source_at, len)
    }

    fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
        check_range(self, Operation::Read, Span::new(from, len))?;
        check_change(self, Operation::Copy, Span::new(to, len))?;
        self.inner.copy_within(self.place(from), self.place(to), len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let reason = Reason::Unsupported("a window of another device has the length it has");
        Err(Error::new(&self.name, Operation::Resize, Some(Span::new(Bytes::ZERO, len)), reason))
    }
}
