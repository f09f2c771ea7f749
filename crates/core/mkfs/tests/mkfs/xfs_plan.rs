//! Plans of XFS volumes walked without writing, up to the largest; and their execution on devices that are
//! not fresh, or that fail.

use crate::common::{assert_no_volume_before_all_is_there, assert_no_volume_where_a_device_fails, folder};
use crc_fast::{CrcAlgorithm, checksum};
use hectare_device::{Device, FileOptions, Overwrite, Topology};
use hectare_mkfs::xfs::{FormatOptions, Plan, execute, parse};
use hectare_mkfs::{Payload, What, Write, probe};
use hectare_units::{Bytes, GroupNr, u64_of, usize_of};
use hectare_xfs::{Volume, raw};
use std::mem::offset_of;
use zerocopy::FromBytes;

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn options(lists: &[(char, &str)]) -> FormatOptions {
    let mut options = FormatOptions { uuid: Some([7; 16]), ..FormatOptions::default() };
    parse(&mut options, lists).unwrap();
    options
}

fn plan(size: u64, lists: &[(char, &str)]) -> Plan {
    Plan::new(&options(lists), Bytes::new(size), true).unwrap()
}

/// Checks a checksum that lies at `at` of `bytes`.
fn assert_sealed(bytes: &[u8], at: usize, what: &str) {
    let mut zeroed = bytes.to_vec();
    zeroed[at..at + 4].fill(0);
    let crc = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, &zeroed)).unwrap();
    assert_eq!(bytes[at..at + 4], crc.to_le_bytes(), "{what}");
}

/// Checks the start of a group, from its second sector, and returns its free blocks, those on its list
/// included.
fn check_start(volume: &Volume, group: u32, sectors: &[u8]) -> u64 {
    let sector = usize_of(volume.sector_size);
    let agf = raw::Agf::ref_from_prefix(sectors).unwrap().0;
    let length = volume.group_len(GroupNr::new(group));
    assert_eq!((agf.agf_seqno.get(), agf.agf_length.get()), (group, length));
    assert_sealed(&sectors[..sector], offset_of!(raw::Agf, agf_crc), "AGF");
    assert_sealed(&sectors[sector..2 * sector], offset_of!(raw::Agi, agi_crc), "AGI");
    assert_sealed(&sectors[2 * sector..3 * sector], offset_of!(raw::Agfl, agfl_crc), "AGFL");
    let roots = volume.roots();
    for at in roots.bno..roots.end {
        let at = usize_of(at) * volume.block_size.len() - sector;
        let block = &sectors[at..at + volume.block_size.len()];
        let header = raw::ShortBlock::ref_from_prefix(block).unwrap().0;
        assert_eq!(header.bb_owner.get(), group);
        assert_sealed(block, offset_of!(raw::ShortBlock, bb_crc), "root");
    }
    let free = agf.agf_freeblks.get() + agf.agf_flcount.get();
    let mut used = roots.end;
    if group == 0 {
        used += volume.chunk_blocks();
    }
    if group == volume.log.group.get() {
        used += volume.log.run.len;
    }
    assert_eq!(free + used, length, "group {group}: every block is free or in use");
    free.into()
}

/// Checks the first inodes: each by its number, three in use.
fn check_inodes(volume: &Volume, chunk: &[u8]) {
    let inodes = chunk.chunks_exact(usize_of(volume.inode_size));
    assert_eq!(inodes.len(), usize_of(volume.chunk_inodes()));
    for (number, bytes) in (volume.root_inode()..).zip(inodes) {
        let inode = raw::Dinode::ref_from_prefix(bytes).unwrap().0;
        assert_eq!((inode.di_magic.get(), inode.di_ino.get()), (0x494e, number));
        assert_eq!(inode.di_mode.get() != 0, number < volume.root_inode() + 3, "inode {number}");
        assert_sealed(bytes, offset_of!(raw::Dinode, di_crc), "inode");
    }
}

