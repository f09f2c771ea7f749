//! The memory and the free space of a volume in use, for its operator.
//!
//! Nothing here does I/O, except [`Volume::free_runs_now`] of a group whose bitmap was not needed yet, and
//! nothing waits for a commit. Sharded counters are read one shard after the other, so a number is of about
//! one moment.
//!
//! Not here: what was counted since the volume was opened ([`crate::volume::group_report`],
//! [`Volume::journal_stats`]).

use crate::error::Result;
use crate::stores::volume_journal::VolumeLog;
use crate::volume::Volume;
use hectare_alloc::Run;
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr};
use std::ops::Range;

/// The memory of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Metadata blocks in memory.
    pub cached_blocks: usize,
    /// Those of them that the next commit writes.
    pub dirty_blocks: usize,
    /// Inodes in memory.
    pub cached_inodes: usize,
    /// Those of them that the next commit writes.
    pub dirty_inodes: usize,
    /// Groups whose block bitmap is in memory.
    pub loaded_groups: usize,
    /// Bytes that were appended to files and are not allocated yet.
    pub delayed_bytes: usize,
    /// Blocks that the journal holds and that are not yet at their final locations.
    pub journal_blocks: usize,
    /// Space that is free, but only after the next commit.
    pub pending: Bytes,
    /// Space that is reserved or preallocated for what is being written and will be written next.
    pub reserved: Bytes,
}

impl Volume {
    /// The memory of the volume.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let counts = self.core().state.allocator.counts();
        let cluster = self.core().state.geometry().cluster_bytes();
        let bytes = |clusters: u64| Bytes::new(clusters.saturating_mul(cluster));
        Gauges {
            cached_blocks: self.core().state.blocks.len(),
            dirty_blocks: self.core().state.blocks.dirty_blocks(),
            cached_inodes: self.core().state.inodes.len(),
            dirty_inodes: self.core().state.inodes.dirty_inodes(),
            loaded_groups: self.core().state.allocator.loaded_groups(),
            delayed_bytes: self.core().state.delay.bytes(),
            journal_blocks: self.core().state.log.as_ref().map_or(0, VolumeLog::pending),
            pending: bytes(counts.pending.get()),
            reserved: bytes(counts.reserved.get().saturating_add(counts.claimed.get())),
        }
    }

    /// Why the volume accepts no more changes, if something has failed; one line.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        let aborted = self.core().journal.check().err().map(|aborted| aborted.reason().to_owned());
        aborted.or_else(|| self.core().state.findings.stop().map(str::to_owned))
    }

    /// Calls `visit` with every group in order, and the bytes free in it as far as is known without loading
    /// it; takes no lock.
    pub fn for_each_free(&self, mut visit: impl FnMut(GroupNr, Bytes)) {
        let cluster = self.core().state.geometry().cluster_bytes();
        self.core()
            .state
            .allocator
            .for_each_group(|group, free| visit(group, Bytes::new(u64::from(free).saturating_mul(cluster))));
    }

    /// The free runs of a group in memory, uncommitted changes included, in order.
    ///
    /// # Errors
    /// As [`Self::block_bitmap`].
    pub fn free_runs_now(&self, group: GroupNr) -> Result<Vec<Range<BlockNr>>> {
        let geometry = self.core().state.geometry();
        // The last cluster of a volume may be incomplete.
        let end = BlockNr::new(geometry.blocks_count.get());
        let run = |run: Run| {
            let start = geometry.cluster_start(run.start);
            start..(start + Blocks::new(run.len.get() << geometry.cluster_ratio_shift)).min(end)
        };
        Ok(self.core().state.allocator.free_runs(group)?.into_iter().map(run).collect())
    }
}
