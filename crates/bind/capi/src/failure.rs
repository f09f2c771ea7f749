//! Errors on their way to C: a number and a text for each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) const ENOENT: c_int = 2;
pub(crate) const EIO: c_int = 5;
pub(crate) const EBADF: c_int = 9;
pub(crate) const EFAULT: c_int = 14;
pub(crate) const EINVAL: c_int = 22;
pub(crate) const ERANGE: c_int = 34;
pub(crate) const EOVERFLOW: c_int = 75;

/// Why a call failed.
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }
}

impl Failure {
    /// An error of the host's, with the path that it is about.
    pub(crate) fn of_host(path: &std::path::Path, error: &io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(EIO), format!("{}: {error}", path.display()))
    }
}

impl From<hectare::Error> for Failure {
    fn from(error: hectare::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.raw_os_error().unwrap_or(EIO), error.to_string())
    }
}

thread_local! {
    /// What the last call of this thread that failed said.
    static LAST: RefCell<(c_int, CString)> = RefCell::new((0, CString::default()));
}

/// Runs a call: its result, or `failed` with the reason kept for this thread.
pub(crate) fn guard<T>(failed: T, run: impl FnOnce() -> Result<T, Failure>) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(done)) => return done,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(EIO, "the library has a bug: the call ended half-way; close the volume"),
    };
    errno::set_errno(errno::Errno(failure.errno));
    let text = CString::new(failure.message.replace('\0', "?")).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = (failure.errno, text));
    failed
}

/// Runs a call that returns 0, or -1.
pub(crate) fn status(run: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guard(-1, || run().map(|()| 0))
}

/// The number of the last error of this thread, as Linux numbers them; 0 if there was none. errno has the
/// same number when a call returns that failed, and may change later by anything, also by a call of this
/// library that does not fail; this number is changed by the next one of this thread that does.
#[allow(unsafe_code)] // C calls it by this name
#[unsafe(no_mangle)]
pub extern "C" fn hectare_errno() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(0)
}

/// The text of the last error of this thread: one line that names the file and the reason; "" if there was
/// none, never NULL. It stays until the next call of this thread that fails, or the thread ends; the caller
/// must not free it.
#[allow(unsafe_code)] // C calls it by this name
#[unsafe(no_mangle)]
pub extern "C" fn hectare_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[allow(unsafe_code)]
    fn message() -> String {
        // SAFETY: text of this thread, until its next failure.
        unsafe { CStr::from_ptr(hectare_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_ends_at_the_border() {
        assert_eq!(status(|| panic!("on purpose")), -1);
        assert_eq!((hectare_errno(), errno::errno().0), (EIO, EIO));
        assert!(message().contains("bug"), "{}", message());
    }

    #[test]
    fn each_thread_has_its_own_failure_and_text_ends_at_no_nul() {
        assert_eq!(status(|| Err(Failure::new(EINVAL, "a\0b"))), -1);
        let other = std::thread::spawn(|| {
            let before = (hectare_errno(), message());
            assert_eq!(status(|| Err(Failure::new(EBADF, "another"))), -1);
            (before, hectare_errno(), message())
        });
        assert_eq!(other.join().unwrap(), ((0, String::new()), EBADF, "another".to_owned()));
        assert_eq!((hectare_errno(), message()), (EINVAL, "a?b".to_owned()));
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(hectare_errno(), EINVAL, "a call that succeeds changes nothing");
    }
}
