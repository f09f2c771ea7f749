//! Remembers the first failure of a flush or a durable write ([`Durability`]): for a device that several threads
//! make durable, such as a volume's or a server's. The error that one of them gets, all of them get.

use crate::device::{of_inner, total_len};
use crate::durability::Durability;
use crate::os::BorrowedFd;
use crate::{Device, Operation, Result, Span, check_change};
use hectare_units::Bytes;
use std::io::IoSlice;
use std::sync::Arc;

/// A device whose flushes and durable writes all fail once one has failed.
pub struct RememberingDevice<D> {
    inner: D,
    durability: Arc<Durability>,
    waits: bool,
}

impl<D: Device> RememberingDevice<D> {
    /// Puts the memory over a device, of which nothing has failed yet.
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self { inner, durability: Arc::default(), waits: true }
    }

    /// The same device and memory, of which no operation waits for another: a mark that others watch must be
    /// renewed in time, however long a flush takes.
    #[must_use]
    pub fn unwaiting(&self) -> Self
    where
        D: Clone,
    {
        Self { inner: self.inner.clone(), durability: Arc::clone(&self.durability), waits: false }
    }

    fn attempt(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.waits { self.durability.attempt(work) } else { self.durability.attempt_unwaiting(work) }
    }
}

impl<D: Device> Device for RememberingDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_fresh(at, buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.inner.write_at(at, data)
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.inner.write_all_at(at, parts)
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        // A range that is refused loses nothing.
        check_change(self, Operation::Write, Span::new(at, total_len(parts)))?;
        self.attempt(|| self.inner.write_durable(at, parts))
    }

    fn flush(&self) -> Result<()> {
        self.attempt(|| self.inner.flush())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.inner.zero(at, len)
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.inner.discard(at, len)
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        self.inner.copy_from(at, source, source_at, len)
    }

    fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
        self.inner.copy_within(from, to, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.inner.resize(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultDevice, MemoryDevice, Outcome, Rule};

    #[test]
    fn regression_the_error_of_a_durable_write_was_kept_from_a_flush() {
        let below = FaultDevice::new(MemoryDevice::new(Bytes::mib(1)));
        let device = RememberingDevice::new(&below);
        let write = |at| device.write_durable(Bytes::new(at), &[IoSlice::new(b"x")]);
        write(0).unwrap();
        write(1 << 20).unwrap_err(); // outside: nothing is lost
        device.flush().unwrap();
        below.add(Rule::new(Outcome::IO).on(&[Operation::Flush]).times(1));
        write(0).unwrap_err();
        device.flush().unwrap_err();
        write(0).unwrap_err();
        device.unwaiting().flush().unwrap_err();
        below.flush().unwrap();
    }
}
