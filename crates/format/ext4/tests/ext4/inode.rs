//! Inodes of every size: new ones, ones with a partial extra part, and every field at its limits.

use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::inode::{BASE_SIZE, Inode, InodeFlags};
use hectare_ext4::raw;
use hectare_ext4::superblock::{MAGIC, SuperBlock};
use hectare_ext4::time::{SECONDS_MAX, SECONDS_MIN, Timestamp};
use hectare_units::{BlockNr, InodeNr, low16, low32};
use zerocopy::{FromZeros, IntoBytes};

const NR: InodeNr = InodeNr::new(12);
const LATER: Timestamp = Timestamp { seconds: 1 << 33, nanoseconds: 123_456_789 };

/// A volume of one group, with these parts of its superblock changed.
fn volume(change: impl FnOnce(&mut raw::SuperBlock)) -> SuperBlock {
    let mut raw = raw::SuperBlock::new_zeroed();
    raw.s_magic = MAGIC.into();
    raw.s_rev_level = 1.into();
    raw.s_log_block_size = 2.into();
    raw.s_log_cluster_size = 2.into();
    raw.s_blocks_per_group = 32768.into();
    raw.s_clusters_per_group = 32768.into();
    raw.s_blocks_count_lo = 32768.into();
    raw.s_inodes_per_group = 8192.into();
    raw.s_inodes_count = 8192.into();
    raw.s_inode_size = 256.into();
    raw.s_first_ino = 11.into();
    raw.s_checksum_type = 1;
    raw.s_want_extra_isize = 32.into();
    raw.s_feature_incompat = (Incompat::EXTENTS | Incompat::FILETYPE).bits().into();
    let features = RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE | RoCompat::EXTRA_ISIZE;
    raw.s_feature_ro_compat = features.bits().into();
    change(&mut raw);
    SuperBlock::from_raw(raw).unwrap()
}

fn slot_of(inode: &Inode, sb: &SuperBlock) -> Vec<u8> {
    let mut slot = vec![0xee; sb.geometry().inode_size.try_into().unwrap()];
    inode.render(&mut slot, NR, sb);
    slot
}

/// Renders an inode and reads it back.
fn round(inode: &Inode, sb: &SuperBlock) -> Inode {
    Inode::parse(&slot_of(inode, sb), NR, sb).unwrap()
}

#[test]
fn new_inodes_have_room_for_what_is_known() {
    for log_block in 0..=6u32 {
        for log_size in 7..=10 + log_block {
            for want in [0u16, 1, 4, 28, 31, 32, 33, 60, 128, 4000, u16::MAX] {
                let size = 1u16.checked_shl(log_size).filter(|size| *size > 0);
                let Some(size) = size else { continue }; // 64 KiB does not fit the field
                let sb = volume(|raw| {
                    raw.s_log_block_size = log_block.into();
                    raw.s_log_cluster_size = log_block.into();
                    raw.s_blocks_per_group = 8192.into();
                    raw.s_clusters_per_group = 8192.into();
                    raw.s_first_data_block = u32::from(log_block == 0).into();
                    raw.s_blocks_count_lo = 8192.into();
                    raw.s_inode_size = size.into();
                    raw.s_want_extra_isize = want.into();
                });
                check_new(&sb, usize::from(size), want);
            }
        }
    }
}

fn check_new(sb: &SuperBlock, size: usize, want: u16) {
    let inode = Inode::new(0o100_644, LATER, 7, sb);
    let extra = usize::from(inode.extra_isize);
    let asked = usize::from(want).next_multiple_of(4);
    let expected = match size - BASE_SIZE {
        0 => 0,
        room if (32..=room).contains(&asked) => asked,
        _ => 32,
    };
    assert_eq!(extra, expected, "inodes of {size} bytes, {want} wanted");
    assert_eq!(inode.has_crtime(), size > 128);
    assert_eq!(inode.xattr_area().len(), size - BASE_SIZE - extra);
    let back = round(&inode, sb);
    if size > 128 {
        assert_eq!(back, inode);
    } else {
        assert_eq!((back.mtime, back.crtime), (Timestamp::from_seconds(0x7fff_ffff), Timestamp::default()));
    }
}

