//! Extended attributes. Links are followed.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{ENODATA, Failure, guard, status};
use crate::memory::{self, bytes, give, text};
use crate::volume::{hectare_volume, volume};
use std::ffi::{c_char, c_int};

/// The value of an attribute, into `to`; returns its length, also if `len` is 0. ERANGE if the buffer is
/// too small, ENODATA if there is no such attribute.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_getxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        let found = self::volume(volume)?.xattr(memory::path(path, "the path")?, text(name, "the name")?)?;
        give(&found.ok_or_else(|| Failure::new(ENODATA, "no such attribute"))?, to, len)
    })
}

/// The names of the attributes, each with a NUL behind it, into `to`; returns their length, also if `len`
/// is 0.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_listxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        let names = self::volume(volume)?.xattrs(memory::path(path, "the path")?)?;
        let all: Vec<u8> = names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect();
        give(&all, to, len)
    })
}

/// Sets an attribute, new or not.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_setxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    len: usize,
) -> c_int {
    status(|| {
        let (path, name) = (memory::path(path, "the path")?, text(name, "the name")?);
        Ok(self::volume(volume)?.set_xattr(path, name, bytes(value, len)?)?)
    })
}

/// Removes an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_removexattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    status(|| {
        Ok(self::volume(volume)?.remove_xattr(memory::path(path, "the path")?, text(name, "the name")?)?)
    })
}
