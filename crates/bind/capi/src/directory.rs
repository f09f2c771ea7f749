//! Directories that are listed.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{guard, status};
use crate::handles::{Kind, Table};
use crate::memory::{self, place, put};
use crate::sync::Mutex;
use crate::volume::{hectare_volume, volume};
use hectare::fs::{FileType, ReadDir};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// A directory that is listed.
#[allow(non_camel_case_types, missing_debug_implementations)]
pub struct hectare_dir {
    _private: [u8; 0],
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct hectare_dirent {
    /// The number of the inode.
    pub ino: u64,
    /// What it is, as in d_type of readdir(3): 1 a pipe, 2 and 6 a character and a block device, 4 a
    /// directory, 8 a file, 10 a symbolic link, 12 a socket. Never 0: where directories do not say it
    /// (without the feature `filetype`), it is read from the inode.
    pub kind: u32,
    /// Bytes of the name: 1 to 255.
    pub name_len: u32,
    /// The name, with a NUL behind it. What stands for a name of an encrypted directory may be longer, and is
    /// cut.
    pub name: [u8; 256],
}

static DIRECTORIES: Table<Arc<Mutex<ReadDir>>> = Table::new(Kind::Directory);

/// Opens a directory to list it; a link at the end of the path is followed. Any number of listings may be
/// open, each at its own entry.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_opendir(volume: *mut hectare_volume, path: *const c_char) -> *mut hectare_dir {
    guard(std::ptr::null_mut(), || {
        let listing = self::volume(volume)?.read_dir(memory::path(path, "the path")?)?;
        DIRECTORIES.insert(Arc::new(Mutex::new(listing)))
    })
}

/// The next entry, into `to`: 1 if there was one, 0 at the end, -1 on an error; the next call continues with the
/// entry behind it, or gives 0 where the directory can't be read. `.` and `..` are left out. The order is that
/// of the directory, by hash or as it lies, not by name.
///
/// Names may change meanwhile, also by the caller: one that is there from hectare_opendir() to the end comes
/// exactly once, one that is added or removed in between once or not at all.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_readdir(directory: *mut hectare_dir, to: *mut hectare_dirent) -> c_int {
    guard(-1, || {
        let listing = DIRECTORIES.get(directory)?;
        place(to)?; // before an entry is taken, which would be lost
        let Some(entry) = listing.lock().next() else { return Ok(0) };
        let entry = entry?;
        let bytes = entry.file_name_bytes();
        let mut name = [0; 256];
        let len = bytes.len().min(name.len() - 1);
        name[..len].copy_from_slice(&bytes[..len]);
        let name_len = u32::try_from(len).unwrap_or_default();
        put(to, hectare_dirent { ino: entry.ino(), kind: number_of(entry.file_type()?), name_len, name })?;
        Ok(1)
    })
}

/// The number of a kind in d_type: the upper bits of the mode.
fn number_of(kind: FileType) -> u32 {
    u32::from(kind.mode_bits() >> 12)
}

/// Ends the listing.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_closedir(directory: *mut hectare_dir) -> c_int {
    status(|| DIRECTORIES.take(directory).map(drop))
}
