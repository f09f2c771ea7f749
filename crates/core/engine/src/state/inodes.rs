//! Finds inodes: in the cache, or in their slots of the inode table.
//!
//! A broken slot is recorded as an error of the volume only if the bitmap says that the inode is in use: a
//! made-up number may lead to any content.

use crate::error::{Error, Result};
use crate::state::State;
use crate::stores::block_cache::Kind as BlockKind;
use crate::stores::inode_cache::{CachedInode, Home};
use hectare_ext4::error::Place;
use hectare_ext4::feature::Compat;
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::quota::Kind as QuotaKind;
use hectare_units::{Blocks, InodeNr, usize_of};
use std::sync::Arc;

impl State {
    /// Whether an inode belongs to the format (the journal, the orphan file...), so that no name may lead to
    /// it.
    pub(crate) fn is_special(&self, nr: InodeNr) -> bool {
        let orphan_file = self.sb.features().compat.contains(Compat::ORPHAN_FILE)
            && nr.get() == self.sb.raw().s_orphan_file_inum.get();
        let project_quota = self.sb.quota_inode(QuotaKind::Project) == Some(nr);
        orphan_file || project_quota || (nr != InodeNr::ROOT && nr < self.sb.first_inode())
    }

    /// The directory, not freed.
    pub(crate) fn directory(&self, nr: InodeNr) -> Result<Arc<CachedInode>> {
        let inode = self.inode(nr)?;
        if inode.get().kind() != Some(Kind::Directory) {
            return Err(Error::NotADirectory);
        }
        Ok(inode)
    }

    /// The inode, read if it is not in memory.
    pub(crate) fn inode(&self, nr: InodeNr) -> Result<Arc<CachedInode>> {
        let inode = self.inodes.load(nr, || {
            let (inode, home) = self.read_slot(nr)?;
            if inode.links == 0 && !(nr.get() < self.sb.first_inode().get() && inode.mode != 0) {
                return Err(Error::NotFound);
            }
            Ok((inode, home))
        })?;
        inode.check_alive()?;
        Ok(inode)
    }

    /// The content of an inode's slot, also of an inode without links, and its location.
    pub(crate) fn read_slot(&self, nr: InodeNr) -> Result<(Inode, Home)> {
        let home = self.inode_home(nr)?;
        let (block, slot) = &home;
        let inode = Inode::parse(&block.bytes()[slot.clone()], nr, &self.sb).map_err(|error| {
            let error = Error::from(error);
            // A made-up number may lead to any content.
            if self.groups.inode_in_use(nr).unwrap_or(false) {
                self.findings.note_at(&error, Some(block.nr()));
            }
            error
        })?;
        Ok((inode, home))
    }

    /// The block of the inode table and the range in it where an inode lives.
    pub(crate) fn inode_home(&self, nr: InodeNr) -> Result<Home> {
        let (group, index) = self.groups.slot(nr)?;
        let table = self.groups.desc(group)?.inode_table;
        let geometry = self.geometry();
        let per_block = geometry.inodes_per_block();
        let block = table + Blocks::new(u64::from(index / per_block));
        let at = usize_of(index % per_block * geometry.inode_size);
        let loaded = if self.groups.slot_never_written(group, index)? {
            self.blocks.load_zeros(block)
        } else {
            self.blocks.load(block, BlockKind::Plain, Place::Inode(nr))?
        };
        Ok((loaded, at..at + usize_of(geometry.inode_size)))
    }
}
