//! Finds places for the bitmaps and inode tables of groups.
//!
//! A new group's metadata goes where mkfs would put it. Where that place is taken, by files in a flex group
//! that the volume ended in, or because the volume was laid out otherwise, it goes to the first place with
//! room: in its flex group, else anywhere after it, else anywhere. Without `flex_bg` all of it must lie in
//! the group itself.

use crate::error::{Error, Result};
use crate::metadata::{self, insert};
use crate::volume::Volume;
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_mkfs::{GroupMeta, Layout};
use hectare_units::{BlockNr, GroupNr};
use rangemap::RangeSet;
use std::ops::Range;

/// What is taken while places are looked for.
pub(crate) struct Places<'a> {
    volume: &'a mut Volume,
    geometry: Geometry,
    /// Blocks of metadata.
    taken: RangeSet<u64>,
    /// Clusters of metadata, old and new: with bigalloc further metadata may share them.
    shared: RangeSet<u64>,
    /// Clusters where nothing may go.
    barred: RangeSet<u64>,
}

impl<'a> Places<'a> {
    /// In a volume that will have the shape `geometry`, of which `kept` groups have their metadata already.
    pub(crate) fn new(
        volume: &'a mut Volume,
        geometry: &Geometry,
        kept: &[GroupDesc],
        barred: RangeSet<u64>,
    ) -> Self {
        let mut taken = RangeSet::new();
        for nr in (0..geometry.groups()).map(GroupNr::new) {
            insert(&mut taken, metadata::base(geometry, nr));
        }
        for part in kept.iter().flat_map(|desc| metadata::own(geometry, desc)) {
            insert(&mut taken, part);
        }
        let mut shared = RangeSet::new();
        if geometry.cluster_ratio_shift > 0 {
            taken.iter().for_each(|range| insert(&mut shared, metadata::clusters(geometry, range)));
        }
        Self { volume, geometry: geometry.clone(), taken, shared, barred }
    }

    /// The first block of `range` that can't hold metadata, from the end.
    fn obstacle(&mut self, range: &Range<u64>) -> Result<Option<u64>> {
        // Forwards: from the back the set is searched from its very end.
        if let Some(end) = self.taken.overlapping(range).map(|taken| taken.end).max() {
            return Ok(Some(end - 1));
        }
        let clusters = metadata::clusters(&self.geometry, range);
        for cluster in clusters.rev() {
            let first = self.geometry.cluster_start(hectare_units::ClusterNr::new(cluster)).get();
            let known = first < self.volume.geometry().blocks_count.get();
            let is_used = known && !self.shared.contains(&cluster) && self.volume.is_used(cluster)?;
            if is_used || self.barred.contains(&cluster) {
                return Ok(Some(first + u64::from(self.geometry.cluster_blocks()) - 1));
            }
        }
        Ok(None)
    }

    /// Takes `len` blocks at the first place in `within` that has room.
    fn first_fit(&mut self, within: Range<u64>, len: u64) -> Result<Option<u64>> {
        let mut at = within.start;
        while at + len <= within.end {
            match self.obstacle(&(at..at + len))? {
                Some(last) => at = last + 1,
                None => {
                    self.take(at..at + len);
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
    }

    fn take(&mut self, blocks: Range<u64>) {
        if self.geometry.cluster_ratio_shift > 0 {
            insert(&mut self.shared, metadata::clusters(&self.geometry, &blocks));
        }
        insert(&mut self.taken, blocks);
    }

    /// Takes `len` blocks for metadata of a group, at `wish` if that is free.
    pub(crate) fn find(&mut self, group: GroupNr, wish: Option<BlockNr>, len: u64) -> Result<BlockNr> {
        let end = self.geometry.blocks_count.get();
        if let Some(wish) = wish.map(BlockNr::get).filter(|wish| wish + len <= end)
            && self.first_fit(wish..wish + len, len)?.is_some()
        {
            return Ok(BlockNr::new(wish));
        }
        let own = self.geometry.first_block(group).get();
        let own_end = own + u64::from(self.geometry.blocks_in(group));
        let ranges = if self.geometry.features.incompat.contains(Incompat::FLEX_BG) {
            let flex = group.get() >> self.geometry.flex_shift << self.geometry.flex_shift;
            let flex = self.geometry.first_block(GroupNr::new(flex)).get();
            [flex..end, u64::from(self.geometry.first_data_block)..end]
        } else {
            [own..own_end, 0..0]
        };
        for range in ranges {
            if let Some(at) = self.first_fit(range, len)? {
                return Ok(BlockNr::new(at));
            }
        }
        let what = format!("the metadata of group {group} ({len} blocks in one piece)");
        Err(Error::NoSpace { what, missing: len })
    }

    /// Takes the places of a new group.
    fn group(&mut self, group: GroupNr, wish: GroupMeta) -> Result<GroupMeta> {
        let table = u64::from(self.geometry.itable_blocks());
        Ok(GroupMeta {
            block_bitmap: self.find(group, Some(wish.block_bitmap), 1)?,
            inode_bitmap: self.find(group, Some(wish.inode_bitmap), 1)?,
            inode_table: self.find(group, Some(wish.inode_table), table)?,
        })
    }
}

/// The groups of the volume in the shape of `new`: those it has, and new ones, of which nothing is marked or
/// written yet.
pub(crate) fn groups(volume: &mut Volume, new: &SuperBlock) -> Result<Vec<GroupDesc>> {
    let geometry = new.geometry();
    let (old, count) = (metadata::count(&volume.groups), geometry.groups());
    let mut groups = volume.groups.clone();
    groups.truncate(hectare_units::usize_of(count));
    if count <= old {
        return Ok(groups);
    }
    hectare_units::memory::reserve(&mut groups, hectare_units::usize_of(count - old))?;
    let layout = Layout::new(geometry.clone(), 0, false)?;
    let (mut cursor, lazy) = (layout.cursor(), new.features().group_checksums());
    let mut places = Places::new(volume, geometry, &groups, RangeSet::new());
    for nr in (old..count).map(GroupNr::new) {
        let meta = places.group(nr, cursor.meta(nr)?)?;
        groups.push(GroupDesc {
            block_bitmap: meta.block_bitmap,
            inode_bitmap: meta.inode_bitmap,
            inode_table: meta.inode_table,
            free_clusters: 0,
            free_inodes: geometry.inodes_per_group,
            used_dirs: 0,
            itable_unused: if lazy { geometry.inodes_per_group } else { 0 },
            flags: if lazy { GroupFlags::INODE_UNINIT } else { GroupFlags::empty() },
            block_bitmap_csum: 0,
            inode_bitmap_csum: 0,
        });
    }
    Ok(groups)
}
