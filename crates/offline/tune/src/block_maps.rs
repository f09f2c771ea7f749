//! Turns maps of extents into maps of blocks, for a volume that is to do without the feature `extent`.

use crate::error::{Error, Result};
use crate::file::write_map;
use crate::tree::FileMap;
use crate::volume::Volume;
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_units::{BlockNr, InodeNr};

/// Gives an inode that has extents a map of blocks. The nodes of its tree are freed.
pub(crate) fn convert(volume: &mut Volume<'_>, nr: InodeNr, inode: &mut Inode, map: &FileMap) -> Result<()> {
    let size = volume.geometry().block_size;
    if map.content.iter().any(|extent| extent.unwritten) {
        let reason = format!(
            "-O ^extent: inode {nr} has space that was reserved and not written, which a map of blocks can't \
             express: copy the file"
        );
        return Err(Error::refused(reason));
    }
    if map.content.last().is_some_and(|last| last.end() > indirect::reach(size)) {
        return Err(Error::refused(format!("-O ^extent: inode {nr} is too large for a map of blocks")));
    }
    let goal = map.content.first().map_or(BlockNr::new(0), |extent| extent.physical);
    let before = volume.free_blocks()?;
    let (root, _) = write_map(volume, &map.content, None, goal)?;
    let taken = before - volume.free_blocks()?;
    let nodes: Vec<_> = map.nodes.iter().map(|node| node.get()..node.get() + 1).collect();
    volume.give_back(&nodes)?;
    let given = volume.free_blocks()? + taken - before;
    let sectors = |blocks: u64| blocks << (size.shift() - 9);
    inode.block = root;
    inode.flags.remove(InodeFlags::EXTENTS);
    inode.sectors = (inode.sectors + sectors(taken)).saturating_sub(sectors(given));
    Ok(())
}
