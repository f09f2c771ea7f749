//! A file of a container image, as a part of a file of the host.

use crate::handle::SourceHandle;
use crate::time::PackedTime;
use hectare_device::os::FileExt;
use hectare_units::{Bytes, index_of, u64_of};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

/// A file of an image, opened.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(super) file: File,
    pub(super) range: Range<u64>,
    /// Length and modification time of the file that it lies in.
    pub(super) len: Bytes,
    pub(super) mtime: PackedTime,
}

impl Blob {
    /// Its length, in bytes.
    pub(super) const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Reads it from its start.
    pub(crate) fn reader(&self) -> io::Result<impl Read + use<>> {
        Ok(RangeReader { file: self.file.try_clone()?, range: self.range.clone() })
    }

    /// It as a source, in place.
    pub(crate) fn source(self, name: &[u8]) -> SourceHandle {
        let Self { file, range, len, mtime } = self;
        SourceHandle::Archive { file, name: name.into(), range, len, mtime }
    }
}

/// Reads a part of a file without moving the file's position, which other readers share.
struct RangeReader {
    file: File,
    range: Range<u64>,
}

impl Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.end - self.range.start;
        let most = buffer.len().min(index_of(left.min(1 << 30)));
        let len = self.file.read_at(&mut buffer[..most], self.range.start)?;
        if len == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.range.start += u64_of(len);
        Ok(len)
    }
}
