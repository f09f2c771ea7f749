//! The orphan file in use: tracks its free slots.
//!
//! Its blocks are read and verified one after the other, each when those before it are full, and stay in
//! memory from then on. A block that can't be read does not fail the operation that adds an orphan: the file
//! counts as full, and the list takes it. Only the recorded orphans must all be found
//! ([`OrphanFile::load_all`]).

use crate::error::Result;
use crate::stores::block_cache::{Block, BlockCache, Kind};
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::Place;
use hectare_ext4::orphan::{OrphanBlock, OrphanBlockMut, slots_in};
use hectare_journal::Handle;
use hectare_units::{BlockNr, InodeNr};
use std::sync::Arc;

/// A place in the orphan file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    block: usize,
    slot: usize,
}

/// The orphan file.
pub(crate) struct OrphanFile {
    inode: InodeNr,
    /// The seed of its checksums.
    seed: Option<Seed>,
    /// Its blocks that were not read yet, the next one last.
    unread: Vec<BlockNr>,
    read: Vec<Loaded>,
}

/// A block that was read.
struct Loaded {
    block: Arc<Block>,
    free: usize,
    /// Where to look for a free slot first.
    hint: usize,
}

impl OrphanFile {
    /// The orphan file, inode `inode`, with its blocks, the last one first, and the seed of its checksums.
    pub(crate) fn new(inode: InodeNr, seed: Option<Seed>, unread: Vec<BlockNr>) -> Self {
        Self { inode, seed, unread, read: Vec::new() }
    }

    /// Reads all of it, and returns the inodes it holds.
    pub(crate) fn load_all(&mut self, blocks: &BlockCache) -> Result<Vec<(Slot, InodeNr)>> {
        let mut found = Vec::new();
        while let Some(nr) = self.unread.last().copied() {
            self.load(blocks, nr)?;
            let block = self.read.len() - 1;
            let bytes = self.read[block].block.bytes();
            let orphans = OrphanBlock::new(&bytes, nr, self.seed)?;
            found.extend(orphans.orphans().map(|(slot, inode)| (Slot { block, slot }, inode)));
        }
        Ok(found)
    }

    /// Reads the next block, `nr`.
    fn load(&mut self, blocks: &BlockCache, nr: BlockNr) -> Result<()> {
        let block = blocks.load(nr, Kind::Plain, Place::Inode(self.inode))?;
        let bytes = block.bytes();
        let used = OrphanBlock::new(&bytes, nr, self.seed)?.orphans().count();
        let free = slots_in(bytes.len()).saturating_sub(used);
        self.unread.pop();
        self.read.push(Loaded { block, free, hint: 0 });
        Ok(())
    }

    /// Puts an inode into a free slot; returns `None` if there is none.
    pub(crate) fn add(
        &mut self,
        blocks: &BlockCache,
        handle: &mut Handle<'_>,
        inode: InodeNr,
    ) -> Option<Slot> {
        let block = loop {
            if let Some(block) = self.read.iter().position(|loaded| loaded.free > 0) {
                break block;
            }
            let next = *self.unread.last()?;
            if self.load(blocks, next).is_err() {
                self.unread.clear();
                return None;
            }
        };
        let hint = self.read[block].hint;
        let slot = self.edit(blocks, handle, block, |orphans| orphans.add(inode, hint));
        let loaded = &mut self.read[block];
        match slot {
            Some(slot) => (loaded.free, loaded.hint) = (loaded.free - 1, slot + 1),
            None => loaded.free = 0,
        }
        slot.map(|slot| Slot { block, slot })
    }

    /// Frees the slot of an inode.
    pub(crate) fn remove(
        &mut self,
        blocks: &BlockCache,
        handle: &mut Handle<'_>,
        Slot { block, slot }: Slot,
        inode: InodeNr,
    ) {
        if self.edit(blocks, handle, block, |orphans| orphans.remove(slot, inode)) {
            let loaded = &mut self.read[block];
            (loaded.free, loaded.hint) = (loaded.free + 1, slot);
        }
    }

    /// Changes a block. It is sealed at once: the block cache does not know its kind.
    fn edit<R>(
        &self,
        blocks: &BlockCache,
        handle: &mut Handle<'_>,
        block: usize,
        change: impl FnOnce(&mut OrphanBlockMut<'_>) -> R,
    ) -> R {
        let block = &self.read[block].block;
        blocks.edit_as_is(handle, block, |bytes| {
            let mut orphans = OrphanBlockMut::new(bytes, block.nr());
            let result = change(&mut orphans);
            if let Some(seed) = self.seed {
                orphans.seal(seed);
            }
            result
        })
    }
}