#[test]
fn the_attribute_area_is_what_the_extra_fields_leave() {
    let sb = volume(|_| ());
    for extra in (0..=128u16).step_by(4) {
        let mut slot = slot_of(&Inode::new(0o100_644, LATER, 7, &sb), &volume_of_zero_checksum());
        slot[128..130].copy_from_slice(&extra.to_le_bytes());
        let plain = volume_of_zero_checksum();
        let mut inode = Inode::parse(&slot, NR, &plain).unwrap();
        let len = if extra == 0 { 0 } else { 128 - usize::from(extra) };
        assert_eq!(inode.xattr_area().len(), len, "{extra}");
        inode.xattr_area_mut().fill(0x5a);
        let written = slot_of(&inode, &plain);
        assert!(written[256 - len..].iter().all(|byte| *byte == 0x5a), "{extra}");
        assert_eq!(written[128..256 - len], slot[128..256 - len], "{extra}: the fields before it are kept");
    }
}

fn volume_of_zero_checksum() -> SuperBlock {
    volume(|raw| raw.s_feature_ro_compat = RoCompat::EXTRA_ISIZE.bits().into())
}

/// Each time has its extra word only where the extra part reaches over it; base word and extra word must
/// agree.
#[test]
fn partial_extra_parts_come_back_byte_for_byte() {
    let plain = volume_of_zero_checksum();
    for extra in (4..=64u16).step_by(4) {
        for (base, epoch) in [(0u32, 1u32), (0x8000_0000, 1), (0x7fff_ffff, 3), (0xffff_ffff, 0)] {
            let mut slot: Vec<u8> = (0..=255).collect();
            slot[..2].copy_from_slice(&0o100_600u16.to_le_bytes());
            slot[0x20..0x24].fill(0); // flags
            slot[0x68..0x78].fill(0); // attribute block, size, count
            slot[128..130].copy_from_slice(&extra.to_le_bytes());
            slot[0x7c..0x7e].fill(0); // checksum
            slot[0x82..0x84].fill(0);
            for at in [0x08, 0x0c, 0x10, 0x90] {
                slot[at..at + 4].copy_from_slice(&base.to_le_bytes());
            }
            for at in [0x84, 0x88, 0x8c, 0x94] {
                slot[at..at + 4].copy_from_slice(&(epoch | 999_999_999 << 2).to_le_bytes());
            }
            let inode = Inode::parse(&slot, NR, &plain).unwrap();
            assert!(slot_of(&inode, &plain) == slot, "extra size {extra}, {base:#x}, epoch {epoch}");
            assert_eq!(inode.ctime.nanoseconds > 0, extra >= 8);
            assert_eq!(inode.mtime.nanoseconds > 0, extra >= 12);
            assert_eq!(inode.atime.nanoseconds > 0, extra >= 16);
        }
    }
}

#[test]
fn every_field_survives_at_its_limits() {
    let sb = volume(|raw| {
        raw.s_blocks_count_lo = (3 * 32768).into();
        raw.s_inodes_count = (3 * 8192).into();
    });
    for seconds in [SECONDS_MIN, -1, 0, 1 << 31, 1 << 32, SECONDS_MAX] {
        let mut inode = Inode::new(0o104_755, Timestamp { seconds, nanoseconds: 999_999_999 }, u32::MAX, &sb);
        inode.uid = 65_536;
        inode.gid = u32::MAX - 1;
        inode.size = (1 << 44) - 1;
        inode.links = u16::MAX;
        inode.version = u64::MAX - 5;
        inode.projid = 70_000;
        inode.dtime = 3;
        inode.file_acl = Some(BlockNr::new(3 * 32768 - 1));
        inode.sectors = (1 << 33) + 8;
        inode.flags = InodeFlags::EXTENTS | InodeFlags::NOATIME;
        inode.block = std::array::from_fn(|i| low16(hectare_units::u64_of(i)).to_le_bytes()[0]);
        inode.xattr_area_mut().fill(9);
        assert_eq!(round(&inode, &sb), inode);
    }
}

