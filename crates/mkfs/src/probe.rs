//! What a device already holds, judged by magic numbers.
//!
//! Used to refuse a format without `--force`. It looks at fixed places near both ends and nowhere else; it
//! does not validate, because a damaged file system is worth a question too. Every offset is from the
//! published description of the format named beside it.

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_ext4::superblock::UNFINISHED;
use hectare_units::{Bytes, index_of};
use std::fmt;

/// A kind of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// An external ext journal.
    ExtJournal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// bcachefs.
    Bcachefs,
    /// ZFS.
    Zfs,
    /// Swap space.
    Swap,
    /// LUKS encryption.
    Luks,
    /// An LVM physical volume.
    Lvm,
    /// A Linux RAID member.
    Raid,
    /// ISO 9660.
    Iso9660,
    /// FAT.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS.
    Ntfs,
    /// squashfs.
    Squashfs,
    /// EROFS.
    Erofs,
    /// A GPT partition table.
    Gpt,
    /// An MBR partition table.
    Mbr,
    /// What a format left that was interrupted.
    Unfinished,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "an ext2 file system",
            Self::Ext3 => "an ext3 file system",
            Self::Ext4 => "an ext4 file system",
            Self::ExtJournal => "an external ext4 journal",
            Self::Xfs => "an XFS file system",
            Self::Btrfs => "a btrfs file system",
            Self::F2fs => "an F2FS file system",
            Self::Bcachefs => "a bcachefs file system",
            Self::Zfs => "a ZFS pool",
            Self::Swap => "swap space",
            Self::Luks => "a LUKS encrypted volume",
            Self::Lvm => "an LVM physical volume",
            Self::Raid => "a Linux RAID member",
            Self::Iso9660 => "an ISO 9660 file system",
            Self::Fat => "a FAT file system",
            Self::ExFat => "an exFAT file system",
            Self::Ntfs => "an NTFS file system",
            Self::Squashfs => "a squashfs file system",
            Self::Erofs => "an EROFS file system",
            Self::Gpt => "a GPT partition table",
            Self::Mbr => "an MBR partition table",
            Self::Unfinished => "an unfinished format",
        }
    }
}

/// What was found on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The kind.
    pub what: What,
    /// Its label, if it has one and it is worth printing.
    pub label: Option<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.name())?;
        match &self.label {
            Some(label) => write!(f, " (label {label})"),
            None => Ok(()),
        }
    }
}

/// Refuses a device that holds something; what an interrupted format left is nothing worth keeping.
///
/// # Errors
/// [`Error::Occupied`] with what it holds, or if the device can't be read.
pub fn refuse_occupied(device: &dyn Device) -> Result<()> {
    match probe(device)? {
        None | Some(Found { what: What::Unfinished, .. }) => Ok(()),
        Some(found) => Err(Error::Occupied { device: device.name().to_owned(), found }),
    }
}

/// Bytes looked at from the start; btrfs keeps its superblock at 64 KiB.
const HEAD: u64 = (64 << 10) + 4096;
/// Bytes looked at from the end: the last of ZFS's labels is 256 KiB long, ends at a multiple of that, and
/// has its uberblocks in its second half.
const TAIL: u64 = 384 << 10;

/// Looks for a file system, volume manager or partition table.
///
/// # Errors
/// If the device can't be read.
pub fn probe(device: &dyn Device) -> Result<Option<Found>> {
    let head = read(device, 0, HEAD)?;
    let tail_at = device.len().get().saturating_sub(TAIL);
    let tail = read(device, tail_at, TAIL)?;
    let other = in_head(&head).or_else(|| in_tail(&tail, tail_at, device.len().get()));
    // What was put beside the mark since is worth more than the mark.
    Ok(other.or_else(|| unfinished(&head)))
}

/// The mark of a format that was interrupted, in the place of a superblock.
fn unfinished(head: &[u8]) -> Option<Found> {
    let is_marked =
        [0, 1024].iter().any(|at| head.get(*at..).is_some_and(|rest| rest.starts_with(UNFINISHED)));
    is_marked.then_some(Found { what: What::Unfinished, label: None })
}

fn read(device: &dyn Device, at: u64, len: u64) -> Result<Vec<u8>> {
    let len = len.min(device.len().get().saturating_sub(at));
    let mut bytes = vec![0; index_of(len)];
    device.read_at(Bytes::new(at), &mut bytes)?;
    Ok(bytes)
}

