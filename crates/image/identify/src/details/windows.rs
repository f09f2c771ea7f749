//! FAT, exFAT and NTFS.
//!
//! Labels lie in the root directory (FAT, exFAT) or in a file (NTFS); of those only the first cluster or
//! record is read, where formatters put them.
//!
//! Facts: Microsoft's "FAT: General Overview of On-Disk Format" 1.03 and "exFAT file system specification";
//! for NTFS, what its formatters write (tested against blkid).

use super::{Details, size};
use crate::record::{Record, record};
use hectare_device::{Device, Result};

/// What a formatter writes as the label where there is none.
const NO_NAME: &str = "NO NAME";
/// More bytes than are read of a root directory.
const ROOT_MAX: u64 = 64 << 10;
const ROOT_ENTRY: usize = 32;

/// The numbers of a FAT that say where things lie, in sectors.
struct FatLayout {
    sector: u64,
    sectors: u64,
    root_at: u64,
    root_bytes: u64,
    clusters: u64,
    is_fat32: bool,
}

impl FatLayout {
    fn of(boot: &Record) -> Option<Self> {
        let (sector, per_cluster) = (u64::from(boot.le16(11)), u64::from(boot.u8(13)));
        if !(512..=4096).contains(&sector) || !sector.is_power_of_two() || per_cluster == 0 {
            return None;
        }
        let wide = |short: u16, long: u32| if short == 0 { u64::from(long) } else { u64::from(short) };
        let sectors = wide(boot.le16(19), boot.le32(32));
        let tables = u64::from(boot.u8(16)) * wide(boot.le16(22), boot.le32(36));
        let entries = u64::from(boot.le16(17));
        let root_sectors = (entries * 32).div_ceil(sector);
        let tables_end = u64::from(boot.le16(14)) + tables;
        let data = tables_end + root_sectors;
        let is_fat32 = entries == 0;
        let root_at =
            if is_fat32 { data + u64::from(boot.le32(44).checked_sub(2)?) * per_cluster } else { tables_end };
        let root_bytes = if is_fat32 { per_cluster * sector } else { entries * 32 };
        let clusters = sectors.checked_sub(data)? / per_cluster;
        Some(Self { sector, sectors, root_at, root_bytes, clusters, is_fat32 })
    }

    /// The kind follows from the number of clusters.
    fn kind(&self) -> &'static str {
        match self.clusters {
            _ if self.is_fat32 => "FAT32",
            ..4085 => "FAT12",
            _ => "FAT16",
        }
    }
}

pub(super) fn fat(device: &dyn Device) -> Result<Option<Details>> {
    let Some(boot) = record(device, 0, 512)? else { return Ok(None) };
    let Some(layout) = FatLayout::of(&boot) else { return Ok(None) };
    let (serial_at, label_at) = if layout.is_fat32 { (67, 71) } else { (39, 43) };
    let serial = boot.le32(serial_at);
    let mut details = Details { size: size(layout.sectors, layout.sector), ..Details::default() };
    details.uuid = Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff));
    let root = record(
        device,
        layout.root_at.saturating_mul(layout.sector),
        hectare_units::index_of(layout.root_bytes.min(ROOT_MAX)),
    )?;
    let in_root = root.as_ref().and_then(fat_label);
    details.label = in_root.or_else(|| boot.text(label_at, 11)).filter(|label| label != NO_NAME);
    details.fact("kind", layout.kind());
    details.fact("clusters", layout.clusters);
    Ok(Some(details))
}

/// The label in a root directory: the entry whose only attribute is that of a label.
fn fat_label(root: &Record) -> Option<String> {
    const LABEL: u8 = 0x8;
    const DIRECTORY_OR_LABEL: u8 = 0x18;
    const LONG_NAME: u8 = 0xf;
    let entries = root.bytes(0, root.len()).chunks_exact(ROOT_ENTRY).enumerate();
    let mut used = entries.take_while(|(_, entry)| entry[0] != 0).filter(|(_, entry)| entry[0] != 0xe5);
    let is_label =
        |attributes: u8| attributes & DIRECTORY_OR_LABEL == LABEL && attributes & LONG_NAME != LONG_NAME;
    used.find(|(_, entry)| is_label(entry[11])).and_then(|(index, _)| root.text(index * ROOT_ENTRY, 11))
}

