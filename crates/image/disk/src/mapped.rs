//! A disk that is read through a map, and not written.
//!
//! A format only says how to read some bytes from a place on ([`Layout`]); the rest of a device is the same for
//! all.

use crate::error::check;
use hectare_device::{Device, Error, Extent, Operation, Reason, Result, Span};
use hectare_units::Bytes;
use std::sync::Arc;

/// How bytes are found.
pub(crate) trait Layout: Send + Sync {
    /// Fills a beginning of `buf`, which is not empty, with the bytes of the disk from `at` on, and returns its
    /// length: at least 1. The range lies inside the disk.
    fn read_some(&self, at: u64, buf: &mut [u8]) -> Result<usize>;

    /// What the map says of the bytes from `at` on, at most `len`, which lie inside the disk and are not none.
    fn extent(&self, at: u64, len: u64) -> Result<Extent>;
}

/// The disk.
pub(crate) struct MappedDevice<L> {
    name: String,
    len: Bytes,
    layout: L,
}

impl<L: Layout> MappedDevice<L> {
    pub(crate) fn new(name: &str, len: Bytes, layout: L) -> Self {
        Self { name: name.to_owned(), len, layout }
    }

    fn refuse(&self, operation: Operation, at: Bytes, len: Bytes) -> Result<()> {
        check(self, operation, Span::new(at, len))
    }
}

impl<L: Layout> Device for MappedDevice<L> {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        self.len
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        check(self, Operation::Read, Span::new(at, Bytes::of(buf.len())))?;
        let mut done = 0;
        while done < buf.len() {
            done += self.layout.read_some((at + Bytes::of(done)).get(), &mut buf[done..])?;
        }
        Ok(())
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        check(self, Operation::Read, Span::new(at, len))?;
        if len == Bytes::ZERO {
            return Ok(Extent::data(len));
        }
        self.layout.extent(at.get(), len.get())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.refuse(Operation::Write, at, Bytes::of(data.len()))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.refuse(Operation::Zero, at, len)
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.refuse(Operation::Discard, at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let span = Some(Span::new(Bytes::ZERO, len));
        Err(Error::new(&self.name, Operation::Resize, span, Reason::ReadOnly))
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

/// An extent of at most `most` bytes.
pub(crate) fn extent(is_zero: bool, len: u64, most: u64) -> Extent {
    Extent { len: Bytes::new(len.min(most)), is_zero }
}

/// The file of an image, which is read from at places that a map names.
#[derive(Clone)]
pub(crate) struct Source(Arc<dyn Device>);

impl Source {
    pub(crate) fn new(file: impl Device + 'static) -> Self {
        Self(Arc::new(file))
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.0
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len().get()
    }

    /// Reads from a place that the image names, which may be wrong.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(Bytes::new(at), Bytes::of(buf.len()));
        if !span.fits(self.0.len()) {
            return Err(self.damaged(span, format!("its map leads to byte {at}, beyond its end")));
        }
        self.0.read_at(Bytes::new(at), buf)
    }

    pub(crate) fn damaged(&self, span: Span, what: impl Into<String>) -> Error {
        Error::new(self.0.name(), Operation::Read, Some(span), Reason::Damaged(what.into()))
    }
}
