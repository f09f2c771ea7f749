//! Old copies of blocks that the journal still has: of metadata, and of data where it is journalled.
//!
//! The log is a ring, and nothing clears it: behind its newest transaction lie those that were written back
//! long ago. Every block that looks like a descriptor is followed to its copies, wherever the log now
//! begins.
//!
//! Invariants: a block of the log is the copy of one block at most, in the newest transaction that claims
//! it. A copy counts only if its checksum is right, where there are any, and if its transaction is no newer
//! than the newest one that was committed: the blocks of a later one may be older than their descriptor.
//!
//! A copy of a block that was freed in between is not content of its next owner. Whoever frees a block that
//! is in the log has to revoke it: so a copy is content of a removed file ([`OldBlocks::content_before`])
//! only if nothing revoked its block between both, and if the log has all transactions since, which may have
//! done that. Kernels before 6.4 and e2fsck begin the log anew at each mount, so that there may be gaps.
//!
//! Memory: some 50 bytes for each block of the log, and 16 for each record of a revoke.

use crate::volume::Volume;
use crate::watch::{Step, Watch};
use hectare_journal::format::{BlockType, JournalSuperblock, LogFormat, header};
use hectare_journal::recovery::LogMap;
use hectare_units::{BlockNr, LogicalBlock, TxnId, low32};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// A block of the log that holds what a block of the volume once held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OldBlock {
    /// The transaction that wrote it.
    pub(crate) txn: TxnId,
    /// Where it lies, as a block of the volume.
    pub(crate) place: BlockNr,
    /// Whether its first word was the journal's magic number, and is zero in the log.
    pub(crate) escaped: bool,
}

/// All old copies.
#[derive(Default)]
pub(crate) struct OldBlocks {
    by_block: BTreeMap<BlockNr, Vec<OldBlock>>,
    /// The transactions that revoked a block.
    revoked: HashMap<BlockNr, Vec<TxnId>>,
    /// The first transaction from which on the log has all.
    unbroken_from: Option<TxnId>,
}

/// What a descriptor says of a block of the log.
struct Claim {
    txn: TxnId,
    of: BlockNr,
    checksum: u32,
    escaped: bool,
}

/// What all blocks of a log say.
#[derive(Default)]
struct Said {
    /// By the block of the log.
    claims: BTreeMap<u32, Claim>,
    revoked: HashMap<BlockNr, Vec<TxnId>>,
    /// The newest transaction that was committed.
    newest: Option<TxnId>,
    /// All that were.
    committed: HashSet<TxnId>,
}

impl Said {
    /// The first transaction from which on all were committed, and are in the log.
    fn unbroken_from(&self) -> Option<TxnId> {
        let mut first = self.newest?;
        loop {
            let before = TxnId::new(first.get().wrapping_sub(1));
            if !self.committed.contains(&before) {
                return Some(first);
            }
            first = before;
        }
    }
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

    fn read(&self, watch: &dyn Watch) -> Said {
        let Said { mut claims, mut revoked, mut newest, mut committed } = Said::default();
        for at in self.first..self.end {
            let Some(nr) = self.locate(at) else { break };
            let block = self.volume.block(nr);
            match header(&block) {
                Some((BlockType::Descriptor, txn)) => self.read_descriptor(at, txn, &block, &mut claims),
                Some((BlockType::Commit, txn)) => {
                    committed.insert(txn);
                    newest = newest.filter(|newest| !txn.is_after(*newest)).or(Some(txn));
                }
                Some((BlockType::Revoke, txn)) if self.format.verify_tail(&block) => {
                    for nr in self.format.revoked(&block).into_iter().flatten() {
                        revoked.entry(nr).or_insert_with(Vec::new).push(txn);
                    }
                }
                _ => {}
            }
            if at % 256 == 0 {
                watch.advance(Step::Log, u64::from(at - self.first), u64::from(self.end - self.first));
            }
        }
        Said { claims, revoked, newest, committed }
    }

    fn read_descriptor(&self, at: u32, txn: TxnId, block: &[u8], claims: &mut BTreeMap<u32, Claim>) {
        for (count, tag) in (1..).zip(self.format.tags(block)) {
            let Some(place) = self.behind(at, count) else { break };
            let is_newer = claims.get(&place).is_none_or(|known| txn.is_after(known.txn));
            if is_newer {
                let (of, checksum, escaped) = (tag.block, tag.checksum, tag.escaped);
                claims.insert(place, Claim { txn, of, checksum, escaped });
            }
        }
    }
}

