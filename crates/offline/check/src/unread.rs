//! Inodes in the part of a table that its descriptor says holds none, where something leads to one.
//!
//! That part is not read: what lies there may be left from an earlier volume. So a count of unused inodes that
//! is too large, or a flag that is set too early, hides inodes in use. The group is noted for a repair, which
//! reads all of its table before it takes anything for lost.

use crate::context::Scan;
use crate::raw_inode::RawInode;
use hectare_ext4::group::GroupFlags;
use hectare_units::{Bytes, InodeNr, usize_of};

impl Scan<'_> {
    /// The group of an inode that something leads to and that is not known to be in use, if it was not read
    /// and looks like one in use. One that can't be read is none.
    pub(crate) fn unread_group(&self, nr: InodeNr) -> Option<u32> {
        let geometry = self.volume.geometry();
        let (group, index) = geometry.inode_slot(nr)?;
        let desc = self.groups.get(group.index())?;
        let used = geometry.inodes_per_group - desc.itable_unused.min(geometry.inodes_per_group);
        let lazy = self.volume.sb.features().group_checksums();
        if !lazy || !self.group_flag(desc, GroupFlags::INODE_UNINIT) && index < used {
            return None;
        }
        let within = Bytes::new(u64::from(index) * u64::from(geometry.inode_size));
        let mut slot = vec![0; usize_of(geometry.inode_size)];
        let at = desc.inode_table.offset(geometry.block_size) + within;
        self.volume.device.read_at(at, &mut slot).ok()?;
        let inode = RawInode::new(&slot)?;
        let is_sound = self.volume.sb.seed().is_none_or(|seed| inode.wrong_checksum(nr, seed).is_none());
        (is_sound && inode.links() > 0 && inode.kind().is_some()).then_some(group.get())
    }

    /// Notes the group of such an inode.
    pub(crate) fn note_unread(&mut self, nr: InodeNr) {
        self.report.digest.unread.extend(self.unread_group(nr));
    }
}
