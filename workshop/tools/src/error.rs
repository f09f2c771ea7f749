//! Why a run could not be made: one line that names the object and the reason.

/// The lab's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a run could not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A file, directory or image, and why it failed.
    #[error("{what}: {reason}")]
    At {
        /// Which.
        what: String,
        /// Why.
        reason: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// `what: reason`.
    pub fn at(what: impl Into<String>, reason: impl ToString) -> Self {
        let reason = reason.to_string();
        // The number adds nothing to what the system says.
        let reason = reason.split(" (os error").next().unwrap_or_default().to_owned();
        Self::At { what: what.into(), reason }
    }
}
