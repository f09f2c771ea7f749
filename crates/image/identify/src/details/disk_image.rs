//! Images of disks that have to be converted before anything in them is readable.
//!
//! Facts: "qcow2" in QEMU's documentation; Microsoft's "Virtual Hard Disk Image Format" and [MS-VHDX];
//! VMware's "Virtual Disk Format 5.0"; for VDI and Android's sparse images what their tools write.

use super::{Details, size};
use crate::record::record;
use hectare_device::{Device, Result};
use hectare_units::Bytes;

pub(super) fn qcow(device: &dyn Device) -> Result<Option<Details>> {
    const BACKING_MAX: u32 = 1023;
    let Some(head) = record(device, 0, 104)?.filter(|head| head.bytes(0, 4) == b"QFI\xfb") else {
        return Ok(None);
    };
    let version = head.be32(4);
    let mut details = Details { size: Some(Bytes::new(head.be64(24))), ..Details::default() };
    details.fact("version", version);
    let backing_len = head.be32(16);
    if head.be64(8) != 0 && (1..=BACKING_MAX).contains(&backing_len) {
        let name = record(device, head.be64(8), hectare_units::usize_of(backing_len))?;
        let name = name.and_then(|name| name.text(0, name.len()));
        details.fact("backing file", name.unwrap_or_else(|| "unreadable".to_owned()));
    }
    // Version 1 has its fields elsewhere.
    let crypt = if version == 1 { head.be32(36) } else { head.be32(32) };
    if crypt != 0 {
        details.fact("encrypted", "yes");
    }
    if version >= 3 {
        for (bit, fault) in [(0, "dirty"), (1, "corrupt"), (2, "its data lie in another file")] {
            if head.be64(72) >> bit & 1 == 1 {
                details.fact("state", fault);
            }
        }
    }
    Ok(Some(details))
}

/// The footer, or its copy at the start.
pub(super) fn vhd(device: &dyn Device) -> Result<Option<Details>> {
    let end = device.len().get().checked_sub(512);
    for at in [end, Some(0)].into_iter().flatten() {
        let Some(foot) = record(device, at, 512)?.filter(|foot| foot.bytes(0, 8) == b"conectix") else {
            continue;
        };
        let mut details = Details { size: Some(Bytes::new(foot.be64(48))), ..Details::default() };
        details.uuid = foot.uuid(68);
        let kind = match foot.be32(60) {
            2 => "fixed: raw, with a footer of 512 bytes",
            3 => "dynamic",
            4 => "differencing: it needs its parent",
            _ => "unknown",
        };
        details.fact("kind", kind);
        return Ok(Some(details));
    }
    Ok(None)
}

/// The size lies in the metadata region, which the region table names.
pub(super) fn vhdx(device: &dyn Device) -> Result<Option<Details>> {
    const TABLE: usize = 64 << 10;
    const REGIONS_AT: u64 = 192 << 10;
    const METADATA: [u8; 16] =
        [0x06, 0xa2, 0x7c, 0x8b, 0x90, 0x47, 0x9a, 0x4b, 0xb8, 0xfe, 0x57, 0x5f, 0x05, 0x0f, 0x88, 0x6e];
    const DISK_SIZE: [u8; 16] =
        [0x24, 0x42, 0xa5, 0x2f, 0x1b, 0xcd, 0x76, 0x48, 0xb2, 0x11, 0x5d, 0xbe, 0xd8, 0x3b, 0xf4, 0xb8];
    let Some(regions) = record(device, REGIONS_AT, TABLE)?.filter(|regions| regions.bytes(0, 4) == b"regi")
    else {
        return Ok(None);
    };
    let Some(region) = (0..2047).map(|n| 16 + 32 * n).find(|at| regions.bytes(*at, 16) == METADATA) else {
        return Ok(None);
    };
    let start = regions.le64(region + 16);
    let Some(items) = record(device, start, TABLE)?.filter(|items| items.bytes(0, 8) == b"metadata") else {
        return Ok(None);
    };
    let Some(item) = (0..2047).map(|n| 32 + 32 * n).find(|at| items.bytes(*at, 16) == DISK_SIZE) else {
        return Ok(None);
    };
    let value = record(device, start.saturating_add(items.le32(item + 16).into()), 8)?;
    Ok(value.map(|value| Details { size: Some(Bytes::new(value.le64(0))), ..Details::default() }))
}

pub(super) fn vmdk(device: &dyn Device) -> Result<Option<Details>> {
    let Some(head) = record(device, 0, 512)? else { return text_vmdk(device) };
    let mut details = Details::default();
    match head.bytes(0, 4) {
        b"KDMV" => {
            details.size = size(head.le64(12), 512);
            details.fact("kind", "hosted sparse");
        }
        b"COWD" => {
            details.size = size(head.le32(12).into(), 512);
            details.fact("kind", "ESX sparse");
        }
        _ => return text_vmdk(device),
    }
    details.fact("version", head.le32(4));
    Ok(Some(details))
}

/// A text that names the files with the data.
fn text_vmdk(device: &dyn Device) -> Result<Option<Details>> {
    let len = device.len().get().min(4096);
    let Some(head) = record(device, 0, hectare_units::index_of(len))? else { return Ok(None) };
    let text = String::from_utf8_lossy(head.bytes(0, head.len())).into_owned();
    let mut details = Details::default();
    details.fact("kind", "a text that names the files with the data");
    let sectors = |line: &str| {
        let mut words = line.split_whitespace();
        let access = words.next()?;
        matches!(access, "RW" | "RDONLY" | "NOACCESS").then(|| words.next()?.parse::<u64>().ok())?
    };
    let sum = text.lines().filter_map(sectors).try_fold(0_u64, u64::checked_add);
    details.size = sum.filter(|sum| *sum > 0).and_then(|sectors| size(sectors, 512));
    Ok(Some(details))
}

pub(super) fn vdi(device: &dyn Device) -> Result<Option<Details>> {
    let Some(head) = record(device, 0, 512)? else { return Ok(None) };
    let mut details = Details { size: Some(Bytes::new(head.le64(0x170))), ..Details::default() };
    details.fact("version", format!("{}.{}", head.le16(0x46), head.le16(0x44)));
    Ok(Some(details))
}

pub(super) fn android_sparse(device: &dyn Device) -> Result<Option<Details>> {
    let Some(head) = record(device, 0, 28)? else { return Ok(None) };
    let mut details =
        Details { size: size(head.le32(16).into(), head.le32(12).into()), ..Details::default() };
    details.fact("version", format!("{}.{}", head.le16(4), head.le16(6)));
    details.fact("block size", head.le32(12));
    details.fact("chunks", head.le32(20));
    Ok(Some(details))
}
