//! Giving out and taking back inodes.
//!
//! One plain rule for now: a file goes into its directory's group, a directory into its parent's group unless
//! the parent is the root, whose directories spread over the flex groups with the most free inodes; when that
//! group is full, into the next that has room. (The allocator issue brings Orlov's placement.)

use crate::cache::inode::CachedInode;
use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_ext4::inode::{Inode, Kind};
use hectare_journal::Handle;
use hectare_units::{GroupNr, InodeNr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Groups looked at to find a place for a new directory under the root.
const SPREAD_MAX: u32 = 64;

impl Volume {
    /// Makes an inode in a free slot. It has no links yet and is not in any directory.
    pub(crate) fn new_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: InodeNr,
        mut inode: Inode,
    ) -> Result<Arc<CachedInode>> {
        let directory = inode.kind() == Some(Kind::Directory);
        let nr = self.take_inode(parent, directory)?;
        self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        inode.generation = self.arbitrary();
        let home = self.inode_home(nr)?;
        let cached = self.inodes.insert_new(nr, inode, home);
        drop(cached.edit(handle, &self.inodes));
        Ok(cached)
    }

    fn take_inode(&self, parent: InodeNr, directory: bool) -> Result<InodeNr> {
        let groups = self.geometry().groups();
        let start = self.starting_group(parent, directory)?;
        for step in 0..groups {
            let group = GroupNr::new((start.get() + step) % groups);
            if let Some(nr) = self.groups.take_inode(group, directory)? {
                return Ok(nr);
            }
        }
        Err(Error::NoInodes)
    }

    fn starting_group(&self, parent: InodeNr, directory: bool) -> Result<GroupNr> {
        let (group, _) = self.groups.slot(parent)?;
        if !directory || parent != InodeNr::ROOT {
            return Ok(group);
        }
        let step = self.geometry().flex_groups();
        let mut best = (0, group);
        for flex in (0..self.geometry().groups())
            .step_by(hectare_units::usize_of(step))
            .take(hectare_units::usize_of(SPREAD_MAX))
        {
            let candidate = GroupNr::new(flex);
            let free = self.groups.desc(candidate)?.free_inodes;
            if free > best.0 {
                best = (free, candidate);
            }
        }
        Ok(best.1)
    }

    /// Frees an inode whose content is gone. The caller holds its operation lock.
    pub(crate) fn free_inode(&self, handle: &mut Handle<'_>, inode: &Arc<CachedInode>) -> Result<()> {
        let directory = {
            let now = self.now();
            let mut data = inode.edit(handle, &self.inodes);
            let directory = data.kind() == Some(Kind::Directory);
            data.dtime = hectare_units::low32(now.seconds.max(1).cast_unsigned());
            data.links = 0;
            data.size = 0;
            directory
        };
        self.groups.free_inode(inode.nr(), directory)?;
        self.free_inodes.fetch_add(1, Ordering::Relaxed);
        inode.mark_freed();
        Ok(())
    }
}
