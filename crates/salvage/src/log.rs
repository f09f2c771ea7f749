//! Old copies of metadata blocks that the journal still has.
//!
//! The log is a ring, and nothing clears it: behind its newest transaction lie those that were written back
//! long ago. Every block that looks like a descriptor is followed to its copies, wherever the log now begins.
//!
//! Invariants: a block of the log is the copy of one block at most, in the newest transaction that claims it.
//! A copy counts only if its checksum is right, where there are any, and if its transaction is no newer than
//! the newest one that was committed: the blocks of a later one may be older than their descriptor.
//!
//! Memory: some 50 bytes for each block of the log.

use crate::volume::Volume;
use crate::{Step, Watch};
use hectare_journal::format::{BlockType, JournalSuperblock, LogFormat, header};
use hectare_journal::recovery::LogMap;
use hectare_units::{BlockNr, LogicalBlock, TxnId, low32};
use std::collections::{BTreeMap, HashMap};

/// A block of the log that holds what a block of the volume once held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OldBlock {
    /// The transaction that wrote it.
    pub(crate) txn: TxnId,
    /// Where it lies, as a block of the volume.
    pub(crate) place: BlockNr,
}

/// All old copies.
#[derive(Default)]
pub(crate) struct OldBlocks {
    by_block: HashMap<BlockNr, Vec<OldBlock>>,
}

/// What a descriptor says of a block of the log.
struct Claim {
    txn: TxnId,
    of: BlockNr,
    checksum: u32,
}

/// The log as it is read here.
struct Log<'a> {
    volume: &'a Volume,
    map: &'a LogMap,
    format: LogFormat,
    first: u32,
    end: u32,
}

impl Log<'_> {
    fn of(volume: &Volume) -> Option<Log<'_>> {
        let map = volume.log.as_ref()?;
        let (start, _) = map.locate(map.superblock())?;
        let superblock = JournalSuperblock::parse(&volume.block(start)).ok()?;
        let end = superblock.end().get().min(low32(map.blocks().get()));
        Some(Log { volume, map, format: superblock.log_format(), first: superblock.first().get(), end })
    }

    fn locate(&self, at: u32) -> Option<BlockNr> {
        self.map.locate(LogicalBlock::new(at)).map(|(nr, _)| nr)
    }

    /// The block `count` blocks behind another, around the end.
    fn behind(&self, at: u32, count: u32) -> Option<u32> {
        let len = self.end.checked_sub(self.first).filter(|len| *len > 0)?;
        let turned = (u64::from(at.checked_sub(self.first)?) + u64::from(count)) % u64::from(len);
        Some(self.first + low32(turned))
    }

    /// What the descriptors claim, by the block of the log; and the newest transaction that was committed.
    fn claims(&self, watch: &dyn Watch) -> (BTreeMap<u32, Claim>, Option<TxnId>) {
        let mut claims: BTreeMap<u32, Claim> = BTreeMap::new();
        let mut newest: Option<TxnId> = None;
        for at in self.first..self.end {
            let Some(nr) = self.locate(at) else { break };
            let block = self.volume.block(nr);
            match header(&block) {
                Some((BlockType::Descriptor, txn)) => self.read_descriptor(at, txn, &block, &mut claims),
                Some((BlockType::Commit, txn)) if newest.is_none_or(|newest| txn.is_after(newest)) => {
                    newest = Some(txn);
                }
                _ => {}
            }
            if at % 256 == 0 {
                watch.advance(Step::Log, u64::from(at - self.first), u64::from(self.end - self.first));
            }
        }
        (claims, newest)
    }

    fn read_descriptor(&self, at: u32, txn: TxnId, block: &[u8], claims: &mut BTreeMap<u32, Claim>) {
        for (count, tag) in (1..).zip(self.format.tags(block)) {
            let Some(place) = self.behind(at, count) else { break };
            let is_newer = claims.get(&place).is_none_or(|known| txn.is_after(known.txn));
            // The first word of an escaped block is not in its copy; no metadata begins so.
            if is_newer && !tag.escaped {
                claims.insert(place, Claim { txn, of: tag.block, checksum: tag.checksum });
            }
        }
    }
}

impl OldBlocks {
    /// Reads the whole log.
    pub(crate) fn read(volume: &Volume, watch: &dyn Watch) -> Self {
        let mut old = Self::default();
        let Some(log) = Log::of(volume) else { return old };
        let (claims, newest) = log.claims(watch);
        for (at, claim) in claims {
            let Some(place) = log.locate(at) else { continue };
            let block = volume.block(place);
            let is_committed = newest.is_some_and(|newest| !claim.txn.is_after(newest));
            // With a header, the log went on over it.
            let is_copy = header(&block).is_none();
            if is_committed && is_copy && log.format.verify_copy(claim.checksum, claim.txn, &block) {
                old.by_block.entry(claim.of).or_default().push(OldBlock { txn: claim.txn, place });
            }
        }
        for copies in old.by_block.values_mut() {
            // Newest first. Distances wrap as numbers of transactions do.
            let from = copies[0].txn.get();
            copies.sort_by_key(|copy| std::cmp::Reverse(copy.txn.get().wrapping_sub(from).cast_signed()));
        }
        old
    }

    /// The blocks of which there are copies, with these, the newest first; in the order of blocks.
    pub(crate) fn all(&self) -> Vec<(BlockNr, &[OldBlock])> {
        let mut all: Vec<_> = self.by_block.iter().map(|(nr, copies)| (*nr, &copies[..])).collect();
        all.sort_by_key(|(nr, _)| *nr);
        all
    }

    /// The first transaction after one that wrote a block again.
    pub(crate) fn next_after(&self, nr: BlockNr, txn: TxnId) -> Option<TxnId> {
        let copies = self.by_block.get(&nr)?;
        copies.iter().map(|copy| copy.txn).take_while(|later| later.is_after(txn)).last()
    }

    /// Where the newest copy of a block lies that is older than a transaction, if one is given.
    pub(crate) fn before(&self, nr: BlockNr, end: Option<TxnId>) -> Option<BlockNr> {
        let mut copies = self.by_block.get(&nr)?.iter();
        copies.find(|copy| end.is_none_or(|end| end.is_after(copy.txn))).map(|copy| copy.place)
    }
}
