//! Why a logical volume can't be used.

use hectare_device::Device;
use hectare_units::Bytes;

/// The outcome of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a logical volume can't be used, on one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device could not be read.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The device is no physical volume.
    #[error("{0} is no physical volume of LVM2")]
    NoLabel(String),
    /// The metadata is damaged.
    #[error("{device}: the LVM metadata at byte {place} is damaged: {reason}")]
    Damaged {
        /// The physical volume.
        device: String,
        /// Where the damage is.
        place: Bytes,
        /// What is wrong.
        reason: String,
    },
    /// The group can't be used.
    #[error("{device}: volume group {group}: {reason}")]
    Group {
        /// The physical volume that was given first.
        device: String,
        /// The group's name.
        group: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The logical volume can't be used.
    #[error("{device}: logical volume {volume}: {reason}")]
    Volume {
        /// The physical volume that was given first.
        device: String,
        /// The names of the group and the volume.
        volume: String,
        /// What is wrong, and what to do.
        reason: String,
    },
}

impl Error {
    pub(crate) fn damaged(device: &dyn Device, place: Bytes, reason: &str) -> Self {
        Self::Damaged { device: device.name().to_owned(), place, reason: reason.to_owned() }
    }
}
