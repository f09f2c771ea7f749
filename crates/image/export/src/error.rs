//! Why a volume could not be exported or compared: one line, with the place and the reason.

use std::io;

/// The result of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why an export or a comparison ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the volume can't be read, or can't be in the output.
    #[error("{place}: {reason}")]
    Content {
        /// The file, as [`Tree::show`](crate::Tree::show) names it.
        place: String,
        /// One line.
        reason: String,
    },
    /// The output can't be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// A file of the output can't be made.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// What is at the place of the output is not what it has to be.
    #[error("{place}: {reason}")]
    Layout {
        /// The file or directory of the host.
        place: String,
        /// One line.
        reason: String,
    },
}
