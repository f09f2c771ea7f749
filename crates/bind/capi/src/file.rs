//! Open files.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{EINVAL, EOVERFLOW, Failure, guard, status};
use crate::handles::{Held, Kind, Table};
use crate::memory::{self, buffer, bytes, put};
use crate::metadata::{fill, hectare_stat};
use crate::volume::{hectare_volume, volume};
use hectare::fs::{File, OpenOptions};
use std::ffi::{c_char, c_int};

/// An open regular file, without a position.
#[allow(non_camel_case_types, missing_debug_implementations)]
pub struct hectare_file {
    _private: [u8; 0],
}

/// For hectare_file_open: for reading.
pub const HECTARE_READ: u32 = 1;
/// For hectare_file_open: for writing.
pub const HECTARE_WRITE: u32 = 2;
/// For hectare_file_open: the file is made if there is none. Needs HECTARE_WRITE.
pub const HECTARE_CREATE: u32 = 4;
/// For hectare_file_open: the file is made, and must not exist (EEXIST), nor a link of that name. Needs
/// HECTARE_WRITE, and not HECTARE_CREATE.
pub const HECTARE_EXCLUSIVE: u32 = 8;
/// For hectare_file_open: the content is removed. Needs HECTARE_WRITE.
pub const HECTARE_TRUNCATE: u32 = 16;
const ALL: u32 = 31;

static FILES: Table<File> = Table::new(Kind::File);

fn file(handle: *mut hectare_file) -> Result<Held<File>, Failure> {
    FILES.get(handle)
}

/// A count of bytes as C returns it.
fn count(len: usize) -> Result<isize, Failure> {
    isize::try_from(len).map_err(|_| Failure::new(EOVERFLOW, "more bytes than can be counted"))
}

/// Opens a regular file; a link at the end of the path is followed, also one that leads to nothing if the
/// file is made. Flags are a sum of HECTARE_READ, HECTARE_WRITE or both with any of the others; EINVAL for
/// what makes no sense. A file that is made gets the permission bits of `mode` (07777), which else counts for
/// nothing. EISDIR for a directory, EINVAL for a device, pipe or socket.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_open(
    volume: *mut hectare_volume,
    path: *const c_char,
    flags: u32,
    mode: u32,
) -> *mut hectare_file {
    guard(std::ptr::null_mut(), || {
        if flags & !ALL != 0 {
            return Err(Failure::new(EINVAL, format!("the flags {flags} are not known")));
        }
        let has = |flag| flags & flag != 0;
        let mut options = OpenOptions::new();
        options
            .read(has(HECTARE_READ))
            .write(has(HECTARE_WRITE))
            .create(has(HECTARE_CREATE))
            .create_new(has(HECTARE_EXCLUSIVE))
            .truncate(has(HECTARE_TRUNCATE))
            .mode(mode);
        let volume = self::volume(volume)?;
        FILES.insert(options.open(&volume, memory::path(path, "the path")?)?)
    })
}

/// Reads up to `len` bytes from offset `at`; returns how many: fewer at the end of the file only, 0 behind
/// it. EBADF if the file is not open for reading.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_read(file: *mut hectare_file, to: *mut u8, len: usize, at: u64) -> isize {
    guard(-1, || count(self::file(file)?.read_at(buffer(to, len)?, at)?))
}

/// Writes `len` bytes at offset `at`; returns how many: fewer only if the volume became full or the file as
/// large as the format allows, and ENOSPC or EFBIG if there is room for none. EBADF if the file is not open for
/// writing, as for all that changes it.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_write(file: *mut hectare_file, from: *const u8, len: usize, at: u64) -> isize {
    guard(-1, || count(self::file(file)?.write_at(bytes(from, len)?, at)?))
}

/// Makes the file that long; what is added reads as zeros.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_truncate(file: *mut hectare_file, len: u64) -> c_int {
    status(|| Ok(self::file(file)?.set_len(len)?))
}

/// Allocates space for a range of at least one byte; the file grows to its end. What was allocated before the
/// volume became full (ENOSPC) stays.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_allocate(file: *mut hectare_file, at: u64, len: u64) -> c_int {
    status(|| Ok(self::file(file)?.allocate(at, len)?))
}

/// Frees the blocks of a range of at least one byte, which then reads as zeros.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_punch(file: *mut hectare_file, at: u64, len: u64) -> c_int {
    status(|| Ok(self::file(file)?.punch_hole(at, len)?))
}

/// Makes content and metadata of the file durable, whichever handle wrote them.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_sync(file: *mut hectare_file) -> c_int {
    status(|| Ok(self::file(file)?.sync_all()?))
}

/// What the inode says.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_stat(file: *mut hectare_file, to: *mut hectare_stat) -> c_int {
    status(|| put(to, fill(&self::file(file)?.metadata()?)))
}

/// The first offset from `at` on that holds data, into `to`; fails with ENXIO if none follows.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_seek_data(file: *mut hectare_file, at: u64, to: *mut u64) -> c_int {
    status(|| put(to, self::file(file)?.seek_data(at)?.ok_or_else(no_more)?))
}

/// The first offset from `at` on that is in a hole, which the end of the file is, too, into `to`; fails
/// with ENXIO at or beyond it.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_seek_hole(file: *mut hectare_file, at: u64, to: *mut u64) -> c_int {
    status(|| put(to, self::file(file)?.seek_hole(at)?.ok_or_else(no_more)?))
}

fn no_more() -> Failure {
    Failure::new(ENXIO, "nothing follows in the file")
}

const ENXIO: c_int = 6;

/// Closes the file: its handle leads to nothing any more, also after an error, which is the first write that
/// failed. What was written is placed on the volume, but not durable before hectare_file_sync(),
/// hectare_sync() or hectare_close(). A file that was removed while it was open is gone with its last handle.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_file_close(file: *mut hectare_file) -> c_int {
    status(|| Ok(FILES.take(file)?.close()?))
}
