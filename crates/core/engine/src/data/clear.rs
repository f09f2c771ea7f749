//! Zeroes parts of files on the device, so that growing or mapping exposes nothing old.
//!
//! Invariant: bytes between the end of a file and the end of its last block are zero on the device, so that
//! growing exposes nothing old: shrinking zeroes them, and writes pad the blocks they map. Of files whose
//! content is journalled, zeros go through the journal as well.

use crate::data::{checks, device, read};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::{INODE_CREDITS, MAP_CREDITS};
use crate::state::{Core, State};
use crate::stores::block_cache::{Block, Kind};
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::error::Place;
use hectare_ext4::extent::{Extent, Mapping};
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, Bytes, InodeNr, index_of, low32, u64_of};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of data that one handle writes at most: it keeps others from committing as long as it is open.
const STEP_MAX: u32 = 1024;

/// Blocks that are changed in part, loaded before the handle starts.
pub(crate) type Edges = Vec<Arc<Block>>;

/// The rest of a block that is to be zeroed under a handle.
pub(crate) struct Clearing {
    block: Arc<Block>,
    from: usize,
}

/// Zeroes what an unwritten extent of the file has around `target`, a part of it, so that it can be
/// marked as a whole, except beyond the end of the file; returns the blocks that can be marked now.
pub(crate) fn clear_around(
    core: &Core,
    inode: &Arc<CachedInode>,
    target: &Extent,
    size_after: u64,
) -> Result<Range<u64>> {
    let size = core.state.geometry().block_size;
    let mapping = {
        let held = inode.get();
        MapRef { state: &core.state, nr: inode.nr(), inode: &held }.lookup(target.logical)?
    };
    let Mapping::Mapped(extent) = mapping else { return Err(Error::NoSpace) };
    let first = u64::from(extent.logical.get());
    let end = extent.end().min(size_after.div_ceil(size.bytes().get()));
    for blocks in [first..u64::from(target.logical.get()), target.end()..end] {
        if !blocks.is_empty() {
            let at = (extent.physical + Blocks::new(blocks.start - first)).offset(size);
            clear_place(core, inode, at, (blocks.end - blocks.start) << size.shift())?;
        }
    }
    Ok(first..end)
}

/// Zeroes the bytes between the end of the file and the end of its last block, before a write or a growth
/// that starts beyond the end would expose them.
pub(crate) fn clear_tail(core: &Core, inode: &Arc<CachedInode>, next: u64) -> Result<()> {
    let size = core.state.geometry().block_size;
    let (end, within) = {
        let held = inode.get();
        (held.size, size.within(held.bytes()))
    };
    if next <= end || within == 0 {
        return Ok(());
    }
    match read::run_at(core, inode, end)?.0 {
        Some(at) => clear_place(core, inode, at, u64_of(size.len() - within)),
        None => Ok(()),
    }
}

/// Blocks that one handle may dirty, data and all.
pub(crate) fn handle_blocks(state: &State) -> u32 {
    let half = state.log.as_ref().map_or(0, |log| log.capacity() / 2);
    half.min(STEP_MAX + MAP_CREDITS + INODE_CREDITS)
}

/// Changes bytes of a block of data under a handle. Its other bytes stay if it is one of `edges`, else
/// they become zero.
pub(crate) fn log_part(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: BlockNr,
    from: usize,
    len: usize,
    edges: &[Arc<Block>],
    change: impl FnOnce(&mut [u8]),
) {
    let edge = edges.iter().find(|block| block.nr() == nr);
    let block = edge.map_or_else(|| core.state.blocks.fresh(nr, Kind::Plain), Arc::clone);
    core.state.blocks.edit(handle, &block, Kind::Plain, |bytes| change(&mut bytes[from..from + len]));
}

/// Zeroes bytes in written or unwritten blocks of a file that are contiguous on the device, `len` from
/// `place` on. The caller holds the operation lock exclusively, and no handle.
pub(crate) fn clear_place(core: &Core, inode: &Arc<CachedInode>, place: Bytes, len: u64) -> Result<()> {
    if core.state.journals_data(&inode.get()) {
        return log_zeros(core, inode, place, len);
    }
    match checks::ZEROS.get(..usize::try_from(len).unwrap_or(usize::MAX)) {
        Some(zeros) => device::write_data(core, place, zeros),
        None => device::zero_data(core, place, Bytes::new(len)),
    }
}

/// Zeroes bytes through the journal, in as many handles as that takes.
fn log_zeros(core: &Core, inode: &Arc<CachedInode>, place: Bytes, len: u64) -> Result<()> {
    let size = core.state.geometry().block_size;
    let (mut at, end) = (place.get(), place.get() + len);
    let step = u64::from(handle_blocks(&core.state).saturating_sub(INODE_CREDITS).max(1));
    while at < end {
        let blocks = at >> size.shift()..end.div_ceil(size.bytes().get()).min((at >> size.shift()) + step);
        let until = end.min(blocks.end << size.shift());
        let partly = |byte: &u64| size.within(Bytes::new(*byte)) > 0;
        let edges = [at, until].into_iter().filter(partly).map(|byte| data_block(core, inode.nr(), byte));
        let edges = edges.collect::<Result<Edges>>()?;
        let mut handle = core.start(INODE_CREDITS + low32(blocks.end - blocks.start))?;
        // For fsync of the file.
        drop(inode.edit(&mut handle, &core.state.inodes));
        while at < until {
            let from = size.within(Bytes::new(at));
            let len = (size.len() - from).min(index_of(until - at));
            let nr = BlockNr::new(at >> size.shift());
            log_part(core, &mut handle, nr, from, len, &edges, |bytes| bytes.fill(0));
            at += u64_of(len);
        }
        drop(handle);
        if at < end {
            core.relieve()?;
        }
    }
    Ok(())
}

/// The block of data that holds a byte of the device, in memory.
fn data_block(core: &Core, nr: InodeNr, byte: u64) -> Result<Arc<Block>> {
    let block = BlockNr::new(byte >> core.state.geometry().block_size.shift());
    core.state.blocks.load(block, Kind::Plain, Place::Inode(nr))
}

/// Zeroes the rest of a block of data from a byte of the device on, now; or, if the data is journalled,
/// prepares to do so under the handle that makes the file end there.
pub(crate) fn begin_clearing(core: &Core, inode: &Arc<CachedInode>, at: Bytes) -> Result<Option<Clearing>> {
    let size = core.state.geometry().block_size;
    let from = size.within(at);
    if !core.state.journals_data(&inode.get()) {
        clear_place(core, inode, at, u64_of(size.len() - from))?;
        return Ok(None);
    }
    Ok(Some(Clearing { block: data_block(core, inode.nr(), at.get())?, from }))
}

/// Does under a handle what was prepared.
pub(crate) fn log_clearing(core: &Core, handle: &mut Handle<'_>, clearing: &Clearing) {
    let Clearing { block, from } = clearing;
    core.state.blocks.edit(handle, block, Kind::Plain, |bytes| bytes[*from..].fill(0));
}
