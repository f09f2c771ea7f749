//! Brings the map of a file from blocks to extents, or back (`chattr +e`, `chattr -e`).
//!
//! The new map is built whole beside the old one, from the same extents, and takes its place in one
//! transaction; data does not move. So a crash leaves one of the two.
//!
//! Limits: a map whose nodes are more than one transaction holds is refused by name. A block map can hold
//! neither unwritten extents nor blocks beyond 2^32, and no file longer than its tables reach.

use crate::error::{Error, Result};
use crate::space::map::{MapRef, node_kind};
use crate::space::reserve;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::volume_journal::VolumeLog;
use hectare_ext4::extent::{self, Built, Extent, TreeRead};
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::map::MapKind;
use hectare_journal::Handle;
use hectare_units::{BlockNr, BlockSize, LogicalBlock, low32, u64_of, usize_of};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Nodes that one transaction makes and frees at most, if the log holds as many.
const NODES_MAX: u32 = 200;

/// Blocks that a node dirties: itself, its bitmap and its descriptor.
const NODE_CREDITS: u32 = 3;

/// Blocks beside those of nodes: the inode, and slack.
const REST_CREDITS: u32 = 4;

/// How many nodes one transaction makes and frees: as many as a handle may dirty, which is half the log.
fn nodes_max(core: &Core) -> usize {
    let fit = |log: &VolumeLog| (log.capacity() / 2).saturating_sub(REST_CREDITS) / NODE_CREDITS;
    usize_of(core.state.log.as_ref().map_or(NODES_MAX, fit).min(NODES_MAX))
}

/// The blocks of an inode, and what it takes to map them the other way.
struct Conversion {
    to: MapKind,
    extents: Vec<Extent>,
    old_nodes: Vec<BlockNr>,
    new_nodes: usize,
}

/// Maps an inode's blocks the other way. The caller holds the operation lock, exclusive, and nothing is
/// buffered.
///
/// # Errors
/// [`Error::Unsupported`] for what the other map can't hold; [`Error::NoSpace`]. Nothing has changed then.
pub(crate) fn convert(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    let conversion = Conversion::of(core, inode)?;
    let nodes = low32(u64_of(conversion.new_nodes + conversion.old_nodes.len()));
    let mut handle = core.start(NODE_CREDITS * nodes + REST_CREDITS)?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    let taken = take(core, &mut handle, inode, &mut data, &conversion)?;
    for nr in &conversion.old_nodes {
        let sectors = reserve::free_metadata(core, &mut handle, *nr)?;
        data.sectors = data.sectors.saturating_sub(sectors);
    }
    data.flags.set(InodeFlags::EXTENTS, conversion.to == MapKind::Extents);
    let kind = node_kind(&core.state, inode.nr(), &data);
    let seed = data.seed(inode.nr(), &core.state.sb);
    let mut taken = taken.into_iter();
    let mut next = || taken.next().expect("as many as the map needs were taken");
    let size = core.state.geometry().block_size;
    let Built { root, nodes } = match conversion.to {
        MapKind::Extents => extent::build(&conversion.extents, size, seed, &mut next),
        MapKind::Blocks => indirect::build(&conversion.extents, size, &mut next),
    };
    data.block = root;
    for (nr, bytes) in nodes {
        let block = core.state.blocks.fresh(nr, kind);
        core.state.blocks.edit(&mut handle, &block, kind, |to| to.copy_from_slice(&bytes));
    }
    Ok(())
}

/// Takes blocks for the nodes: all, or none.
fn take(
    core: &Core,
    handle: &mut Handle<'_>,
    inode: &CachedInode,
    data: &mut Inode,
    conversion: &Conversion,
) -> Result<Vec<BlockNr>> {
    let goal = conversion.extents.first().map_or(BlockNr::new(0), |first| first.physical);
    let mut taken: Vec<(BlockNr, u64)> = Vec::new();
    for _ in 0..conversion.new_nodes {
        match reserve::allocate_node(core, handle, inode.nr(), goal) {
            Ok(node) => taken.push(node),
            Err(error) => {
                for (nr, _) in taken {
                    reserve::free_metadata(core, handle, nr)?;
                }
                return Err(error);
            }
        }
    }
    data.sectors += taken.iter().map(|(_, sectors)| sectors).sum::<u64>();
    Ok(taken.into_iter().map(|(nr, _)| nr).collect())
}

impl Conversion {
    fn of(core: &Core, inode: &CachedInode) -> Result<Self> {
        let data = inode.get();
        let map = MapRef { state: &core.state, nr: inode.nr(), inode: &data };
        map.check_range(LogicalBlock::ZERO, u64::MAX)?;
        let (mut extents, mut old_nodes) = (Vec::new(), Vec::new());
        map.for_each(LogicalBlock::ZERO, &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        })?;
        let most = nodes_max(core);
        map.for_each_node(&mut |nr, _| {
            old_nodes.push(nr);
            if old_nodes.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let size = TreeRead::geometry(&map).block_size;
        let refuse = |what: &str| Err(Error::Unsupported(format!("inode {}: {what}", inode.nr())));
        let (to, new_nodes) = match map.kind() {
            MapKind::Blocks if core.state.map_of_new() == MapKind::Blocks => {
                return refuse("the volume has no extents (feature 'extent')");
            }
            MapKind::Blocks => {
                let nodes = extent::tree_blocks(extents.len(), size).get();
                (MapKind::Extents, hectare_units::index_of(nodes))
            }
            MapKind::Extents => {
                if let Some(what) = beyond_blocks(core, &data, &extents) {
                    return refuse(what);
                }
                (MapKind::Blocks, tables(&extents, size, most))
            }
        };
        if new_nodes + old_nodes.len() > most {
            return refuse("its map is too large to be exchanged in one transaction; copy the file instead");
        }
        Ok(Self { to, extents, old_nodes, new_nodes })
    }
}

/// What keeps extents from being held by a block map, if anything does.
fn beyond_blocks(core: &Core, data: &Inode, extents: &[Extent]) -> Option<&'static str> {
    let size = core.state.geometry().block_size;
    let end = |extent: &Extent| extent.physical.get() + u64::from(extent.len);
    if core.state.geometry().cluster_ratio_shift > 0 {
        Some("files of a volume with bigalloc need extents")
    } else if extents.iter().any(|extent| extent.unwritten) {
        Some("it has unwritten extents, which a block map can't hold")
    } else if extents.iter().any(|extent| end(extent) > 1 << u32::BITS) {
        Some("it has blocks that no block map reaches")
    } else if data.size > indirect::size_max(size)
        || extents.last().is_some_and(|last| last.end() > indirect::reach(size))
    {
        Some("it is longer than a block map reaches")
    } else {
        None
    }
}

/// Tables of the block map of some extents, counted until they exceed `most`.
fn tables(extents: &[Extent], size: BlockSize, most: usize) -> usize {
    let (mut before, mut count) = (None, 0);
    for extent in extents {
        let mut at = u64::from(extent.logical.get());
        while at < extent.end() {
            let first = LogicalBlock::new(low32(at));
            count += usize_of(indirect::tables_between(before, first, size));
            at = extent.end().min(at + indirect::run(first, size));
            before = Some(LogicalBlock::new(low32(at - 1)));
            if count > most {
                return count;
            }
        }
    }
    count
}
