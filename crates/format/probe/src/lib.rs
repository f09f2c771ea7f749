//! Identifies the content of a device or file by magic numbers.
//!
//! [`probe`] is called before a format, which is refused where something is found, and to identify the kind
//! of a source. [`instead`] is called when no ext volume could be opened: it describes in one line what is
//! there instead, what to do about it, and what the partitions of a whole disk hold.
//!
//! They look at fixed places near both ends and nowhere else, and don't validate, because a damaged file
//! system is worth a question too. [`find_superblock`] and [`backup_desc`] find the copies that a damaged
//! volume can be read with.
//!
//! Hazards: the bytes are untrusted. Labels are shown without control characters, and lists of partitions
//! have a bound.

mod backup;
mod magic;
pub mod record;
#[cfg(test)]
mod tools_tests;
mod what;

pub use backup::{FoundSuperblock, WhichSuperblock, backup_desc, find_superblock, in_usual_places};
pub use what::{Found, What};

use hectare_device::{Device, Result, SliceDevice};
use hectare_ext4::superblock::{SuperBlock, unfinished as unfinished_volume};
use hectare_partition::Partition;
use hectare_units::{Bytes, GroupNr, index_of};
use magic::{HEAD, TAIL, ext_superblock, in_head, in_tail, unfinished};

/// The most partitions that [`instead`] lists.
const LISTED_MAX: usize = 16;

/// Bytes of the shortest file that could hold the superblock of an ext volume.
const SUPERBLOCK_END: usize = 2048;
const EMPTY: &str = "there is no ext2, ext3 or ext4 volume: it begins with nothing but zeros; make one with \
                     hectare mkfs (one that was there may be read with --superblock auto)";

/// The kind of content by its first bytes alone. 2 KiB are enough to know an ext volume, which comes before all
/// else: its first KiB may hold anything.
#[must_use]
pub fn by_head(head: &[u8]) -> Option<What> {
    in_head(head).map(|found| found.what)
}

/// Looks for a file system, volume manager, partition table, disk image, archive or packed file.
///
/// # Errors
/// If the device can't be read.
pub fn probe(device: &dyn Device) -> Result<Option<Found>> {
    let head = read(device, 0, HEAD)?;
    let tail_at = device.len().get().saturating_sub(TAIL);
    let tail = read(device, tail_at, TAIL)?;
    let other = in_head(&head).or_else(|| in_tail(&tail, tail_at, device.len().get()));
    // Content written beside the mark since is worth more than the mark.
    Ok(other.or_else(|| unfinished(&head)))
}

/// What a superblock is of: a volume of ext2, ext3 or ext4.
#[must_use]
pub fn kind_of(superblock: &SuperBlock) -> What {
    ext_superblock(&superblock.render(GroupNr::new(0))).map_or(What::Ext4, |(found, _)| found.what)
}

/// What is there instead of an ext volume, and what to do, in a form that fits after the device's name and a
/// colon; `None` if there is an ext volume, perhaps a damaged one, or nothing known.
///
/// # Errors
/// If the device can't be read.
pub fn instead(device: &dyn Device) -> Result<Option<String>> {
    let Some(Found { what, label }) = probe(device)? else {
        let head = read(device, 0, HEAD)?;
        let is_empty = head.len() >= SUPERBLOCK_END && head.iter().all(|byte| *byte == 0);
        return Ok(is_empty.then(|| EMPTY.to_owned()));
    };
    Ok(match what {
        What::Ext2 | What::Ext3 | What::Ext4 => None,
        What::Unfinished => Some(unfinished_volume().reason.into_owned()),
        What::Gpt | What::Mbr => Some(of_disk(device)),
        _ => {
            let found = Found { what, label };
            Some(format!("it is {found} and no ext2, ext3 or ext4 volume; {}", what.advice()))
        }
    })
}

