//! Devices of the caller's: storage behind callbacks.

#![allow(unsafe_code)] // names that C calls, and calls of C

use crate::failure::{EFAULT, EIO, Failure, guard};
use crate::memory::read_struct;
use crate::volume::{hectare_volume, keep, options};
use hectare::device::{Bytes, Device, Error, Operation, Reason, Result, Span, check_change, check_range};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Storage of the caller's. Each function returns 0 or an errno value; what is none, such as -1, counts as
/// EIO.
///
/// The struct is copied: it may be gone when the call returns that it was given to. `user` must stay until
/// `release`, which is called once: when the volume and everything opened in it is closed, or at the end of a
/// call that opens nothing (hectare_mkfs_device(), hectare_check_device()), and also if the call fails. The
/// one exception is a struct that is wrong itself: NULL, another `struct_size`, no `read`; then nothing is
/// called.
///
/// The functions are called with `user` from any thread and from several at once, the same one included, also
/// on the same bytes: what is read beside a write may be a mix of old and new. Offsets and lengths are bytes
/// inside `size`, and multiples of nothing in particular. A function must return: no longjmp and no exception
/// out of it, and no call of this library on the volume that it is the storage of.
///
/// Nothing locks storage of the caller's: one that is open for writing must not be opened a second time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct hectare_device {
    /// sizeof(hectare_device): another size is another interface, and refused.
    pub struct_size: usize,
    /// What every function is called with.
    pub user: *mut c_void,
    /// Bytes that there are. Any number: a new volume takes whole pages of 4096 bytes, at least six of them.
    pub size: u64,
    /// Fills `to` with `len` bytes from offset `at`.
    pub read: Option<extern "C" fn(user: *mut c_void, to: *mut u8, len: usize, at: u64) -> c_int>,
    /// Writes `len` bytes at offset `at`; NULL for storage that can only be read: opening it for writing, and
    /// making a volume on it, fails with EROFS.
    pub write: Option<extern "C" fn(user: *mut c_void, from: *const u8, len: usize, at: u64) -> c_int>,
    /// Makes durable what was written by calls that returned before; NULL if it is as soon as `write`
    /// returns.
    pub flush: Option<extern "C" fn(user: *mut c_void) -> c_int>,
    /// Called once, when nothing uses the storage any more, by any thread; may be NULL.
    pub release: Option<extern "C" fn(user: *mut c_void)>,
}

pub(crate) struct Callbacks(hectare_device);

// SAFETY: the header requires that the functions can be called from any thread, several at once; the
// pointers are only passed on.
unsafe impl Send for Callbacks {}
// SAFETY: as above.
unsafe impl Sync for Callbacks {}

const NAME: &str = "the caller's device";
/// The largest number that Linux has for errors.
const LAST_ERRNO: c_int = 4095;
/// Zeros that are written at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl Callbacks {
    fn answered(&self, operation: Operation, span: Span, errno: c_int) -> Result<()> {
        match errno {
            0 => Ok(()),
            1..=LAST_ERRNO => Err(Error::new(NAME, operation, Some(span), Reason::Io(errno))),
            // -1 from a function that follows C's habit.
            _ => Err(Error::new(NAME, operation, Some(span), Reason::Io(EIO))),
        }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            release(self.0.user);
        }
    }
}

impl Device for Callbacks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> Bytes {
        Bytes::new(self.0.size)
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        let Some(read) = self.0.read else { return self.answered(Operation::Read, span, EFAULT) };
        self.answered(Operation::Read, span, read(self.0.user, buf.as_mut_ptr(), buf.len(), at.get()))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        check_change(self, Operation::Write, span)?;
        let Some(write) = self.0.write else { return self.answered(Operation::Write, span, EFAULT) };
        self.answered(Operation::Write, span, write(self.0.user, data.as_ptr(), data.len(), at.get()))
    }

    fn flush(&self) -> Result<()> {
        let span = Span::new(Bytes::ZERO, self.len());
        self.0.flush.map_or(Ok(()), |flush| self.answered(Operation::Flush, span, flush(self.0.user)))
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Zero, Span::new(at, len))?;
        let (mut at, mut left) = (at, len.get());
        while left > 0 {
            let some = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.write_at(at, &ZEROS[..some])?;
            at += Bytes::of(some);
            left -= Bytes::of(some).get();
        }
        Ok(())
    }

    /// A hint only.
    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Discard, Span::new(at, len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let why = Reason::Unsupported("a device of the caller's has a fixed size");
        Err(Error::new(NAME, Operation::Resize, Some(Span::new(Bytes::ZERO, len)), why))
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        self.0.write.is_none()
    }
}

/// Takes over the storage; after an error `release` is called as well.
pub(crate) fn device(from: *const hectare_device) -> std::result::Result<Callbacks, Failure> {
    let given = read_struct(from, "the callbacks of the device")?;
    if given.read.is_none() {
        return Err(Failure::new(EFAULT, "the device has no function to read"));
    }
    Ok(Callbacks(given))
}

/// Opens the volume on storage of the caller's, which is used until the volume, and everything opened in
/// it, is closed. NULL if it can't; `release` was called then, unless the struct itself was wrong.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_open_device(from: *const hectare_device, flags: u32) -> *mut hectare_volume {
    guard(std::ptr::null_mut(), || {
        let device = device(from)?;
        keep(options(flags)?.open_device(Arc::new(device))?)
    })
}
