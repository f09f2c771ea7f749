//! Caches metadata blocks: tree nodes, directory blocks, attribute blocks, inode tables.
//!
//! A block's bytes are an `Arc<[u8]>`. A reader clones the `Arc` and parses without holding a lock; an editor
//! replaces the bytes (copying them only if a reader or a commit still holds the old ones). Edits need a
//! [`Handle`], so that no block changes outside a transaction. The checksum inside a block is wrong between
//! an edit and the commit, which seals every dirty block once ([`BlockCache::freeze`]); what a block *is*,
//! and so how it is sealed and verified, is its [`Kind`].
//!
//! Hazards and invariants:
//! - a dirty block, or one that a commit is still writing, is held by the dirty list or by the frozen list
//!   and is therefore never evicted (eviction takes only blocks without other owners);
//! - a freed block is *forgotten*: it leaves the cache and the dirty list at once, so that its old bytes
//!   don't overwrite those of the block's next user;
//! - a block is read under its shard's loading lock, so that no reader can bring back bytes from before an
//!   edit that was made, committed and evicted while it read.
//!
//! What it is not: a cache of file data, which bypasses it unless it is journalled
//! ([`crate::data::journalled`]), nor of bitmaps and descriptors, which are rendered from typed state.

use crate::error::Result;
use crate::stores::fs_errors::Findings;
use crate::stores::shard::Cached;
use crate::stores::sharded::{DirtyList, Sharded};
use hectare_ext4::checksum::Seed;
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::error::Place;
use hectare_ext4::extent::TreeGeometry;
use hectare_ext4::{dir, extent, xattr};
use hectare_journal::{Handle, MetadataView};
use hectare_units::{BlockNr, BlockSize, Bytes, LogicalBlock, u64_of};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a block is, which decides how it is verified and sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A block whose parts carry their own checksums (inode table), or that has none (symlink target).
    Plain,
    /// A node of an extent tree.
    ExtentNode { geometry: TreeGeometry, seed: Option<Seed> },
    /// A block of a directory.
    Directory { format: DirFormat, seed: Option<Seed>, logical: LogicalBlock, indexed: bool },
    /// An attribute block; the seed is the volume's.
    Xattr(Option<Seed>),
}

impl Kind {
    /// Its name in the record of errors.
    fn name(&self) -> &'static str {
        match self {
            Self::Plain => "metadata block",
            Self::ExtentNode { .. } => "extent node",
            Self::Directory { .. } => "directory block",
            Self::Xattr(_) => "attribute block",
        }
    }

    fn verify(&self, nr: BlockNr, bytes: &[u8], place: Place) -> Result<()> {
        match self {
            Self::ExtentNode { geometry, seed } => Ok(extent::check_block(bytes, nr, geometry, *seed)?),
            Self::Directory { format, seed, logical, indexed } => {
                Ok(dir::verify_block(bytes, format, *seed, *logical, *indexed, place)?)
            }
            Self::Xattr(Some(seed)) => Ok(xattr::verify(bytes, *seed, nr)?),
            Self::Xattr(None) | Self::Plain => Ok(()),
        }
    }

    fn seal(&self, nr: BlockNr, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::ExtentNode { seed: Some(seed), .. } => extent::set_checksum(bytes, *seed),
            Self::Directory { format, seed, logical, indexed } => {
                dir::set_checksum(bytes, format, *seed, *logical, *indexed, Place::Block(nr))?;
            }
            Self::Xattr(Some(seed)) => xattr::seal(bytes, *seed, nr),
            Self::ExtentNode { seed: None, .. } | Self::Xattr(None) | Self::Plain => {}
        }
        Ok(())
    }
}

struct Content {
    bytes: Arc<[u8]>,
    kind: Kind,
}

/// One metadata block in memory.
pub(crate) struct Block {
    nr: BlockNr,
    content: RwLock<Content>,
    dirty: AtomicBool,
    forgotten: AtomicBool,
    /// Set by use, cleared by the eviction sweep.
    recent: AtomicBool,
}

