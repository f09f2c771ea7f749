//! The table of magic numbers and their offsets.
//!
//! Every offset is from the published description of the format named beside it. A number of two bytes is met
//! by chance too often, so those have further conditions.

use crate::what::{Found, What};
use hectare_ext4::superblock::UNFINISHED;

/// Bytes looked at from the start; btrfs and ReiserFS keep their superblocks at 64 KiB.
pub(crate) const HEAD: u64 = (64 << 10) + 4096;
/// Bytes looked at from the end: the last of ZFS's labels is 256 KiB long, ends at a multiple of that, and
/// has its uberblocks in its second half.
pub(crate) const TAIL: u64 = 384 << 10;

/// A kind, the offset of its magic number, the number, and offset and length of its label.
type Magic = (What, usize, &'static [u8], Option<(usize, usize)>);

/// Magic numbers, the most specific first: an ISO image is often a disk as well, and a compressed or packed
/// file may have anything behind its first bytes.
pub(crate) const MAGICS: &[Magic] = &[
    (What::Qcow, 0, b"QFI\xfb", None),
    (What::Qed, 0, b"QED\0", None),
    (What::Vhd, 0, b"conectix", None),
    (What::Vhdx, 0, b"vhdxfile", None),
    (What::Vmdk, 0, b"KDMV", None),
    (What::Vmdk, 0, b"COWD", None),
    (What::Vmdk, 0, b"# Disk DescriptorFile", None),
    (What::Vdi, 0x40, b"\x7f\x10\xda\xbe", None),
    (What::Parallels, 0, b"WithoutFreeSpace", None),
    (What::Parallels, 0, b"WithouFreSpacExt", None),
    (What::AndroidSparse, 0, b"\x3a\xff\x26\xed", None),
    (What::AndroidBoot, 0, b"ANDROID!", None),
    (What::Partclone, 0, b"partclone-image", None),
    (What::Xz, 0, b"\xfd7zXZ\0", None),
    (What::Zstd, 0, b"\x28\xb5\x2f\xfd", None),
    (What::Lz4, 0, b"\x04\x22\x4d\x18", None),
    (What::Lzop, 0, b"\x89LZO\0\r\n\x1a\n", None),
    (What::Zip, 0, b"PK\x03\x04", None),
    (What::Zip, 0, b"PK\x05\x06", None),
    (What::SevenZip, 0, b"7z\xbc\xaf\x27\x1c", None),
    (What::Cpio, 0, b"070701", None),
    (What::Cpio, 0, b"070702", None),
    (What::Cpio, 0, b"070707", None),
    (What::Ar, 0, b"!<arch>\n", None),
    (What::Rpm, 0, b"\xed\xab\xee\xdb", None),
    (What::Wim, 0, b"MSWIM\0\0\0", None),
    (What::Elf, 0, b"\x7fELF", None),
    (What::Tar, 257, b"ustar", None),
    (What::Xfs, 0, b"XFSB", Some((108, 12))),
    (What::Btrfs, 0x1_0040, b"_BHRfS_M", Some((0x1_012b, 256))),
    (What::Luks, 0, b"LUKS\xba\xbe", None),
    (What::Squashfs, 0, b"hsqs", None),
    (What::Squashfs, 0, b"sqsh", None),
    (What::Cramfs, 0, b"\x45\x3d\xcd\x28", None),
    (What::Romfs, 0, b"-rom1fs-", Some((16, 16))),
    (What::Ubi, 0, b"UBI#", None),
    (What::Erofs, 1024, &[0xe2, 0xe1, 0xf5, 0xe0], Some((1024 + 64, 16))),
    (What::F2fs, 1024, &[0x10, 0x20, 0xf5, 0xf2], None),
    // Two bytes and the version they go with.
    (What::HfsPlus, 1024, b"H+\0\x04", None),
    (What::HfsPlus, 1024, b"HX\0\x05", None),
    // The revision, and the magic two bytes behind it.
    (What::Nilfs2, 1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34], None),
    (What::Apfs, 32, b"NXSB", None),
    (What::Jfs, 0x8000, b"JFS1", Some((0x8000 + 152, 16))),
    (What::Reiserfs, 0x1_0034, b"ReIsErFs", Some((0x1_0064, 16))),
    (What::Reiserfs, 0x1_0034, b"ReIsEr2Fs", Some((0x1_0064, 16))),
    (What::Reiserfs, 0x1_0034, b"ReIsEr3Fs", Some((0x1_0064, 16))),
    (
        What::Bcachefs,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
        None,
    ),
    (
        What::Bcache,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
        None,
    ),
    (What::Iso9660, 0x8001, b"CD001", Some((0x8028, 32))),
    (What::Udf, 0x8001, b"BEA01", None),
    (What::Lvm, 512, b"LABELONE", None),
    (What::Lvm, 0, b"LABELONE", None),
    (What::Lvm, 1024, b"LABELONE", None),
    (What::Lvm, 1536, b"LABELONE", None),
    (What::Raid, 4096, &[0xfc, 0x4e, 0x2b, 0xa9], None),
    (What::Raid, 0, &[0xfc, 0x4e, 0x2b, 0xa9], None),
    (What::BitLocker, 3, b"-FVE-FS-", None),
    (What::Ntfs, 3, b"NTFS    ", None),
    (What::ExFat, 3, b"EXFAT   ", None),
    (What::Refs, 3, b"ReFS\0\0\0\0", None),
    (What::Fat, 54, b"FAT1", Some((43, 11))),
    (What::Fat, 54, b"FAT  ", Some((43, 11))),
    (What::Fat, 82, b"FAT32   ", Some((71, 11))),
    (What::Gpt, 512, b"EFI PART", None),
    (What::Gpt, 4096, b"EFI PART", None),
];

