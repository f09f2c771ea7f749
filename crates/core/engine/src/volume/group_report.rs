//! Reports a volume's groups: descriptors, bitmaps, free runs.
//!
//! For reports (`info`, `freefrag`, `map`), not for allocation: everything is read from the device as the
//! last commit left it, so on a volume that is being written the numbers are slightly old, each group's
//! separately. A broken descriptor or bitmap is an error for its group, not for the report.
//!
//! With `bigalloc` a bit of a block bitmap stands for a cluster; runs are always reported in blocks.

use crate::error::Result;
use crate::stores::groups::Source;
use crate::volume::Volume;
use hectare_alloc::{BadTunable, GroupSource, StatsSnapshot, Tunables};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Compat;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_units::{BlockNr, Blocks, GroupNr, u64_of, usize_of};
use std::ops::Range;
use std::sync::Arc;

/// What is known of one group without its bitmaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupReport {
    /// Its number.
    pub group: GroupNr,
    /// Its first block.
    pub first_block: BlockNr,
    /// Its blocks; only the last group may have fewer than the others.
    pub blocks: u32,
    /// Its clusters; the same as its blocks without `bigalloc`.
    pub clusters: u32,
    /// The descriptor.
    pub desc: GroupDesc,
    /// The block of its superblock copy, if it has one.
    pub superblock: Option<BlockNr>,
    /// The descriptor blocks it holds, primary or copies.
    pub descriptors: Option<Range<BlockNr>>,
    /// The descriptor blocks it reserves for growing.
    pub reserved_descriptors: Option<Range<BlockNr>>,
    /// Blocks of every group's inode table.
    pub itable_blocks: u32,
}

/// The runs of zero bits among the first `len`.
#[must_use]
pub fn zero_runs(bitmap: &[u64], len: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (index, word) in bitmap.iter().enumerate() {
        let base = u64_of(index) * 64;
        let mut at = 0u32;
        while at < 64 && base + u64::from(at) < len {
            let used = (word >> at).trailing_ones().min(64 - at);
            at += used;
            if at == 64 || base + u64::from(at) >= len {
                break;
            }
            let free = (word >> at).trailing_zeros().min(64 - at);
            let run = base + u64::from(at)..(base + u64::from(at + free)).min(len);
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
            at += free;
        }
    }
    runs
}

