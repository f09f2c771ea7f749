//! The caller's memory: text, buffers, places for results.
//!
//! Every `unsafe` block of what C passes is here. NULL is found; that anything else leads to what it should
//! is the caller's promise, which the header states.

#![allow(unsafe_code)]

use crate::failure::{EFAULT, EINVAL, Failure};
use std::ffi::{CStr, c_char};
use std::path::Path;

/// Bytes up to a NUL.
pub(crate) fn text<'a>(at: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    if at.is_null() {
        return Err(Failure::new(EFAULT, format!("{what} is NULL")));
    }
    // SAFETY: not NULL, and the caller promises text that ends with NUL and stays until the call returns.
    Ok(unsafe { CStr::from_ptr(at) }.to_bytes())
}

/// Bytes up to a NUL, or nothing for NULL.
pub(crate) fn optional_text<'a>(at: *const c_char) -> Option<&'a [u8]> {
    text(at, "").ok()
}

/// A path of the host's.
pub(crate) fn host_path<'a>(at: *const c_char, what: &str) -> Result<&'a Path, Failure> {
    let bytes = text(at, what)?;
    #[cfg(unix)]
    return Ok(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)));
    #[cfg(not(unix))]
    std::str::from_utf8(bytes)
        .map(Path::new)
        .map_err(|_| Failure::new(EINVAL, format!("{what} is not UTF-8")))
}

/// Text that must be UTF-8.
pub(crate) fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| Failure::new(EINVAL, format!("{what} is not UTF-8")))
}

/// The caller's bytes.
pub(crate) fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    check(at, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, no longer than an object can be, and the caller promises that many bytes, which it
    // does not change until the call returns.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}

/// The caller's buffer.
pub(crate) fn buffer<'a>(at: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    check(at, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `bytes`; nobody else uses the buffer until the call returns. Its bytes may have no
    // value yet as far as C is concerned; they are memory that exists, and are written only.
    Ok(unsafe { std::slice::from_raw_parts_mut(at, len) })
}

fn check(at: *const u8, len: usize) -> Result<(), Failure> {
    if at.is_null() && len > 0 {
        return Err(Failure::new(EFAULT, "the buffer is NULL"));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::new(EINVAL, "no buffer is that long"));
    }
    Ok(())
}

/// Texts in an array.
pub(crate) fn texts<'a>(at: *const *const c_char, count: usize) -> Result<Vec<&'a [u8]>, Failure> {
    if at.is_null() && count > 0 {
        return Err(Failure::new(EFAULT, "the array is NULL"));
    }
    let one = |index| {
        // SAFETY: the caller promises an array of that many pointers.
        let text_at = unsafe { *at.wrapping_add(index) };
        text(text_at, "a text of the array")
    };
    (0..count).map(one).collect()
}

/// Gives a result to the caller.
pub(crate) fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::new(EFAULT, "the place for the result is NULL"));
    }
    if !to.is_aligned() {
        return Err(Failure::new(EFAULT, "the place for the result is not aligned"));
    }
    // SAFETY: not NULL, aligned, and the caller promises room for a value; what is there is not dropped.
    unsafe { to.write(value) };
    Ok(())
}

/// A struct of the caller's, if there is one.
pub(crate) fn read<T: Copy>(from: *const T, what: &str) -> Result<T, Failure> {
    if from.is_null() || !from.is_aligned() {
        return Err(Failure::new(EFAULT, format!("{what} is NULL or not aligned")));
    }
    // SAFETY: not NULL, aligned, and the caller promises a whole value.
    Ok(unsafe { *from })
}
