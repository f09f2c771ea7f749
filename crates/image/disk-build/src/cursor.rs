//! A device as a file with a position, for crates that read and write those.

use hectare_device::Device;
use hectare_units::{Bytes, index_of, u64_of};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// A device and a position.
pub(crate) struct Cursor<'a> {
    device: &'a dyn Device,
    at: u64,
}

impl<'a> Cursor<'a> {
    /// At the device's start.
    pub(crate) fn new(device: &'a dyn Device) -> Self {
        Self { device, at: 0 }
    }

    fn rest(&self) -> u64 {
        self.device.len().get().saturating_sub(self.at)
    }
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.device.name(), self.at)
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = index_of(u64_of(buf.len()).min(self.rest()));
        self.device.read_at(Bytes::new(self.at), &mut buf[..len]).map_err(io::Error::other)?;
        self.at += u64_of(len);
        Ok(len)
    }
}

impl Write for Cursor<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = index_of(u64_of(buf.len()).min(self.rest()));
        self.device.write_at(Bytes::new(self.at), &buf[..len]).map_err(io::Error::other)?;
        self.at += u64_of(len);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.device.len().get(), by),
            SeekFrom::Current(by) => (self.at, by),
        };
        let at = base.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        self.at = at;
        Ok(at)
    }
}
