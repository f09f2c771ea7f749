//! Journals file data: of all regular files with `data=journal`, of flagged ones (`chattr +j`) in any mode.
//!
//! The blocks of such a file are treated like a directory's. They are changed in the block cache under a
//! handle, logged with the transaction, and checkpointed with the rest; they are read from wherever they are
//! ([`BlockCache::read_at`](crate::stores::block_cache::BlockCache)), and revoked when they are freed. So a
//! handle's data is atomic with the map and the size that go with it. A write is one handle if it fits the
//! log and the file is not too fragmented there ([`write_journalled`]).
//!
//! Invariants, for a file in this state:
//! - its blocks are never written past the log: the log would bring older bytes back over the new ones;
//! - neither runs nor appended bytes are cached for it ([`crate::stores::runs`], [`crate::data::append`]):
//!   both bypass the log;
//! - a block's bytes count only once its extent is marked as written, so that copies in the log of what was
//!   written before do no harm to a block that is unwritten again.
//!
//! A file leaves this state only when nothing of it is in the log or the cache
//! ([`crate::Volume::set_journal_data`]).

use crate::data::checks::{FILE_BLOCKS_MAX, Source, Split};
use crate::data::clear::Edges;
use crate::data::{checks, clear, pieces, reclaim};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::{INODE_CREDITS, MAP_CREDITS, MapMut};
use crate::space::piece::{Piece, Use};
use crate::space::reserve;
use crate::state::{Core, aborted};
use crate::stores::block_cache::Kind;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::error::Place;
use hectare_ext4::extent::{Extent, Mapping};
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::DataMode;
use hectare_units::{BlockNr, Blocks, Bytes, InodeNr, LogicalBlock, index_of, low32, u64_of};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Neighbouring file blocks of one state that a write touches, and where they lie or will lie.
struct Part {
    extent: Extent,
    change: Change,
}

/// What a write does to the map.
enum Change {
    /// Nothing: the blocks are written.
    None,
    /// These blocks of the file, among them those of the part, become written.
    Mark(Range<u64>),
    /// New space is mapped.
    Map(Piece),
}

impl Part {
    /// Blocks of metadata that it may dirty, beside what all parts of a write share ([`shared_credits`]).
    const fn credits(&self, kind: MapKind) -> u32 {
        match (&self.change, kind) {
            (Change::None, _) => 0,
            (_, MapKind::Extents) => MAP_CREDITS,
            (_, MapKind::Blocks) => SPACE_CREDITS,
        }
    }
}

/// The bitmap and the descriptor of new space.
const SPACE_CREDITS: u32 = 2;

/// Blocks of metadata that the parts of one write may dirty together: the blocks that one handle writes lie
/// below few tables of a block map.
const fn shared_credits(kind: MapKind) -> u32 {
    match kind {
        MapKind::Extents => 0,
        MapKind::Blocks => MAP_CREDITS,
    }
}

/// Prepares a file for losing the flag: its content no longer goes through the journal, unless all does.
/// The caller holds the operation lock.
pub(crate) fn end_data_journalling(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    let ends = core.state.data_mode != DataMode::Journal && core.state.journals_data(&inode.get());
    if ends { bring_data_home(core, inode) } else { Ok(()) }
}

/// Checkpoints all blocks of a file and drops them from the log and the cache. The caller holds the
/// operation lock.
fn bring_data_home(core: &Core, inode: &CachedInode) -> Result<()> {
    let journal = &core.journal;
    journal.commit().map_err(aborted)?;
    if let Some(log) = &core.state.log {
        log.checkpoint_all().map_err(|error| aborted(journal.abort(error)))?;
    }
    let held = inode.get();
    MapRef { state: &core.state, nr: inode.nr(), inode: &held }.for_each(LogicalBlock::ZERO, &mut |extent| {
        (0..u64::from(extent.len)).for_each(|step| {
            core.state.blocks.forget(extent.physical + Blocks::new(step));
        });
        ControlFlow::Continue(())
    })
}

/// Writes bytes through the journal; returns how many: all, or those before the volume was full. The
/// caller holds the operation lock exclusively.
pub(crate) fn write_journalled(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
) -> Result<usize> {
    pieces::in_steps(core, data.len(), reclaim::reclaim, |done, split| {
        if done > 0 {
            core.relieve()?;
        }
        write_step(core, inode, at + u64_of(done), &data[done..], split, source)
    })
}

