//! What a content says of itself, by kind: a parser for each header that is known.
//!
//! A header that is cut off, or that says nothing that makes sense, yields what is left: never an error, as
//! the kind is known already. Facts are in the order in which they are shown.

mod archive;
mod disk_image;
mod ext;
mod filesystem;
mod windows;
mod wrapper;

use hectare_device::{Device, Result};
use hectare_ext4::superblock::SuperBlock;
use hectare_probe::{FoundSuperblock, What};
use hectare_units::Bytes;

/// What a content says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Details {
    /// The label, without control characters.
    pub label: Option<String>,
    /// The UUID or serial number, as blkid writes it.
    pub uuid: Option<String>,
    /// How large the content says it is: of a disk image the size of the disk in it, else what it takes of
    /// the device.
    pub size: Option<Bytes>,
    /// What else there is to know: names and values.
    pub facts: Vec<(&'static str, String)>,
}

impl Details {
    fn fact(&mut self, name: &'static str, value: impl ToString) {
        self.facts.push((name, value.to_string()));
    }

    /// Notes a copy of the superblock that is whole, by its block as `e2fsck -b` counts.
    pub(crate) fn add_copy(&mut self, copy: &FoundSuperblock) {
        let size = copy.superblock.geometry().block_size;
        self.facts.push(("copy of the superblock", size.block_at(copy.at).to_string()));
    }

    /// The value of a fact.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

/// A product that is a size if it fits 64 bits.
fn size(units: u64, unit: u64) -> Option<Bytes> {
    units.checked_mul(unit).map(Bytes::new)
}

/// What a copy of the superblock says of a volume whose first one is lost.
pub(crate) fn of_lost_volume(superblock: &SuperBlock) -> Details {
    ext::lost_volume(superblock)
}

/// What the content of a device says of itself.
pub(crate) fn of(what: What, device: &dyn Device) -> Result<Details> {
    let details = match what {
        What::Ext2 | What::Ext3 | What::Ext4 => ext::volume(device),
        What::ExtJournal => ext::journal(device),
        What::Xfs => filesystem::xfs(device),
        What::Btrfs => filesystem::btrfs(device),
        What::F2fs => filesystem::f2fs(device),
        What::Squashfs => filesystem::squashfs(device),
        What::Erofs => filesystem::erofs(device),
        What::Iso9660 => filesystem::iso9660(device),
        What::Fat => windows::fat(device),
        What::ExFat => windows::exfat(device),
        What::Ntfs => windows::ntfs(device),
        What::Swap => wrapper::swap(device),
        What::Luks => wrapper::luks(device),
        What::Lvm => wrapper::lvm(device),
        What::Raid => wrapper::raid(device),
        What::Qcow => disk_image::qcow(device),
        What::Vhd => disk_image::vhd(device),
        What::Vhdx => disk_image::vhdx(device),
        What::Vmdk => disk_image::vmdk(device),
        What::Vdi => disk_image::vdi(device),
        What::AndroidSparse => disk_image::android_sparse(device),
        What::Gzip => archive::gzip(device),
        What::Zstd => archive::zstd(device),
        What::Tar => archive::tar(device),
        _ => Ok(None),
    };
    Ok(details?.unwrap_or_default())
}
