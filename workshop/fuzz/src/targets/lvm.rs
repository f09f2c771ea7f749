//! Fuzz target: a physical volume of LVM2 with any text as the metadata of its group, or with changes to its label
//! and to the header of its metadata area.

use crate::input::Input;
use hectare_lvm::{checksum, digest};
use hectare_units::index_of;

/// Where the header of the metadata area is, its length, and where its text begins.
const AREA_AT: usize = 4096;
const AREA_LEN: usize = 60 << 10;
const TEXT_AT: usize = 512;
/// The length of the device.
const LEN: usize = 1 << 20;
/// A group whose logical volume fits the device.
const TEXT: &[u8] = b"g { id = \"a\" seqno = 1 status = [\"READ\", \"WRITE\"] extent_size = 128 \
    physical_volumes { p { id = \"00000000000000000000000000000000\" pe_start = 128 pe_count = 14 } } \
    logical_volumes { v { status = [\"VISIBLE\"] segment_count = 1 segment1 { start_extent = 0 \
    extent_count = 4 type = \"striped\" stripe_count = 2 stripe_size = 8 \
    stripes = [\"p\", 1, \"p\", 5] } } } }";

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    if flags & 1 == 0 {
        digest(&sealed(volume(input.rest())));
        return;
    }
    let mut volume = volume(TEXT);
    while !input.is_empty() {
        let (place, value) = (usize::from(input.word()), input.byte());
        let place = if place < 1 << 15 { 512 + place % 512 } else { AREA_AT + place % 1024 };
        volume[place] = value;
    }
    digest(&if flags & 2 == 0 { sealed(volume) } else { volume });
}

/// A device with this text, whose checksums are zeros.
fn volume(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let text = &text[..text.len().min(AREA_LEN - TEXT_AT)];
    put(512, b"LABELONE");
    put(512 + 8, &1_u64.to_le_bytes());
    put(512 + 20, &32_u32.to_le_bytes());
    put(512 + 24, b"LVM2 001");
    put(512 + 32, &[b'0'; 32]);
    // A data area, and the metadata area.
    for (n, word) in [LEN, 1 << 16, 0, 0, 0, AREA_AT, AREA_LEN].into_iter().enumerate() {
        put(512 + 64 + 8 * n, &(word as u64).to_le_bytes());
    }
    put(AREA_AT + 4, b" LVM2 x[5A%r0N*>");
    put(AREA_AT + 20, &1_u32.to_le_bytes());
    for (n, word) in [AREA_AT, AREA_LEN, TEXT_AT, text.len()].into_iter().enumerate() {
        put(AREA_AT + 24 + 8 * n, &(word as u64).to_le_bytes());
    }
    put(AREA_AT + TEXT_AT, text);
    bytes
}

/// With all checksums right.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let long = |bytes: &[u8], at: usize| index_of(u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n])));
    let (at, len) = (long(&bytes, AREA_AT + 40), long(&bytes, AREA_AT + 48));
    // As the area's ring has it.
    if (TEXT_AT..AREA_LEN).contains(&at) && len <= AREA_LEN - TEXT_AT {
        let first = len.min(AREA_LEN - at);
        let start = AREA_AT + at;
        let rest = AREA_AT + TEXT_AT;
        let text = [&bytes[start..start + first], &bytes[rest..rest + len - first]].concat();
        bytes[AREA_AT + 56..AREA_AT + 60].copy_from_slice(&checksum(&text).to_le_bytes());
    }
    let sum = checksum(&bytes[AREA_AT + 4..AREA_AT + 512]);
    bytes[AREA_AT..AREA_AT + 4].copy_from_slice(&sum.to_le_bytes());
    let sum = checksum(&bytes[512 + 20..1024]);
    bytes[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
    bytes
}