impl Volume {
    /// Number of groups.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        self.core().state.geometry().groups()
    }

    /// The allocator's counters since the volume was opened; [`StatsSnapshot::text`] prints them in the
    /// layout of the kernel's `mb_stats`.
    #[must_use]
    pub fn allocator_stats(&self) -> StatsSnapshot {
        self.core().state.allocator.stats()
    }

    /// The current tunables of the search for space.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.core().state.allocator.tunables()
    }

    /// Sets tunables, each as `NAME=VALUE`, for every allocation that begins from now on; all or none.
    ///
    /// # Errors
    /// If there is none of that name, or a value is no number or out of bounds.
    pub fn set_tunables<'a>(
        &self,
        given: impl IntoIterator<Item = &'a str>,
    ) -> std::result::Result<(), BadTunable> {
        self.core().state.allocator.set_tunables(given)
    }

    /// How contended the locks of groups are, from 0 to 8; above 2 the volume counts as busy, under policies
    /// that use it.
    #[must_use]
    pub fn contention(&self) -> u32 {
        self.core().state.allocator.contention()
    }

    /// Units (flex groups, or groups) without a size class, then those of each, from the smallest sizes on.
    /// `None` under policies without classes.
    #[must_use]
    pub fn class_units(&self) -> Option<Vec<u32>> {
        self.core().state.allocator.class_counts()
    }

    /// How many groups have free chunks and average free runs of which order, in the layout of the kernel's
    /// `mb_structs_summary`.
    #[must_use]
    pub fn allocator_structs(&self) -> String {
        self.core().state.allocator.structs_summary()
    }

    /// What is known of a group without its bitmaps.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if its descriptor is broken or there is no such group.
    pub fn group_report(&self, group: GroupNr) -> Result<GroupReport> {
        self.check_group(group)?;
        let geometry = self.core().state.geometry();
        let (superblock, descriptors, reserved_descriptors) = self.base_metadata(group);
        Ok(GroupReport {
            group,
            first_block: geometry.first_block(group),
            blocks: geometry.blocks_in(group),
            clusters: geometry.clusters_in(group),
            desc: self.core().state.groups.desc(group)?,
            superblock,
            descriptors,
            reserved_descriptors,
            itable_blocks: geometry.itable_blocks(),
        })
    }

    /// The block bitmap of a group, 64 clusters a word, the lowest in bit 0; set = in use. Bits beyond the
    /// group's last cluster mean nothing.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] for a broken descriptor or checksum, [`crate::Error::Device`].
    pub fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        self.check_group(group)?;
        Source::new(Arc::clone(&self.core().state.groups)).load(group)
    }

    /// The inode bitmap of a group, 64 inodes a word, the lowest in bit 0; set = in use. Bits beyond the
    /// group's last inode mean nothing.
    ///
    /// # Errors
    /// As [`Self::block_bitmap`].
    pub fn inode_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        self.check_group(group)?;
        let (geometry, desc) = (self.core().state.geometry(), self.core().state.groups.desc(group)?);
        let mut bytes = vec![0; geometry.block_size.len()];
        let unwritten = desc.flags.contains(GroupFlags::INODE_UNINIT)
            && self.core().state.sb.features().group_checksums();
        if !unwritten {
            self.core().state.device.read_at(desc.inode_bitmap.offset(geometry.block_size), &mut bytes)?;
            desc.verify_inode_bitmap(&bytes, group, &self.core().state.sb)?;
        }
        let words = usize_of(geometry.inodes_per_group.div_ceil(64));
        Ok(bytes.as_chunks::<8>().0.iter().take(words).map(|chunk| u64::from_le_bytes(*chunk)).collect())
    }

    /// The free runs of a group, in order.
    ///
    /// # Errors
    /// As [`Self::block_bitmap`].
    pub fn free_runs(&self, group: GroupNr) -> Result<Vec<Range<BlockNr>>> {
        let bitmap = self.block_bitmap(group)?;
        let geometry = self.core().state.geometry();
        let (first, end) = (
            geometry.first_block(group),
            geometry.first_block(group).get() + u64::from(geometry.blocks_in(group)),
        );
        let block =
            |cluster: u64| BlockNr::new((first.get() + (cluster << geometry.cluster_ratio_shift)).min(end));
        let clusters = u64::from(geometry.clusters_in(group));
        Ok(zero_runs(&bitmap, clusters).into_iter().map(|run| block(run.start)..block(run.end)).collect())
    }

    fn check_group(&self, group: GroupNr) -> Result<()> {
        if group.get() < self.core().state.geometry().groups() {
            return Ok(());
        }
        Err(Corrupt::new("a group number", Place::Group(group), "there is no such group").into())
    }

    /// Where the group holds a superblock, descriptor blocks and the reserve for more of them.
    fn base_metadata(
        &self,
        group: GroupNr,
    ) -> (Option<BlockNr>, Option<Range<BlockNr>>, Option<Range<BlockNr>>) {
        let geometry = self.core().state.geometry();
        let superblock = geometry.has_super(group).then(|| geometry.super_block(group));
        let end = geometry.first_block(group) + Blocks::new(geometry.base_meta_blocks(group).into());
        let start = superblock.map_or(geometry.first_block(group), |block| block + Blocks::ONE);
        if start >= end {
            return (superblock, None, None);
        }
        let reserve = if geometry.features.compat.contains(Compat::RESIZE_INODE) && superblock.is_some() {
            u64::from(geometry.reserved_gdt_blocks)
        } else {
            0
        };
        let cut = BlockNr::new(end.get().saturating_sub(reserve).max(start.get()));
        let some = |range: Range<BlockNr>| (range.start < range.end).then_some(range);
        (superblock, some(start..cut), some(cut..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_runs_join_over_words_and_end_with_the_length() {
        assert_eq!(zero_runs(&[0, 0], 100), vec![Range { start: 0, end: 100 }]);
        assert_eq!(zero_runs(&[!0, !0], 128), [] as [Range<u64>; 0]);
        assert_eq!(zero_runs(&[1 | 1 << 63, 0b10], 70), [1..63, 64..65, 66..70]);
        assert_eq!(zero_runs(&[!(3 << 62), !1], 128), vec![Range { start: 62, end: 65 }]);
        assert_eq!(zero_runs(&[0], 0), [] as [Range<u64>; 0]);
        let alternating: Vec<_> = (0..32).map(|i| 2 * i..2 * i + 1).collect();
        assert_eq!(zero_runs(&[0xaaaa_aaaa_aaaa_aaaa], 64), alternating);
    }
}