/// The message for a whole disk.
fn of_disk(disk: &dyn Device) -> String {
    let partitions = match hectare_partition::partitions(disk) {
        Ok(partitions) => partitions,
        Err(error) => return format!("it is a whole disk and no volume; {error}"),
    };
    if partitions.is_empty() {
        return "it is a whole disk and no volume; its partition table is empty".to_owned();
    }
    let listed: Vec<String> =
        partitions.iter().take(LISTED_MAX).map(|partition| of_partition(disk, partition)).collect();
    let more = match partitions.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("it is a whole disk; name a partition with --partition: {}{more}", listed.join(", "))
}

/// A partition's number, size and content.
fn of_partition(disk: &dyn Device, partition: &Partition) -> String {
    let slice = SliceDevice::new(disk, partition.start, partition.len);
    let content = match slice.and_then(|slice| probe(&slice)) {
        Ok(Some(found)) => found.to_string(),
        Ok(None) => "nothing known".to_owned(),
        Err(_) => "beyond the end of the disk".to_owned(),
    };
    format!("{} ({}, {content})", partition.number, size(partition.len))
}

/// A size in a readable form: whole units, rounded down.
fn size(len: Bytes) -> String {
    const UNITS: [(u32, &str); 5] = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(shift, _)| len.get() >> shift >= 10);
    unit.map_or_else(|| format!("{len} bytes"), |(shift, name)| format!("{} {name}", len.get() >> shift))
}

