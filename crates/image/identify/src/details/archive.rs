//! Packed files and archives: what their first bytes show without unpacking.
//!
//! Facts: RFC 1952 (gzip), RFC 8878 (Zstandard), POSIX (tar).

use super::Details;
use crate::record::record;
use hectare_device::{Device, Result};
use hectare_units::{Bytes, index_of};

const HEAD: u64 = 4096;

pub(super) fn gzip(device: &dyn Device) -> Result<Option<Details>> {
    const HAS_EXTRA: u8 = 0x4;
    const HAS_NAME: u8 = 0x8;
    let Some(head) = record(device, 0, index_of(HEAD.min(device.len().get())))? else { return Ok(None) };
    let flags = head.u8(3);
    let extra = if flags & HAS_EXTRA == 0 { 0 } else { 2 + usize::from(head.le16(10)) };
    let mut details = Details::default();
    if flags & HAS_NAME != 0 {
        let name_at = 10 + extra;
        let name = head.text(name_at, head.len().saturating_sub(name_at));
        name.iter().for_each(|name| details.fact("name", name));
    }
    // The trailer of the last member has the length modulo 2^32: too little to call it the size.
    Ok(Some(details))
}

pub(super) fn zstd(device: &dyn Device) -> Result<Option<Details>> {
    let Some(head) = record(device, 0, index_of(18.min(device.len().get())))? else { return Ok(None) };
    let descriptor = head.u8(4);
    let is_single = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let at = 5 + usize::from(!is_single) + dictionary;
    let size = match descriptor >> 6 {
        0 => is_single.then(|| u64::from(head.u8(at))),
        1 => Some(u64::from(head.le16(at)) + 256),
        2 => Some(u64::from(head.le32(at))),
        _ => Some(head.le64(at)),
    };
    let mut details = Details::default();
    size.iter().for_each(|size| details.fact("bytes of the first frame", size));
    Ok(Some(details))
}

pub(super) fn tar(device: &dyn Device) -> Result<Option<Details>> {
    let Some(head) = record(device, 0, 512)? else { return Ok(None) };
    let mut details = Details { size: Some(Bytes::new(device.len().get())), ..Details::default() };
    let kind = if head.bytes(257, 8) == b"ustar  \0" { "GNU" } else { "POSIX" };
    details.fact("kind", kind);
    head.text(0, 100).iter().for_each(|name| details.fact("first entry", name));
    Ok(Some(details))
}
