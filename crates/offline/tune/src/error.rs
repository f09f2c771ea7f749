//! Why a volume can't be changed, on one line.

use hectare_ext4::error::{Corrupt, FormatError, Unsupported};

/// The outcome of a change.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume can't be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// A structure is not as it must be.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The volume uses something that is not known.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The checker could not judge the volume, or there is none.
    #[error(transparent)]
    Check(#[from] hectare_check::Error),
    /// Descriptors or backups can't be moved.
    #[error(transparent)]
    Shape(#[from] hectare_resize::Error),
    /// The journal's device can't be used.
    #[error(transparent)]
    Journal(#[from] hectare_mkfs::Error),
    /// The volume is not in a state to be changed, or the change is impossible; with what to do.
    #[error("{0}")]
    Refused(String),
    /// The change would have left a volume that is not sound; nothing was written.
    #[error("the result would not be sound, so nothing was written: {0}")]
    Unsound(String),
}

impl Error {
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt(corrupt) => corrupt.into(),
            FormatError::Unsupported(unsupported) => unsupported.into(),
        }
    }
}
