//! The allocator's source of bitmaps: the volume's block bitmaps, by way of the group descriptors.
//!
//! A bitmap that was never written (`BLOCK_UNINIT`) is made from what the format puts into the group; any
//! other is read and verified, neighbours in one read. Nothing here changes a group:
//! [`Groups::seal_block_bitmap`] takes the way back.
//!
//! Hazard: this is called with a group's lock held in the allocator, and must not call back into it.

use super::Groups;
use crate::error::{Error, Result};
use hectare_alloc::{AllocError, GroupSource, Loaded};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, BlockSize, Blocks, Clusters, GroupNr, usize_of};
use std::ops::Range;
use std::sync::Arc;

/// The volume's groups as the allocator sees them.
pub(crate) struct Source {
    groups: Arc<Groups>,
}

impl Source {
    pub(crate) fn new(groups: Arc<Groups>) -> Self {
        Self { groups }
    }
}

impl Source {
    fn size(&self) -> BlockSize {
        self.groups.sb.geometry().block_size
    }

    /// Whether a group's bitmap was never written; it is then known without reading it.
    fn is_unwritten(&self, desc: &GroupDesc) -> bool {
        desc.flags.contains(GroupFlags::BLOCK_UNINIT) && self.groups.sb.features().group_checksums()
    }

    /// A bitmap that was never written.
    fn synthesize(&self, desc: &GroupDesc, group: GroupNr) -> Vec<u64> {
        let mut bytes = vec![0; self.size().len()];
        mark_own_metadata(&mut bytes, desc, group, &self.groups.sb);
        self.words(&bytes)
    }

    /// A bitmap as it was read.
    fn verified(&self, desc: &GroupDesc, group: GroupNr, bytes: &[u8]) -> Result<Vec<u64>> {
        desc.verify_block_bitmap(bytes, group, &self.groups.sb)?;
        Ok(self.words(bytes))
    }

    fn words(&self, bytes: &[u8]) -> Vec<u64> {
        let words = self.groups.sb.geometry().clusters_per_group.div_ceil(64);
        bytes
            .chunks_exact(8)
            .take(usize_of(words))
            .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("chunks of 8")))
            .collect()
    }

    /// Reads the bitmaps of groups whose locations on the device are contiguous. If that fails, each is read
    /// separately, so that only the broken ones are lost.
    fn read_run(&self, run: &[(GroupNr, GroupDesc)]) -> Loaded<Error> {
        let Some((_, first)) = run.first() else { return Vec::new() };
        let size = self.size();
        let mut bytes = vec![0; run.len() * size.len()];
        let read = self.groups.metadata.read_at(first.block_bitmap.offset(size), &mut bytes);
        run.iter()
            .zip(bytes.chunks_exact(size.len()))
            .map(|((group, desc), bytes)| match read {
                Ok(()) => (*group, self.verified(desc, *group, bytes)),
                Err(_) => (*group, self.load(*group)),
            })
            .collect()
    }
}

/// The most bitmaps read at once.
const BITMAPS_MAX: usize = 256;

impl GroupSource for Source {
    type Error = Error;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>> {
        let desc = self.groups.desc(group)?;
        if self.is_unwritten(&desc) {
            return Ok(self.synthesize(&desc, group));
        }
        let mut bytes = vec![0; self.size().len()];
        self.groups.metadata.read_at(desc.block_bitmap.offset(self.size()), &mut bytes)?;
        self.verified(&desc, group, &bytes)
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        // A broken descriptor has nothing to give; `load` returns the reason when the group is needed.
        self.groups.desc(group).map_or(0, |desc| desc.free_clusters)
    }

    fn free_total(&self) -> Option<Clusters> {
        Some(Clusters::new(self.groups.flex.free_clusters()))
    }

    fn together(&self) -> u32 {
        self.groups.sb.geometry().descs_per_block()
    }

    fn prepare(&self, groups: Range<u32>) -> Result<()> {
        self.groups.prepare(groups)
    }

    fn count_free(&self, groups: Range<u32>) -> Result<u64> {
        Ok(self.groups.count_free(groups)?.clusters)
    }

    fn own_metadata(&self, group: GroupNr) -> u32 {
        let geometry = self.groups.sb.geometry();
        // Blocks in this group may belong to any of its flex group, whose metadata is collected here. With
        // one too large to be scanned, groups that hold others' metadata never count as wholly free.
        let size = super::flex::flex_groups(geometry);
        let first = group.get() / size * size;
        let mates = first..first.saturating_add(size).min(geometry.groups());
        let mut bytes = vec![0; geometry.block_size.len()];
        for mate in mates.map(GroupNr::new) {
            if let Ok(desc) = self.groups.desc(mate) {
                mark_tables(&mut bytes, &desc, group, &self.groups.sb);
            }
        }
        mark_blocks(
            &mut bytes,
            geometry.first_block(group),
            geometry.base_meta_blocks(group),
            group,
            &self.groups.sb,
        );
        bytes.iter().map(|byte| byte.count_ones()).sum()
    }

