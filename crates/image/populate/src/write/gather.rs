//! Collects bytes that are contiguous in the image, to write them at once.

use crate::image_error::ImageError;
use hectare_device::Device;
use hectare_units::Bytes;

/// Size of the buffer.
pub(super) const BUFFER: usize = 1 << 20;

/// A buffer of [`BUFFER`] bytes for one contiguous place of the image at a time.
pub(super) struct Gather<'a> {
    device: &'a dyn Device,
    at: Bytes,
    bytes: Vec<u8>,
}

impl<'a> Gather<'a> {
    pub(super) fn new(device: &'a dyn Device) -> Self {
        Self { device, at: Bytes::ZERO, bytes: Vec::with_capacity(BUFFER) }
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> Result<(), ImageError> {
        if !self.bytes.is_empty() {
            self.device.write_at(self.at, &self.bytes)?;
            self.at += Bytes::of(self.bytes.len());
            self.bytes.clear();
        }
        Ok(())
    }

    /// Room for `len` bytes, at most [`BUFFER`], at `at`, zeroed, to be filled by the caller.
    pub(super) fn room(&mut self, at: Bytes, len: usize) -> Result<&mut [u8], ImageError> {
        let follows = self.at + Bytes::of(self.bytes.len()) == at;
        if !follows || self.bytes.len() + len > BUFFER {
            self.flush()?;
            self.at = at;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        Ok(&mut self.bytes[start..])
    }
}
