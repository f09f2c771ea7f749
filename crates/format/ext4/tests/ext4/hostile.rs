//! Superblocks, descriptors and inodes of hostile bytes: each is refused or parsed, and whatever is parsed
//! can be asked everything without a panic. Overflow is checked in every profile, so arithmetic on numbers
//! that validation let through shows here.

use hectare_ext4::feature::{Compat, Features, Incompat, RoCompat};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::inode::{DeviceNumber, Inode};
use hectare_ext4::raw;
use hectare_ext4::superblock::{MAGIC, SIZE, SuperBlock};
use hectare_ext4::time::{SECONDS_MAX, SECONDS_MAX_NARROW, SECONDS_MIN, Timestamp};
use hectare_oracle::hunt;
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, usize_of};
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// `cases` cases, and a hundred times as many under `HECTARE_LONG=1`, which is listed as left out otherwise.
fn cases(test: &str, cases: u32) -> ProptestConfig {
    let cases = if hunt::long(format!("hostile::{test}, a hundred times as many cases")) {
        cases * 100
    } else {
        cases
    };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A plain volume: 4 KiB blocks, 100 groups.
fn plain() -> raw::SuperBlock {
    let mut raw = raw::SuperBlock::new_zeroed();
    raw.s_magic = MAGIC.into();
    raw.s_rev_level = 1.into();
    raw.s_log_block_size = 2.into();
    raw.s_log_cluster_size = 2.into();
    raw.s_blocks_per_group = 32768.into();
    raw.s_clusters_per_group = 32768.into();
    raw.s_inodes_per_group = 8192.into();
    raw.s_blocks_count_lo = (100 * 32768).into();
    raw.s_inodes_count = (100 * 8192).into();
    raw.s_inode_size = 256.into();
    raw.s_first_ino = 11.into();
    raw.s_desc_size = 64.into();
    raw.s_checksum_type = 1;
    raw.s_want_extra_isize = 32.into();
    let features = RoCompat::SPARSE_SUPER | RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE;
    raw.s_feature_ro_compat = features.bits().into();
    raw.s_feature_incompat = (Incompat::EXTENTS | Incompat::BIT64 | Incompat::FILETYPE).bits().into();
    raw
}

fn parse(raw: &raw::SuperBlock) -> Option<SuperBlock> {
    SuperBlock::from_raw(*raw).ok()
}

/// A number near one of the places where something changes, or any.
fn edge() -> impl Strategy<Value = u32> {
    let near_power =
        (0..32u32, 0..3u32).prop_map(|(shift, off)| (1u32 << shift).wrapping_add(off).wrapping_sub(1));
    prop_oneof![near_power, 0..40u32, Just(u32::MAX), Just(u32::MAX - 1), any::<u32>()]
}

prop_compose! {
    /// A superblock whose numbers mostly fit each other, so that many get past validation.
    fn shaped()(
        (log_block, log_cluster, bigalloc, wide) in (0..7u32, 0..20u32, any::<bool>(), any::<bool>()),
        (blocks, high, per_group, inodes) in (edge(), prop_oneof![Just(0), edge()], edge(), edge()),
        (first, reserved, first_meta, flex) in (0..2u32, edge(), edge(), any::<u8>()),
        (inode_log, desc_log, want, min) in (6..17u32, 4..12u32, edge(), edge()),
        (compat, incompat, ro_compat) in (any::<u32>(), any::<u32>(), any::<u32>()),
        (backups, spoil, rev) in (any::<[u32; 2]>(), 0..40u32, 0..8u32),
    ) -> raw::SuperBlock {
        let mut raw = plain();
        let low = |n: u32| hectare_units::low16(n.into());
        raw.s_rev_level = u32::from(rev > 0).into();
        raw.s_log_block_size = log_block.into();
        raw.s_log_cluster_size = log_cluster.into();
        let ratio = if bigalloc { log_cluster.saturating_sub(log_block) } else { 0 };
        let bits = 8192 << log_block;
        let per_group = if spoil != 1 { ((per_group % bits) & !7).max(256) } else { per_group };
        raw.s_clusters_per_group = per_group.into();
        raw.s_blocks_per_group = per_group.checked_shl(ratio).unwrap_or(per_group).into();
        raw.s_blocks_count_lo = blocks.into();
        raw.s_blocks_count_hi = high.into();
        let inodes = if spoil != 2 { ((inodes % bits) & !7).max(16) } else { inodes };
        raw.s_inodes_per_group = inodes.into();
        let usual_first = u32::from(log_block == 0 && ratio == 0);
        raw.s_first_data_block = (if spoil != 3 { usual_first } else { first }).into();
        let all = u64::from(blocks) | if wide { u64::from(high) << 32 } else { 0 };
        let groups = all.saturating_sub(raw.s_first_data_block.get().into())
            .div_ceil(raw.s_blocks_per_group.get().max(1).into());
        raw.s_inodes_count = hectare_units::low32(groups.saturating_mul(inodes.into())).into();
        let reserved = if spoil != 4 { reserved % (256 << log_block) } else { reserved };
        raw.s_reserved_gdt_blocks = low(reserved).into();
        raw.s_first_meta_bg = first_meta.into();
        raw.s_log_groups_per_flex = flex;
        let inode_log = if spoil != 7 { inode_log.clamp(7, 10 + log_block) } else { inode_log };
        raw.s_inode_size = low(1 << inode_log).into();
        let desc_log = if spoil != 8 { desc_log.clamp(6, 10) } else { desc_log };
        raw.s_desc_size = low(1 << desc_log).into();
        raw.s_want_extra_isize = low(want).into();
        raw.s_min_extra_isize = low(min).into();
        raw.s_backup_bgs = backups.map(Into::into);
        let known = |bits: u32, mask: u32| if spoil != 5 { bits & mask } else { bits };
        raw.s_feature_compat = compat.into();
        let readable = Incompat::META_BG | Incompat::FLEX_BG | Incompat::EXTENTS | Incompat::MMP;
        let mut incompat = Incompat::from_bits_retain(known(incompat, readable.bits()));
        incompat.set(Incompat::BIT64, wide);
        raw.s_feature_incompat = incompat.bits().into();
        let mut ro_compat = RoCompat::from_bits_retain(ro_compat);
        ro_compat.set(RoCompat::BIGALLOC, bigalloc);
        if spoil != 6 {
            ro_compat.remove(RoCompat::GDT_CSUM);
        }
        raw.s_feature_ro_compat = ro_compat.bits().into();
        raw
    }
}

/// Some groups of a volume: the first, the last, those around every boundary that descriptors have.
fn some_groups(sb: &SuperBlock) -> Vec<GroupNr> {
    let geometry = sb.geometry();
    let (groups, per) = (u64::from(geometry.groups()), u64::from(geometry.descs_per_block()));
    let meta = u64::from(geometry.first_meta_bg).saturating_mul(per);
    let last_meta = (groups - 1) / per * per;
    let places = [0, per, meta, last_meta, groups / 2, groups];
    let near = places.into_iter().flat_map(|at| at.saturating_sub(2)..=at.saturating_add(2));
    near.filter(|nr| *nr < groups).map(|nr| GroupNr::new(hectare_units::low32(nr))).collect()
}

/// Asks a parsed superblock everything; its answers lie on the volume.
fn ask_everything(sb: &SuperBlock) {
    let geometry = sb.geometry();
    let end = geometry.blocks_count.get();
    let inside = |block: BlockNr| assert!(block.get() < end, "block {block} of {end}: {geometry:?}");
    for group in some_groups(sb) {
        inside(geometry.first_block(group));
        assert!(geometry.blocks_in(group) > 0 && geometry.clusters_in(group) <= geometry.clusters_per_group);
        assert!(geometry.base_meta_blocks(group) <= geometry.blocks_in(group), "group {group}: {geometry:?}");
        assert_eq!(geometry.group_of(geometry.first_block(group)), Some(group));
        if geometry.has_super(group) {
            inside(geometry.super_block(group));
        }
        let index = group.get() / geometry.descs_per_block();
        inside(geometry.desc_block(index));
        geometry.desc_block_backups(index).into_iter().for_each(inside);
        let slot = geometry.inode_slot(geometry.inode_at(group, geometry.inodes_per_group - 1));
        assert_eq!(slot, Some((group, geometry.inodes_per_group - 1)));
        let bytes = sb.render(group);
        assert!(SuperBlock::parse(&bytes, Bytes::new(u64::MAX)).is_ok());
    }
    inside(geometry.cluster_start(geometry.cluster_of(BlockNr::new(end - 1))));
    let sizes =
        geometry.bytes().get() + geometry.clusters_count().get() + u64::from(geometry.itable_blocks());
    assert!(sizes > 0 && geometry.old_desc_blocks() <= geometry.desc_blocks());
    assert!(geometry.block_bitmap_bytes() <= geometry.block_size.len());
    assert!(geometry.inode_bitmap_bytes() <= geometry.block_size.len());
    assert!(geometry.flex_groups() > 0 && geometry.inodes_count() >= sb.first_inode().get());
    assert!(u32::from(sb.want_extra_isize()) + 128 <= geometry.inode_size);
    let _ = (sb.label(), sb.hash_seed(), sb.free_blocks(), sb.reserved_blocks(), sb.journal_inode());
    let _ = (sb.features().check_write(), sb.features().names(), sb.last_orphan(), sb.signed_hash());
}

proptest! {
    #![proptest_config(cases("superblocks", 2000))]

    #[test]
    fn shaped_superblocks_answer_everything(raw in shaped()) {
        if let Some(sb) = parse(&raw) {
            ask_everything(&sb);
        }
    }

    #[test]
    fn spoilt_superblocks_answer_everything(spoilt in vec((0..0x300usize, edge()), 1..4)) {
        let mut bytes = plain().as_bytes().to_vec();
        for (at, word) in spoilt {
            bytes[at & !3..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let raw = raw::SuperBlock::read_from_bytes(&bytes).unwrap();
        if let Some(sb) = parse(&raw) {
            ask_everything(&sb);
        }
    }

    #[test]
    fn any_bytes_are_no_superblock_or_one(mut bytes in vec(any::<u8>(), 0..1100), magic: bool) {
        if magic && bytes.len() > 0x3a {
            bytes[0x38..0x3a].copy_from_slice(&MAGIC.to_le_bytes());
        }
        let _ = SuperBlock::parse(&bytes, Bytes::new(1 << 40)).map(|sb| ask_everything(&sb));
    }

    #[test]
    fn any_bytes_are_no_descriptor_or_one(raw in shaped(), bytes in vec(any::<u8>(), 0..1100)) {
        let Some(sb) = parse(&without_checksums(raw)) else { return Ok(()) };
        for group in some_groups(&sb) {
            let Ok(desc) = GroupDesc::parse(&bytes, group, &sb) else { continue };
            let end = sb.geometry().blocks_count.get();
            prop_assert!(desc.inode_table.get() + u64::from(sb.geometry().itable_blocks()) <= end);
            let mut slot = bytes[..usize_of(sb.geometry().desc_size)].to_vec();
            desc.render(&mut slot, group, &sb);
            prop_assert_eq!(GroupDesc::parse(&slot, group, &sb), Ok(desc.clone()));
            let _ = desc.verify_block_bitmap(&bytes, group, &sb);
            let _ = desc.verify_inode_bitmap(&bytes, group, &sb);
        }
    }

    #[test]
    fn descriptors_survive_rendering(
        wide: bool,
        (bitmap, table) in (0..3_000_000u64, 0..3_000_000u64),
        (free, inodes, unused, dirs) in (0..32768u32, 0..8192u32, 0..8192u32, 0..8192u32),
        (flags, sums) in (any::<u16>(), any::<[u32; 2]>()),
        group in 0..100u32,
    ) {
        let mut raw = plain();
        if !wide {
            raw.s_feature_incompat = Incompat::EXTENTS.bits().into();
        }
        let sb = parse(&raw).unwrap();
        let mask = if wide { !0 } else { 0xffff };
        let desc = GroupDesc {
            block_bitmap: BlockNr::new(bitmap),
            inode_bitmap: BlockNr::new(bitmap + 1),
            inode_table: BlockNr::new(table),
            free_clusters: free,
            free_inodes: inodes,
            used_dirs: dirs,
            itable_unused: unused,
            flags: GroupFlags::from_bits_retain(flags),
            block_bitmap_csum: sums[0] & mask,
            inode_bitmap_csum: sums[1] & mask,
        };
        let mut slot = vec![0xa5; if wide { 64 } else { 32 }];
        desc.render(&mut slot, GroupNr::new(group), &sb);
        prop_assert_eq!(GroupDesc::parse(&slot, GroupNr::new(group), &sb), Ok(desc));
    }

    #[test]
    fn any_bytes_are_no_inode_or_one(
        log_size in 7..13u32,
        (mut bytes, cut) in (vec(any::<u8>(), 4096), 0..5000usize),
        (extra, mode, tame) in (edge(), any::<u16>(), any::<bool>()),
        features: u32,
    ) {
        let mut raw = without_checksums(plain());
        raw.s_inode_size = (1u16 << log_size).into();
        let kept = RoCompat::HUGE_FILE | RoCompat::LARGE_FILE;
        raw.s_feature_ro_compat = (features & kept.bits()).into();
        let sb = parse(&raw).unwrap();
        bytes.truncate(1 << log_size);
        bytes[..2].copy_from_slice(&mode.to_le_bytes());
        if tame {
            bytes[0x68..0x70].fill(0); // attribute block and high size
            bytes[0x76..0x78].fill(0);
        }
        if bytes.len() > 128 {
            bytes[128..130].copy_from_slice(&hectare_units::low16(extra.into()).to_le_bytes());
        }
        let nr = InodeNr::new(12);
        let _ = Inode::parse(&bytes[..cut.min(bytes.len())], nr, &sb);
        let Ok(mut inode) = Inode::parse(&bytes, nr, &sb) else { return Ok(()) };
        let mut slot = bytes.clone();
        inode.render(&mut slot, nr, &sb);
        prop_assert_eq!(&Inode::parse(&slot, nr, &sb), &Ok(settled(inode.clone(), &slot)));
        prop_assert!(inode.xattr_area().len() <= bytes.len() - 128);
        prop_assert_eq!(inode.xattr_area().len(), inode.xattr_area_mut().len());
        let _ = (inode.kind(), inode.is_fast_symlink(), inode.device_number(), inode.bytes());
    }

    #[test]
    fn every_time_in_range_survives(
        seconds in SECONDS_MIN..=SECONDS_MAX,
        nanoseconds in 0..1_000_000_000u32,
    ) {
        let time = Timestamp { seconds, nanoseconds };
        let (base, extra) = time.encode();
        prop_assert_eq!(Timestamp::decode(base, extra), time);
        let narrow = Timestamp::decode(time.encode_narrow(), 0);
        prop_assert_eq!(narrow, Timestamp::from_seconds(seconds.min(SECONDS_MAX_NARROW)));
    }

    #[test]
    fn any_time_is_stored_as_the_nearest(seconds: i64, nanoseconds: u32, base: u32, extra: u32) {
        let (stored, words) = Timestamp { seconds, nanoseconds }.encode();
        let back = Timestamp::decode(stored, words);
        prop_assert_eq!(back.seconds, seconds.clamp(SECONDS_MIN, SECONDS_MAX));
        prop_assert!(back.nanoseconds < 1_000_000_000);
        let any = Timestamp::decode(base, extra);
        let (again, more) = any.encode();
        prop_assert_eq!(again, base);
        prop_assert_eq!(more & 3, extra & 3);
    }

    #[test]
    fn device_numbers_survive(major in 0..4096u32, minor in 0..1_048_576u32) {
        let sb = parse(&plain()).unwrap();
        let mut inode = Inode::new(0o020_600, Timestamp::default(), 1, &sb);
        let number = DeviceNumber { major, minor };
        inode.set_device_number(number);
        prop_assert_eq!(inode.device_number(), number);
    }

    #[test]
    fn feature_words_have_as_many_names_as_bits(compat: u32, incompat: u32, ro_compat: u32) {
        let features = Features {
            compat: Compat::from_bits_retain(compat),
            incompat: Incompat::from_bits_retain(incompat),
            ro_compat: RoCompat::from_bits_retain(ro_compat),
        };
        let bits = compat.count_ones() + incompat.count_ones() + ro_compat.count_ones();
        prop_assert_eq!(features.names().len(), usize_of(bits));
        let _ = (features.check_read(), features.check_write());
    }
}

fn without_checksums(mut raw: raw::SuperBlock) -> raw::SuperBlock {
    let kept = raw.s_feature_ro_compat.get() & !(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM).bits();
    raw.s_feature_ro_compat = kept.into();
    raw
}

/// What is left of an inode after one rendering: the unit of `i_blocks` may have been settled.
fn settled(mut inode: Inode, slot: &[u8]) -> Inode {
    let flags = u32::from_le_bytes([slot[0x20], slot[0x21], slot[0x22], slot[0x23]]);
    inode.flags = hectare_ext4::inode::InodeFlags::from_bits_retain(flags);
    inode
}

/// The generator is worth nothing if nothing gets past validation.
#[test]
fn many_shaped_superblocks_are_accepted() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = shaped();
    let accepted =
        (0..2000).filter(|_| parse(&strategy.new_tree(&mut runner).unwrap().current()).is_some()).count();
    assert!(accepted > 100, "only {accepted} of 2000");
    assert_eq!(plain().as_bytes().len(), SIZE);
}