pub(super) fn exfat(device: &dyn Device) -> Result<Option<Details>> {
    let Some(boot) = record(device, 0, 512)? else { return Ok(None) };
    let (sector_shift, cluster_shift) = (boot.u8(108), boot.u8(109));
    if !(9..=12).contains(&sector_shift) || cluster_shift > 25 - sector_shift {
        return Ok(None);
    }
    let (sector, per_cluster) = (1_u64 << sector_shift, 1_u64 << cluster_shift);
    let serial = boot.le32(100);
    let mut details = Details { size: size(boot.le64(72), sector), ..Details::default() };
    details.uuid = Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff));
    let root = u64::from(boot.le32(96)).saturating_sub(2) * per_cluster + u64::from(boot.le32(88));
    let root_len = hectare_units::index_of((per_cluster * sector).min(ROOT_MAX));
    details.label =
        record(device, root.saturating_mul(sector), root_len)?.and_then(|root| exfat_label(&root));
    details.fact("cluster size", per_cluster * sector);
    details.fact("clusters", boot.le32(92));
    Ok(Some(details))
}

/// The label in a root directory: the entry of kind 0x83, with its length in the next byte.
fn exfat_label(root: &Record) -> Option<String> {
    let places = (0..root.len()).step_by(ROOT_ENTRY).take_while(|at| root.u8(*at) != 0);
    let at = places.into_iter().find(|at| root.u8(*at) == 0x83)?;
    root.utf16(at + 2, usize::from(root.u8(at + 1)).min(11))
}

pub(super) fn ntfs(device: &dyn Device) -> Result<Option<Details>> {
    let Some(boot) = record(device, 0, 512)? else { return Ok(None) };
    let sector = u64::from(boot.le16(11));
    // Sectors in a cluster: a number to 128, or a negative power of two.
    let per_cluster = match boot.u8(13) {
        few @ ..=128 => u64::from(few),
        power => 1_u64.checked_shl(256 - u32::from(power)).unwrap_or(0),
    };
    let mut details = Details { size: size(boot.le64(40), sector), ..Details::default() };
    details.uuid = Some(format!("{:016X}", boot.le64(72)));
    let cluster = sector.saturating_mul(per_cluster);
    details.fact("cluster size", cluster);
    // Bytes of a file record: clusters, or a negative power of two.
    let record_len = match boot.u8(64) {
        few @ ..=127 => cluster.saturating_mul(few.into()),
        power => 1_u64.checked_shl(256 - u32::from(power)).unwrap_or(0),
    };
    if (256..=65_536).contains(&record_len) {
        const VOLUME_FILE: u64 = 3;
        let at = boot.le64(48).saturating_mul(cluster).saturating_add(VOLUME_FILE * record_len);
        let file = record(device, at, hectare_units::index_of(record_len))?;
        details.label = file.filter(|file| file.bytes(0, 4) == b"FILE").and_then(|file| ntfs_label(&file));
    }
    Ok(Some(details))
}

/// The label in the record of the file `$Volume`: its attribute of kind 0x60.
fn ntfs_label(file: &Record) -> Option<String> {
    const VOLUME_NAME: u32 = 0x60;
    let mut at = usize::from(file.le16(20));
    // Every attribute is longer than its header, so this ends with the record.
    while at + 24 <= file.len() {
        let len = hectare_units::usize_of(file.le32(at + 4));
        if file.le32(at) == VOLUME_NAME && file.u8(at + 8) == 0 {
            let units = hectare_units::usize_of(file.le32(at + 16)) / 2;
            return file.utf16(at + usize::from(file.le16(at + 20)), units);
        }
        at = at.checked_add(len).filter(|_| len >= 24)?;
    }
    None
}
