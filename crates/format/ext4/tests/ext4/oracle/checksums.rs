//! One wrong bit in each structure that has a checksum, and the error that reports it.

use crate::oracle::volume::Volume;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::inode::Inode;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{Bytes, GroupNr, InodeNr};
use std::fmt::{Debug, Display};
use std::path::Path;

pub(crate) fn check(image: &Path, name: &str) {
    let volume = Volume::open(image);
    let has_crc32c = volume.sb.features().metadata_csum();
    check_superblock(&volume, has_crc32c);
    check_descriptors(&volume);
    if has_crc32c {
        check_bitmaps(&volume);
        check_inodes(&volume);
    }
    assert!(volume.sb.features().group_checksums(), "{name}");
}

/// The error names the structure, its place and its checksum.
fn assert_refused<T: Debug>(result: Result<T, impl Display>, words: &[&str]) {
    let said = result.expect_err("a wrong checksum").to_string();
    assert!(!said.contains('\n') && said.contains("checksum"), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}: expected {words:?}");
}

fn check_superblock(volume: &Volume, has_crc32c: bool) {
    let good = volume.read(1024, 1024);
    for at in [0x78, 0x1f0, 0x284, 0x3fb, 0x3fc, 0x3ff] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let parsed = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)).map(|_| ());
        if has_crc32c {
            assert_refused(parsed, &["the superblock"]);
        } else {
            assert_eq!(parsed, Ok(()));
        }
    }
}

fn check_descriptors(volume: &Volume) {
    for group in volume.groups() {
        let good = volume.desc_slot(group);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            let words = ["the group descriptor", &format!("of group {group}")];
            assert_refused(GroupDesc::parse(&bytes, group, &volume.sb), &words);
        }
        // The number of the group is part of the sum: a descriptor in another's place is refused.
        let other = GroupNr::new(group.get() + 1);
        assert_refused(GroupDesc::parse(&good, other, &volume.sb), &[&format!("of group {other}")]);
        let cut = GroupDesc::parse(&good[..good.len() - 1], group, &volume.sb).unwrap_err();
        assert!(cut.to_string().contains("truncated"), "{cut}");
    }
}

fn check_bitmaps(volume: &Volume) {
    let sb = &volume.sb;
    for group in volume.groups() {
        let (desc, place) = (volume.desc(group), format!("of group {group}"));
        let (blocks, inodes) = (volume.block(desc.block_bitmap), volume.block(desc.inode_bitmap));
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let covered = sb.geometry().block_bitmap_bytes();
            for at in [0, covered / 2, covered - 1] {
                let mut bytes = blocks.clone();
                bytes[at] ^= 0x80;
                assert_refused(desc.verify_block_bitmap(&bytes, group, sb), &["the block bitmap", &place]);
            }
            assert!(desc.verify_block_bitmap(&blocks[..covered - 1], group, sb).is_err());
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let covered = sb.geometry().inode_bitmap_bytes();
            for at in [0, covered / 2, covered - 1] {
                let mut bytes = inodes.clone();
                bytes[at] ^= 1;
                assert_refused(desc.verify_inode_bitmap(&bytes, group, sb), &["the inode bitmap", &place]);
            }
            assert!(desc.verify_inode_bitmap(&[], group, sb).is_err());
        }
    }
}

fn check_inodes(volume: &Volume) {
    let sb = &volume.sb;
    let used = volume.used_inodes();
    let sample = used.iter().copied().filter(|nr| volume.inode_slot(*nr).iter().any(|byte| *byte != 0));
    for nr in sample.step_by(17) {
        let good = volume.inode_slot(nr);
        let place = format!("of inode {nr}");
        // The extra size decides how far the known fields reach; a wrong one may be refused for itself.
        for at in (0..good.len()).filter(|at| !(0x80..0x82).contains(at)) {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            assert_refused(Inode::parse(&bytes, nr, sb), &["the inode", &place]);
        }
        let other = InodeNr::new(nr.get() + 1);
        assert_refused(Inode::parse(&good, other, sb), &["the inode", &format!("of inode {other}")]);
    }
}
