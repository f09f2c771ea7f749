//! The contents of a volume that is filled while it is formatted.
//!
//! Every bitmap, descriptor and inode-table block is written once, in final form, so the contents (an image
//! builder's) must be able to say what lies in each group when that group is rendered. The formatter
//! keeps for itself the reserved inodes, lost+found and the orphan file ([`crate::Plan::first_free_inode`]
//! comes after them), and the clusters of its own files; the contents have the root directory (inode 2),
//! every inode from the first free one on, and any cluster that [`crate::Plan::space`] names.
//!
//! Invariants the contents keep: inodes are numbered so that [`GroupUse::inodes_end`] is exact; clusters
//! marked are free ones; the root directory has an entry for lost+found and counts it as a link. The blocks
//! themselves (file data, directories) are the contents' own to write, before or after; small ones can be
//! handed to the formatter through [`Contents::blocks`].

use super::options::FormatOptions;
use super::system_inodes;
use hectare_ext4::inode::Inode;
use hectare_ext4::quota::{self, Record};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, GroupNr, InodeNr, usize_of};
use std::collections::BTreeMap;

/// What the contents have in one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupUse {
    /// Whether any cluster of the group is used, or a block of it handed over ([`Contents::blocks`]).
    pub clusters: bool,
    /// The index after the last inode used in the group; 0 for none.
    pub inodes_end: u32,
    /// How many of the inodes are directories.
    pub directories: u32,
}

/// What fills a volume. Called from several threads, for each group once or more, in no particular order.
pub trait Contents: Sync {
    /// What lies in a group.
    fn usage(&self, group: GroupNr) -> GroupUse;

    /// Sets the bits of the group's used inodes. Called only where [`GroupUse::inodes_end`] is not 0.
    fn mark_inodes(&self, group: GroupNr, bitmap: &mut [u8]);

    /// Sets the bits of the group's used clusters. Called only where [`GroupUse::clusters`] is set.
    fn mark_clusters(&self, group: GroupNr, bitmap: &mut [u8]);

    /// Renders a piece of the group's inode table: `slots` holds whole inodes, zeroed, of which the first has
    /// index `first` in the group. Slots of inodes that belong to others are left alone.
    fn render_inodes(&self, group: GroupNr, first: u32, slots: &mut [u8]);

    /// Changes the formatter's own lost+found, already rendered in `slot`, which has this number.
    fn lost_and_found(&self, nr: InodeNr, slot: &mut [u8]) {
        let _ = (nr, slot);
    }

    /// Adds what inodes use to what each id uses, of the contents' own inodes: not of lost+found. Called only
    /// for volumes with quotas of that kind, whose options name all the ids.
    fn count(&self, kind: quota::Kind, used: &mut BTreeMap<u32, Record>) {
        let _ = (kind, used);
    }

    /// Hands over blocks of the group for the formatter to write. Called only where [`GroupUse::clusters`] is
    /// set.
    fn blocks(&self, group: GroupNr, write: &mut dyn FnMut(BlockNr, &[u8])) {
        let _ = (group, write);
    }
}

/// Counts an inode for its owner, group or project, and so many others that hold values of its attributes.
pub fn count_inode(kind: quota::Kind, inode: &Inode, holders: u64, used: &mut BTreeMap<u32, Record>) {
    let id = match kind {
        quota::Kind::User => inode.uid,
        quota::Kind::Group => inode.gid,
        quota::Kind::Project => inode.projid,
    };
    let record = used.entry(id).or_default();
    record.space.used += inode.sectors << 9;
    record.inodes.used += 1 + holders;
}

/// Sets `len` bits of a bitmap from `start` on.
///
/// # Panics
/// If they lie beyond the bitmap.
pub fn set_bits(bitmap: &mut [u8], start: u32, len: u32) {
    let (mut at, end) = (start, start + len);
    while at < end && !at.is_multiple_of(8) {
        bitmap[usize_of(at / 8)] |= 1 << (at % 8);
        at += 1;
    }
    let whole = (end - at) / 8;
    bitmap[usize_of(at / 8)..usize_of(at / 8 + whole)].fill(0xff);
    for bit in at + 8 * whole..end {
        bitmap[usize_of(bit / 8)] |= 1 << (bit % 8);
    }
}

/// An empty volume: a root directory that holds lost+found.
#[derive(Debug)]
pub struct Empty {
    inode: Inode,
    root: Vec<u8>,
    /// The group and the index of its inode.
    home: Option<(GroupNr, u32)>,
    block: BlockNr,
    /// The group of its block.
    block_home: Option<GroupNr>,
    content: Vec<u8>,
}

impl Empty {
    pub(crate) fn new(options: &FormatOptions, sb: &SuperBlock, root_block: u64) -> Self {
        let (inode, content): (Inode, _) = system_inodes::empty_root(options, sb, root_block);
        let mut root = vec![0; usize_of(sb.geometry().inode_size)];
        inode.render(&mut root, InodeNr::ROOT, sb);
        let (geometry, block) = (sb.geometry(), BlockNr::new(root_block));
        let (home, block_home) = (geometry.inode_slot(InodeNr::ROOT), geometry.group_of(block));
        Self { inode, root, home, block, block_home, content }
    }

    fn holds_root_inode(&self, group: GroupNr) -> Option<u32> {
        let (home, index) = self.home?;
        (home == group).then_some(index)
    }

    fn holds_root_block(&self, group: GroupNr) -> bool {
        self.block_home == Some(group)
    }
}

impl Contents for Empty {
    fn usage(&self, group: GroupNr) -> GroupUse {
        let inode = self.holds_root_inode(group);
        GroupUse {
            clusters: self.holds_root_block(group),
            inodes_end: inode.map_or(0, |index| index + 1),
            directories: u32::from(inode.is_some()),
        }
    }

    fn mark_inodes(&self, group: GroupNr, bitmap: &mut [u8]) {
        if let Some(index) = self.holds_root_inode(group) {
            set_bits(bitmap, index, 1);
        }
    }

    /// Nothing: the formatter keeps the place of the first root block.
    fn mark_clusters(&self, _: GroupNr, _: &mut [u8]) {}

    fn render_inodes(&self, group: GroupNr, first: u32, slots: &mut [u8]) {
        let at = self.holds_root_inode(group).and_then(|index| index.checked_sub(first)).map(usize_of);
        let size = self.root.len();
        if let Some(slot) = at.and_then(|at| slots.get_mut(at * size..(at + 1) * size)) {
            slot.copy_from_slice(&self.root);
        }
    }

    fn count(&self, kind: quota::Kind, used: &mut BTreeMap<u32, Record>) {
        count_inode(kind, &self.inode, 0, used);
    }

    fn blocks(&self, group: GroupNr, write: &mut dyn FnMut(BlockNr, &[u8])) {
        if self.holds_root_block(group) {
            write(self.block, &self.content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_across_byte_borders() {
        for start in 0..20 {
            for len in 0..30 {
                let mut bitmap = [0; 8];
                set_bits(&mut bitmap, start, len);
                let bits = u64::from_le_bytes(bitmap);
                assert_eq!(bits, ((1u64 << len) - 1) << start, "{start} {len}");
            }
        }
    }
}
