//! The error of a format, on one line.

use hectare_ext4::FormatError;
use hectare_probe::Found;

/// The outcome of planning or executing a format.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume can't be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option that is wrong by itself, or impossible together with another.
    #[error("{option}: {reason}")]
    Option {
        /// The option as the user writes it (`-O bigalloc`).
        option: String,
        /// The fault, and what to do.
        reason: String,
    },
    /// The device is too small for what was asked.
    #[error("a volume of {bytes} bytes is too small: {reason}")]
    TooSmall {
        /// The size that was given.
        bytes: u64,
        /// What does not fit.
        reason: String,
    },
    /// The device already holds something.
    #[error("{device} holds {found}; use --force to overwrite it")]
    Occupied {
        /// The device's name.
        device: String,
        /// What it holds.
        found: Found,
    },
    /// The storage failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The plan does not pass the checks that every volume must pass.
    #[error("the planned volume is not valid: {0}")]
    Format(#[from] FormatError),
}

impl Error {
    pub(crate) fn option(option: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Option { option: option.into(), reason: reason.into() }
    }
}
