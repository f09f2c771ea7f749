//! What holds other content, or memory: swap space, encryption, volume managers, arrays.
//!
//! Facts: "LUKS On-Disk Format Specification" 1.2.3 and "LUKS2" 1.1.0; the layouts of swap headers, LVM2
//! labels and RAID superblocks as their tools write them (tested against blkid).

use super::{Details, size};
use crate::record::{Record, record};
use hectare_device::{Device, Result};
use hectare_units::Bytes;

pub(super) fn swap(device: &dyn Device) -> Result<Option<Details>> {
    for page in [4096, 8192, 16384, 32768, 65536] {
        let magic = record(device, page - 10, 10)?;
        if !magic.is_some_and(|magic| matches!(magic.bytes(0, 10), b"SWAPSPACE2" | b"SWAP-SPACE")) {
            continue;
        }
        let Some(head) = record(device, 1024, 44)? else { return Ok(None) };
        let mut details = Details { label: head.text(28, 16), uuid: head.uuid(12), ..Details::default() };
        let is_little = head.le32(0) == 1;
        let last = if is_little { head.le32(4) } else { head.be32(4) };
        details.size = size(u64::from(last) + 1, page);
        details.fact("page size", page);
        return Ok(Some(details));
    }
    Ok(None)
}

pub(super) fn luks(device: &dyn Device) -> Result<Option<Details>> {
    let Some(head) = record(device, 0, 512)? else { return Ok(None) };
    let version = head.be16(6);
    let mut details = Details { uuid: head.text(168, 40), ..Details::default() };
    details.fact("version", version);
    if version == 1 {
        let cipher = [head.text(8, 32), head.text(40, 32)].into_iter().flatten().collect::<Vec<_>>();
        details.fact("cipher", cipher.join("-"));
        details.fact("key bits", u64::from(head.be32(108)) * 8);
        details.fact("data begins at", u64::from(head.be32(104)) * 512);
    } else {
        details.label = head.text(24, 48);
        head.text(208, 48).iter().for_each(|subsystem| details.fact("subsystem", subsystem));
    }
    Ok(Some(details))
}

pub(super) fn lvm(device: &dyn Device) -> Result<Option<Details>> {
    const SECTOR: u64 = 512;
    for at in (0..4).map(|sector| sector * SECTOR) {
        let Some(label) = record(device, at, 512)?.filter(|label| label.bytes(0, 8) == b"LABELONE") else {
            continue;
        };
        let head = hectare_units::usize_of(label.le32(20));
        let mut details = Details { uuid: lvm_uuid(label.bytes(head, 32)), ..Details::default() };
        details.size = Some(Bytes::new(label.le64(head.saturating_add(32))));
        if let Some(group) = volume_group(device, &label, head)? {
            details.fact("volume group", group);
        }
        return Ok(Some(details));
    }
    Ok(None)
}

/// 32 letters and digits in groups.
fn lvm_uuid(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 32)?;
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let parts = [0..6, 6..10, 10..14, 14..18, 18..22, 22..26, 26..32];
    Some(parts.map(|part| &text[part]).join("-"))
}

/// The name of the volume group, with which the text in the first metadata area begins.
fn volume_group(device: &dyn Device, label: &Record, head: usize) -> Result<Option<String>> {
    const AREAS_MAX: usize = 16;
    // Lists of places, offset and length each: the data areas, a zero, the metadata areas, a zero.
    let areas = |from: usize| (0..AREAS_MAX).map(move |n| from + 16 * n);
    let Some(data_end) = areas(head.saturating_add(40).min(512)).find(|at| label.le64(*at) == 0) else {
        return Ok(None);
    };
    let area = label.le64(data_end + 16);
    if area == 0 {
        return Ok(None);
    }
    let Some(header) = record(device, area, 512)?.filter(|header| header.bytes(5, 4) == b"LVM2") else {
        return Ok(None);
    };
    let text_at = area.saturating_add(header.le64(40));
    let len = header.le64(48).min(256);
    if header.le64(40) == 0 || len == 0 {
        return Ok(None);
    }
    let Some(text) = record(device, text_at, hectare_units::index_of(len))? else { return Ok(None) };
    let first = text.text(0, text.len()).unwrap_or_default();
    let name = first.split([' ', '{']).next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
    Ok((!name.is_empty() && name.chars().all(is_name)).then(|| name.to_owned()))
}

const RAID_MAGIC: u32 = 0xa92b_4efc;

pub(super) fn raid(device: &dyn Device) -> Result<Option<Details>> {
    let len = device.len().get();
    let end = len.checked_sub(8192).map(|at| at & !4095);
    for at in [Some(4096), Some(0), end].into_iter().flatten() {
        let sb = record(device, at, 256)?;
        if let Some(sb) = sb.filter(|sb| sb.le32(0) == RAID_MAGIC && sb.le32(4) == 1) {
            let mut details = Details { label: sb.text(32, 32), uuid: sb.uuid(16), ..Details::default() };
            details.size = size(sb.le64(80), 512);
            raid_facts(&mut details, sb.le32(72), sb.le32(92));
            details.fact("data begins at", sb.le64(128).saturating_mul(512));
            return Ok(Some(details));
        }
    }
    let old = (len & !0xffff).checked_sub(1 << 16);
    let Some(at) = old else { return Ok(None) };
    let sb = record(device, at, 256)?.filter(|sb| sb.le32(0) == RAID_MAGIC && sb.le32(4) == 0);
    Ok(sb.map(|sb| {
        let mut details = Details { size: size(sb.le32(32).into(), 1024), ..Details::default() };
        raid_facts(&mut details, sb.le32(28), sb.le32(40));
        details
    }))
}

/// Levels below zero are not those of arrays that mdadm makes of several devices.
fn raid_facts(details: &mut Details, level: u32, devices: u32) {
    match level {
        0..=10 => details.fact("level", format_args!("raid{level}")),
        u32::MAX => details.fact("level", "linear"),
        _ => details.fact("level", "another"),
    }
    details.fact("devices", devices);
}
