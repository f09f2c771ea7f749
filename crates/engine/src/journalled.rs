//! Journals file data: of all regular files with `data=journal`, of flagged ones (`chattr +j`) in any mode.
//!
//! The blocks of such a file are treated like a directory's. They are changed in the block cache under a
//! handle, logged with the transaction, and checkpointed with the rest; they are read from wherever they are
//! ([`BlockCache::read_at`](crate::stores::block_cache::BlockCache)), and revoked when they are freed. So a
//! handle's data is atomic with the map and the size that go with it. A write is one handle if it fits the
//! log and the file is not too fragmented there ([`Volume::write_journalled`]).
//!
//! Invariants, for a file in this state:
//! - its blocks are never written past the log: the log would bring older bytes back over the new ones;
//! - neither runs nor appended bytes are cached for it ([`crate::stores::runs`], [`crate::delalloc`]): both
//!   bypass the log;
//! - a block's bytes count only once its extent is marked as written, so that copies in the log of what was
//!   written before do no harm to a block that is unwritten again.
//!
//! A file leaves this state only when nothing of it is in the log or the cache
//! ([`Volume::set_journal_data`]).

use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::file::{FILE_BLOCKS_MAX, Source, Split};
use crate::map::{MAP_CREDITS, MapMut, MapRef};
use crate::space::{Piece, Use};
use crate::stores::block_cache::{Block, Kind};
use crate::stores::inode_cache::CachedInode;
use crate::truncate::INODE_CREDITS;
use crate::volume::{Shared, Volume, aborted};
use hectare_ext4::error::Place;
use hectare_ext4::extent::{self, Extent, Mapping};
use hectare_ext4::inode::{Inode, InodeFlags, Kind as FileKind};
use hectare_ext4::superblock::DataMode;
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, Bytes, InodeNr, LogicalBlock, index_of, low32, u64_of};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Blocks of data that one handle writes at most: it keeps others from committing as long as it is open.
const STEP_MAX: u32 = 1024;

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
    /// Blocks of metadata that it may dirty.
    const fn credits(&self) -> u32 {
        if matches!(self.change, Change::None) { 0 } else { MAP_CREDITS }
    }
}

/// Blocks that are changed in part, loaded before the handle starts.
type Edges = Vec<Arc<Block>>;

/// The rest of a block that is to be zeroed under a handle.
pub(crate) struct Clearing {
    block: Arc<Block>,
    from: usize,
}

impl Shared {
    /// Whether the content of an inode goes through the journal.
    pub(crate) fn journals_data(&self, inode: &Inode) -> bool {
        self.log.is_some()
            && inode.kind() == Some(FileKind::File)
            && (self.data_mode == DataMode::Journal || inode.flags.contains(InodeFlags::JOURNAL_DATA))
    }

    /// Blocks that one handle may dirty, data and all.
    fn handle_blocks(&self) -> u32 {
        let half = self.log.as_ref().map_or(0, |log| log.capacity() / 2);
        half.min(STEP_MAX + MAP_CREDITS + INODE_CREDITS)
    }
}

impl Volume {
    /// Sets or clears the flag that sends a file's content through the journal whatever the mode (`chattr
    /// +j`, `chattr -j`). New files inherit it from a directory. Clearing it on a file takes a commit and a
    /// checkpoint.
    ///
    /// # Errors
    /// As [`Volume::set_inode_flags`] for root.
    pub fn set_journal_data(&self, nr: InodeNr, on: bool) -> Result<()> {
        let mut flags = self.inode_flags(nr)?;
        flags.set(InodeFlags::JOURNAL_DATA, on);
        self.set_inode_flags(nr, flags, &Caller::ROOT)
    }

    /// Prepares a file for losing the flag: its content no longer goes through the journal, unless all does.
    /// The caller holds the operation lock.
    pub(crate) fn end_data_journalling(&self, inode: &Arc<CachedInode>) -> Result<()> {
        let ends = self.data_mode != DataMode::Journal && self.journals_data(&inode.get());
        if ends { self.bring_data_home(inode) } else { Ok(()) }
    }

    /// Checkpoints all blocks of a file and drops them from the log and the cache. The caller holds the
    /// operation lock.
    fn bring_data_home(&self, inode: &CachedInode) -> Result<()> {
        let journal = &self.inner.journal;
        journal.commit().map_err(aborted)?;
        if let Some(log) = &self.log {
            log.checkpoint_all().map_err(|error| aborted(journal.abort(error)))?;
        }
        let held = inode.get();
        MapRef { volume: self, nr: inode.nr(), inode: &held }.for_each(LogicalBlock::ZERO, &mut |extent| {
            (0..u64::from(extent.len)).for_each(|step| {
                self.blocks.forget(extent.physical + Blocks::new(step));
            });
            ControlFlow::Continue(())
        })
    }

