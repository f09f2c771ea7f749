//! Reads and writes inodes in their tables.

use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::Inode;
use hectare_units::{Bytes, InodeNr, usize_of};

/// Bytes of the device where an inode lies.
fn place(volume: &Volume, nr: InodeNr) -> Result<Bytes> {
    let geometry = volume.geometry();
    let (group, index) = geometry
        .inode_slot(nr)
        .ok_or_else(|| Corrupt::new("the inode", Place::Inode(nr), "there is no such inode"))?;
    let table = volume.groups[group.index()].inode_table.offset(geometry.block_size);
    Ok(table + Bytes::new(u64::from(index) * u64::from(geometry.inode_size)))
}

/// Reads an inode.
pub(crate) fn read(volume: &Volume, nr: InodeNr) -> Result<Inode> {
    let mut slot = vec![0; usize_of(volume.geometry().inode_size)];
    volume.staged.read_at(place(volume, nr)?, &mut slot)?;
    Ok(Inode::parse(&slot, nr, &volume.sb)?)
}

/// Writes an inode.
pub(crate) fn write(volume: &Volume, nr: InodeNr, inode: &Inode) -> Result<()> {
    let mut slot = vec![0; usize_of(volume.geometry().inode_size)];
    inode.render(&mut slot, nr, &volume.sb);
    Ok(volume.staged.write_at(place(volume, nr)?, &slot)?)
}

/// Makes an inode one that was never used.
pub(crate) fn clear(volume: &Volume, nr: InodeNr) -> Result<()> {
    let slot = vec![0; usize_of(volume.geometry().inode_size)];
    let blank = Inode::parse_unsealed(&slot, nr, &volume.sb).map_err(Error::Corrupt)?;
    write(volume, nr, &blank)
}
