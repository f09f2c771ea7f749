//! Brings a device of one's own, which counts what is read: `cargo run --example own_device`.

use hectare::device::{Bytes, Device, MemoryDevice, Result};
use hectare::{Volume, mkfs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device in memory that counts reads.
struct Counting {
    inner: MemoryDevice,
    reads: AtomicU64,
}

impl Device for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn len(&self) -> Bytes {
        self.inner.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
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
        false
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(Counting { inner: MemoryDevice::new(Bytes::mib(16)), reads: AtomicU64::new(0) });
    mkfs::Format::new().on_device(&*device)?;
    let volume = Volume::options().write(true).open_device(device.clone())?;
    volume.write("/hello", "world")?;
    volume.close()?;
    println!("{} reads", device.reads.load(Ordering::Relaxed));
    Ok(())
}
