//! The locks by which qemu keeps two programs from one image: takes and examines them.
//!
//! qemu describes its use of an image by permissions, one byte of the file each: a shared lock on byte
//! 100 + n says "I use permission n", one on byte 200 + n says "nobody else may use it" (QEMU's
//! documentation, "Disk image file locking"; the permissions are those of its block layer: 0 to read
//! consistent content, 1 to write, 3 to resize). Each program takes its own locks first and then checks for
//! opposite ones, so of two that begin at once at least one sees the other.
//!
//! All of these locks are shared ones, for which a read-only descriptor is enough. So a writer is refused by
//! any of them, as by a reader's lock of ours, but a reader only by a process that visibly has the image open
//! for writing: otherwise read access alone would allow keeping readers out by a false claim.
//!
//! A lock that reaches beyond these bytes is not of this protocol, and is ignored.

use super::{Access, Range, Refused};
use libc::{F_OFD_GETLK, F_RDLCK, F_UNLCK, F_WRLCK};
use std::fs::File;
use std::io;

const USED_AT: i64 = 100;
const UNSHARED_AT: i64 = 200;
/// All bytes of the protocol: permissions have the numbers 0 to 63.
const BYTES: Range = Range { first: USED_AT, last: UNSHARED_AT + 63 };

const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Takes the locks of a reader or a writer, unless another program's conflict: see the head of this file.
/// Where it fails, some of them may be held.
pub(super) fn take(file: &File, write: bool) -> Result<(), Refused> {
    let (used, unshared): (&[i64], &[i64]) =
        if write { (&[READ, WRITE, RESIZE], &[READ, WRITE, RESIZE]) } else { (&[READ], &[WRITE, RESIZE]) };
    for byte in used.iter().map(|n| USED_AT + n).chain(unshared.iter().map(|n| UNSHARED_AT + n)) {
        super::set(file, F_RDLCK, Range::of(byte))?;
    }
    let opposite = used.iter().map(|n| UNSHARED_AT + n).chain(unshared.iter().map(|n| USED_AT + n));
    for bytes in opposite.map(Range::of) {
        let is_believed = || write || super::holder(file, bytes, Access::Write).is_some();
        if is_locked(file, bytes).map_err(Refused::Failed)? && is_believed() {
            return Err(Refused::At(bytes));
        }
    }
    Ok(())
}

/// Whether another open file claims to write, by the locks of the protocol.
pub(super) fn is_claimed(file: &File) -> io::Result<bool> {
    Ok(is_locked(file, Range::of(USED_AT + WRITE))? || is_locked(file, Range::of(USED_AT + RESIZE))?)
}

/// Takes the locks back.
pub(super) fn release(file: &File) -> Result<(), Refused> {
    super::set(file, F_UNLCK, BYTES)
}

/// Whether another open file has a lock of the protocol there.
fn is_locked(file: &File, bytes: Range) -> io::Result<bool> {
    let mut lock = super::record(F_WRLCK, bytes)?;
    super::control(file, F_OFD_GETLK, &mut lock)?;
    let end = if lock.l_len == 0 { i64::MAX } else { lock.l_start + lock.l_len };
    Ok(i32::from(lock.l_type) != F_UNLCK && lock.l_start >= USED_AT && end <= BYTES.last + 1)
}

#[cfg(test)]
mod tests {
    use super::{F_RDLCK, Range, UNSHARED_AT, USED_AT, WRITE, is_claimed, release, take};
    use crate::file::lock::set;
    use std::fs::File;

    /// The same image opened for reading and for writing.
    fn image() -> (tempfile::TempPath, File, File) {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        let reader = File::open(&path).unwrap();
        (path, reader, file)
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let (path, reader, writer) = image();
        let second = File::open(&path).unwrap();
        assert!(take(&reader, false).is_ok() && take(&second, false).is_ok());
        assert!(!is_claimed(&reader).unwrap());
        assert!(take(&writer, true).is_err());
        for file in [&reader, &second, &writer] {
            assert!(release(file).is_ok());
        }
        assert!(take(&writer, true).is_ok());
        assert!(take(&reader, false).is_err(), "this process opened it for writing");
    }

    #[test]
    fn who_may_only_read_keeps_no_reader_out() {
        let (path, liar, writer) = image();
        drop(writer);
        assert!(set(&liar, F_RDLCK, Range { first: USED_AT, last: UNSHARED_AT + 63 }).is_ok());
        let reader = File::open(&path).unwrap();
        assert!(take(&reader, false).is_ok() && is_claimed(&reader).unwrap());
        let writer = File::options().write(true).read(true).open(&path).unwrap();
        assert!(take(&writer, true).is_err());
    }

    #[test]
    fn locks_of_whole_files_are_not_of_the_protocol() {
        let (_path, other, writer) = image();
        assert!(set(&other, F_RDLCK, Range { first: 0, last: i64::MAX - 1 }).is_ok());
        assert!(take(&writer, true).is_ok());
        assert!(release(&other).is_ok() && release(&writer).is_ok());
        assert!(set(&other, F_RDLCK, Range::of(UNSHARED_AT + WRITE)).is_ok());
        assert!(take(&writer, true).is_err());
    }
}