fn found(what: What) -> Found {
    Found { what, label: None }
}

/// The mark of a format that was interrupted, in the place of a superblock.
pub(crate) fn unfinished(head: &[u8]) -> Option<Found> {
    let is_marked =
        [0, 1024].iter().any(|at| head.get(*at..).is_some_and(|rest| rest.starts_with(UNFINISHED)));
    is_marked.then(|| found(What::Unfinished))
}

/// The content by the first bytes.
pub(crate) fn in_head(head: &[u8]) -> Option<Found> {
    let ext = ext(head);
    if let Some((found, true)) = ext {
        return Some(found);
    }
    let known = MAGICS.iter().find(|(_, at, magic, _)| head.get(*at..*at + magic.len()) == Some(*magic));
    let known = known.map(|(what, _, _, label)| Found {
        what: *what,
        label: label.and_then(|(at, len)| label_of(head.get(at..at + len)?)),
    });
    let other = swap(head).or(known).or_else(|| compressed(head)).or_else(|| mbr(head));
    other.or_else(|| ext.map(|(found, _)| found))
}

/// ext2, 3 and 4 by the features of the superblock at byte 1024, and whether more than its magic number of
/// two bytes supports that: valid block sizes and a valid revision, and counts that are not zero.
fn ext(head: &[u8]) -> Option<(Found, bool)> {
    ext_superblock(head.get(1024..2048)?)
}

/// What a superblock is of, and whether more than its magic number supports that. `sb` has 1024 bytes.
pub(crate) fn ext_superblock(sb: &[u8]) -> Option<(Found, bool)> {
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
    let plausible = word(0x18) <= 6 && word(0x4c) <= 1 && word(0x4) != 0;
    Some((Found { what, label: label_of(&sb[0x78..0x88]) }, plausible))
}

/// Swap space ends its first page with its magic; pages have 4 to 64 KiB.
fn swap(head: &[u8]) -> Option<Found> {
    let is_swap = [4096, 8192, 16384, 32768, 65536]
        .into_iter()
        .filter_map(|page| head.get(page - 10..page))
        .any(|magic| magic == b"SWAPSPACE2" || magic == b"SWAP-SPACE");
    is_swap.then(|| Found { what: What::Swap, label: head.get(1052..1068).and_then(label_of) })
}

/// gzip (RFC 1952: deflate, and no reserved flag), bzip2 (its level and the first block's number, or that of
/// an end) and LZMA (its usual properties, and a length that is not known).
fn compressed(head: &[u8]) -> Option<Found> {
    let is_gzip = head.starts_with(b"\x1f\x8b\x08") && head.get(3).is_some_and(|flags| flags & 0xe0 == 0);
    let is_bzip2 = head.starts_with(b"BZh")
        && head.get(3).is_some_and(|level| matches!(level, b'1'..=b'9'))
        && matches!(head.get(4..10), Some(b"1AY&SY" | b"\x17\x72\x45\x38\x50\x90"));
    let is_lzma = head.starts_with(b"\x5d\0\0") && head.get(5..13) == Some(&[0xff; 8][..]);
    let tried = [(is_gzip, What::Gzip), (is_bzip2, What::Bzip2), (is_lzma, What::Lzma)];
    tried.into_iter().find_map(|(is, what)| is.then(|| found(what)))
}

/// A boot sector's signature with a plausible table: every entry's status is 0x00 or 0x80, and one is in use.
fn mbr(head: &[u8]) -> Option<Found> {
    let sector = head.get(..512)?;
    let mut entries = sector[446..510].chunks_exact(16);
    let plausible = entries.clone().all(|entry| entry[0] & 0x7f == 0) && entries.any(|entry| entry[4] != 0);
    (sector[510..] == [0x55, 0xaa] && plausible).then(|| found(What::Mbr))
}

/// A GPT's backup header, RAID superblocks, ZFS labels and the footers of disk images at the end; `tail` are
/// the bytes from `tail_at` on of a device that has `len`.
pub(crate) fn in_tail(tail: &[u8], tail_at: u64, len: u64) -> Option<Found> {
    let at = |offset: u64, magic: &[u8]| {
        let start = offset.checked_sub(tail_at).and_then(|start| usize::try_from(start).ok());
        start.and_then(|start| tail.get(start..start.checked_add(magic.len())?)) == Some(magic)
    };
    for sector in [512, 4096] {
        if len.checked_sub(sector).is_some_and(|offset| at(offset, b"EFI PART")) {
            return Some(found(What::Gpt));
        }
    }
    for (magic, what) in [(b"conectix".as_slice(), What::Vhd), (b"koly", What::Dmg)] {
        if len.checked_sub(512).is_some_and(|offset| at(offset, magic)) {
            return Some(found(what));
        }
    }
    let raid = [0xfc, 0x4e, 0x2b, 0xa9];
    let old = (len & !0xffff).checked_sub(1 << 16);
    let new = len.checked_sub(8192).map(|offset| offset & !4095);
    if [old, new].into_iter().flatten().any(|offset| at(offset, &raid)) {
        return Some(found(What::Raid));
    }
    // ZFS: uberblocks of 1 KiB or more in the second half of each 256 KiB label, the last label at the end.
    let uberblock = 0x00ba_b10c_u64.to_le_bytes();
    let end = len & !0x3_ffff;
    let first = end.checked_sub(1 << 17)?;
    let is_zfs = (0..128).map(|slot| first + slot * 1024).any(|offset| at(offset, &uberblock));
    is_zfs.then(|| found(What::Zfs))
}

/// A label as text, without padding; `None` if there is nothing left.
fn label_of(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text: String = String::from_utf8_lossy(&bytes[..end]).chars().filter(|c| !c.is_control()).collect();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
