//! Keeps quotas true where what owners use changes: directories that are built anew, maps of another kind.

use crate::error::{Error, Result};
use crate::quotas::{KINDS, inode_of};
use crate::tree::FileMap;
use crate::volume::Volume;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::quota::{self, BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, index_of, u64_of};
use std::collections::BTreeMap;

/// By how many bytes the space of owners has changed, by kind.
#[derive(Default)]
pub(crate) struct Changes([BTreeMap<u32, i128>; 3]);

impl Changes {
    /// Notes that inode `nr` of the volume of `sb` had so many sectors before.
    pub(crate) fn note(&mut self, sb: &SuperBlock, nr: InodeNr, inode: &Inode, before: u64) {
        let own = KINDS.into_iter().filter_map(|kind| inode_of(sb.raw(), kind)).chain(sb.orphan_file_inode());
        let is_own = own.chain(sb.journal_inode()).any(|own| own == nr);
        let has_owner = (nr == InodeNr::ROOT || nr >= sb.first_inode()) && !is_own;
        let bytes = (i128::from(inode.sectors) - i128::from(before)) << 9;
        if bytes == 0 || !has_owner || inode.flags.contains(InodeFlags::EA_INODE) {
            return;
        }
        for (kind, owner) in KINDS.into_iter().zip([inode.uid, inode.gid, inode.projid]) {
            if inode_of(sb.raw(), kind).is_some() {
                *self.0[kind.index()].entry(owner).or_default() += bytes;
            }
        }
    }

    /// Writes the changes into the quota files.
    pub(crate) fn write(self, volume: &mut Volume<'_>) -> Result<()> {
        for (kind, changes) in KINDS.into_iter().zip(self.0) {
            let Some(nr) = inode_of(volume.sb().raw(), kind).filter(|_| !changes.is_empty()) else {
                continue;
            };
            let inode = volume.inode(nr)?;
            let map = FileMap::of(volume, nr, &inode)?;
            let file = File { volume, kind, nr, bytes: inode.size, places: map.blocks().collect() };
            let info = Info::read(&file)?;
            for (id, bytes) in changes {
                let Some((slot, mut record)) = quota::lookup(&file, &info, id)? else {
                    let reason = format!("owner {id} has no quota record: run e2fsck -f first");
                    return Err(Error::refused(reason));
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

/// A quota file on the overlay.
struct File<'a, 'd> {
    volume: &'a Volume<'d>,
    kind: Kind,
    nr: InodeNr,
    bytes: u64,
    places: BTreeMap<LogicalBlock, BlockNr>,
}

impl File<'_, '_> {
    /// The block of the device that holds a block of the tree, and where in it.
    fn place(&self, at: BlockIndex) -> Result<(BlockNr, usize)> {
        let size = self.volume.geometry().block_size;
        let byte = u64::from(at.get()) * u64_of(BLOCK_BYTES);
        let hole =
            || Error::refused(format!("the quota file, inode {}, has a hole: run e2fsck -f first", self.nr));
        let logical = u32::try_from(byte >> size.shift()).ok().map(LogicalBlock::new).ok_or_else(hole)?;
        let block = self.places.get(&logical).ok_or_else(hole)?;
        Ok((*block, index_of(byte % size.bytes().get())))
    }

    fn write(&self, at: BlockIndex, bytes: &Block) -> Result<()> {
        let (block, within) = self.place(at)?;
        let mut whole = self.volume.read(block)?;
        whole[within..within + BLOCK_BYTES].copy_from_slice(bytes);
        self.volume.write(block, &whole)
    }
}

impl QuotaRead for File<'_, '_> {
    type Error = Error;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn inode(&self) -> InodeNr {
        self.nr
    }

    fn len(&self) -> u32 {
        u32::try_from(self.bytes / u64_of(BLOCK_BYTES)).unwrap_or(u32::MAX)
    }

    fn block(&self, at: BlockIndex) -> Result<Block> {
        let (block, within) = self.place(at)?;
        let mut bytes = [0; BLOCK_BYTES];
        bytes.copy_from_slice(&self.volume.read(block)?[within..within + BLOCK_BYTES]);
        Ok(bytes)
    }
}