/// A kind, the offset of its magic number, the number, and offset and length of its label.
type Magic = (What, usize, &'static [u8], Option<(usize, usize)>);

/// Magic numbers, those that say most first.
const MAGICS: &[Magic] = &[
    (What::Xfs, 0, b"XFSB", Some((108, 12))),
    (What::Btrfs, 0x1_0040, b"_BHRfS_M", Some((0x1_012b, 256))),
    (What::Luks, 0, b"LUKS\xba\xbe", None),
    (What::Squashfs, 0, b"hsqs", None),
    (What::Erofs, 1024, &[0xe2, 0xe1, 0xf5, 0xe0], Some((1024 + 64, 16))),
    (What::F2fs, 1024, &[0x10, 0x20, 0xf5, 0xf2], None),
    (
        What::Bcachefs,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
        None,
    ),
    (What::Iso9660, 0x8001, b"CD001", Some((0x8028, 32))),
    (What::Lvm, 512, b"LABELONE", None),
    (What::Lvm, 0, b"LABELONE", None),
    (What::Lvm, 1024, b"LABELONE", None),
    (What::Lvm, 1536, b"LABELONE", None),
    (What::Raid, 4096, &[0xfc, 0x4e, 0x2b, 0xa9], None),
    (What::Raid, 0, &[0xfc, 0x4e, 0x2b, 0xa9], None),
    (What::Ntfs, 3, b"NTFS    ", None),
    (What::ExFat, 3, b"EXFAT   ", None),
    (What::Fat, 54, b"FAT1", Some((43, 11))),
    (What::Fat, 82, b"FAT32   ", Some((71, 11))),
    (What::Gpt, 512, b"EFI PART", None),
    (What::Gpt, 4096, b"EFI PART", None),
];

fn in_head(head: &[u8]) -> Option<Found> {
    if let Some(found) = ext(head).or_else(|| swap(head)) {
        return Some(found);
    }
    let known = MAGICS.iter().find(|(_, at, magic, _)| head.get(*at..*at + magic.len()) == Some(*magic));
    if let Some((what, _, _, label)) = known {
        let label = label.and_then(|(at, len)| label_of(head.get(at..at + len)?));
        return Some(Found { what: *what, label });
    }
    mbr(head)
}

/// ext2, 3 and 4 by the features of the superblock at byte 1024.
fn ext(head: &[u8]) -> Option<Found> {
    let sb = head.get(1024..2048)?;
    let word = |at: usize| u32::from_le_bytes([sb[at], sb[at + 1], sb[at + 2], sb[at + 3]]);
    if sb[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let (compat, incompat, ro_compat) = (word(0x5c), word(0x60), word(0x64));
    let what = if incompat & 0x8 != 0 {
        What::ExtJournal
    } else if incompat & !0x16 != 0 || ro_compat & !0x7 != 0 {
        What::Ext4
    } else if compat & 0x4 != 0 {
        What::Ext3
    } else {
        What::Ext2
    };
    Some(Found { what, label: label_of(&sb[0x78..0x88]) })
}

/// Swap space ends its first page with its magic; pages have 4 to 64 KiB.
fn swap(head: &[u8]) -> Option<Found> {
    let is_swap = [4096, 8192, 16384, 32768, 65536]
        .into_iter()
        .filter_map(|page| head.get(page - 10..page))
        .any(|magic| magic == b"SWAPSPACE2" || magic == b"SWAP-SPACE");
    is_swap.then(|| Found { what: What::Swap, label: head.get(1052..1068).and_then(label_of) })
}

/// A boot sector's signature with a plausible table: every entry's status is 0x00 or 0x80, and one is in use.
fn mbr(head: &[u8]) -> Option<Found> {
    let sector = head.get(..512)?;
    let mut entries = sector[446..510].chunks_exact(16);
    let plausible = entries.clone().all(|entry| entry[0] & 0x7f == 0) && entries.any(|entry| entry[4] != 0);
    let found = sector[510..] == [0x55, 0xaa] && plausible;
    found.then_some(Found { what: What::Mbr, label: None })
}

/// A GPT's backup header, RAID superblocks and ZFS labels at the end.
fn in_tail(tail: &[u8], tail_at: u64, len: u64) -> Option<Found> {
    let at = |offset: u64, magic: &[u8]| {
        let start = offset.checked_sub(tail_at).and_then(|start| usize::try_from(start).ok());
        start.and_then(|start| tail.get(start..start.checked_add(magic.len())?)) == Some(magic)
    };
    let found = |what| Some(Found { what, label: None });
    for sector in [512, 4096] {
        if len.checked_sub(sector).is_some_and(|offset| at(offset, b"EFI PART")) {
            return found(What::Gpt);
        }
    }
    let raid = [0xfc, 0x4e, 0x2b, 0xa9];
    let old = (len & !0xffff).checked_sub(1 << 16);
    let new = len.checked_sub(8192).map(|offset| offset & !4095);
    if [old, new].into_iter().flatten().any(|offset| at(offset, &raid)) {
        return found(What::Raid);
    }
    // ZFS: uberblocks of 1 KiB or more in the second half of each 256 KiB label, the last label at the end.
    let uberblock = 0x00ba_b10c_u64.to_le_bytes();
    let end = len & !0x3_ffff;
    let first = end.checked_sub(1 << 17)?;
    (0..128).map(|slot| first + slot * 1024).any(|offset| at(offset, &uberblock)).then_some(())?;
    found(What::Zfs)
}

/// A label as text, without padding; `None` if there is nothing left.
fn label_of(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text: String = String::from_utf8_lossy(&bytes[..end]).chars().filter(|c| !c.is_control()).collect();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::MemoryDevice;
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
        assert!(refuse_occupied(&MemoryDevice::new(Bytes::kib(64))).is_ok());
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
    fn regression_what_was_put_beside_the_mark_of_an_unfinished_format_is_refused() {
        for (mark, at, magic) in [
            (1024, 446 + 4, [0x83].as_slice()),
            (0, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
            (0, (1 << 20) - 512, b"EFI PART"),
        ] {
            let device = with(mark, UNFINISHED);
            device.write_at(Bytes::new(at), magic).unwrap();
            device.write_at(Bytes::new(510), &[0x55, 0xaa]).unwrap();
            assert!(refuse_occupied(&device).is_err(), "at {at}");
        }
    }

    #[test]
    fn a_partition_table_is_told_from_a_mere_boot_signature() {
        let device = with(510, &[0x55, 0xaa]);
        assert_eq!(probe(&device).unwrap(), None);
        device.write_at(Bytes::new(446 + 4), &[0x83]).unwrap();
        assert_eq!(probe(&device).unwrap().unwrap().what, What::Mbr);
    }

    #[test]
    fn the_refusal_names_device_kind_and_label() {
        let device = with(0, b"XFSB");
        device.write_at(Bytes::new(108), b"data").unwrap();
        let error = refuse_occupied(&device).unwrap_err().to_string();
        assert!(error.contains("an XFS file system (label data)") && error.contains("--force"), "{error}");
    }
}
