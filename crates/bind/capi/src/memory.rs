//! The caller's memory: text, buffers, places for results.
//!
//! Every `unsafe` block of what C passes is here. NULL is found; that anything else leads to what it should
//! is the caller's promise, which the header states.

#![allow(unsafe_code)]

use crate::failure::{EFAULT, EINVAL, ENOENT, EOVERFLOW, ERANGE, Failure};
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

/// A path of the volume's: one that is empty leads nowhere.
pub(crate) fn path<'a>(at: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    match text(at, what)? {
        [] => Err(Failure::new(ENOENT, format!("{what} is empty"))),
        path => Ok(path),
    }
}

/// Bytes up to a NUL, or nothing for NULL.
pub(crate) fn optional_text<'a>(at: *const c_char) -> Option<&'a [u8]> {
    text(at, "").ok()
}

/// A path of the host's.
pub(crate) fn host_path<'a>(at: *const c_char, what: &str) -> Result<&'a Path, Failure> {
    host(text(at, what)?, what)
}

/// Bytes as a path of the host's.
#[cfg_attr(unix, expect(clippy::unnecessary_wraps))] // other hosts have paths of UTF-8 only
pub(crate) fn host<'a>(bytes: &'a [u8], what: &str) -> Result<&'a Path, Failure> {
    #[cfg(unix)]
    {
        let _ = what;
        Ok(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    utf8(bytes, what).map(Path::new)
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

/// Gives bytes to a buffer, or, if that has none, only their number.
pub(crate) fn give(value: &[u8], to: *mut u8, len: usize) -> Result<isize, Failure> {
    let whole = isize::try_from(value.len()).map_err(|_| Failure::new(EOVERFLOW, "the value is too long"))?;
    if len == 0 {
        return Ok(whole);
    }
    let out = buffer(to, len)?;
    let out = out.get_mut(..value.len());
    out.ok_or_else(|| Failure::new(ERANGE, format!("the buffer is smaller than {whole} bytes")))?
        .copy_from_slice(value);
    Ok(whole)
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

/// Bytes of a fixed number, or nothing for NULL.
pub(crate) fn read_bytes<const LEN: usize>(from: *const u8) -> Option<[u8; LEN]> {
    // Bytes have no alignment.
    bytes(from, LEN).ok().and_then(|bytes| bytes.try_into().ok())
}

/// Gives a result to the caller.
pub(crate) fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    place(to)?;
    // SAFETY: not NULL, aligned, and the caller promises room for a value; what is there is not dropped.
    unsafe { to.write(value) };
    Ok(())
}

/// Whether there is a place for a result: for calls that must not work for nothing.
pub(crate) fn place<T>(to: *mut T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::new(EFAULT, "the place for the result is NULL"));
    }
    if !to.is_aligned() {
        return Err(Failure::new(EFAULT, "the place for the result is not aligned"));
    }
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

/// Reads a struct of the interface, whose first field says how long the caller's is: no more than that is
/// read.
pub(crate) fn read_struct<T: Copy>(from: *const T, what: &str) -> Result<T, Failure> {
    if read(from.cast::<usize>(), what)? != size_of::<T>() {
        let text = format!("{what} have the struct_size of another version of hectare.h");
        return Err(Failure::new(EINVAL, text));
    }
    read(from, what)
}

/// The caller's options, or for NULL those that it would be given.
pub(crate) fn read_options<T: Copy>(from: *const T, defaults: T) -> Result<T, Failure> {
    if from.is_null() { Ok(defaults) } else { read_struct(from, "the options") }
}

/// Gives options to the caller, whose struct has this size.
pub(crate) fn put_options<T>(to: *mut T, size: usize, defaults: T) -> Result<(), Failure> {
    if size != size_of::<T>() {
        return Err(Failure::new(EINVAL, "the options have the size of another version of hectare.h"));
    }
    put(to, defaults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn null_and_what_is_not_aligned_is_an_error() {
        assert_eq!(path(c"".as_ptr(), "the path").err().map(|failure| failure.errno), Some(ENOENT));
        assert!(text(null(), "a text").is_err() && optional_text(null()).is_none());
        assert!(bytes(null(), 1).is_err() && buffer(null_mut(), 1).is_err());
        assert!(bytes(null(), 0).is_ok_and(<[u8]>::is_empty));
        assert!(buffer(null_mut(), 0).is_ok_and(|buffer| buffer.is_empty()));
        assert!(texts(null(), 1).is_err() && texts(null(), 0).is_ok_and(|texts| texts.is_empty()));
        assert!(put(null_mut(), 1_u64).is_err() && read::<u64>(null(), "a number").is_err());
        assert!(read_bytes::<16>(null()).is_none());
        let mut room = [0_u64; 2];
        let odd = room.as_mut_ptr().wrapping_byte_add(1);
        assert!(put(odd, 1).is_err() && read(odd.cast_const(), "a number").is_err());
        assert!(bytes(room.as_ptr().cast(), usize::MAX).is_err());
        let errno = |given: Result<isize, Failure>| given.err().map(|failure| failure.errno);
        assert_eq!(errno(give(b"abc", null_mut(), 3)), Some(EFAULT));
        assert_eq!(errno(give(b"abc", room.as_mut_ptr().cast(), 2)), Some(ERANGE));
        assert_eq!(give(b"abc", null_mut(), 0).ok(), Some(3));
    }

    #[test]
    fn what_is_there_is_read_and_written() {
        let words = [c"one".as_ptr(), c"two".as_ptr()];
        assert_eq!(texts(words.as_ptr(), 2).ok(), Some(vec![&b"one"[..], &b"two"[..]]));
        let (mut place, mut room) = (0_u64, [0; 4]);
        assert!(put(&raw mut place, 7).is_ok());
        assert_eq!((place, read(&raw const place, "a number").ok()), (7, Some(7)));
        buffer(room.as_mut_ptr(), 3).ok().unwrap().copy_from_slice(b"abc");
        assert_eq!((room, bytes(room.as_ptr(), 2).ok()), (*b"abc\0", Some(&b"ab"[..])));
        assert_eq!(read_bytes(room.as_ptr()), Some(*b"abc\0"));
        assert_eq!((give(b"xy", room.as_mut_ptr(), 4).ok(), room), (Some(2), *b"xyc\0"));
    }

    #[test]
    fn paths_are_bytes_where_the_host_has_them_so() {
        let path = host(b"/a/\xff", "the path");
        assert_eq!(path.is_ok(), cfg!(unix));
        assert!(host_path(null(), "the path").is_err());
        assert_eq!(utf8(b"\xff", "the label").err().map(|failure| failure.errno), Some(EINVAL));
    }
}
