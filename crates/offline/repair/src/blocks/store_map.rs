//! Writes a map anew from its extents.

use crate::error::Error;
use crate::know::map::{Map, joined};
use crate::know::slot::Slot;
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::extent::{self, Built, Extent};
use hectare_ext4::indirect;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, ClusterNr, LogicalBlock, low32};
use std::collections::BTreeSet;

impl Work<'_> {
    /// Writes the map of an inode into its slot and into nodes elsewhere, so that the old map holds until the
    /// slot is written, which this does not do. Only where no space is left do nodes take the blocks of
    /// `map.nodes`; where that ends, so does the file.
    pub(crate) fn store_map(&mut self, slot: &mut Slot, map: &mut Map) -> Result<(), Error> {
        let extents = slot.has(InodeFlags::EXTENTS);
        map.extents = joined(&map.extents);
        let mut old = self.node_blocks(map);
        let mut blocks = Vec::new();
        let built = loop {
            let need =
                self.build(slot, &map.extents, extents, &mut std::iter::repeat(BlockNr::new(1))).nodes.len();
            while blocks.len() < need {
                let fresh = self.take_fresh_cluster().map(|cluster| self.geometry().cluster_start(cluster));
                let Some(block) = fresh.or_else(|| old.pop()).or_else(|| self.take_block()) else { break };
                blocks.push(block);
            }
            if blocks.len() >= need {
                for spare in blocks.drain(need..).chain(old.drain(..)) {
                    let cluster = self.geometry().cluster_of(spare);
                    self.release_cluster(cluster);
                }
                break self.build(slot, &map.extents, extents, &mut blocks.iter().copied());
            }
            let given_up = map.extents.len() / 2;
            self.lost(What::Map, Place::Inode(slot.nr), "no space for its map: the end of it is cut off");
            for extent in map.extents.split_off(given_up) {
                self.release_extent(&extent);
            }
        };
        for (nr, bytes) in &built.nodes {
            self.put_block(*nr, bytes)?;
        }
        map.nodes = blocks;
        slot.raw().i_block = built.root;
        Ok(())
    }

    /// The first block of a free cluster.
    fn take_block(&mut self) -> Option<BlockNr> {
        self.take_cluster().map(|cluster| self.geometry().cluster_start(cluster))
    }

    /// The blocks of the old map that may be used again: one in each cluster.
    fn node_blocks(&self, map: &mut Map) -> Vec<BlockNr> {
        let mut seen = BTreeSet::new();
        let mut blocks = std::mem::take(&mut map.nodes);
        blocks.retain(|block| seen.insert(self.geometry().cluster_of(*block)));
        blocks
    }

    fn build(
        &self,
        slot: &Slot,
        list: &[Extent],
        extents: bool,
        next: &mut dyn Iterator<Item = BlockNr>,
    ) -> Built {
        let size = self.geometry().block_size;
        let mut next = || next.next().expect("as many blocks as were counted");
        if extents {
            let seed = self.sb.seed().map(|seed| seed.inode(slot.nr, slot.view().raw.i_generation.get()));
            extent::build(list, size, seed, &mut next)
        } else {
            let reach = indirect::reach(size);
            let within: Vec<Extent> = list.iter().filter(|extent| extent.end() <= reach).copied().collect();
            indirect::build(&within, size, &mut next)
        }
    }

    /// Gives the clusters of an extent back.
    pub(crate) fn release_extent(&mut self, extent: &Extent) {
        for cluster in self.clusters_of(extent) {
            self.release_cluster(cluster);
        }
    }

    /// The clusters that an extent lies in.
    pub(crate) fn clusters_of(&self, extent: &Extent) -> impl Iterator<Item = ClusterNr> + use<> {
        let first = self.geometry().cluster_of(extent.physical).get();
        let last = BlockNr::new(extent.physical.get() + u64::from(extent.len) - 1);
        (first..=self.geometry().cluster_of(last).get()).map(ClusterNr::new)
    }

    /// Clusters that a map takes, its own blocks included.
    pub(crate) fn map_clusters(&self, map: &Map) -> u64 {
        let shift = self.geometry().cluster_ratio_shift;
        let (mut count, mut last) = (0, None);
        for extent in &map.extents {
            let first = u64::from(extent.logical.get()) >> shift;
            let end = (extent.end() - 1) >> shift;
            count += end - first + 1 - u64::from(last == Some(first));
            last = Some(end);
        }
        count + hectare_units::u64_of(map.nodes.len())
    }

    /// Copies the content of an extent's blocks to another place.
    pub(crate) fn copy_blocks(&self, from: BlockNr, to: BlockNr, len: u32) -> Result<(), Error> {
        for i in 0..u64::from(len) {
            let bytes = self.block(BlockNr::new(from.get() + i))?;
            self.put_block(BlockNr::new(to.get() + i), &bytes)?;
        }
        Ok(())
    }
}

/// An extent that maps one block.
pub(crate) fn one_block(logical: u64, physical: BlockNr, unwritten: bool) -> Extent {
    Extent { logical: LogicalBlock::new(low32(logical)), len: 1, physical, unwritten }
}
