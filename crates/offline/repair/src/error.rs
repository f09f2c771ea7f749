//! Why a volume can't be repaired.

use hectare_check::Problem;
use hectare_ext4::error::FormatError;

/// Why a volume can't be repaired. Nothing was written then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// What the repair has to remember has no room: not in memory, nor in the file that it spills to.
    #[error(transparent)]
    Spill(hectare_device::Error),
    /// The check can't judge the volume.
    #[error(transparent)]
    Check(#[from] hectare_check::Error),
    /// No superblock was found that leads anywhere.
    #[error("no superblock leads to a volume: {0}")]
    NoSuperblock(FormatError),
    /// Something outside is needed first.
    #[error("{0}")]
    Refused(String),
    /// After the last round something was still wrong.
    #[error(
        "it can't be made sound: after {rounds} rounds {count} problems are left, the first of them: {first}"
    )]
    Left {
        /// Rounds.
        rounds: u32,
        /// Problems.
        count: u64,
        /// The first.
        first: Box<Problem>,
    },
}

impl From<hectare_units::OutOfMemory> for Error {
    fn from(error: hectare_units::OutOfMemory) -> Self {
        Self::Check(error.into())
    }
}
