//! Writes the bytes of a device as a file with holes: most of a small volume is zeros, and tests write hundreds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What becomes a hole: so many bytes that are all zero.
const STEP: usize = 1 << 16;

/// Makes a file of these bytes.
///
/// # Errors
/// The file can't be written.
pub fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let at = |at: u64| &bytes[usize::try_from(at).unwrap_or(usize::MAX)..];
    save_read(path, bytes.len() as u64, |from, part| part.copy_from_slice(&at(from)[..part.len()]))
}

/// Makes a file of `len` bytes that `read` reads: into a buffer, from a byte on.
///
/// # Errors
/// The file can't be written.
pub fn save_read(path: &Path, len: u64, mut read: impl FnMut(u64, &mut [u8])) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(len)?;
    let (mut buffer, zeros) = ([0; STEP], [0; STEP]);
    for at in (0..len).step_by(STEP) {
        let size = usize::try_from(len - at).unwrap_or(STEP).min(STEP);
        read(at, &mut buffer[..size]);
        if buffer[..size] != zeros[..size] {
            file.write_all_at(&buffer[..size], at)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_bytes_are_kept_and_zeros_take_no_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut bytes = vec![0; 40 * STEP + 5];
        bytes[3 * STEP] = 1;
        *bytes.last_mut().unwrap() = 2;
        save(&path, &bytes).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert!(path.metadata().unwrap().blocks() * 512 <= 3 * STEP as u64);
    }
}
