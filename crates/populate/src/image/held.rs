//! A device that keeps back the primary superblock.
//!
//! A device that held something before is wiped by the formatter as its first step, so file data can only be
//! written after it; but the superblock must come last, or a build cut short would look like a whole volume.
//! So the formatter writes through this, and the superblock goes out when everything else is durable.
//!
//! Not here: holding back anything else, or reads of what is held back (nobody reads during a build).

use hectare_device::{Device, Result};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_units::Bytes;
use parking_lot::Mutex;

/// See the [module](self).
pub(super) struct HeldBack<'d> {
    inner: &'d dyn Device,
    superblock: Mutex<Option<Vec<u8>>>,
}

impl<'d> HeldBack<'d> {
    pub(super) fn new(inner: &'d dyn Device) -> Self {
        Self { inner, superblock: Mutex::new(None) }
    }

    /// Writes the superblock after everything else.
    pub(super) fn release(self) -> Result<()> {
        self.inner.flush()?;
        if let Some(superblock) = self.superblock.into_inner() {
            self.inner.write_at(SUPERBLOCK_OFFSET, &superblock)?;
        }
        self.inner.flush()
    }
}

impl Device for HeldBack<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Bytes {
        self.inner.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        if at == SUPERBLOCK_OFFSET {
            *self.superblock.lock() = Some(data.to_vec());
            return Ok(());
        }
        self.inner.write_at(at, data)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.inner.zero(at, len)
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.inner.discard(at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.inner.resize(len)
    }

    fn is_zeroed(&self) -> bool {
        self.inner.is_zeroed()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }
}
