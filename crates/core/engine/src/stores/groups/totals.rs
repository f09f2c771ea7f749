//! The free space of a volume as a whole, without reading the descriptors of all its groups.
//!
//! The superblock of a cleanly closed volume has both numbers: closing it writes them last. While a volume is
//! in use they may be as old as its last opening (the kernel keeps its own in memory), and a journal only
//! brings back those it holds. So after a crash, and wherever the superblock reports an error, all
//! descriptors are read and added up once, as the kernel does at every mount; those that are broken or can't
//! be read count as empty. Nothing of that is kept in memory.
//!
//! A superblock may be wrong although it says it is clean. Then the numbers are corrected when all groups
//! have been read, which on small volumes is at once; and no request is refused because of them.

use super::{Groups, desc_range};
use crate::error::Result;
use hectare_ext4::group::GroupDesc;
use hectare_ext4::superblock::{STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_units::{GroupNr, low32, usize_of};
use std::ops::Range;

/// What is free in some groups.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Free {
    pub(crate) clusters: u64,
    pub(crate) inodes: u64,
}

impl Free {
    /// The free space that a superblock records; `None` if it is not reliable. The journal, if there is one,
    /// is known not to be needed.
    pub(super) fn of_clean(sb: &SuperBlock) -> Option<Self> {
        let geometry = sb.geometry();
        let clean = sb.state() & (STATE_VALID | STATE_ERROR) == STATE_VALID;
        clean.then(|| Self {
            clusters: sb.free_blocks().get() >> geometry.cluster_ratio_shift,
            inodes: sb.raw().s_free_inodes_count.get().min(geometry.inodes_count()).into(),
        })
    }

    fn add(&mut self, more: Self) {
        self.clusters += more.clusters;
        self.inodes += more.inodes;
    }

    fn of(desc: &GroupDesc) -> Self {
        Self { clusters: desc.free_clusters.into(), inodes: desc.free_inodes.into() }
    }
}

impl Groups {
    /// What is free in some groups according to their descriptors; broken ones count as empty.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn count_free(&self, groups: Range<u32>) -> Result<Free> {
        let per = self.sb.geometry().descs_per_block();
        let mut free = Free::default();
        let mut bytes = vec![0; self.sb.geometry().block_size.len()];
        let last = groups.end.div_ceil(per);
        for index in groups.start / per..last {
            let first = index * per;
            let within = groups.start.max(first)..groups.end.min(first.saturating_add(per));
            self.read_desc_block(index, &mut bytes)?;
            if self.desc_blocks.get(index).is_some() {
                // It may have changed; and during a commit the device's copy means nothing.
                let descs = within.map(|nr| self.desc(GroupNr::new(nr)));
                descs.flatten().for_each(|desc| free.add(Free::of(&desc)));
            } else {
                let slot = |nr: u32| &bytes[desc_range(nr - first, self.sb.geometry().desc_size)];
                let descs = within.map(|nr| GroupDesc::parse(slot(nr), GroupNr::new(nr), &self.sb));
                descs.flatten().for_each(|desc| free.add(Free::of(&desc)));
            }
        }
        Ok(free)
    }

    /// Like [`Self::count_free`], for all groups whose descriptors can be read; operations that need the
    /// others report the error.
    pub(super) fn count_readable(&self) -> Free {
        let (groups, per) = (self.sb.geometry().groups(), self.sb.geometry().descs_per_block());
        let mut free = Free::default();
        for first in (0..groups).step_by(usize_of(per)) {
            let counted = self.count_free(first..first.saturating_add(per).min(groups));
            free.add(counted.unwrap_or_default());
        }
        free
    }

    /// Free inodes of all groups. A volume has fewer than 2^32.
    pub(crate) fn free_inodes(&self) -> u32 {
        low32(self.flex.free_inodes())
    }
}
