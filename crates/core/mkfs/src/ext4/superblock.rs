//! The superblock record of a fresh volume.

use super::geometry::Shape;
use super::options::FormatOptions;
use super::system_inodes::{JOURNAL_INODE, Own};
use crate::error::Result;
use hectare_ext4::checksum::Seed;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::quota;
use hectare_ext4::raw;
use hectare_ext4::superblock::{
    CRC32C, ENCODING_STRICT, ENCODING_UTF8_12_1, FLAG_SIGNED_HASH, MAGIC, STATE_VALID, SuperBlock,
};
use hectare_ext4::time::Timestamp;
use hectare_units::{high32, low8, low16, low32};
use zerocopy::FromZeros;

/// `s_flags`: the volume may be used with experimental code.
const FLAG_TEST_FILESYSTEM: u32 = 0x4;
/// Seconds between two periodic checks.
const CHECK_INTERVAL: u32 = 180 * 24 * 3600;
/// Extra inode fields of 32 bytes, up to the project.
const EXTRA_ISIZE: u16 = 32;

/// The superblock of an empty volume, all but its counts.
pub(crate) fn make(options: &FormatOptions, shape: &Shape, own: &Own) -> Result<SuperBlock> {
    let mut raw = raw::SuperBlock::new_zeroed();
    fill_shape(&mut raw, &shape.geometry);
    fill_identity(&mut raw, options, &shape.geometry);
    fill_times(&mut raw, options.now);
    raw.s_r_blocks_count_lo = low32(shape.reserved_blocks.get()).into();
    raw.s_r_blocks_count_hi = high32(shape.reserved_blocks.get()).into();
    raw.s_raid_stride = options.stride(shape.geometry.block_size).into();
    raw.s_raid_stripe_width = options.stripe_width(shape.geometry.block_size).into();
    if let Some(block) = own.mmp {
        let interval = if options.mmp_update_interval == 0 { 5 } else { options.mmp_update_interval };
        raw.s_mmp_update_interval = interval.into();
        raw.s_mmp_block = block.into();
    }
    if let Some((nr, _)) = &own.orphan_file {
        raw.s_orphan_file_inum = nr.get().into();
    }
    for file in &own.quotas {
        let field = match file.kind {
            quota::Kind::User => &mut raw.s_usr_quota_inum,
            quota::Kind::Group => &mut raw.s_grp_quota_inum,
            quota::Kind::Project => &mut raw.s_prj_quota_inum,
        };
        *field = file.nr.get().into();
    }
    if shape.geometry.features.incompat.contains(Incompat::CASEFOLD) {
        raw.s_encoding = ENCODING_UTF8_12_1.into();
        raw.s_encoding_flags = if options.strict_encoding { ENCODING_STRICT } else { 0 }.into();
    }
    if own.journal.is_some() {
        raw.s_journal_inum = JOURNAL_INODE.get().into();
    }
    if let Some(journal) = options.journal_device {
        raw.s_journal_uuid = journal.uuid;
        raw.s_journal_dev = journal.number.into();
    }
    let plain = SuperBlock::from_raw(raw)?;
    let Some((map, size)) = own.journal_map(&plain) else { return Ok(plain) };
    raw.s_jnl_backup_type = 1; // the journal inode's map and size are kept here too
    for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(map.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes).into();
    }
    raw.s_jnl_blocks[15] = high32(size).into();
    raw.s_jnl_blocks[16] = low32(size).into();
    Ok(SuperBlock::from_raw(raw)?)
}

fn fill_shape(raw: &mut raw::SuperBlock, geometry: &Geometry) {
    let features = &geometry.features;
    raw.s_inodes_count = geometry.inodes_count().into();
    raw.s_blocks_count_lo = low32(geometry.blocks_count.get()).into();
    raw.s_blocks_count_hi = high32(geometry.blocks_count.get()).into();
    raw.s_first_data_block = geometry.first_data_block.into();
    raw.s_log_block_size = (geometry.block_size.shift() - 10).into();
    raw.s_log_cluster_size = (geometry.block_size.shift() - 10 + geometry.cluster_ratio_shift).into();
    raw.s_blocks_per_group = geometry.blocks_per_group().into();
    raw.s_clusters_per_group = geometry.clusters_per_group.into();
    raw.s_inodes_per_group = geometry.inodes_per_group.into();
    raw.s_inode_size = low16(geometry.inode_size.into()).into();
    raw.s_feature_compat = features.compat.bits().into();
    raw.s_feature_incompat = features.incompat.bits().into();
    raw.s_feature_ro_compat = features.ro_compat.bits().into();
    raw.s_reserved_gdt_blocks = low16(geometry.reserved_gdt_blocks.into()).into();
    raw.s_first_meta_bg = geometry.first_meta_bg.into();
    raw.s_log_groups_per_flex = low8(geometry.flex_shift.into());
    raw.s_backup_bgs = geometry.backup_groups.map(Into::into);
    if features.incompat.contains(Incompat::BIT64) {
        raw.s_desc_size = low16(geometry.desc_size.into()).into();
    }
    if geometry.inode_size > 128 {
        raw.s_min_extra_isize = EXTRA_ISIZE.into();
        raw.s_want_extra_isize = EXTRA_ISIZE.into();
    }
    if features.incompat.contains(Incompat::ENCRYPT) {
        raw.s_encrypt_algos = [1, 4, 0, 0]; // AES-256-XTS for contents, AES-256-CTS for names
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        raw.s_checksum_type = CRC32C;
    }
}

fn fill_identity(raw: &mut raw::SuperBlock, options: &FormatOptions, geometry: &Geometry) {
    let random = || uuid::Uuid::new_v4().into_bytes();
    raw.s_magic = MAGIC.into();
    raw.s_rev_level = 1.into();
    raw.s_state = STATE_VALID.into();
    raw.s_errors = options.on_error.code().into();
    raw.s_first_ino = 11.into();
    raw.s_uuid = options.uuid.unwrap_or_else(random);
    raw.s_volume_name[..options.label.len()].copy_from_slice(&options.label);
    raw.s_last_mounted[..options.last_mounted.len()].copy_from_slice(&options.last_mounted);
    raw.s_default_mount_opts = options.mount_defaults.bits().into();
    raw.s_flags = (FLAG_SIGNED_HASH | if options.test_filesystem { FLAG_TEST_FILESYSTEM } else { 0 }).into();
    raw.s_max_mnt_count = u16::MAX.into(); // never check for the number of mounts
    if options.periodic_checks {
        raw.s_max_mnt_count = (20 + u16::from(raw.s_uuid[15] % 20)).into();
        raw.s_checkinterval = CHECK_INTERVAL.into();
    }
    raw.s_def_hash_version = 1; // half_md4
    raw.s_hash_seed = options.hash_seed.unwrap_or_else(random);
    if geometry.features.incompat.contains(Incompat::CSUM_SEED) {
        raw.s_checksum_seed = Seed::of_uuid(&raw.s_uuid).get().into();
    }
}

fn fill_times(raw: &mut raw::SuperBlock, now: Timestamp) {
    let seconds = now.seconds.cast_unsigned();
    let (low, high) = (low32(seconds).into(), low8(seconds >> 32));
    (raw.s_wtime, raw.s_wtime_hi) = (low, high);
    (raw.s_mkfs_time, raw.s_mkfs_time_hi) = (low, high);
    (raw.s_lastcheck, raw.s_lastcheck_hi) = (low, high);
}