impl OldBlocks {
    /// Reads the whole log.
    pub(crate) fn read(volume: &Volume, watch: &dyn Watch) -> Self {
        let mut old = Self::default();
        let Some(log) = Log::of(volume) else { return old };
        let said = log.read(watch);
        old.unbroken_from = said.unbroken_from();
        let Said { claims, revoked, newest, .. } = said;
        old.revoked = revoked;
        for (at, claim) in claims {
            let Some(place) = log.locate(at) else { continue };
            let block = volume.block(place);
            let is_committed = newest.is_some_and(|newest| !claim.txn.is_after(newest));
            // With a header, the log went on over it.
            let is_copy = header(&block).is_none();
            if is_committed && is_copy && log.format.verify_copy(claim.checksum, claim.txn, &block) {
                let Claim { txn, escaped, .. } = claim;
                old.by_block.entry(claim.of).or_default().push(OldBlock { txn, place, escaped });
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
    pub(crate) fn all(&self) -> impl Iterator<Item = (BlockNr, &[OldBlock])> {
        self.by_block.iter().map(|(nr, copies)| (*nr, &copies[..]))
    }

    /// The blocks of a range of which there are copies that may be content of a file which was removed in
    /// transaction `end`, with the newest of these; in the order of blocks.
    pub(crate) fn content_before(
        &self,
        range: Range<BlockNr>,
        end: Option<TxnId>,
    ) -> impl Iterator<Item = (BlockNr, OldBlock)> + '_ {
        self.by_block.range(range).filter_map(move |(nr, copies)| {
            let is_before = |txn: TxnId| end.is_none_or(|end| end.is_after(txn));
            let copy = copies.iter().find(|copy| is_before(copy.txn))?;
            let is_unbroken = self.unbroken_from.is_some_and(|first| !first.is_after(copy.txn));
            // A record counts for its own transaction only if the block was not logged again in it.
            let was_freed = |txn: &TxnId| txn.is_after(copy.txn) && is_before(*txn);
            let is_revoked = self.revoked.get(nr).is_some_and(|txns| txns.iter().any(was_freed));
            (is_unbroken && !is_revoked).then_some((*nr, *copy))
        })
    }

    /// The first transaction after one that wrote a block again.
    pub(crate) fn next_after(&self, nr: BlockNr, txn: TxnId) -> Option<TxnId> {
        let copies = self.by_block.get(&nr)?;
        copies.iter().map(|copy| copy.txn).take_while(|later| later.is_after(txn)).last()
    }

    /// Where the newest copy of a block lies that is older than a transaction, if one is given.
    pub(crate) fn before(&self, nr: BlockNr, end: Option<TxnId>) -> Option<BlockNr> {
        let mut copies = self.by_block.get(&nr)?.iter();
        copies
            .find(|copy| !copy.escaped && end.is_none_or(|end| end.is_after(copy.txn)))
            .map(|copy| copy.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(copies: &[u32], revoked: &[u32], unbroken_from: u32) -> OldBlocks {
        let copy = |txn: &u32| OldBlock {
            txn: TxnId::new(*txn),
            place: BlockNr::new(u64::from(*txn) * 10),
            escaped: false,
        };
        let nr = BlockNr::new(1000);
        OldBlocks {
            by_block: BTreeMap::from([(nr, copies.iter().map(copy).collect())]),
            revoked: HashMap::from([(nr, revoked.iter().copied().map(TxnId::new).collect())]),
            unbroken_from: Some(TxnId::new(unbroken_from)),
        }
    }

    fn found(log: &OldBlocks, end: Option<u32>) -> Option<u64> {
        let range = BlockNr::new(990)..BlockNr::new(1010);
        let mut found = log.content_before(range, end.map(TxnId::new));
        found.next().map(|(_, copy)| copy.place.get())
    }

    #[test]
    fn content_is_the_newest_copy_that_nothing_revoked_since() {
        assert_eq!(found(&log(&[8, 5, 3], &[], 1), Some(9)), Some(80));
        assert_eq!(found(&log(&[8, 5, 3], &[], 1), Some(8)), Some(50));
        assert_eq!(found(&log(&[8, 5, 3], &[], 1), None), Some(80));
        // Freed in between, and another file's since.
        assert_eq!(found(&log(&[5], &[7], 1), Some(9)), None);
        // Freed with the file itself; or freed and logged again in one transaction.
        assert_eq!(found(&log(&[5], &[9, 5, 4], 1), Some(9)), Some(50));
        // What happened between 5 and 7 is not known.
        assert_eq!(found(&log(&[5], &[], 7), Some(9)), None);
        assert_eq!(found(&log(&[10], &[], 1), Some(9)), None);
    }

    #[test]
    fn a_gap_between_transactions_ends_what_is_known() {
        let said = |committed: &[u32]| Said {
            newest: committed.iter().copied().map(TxnId::new).next_back(),
            committed: committed.iter().copied().map(TxnId::new).collect(),
            ..Said::default()
        };
        assert_eq!(said(&[1, 2, 5, 6, 7]).unbroken_from(), Some(TxnId::new(5)));
        assert_eq!(said(&[u32::MAX, 0, 1]).unbroken_from(), Some(TxnId::new(u32::MAX)));
        assert_eq!(said(&[]).unbroken_from(), None);
    }
}
