//! Finds the journal: reads the map of its inode, before anything of the volume is in use.
//!
//! Mkfs writes the journal's inode and its tree once, and they are never logged; so they can be read straight
//! from the device although other metadata there may be old.

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::{self, Extent, ROOT_LEN, TreeGeometry, TreeRead};
use hectare_ext4::group::GroupDesc;
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::SuperBlock;
use hectare_journal::recovery::{LogMap, LogRun};
use hectare_units::{BlockNr, Blocks, InodeNr, LogicalBlock, usize_of};
use std::ops::ControlFlow;

/// The journal's map, straight from the device.
struct Tree<'a> {
    device: &'a dyn Device,
    sb: &'a SuperBlock,
    nr: InodeNr,
    inode: &'a Inode,
}

impl Tree<'_> {
    fn for_each(&self, visit: &mut dyn FnMut(Extent) -> ControlFlow<()>) -> Result<()> {
        MapKind::of(self.inode.flags).for_each(self, LogicalBlock::ZERO, visit)
    }

    fn read(&self, nr: BlockNr) -> Result<Vec<u8>> {
        let size = self.sb.geometry().block_size;
        let mut bytes = vec![0; size.len()];
        self.device.read_at(nr.offset(size), &mut bytes)?;
        Ok(bytes)
    }
}

impl TreeRead for Tree<'_> {
    type Error = Error;
    type Node = Vec<u8>;

    fn root(&self) -> [u8; ROOT_LEN] {
        self.inode.block
    }

    fn node(&self, nr: BlockNr) -> Result<Vec<u8>> {
        let bytes = self.read(nr)?;
        if MapKind::of(self.inode.flags) == MapKind::Extents {
            extent::check_block(&bytes, nr, &self.geometry(), self.inode.seed(self.nr, self.sb))?;
        }
        Ok(bytes)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.sb.geometry(), self.nr)
    }
}

/// The blocks of the log of a volume whose journal is inode `nr`; `with_backups` says whether a broken group
/// descriptor is taken from a backup.
pub(super) fn log_map(
    device: &dyn Device,
    sb: &SuperBlock,
    nr: InodeNr,
    with_backups: bool,
) -> Result<LogMap> {
    let inode = read_inode(device, sb, nr, with_backups)?;
    let blocks = inode.size >> sb.geometry().block_size.shift();
    let mut runs = Vec::new();
    let mut left = Some(sb.geometry().blocks_count.get());
    let tree = Tree { device, sb, nr, inode: &inode };
    tree.for_each(&mut |extent| {
        left = left.and_then(|left| left.checked_sub(extent.len.into()));
        if left.is_none() {
            return ControlFlow::Break(());
        }
        if !extent.unwritten {
            let len = Blocks::new(extent.len.into());
            runs.push(LogRun { first: extent.logical, start: extent.physical, len });
        }
        ControlFlow::Continue(())
    })?;
    if left.is_none() {
        let what = "it has more blocks than the volume";
        return Err(Corrupt::new("the journal", Place::Inode(nr), what).into());
    }
    let mapped = runs.last().map_or(0, |run| u64::from(run.first.get()) + run.len.get());
    if mapped == 0 || mapped < blocks {
        let what = format!("block {mapped} of it has no place on the volume: e2fsck -fy makes a new one");
        return Err(Corrupt::new("the journal", Place::Inode(nr), what).into());
    }
    Ok(LogMap::internal(sb.geometry().block_size, runs, device.len())?)
}

fn read_inode(device: &dyn Device, sb: &SuperBlock, nr: InodeNr, with_backups: bool) -> Result<Inode> {
    let geometry = sb.geometry();
    let outside =
        || Error::from(Corrupt::new("the journal's inode", Place::Inode(nr), "there is no such inode"));
    let (group, index) = geometry.inode_slot(nr).ok_or_else(outside)?;
    let size = geometry.block_size;
    let mut block = vec![0; size.len()];
    let per_block = geometry.descs_per_block();
    device.read_at(geometry.desc_block(group.get() / per_block).offset(size), &mut block)?;
    let at = usize_of(group.get() % per_block * geometry.desc_size);
    let slot = at..at + usize_of(geometry.desc_size);
    let parsed = GroupDesc::parse(&block[slot], group, sb);
    let backup = || hectare_probe::backup_desc(sb, group, |at, block| device.read_at(at, block).is_ok());
    let desc = parsed.or_else(|corrupt| with_backups.then(backup).flatten().ok_or(corrupt))?;
    let in_block = geometry.inodes_per_block();
    let table = desc.inode_table + Blocks::new(u64::from(index / in_block));
    device.read_at(table.offset(size), &mut block)?;
    let at = usize_of(index % in_block * geometry.inode_size);
    Ok(Inode::parse(&block[at..at + usize_of(geometry.inode_size)], nr, sb)?)
}
