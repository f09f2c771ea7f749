//! A new file of the host that is written from front to back, and gets its name when it is complete.
//!
//! What is not published disappears, also when the program is killed ([`PendingFile`]).

use hectare_device::{Device, Error, FileOptions, Overwrite, PendingFile};
use hectare_units::Bytes;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Bytes that are written at a time.
const STEP: usize = 1 << 20;

/// A file under construction.
pub struct NewFile(BufWriter<Growing>);

/// A device that grows with each write.
struct Growing {
    pending: PendingFile,
    len: Bytes,
}

impl NewFile {
    /// A file that will have this path.
    ///
    /// # Errors
    /// If it can't be made, or there is one that is not to be replaced.
    pub fn create(path: &Path, overwrite: Overwrite) -> Result<Self, Error> {
        let pending = FileOptions::new().write(true).create_pending(path, Bytes::ZERO, overwrite)?;
        Ok(Self(BufWriter::with_capacity(STEP, Growing { pending, len: Bytes::ZERO })))
    }

    /// Gives the file its name, durably.
    ///
    /// # Errors
    /// If the rest can't be written, or there is a file of that name by now that is not to be replaced.
    pub fn publish(self) -> io::Result<()> {
        self.publish_renamed(None)
    }

    /// Likewise, but under another name in the same directory.
    pub(crate) fn publish_as(self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.publish_renamed(Some(name.as_ref()))
    }

    fn publish_renamed(self, name: Option<&OsStr>) -> io::Result<()> {
        let Growing { mut pending, .. } = self.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Some(name) = name {
            pending = pending.renamed(name);
        }
        pending.publish().and_then(|device| device.flush()).map_err(io::Error::other)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (at, device) = (self.len, self.pending.device());
        let len = at + Bytes::of(bytes.len());
        device.resize(len).and_then(|()| device.write_at(at, bytes)).map_err(io::Error::other)?;
        self.len = len;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let written = |bytes: &[u8]| {
            let mut file = NewFile::create(&path, Overwrite::Replace).unwrap();
            file.write_all(bytes).unwrap();
            file
        };
        drop(written(&bytes));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        written(&bytes).publish().unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        written(b"short").publish_as("b").unwrap();
        assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), b"short");
        assert!(NewFile::create(&path, Overwrite::Refuse).is_err());
    }
}
