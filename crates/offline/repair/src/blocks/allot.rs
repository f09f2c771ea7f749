//! Gives a file blocks, of those that are free.

use crate::error::Error;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::work::Work;
use hectare_ext4::extent::Extent;
use hectare_units::{ClusterNr, LogicalBlock, low32, u64_of};
use std::collections::BTreeSet;

impl Work<'_> {
    /// Gives a file exactly so many blocks, those it has first; false, and nothing changed, if there is no
    /// space. Sets map, size and count, and does not write the slot.
    pub(crate) fn allot(&mut self, slot: &mut Slot, map: &mut Map, blocks: usize) -> Result<bool, Error> {
        let need = blocks.div_ceil(1 << self.geometry().cluster_ratio_shift);
        let mut clusters = self.data_clusters(map);
        let had = clusters.len();
        while clusters.len() < need {
            let Some(cluster) = self.take_cluster() else {
                clusters.drain(had..).collect::<Vec<_>>().into_iter().for_each(|c| self.release_cluster(c));
                return Ok(false);
            };
            clusters.push(cluster);
        }
        clusters.drain(need..).collect::<Vec<_>>().into_iter().for_each(|c| self.release_cluster(c));
        self.lay_in(&clusters, slot, map, blocks)?;
        Ok(true)
    }

    /// As [`Work::allot`], but elsewhere, so that what is there holds until the slot is written; only where
    /// there is no space for that, in the same place.
    pub(crate) fn allot_anew(
        &mut self,
        slot: &mut Slot,
        map: &mut Map,
        blocks: usize,
    ) -> Result<bool, Error> {
        let need = blocks.div_ceil(1 << self.geometry().cluster_ratio_shift);
        let mut clusters = Vec::new();
        while clusters.len() < need {
            let Some(cluster) = self.take_fresh_cluster() else {
                clusters.into_iter().for_each(|c| self.release_cluster(c));
                return self.allot(slot, map, blocks);
            };
            clusters.push(cluster);
        }
        self.data_clusters(map).into_iter().for_each(|c| self.release_cluster(c));
        self.lay_in(&clusters, slot, map, blocks)?;
        Ok(true)
    }

    /// The clusters that a file's content lies in, once each.
    pub(crate) fn data_clusters(&self, map: &Map) -> Vec<ClusterNr> {
        let mut seen = BTreeSet::new();
        let all = map.extents.iter().flat_map(|extent| self.clusters_of(extent));
        all.filter(|cluster| seen.insert(*cluster)).collect()
    }

    /// Gives a file these clusters, in this order.
    fn lay_in(
        &mut self,
        clusters: &[ClusterNr],
        slot: &mut Slot,
        map: &mut Map,
        blocks: usize,
    ) -> Result<(), Error> {
        let shift = self.geometry().cluster_ratio_shift;
        let ratio = 1u64 << shift;
        map.extents = clusters
            .iter()
            .enumerate()
            .map(|(i, cluster)| {
                let logical = u64_of(i) << shift;
                Extent {
                    logical: LogicalBlock::new(low32(logical)),
                    len: low32(ratio.min(u64_of(blocks) - logical)),
                    physical: self.geometry().cluster_start(*cluster),
                    unwritten: false,
                }
            })
            .collect();
        self.store_map(slot, map)?;
        slot.set_size(u64_of(blocks) << self.geometry().block_size.shift());
        let clusters = self.map_clusters(map);
        self.set_block_count(slot, clusters);
        Ok(())
    }
}