    fn unusable(&self, group: GroupNr, error: &AllocError<Error>) {
        // A broken descriptor was recorded when it was read.
        let Ok(desc) = self.groups.desc(group) else { return };
        let (structure, place) = ("the block bitmap", Place::Group(group));
        let note = |error| self.groups.findings.note_read(error, structure, place, desc.block_bitmap);
        match error {
            AllocError::Source(error) => note(error),
            other => note(&Corrupt::new(structure, place, other.to_string()).into()),
        }
    }

    fn needs_io(&self, group: GroupNr) -> bool {
        !self.groups.desc(group).is_ok_and(|desc| self.is_unwritten(&desc))
    }

    fn load_many(&self, groups: Range<u32>) -> Loaded<Error> {
        let mut loaded = Vec::new();
        let mut run: Vec<(GroupNr, GroupDesc)> = Vec::new();
        for group in groups.map(GroupNr::new) {
            let desc = match self.groups.desc(group) {
                Ok(desc) if self.is_unwritten(&desc) => {
                    loaded.push((group, Ok(self.synthesize(&desc, group))));
                    continue;
                }
                Ok(desc) => desc,
                Err(error) => {
                    loaded.push((group, Err(error)));
                    continue;
                }
            };
            let follows =
                run.last().is_some_and(|(_, last)| last.block_bitmap + Blocks::ONE == desc.block_bitmap);
            if !follows || run.len() == BITMAPS_MAX {
                loaded.extend(self.read_run(&run));
                run.clear();
            }
            run.push((group, desc));
        }
        loaded.extend(self.read_run(&run));
        loaded
    }
}

/// Marks what is in use in a group whose bitmap was never written: its base metadata, and those of its own
/// bitmaps and inode table that lie in it.
fn mark_own_metadata(bitmap: &mut [u8], desc: &GroupDesc, group: GroupNr, sb: &SuperBlock) {
    let geometry = sb.geometry();
    mark_blocks(bitmap, geometry.first_block(group), geometry.base_meta_blocks(group), group, sb);
    mark_tables(bitmap, desc, group, sb);
    for cluster in geometry.clusters_in(group)..geometry.clusters_per_group {
        bitmap[usize_of(cluster / 8)] |= 1 << (cluster % 8);
    }
}

/// Marks those of the bitmaps and the inode table named by a descriptor that lie in a group.
fn mark_tables(bitmap: &mut [u8], desc: &GroupDesc, group: GroupNr, sb: &SuperBlock) {
    mark_blocks(bitmap, desc.block_bitmap, 1, group, sb);
    mark_blocks(bitmap, desc.inode_bitmap, 1, group, sb);
    mark_blocks(bitmap, desc.inode_table, sb.geometry().itable_blocks(), group, sb);
}

/// Marks those of some blocks that lie in a group.
fn mark_blocks(bitmap: &mut [u8], start: BlockNr, len: u32, group: GroupNr, sb: &SuperBlock) {
    let geometry = sb.geometry();
    let first = geometry.first_block(group).get();
    let end = (first + u64::from(geometry.blocks_in(group))).min(start.get().saturating_add(len.into()));
    for block in start.get().max(first)..end {
        let cluster = hectare_units::index_of((block - first) >> geometry.cluster_ratio_shift);
        bitmap[cluster / 8] |= 1 << (cluster % 8);
    }
}

#[cfg(test)]
mod tests {
    use crate::{OpenOptions, Overwrite, Volume};
    use hectare_alloc::GroupSource;
    use hectare_device::{Device, MemoryDevice};
    use hectare_mkfs::FormatOptions;
    use hectare_units::{Bytes, GroupNr};
    use std::sync::Arc;

    #[test]
    fn the_groups_of_a_fresh_volume_hold_little_but_their_own_metadata() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(3 << 10)));
        let format = FormatOptions::default();
        let volume =
            Volume::format(device, &format, Overwrite::Refuse, OpenOptions::default()).expect("it is empty");
        let (source, layout) =
            (volume.core().state.allocator.source(), volume.core().state.allocator.layout());
        let (mut whole, mut unread, mut own_sum) = (0, 0, 0);
        let groups = 0..layout.groups();
        let together = source.load_many(groups.clone());
        assert_eq!(together.len(), groups.len());
        for group in groups.clone().map(GroupNr::new) {
            let words = source.load(group).expect("it can be read");
            let (_, same) = together.iter().find(|(nr, _)| *nr == group).expect("all were read");
            assert_eq!(same.as_ref().ok(), Some(&words), "group {group}, read with others");
            let len = layout.group_len(group);
            let free = (0..len).filter(|at| words[*at as usize / 64] >> (at % 64) & 1 == 0).count();
            let used = len - u32::try_from(free).expect("no more than the group holds");
            let own = source.own_metadata(group);
            assert!(own <= used, "group {group} has {used} in use, {own} of its own");
            whole += u32::from(own == used);
            unread += u32::from(!source.needs_io(group));
            own_sum += own;
        }
        // The root directory, lost+found and the journal are in one or two groups.
        let groups = groups.end;
        assert!(whole >= groups - 2 && whole < groups, "{whole} of {groups} are whole");
        assert!(unread > groups / 2, "{unread} of {groups} need no reading");
        assert!(own_sum > groups * 500, "inode tables are metadata: {own_sum}");
    }
}
