//! Devices of a user's own, which say what they like.

use hectare::device::{Bytes, Device, MemoryDevice, Result};
use hectare::mkfs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says that it is read only, and would write all the same.
struct Odd {
    inner: MemoryDevice,
    changed: AtomicBool,
}

impl Odd {
    fn change(&self) -> &MemoryDevice {
        self.changed.store(true, Ordering::Relaxed);
        &self.inner
    }
}

impl Device for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn len(&self) -> Bytes {
        self.inner.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.change().write_at(at, data)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.change().zero(at, len)
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.change().discard(at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.change().resize(len)
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

#[test]
fn regression_a_device_that_says_that_it_is_read_only_is_not_formatted() {
    let odd = Odd { inner: MemoryDevice::new(Bytes::mib(16)), changed: AtomicBool::new(false) };
    for replace in [false, true] {
        let error = mkfs::Format::new().replace(replace).on_device(&odd).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{error}");
    }
    assert!(!odd.changed.load(Ordering::Relaxed));
}
