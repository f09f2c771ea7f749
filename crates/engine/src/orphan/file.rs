//! The orphan file in use: tracks its free slots.
//!
//! Its blocks are read and verified one after the other, each when those before it are full, and stay in
//! memory from then on. A block that can't be read does not fail the operation that adds an orphan: the file
//! counts as full, and the list takes it. Only the recorded orphans must all be found
//! ([`OrphanFile::load_all`]).

use crate::cache::block::{Block, Kind};
use crate::error::Result;
use crate::map::MapRef;
use crate::volume::{Shared, Volume};
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::orphan::{OrphanBlock, OrphanBlockMut, slots_in};
use hectare_journal::Handle;
use hectare_units::{BlockNr, Blocks, InodeNr};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most blocks an orphan file may have: as large a file as any tool makes, with the smallest blocks.
const BLOCKS_MAX: u64 = 8192;

/// A place in the orphan file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    block: usize,
    slot: usize,
}

/// The orphan file.
pub(super) struct OrphanFile {
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
    /// Finds the blocks of the orphan file, inode `nr`.
    pub(super) fn find(volume: &Volume, nr: InodeNr) -> Result<Self> {
        let bad = |what: &'static str| Corrupt::new("the orphan file", Place::Inode(nr), what);
        let inode = volume.inode(nr)?;
        let data = inode.get();
        let blocks = data.size >> volume.geometry().block_size.shift();
        if blocks > BLOCKS_MAX {
            return Err(bad("it is larger than any is made").into());
        }
        let map = MapRef { volume, nr, inode: &data };
        let mut unread: Vec<BlockNr> = Vec::new();
        let mut sound = true;
        map.for_each(hectare_units::LogicalBlock::ZERO, &mut |extent| {
            let next = hectare_units::u64_of(unread.len());
            sound &= !extent.unwritten && u64::from(extent.logical.get()) == next;
            let wanted = blocks.saturating_sub(next).min(extent.len.into());
            if wanted == 0 || !sound {
                return ControlFlow::Break(());
            }
            unread.extend((0..wanted).map(|step| extent.physical + Blocks::new(step)));
            ControlFlow::Continue(())
        })?;
        if !sound || hectare_units::u64_of(unread.len()) != blocks {
            return Err(bad("it has holes").into());
        }
        unread.reverse();
        Ok(Self { inode: nr, seed: data.seed(nr, &volume.sb), unread, read: Vec::new() })
    }

    /// Reads all of it, and returns the inodes it holds.
    pub(super) fn load_all(&mut self, volume: &Shared) -> Result<Vec<(Slot, InodeNr)>> {
        let mut found = Vec::new();
        while let Some(nr) = self.unread.last().copied() {
            self.load(volume, nr)?;
            let block = self.read.len() - 1;
            let bytes = self.read[block].block.bytes();
            let orphans = OrphanBlock::new(&bytes, nr, self.seed)?;
            found.extend(orphans.orphans().map(|(slot, inode)| (Slot { block, slot }, inode)));
        }
        Ok(found)
    }

    /// Reads the next block, `nr`.
    fn load(&mut self, volume: &Shared, nr: BlockNr) -> Result<()> {
        let block = volume.blocks.load(nr, Kind::Plain, Place::Inode(self.inode))?;
        let bytes = block.bytes();
        let used = OrphanBlock::new(&bytes, nr, self.seed)?.orphans().count();
        let free = slots_in(bytes.len()).saturating_sub(used);
        self.unread.pop();
        self.read.push(Loaded { block, free, hint: 0 });
        Ok(())
    }

    /// Puts an inode into a free slot; returns `None` if there is none.
    pub(super) fn add(&mut self, volume: &Shared, handle: &mut Handle<'_>, inode: InodeNr) -> Option<Slot> {
        let block = loop {
            if let Some(block) = self.read.iter().position(|loaded| loaded.free > 0) {
                break block;
            }
            let next = *self.unread.last()?;
            if self.load(volume, next).is_err() {
                self.unread.clear();
                return None;
            }
        };
        let hint = self.read[block].hint;
        let slot = self.edit(volume, handle, block, |orphans| orphans.add(inode, hint));
        let loaded = &mut self.read[block];
        match slot {
            Some(slot) => (loaded.free, loaded.hint) = (loaded.free - 1, slot + 1),
            None => loaded.free = 0,
        }
        slot.map(|slot| Slot { block, slot })
    }

    /// Frees the slot of an inode.
    pub(super) fn remove(
        &mut self,
        volume: &Shared,
        handle: &mut Handle<'_>,
        Slot { block, slot }: Slot,
        inode: InodeNr,
    ) {
        if self.edit(volume, handle, block, |orphans| orphans.remove(slot, inode)) {
            let loaded = &mut self.read[block];
            (loaded.free, loaded.hint) = (loaded.free + 1, slot);
        }
    }

    /// Changes a block. It is sealed at once: the block cache does not know its kind.
    fn edit<R>(
        &self,
        volume: &Shared,
        handle: &mut Handle<'_>,
        block: usize,
        change: impl FnOnce(&mut OrphanBlockMut<'_>) -> R,
    ) -> R {
        let block = &self.read[block].block;
        volume.blocks.edit_as_is(handle, block, |bytes| {
            let mut orphans = OrphanBlockMut::new(bytes, block.nr());
            let result = change(&mut orphans);
            if let Some(seed) = self.seed {
                orphans.seal(seed);
            }
            result
        })
    }
}
