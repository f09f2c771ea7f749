//! Why a volume can't be resized.

use hectare_ext4::error::{Corrupt, FormatError, Unsupported};
use hectare_units::OutOfMemory;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a resize was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// Something failed after the first block that the volume uses was written.
    #[error("{0}; the volume may be between its old and its new size: run e2fsck -f on it")]
    PartWay(Box<Error>),
    /// A structure breaks the format.
    #[error("{0}; run e2fsck -f first")]
    Corrupt(#[from] Corrupt),
    /// The volume has something that this program can't deal with.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The volume is not in a state to be resized; the text says what to do.
    #[error("{0}")]
    Refused(String),
    /// The volume can't have the size; the text says why.
    #[error("{0}")]
    Size(String),
    /// There is no room for what has to move: about how many blocks are missing.
    #[error("{what} does not fit: the size is about {missing} blocks too small")]
    NoSpace {
        /// What found no place.
        what: String,
        /// Blocks that are missing, at least 1.
        missing: u64,
    },
    /// The layout of the new groups can't be planned.
    #[error(transparent)]
    Layout(#[from] hectare_mkfs::Error),
    /// The volume can't be checked.
    #[error(transparent)]
    Check(#[from] hectare_check::Error),
    /// What was to be written is not sound; nothing was changed.
    #[error("the resized volume would not be sound, so nothing was written (a bug; please report it): {0}")]
    Unsound(String),
    /// The journal can't take a transaction.
    #[error(transparent)]
    Log(#[from] hectare_journal::LogError),
    /// The system refused memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt(corrupt) => corrupt.into(),
            FormatError::Unsupported(what) => what.into(),
        }
    }
}
