//! The older table: four entries in the first sector.
//!
//! Facts: UEFI 2.10, chapter 5.2.1. Places are sectors; the older way to say them (cylinder, head, sector) is
//! filled in for a disk of 255 heads and 63 sectors, and says the largest value where that ends.

use super::{Entry, Head};
use crate::error::{Error, Result};
use crate::spec::PartitionType;
use hectare_device::Device;
use hectare_units::{Bytes, low8};

const CODE_LEN: usize = 440;
const HEADS: u64 = 255;
const SECTORS: u64 = 63;

/// A sector as cylinder, head and sector.
pub(super) fn chs(sector: u64) -> [u8; 3] {
    let (track, within) = (sector / SECTORS, sector % SECTORS + 1);
    let (cylinder, head) = (track / HEADS, track % HEADS);
    if cylinder > 1023 {
        return [0xfe, 0xff, 0xff];
    }
    let [low, high, ..] = cylinder.to_le_bytes();
    [low8(head), low8(within) | high << 6, low]
}

pub(super) fn write(device: &dyn Device, head: &Head<'_>, entries: &[Entry<'_>]) -> Result<()> {
    let sector = u64::from(head.sector);
    let mut bytes = [0; 512];
    let code = &head.boot_code[..head.boot_code.len().min(CODE_LEN)];
    bytes[..code.len()].copy_from_slice(code);
    bytes[CODE_LEN..CODE_LEN + 4].copy_from_slice(&head.disk_id.to_le_bytes());
    for (slot, entry) in bytes[446..510].chunks_exact_mut(16).zip(entries) {
        let (first, count) = (entry.start / sector, entry.len / sector);
        let PartitionType::Mbr(kind) = entry.kind else { continue };
        let (Ok(start), Ok(len)) = (u32::try_from(first), u32::try_from(count)) else {
            let reason =
                format!("partition '{}' reaches beyond 2^32 sectors; table = \"gpt\" can", entry.name);
            return Err(Error::part("the partition table", reason));
        };
        slot[0] = if entry.active { 0x80 } else { 0 };
        slot[1..4].copy_from_slice(&chs(first));
        slot[4] = kind;
        slot[5..8].copy_from_slice(&chs((first + count).saturating_sub(1)));
        slot[8..12].copy_from_slice(&start.to_le_bytes());
        slot[12..].copy_from_slice(&len.to_le_bytes());
    }
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    device.write_at(Bytes::ZERO, &bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_become_heads_and_cylinders() {
        assert_eq!(chs(0), [0, 1, 0]);
        assert_eq!(chs(2048), [32, 33, 0]);
        assert_eq!(chs(63 * 255 * 1023), [0, 1 | 0xc0, 0xff]);
        assert_eq!(chs(63 * 255 * 1024), [0xfe, 0xff, 0xff]);
    }
}