/// Writes as much as one handle takes: maps the blocks, sets the size and, unless the caller keeps them,
/// the times, and logs the bytes.
fn write_step(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    split: Split,
    source: Source,
) -> Result<usize> {
    let size = core.state.geometry().block_size;
    let within = u64_of(size.within(Bytes::new(at)));
    let parts = parts(core, inode, at, within + u64_of(data.len()), split)?;
    let planned: u32 = parts.iter().map(|part| part.extent.len).sum();
    let edges =
        edges_of(core, inode.nr(), &parts, within, checks::part_in(core, data, within, planned).len())?;
    let kind = MapKind::of(inode.get().flags);
    let mapping = parts.iter().map(|part| part.credits(kind)).sum::<u32>() + shared_credits(kind);
    let credits = mapping + INODE_CREDITS + planned;
    let mut handle = core.start(credits)?;
    let mut target = inode.edit(&mut handle, &core.state.inodes);
    let mut runs: Vec<(BlockNr, u32)> = Vec::new();
    for part in parts {
        let (first, wanted) = (part.extent.physical, part.extent.len);
        let mut map = MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut target };
        match apply(&mut map, part) {
            Ok(len) => runs.push((first, len)),
            Err(error) if runs.is_empty() => return Err(error),
            // What is mapped gets its bytes, whatever follows.
            Err(_) => break,
        }
        if runs.last().is_some_and(|(_, len)| *len < wanted) {
            break;
        }
    }
    let mapped = runs.iter().map(|(_, len)| len).sum();
    let now = checks::part_in(core, data, within, mapped);
    checks::bring_written(core, &mut target, at + u64_of(now.len()), source);
    drop(target);
    let mut rest = now;
    let mut skip = index_of(within);
    for nr in runs.iter().flat_map(|(first, len)| run_blocks(*first, *len)) {
        let (part, after) = rest.split_at((size.len() - skip).min(rest.len()));
        clear::log_part(core, &mut handle, nr, skip, part.len(), &edges, |bytes| bytes.copy_from_slice(part));
        (rest, skip) = (after, 0);
    }
    Ok(now.len())
}

/// The state of the blocks of a write whose first block begins `bytes` before its end, as many as one
/// handle takes; at least one.
fn parts(core: &Core, inode: &Arc<CachedInode>, at: u64, bytes: u64, split: Split) -> Result<Vec<Part>> {
    let size = core.state.geometry().block_size;
    let first = u64::from(LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?.get());
    let end = first + bytes.div_ceil(size.bytes().get());
    let kind = MapKind::of(inode.get().flags);
    let taken = INODE_CREDITS + shared_credits(kind);
    let mut left = clear::handle_blocks(&core.state).saturating_sub(taken);
    let (mut block, mut parts) = (first, Vec::new());
    while block < end {
        let room = left.saturating_sub(MAP_CREDITS);
        if room == 0 && !parts.is_empty() {
            break;
        }
        let len = low32((end - block).min(room.max(1).into()));
        let part = match part(core, inode, LogicalBlock::new(low32(block)), len) {
            Err(error) if !parts.is_empty() && core.may_lack_space(&error) => break,
            part => part?,
        };
        left = left.saturating_sub(part.credits(kind) + part.extent.len);
        block = part.extent.end();
        parts.push(part);
    }
    if let (Split::Spare, Some(Part { extent, change: Change::Mark(range) })) = (split, parts.first_mut()) {
        // No handle is open: zeroing starts its own.
        let size_after = inode.get().size.max(extent.end() << size.shift());
        *range = clear::clear_around(core, inode, extent, size_after)?;
    }
    Ok(parts)
}

/// Up to `len` blocks of a file from one on, of one state.
fn part(core: &Core, inode: &CachedInode, block: LogicalBlock, len: u32) -> Result<Part> {
    if let Some(piece) = reserve::kept_for(core, inode, block, len) {
        return Ok(Part { extent: piece.extent, change: Change::Map(piece) });
    }
    let held = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    match map.lookup(block)? {
        Mapping::Mapped(found) => {
            let len = low32(u64::from(len).min(found.end() - u64::from(block.get())));
            let physical = found.block_of(block).ok_or(Error::FileTooLarge)?;
            let extent = Extent { logical: block, len, physical, unwritten: found.unwritten };
            let range = u64::from(block.get())..extent.end();
            let change = if found.unwritten { Change::Mark(range) } else { Change::None };
            Ok(Part { extent, change })
        }
        Mapping::Hole { next } => {
            let room = next.map_or(FILE_BLOCKS_MAX, |next| next.get().into()) - u64::from(block.get());
            let len = low32(u64::from(len).min(room));
            let piece = reserve::reserve_for(core, inode.nr(), &held, block, len, Use::data(inode))?;
            Ok(Part { extent: piece.extent, change: Change::Map(piece) })
        }
    }
}

/// The written blocks of which a write of `len` bytes covers a part: the first, the last, or none.
fn edges_of(core: &Core, nr: InodeNr, parts: &[Part], within: u64, len: usize) -> Result<Edges> {
    let size = core.state.geometry().block_size;
    let end = within + u64_of(len);
    let written = |part: &&Part| matches!(part.change, Change::None);
    let mut edges = Vec::new();
    if let Some(part) = parts.first().filter(written).filter(|_| within > 0) {
        edges.push(part.extent.physical);
    }
    if let Some(part) = parts.last().filter(written).filter(|_| size.within(Bytes::new(end)) > 0) {
        edges.push(part.extent.physical + Blocks::new(u64::from(part.extent.len - 1)));
    }
    edges.into_iter().map(|block| core.state.blocks.load(block, Kind::Plain, Place::Inode(nr))).collect()
}

/// Changes the map for a part of a write; returns how many of its blocks are written blocks now.
fn apply(map: &mut MapMut<'_, '_>, part: Part) -> Result<u32> {
    match part.change {
        Change::None => Ok(part.extent.len),
        Change::Mark(range) => {
            map.mark(LogicalBlock::new(low32(range.start)), range.end, false)?;
            Ok(part.extent.len)
        }
        Change::Map(piece) => map.publish(piece, false),
    }
}

fn run_blocks(first: BlockNr, len: u32) -> impl Iterator<Item = BlockNr> {
    (0..u64::from(len)).map(move |step| first + Blocks::new(step))
}
