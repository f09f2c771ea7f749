//! An image read through the structures under test.

use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, usize_of};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) struct Volume {
    file: File,
    pub(crate) sb: SuperBlock,
}

impl Volume {
    pub(crate) fn open(image: &Path) -> Self {
        let file = File::open(image).unwrap();
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, 1024).unwrap();
        let device = Bytes::new(file.metadata().unwrap().len());
        let sb = SuperBlock::parse(&bytes, device).unwrap_or_else(|error| panic!("{error}"));
        Self { file, sb }
    }

    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn offset(&self, block: BlockNr) -> u64 {
        block.offset(self.sb.geometry().block_size).get()
    }

    pub(crate) fn block(&self, block: BlockNr) -> Vec<u8> {
        self.read(self.offset(block), self.sb.geometry().block_size.len())
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupNr> + use<> {
        (0..self.sb.geometry().groups()).map(GroupNr::new)
    }

    /// Where the group's descriptor lies.
    pub(crate) fn desc_at(&self, group: GroupNr) -> u64 {
        let geometry = self.sb.geometry();
        let (index, within) =
            (group.get() / geometry.descs_per_block(), group.get() % geometry.descs_per_block());
        self.offset(geometry.desc_block(index)) + u64::from(within * geometry.desc_size)
    }

    pub(crate) fn desc_slot(&self, group: GroupNr) -> Vec<u8> {
        self.read(self.desc_at(group), usize_of(self.sb.geometry().desc_size))
    }

    pub(crate) fn desc(&self, group: GroupNr) -> GroupDesc {
        GroupDesc::parse(&self.desc_slot(group), group, &self.sb).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Where the inode's slot lies.
    pub(crate) fn inode_at(&self, nr: InodeNr) -> u64 {
        let geometry = self.sb.geometry();
        let (group, index) = geometry.inode_slot(nr).unwrap();
        self.offset(self.desc(group).inode_table) + u64::from(index) * u64::from(geometry.inode_size)
    }

    pub(crate) fn inode_slot(&self, nr: InodeNr) -> Vec<u8> {
        self.read(self.inode_at(nr), usize_of(self.sb.geometry().inode_size))
    }

    /// The inodes that the bitmaps have in use.
    pub(crate) fn used_inodes(&self) -> Vec<InodeNr> {
        let mut used = Vec::new();
        for group in self.groups() {
            let desc = self.desc(group);
            if desc.flags.contains(GroupFlags::INODE_UNINIT) {
                continue;
            }
            let bitmap = self.block(desc.inode_bitmap);
            let is_used = |index: &u32| bitmap[usize_of(index / 8)] >> (index % 8) & 1 == 1;
            let inodes = (0..self.sb.geometry().inodes_per_group).filter(is_used);
            used.extend(inodes.map(|index| self.sb.geometry().inode_at(group, index)));
        }
        used
    }
}
