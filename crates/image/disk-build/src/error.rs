//! Why a disk can't be made: one line each, with the place in the description where there is one.

use std::fmt;

/// The result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a disk can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description is wrong.
    #[error("{file}{}: {reason}", Line(*line))]
    Spec {
        /// The file.
        file: String,
        /// The line, from 1, if the reason has one.
        line: Option<usize>,
        /// What is wrong, beginning with the key.
        reason: String,
    },
    /// A part of the disk can't be made as described.
    #[error("{what}: {reason}")]
    Part {
        /// Which: a partition or a blob.
        what: String,
        /// Why.
        reason: String,
    },
    /// The disk can't be written.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
}

impl Error {
    pub(crate) fn part(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::Part { what: what.to_string(), reason: reason.to_string() }
    }
}

struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// The system's message, without the error number.
pub(crate) fn io_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
