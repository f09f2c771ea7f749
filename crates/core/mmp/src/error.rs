//! Why a volume can't be taken for writing.

use hectare_ext4::error::{Corrupt, FormatError, Unsupported};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a volume can't be taken for writing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The block or the superblock breaks the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The volume uses something that is not known.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Another host may use the volume; the text says what to do.
    #[error("{0}")]
    InUse(String),
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt(corrupt) => corrupt.into(),
            FormatError::Unsupported(what) => what.into(),
        }
    }
}
