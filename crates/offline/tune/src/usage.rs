//! Keeps quotas true where what owners use changes: directories that are built anew, maps of another kind.

use crate::error::{Error, Result};
use crate::quotas::{KINDS, inode_of};
use crate::tree::FileMap;
use crate::volume::Volume;
use hectare_ext4::quota::{BLOCK_BYTES, Block, QuotaFile, SpaceChanges, Storage, StorageMut};
use hectare_units::{BlockNr, LogicalBlock};
use std::collections::BTreeMap;

/// Writes changes into the quota files.
pub(crate) fn write(changes: &SpaceChanges, volume: &mut Volume<'_>) -> Result<()> {
    for kind in KINDS.into_iter().filter(|kind| !changes.is_empty(*kind)) {
        let Some(nr) = inode_of(volume.sb().raw(), kind) else { continue };
        let inode = volume.inode(nr)?;
        let places = FileMap::of(volume, nr, &inode)?.blocks().collect();
        let (len, block_size) = (inode.size, volume.geometry().block_size);
        changes.write(&QuotaFile { kind, nr, len, block_size, storage: File { volume, places } })?;
    }
    Ok(())
}

/// The blocks of a file on the overlay.
struct File<'a, 'd> {
    volume: &'a Volume<'d>,
    places: BTreeMap<LogicalBlock, BlockNr>,
}

impl Storage for File<'_, '_> {
    type Error = Error;

    fn read(&self, at: LogicalBlock, start: usize, bytes: &mut Block) -> Result<bool> {
        let Some(block) = self.places.get(&at) else { return Ok(false) };
        bytes.copy_from_slice(&self.volume.read(*block)?[start..start + BLOCK_BYTES]);
        Ok(true)
    }
}

impl StorageMut for File<'_, '_> {
    fn write(&self, at: LogicalBlock, start: usize, bytes: &Block) -> Result<bool> {
        let Some(block) = self.places.get(&at) else { return Ok(false) };
        let mut whole = self.volume.read(*block)?;
        whole[start..start + BLOCK_BYTES].copy_from_slice(bytes);
        self.volume.write(*block, &whole)?;
        Ok(true)
    }
}
