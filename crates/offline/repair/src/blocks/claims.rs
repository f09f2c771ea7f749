//! Blocks with two owners: the first that claims a cluster keeps it, the later one gets a copy.
//!
//! Claims are made while inodes are read, after the volume's own metadata: first by inodes whose map is sound
//! and as large as they count, then by the others, each in ascending order; one broken extent may reach over
//! half of the volume. Copies are made afterwards, when it is known which clusters are free. Where no cluster
//! is left, or copies are not wanted, the later owner loses what it shares.

use crate::blocks::store_map::one_block;
use crate::error::Error;
use crate::know::map::Map;
use crate::know::noted::Conflict;
use crate::know::slot::Slot;
use crate::know::work::Work;
use crate::report::Duplicates;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::Kind;
use hectare_units::{BlockNr, ClusterNr, InodeNr, low32, memory};
use std::collections::{BTreeMap, BTreeSet};

impl Work<'_> {
    /// Claims everything a map holds, and notes what was taken; a map that is broken is made anew later, too.
    pub(crate) fn claim_map(&mut self, slot: &Slot, map: &Map, extra: u64, cut: Option<u64>) {
        let mut conflict = Conflict { extra, cut, ..Conflict::default() };
        for node in &map.nodes {
            let cluster = self.geometry().cluster_of(*node).get();
            if self.used.claim(cluster..cluster + 1).is_some() {
                conflict.nodes.insert(node.get());
            }
        }
        for block in &map.foreign {
            let cluster = self.geometry().cluster_of(*block).get();
            self.foreign.claim(cluster..cluster + 1);
        }
        let may_share = slot.kind() == Some(Kind::File);
        let mut last = None;
        for extent in &map.extents {
            last = self.claim_extent(extent, last, may_share, &mut conflict.clusters);
        }
        let anew = map.broken.is_some() || cut.is_some();
        if anew || !conflict.clusters.is_empty() || !conflict.nodes.is_empty() {
            self.conflicts.insert(slot.nr.get(), conflict);
        }
    }

    /// Claims the clusters of an extent; `last` is the last cluster before it, in the file and on the volume.
    fn claim_extent(
        &mut self,
        extent: &Extent,
        mut last: Option<(u64, u64)>,
        may_share: bool,
        taken: &mut BTreeSet<u64>,
    ) -> Option<(u64, u64)> {
        let shift = self.geometry().cluster_ratio_shift;
        let mask = u64::from(self.geometry().cluster_blocks() - 1);
        let aligned = u64::from(extent.logical.get()) & mask == extent.physical.get() & mask;
        let first = self.geometry().cluster_of(extent.physical).get();
        let (from, to) = (u64::from(extent.logical.get()) >> shift, (extent.end() - 1) >> shift);
        if !aligned {
            taken.extend(from..=to);
            return Some((to, u64::MAX));
        }
        for logical in from..=to {
            let cluster = first + (logical - from);
            match last.filter(|(file, _)| *file == logical) {
                Some((_, volume)) if volume == cluster => {}
                Some(_) => drop(taken.insert(logical)),
                None => {
                    if !self.claim_cluster(cluster, may_share) {
                        taken.insert(logical);
                    }
                }
            }
            last = Some((logical, cluster));
        }
        last
    }

    fn claim_cluster(&mut self, cluster: u64, may_share: bool) -> bool {
        let free = self.used.claim(cluster..cluster + 1).is_none();
        match &mut self.shared {
            Some(shared) if may_share => {
                let with_data = shared.claim(cluster..cluster + 1).is_some();
                free || with_data
            }
            _ => free,
        }
    }

    /// Claims the translators of inodes of the Hurd after all that is mapped; one that lies in something else
    /// gets a copy of its own.
    fn claim_translators(&mut self) -> Result<(), Error> {
        let mut taken = Vec::new();
        for nr in std::mem::take(&mut self.translators) {
            let Some(slot) = self.slot(nr)? else { continue };
            let block = slot.view().translator(&self.sb);
            let cluster = self.geometry().cluster_of(BlockNr::new(block)).get();
            let old = self.holds(block).then_some(BlockNr::new(block));
            if old.is_none() || self.used.claim(cluster..cluster + 1).is_some() {
                memory::reserve(&mut taken, 1)?;
                taken.push((nr, old));
            }
        }
        for (nr, old) in taken {
            let Some(mut slot) = self.slot(nr)? else { continue };
            let new = old.and_then(|_| self.take_for_copy()).map(|new| self.geometry().cluster_start(new));
            let (what, place) = (What::SharedBlock, Place::Inode(nr));
            match (old, new) {
                (Some(old), Some(new)) => {
                    self.copy_blocks(old, new, 1)?;
                    self.mended(what, place, "its translator lies in something else: copied for it");
                }
                (Some(_), None) => {
                    let text = "its translator lies in something else, and there is no copy of it: cleared";
                    self.lost(what, place, text);
                }
                (None, _) => self.lost(what, place, "its translator can't lie there: cleared"),
            }
            slot.raw().i_version_lo = low32(new.map_or(0, BlockNr::get)).into();
            self.put_slot(&mut slot)?;
        }
        Ok(())
    }

    /// Gives every later owner its own copy.
    pub(crate) fn resolve_claims(&mut self) -> Result<(), Error> {
        self.claim_translators()?;
        for (nr, conflict) in std::mem::take(&mut self.conflicts) {
            let Some(mut slot) = self.slot(InodeNr::new(nr))? else { continue };
            let mut map = self.read_map(&slot)?;
            if let Some(cut) = conflict.cut {
                map.cut(cut);
            }
            self.relocate(&slot, &mut map, &conflict)?;
            map.nodes.retain(|node| !conflict.nodes.contains(&node.get()));
            self.store_map(&mut slot, &mut map)?;
            let clusters = self.map_clusters(&map) + conflict.extra;
            self.set_block_count(&mut slot, clusters);
            self.put_slot(&mut slot)?;
        }
        Ok(())
    }

    /// A cluster for a copy of one that belongs to something else, too; `None` without space, or if there are
    /// to be no copies.
    pub(crate) fn take_for_copy(&mut self) -> Option<ClusterNr> {
        match self.options.duplicates {
            Duplicates::Clone => self.take_cluster(),
            Duplicates::Delete => None,
        }
    }

    /// Moves the clusters that belong to something else.
    fn relocate(&mut self, slot: &Slot, map: &mut Map, conflict: &Conflict) -> Result<(), Error> {
        let (shift, ratio) =
            (self.geometry().cluster_ratio_shift, u64::from(self.geometry().cluster_blocks()));
        let (mut places, mut copied, mut cut) = (BTreeMap::new(), 0u64, 0u64);
        let mut kept = Vec::new();
        for extent in std::mem::take(&mut map.extents) {
            if !touches(&extent, shift, &conflict.clusters) {
                kept.push(extent);
                continue;
            }
            for i in 0..u64::from(extent.len) {
                let logical = u64::from(extent.logical.get()) + i;
                let old = BlockNr::new(extent.physical.get() + i);
                let cluster = logical >> shift;
                if !conflict.clusters.contains(&cluster) {
                    kept.push(one_block(logical, old, extent.unwritten));
                    continue;
                }
                let place = *places.entry(cluster).or_insert_with(|| self.take_for_copy());
                let Some(place) = place else {
                    cut += 1;
                    continue;
                };
                let new = BlockNr::new(self.geometry().cluster_start(place).get() + logical % ratio);
                if !extent.unwritten {
                    self.copy_blocks(old, new, 1)?;
                }
                copied += 1;
                kept.push(one_block(logical, new, extent.unwritten));
            }
        }
        map.extents = kept;
        let place = Place::Inode(slot.nr);
        if copied > 0 || !conflict.nodes.is_empty() {
            let text =
                format!("{copied} of its blocks belong to something else, too: they are copied for it");
            self.mended(What::SharedBlock, place, text);
        }
        if cut > 0 {
            let why = match self.options.duplicates {
                Duplicates::Clone => "there is no space to copy them",
                Duplicates::Delete => "it gives them up",
            };
            let text = format!("{cut} of its blocks belong to something else, and {why}");
            self.lost(What::SharedBlock, place, text);
        }
        Ok(())
    }
}

/// Whether an extent has a cluster of a set.
fn touches(extent: &Extent, shift: u32, clusters: &BTreeSet<u64>) -> bool {
    let (from, to) = (u64::from(extent.logical.get()) >> shift, (extent.end() - 1) >> shift);
    clusters.range(from..=to).next().is_some()
}
