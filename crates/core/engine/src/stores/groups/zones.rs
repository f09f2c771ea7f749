//! Which blocks hold the volume's own metadata, so that no map that lies leads there.
//!
//! The zones of a flex group (copies of the superblock and of descriptors, bitmaps and inode tables of its
//! groups) are collected on first use, from its descriptors. They do not change while a volume is open.
//!
//! Hazard: metadata that lies outside the flex group of its owner, as on volumes that were grown in odd ways,
//! is not found; a broken descriptor adds nothing. So this is a net, not a proof.
//!
//! What it is not: protection of what files own (directories, trees, attribute blocks), which only a check of
//! the whole volume can compare.

use super::Groups;
use super::flex::flex_groups;
use hectare_units::{BlockNr, GroupNr, OnceTable};
use std::ops::Range;

/// The zones of a volume, by flex group.
pub(super) struct Zones {
    flexes: OnceTable<Box<[Range<u64>]>>,
}

impl Zones {
    pub(super) fn new(flexes: u32) -> Self {
        Self { flexes: OnceTable::new(flexes) }
    }
}

impl Groups {
    /// The first block of metadata among `len` blocks from `first` on, if there is one.
    pub(crate) fn metadata_in(&self, first: BlockNr, len: u32) -> Option<BlockNr> {
        let geometry = self.sb.geometry();
        let run = first.get()..first.get().saturating_add(len.into());
        let last = BlockNr::new(run.end.saturating_sub(1));
        let size = flex_groups(geometry);
        let flexes = geometry.group_of(first)?.get() / size..=geometry.group_of(last)?.get() / size;
        flexes
            .into_iter()
            .find_map(|flex| {
                let zones = self.zones.flexes.get_or_init(flex, || self.zones_of(flex * size, size));
                let next = zones.partition_point(|zone| zone.end <= run.start);
                zones.get(next).filter(|zone| zone.start < run.end).map(|zone| zone.start.max(run.start))
            })
            .map(BlockNr::new)
    }

    /// The zones of some groups, in order and apart.
    fn zones_of(&self, first: u32, count: u32) -> Box<[Range<u64>]> {
        let geometry = self.sb.geometry();
        let mut zones = Vec::new();
        let mut add = |start: BlockNr, len: u32| zones.push(start.get()..start.get() + u64::from(len));
        for group in (first..first.saturating_add(count).min(geometry.groups())).map(GroupNr::new) {
            add(geometry.first_block(group), geometry.base_meta_blocks(group));
            if let Ok(desc) = self.desc(group) {
                add(desc.block_bitmap, 1);
                add(desc.inode_bitmap, 1);
                add(desc.inode_table, geometry.itable_blocks());
            }
        }
        zones.retain(|zone| !zone.is_empty());
        zones.sort_unstable_by_key(|zone| zone.start);
        zones.dedup_by(|next, before| {
            let joins = next.start <= before.end;
            if joins {
                before.end = before.end.max(next.end);
            }
            joins
        });
        zones.into()
    }
}

#[cfg(test)]
mod tests {
    use crate::OpenOptions;
    use crate::open::assemble::tests::unformatted;
    use hectare_units::{BlockNr, GroupNr};

    #[test]
    fn metadata_is_found_at_either_end_of_a_run() {
        let state = unformatted(OpenOptions::default()).state;
        let base = state.geometry().base_meta_blocks(GroupNr::new(0));
        let first = state.geometry().first_block(GroupNr::new(0));
        assert_eq!(state.groups.metadata_in(first, 1), Some(first));
        let last = BlockNr::new(first.get() + u64::from(base) - 1);
        assert_eq!(state.groups.metadata_in(last, 5), Some(last));
        assert_eq!(state.groups.metadata_in(BlockNr::new(u64::MAX), 5), None);
    }
}
