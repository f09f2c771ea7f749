//! Keeps the quota files true: a map that was built anew may have more or fewer blocks.

use super::Evacuation;
use crate::error::{Error, Result};
use crate::inodes;
use crate::volume::Volume;
use hectare_ext4::error::Corrupt;
use hectare_ext4::error::Place;
use hectare_ext4::extent::Mapping;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::map::MapKind;
use hectare_ext4::quota::{self, BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead};
use hectare_units::{Bytes, InodeNr, LogicalBlock, u64_of};
use std::collections::BTreeMap;

/// By how many bytes the space of owners has changed, by [`Kind::index`].
#[derive(Default)]
pub(super) struct Changes([BTreeMap<u32, i128>; 3]);

impl Evacuation<'_> {
    /// Notes that inode `nr` has so many bytes more.
    pub(super) fn count_for_quotas(&mut self, nr: InodeNr, inode: &Inode, bytes: i128) {
        let sb = &self.volume.sb;
        let quotas = Kind::ALL.map(|kind| sb.quota_inode(kind));
        let own = quotas.contains(&Some(nr)) || sb.orphan_file_inode() == Some(nr);
        let counts = (nr == InodeNr::ROOT || nr >= sb.first_inode()) && !own;
        if bytes == 0 || !counts || inode.flags.contains(InodeFlags::EA_INODE) {
            return;
        }
        for (kind, owner) in Kind::ALL.into_iter().zip([inode.uid, inode.gid, inode.projid]) {
            if quotas[kind.index()].is_some() {
                *self.quotas.0[kind.index()].entry(owner).or_default() += bytes;
            }
        }
    }

    /// Writes the changes into the quota files.
    pub(super) fn write_quotas(&mut self) -> Result<()> {
        for kind in Kind::ALL {
            let changes = std::mem::take(&mut self.quotas.0[kind.index()]);
            let Some(nr) = self.volume.sb.quota_inode(kind) else { continue };
            if changes.is_empty() {
                continue;
            }
            let inode = inodes::read(self.volume, nr)?;
            let file = File { volume: self.volume, kind, nr, inode };
            let info = Info::read(&file)?;
            for (id, bytes) in changes {
                let Some((slot, mut record)) = quota::lookup(&file, &info, id)? else {
                    return Err(super::corrupt(nr, "an owner of inodes has no quota record"));
                };
                let used = i128::from(record.space.used) + bytes;
                record.space.used = u64::try_from(used).unwrap_or(0);
                let mut leaf = file.block(slot.leaf)?;
                record.render(id, &mut leaf[slot.bytes()]);
                file.write(slot.leaf, &leaf)?;
            }
        }
        Ok(())
    }
}

/// A quota file in the overlay.
struct File<'a> {
    volume: &'a Volume,
    kind: Kind,
    nr: InodeNr,
    inode: Inode,
}

impl File<'_> {
    /// Where a block of the tree lies on the device.
    fn place(&self, at: BlockIndex) -> Result<Bytes> {
        let size = self.volume.geometry().block_size;
        let byte = Bytes::new(u64::from(at.get()) * u64_of(BLOCK_BYTES));
        let logical = LogicalBlock::containing(byte, size);
        let hole =
            || Error::from(Corrupt::new(self.kind.structure(), Place::Inode(self.nr), "it has a hole"));
        let logical = logical.ok_or_else(hole)?;
        let tree = crate::tree::Tree { volume: self.volume, nr: self.nr, root: self.inode.block };
        let Mapping::Mapped(extent) = MapKind::of(self.inode.flags).lookup(&tree, logical)? else {
            return Err(hole());
        };
        let block = extent.block_of(logical).ok_or_else(hole)?;
        Ok(block.offset(size) + Bytes::of(size.within(byte)))
    }

    fn write(&self, at: BlockIndex, block: &Block) -> Result<()> {
        use hectare_device::Device;
        Ok(self.volume.staged.write_at(self.place(at)?, block)?)
    }
}

impl QuotaRead for File<'_> {
    type Error = Error;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn inode(&self) -> InodeNr {
        self.nr
    }

    fn len(&self) -> u32 {
        u32::try_from(self.inode.size / u64_of(BLOCK_BYTES)).unwrap_or(u32::MAX)
    }

    fn block(&self, at: BlockIndex) -> Result<Block> {
        use hectare_device::Device;
        let mut block = [0; BLOCK_BYTES];
        self.volume.staged.read_at(self.place(at)?, &mut block)?;
        Ok(block)
    }
}
