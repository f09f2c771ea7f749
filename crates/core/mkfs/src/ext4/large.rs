//! The choices for volumes too large for mke2fs's defaults: larger blocks, clusters, meta groups, larger
//! flex groups.
//!
//! mke2fs keeps to groups of 128 MiB whatever the size; a volume of 1 PiB then has eight million of them, and
//! everything that goes through groups, `e2fsck` and the kernel's mount included, takes gigabytes and
//! minutes. Here a volume gets as large clusters as it needs to have about a million groups at most, above
//! 16 TiB each meta group holds its own descriptors and flex groups are four times as large, and blocks grow
//! where their numbers would have more than 48 bits. Every choice is reported in a [`Note`], with the
//! option that overrides it.
//!
//! Invariant: what the options set, one way or the other, is never changed. Below 16 TiB nothing is changed.

use super::limits::{BLOCKS_MAX, clusters_per_group_max};
use super::note::Note;
use super::options::FormatOptions;
use hectare_ext4::feature::{Compat, Feature, Features, Incompat, RoCompat};
use hectare_units::{BlockSize, Bytes};

/// Clusters grow until there are no more groups than this: about a million, with room for groups that are a
/// little short of a power of two.
const GROUPS_WANTED: u64 = 1_100_000;
/// Above this, each meta group holds its own descriptors, and flex groups are larger.
const LARGE: Bytes = Bytes::new(16 << 40);
/// Groups of a flex group, as a power of two, on most volumes (mke2fs's default, `-G 16`).
const FLEX_SHIFT: u32 = 4;
/// The same power of two on large volumes. Of a new volume only the bitmaps that count a flex group's
/// metadata are written, one block for each flex group, alone in gigabytes; so this decides how many places
/// are written, and later read by `e2fsck`. With blocks of 4 KiB a flex group then is a meta group.
const FLEX_SHIFT_LARGE: u32 = 6;
/// The block size, if `usual` would make too many blocks and the options leave it open.
pub(crate) fn block_size(
    options: &FormatOptions,
    usual: BlockSize,
    size: Bytes,
    notes: &mut Vec<Note>,
) -> BlockSize {
    if options.block_size.is_some() {
        return usual;
    }
    let shifts = usual.shift()..=BlockSize::KIB64.shift();
    // One block too many is left unused rather than making all of them larger.
    let fits = |shift: &u32| size.get() >> shift <= BLOCKS_MAX + 1;
    let chosen = shifts.into_iter().find(fits).and_then(BlockSize::from_shift).unwrap_or(BlockSize::KIB64);
    if chosen != usual {
        notes.push(Note::LargerBlocks(chosen));
    }
    chosen
}

/// Turns meta groups on where the volume is large and the options leave it open.
pub(crate) fn choose_meta_groups(
    options: &FormatOptions,
    features: &mut Features,
    size: Bytes,
    notes: &mut Vec<Note>,
) {
    let resizing = options.resize.is_some()
        || features.compat.contains(Compat::RESIZE_INODE)
            && options.decides(Feature::Compat(Compat::RESIZE_INODE));
    let open = !resizing && !options.decides(Feature::Incompat(Incompat::META_BG));
    if open && size > LARGE && features.incompat.contains(Incompat::BIT64) {
        features.incompat |= Incompat::META_BG;
        features.compat -= Compat::RESIZE_INODE;
        notes.push(Note::MetaGroupsByDefault);
    }
}

/// log2 of the groups in a flex group where the options leave it open.
pub(crate) fn flex_shift(size: Bytes, notes: &mut Vec<Note>) -> u32 {
    if size <= LARGE {
        return FLEX_SHIFT;
    }
    notes.push(Note::LargerFlexGroups(1 << FLEX_SHIFT_LARGE));
    FLEX_SHIFT_LARGE
}

/// Turns clusters on where groups of single blocks would be too many and the options leave it open.
pub(crate) fn choose_clusters(
    options: &FormatOptions,
    features: &mut Features,
    block: BlockSize,
    blocks: u64,
) {
    let open = !options.decides(Feature::RoCompat(RoCompat::BIGALLOC))
        && options.clusters_per_group.is_none()
        && options.cluster_size.is_none();
    if open && features.incompat.contains(Incompat::EXTENTS) && cluster_shift(block, blocks) > 0 {
        features.ro_compat |= RoCompat::BIGALLOC;
    }
}

/// log2 of the blocks in a cluster that keep the number of groups down; 0 for most volumes.
pub(crate) fn cluster_shift(block: BlockSize, blocks: u64) -> u32 {
    let per_group = u64::from(clusters_per_group_max(block));
    (0..16).find(|shift| blocks.div_ceil(per_group << shift) <= GROUPS_WANTED).unwrap_or(16)
}