#[test]
fn sectors_are_kept_in_either_unit() {
    const MAX: u64 = 1 << 48;
    for log_block in [0u32, 2, 6] {
        let sb = volume(|raw| {
            raw.s_log_block_size = log_block.into();
            raw.s_log_cluster_size = log_block.into();
            raw.s_first_data_block = u32::from(log_block == 0).into();
            raw.s_blocks_per_group = 8192.into();
            raw.s_clusters_per_group = 8192.into();
            raw.s_blocks_count_lo = 8192.into();
        });
        let shift = log_block + 1;
        for sectors in [0, 1, 128, u64::from(u32::MAX) + 1, MAX - 128, MAX, MAX + 128, (MAX - 1) << shift] {
            for flagged in [false, true] {
                let mut inode = Inode::new(0o100_644, LATER, 7, &sb);
                inode.sectors = sectors;
                inode.flags.set(InodeFlags::HUGE_FILE, flagged);
                let back = round(&inode, &sb);
                assert_eq!(back.sectors, sectors, "blocks of {} bytes, flagged {flagged}", 1024 << log_block);
                let whole = sectors % (1 << shift) == 0;
                let expected = sectors >= MAX || (flagged && whole);
                assert_eq!(back.flags.contains(InodeFlags::HUGE_FILE), expected, "{sectors}");
            }
        }
    }
}

#[test]
fn without_huge_file_the_flag_means_nothing() {
    let plain = volume_of_zero_checksum();
    for flagged in [false, true] {
        let mut inode = Inode::new(0o100_644, LATER, 7, &plain);
        inode.flags.set(InodeFlags::HUGE_FILE, flagged);
        inode.sectors = u32::MAX.into();
        assert_eq!(round(&inode, &plain), inode);
        inode.sectors += 1; // more than the field holds: the nearest
        assert_eq!(round(&inode, &plain).sectors, u64::from(u32::MAX));
        let slot = slot_of(&inode, &plain);
        assert_eq!((&slot[0x1c..0x20], &slot[0x74..0x76]), (&low32(!0).to_le_bytes()[..], &[0, 0][..]));
    }
}

#[test]
fn sizes_beyond_32_bits_are_for_files_and_large_directories() {
    for large_dir in [false, true] {
        let sb = volume(|raw| {
            let features = Incompat::EXTENTS | if large_dir { Incompat::LARGEDIR } else { Incompat::empty() };
            raw.s_feature_incompat = features.bits().into();
        });
        for (mode, kept) in [(0o100_644, true), (0o040_755, large_dir), (0o120_777, false)] {
            let mut inode = Inode::new(mode, LATER, 7, &sb);
            inode.size = (1 << 32) + 5;
            assert_eq!(round(&inode, &sb).size, if kept { (1 << 32) + 5 } else { 5 }, "{mode:o}");
        }
    }
}

#[test]
fn what_no_inode_can_be_is_refused_by_name() {
    let plain = volume_of_zero_checksum();
    let refused = |change: fn(&mut [u8])| {
        let mut slot = slot_of(&Inode::new(0o100_644, LATER, 7, &plain), &plain);
        change(&mut slot);
        Inode::parse(&slot, NR, &plain).unwrap_err().to_string()
    };
    for (change, words) in [
        ((|slot| slot[1] = 0xf0) as fn(&mut [u8]), "of no known kind"),
        (|slot| slot[0x6f] = 0x80, "its size"),
        (|slot| slot[0x6b] = 0x80, "its attribute block"),
        (|slot| slot[0x80] = 30, "its extra size"),
        (|slot| slot[0x80] = 132, "its extra size"),
        (|slot| slot[0x81] = 0xff, "its extra size"),
    ] {
        let said = refused(change);
        assert!(said.starts_with("the inode of inode 12") && said.contains(words), "{said}");
    }
    assert!(Inode::parse(&[0; 127], NR, &plain).is_err());
    assert_eq!(plain.raw().as_bytes().len(), 1024);
}
