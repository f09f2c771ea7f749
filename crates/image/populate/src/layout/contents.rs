//! A laid-out tree as the formatter sees it: the inodes and clusters in use in each group.

use super::inode::Inodes;
use super::kept::clipped;
use crate::tree::{Kind, NodeId};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::Inode;
use hectare_ext4::quota::{self, Record};
use hectare_mkfs::{Contents, GroupUse, count_inode, set_bits};
use hectare_units::{BlockNr, GroupNr, InodeNr, low32, u64_of, usize_of};
use std::collections::BTreeMap;
use std::ops::Range;

/// A tree to fill a volume with.
pub(crate) struct TreeContents<'a> {
    inodes: &'a Inodes<'a>,
    /// Directories in each group that holds any inode of the tree.
    directories: Vec<u32>,
    /// The numbers, less one, of the tree's inodes but the root's, as runs.
    runs: Vec<Range<u64>>,
}

impl<'a> TreeContents<'a> {
    pub(crate) fn new(inodes: &'a Inodes<'a>) -> Self {
        let geometry = inodes.volume.sb.geometry();
        let mut directories = Vec::new();
        let tree = inodes.load.tree;
        let own = |id: &NodeId| Some(*id) != inodes.load.stand_in;
        for id in tree.ids().filter(own).filter(|id| matches!(tree.kind(*id), Kind::Directory)) {
            let group = usize_of((inodes.volume.inode_of(id).get() - 1) / geometry.inodes_per_group);
            if directories.len() <= group {
                directories.resize(group + 1, 0);
            }
            directories[group] += 1;
        }
        let runs = match &inodes.load.kept {
            Some(kept) => kept.runs().to_vec(),
            None => {
                let first = u64::from(inodes.volume.first_inode.get() - 1);
                std::iter::once(first..first + inodes.load.inodes()).collect()
            }
        };
        Self { inodes, directories, runs }
    }

    fn geometry(&self) -> &Geometry {
        self.inodes.volume.sb.geometry()
    }

    /// The runs of indexes of the group's inode table that the tree's nodes (but the root) have.
    fn slots(&self, group: GroupNr) -> impl Iterator<Item = Range<u32>> + '_ {
        let per_group = u64::from(self.geometry().inodes_per_group);
        let start = u64::from(group.get()) * per_group;
        clipped(&self.runs, start..start + per_group)
    }

    fn used_in(&self, group: GroupNr) -> impl Iterator<Item = Range<u64>> + '_ {
        let geometry = self.geometry();
        let start = geometry.first_block(group).get();
        let end = start + u64::from(geometry.blocks_in(group));
        let used = self.inodes.layout.used();
        let first = used.partition_point(|range| range.end <= start);
        used[first..]
            .iter()
            .map(move |range| range.start.max(start)..range.end.min(end))
            .take_while(|range| range.start < range.end)
    }

    fn holds_root(&self, group: GroupNr) -> Option<u32> {
        let (home, index) = self.geometry().inode_slot(InodeNr::ROOT)?;
        (home == group).then_some(index)
    }

    fn render(&self, id: NodeId, slot: &mut [u8]) {
        self.inodes.get(id).render(slot, self.inodes.volume.inode_of(id), self.inodes.volume.sb);
    }
}

impl Contents for TreeContents<'_> {
    /// Gives lost+found what the tree's own has: permissions, owner and attributes.
    fn lost_and_found(&self, nr: InodeNr, slot: &mut [u8]) {
        let Some(id) = self.inodes.load.stand_in else { return };
        let (tree, sb) = (self.inodes.load.tree, self.inodes.volume.sb);
        let mut inode = Inode::parse(slot, nr, sb).expect("the formatter has rendered it");
        let meta = tree.meta(id);
        inode.mode = inode.mode & !0o7777 | meta.mode;
        (inode.uid, inode.gid) = (meta.uid, meta.gid);
        if let Some(set) = tree.xattr_set(id) {
            // Without values in inodes of their own.
            inode.xattr_area_mut().copy_from_slice(self.inodes.load.attributes.inode_area(set));
        }
        inode.render(slot, nr, sb);
    }

    fn count(&self, kind: quota::Kind, used: &mut BTreeMap<u32, Record>) {
        for id in self.inodes.load.tree.ids().filter(|id| Some(*id) != self.inodes.load.stand_in) {
            let (load, set) = (self.inodes.load, self.inodes.load.tree.xattr_set(id));
            let holders = set.map_or(0, |set| u64_of(load.attributes.values_of(set).len()));
            count_inode(kind, &self.inodes.get(id), holders, used);
        }
    }

    fn usage(&self, group: GroupNr) -> GroupUse {
        let end = self.slots(group).last().map_or(0, |slots| slots.end);
        let root = self.holds_root(group).map_or(0, |index| index + 1);
        GroupUse {
            clusters: self.used_in(group).next().is_some()
                || self.geometry().group_of(self.inodes.volume.root_block) == Some(group),
            inodes_end: end.max(root),
            directories: self.directories.get(group.index()).copied().unwrap_or(0),
        }
    }

    fn mark_inodes(&self, group: GroupNr, bitmap: &mut [u8]) {
        for slots in self.slots(group) {
            set_bits(bitmap, slots.start, slots.end - slots.start);
        }
        if let Some(index) = self.holds_root(group) {
            set_bits(bitmap, index, 1);
        }
    }

    fn mark_clusters(&self, group: GroupNr, bitmap: &mut [u8]) {
        let geometry = self.geometry();
        let first = geometry.cluster_of(geometry.first_block(group));
        for range in self.used_in(group) {
            let start = geometry.cluster_of(BlockNr::new(range.start)) - first;
            let end = geometry.cluster_of(BlockNr::new(range.end - 1)) - first;
            set_bits(bitmap, low32(start.get()), low32(end.get() - start.get() + 1));
        }
    }

    fn render_inodes(&self, group: GroupNr, first: u32, slots: &mut [u8]) {
        let size = usize_of(self.geometry().inode_size);
        let nodes = self.inodes.load.tree.len() + self.inodes.load.attributes.values().len();
        for (index, slot) in (first..).zip(slots.chunks_exact_mut(size)) {
            let nr = self.geometry().inode_at(group, index);
            if let Some(id) = self.inodes.volume.node_of(nr, nodes) {
                self.render(id, slot);
            }
        }
    }
}