/// Checks the record that a log begins with. mkfs.xfs gives it no checksum, and the kernel wants none of it.
fn check_record(volume: &Volume, record: &[u8]) {
    let header = raw::LogHeader::ref_from_prefix(record).unwrap().0;
    assert_eq!((header.h_magicno.get(), header.h_cycle.get(), header.h_crc.get()), (0xfeed_babe, 1, 0));
    assert_eq!((header.h_fs_uuid, header.h_num_logops.get()), (volume.uuid, 1));
    let lsn = 1 << 32;
    assert_eq!((header.h_lsn.get(), header.h_tail_lsn.get()), (lsn, lsn), "its head is its tail");
}

/// Walks every `step`th group and those that are special; free blocks of the ones walked.
fn walk_plan(plan: &Plan, step: usize) -> u64 {
    let volume = plan.volume();
    let last = volume.groups - 1;
    let special = [1, last / 2, volume.log.group.get(), last.saturating_sub(1), last];
    let mut groups: Vec<u32> = (0..volume.groups).step_by(step).chain(special).collect();
    groups.sort_unstable();
    groups.dedup();
    let log_at = volume.offset(volume.log.group, volume.log.run.start);
    let log_end = log_at + Bytes::new(u64::from(volume.log.run.len) << volume.block_size.shift());
    let (mut end, mut free, mut seen) = (Bytes::ZERO, 0, 0);
    for group in groups {
        for (at, write) in plan.writes(group..group + 1).enumerate() {
            assert!(write.at >= end, "writes ascend and don't overlap");
            let len = match &write.payload {
                Payload::Bytes(bytes) => Bytes::of(bytes.len()),
                Payload::Zeros(len) => *len,
            };
            end = write.at + len;
            assert!(end <= volume.blocks.bytes(volume.block_size), "writes lie inside the volume");
            let Payload::Bytes(bytes) = &write.payload else {
                assert_eq!(end, log_end, "what is zeroed is the rest of the log");
                seen += 1;
                continue;
            };
            let sector = usize_of(volume.sector_size);
            match (at, group) {
                (0, 0) => free += check_start(volume, group, bytes),
                (0, _) => {
                    let superblock = raw::SuperBlock::ref_from_prefix(bytes).unwrap().0;
                    assert_eq!(superblock.sb_dblocks.get(), volume.blocks.get());
                    assert_eq!(superblock.sb_inprogress, 1, "a copy");
                    assert_sealed(&bytes[..sector], offset_of!(raw::SuperBlock, sb_crc), "superblock");
                    free += check_start(volume, group, &bytes[sector..]);
                }
                _ if write.at == log_at => check_record(volume, bytes),
                _ => {
                    assert_eq!(write.at, volume.offset(GroupNr::new(0), volume.root_block()));
                    check_inodes(volume, bytes);
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 2, "the first inodes and the end of the log");
    free
}

/// Free blocks by what each group has besides; each group's own count is checked against that where it is
/// walked.
fn free_blocks(volume: &Volume) -> u64 {
    let used = volume.roots().end;
    let free = (0..volume.groups).map(|group| u64::from(volume.group_len(GroupNr::new(group)) - used));
    free.sum::<u64>() - u64::from(volume.chunk_blocks()) - u64::from(volume.log.run.len)
}

fn primary(plan: &Plan) -> raw::SuperBlock {
    let Write { at, payload: Payload::Bytes(bytes) } = plan.primary_superblock() else { panic!("bytes") };
    assert_eq!(at, Bytes::ZERO);
    assert_sealed(&bytes, offset_of!(raw::SuperBlock, sb_crc), "primary superblock");
    raw::SuperBlock::read_from_prefix(&bytes).unwrap().0
}

#[test]
fn all_groups_add_up_to_the_superblocks_count() {
    for (size, lists) in [
        (GIB, &[][..]),
        (513 * GIB, &[('d', "su=64k,sw=4"), ('m', "rmapbt=1")][..]),
        (1 << 50, &[][..]),
        (10 << 50, &[('b', "size=1024"), ('s', "size=1024")][..]),
    ] {
        let plan = plan(size, lists);
        let superblock = primary(&plan);
        assert_eq!(walk_plan(&plan, 1), superblock.sb_fdblocks.get(), "{size} {lists:?}");
    }
}

#[test]
fn the_largest_volumes_are_planned() {
    // The groups are those of `mkfs.xfs -N`.
    let shapes = [
        (&[][..], [1_048_577, 8_388_609]),
        (&[('m', "rmapbt=1"), ('i', "nrext64=1")], [1_048_577, 8_388_609]),
        (&[('d', "su=256k,sw=8")], [1_048_577, 8_388_610]),
    ];
    for (lists, groups) in shapes {
        for (size, groups) in [1_u64 << 60, (1 << 63) - 4096].into_iter().zip(groups) {
            let plan = plan(size, lists);
            let volume = plan.volume();
            assert_eq!(volume.groups, groups, "{size} {lists:?}");
            assert_eq!(u64::from(groups), volume.blocks.get().div_ceil(volume.group_blocks.into()));
            let superblock = primary(&plan);
            assert_eq!(superblock.sb_dblocks.get(), volume.blocks.get());
            assert_eq!(superblock.sb_agcount.get(), groups);
            assert_eq!(superblock.sb_fdblocks.get(), free_blocks(volume), "{size} {lists:?}");
            let inodes = u64::from(volume.chunk_inodes());
            assert_eq!((superblock.sb_icount.get(), superblock.sb_ifree.get()), (inodes, inodes - 3));
            assert_eq!(superblock.sb_logstart.get() >> volume.group_shift(), u64::from(volume.groups / 2));
            walk_plan(&plan, 4099);
        }
    }
}

#[test]
fn what_is_impossible_is_refused_on_one_line() {
    for (size, lists, said) in [
        (299 << 20, &[][..], "a volume of 313524224 bytes is too small: XFS needs 300 MiB"),
        (GIB + 100, &[][..], "size 1073741924: it is not a multiple of the sector, 512 bytes"),
        (GIB + 512, &[('s', "size=4096")][..], "not a multiple of the sector, 4096 bytes"),
        (u64::MAX - 511, &[][..], "XFS takes at most 9223372036854775807 bytes"),
        (GIB, &[('d', "agcount=1")][..], "-d agcount=1: a volume has two allocation groups or more"),
        (GIB, &[('d', "agcount=1000")][..], "-d agcount=1000: that is 263 blocks a group; 4096 to"),
        (10 * TIB, &[('d', "agsize=1t")][..], "4096 to 268435455 are possible"),
        (GIB, &[('b', "size=1024"), ('s', "size=4096")][..], "-s size=4096: a sector can't be larger"),
        (
            GIB,
            &[('b', "size=2048"), ('i', "size=2048")][..],
            "-i size=2048: an inode has at most half a block",
        ),
        (GIB, &[('l', "size=1g")][..], "an allocation group has room for 65525 blocks of log"),
        (GIB, &[('l', "size=10m")][..], "a log of this volume has 67108864 to"),
        (GIB, &[('d', "su=128m,sw=1")][..], "the first inodes are aligned to it"),
        (GIB, &[('l', "su=6k")][..], "-l stripe unit of 6144 bytes: it is not a multiple of the block"),
        (GIB, &[('d', "su=2g,sw=1")][..], "a stripe has at most"),
    ] {
        let given = FormatOptions { size: Some(Bytes::new(size)), ..options(lists) };
        let error = Plan::new(&given, Bytes::new(size), true).unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}

/// Those that it writes without reading, if that is possible.
#[test]
fn sectors_are_those_of_the_device() {
    let sectors = |(logical_sector, physical_sector), size, lists: &[(char, &str)]| {
        let device = Topology { logical_sector, physical_sector, ..Topology::default() };
        let plan = Plan::new(&FormatOptions { device, ..options(lists) }, Bytes::new(size), true);
        plan.map(|plan| plan.volume().sector_size).map_err(|error| error.to_string())
    };
    for (device, size, lists, found) in [
        ((512, 512), GIB, &[][..], 512),
        ((512, 4096), GIB, &[], 4096),
        ((4096, 4096), GIB, &[], 4096),
        ((512, 4096), GIB + 512, &[], 512),
        ((512, 4096), GIB, &[('b', "size=1024")], 512),
        ((512, 65536), GIB, &[('b', "size=65536")], 512),
        ((512, 4096), GIB, &[('s', "size=1024")], 1024),
    ] {
        assert_eq!(sectors(device, size, lists), Ok(found), "{device:?} {lists:?}");
    }
    let refused = sectors((4096, 4096), GIB, &[('s', "size=512")]).unwrap_err();
    assert_eq!(refused, "-s size=512: the device has sectors of 4096 bytes; give -s size=4096");
    let refused = sectors((4096, 4096), GIB, &[('b', "size=1024")]).unwrap_err();
    assert!(refused.contains("-s size=4096: a sector can't be larger than a block"), "{refused}");
}

/// Every planned byte reads back from the device.
fn assert_holds(device: &dyn Device, plan: &Plan) {
    for write in plan.writes(0..plan.volume().groups).chain([plan.primary_superblock()]) {
        let expected = match write.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Zeros(len) => vec![0; usize::try_from(len.get()).unwrap()],
        };
        let mut found = vec![0xaa; expected.len()];
        device.read_at(write.at, &mut found).unwrap();
        assert!(found == expected, "{} bytes at {} differ", expected.len(), write.at);
    }
}

#[test]
fn old_content_is_overwritten_and_old_superblocks_are_wiped() {
    let folder = folder();
    let path = folder.path().join("image");
    let device = FileOptions::new().write(true).create(&path, Bytes::mib(1024), Overwrite::Replace).unwrap();
    let old = plan(GIB, &[('d', "agcount=7")]);
    execute(&old, &device, 2).unwrap();
    let copy = |group: u32| {
        let mut magic = [0; 4];
        device.read_at(old.volume().offset(GroupNr::new(group), 0), &mut magic).unwrap();
        magic == *b"XFSB"
    };
    assert!((0..7).all(copy));
    // Old content where the log and headers will be.
    for at in (0..GIB).step_by(1 << 20).skip(1) {
        if at % u64_of(usize_of(old.volume().group_blocks) << 12) != 0 {
            device.write_at(Bytes::new(at), &[0xaa; 8192]).unwrap();
        }
    }
    let keeping = FormatOptions { discard: false, ..options(&[]) };
    let new = Plan::new(&keeping, Bytes::new(GIB), false).unwrap();
    execute(&new, &device, 2).unwrap();
    assert_holds(&device, &new);
    assert!(!copy(3) && !copy(6), "the copies that name the root directory are gone");
    assert!(copy(1), "others are left");
    let new = Plan::new(&options(&[]), Bytes::new(GIB), false).unwrap();
    execute(&new, &device, 2).unwrap();
    assert_holds(&device, &new);
    // Files of other hosts than Linux are not discarded.
    assert_eq!(copy(1), !hectare_oracle::IS_LINUX, "everything is discarded");
}

#[test]
fn a_power_cut_leaves_a_whole_volume_or_none() {
    // A sector is never torn.
    let is_volume = |device: &dyn Device| probe(device).unwrap().is_some_and(|found| found.what == What::Xfs);
    assert_no_volume_before_all_is_there(Bytes::mib(300), is_volume, |device| {
        execute(&Plan::new(&options(&[]), device.len(), false).unwrap(), device, 2)
    });
}

#[test]
fn a_device_that_fails_holds_no_volume() {
    assert_no_volume_where_a_device_fails(Bytes::mib(300), What::Xfs, |device, zeroed| {
        execute(&Plan::new(&options(&[]), device.len(), zeroed).unwrap(), device, 2)
    });
}