impl Block {
    /// Where the block lies.
    pub(crate) fn nr(&self) -> BlockNr {
        self.nr
    }

    /// The bytes as they are now; later edits don't change what was returned.
    pub(crate) fn bytes(&self) -> Arc<[u8]> {
        self.recent.store(true, Ordering::Relaxed);
        Arc::clone(&self.content.read().bytes)
    }
}

impl Cached for Block {
    fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    fn take_recent(&self) -> bool {
        self.recent.swap(false, Ordering::Relaxed)
    }
}

/// Bytes frozen by a commit, to be written to `nr`.
pub(crate) struct FrozenBlock {
    pub(crate) nr: BlockNr,
    pub(crate) bytes: Arc<[u8]>,
    /// Keeps the block from being evicted, and then read back too early, until it is written.
    _held: Arc<Block>,
}

/// The cache.
pub(crate) struct BlockCache {
    metadata: MetadataView,
    block_size: BlockSize,
    findings: Arc<Findings>,
    held: Sharded<BlockNr, Block>,
    dirty: DirtyList<Block>,
}

impl BlockCache {
    /// An empty cache that tries to stay under `max_bytes`.
    pub(crate) fn new(
        metadata: MetadataView,
        block_size: BlockSize,
        max_bytes: usize,
        findings: Arc<Findings>,
    ) -> Self {
        Self {
            metadata,
            block_size,
            findings,
            held: Sharded::new(max_bytes / block_size.len()),
            dirty: DirtyList::default(),
        }
    }

    /// Blocks in memory; the shards are counted in turn.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The block, read and verified if it is not in memory.
    pub(crate) fn load(&self, nr: BlockNr, kind: Kind, place: Place) -> Result<Arc<Block>> {
        self.load_with(nr, || kind, place)
    }

    /// Like [`Self::load`], where finding out the kind is work: it is done only for a block that is read.
    pub(crate) fn load_with(
        &self,
        nr: BlockNr,
        kind: impl FnOnce() -> Kind,
        place: Place,
    ) -> Result<Arc<Block>> {
        self.held.load(nr, || {
            let kind = kind();
            let read = self.read(nr, kind, place);
            let bytes = read.inspect_err(|error| self.findings.note_read(error, kind.name(), place, nr))?;
            Ok(new_block(nr, bytes, kind))
        })
    }

    fn read(&self, nr: BlockNr, kind: Kind, place: Place) -> Result<Arc<[u8]>> {
        let mut bytes = self.zeros();
        self.metadata.read_at(nr.offset(self.block_size), Arc::make_mut(&mut bytes))?;
        kind.verify(nr, &bytes, place)?;
        Ok(bytes)
    }

    /// A block that will be written whole: zeros, without reading. A block of that number still in memory is
    /// reused.
    pub(crate) fn fresh(&self, nr: BlockNr, kind: Kind) -> Arc<Block> {
        let block = self.insert(nr, self.zeros(), kind);
        let mut content = block.content.write();
        if content.bytes.iter().any(|byte| *byte != 0) {
            content.bytes = self.zeros();
        }
        content.kind = kind;
        drop(content);
        block
    }

    /// A plain block whose bytes on the device mean nothing yet: as in memory, or else zeros, without
    /// reading.
    pub(crate) fn load_zeros(&self, nr: BlockNr) -> Arc<Block> {
        self.held.find(nr).unwrap_or_else(|| self.insert(nr, self.zeros(), Kind::Plain))
    }

    /// A block's worth of zeros.
    fn zeros(&self) -> Arc<[u8]> {
        std::iter::repeat_n(0, self.block_size.len()).collect()
    }

    fn insert(&self, nr: BlockNr, bytes: Arc<[u8]>, kind: Kind) -> Arc<Block> {
        self.held.get_or_insert_with(nr, || new_block(nr, bytes, kind))
    }

