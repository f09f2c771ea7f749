//! Which clusters hold the metadata of groups: superblock copies, descriptors, bitmaps, inode tables.
//!
//! The difference between the sets before and after a change of shape is what the change frees and what it
//! takes; no other block is touched by it. With bigalloc a cluster may hold metadata of several groups, which
//! is why whole sets are compared and not the pieces of one group.

use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::GroupDesc;
use hectare_units::{BlockNr, GroupNr, u64_of};
use rangemap::RangeSet;
use std::ops::Range;

/// The blocks of a group's base metadata, bounded by the group.
pub(crate) fn base(geometry: &Geometry, group: GroupNr) -> Range<u64> {
    let start = geometry.first_block(group).get();
    start..start + u64::from(geometry.base_meta_blocks(group).min(geometry.blocks_in(group)))
}

/// The blocks of a group's bitmaps and table.
pub(crate) fn own(geometry: &Geometry, desc: &GroupDesc) -> [Range<u64>; 3] {
    let [block_bitmap, inode_bitmap, table] =
        [desc.block_bitmap, desc.inode_bitmap, desc.inode_table].map(BlockNr::get);
    [
        block_bitmap..block_bitmap + 1,
        inode_bitmap..inode_bitmap + 1,
        table..table + u64::from(geometry.itable_blocks()),
    ]
}

/// The clusters that blocks touch.
pub(crate) fn clusters(geometry: &Geometry, blocks: &Range<u64>) -> Range<u64> {
    if blocks.is_empty() {
        return 0..0;
    }
    let cluster = |block| geometry.cluster_of(BlockNr::new(block)).get();
    cluster(blocks.start)..cluster(blocks.end - 1) + 1
}

/// Adds a range, which may be empty.
pub(crate) fn insert(set: &mut RangeSet<u64>, range: Range<u64>) {
    if !range.is_empty() {
        set.insert(range);
    }
}

/// The clusters that all metadata takes.
pub(crate) fn all(geometry: &Geometry, groups: &[GroupDesc]) -> RangeSet<u64> {
    let mut set = RangeSet::new();
    for (nr, desc) in (0..).map(GroupNr::new).zip(groups) {
        insert(&mut set, clusters(geometry, &base(geometry, nr)));
        for part in own(geometry, desc) {
            insert(&mut set, clusters(geometry, &part));
        }
    }
    set
}

/// The ranges of `a` that are not in `b`.
pub(crate) fn without(a: &RangeSet<u64>, b: &RangeSet<u64>) -> Vec<Range<u64>> {
    a.iter().flat_map(|range| b.gaps(range)).collect()
}

/// How many there are.
pub(crate) fn len(set: &RangeSet<u64>) -> u64 {
    set.iter().map(|range| range.end - range.start).sum()
}

/// How many of them lie within a range.
pub(crate) fn len_within(set: &RangeSet<u64>, within: &Range<u64>) -> u64 {
    let parts = set.overlapping(within);
    parts.map(|range| range.end.min(within.end) - range.start.max(within.start)).sum()
}

/// The bits of a group that nobody wrote (`BLOCK_UNINIT`): its own metadata, as far as it lies in the group.
pub(crate) fn derived(geometry: &Geometry, group: GroupNr, desc: &GroupDesc) -> Vec<u8> {
    let mut bytes = vec![0; geometry.block_size.len()];
    let parts = own(geometry, desc).into_iter().chain([base(geometry, group)]);
    mark(&mut bytes, geometry, group, parts.map(|part| clusters(geometry, &part)));
    bytes
}

/// Sets the bits of clusters as far as they lie in a group.
pub(crate) fn mark(
    bytes: &mut [u8],
    geometry: &Geometry,
    group: GroupNr,
    ranges: impl Iterator<Item = Range<u64>>,
) {
    let first = u64::from(group.get()) * u64::from(geometry.clusters_per_group);
    let end = first + u64::from(geometry.clusters_in(group));
    for range in ranges {
        let bit = |cluster: u64| hectare_units::low32(cluster.clamp(first, end) - first);
        super::bitmap::fill(bytes, bit(range.start)..bit(range.end), true);
    }
}

/// How many groups a list has.
pub(crate) fn count(groups: &[GroupDesc]) -> u32 {
    u32::try_from(u64_of(groups.len())).expect("group numbers have 32 bits")
}
