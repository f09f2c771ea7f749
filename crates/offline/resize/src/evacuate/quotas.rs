//! Keeps the quota files true: a map that was built anew may have more or fewer blocks.

use super::Evacuation;
use crate::error::{Error, Result};
use crate::inodes;
use crate::tree::Tree;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::extent::Mapping;
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_ext4::quota::{Block, Kind, QuotaFile, Storage, StorageMut};
use hectare_units::{Bytes, InodeNr, LogicalBlock};

impl Evacuation<'_> {
    /// Writes the changes that were noted into the quota files.
    pub(super) fn write_quotas(&mut self) -> Result<()> {
        for kind in Kind::ALL.into_iter().filter(|kind| !self.quotas.is_empty(*kind)) {
            let Some(nr) = self.volume.sb.quota_inode(kind) else { continue };
            let inode = inodes::read(self.volume, nr)?;
            let (len, block_size) = (inode.size, self.volume.geometry().block_size);
            let storage = Staged { volume: self.volume, nr, inode };
            self.quotas.write(&QuotaFile { kind, nr, len, block_size, storage })?;
        }
        Ok(())
    }
}

/// The blocks of a file in the overlay.
struct Staged<'a> {
    volume: &'a Volume,
    nr: InodeNr,
    inode: Inode,
}

impl Staged<'_> {
    /// Where a block of the file lies on the device; `None` in a hole.
    fn place(&self, at: LogicalBlock) -> Result<Option<Bytes>> {
        let tree = Tree { volume: self.volume, nr: self.nr, root: self.inode.block };
        let block = match MapKind::of(self.inode.flags).lookup(&tree, at)? {
            Mapping::Mapped(extent) if !extent.unwritten => extent.block_of(at),
            _ => None,
        };
        Ok(block.map(|block| block.offset(self.volume.geometry().block_size)))
    }
}

impl Storage for Staged<'_> {
    type Error = Error;

    fn read(&self, at: LogicalBlock, start: usize, bytes: &mut Block) -> Result<bool> {
        let Some(place) = self.place(at)? else { return Ok(false) };
        self.volume.staged.read_at(place + Bytes::of(start), bytes)?;
        Ok(true)
    }
}

impl StorageMut for Staged<'_> {
    fn write(&self, at: LogicalBlock, start: usize, bytes: &Block) -> Result<bool> {
        let Some(place) = self.place(at)? else { return Ok(false) };
        self.volume.staged.write_at(place + Bytes::of(start), bytes)?;
        Ok(true)
    }
}
