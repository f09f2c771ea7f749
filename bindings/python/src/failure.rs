//! Why a call failed, until it is raised: collected without the interpreter's lock, raised with it.
//!
//! Everything that a file system can answer becomes an `OSError(errno, text, filename)`, of which Python
//! makes `FileNotFoundError` and its like by the number. The file name is the path in the volume, as `os`
//! has it; the text names the image.

use hectare::Error;
use pyo3::exceptions::{PyOSError, PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, PyResult};
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
    pub(crate) fn about(self, path: impl Into<String>) -> PyErr {
        self.exception(Some(path.into()))
    }

    fn exception(self, path: Option<String>) -> PyErr {
        match (self, path) {
            (Self::Closed(what), _) => PyValueError::new_err(format!("I/O operation on closed {what}")),
            (Self::Forked(what), _) => PyRuntimeError::new_err(format!(
                "this {what} was opened before the process forked; open the image again in the child"
            )),
            (Self::Value(text), Some(path)) => PyValueError::new_err(format!("{path}: {text}")),
            (Self::Value(text), None) => PyValueError::new_err(text),
            (Self::Os { errno, text }, Some(path)) => {
                // Devices name themselves in their errors.
                let reason =
                    text.strip_prefix(&path).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
                PyOSError::new_err((errno, reason.to_owned(), path))
            }
            (Self::Os { errno, text }, None) => PyOSError::new_err((errno, text)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        // The path is the exception's.
        let text = cause.strip_prefix(error.place()).and_then(|rest| rest.strip_prefix(": "));
        Self::os(error.errno(), text.filter(|_| !error.place().is_empty()).unwrap_or(&cause))
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

impl From<hectare::inode::Error> for Failure {
    fn from(error: hectare::inode::Error) -> Self {
        Self::os(error.errno(), error.to_string())
    }
}

/// Input or output failed.
const EIO: i32 = 5;

/// Raises a failure about a path of a volume.
pub(crate) fn raised<T>(outcome: Outcome<T>, path: &[u8]) -> PyResult<T> {
    outcome.map_err(|failure| failure.about(String::from_utf8_lossy(path)))
}

/// The length of an object in memory.
///
/// # Errors
/// `OverflowError` if it is more than the host can address.
pub(crate) fn size(bytes: u64) -> PyResult<usize> {
    usize::try_from(bytes)
        .map_err(|_| PyOverflowError::new_err(format!("{bytes} bytes don't fit the memory")))
}
