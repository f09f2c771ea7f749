//! Extended attributes: of what a link at the end of a path leads to, and (with `l`) of the link itself.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{Failure, guard, status};
use crate::memory::{bytes, give, text};
use crate::volume::{At, hectare_volume};
use hectare::inode::XattrHow;
use std::ffi::{c_char, c_int};

impl At<'_> {
    fn get(&self, name: *const c_char, to: *mut u8, len: usize) -> Result<isize, Failure> {
        let name = text(name, "the name")?;
        give(&self.run(|engine, nr| engine.get_xattr(nr, name))?, to, len)
    }

    fn list(&self, to: *mut u8, len: usize) -> Result<isize, Failure> {
        let names = self.run(|engine, nr| engine.list_xattrs(nr))?;
        let all: Vec<u8> = names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect();
        give(&all, to, len)
    }

    fn set(&self, name: *const c_char, value: *const u8, len: usize) -> Result<(), Failure> {
        let (name, value) = (text(name, "the name")?, bytes(value, len)?);
        self.run(|engine, nr| engine.set_xattr(nr, name, value, XattrHow::Either))
    }

    fn remove(&self, name: *const c_char) -> Result<(), Failure> {
        let name = text(name, "the name")?;
        self.run(|engine, nr| engine.remove_xattr(nr, name))
    }
}

/// The value of an attribute, into `to`; returns its length, also if `len` is 0, when `to` may be NULL.
/// ERANGE if the buffer is too small, ENODATA if there is no such attribute. A link at the end of the path is
/// followed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_getxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || At::of(volume, path, true)?.get(name, to, len))
}

/// The names of the attributes, each with a NUL behind it, into `to`; returns their length, also if `len` is
/// 0, when `to` may be NULL. A link at the end of the path is followed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_listxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || At::of(volume, path, true)?.list(to, len))
}

/// Sets an attribute, new or not. A link at the end of the path is followed. `value` may be NULL if `len` is
/// 0. ENOSPC if it does not fit; EOPNOTSUPP if the name does not begin with "user.", "trusted.", "security."
/// or "system.posix_acl_".
#[unsafe(no_mangle)]
pub extern "C" fn hectare_setxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    len: usize,
) -> c_int {
    status(|| At::of(volume, path, true)?.set(name, value, len))
}

/// Removes an attribute. A link at the end of the path is followed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_removexattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    status(|| At::of(volume, path, true)?.remove(name))
}

/// hectare_getxattr() of what is at the path itself, link or not.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lgetxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || At::of(volume, path, false)?.get(name, to, len))
}

/// hectare_listxattr() of what is at the path itself, link or not.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_llistxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || At::of(volume, path, false)?.list(to, len))
}

/// hectare_setxattr() of what is at the path itself, link or not. The kernel shows no "user." attributes of
/// links.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lsetxattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    len: usize,
) -> c_int {
    status(|| At::of(volume, path, false)?.set(name, value, len))
}

/// hectare_removexattr() of what is at the path itself, link or not.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lremovexattr(
    volume: *mut hectare_volume,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    status(|| At::of(volume, path, false)?.remove(name))
}
