//! File systems of Linux, and of discs.
//!
//! Facts: the documents "XFS Algorithms & Data Structures", "On-disk Format" of btrfs, "squashfs 4.0", EROFS
//! and F2FS in the kernel's documentation, ECMA-119 for ISO 9660.

use super::{Details, size};
use crate::record::record;
use hectare_device::{Device, Result};
use hectare_units::Bytes;

pub(super) fn xfs(device: &dyn Device) -> Result<Option<Details>> {
    let Some(sb) = record(device, 0, 264)? else { return Ok(None) };
    let block = sb.be32(4);
    let size = size(sb.be64(8), block.into());
    let mut details = Details { label: sb.text(108, 12), uuid: sb.uuid(32), size, ..Details::default() };
    details.fact("version", sb.be16(100) & 0xf);
    details.fact("block size", block);
    if sb.be64(48) == 0 {
        details.fact("log", "on another device");
    }
    if sb.u8(126) != 0 {
        details.fact("state", "mkfs.xfs was interrupted");
    }
    Ok(Some(details))
}

pub(super) fn btrfs(device: &dyn Device) -> Result<Option<Details>> {
    let Some(sb) = record(device, 0x1_0000, 4096)? else { return Ok(None) };
    let mut details = Details { label: sb.text(0x12b, 256), uuid: sb.uuid(0x20), ..Details::default() };
    // This device's share of the whole.
    details.size = Some(Bytes::new(sb.le64(0xd1)));
    details.fact("devices", sb.le64(0x88));
    details.fact("bytes used", sb.le64(0x78));
    details.fact("sector size", sb.le32(0x90));
    sb.uuid(0x10b).iter().for_each(|uuid| details.fact("device UUID", uuid));
    Ok(Some(details))
}

pub(super) fn f2fs(device: &dyn Device) -> Result<Option<Details>> {
    let Some(sb) = record(device, 1024, 1024)? else { return Ok(None) };
    let mut details = Details { label: sb.utf16(124, 256), uuid: sb.uuid(108), ..Details::default() };
    let block = 1_u64.checked_shl(sb.le32(16)).unwrap_or(0);
    details.size = size(sb.le64(36), block);
    details.fact("version", format!("{}.{}", sb.le16(4), sb.le16(6)));
    details.fact("block size", block);
    Ok(Some(details))
}

pub(super) fn squashfs(device: &dyn Device) -> Result<Option<Details>> {
    const METHODS: [&str; 6] = ["gzip", "lzma", "lzo", "xz", "lz4", "zstd"];
    let Some(sb) = record(device, 0, 96)? else { return Ok(None) };
    let mut details = Details::default();
    let version = (sb.le16(28), sb.le16(30));
    details.fact("version", format!("{}.{}", version.0, version.1));
    if version.0 == 4 {
        details.size = Some(Bytes::new(sb.le64(40)));
        let method = usize::from(sb.le16(20)).checked_sub(1).and_then(|method| METHODS.get(method));
        details.fact("compression", method.unwrap_or(&"unknown"));
        details.fact("block size", sb.le32(12));
        details.fact("inodes", sb.le32(4));
    }
    Ok(Some(details))
}

pub(super) fn erofs(device: &dyn Device) -> Result<Option<Details>> {
    let Some(sb) = record(device, 1024, 128)? else { return Ok(None) };
    let mut details = Details { label: sb.text(64, 16), uuid: sb.uuid(48), ..Details::default() };
    let block = 1_u64.checked_shl(sb.u8(12).into()).unwrap_or(0);
    details.size = size(sb.le32(36).into(), block);
    details.fact("block size", block);
    details.fact("inodes", sb.le64(16));
    Ok(Some(details))
}

pub(super) fn iso9660(device: &dyn Device) -> Result<Option<Details>> {
    let Some(volume) = record(device, 0x8000, 2048)? else { return Ok(None) };
    let block = volume.le16(128);
    let size = size(volume.le32(80).into(), block.into());
    let mut details = Details { label: volume.text(40, 32), size, ..Details::default() };
    details.uuid = iso_date(volume.bytes(830, 16)).or_else(|| iso_date(volume.bytes(813, 16)));
    details.fact("block size", block);
    let boot = record(device, 0x8800, 71)?;
    if boot.is_some_and(|boot| boot.u8(0) == 0 && boot.bytes(7, 23) == b"EL TORITO SPECIFICATION") {
        details.fact("bootable", "yes");
    }
    Ok(Some(details))
}

/// A date of sixteen digits, as blkid shows it in place of a UUID.
fn iso_date(digits: &[u8]) -> Option<String> {
    let is_date = digits.iter().all(u8::is_ascii_digit) && digits.iter().any(|digit| *digit != b'0');
    let text = std::str::from_utf8(digits).ok().filter(|text| is_date && text.len() == 16)?;
    let parts = [0..4, 4..6, 6..8, 8..10, 10..12, 12..14, 14..16];
    Some(parts.map(|part| &text[part]).join("-"))
}