fn read(device: &dyn Device, at: u64, len: u64) -> Result<Vec<u8>> {
    let len = len.min(device.len().get().saturating_sub(at));
    let mut bytes = vec![0; index_of(len)];
    device.read_at(Bytes::new(at), &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::magic::MAGICS;
    use hectare_device::MemoryDevice;
    use hectare_ext4::superblock::UNFINISHED;
    use hectare_units::u64_of;

    fn with(at: u64, magic: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(Bytes::mib(1));
        device.write_at(Bytes::new(at), magic).unwrap();
        device
    }

    #[test]
    fn nothing_is_found_on_nothing() {
        assert_eq!(probe(&MemoryDevice::new(Bytes::mib(1))).unwrap(), None);
        assert_eq!(probe(&MemoryDevice::new(Bytes::ZERO)).unwrap(), None);
        assert_eq!(probe(&MemoryDevice::new(Bytes::new(700))).unwrap(), None);
    }

    #[test]
    fn every_magic_is_found_where_it_lies() {
        for (what, at, magic, _) in MAGICS {
            let found = probe(&with(u64_of(*at), magic)).unwrap().map(|found| found.what);
            assert_eq!(found, Some(*what));
        }
        let end = 1 << 20;
        for (at, magic, what) in [
            (4096 - 10, b"SWAPSPACE2".as_slice(), What::Swap),
            (end - 512, b"EFI PART", What::Gpt),
            (end - 65536, &[0xfc, 0x4e, 0x2b, 0xa9], What::Raid),
            (end - 8192, &[0xfc, 0x4e, 0x2b, 0xa9], What::Raid),
            (end - 512, b"conectix", What::Vhd),
            (end - 512, b"koly", What::Dmg),
            (0, b"BZh91AY&SY", What::Bzip2),
            (end - 131_072 + 5 * 1024, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], What::Zfs),
            (0, UNFINISHED, What::Unfinished),
            (1024, UNFINISHED, What::Unfinished),
        ] {
            assert_eq!(probe(&with(at, magic)).unwrap().map(|found| found.what), Some(what), "{at}");
        }
    }

    #[test]
    fn regression_a_pool_on_a_device_that_is_no_multiple_of_its_labels_is_found() {
        let device = MemoryDevice::new(Bytes::kib(1024 + 200));
        device.write_at(Bytes::kib(1024 - 128), &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(probe(&device).unwrap().unwrap().what, What::Zfs);
    }

    #[test]
    fn a_partition_table_is_told_from_a_mere_boot_signature() {
        let device = with(510, &[0x55, 0xaa]);
        assert_eq!(probe(&device).unwrap(), None);
        device.write_at(Bytes::new(446 + 4), &[0x83]).unwrap();
        assert_eq!(probe(&device).unwrap().unwrap().what, What::Mbr);
    }

    /// A disk of 64 MiB with an MBR and these partitions: number of the entry, first MiB, MiB.
    fn disk(entries: &[(u64, u32, u32)]) -> MemoryDevice {
        let disk = MemoryDevice::new(Bytes::mib(64));
        for (entry, start, len) in entries {
            let at = 446 + 16 * (entry - 1);
            disk.write_at(Bytes::new(at + 4), &[0x83]).unwrap();
            disk.write_at(Bytes::new(at + 8), &(start * 2048).to_le_bytes()).unwrap();
            disk.write_at(Bytes::new(at + 12), &(len * 2048).to_le_bytes()).unwrap();
        }
        disk.write_at(Bytes::new(510), &[0x55, 0xaa]).unwrap();
        disk
    }

    #[test]
    fn regression_what_is_no_volume_is_named_with_what_to_do() {
        for (at, magic, words) in [
            (0, b"QFI\xfb".as_slice(), ["a qcow2 disk image", "qemu-img convert"]),
            (0, b"conectix", ["a VHD disk image", "qemu-img convert"]),
            (0, b"vhdxfile", ["a VHDX disk image", "qemu-img convert"]),
            (0, b"KDMV", ["a VMDK disk image", "qemu-img convert"]),
            (0, b"LUKS\xba\xbe", ["a LUKS encrypted volume", "cryptsetup open"]),
            (512, b"LABELONE", ["an LVM physical volume", "vgchange -ay"]),
            (0, b"XFSB", ["an XFS file system", "tools of its own kind"]),
            (0, b"\x1f\x8b\x08\0", ["gzip data", "gunzip"]),
            (0, b"\x3a\xff\x26\xed", ["an Android sparse image", "simg2img"]),
            (257, b"ustar", ["a tar archive", "hectare build --from"]),
        ] {
            let said = instead(&with(at, magic)).unwrap().unwrap();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let empty = instead(&MemoryDevice::new(Bytes::mib(1))).unwrap().unwrap();
        assert!(empty.contains("nothing but zeros"), "{empty}");
        assert_eq!(instead(&MemoryDevice::from_bytes(b"just some text")).unwrap(), None);
    }

    #[test]
    fn regression_the_partitions_of_a_disk_are_listed_with_what_they_hold() {
        let disk = disk(&[(1, 1, 16), (2, 20, 30), (4, 60, 100)]);
        disk.write_at(Bytes::mib(1) + Bytes::new(54), b"FAT16   ").unwrap();
        disk.write_at(Bytes::mib(20) + Bytes::new(1080), &[0x53, 0xef]).unwrap();
        let said = instead(&disk).unwrap().unwrap();
        assert_eq!(
            said,
            "it is a whole disk; name a partition with --partition: 1 (16 MiB, a FAT file system), \
             2 (30 MiB, an ext2 file system), 4 (100 MiB, beyond the end of the disk)"
        );
    }

    #[test]
    fn two_bytes_by_chance_in_a_packed_file_are_no_ext_volume() {
        let device = with(0, b"\xfd7zXZ\0");
        device.write_at(Bytes::new(1080), &[0x53, 0xef]).unwrap();
        device.write_at(Bytes::new(1024), &[0xa5; 56]).unwrap();
        assert_eq!(probe(&device).unwrap().unwrap().what, What::Xz);
        let damaged = with(1080, &[0x53, 0xef]);
        damaged.write_at(Bytes::new(1024), &[0xa5; 56]).unwrap();
        assert_eq!(probe(&damaged).unwrap().unwrap().what, What::Ext2, "nothing else is there");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(0_u8.., 0..3000),
            which in 0..MAGICS.len(),
        ) {
            let (_, at, magic, _) = MAGICS[which];
            let mut bytes = bytes;
            if let Some(place) = bytes.get_mut(at..at + magic.len()) {
                place.copy_from_slice(magic);
            }
            let _ = instead(&MemoryDevice::from_bytes(&bytes)).unwrap();
        }
    }
}
