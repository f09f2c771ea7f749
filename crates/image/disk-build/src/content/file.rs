//! The bytes of a file of the host, for a partition or a place before them.

use hectare_device::{Device, FileDevice, FileOptions};
use hectare_populate::Progress;
use hectare_units::{Bytes, index_of, u64_of};
use sha2::{Digest, Sha256};
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// Bytes that are read at a time, and the pieces of them that are left out if they are zeros.
const CHUNK: usize = 1 << 20;
const PIECE: usize = 64 << 10;

#[cfg(unix)]
type State = (u64, u64, i64, i64);
#[cfg(not(unix))]
type State = (Option<std::time::SystemTime>, Option<std::time::SystemTime>);

/// A file, open, and what it was when it was opened.
pub(crate) struct SourceFile {
    path: PathBuf,
    device: FileDevice,
    was: State,
}

/// Device, inode, and time of the last change.
#[cfg(unix)]
fn state(data: &Metadata) -> State {
    use std::os::unix::fs::MetadataExt;
    (data.dev(), data.ino(), data.mtime(), data.mtime_nsec())
}

/// The times of creation and of the last change.
#[cfg(not(unix))]
fn state(data: &Metadata) -> State {
    (data.created().ok(), data.modified().ok())
}

impl SourceFile {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let failed =
            |error: &std::io::Error| format!("{}: {}", path.display(), crate::error::io_reason(error));
        let data = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if data.is_dir() {
            return Err(format!("{}: it is a directory; give a file", path.display()));
        }
        let device = FileOptions::new().open(path).map_err(|error| error.to_string())?;
        if device.len() == Bytes::ZERO {
            return Err(format!("{}: the file is empty", path.display()));
        }
        Ok(Self { path: path.to_owned(), device, was: state(&data) })
    }

    pub(crate) fn len(&self) -> u64 {
        self.device.len().get()
    }

    /// All of it; for small files.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; index_of(self.len())];
        self.device.read_at(Bytes::ZERO, &mut bytes).map_err(|error| error.to_string())?;
        self.verify().map(|()| bytes)
    }

    /// Copies what is not zero to a device of zeros, from byte `to` on. Returns a digest of the bytes, which
    /// does not depend on where the file has holes.
    pub(crate) fn copy(
        &self,
        device: &dyn Device,
        to: Bytes,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, String> {
        let failed = |error: hectare_device::Error| error.to_string();
        let mut digest = Sha256::new();
        digest.update(self.len().to_le_bytes());
        let (mut buf, mut at, end) = (vec![0; CHUNK], Bytes::ZERO, self.device.len());
        while at < end {
            let known = self.device.extent_at(at, end - at).map_err(failed)?;
            // In whole pieces, so that the digest does not depend on where extents end.
            let len = index_of(
                known.len.get().min(u64_of(CHUNK)).next_multiple_of(u64_of(PIECE)).min((end - at).get()),
            );
            if known.is_zero && known.len >= Bytes::of(len) {
                at += Bytes::new(known.len.get() - known.len.get() % u64_of(PIECE))
                    .min(end - at)
                    .max(Bytes::of(len));
                continue;
            }
            self.device.read_at(at, &mut buf[..len]).map_err(failed)?;
            for piece in buf[..len].chunks(PIECE) {
                if piece.iter().any(|byte| *byte != 0) {
                    device.write_at(to + at, piece).map_err(failed)?;
                    digest.update(at.get().to_le_bytes());
                    digest.update(piece);
                }
                at += Bytes::of(piece.len());
            }
            progress.advance(Bytes::of(len));
        }
        self.verify()?;
        Ok(digest.finalize().to_vec())
    }

    /// Refuses a file that is not what was opened.
    fn verify(&self) -> Result<(), String> {
        let data = std::fs::metadata(&self.path);
        let is_same =
            data.is_ok_and(|data| state(&data) == self.was && (!data.is_file() || data.len() == self.len()));
        if is_same {
            Ok(())
        } else {
            Err(format!("{}: it was changed while it was read", self.path.display()))
        }
    }
}
