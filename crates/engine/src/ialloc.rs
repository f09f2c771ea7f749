//! Allocates and frees inodes.
//!
//! A file goes into its directory's group, so that what is listed together is read together; when that group
//! is full, into the one that served the directory last, another group of the same flex group, one found by
//! probing, or any. A directory goes where [`orlov`] puts it, into the first group of that flex group with a
//! free inode: directories lie close together, and leave the groups their files grow into.
//!
//! Nothing here walks the groups: [`crate::stores::groups::flex`] keeps sums over flex groups, and reads a
//! flex group on first use; so each rule but the last examines a bounded number of them. The last resort goes
//! over all flex groups, and searches only those with free inodes. While nothing is freed, that finds the
//! last free inode however many threads search.

mod orlov;

use crate::error::{Error, Result};
use crate::stores::fs_errors::Watched;
use crate::stores::groups::Taken;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_journal::Handle;
use hectare_units::{GroupNr, InodeNr};
use orlov::{Shape, Totals};
use std::ops::Range;
use std::sync::Arc;

impl Volume {
    /// Makes an inode in a free slot. It has no links yet and is in no directory.
    pub(crate) fn new_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: InodeNr,
        mut inode: Inode,
    ) -> Result<Arc<CachedInode>> {
        let directory = inode.kind() == Some(Kind::Directory);
        let taken = if directory { self.take_for_directory(parent)? } else { self.take_for_file(parent)? };
        let Taken { nr, fresh_block } = taken.ok_or(Error::NoInodes)?;
        // Kept until the inode has found it in the cache.
        let _fresh = fresh_block.map(|block| self.blocks.load_zeros(block));
        let home = match self.inode_home(nr) {
            Ok(home) => home,
            Err(error) => {
                self.groups.free_inode(nr, directory)?;
                return Err(error);
            }
        };
        inode.generation = self.arbitrary();
        let cached = self.inodes.insert_new(nr, inode, home);
        drop(cached.edit(handle, &self.inodes));
        Ok(cached)
    }

    /// Allocates an inode for anything but a directory.
    fn take_for_file(&self, parent: InodeNr) -> Result<Option<Taken>> {
        let groups = &self.groups;
        let (home, _) = groups.slot(parent)?;
        if let Some(taken) = groups.take_inode(home, false)? {
            return Ok(Some(taken));
        }
        let recent = groups.recent().get(parent).filter(|group| groups.has_inodes(*group));
        let near = || self.flex_from(home).find(|group| groups.has_inodes(*group));
        let probe = || {
            orlov::probes(self.geometry().groups(), home.get(), parent.get())
                .map(GroupNr::new)
                .find(|group| groups.has_room(*group))
        };
        if let Some(group) = recent.or_else(near).or_else(probe)
            && let Some(taken) = groups.take_inode(group, false)?
        {
            groups.recent().set(parent, group);
            return Ok(Some(taken));
        }
        let taken = self.take_anywhere(groups.flex().of(home), false)?;
        if let Some(taken) = taken {
            groups.recent().set(parent, groups.slot(taken.nr)?.0);
        }
        Ok(taken)
    }

    /// Allocates an inode for a directory.
    fn take_for_directory(&self, parent: InodeNr) -> Result<Option<Taken>> {
        let flex = self.groups.flex();
        let (home, _) = self.groups.slot(parent)?;
        let home = flex.of(home);
        let shape = self.shape();
        // One that can't be read is not a candidate.
        let counts = |nr| self.groups.flex_counts(nr).unwrap_or_default();
        if self.begins_trees(parent)? {
            let start = if flex.count() == 1 { 0 } else { self.arbitrary() % flex.count() };
            let chosen = shape.top_directory(start, counts).or_else(|| shape.any(start, counts));
            return self.take_anywhere(chosen.unwrap_or(home), true);
        }
        let start = self.groups.recent().get(parent).map_or(home, |group| flex.of(group));
        let chosen = shape.subdirectory(home, start, counts).or_else(|| shape.any(start, counts));
        let taken = self.take_anywhere(chosen.unwrap_or(home), true)?;
        if let Some(taken) = taken {
            let (group, _) = self.groups.slot(taken.nr)?;
            if flex.of(group) != home {
                self.groups.recent().set(parent, group);
            }
        }
        Ok(taken)
    }

    /// Whether the subdirectories of a directory are unrelated to each other.
    fn begins_trees(&self, directory: InodeNr) -> Result<bool> {
        if directory == InodeNr::ROOT {
            return Ok(true);
        }
        Ok(self.inode(directory)?.get().flags.contains(InodeFlags::TOPDIR))
    }

    fn shape(&self) -> Shape {
        let (geometry, flex) = (self.geometry(), self.groups.flex());
        Shape {
            flexes: flex.count(),
            inodes: u64::from(geometry.inodes_per_group) * u64::from(flex.size()),
            clusters: u64::from(geometry.clusters_per_group) * u64::from(flex.size()),
            totals: Totals {
                free_inodes: self.groups.free_inodes().into(),
                free_clusters: flex.free_clusters(),
                directories: flex.directories(),
            },
        }
    }

    /// The groups of a group's flex group, from that one on and around.
    fn flex_from(&self, group: GroupNr) -> impl Iterator<Item = GroupNr> {
        let flex = self.groups.flex();
        let nr = flex.of(group);
        let has_inodes = self.groups.flex_counts(nr).is_ok_and(|counts| counts.free_inodes > 0);
        let Range { start, end } = if has_inodes { flex.groups(nr) } else { 0..0 };
        (group.get()..end).chain(start..group.get().min(end)).map(GroupNr::new)
    }

    /// Allocates the first free inode from a flex group on.
    fn take_anywhere(&self, start: u32, directory: bool) -> Result<Option<Taken>> {
        let mut unreadable = None;
        for flex in (start..self.groups.flex().count()).chain(0..start) {
            let taken = match self.groups.flex_counts(flex) {
                Ok(counts) if counts.free_inodes > 0 => self.take_in(flex, directory)?,
                Ok(_) => None,
                Err(error) => {
                    unreadable.get_or_insert(error);
                    None
                }
            };
            if taken.is_some() {
                return Ok(taken);
            }
        }
        // If not all groups were readable, it is unknown whether there is none.
        unreadable.map_or(Ok(None), Err)
    }

    /// Allocates the first free inode of a flex group.
    fn take_in(&self, flex: u32, directory: bool) -> Result<Option<Taken>> {
        for group in self.groups.flex().groups(flex).map(GroupNr::new) {
            if self.groups.has_inodes(group)
                && let Some(taken) = self.groups.take_inode(group, directory)?
            {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Frees an inode that has no content any more. The caller holds its operation lock.
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
        self.groups.free_inode(inode.nr(), directory).watched(&self.findings)?;
        inode.mark_freed();
        Ok(())
    }
}