    /// Changes a block inside a transaction, without changing its kind.
    pub(crate) fn edit_as_is<R>(
        &self,
        handle: &mut Handle<'_>,
        block: &Arc<Block>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        if self.mark_dirty(block) {
            handle.dirtied("a metadata block");
        }
        change(Arc::make_mut(&mut block.content.write().bytes))
    }

    /// Changes a block inside a transaction.
    pub(crate) fn edit<R>(
        &self,
        handle: &mut Handle<'_>,
        block: &Arc<Block>,
        kind: Kind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        if self.mark_dirty(block) {
            handle.dirtied("a metadata block");
        }
        let mut content = block.content.write();
        content.kind = kind;
        change(Arc::make_mut(&mut content.bytes))
    }

    /// Changes a block for the commit under way: called by the committing thread, with or without open
    /// handles.
    pub(crate) fn render(&self, block: &Arc<Block>, change: impl FnOnce(&mut [u8])) {
        self.mark_dirty(block);
        change(Arc::make_mut(&mut block.content.write().bytes));
    }

    /// Puts a block on the dirty list; returns whether it was not there yet.
    fn mark_dirty(&self, block: &Arc<Block>) -> bool {
        let first = !block.dirty.swap(true, Ordering::AcqRel);
        if first {
            self.dirty.push(block);
        }
        first
    }

    /// Drops a block that was freed, so that it is neither written nor found again; returns whether it was
    /// dirty, or may still be being written, as by a commit.
    pub(crate) fn forget(&self, nr: BlockNr) -> bool {
        let block = self.held.remove(nr);
        block.is_some_and(|block| {
            block.forgotten.store(true, Ordering::Release);
            // The list of dirty blocks holds it, or a commit, until it is in the log.
            Arc::strong_count(&block) > 1
        })
    }

    /// Copies the current bytes out: from blocks in memory, and around them from the device. The blocks are
    /// not kept. They must not change meanwhile.
    pub(crate) fn read_at(&self, at: Bytes, out: &mut [u8]) -> Result<()> {
        let shift = self.block_size.shift();
        let (first, end) = (at.get() >> shift, at.get().saturating_add(u64_of(out.len())));
        let blocks = first..end.div_ceil(1 << shift);
        // Looked up before the device is read: what is not in memory now is current on the device.
        let held = |nr| self.held.find(BlockNr::new(nr)).map(|block| (block.nr, block.bytes()));
        let found: Vec<(BlockNr, Arc<[u8]>)> = blocks.clone().filter_map(held).collect();
        if u64_of(found.len()) < blocks.end - blocks.start {
            self.metadata.read_at(at, out)?;
        }
        found.iter().for_each(|(nr, bytes)| hectare_journal::lay_over(out, at, *nr, bytes));
        Ok(())
    }

    /// Takes everything dirty, sealed, in ascending order. Called with no handle open.
    pub(crate) fn freeze(&self) -> Result<Vec<FrozenBlock>> {
        let mut dirty = self.dirty.take();
        self.dirty.uncount_all();
        dirty.retain(|block| {
            block.dirty.store(false, Ordering::Release);
            !block.forgotten.load(Ordering::Acquire)
        });
        dirty.sort_unstable_by_key(|block| block.nr);
        dirty.into_iter().map(freeze_block).collect()
    }

    /// Blocks that wait for the next commit.
    pub(crate) fn dirty_blocks(&self) -> usize {
        self.dirty.count()
    }
}

fn new_block(nr: BlockNr, bytes: Arc<[u8]>, kind: Kind) -> Arc<Block> {
    Arc::new(Block {
        nr,
        content: RwLock::new(Content { bytes, kind }),
        dirty: AtomicBool::new(false),
        forgotten: AtomicBool::new(false),
        recent: AtomicBool::new(true),
    })
}

fn freeze_block(block: Arc<Block>) -> Result<FrozenBlock> {
    let mut content = block.content.write();
    let kind = content.kind;
    kind.seal(block.nr, Arc::make_mut(&mut content.bytes))?;
    let bytes = Arc::clone(&content.bytes);
    drop(content);
    Ok(FrozenBlock { nr: block.nr, bytes, _held: block })
}