    /// Writes bytes through the journal; returns how many: all, or those before the volume was full. The
    /// caller holds the operation lock exclusively.
    pub(crate) fn write_journalled(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        source: Source,
    ) -> Result<usize> {
        self.in_steps(data.len(), source, |done, split| {
            if done > 0 {
                self.relieve()?;
            }
            self.write_step(inode, at + u64_of(done), &data[done..], split, source)
        })
    }

    /// Writes as much as one handle takes: maps the blocks, sets the size and, unless the caller keeps them,
    /// the times, and logs the bytes.
    fn write_step(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        split: Split,
        source: Source,
    ) -> Result<usize> {
        let size = self.geometry().block_size;
        let within = u64_of(size.within(Bytes::new(at)));
        let parts = self.parts(inode, at, within + u64_of(data.len()), split)?;
        let planned: u32 = parts.iter().map(|part| part.extent.len).sum();
        let edges = self.edges_of(inode.nr(), &parts, within, self.part_in(data, within, planned).len())?;
        let credits = parts.iter().map(Part::credits).sum::<u32>() + INODE_CREDITS + planned;
        let mut handle = self.start(credits)?;
        let mut target = inode.edit(&mut handle, &self.inodes);
        let mut runs: Vec<(BlockNr, u32)> = Vec::new();
        for part in parts {
            let (first, wanted) = (part.extent.physical, part.extent.len);
            let mut map = MapMut { volume: self, handle: &mut handle, nr: inode.nr(), inode: &mut target };
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
        let now = self.part_in(data, within, mapped);
        self.bring_written(&mut target, at + u64_of(now.len()), source);
        drop(target);
        let mut rest = now;
        let mut skip = index_of(within);
        for nr in runs.iter().flat_map(|(first, len)| run_blocks(*first, *len)) {
            let (part, after) = rest.split_at((size.len() - skip).min(rest.len()));
            self.log_part(&mut handle, nr, skip, part.len(), &edges, |bytes| bytes.copy_from_slice(part));
            (rest, skip) = (after, 0);
        }
        Ok(now.len())
    }

    /// The state of the blocks of a write whose first block begins `bytes` before its end, as many as one
    /// handle takes; at least one.
    fn parts(&self, inode: &Arc<CachedInode>, at: u64, bytes: u64, split: Split) -> Result<Vec<Part>> {
        let size = self.geometry().block_size;
        let first =
            u64::from(LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?.get());
        let end = first + bytes.div_ceil(size.bytes().get());
        let mut left = self.handle_blocks().saturating_sub(INODE_CREDITS);
        let (mut block, mut parts) = (first, Vec::new());
        while block < end {
            let room = left.saturating_sub(MAP_CREDITS);
            if room == 0 && !parts.is_empty() {
                break;
            }
            let len = low32((end - block).min(room.max(1).into()));
            let part = match self.part(inode, LogicalBlock::new(low32(block)), len) {
                Err(Error::NoSpace) if !parts.is_empty() => break,
                part => part?,
            };
            left = left.saturating_sub(part.credits() + part.extent.len);
            block = part.extent.end();
            parts.push(part);
        }
        if let (Split::Spare, Some(Part { extent, change: Change::Mark(range) })) = (split, parts.first_mut())
        {
            // No handle is open: zeroing starts its own.
            let size_after = inode.get().size.max(extent.end() << size.shift());
            *range = self.clear_around(inode, extent, size_after)?;
        }
        Ok(parts)
    }

    /// Up to `len` blocks of a file from one on, of one state.
    fn part(&self, inode: &CachedInode, block: LogicalBlock, len: u32) -> Result<Part> {
        if let Some(piece) = self.kept_for(inode, block, len) {
            return Ok(Part { extent: piece.extent, change: Change::Map(piece) });
        }
        let held = inode.get();
        let map = MapRef { volume: self, nr: inode.nr(), inode: &held };
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
                let piece = self.reserve_for(inode.nr(), &held, block, len, Use::data(inode))?;
                Ok(Part { extent: piece.extent, change: Change::Map(piece) })
            }
        }
    }

    /// The written blocks of which a write of `len` bytes covers a part: the first, the last, or none.
    fn edges_of(&self, nr: InodeNr, parts: &[Part], within: u64, len: usize) -> Result<Edges> {
        let size = self.geometry().block_size;
        let end = within + u64_of(len);
        let written = |part: &&Part| matches!(part.change, Change::None);
        let mut edges = Vec::new();
        if let Some(part) = parts.first().filter(written).filter(|_| within > 0) {
            edges.push(part.extent.physical);
        }
        if let Some(part) = parts.last().filter(written).filter(|_| size.within(Bytes::new(end)) > 0) {
            edges.push(part.extent.physical + Blocks::new(u64::from(part.extent.len - 1)));
        }
        edges.into_iter().map(|block| self.blocks.load(block, Kind::Plain, Place::Inode(nr))).collect()
    }

    /// Changes bytes of a block of data under a handle. Its other bytes stay if it is one of `edges`, else
    /// they become zero.
    fn log_part(
        &self,
        handle: &mut Handle<'_>,
        nr: BlockNr,
        from: usize,
        len: usize,
        edges: &[Arc<Block>],
        change: impl FnOnce(&mut [u8]),
    ) {
        let edge = edges.iter().find(|block| block.nr() == nr);
        let block = edge.map_or_else(|| self.blocks.fresh(nr, Kind::Plain), Arc::clone);
        self.blocks.edit(handle, &block, Kind::Plain, |bytes| change(&mut bytes[from..from + len]));
    }

    /// Zeroes bytes in written or unwritten blocks of a file that are contiguous on the device, `len` from
    /// `place` on. The caller holds the operation lock exclusively, and no handle.
    pub(crate) fn clear_place(&self, inode: &Arc<CachedInode>, place: Bytes, len: u64) -> Result<()> {
        if self.journals_data(&inode.get()) {
            return self.log_zeros(inode, place, len);
        }
        match crate::file::ZEROS.get(..usize::try_from(len).unwrap_or(usize::MAX)) {
            Some(zeros) => self.write_data(place, zeros),
            None => self.zero_data(place, Bytes::new(len)),
        }
    }

    /// Zeroes bytes through the journal, in as many handles as that takes.
    fn log_zeros(&self, inode: &Arc<CachedInode>, place: Bytes, len: u64) -> Result<()> {
        let size = self.geometry().block_size;
        let (mut at, end) = (place.get(), place.get() + len);
        let step = u64::from(self.handle_blocks().saturating_sub(INODE_CREDITS).max(1));
        while at < end {
            let blocks =
                at >> size.shift()..end.div_ceil(size.bytes().get()).min((at >> size.shift()) + step);
            let until = end.min(blocks.end << size.shift());
            let partly = |byte: &u64| size.within(Bytes::new(*byte)) > 0;
            let edges = [at, until].into_iter().filter(partly).map(|byte| self.data_block(inode.nr(), byte));
            let edges = edges.collect::<Result<Edges>>()?;
            let mut handle = self.start(INODE_CREDITS + low32(blocks.end - blocks.start))?;
            // For fsync of the file.
            drop(inode.edit(&mut handle, &self.inodes));
            while at < until {
                let from = size.within(Bytes::new(at));
                let len = (size.len() - from).min(index_of(until - at));
                let nr = BlockNr::new(at >> size.shift());
                self.log_part(&mut handle, nr, from, len, &edges, |bytes| bytes.fill(0));
                at += u64_of(len);
            }
            drop(handle);
            if at < end {
                self.relieve()?;
            }
        }
        Ok(())
    }

    /// The block of data that holds a byte of the device, in memory.
    fn data_block(&self, nr: InodeNr, byte: u64) -> Result<Arc<Block>> {
        let block = BlockNr::new(byte >> self.geometry().block_size.shift());
        self.blocks.load(block, Kind::Plain, Place::Inode(nr))
    }

    /// Zeroes the rest of a block of data from a byte of the device on, now; or, if the data is journalled,
    /// prepares to do so under the handle that makes the file end there.
    pub(crate) fn begin_clearing(&self, inode: &Arc<CachedInode>, at: Bytes) -> Result<Option<Clearing>> {
        let size = self.geometry().block_size;
        let from = size.within(at);
        if !self.journals_data(&inode.get()) {
            self.clear_place(inode, at, u64_of(size.len() - from))?;
            return Ok(None);
        }
        Ok(Some(Clearing { block: self.data_block(inode.nr(), at.get())?, from }))
    }

    /// Does under a handle what was prepared.
    pub(crate) fn log_clearing(&self, handle: &mut Handle<'_>, clearing: &Clearing) {
        let Clearing { block, from } = clearing;
        self.blocks.edit(handle, block, Kind::Plain, |bytes| bytes[*from..].fill(0));
    }
}

/// Changes the map for a part of a write; returns how many of its blocks are written blocks now.
fn apply(map: &mut MapMut<'_, '_>, part: Part) -> Result<u32> {
    match part.change {
        Change::None => Ok(part.extent.len),
        Change::Mark(range) => {
            extent::mark(map, LogicalBlock::new(low32(range.start)), range.end, false)?;
            Ok(part.extent.len)
        }
        Change::Map(piece) => map.publish(piece, false),
    }
}

fn run_blocks(first: BlockNr, len: u32) -> impl Iterator<Item = BlockNr> {
    (0..u64::from(len)).map(move |step| first + Blocks::new(step))
}
