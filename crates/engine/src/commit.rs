//! The commit: everything typed becomes bytes, once, and the bytes go home.
//!
//! [`Committer::freeze`] runs with no handle open. It renders inodes into their table blocks, block bitmaps
//! from the allocator, inode bitmaps and descriptors from the groups, seals every dirty metadata block, and
//! the superblock last. [`Committer::write`] then writes all of it beside new work. Without a journal this
//! goes straight to the home blocks; a journal will put a log in between, from the same frozen blocks.
//!
//! Invariant: a block appears once among the frozen ones, since each kind of metadata has one owner (the
//! block cache, the allocator, the groups, the superblock). Only a broken volume makes two structures claim
//! one block, and then nothing of the transaction is written.

use crate::error::{Error, Result};
use crate::groups::Rendered;
use crate::volume::Shared;
use hectare_ext4::error::{Corrupt, Place};
use hectare_journal::Commit;
use hectare_units::{GroupNr, TxnId};
use std::any::Any;
use std::io::IoSlice;
use std::sync::Arc;

/// Blocks of one gathering write.
const RUN_MAX: usize = 256;

/// Groups whose block bitmaps are kept in memory after a commit, 4 KiB each with blocks of 4 KiB.
const LOADED_GROUPS_MAX: usize = 2048;

/// What a commit writes.
pub(crate) struct Frozen {
    blocks: Vec<Rendered>,
    superblock: [u8; hectare_ext4::superblock::SIZE],
    /// Keeps cached blocks from eviction until they are written.
    _held: Box<dyn Any + Send>,
}

/// Renders and writes a volume's transactions.
pub(crate) struct Committer {
    shared: Arc<Shared>,
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Commit for Committer {
    type Frozen = Frozen;
    type Error = Error;

    fn freeze(&self, txn: TxnId) -> Result<Frozen> {
        let shared = &*self.shared;
        shared.inodes.render(&shared.blocks, &shared.sb);
        let mut blocks: Vec<Rendered> = Vec::new();
        shared.allocator.render_dirty(txn, |group, words, free| {
            blocks.push(shared.groups.seal_block_bitmap(group, words, free)?);
            Ok::<(), Error>(())
        })?;
        blocks.extend(shared.groups.render()?);
        let cached = shared.blocks.freeze()?;
        blocks.extend(cached.iter().map(|block| (block.nr, Arc::clone(&block.bytes))));
        blocks.sort_unstable_by_key(|(nr, _)| *nr);
        if let Some(pair) = blocks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let what = "two structures claim it";
            return Err(Corrupt::new("a metadata block", Place::Block(pair[0].0), what).into());
        }
        let superblock = shared.refresh_superblock().render(GroupNr::new(0));
        Ok(Frozen { blocks, superblock, _held: Box::new(cached) })
    }

    fn write(&self, frozen: Frozen, _txn: TxnId) -> Result<()> {
        let shared = &*self.shared;
        let size = shared.geometry().block_size;
        let mut rest = frozen.blocks.as_slice();
        while let Some((first, _)) = rest.first() {
            let (run, after) = rest.split_at(run_length(rest));
            let parts: Vec<IoSlice<'_>> = run.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
            shared.device.write_all_at(first.offset(size), &parts)?;
            rest = after;
        }
        shared.count_written(frozen.blocks.len() * size.len());
        if !frozen.blocks.is_empty() {
            shared.device.write_at(crate::groups::SUPERBLOCK_AT, &frozen.superblock)?;
        }
        // Durable before `committed` gives freed clusters to others, whose data would else be seen through
        // this file's old map after a crash.
        shared.device.flush()?;
        Ok(())
    }

    fn committed(&self, txn: TxnId) {
        let allocator = &self.shared.allocator;
        allocator.committed(txn);
        let excess = allocator.loaded_groups().saturating_sub(LOADED_GROUPS_MAX);
        if excess > 0 {
            allocator.evict(excess);
        }
    }
}

/// How many of the first blocks lie next to each other.
fn run_length(blocks: &[Rendered]) -> usize {
    let follows = |pair: &[Rendered]| pair[1].0.checked_since(pair[0].0).is_some_and(|gap| gap.get() == 1);
    1 + blocks.windows(2).take(RUN_MAX - 1).take_while(|pair| follows(pair)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::BlockNr;

    #[test]
    fn runs_end_at_gaps() {
        let block = |nr| (BlockNr::new(nr), Arc::from([0u8; 4].as_slice()));
        assert_eq!(run_length(&[block(4), block(5), block(7)]), 2);
        assert_eq!(run_length(&[block(4)]), 1);
    }
}
