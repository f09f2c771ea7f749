//! Why a partition can't be opened.
//!
//! Messages name the disk, and what is there instead.

use hectare_device::Device;
use hectare_units::Bytes;

/// Why a partition can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk could not be read, or a partition does not lie on it.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// There is no table: perhaps the disk is a volume itself.
    #[error("{0} has no partition table: perhaps it holds a volume as a whole")]
    NoTable(String),
    /// The table is damaged.
    #[error("{device}: the partition table at byte {place} is damaged: {reason}")]
    Damaged {
        /// The disk.
        device: String,
        /// Where the damage is.
        place: Bytes,
        /// What is wrong.
        reason: &'static str,
    },
    /// There is no such partition.
    #[error("{device} has no partition {number}: there {there}")]
    Missing {
        /// The disk.
        device: String,
        /// The number that was requested.
        number: u32,
        /// The existing ones, in words.
        there: String,
    },
    /// No partition has that name or UUID, or several have.
    #[error("{device}: {wanted:?} is the name or UUID of {count}: there {there}")]
    Unknown {
        /// The disk.
        device: String,
        /// What was requested.
        wanted: String,
        /// How many there are, in words.
        count: &'static str,
        /// The existing numbers, in words.
        there: String,
    },
}

/// The result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn damaged(disk: &dyn Device, place: Bytes, reason: &'static str) -> Error {
    Error::Damaged { device: disk.name().to_owned(), place, reason }
}
