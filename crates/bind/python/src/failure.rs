//! Why a call failed, until it is raised: collected without the interpreter's lock, raised with it.
//!
//! Everything that a file system can answer becomes an `OSError(errno, text, filename)`, of which Python
//! makes `FileNotFoundError` and its like by the number. The file name is the path in the volume, as `os`
//! has it: as it was given, with surrogate escapes for what is no UTF-8. The text names the image.

use hectare::Error;
use pyo3::exceptions::{PyOSError, PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::types::{PyBytes, PyString};
use pyo3::{Bound, IntoPyObject, PyErr, PyResult, Python};
use std::error::Error as _;

/// The result of what runs without the interpreter's lock.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The handle is closed; what it is a handle of.
    Closed(&'static str),
    /// The handle was opened by another process; what it is a handle of.
    Forked(&'static str),
    /// An argument has no meaning.
    Value(String),
    /// What Linux has a number for.
    Os {
        /// The number.
        errno: i32,
        /// The reason, without the path.
        text: String,
    },
}

impl Failure {
    /// With a number of Linux's.
    pub(crate) fn os(errno: i32, text: impl Into<String>) -> Self {
        Self::Os { errno, text: text.into() }
    }

    /// The exception, without a file's name.
    pub(crate) fn plain(self) -> PyErr {
        self.exception(None)
    }

    /// The exception about a path.
    pub(crate) fn about(self, path: impl Into<Vec<u8>>) -> PyErr {
        self.exception(Some(Name(path.into())))
    }

    fn exception(self, path: Option<Name>) -> PyErr {
        match (self, path) {
            (Self::Closed(what), _) => PyValueError::new_err(format!("I/O operation on closed {what}")),
            (Self::Forked(what), _) => PyRuntimeError::new_err(format!(
                "this {what} was opened before the process forked; open the image again in the child"
            )),
            (Self::Value(text), Some(path)) => PyValueError::new_err(format!("{}: {text}", path.shown())),
            (Self::Value(text), None) => PyValueError::new_err(text),
            (Self::Os { errno, text }, Some(path)) => {
                // Devices name themselves in their errors.
                let rest = text.strip_prefix(&path.shown()).and_then(|rest| rest.strip_prefix(": "));
                let reason = rest.unwrap_or(&text).to_owned();
                PyOSError::new_err((errno, reason, path))
            }
            (Self::Os { errno, text }, None) => PyOSError::new_err((errno, text)),
        }
    }
}

/// A file's name in an exception.
struct Name(Vec<u8>);

impl Name {
    /// As it is in texts.
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl<'py> IntoPyObject<'py> for Name {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let bytes = PyBytes::new(py, &self.0);
        PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(c"surrogateescape"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if error.source().is_some_and(is_closed) {
            return Self::Closed("volume");
        }
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        // The path is the exception's; a device's name is that only in calls about the image.
        let names_path = !error.place().is_empty()
            && !error.source().is_some_and(|cause| cause.is::<hectare::device::Error>());
        let text = cause.strip_prefix(error.place()).and_then(|rest| rest.strip_prefix(": "));
        Self::os(error.errno(), text.filter(|_| names_path).unwrap_or(&cause))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::os(error.raw_os_error().unwrap_or(EIO), error.to_string()),
        }
    }
}

/// Whether another thread has closed the volume meanwhile.
fn is_closed(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(hectare::inode::Error::Closed))
}

impl From<hectare::inode::Error> for Failure {
    fn from(error: hectare::inode::Error) -> Self {
        if is_closed(&error) {
            return Self::Closed("volume");
        }
        Self::os(error.errno(), error.to_string())
    }
}

/// Input or output failed.
const EIO: i32 = 5;

/// Raises a failure about a path of a volume.
pub(crate) fn raised<T>(outcome: Outcome<T>, path: &[u8]) -> PyResult<T> {
    outcome.map_err(|failure| failure.about(path))
}

/// The length of an object in memory.
///
/// # Errors
/// `OverflowError` if it is more than the host can address.
pub(crate) fn size(bytes: u64) -> PyResult<usize> {
    usize::try_from(bytes)
        .map_err(|_| PyOverflowError::new_err(format!("{bytes} bytes don't fit the memory")))
}
