//! Logs written with our format code, as the journal will write them, and a model of their meaning.

use crate::recovery::volume::Volume;
use hectare_journal::format::{
    JournalCompat, JournalIncompat, JournalSuperblock, LogFormat, MAGIC, needs_escape,
};
use hectare_units::{BlockNr, LogicalBlock, TxnId, u64_of};
use std::collections::BTreeMap;

/// A small generator of numbers that look random (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Writes transactions into the log of a volume.
pub(crate) struct LogWriter {
    pub(crate) volume: Volume,
    pub(crate) superblock: JournalSuperblock,
    pub(crate) format: LogFormat,
    next: u32,
    pub(crate) txn: TxnId,
    seconds: u64,
    /// What each log block that was written is.
    pub(crate) written: Vec<(LogicalBlock, &'static str)>,
    /// What each block holds once the log was replayed.
    pub(crate) model: BTreeMap<BlockNr, Vec<u8>>,
}

impl LogWriter {
    /// A log that starts at log block `start` (counted from the first) with transaction `txn`.
    pub(crate) fn new(
        mut volume: Volume,
        compat: JournalCompat,
        incompat: JournalIncompat,
        start: u32,
        txn: u32,
    ) -> Self {
        let mut superblock = volume.journal_superblock();
        superblock.set_features(compat, incompat | JournalIncompat::REVOKE).unwrap();
        let next = superblock.first().get() + start;
        superblock.set_tail(TxnId::new(txn), LogicalBlock::new(next));
        volume.set_journal_superblock(&superblock);
        volume.set_needs_recovery(true);
        let format = superblock.log_format();
        let (written, model) = (Vec::new(), BTreeMap::new());
        Self { volume, format, superblock, next, txn: TxnId::new(txn), seconds: 1000, written, model }
    }

    fn put(&mut self, block: &[u8], what: &'static str) {
        let at = LogicalBlock::new(self.next);
        let range = self.volume.log_range(at);
        self.volume.bytes[range].copy_from_slice(block);
        self.written.push((at, what));
        self.next += 1;
        if self.next == self.superblock.end().get() {
            self.next = self.superblock.first().get();
        }
    }

    /// Writes the blocks of a transaction without its commit block.
    pub(crate) fn open(&mut self, blocks: &[(BlockNr, Vec<u8>)], revoked: &[BlockNr]) {
        for part in revoked.chunks(self.format.revokes_per_block()) {
            self.put(&self.format.revoke(self.txn, part), "revoke");
        }
        for part in blocks.chunks(self.format.tags_per_descriptor()) {
            let named: Vec<_> = part.iter().map(|(nr, data)| (*nr, &data[..])).collect();
            self.put(&self.format.descriptor(self.txn, &named), "descriptor");
            for (_, data) in part {
                let mut copy = data.clone();
                if needs_escape(&copy) {
                    copy[..4].fill(0);
                }
                self.put(&copy, "copy");
            }
        }
    }

    /// Writes a whole transaction.
    pub(crate) fn commit(&mut self, blocks: Vec<(BlockNr, Vec<u8>)>, revoked: &[BlockNr]) {
        self.open(&blocks, revoked);
        self.end();
        self.model.extend(blocks);
        for nr in revoked {
            self.model.remove(nr);
        }
    }

    /// Writes the commit block.
    pub(crate) fn end(&mut self) {
        self.put(&self.format.commit(self.txn, self.seconds, 5), "commit");
        self.seconds += 1;
        self.txn = self.txn.next();
    }

    pub(crate) fn room(&self) -> usize {
        let log = self.superblock.end().get() - self.superblock.first().get();
        usize::try_from(log).unwrap() - self.written.len()
    }

    /// Some transactions of blocks near the volume's end, some of them escaped, and revokes of them.
    pub(crate) fn fill(&mut self, transactions: usize, random: &mut Random) {
        let (size, end) = (self.volume.block_size().len(), self.volume.blocks().get());
        for _ in 0..transactions {
            let mut blocks = BTreeMap::new();
            let count = if random.below(4) == 0 { random.below(150) } else { random.below(6) + 1 };
            for _ in 0..count {
                let mut data = vec![u8::try_from(random.below(255)).unwrap(); size];
                if random.below(3) == 0 {
                    data[..4].copy_from_slice(&MAGIC.to_be_bytes());
                }
                blocks.insert(BlockNr::new(end - 1 - random.below(300)), data);
            }
            let revoked: Vec<_> =
                (0..random.below(10)).map(|_| BlockNr::new(end - 1 - random.below(300))).collect();
            blocks.retain(|nr, _| !revoked.contains(nr));
            if blocks.len() + 5 < self.room() {
                self.commit(blocks.into_iter().collect(), &revoked);
            }
        }
    }

    /// Checks what was recovered against the model.
    #[track_caller]
    pub(crate) fn check(&self, recovered: &Volume) {
        for (nr, data) in &self.model {
            assert!(recovered.bytes[recovered.range(*nr)] == data[..], "block {nr}");
        }
        let end = self.volume.blocks().get();
        for nr in (end - 300..end).map(BlockNr::new).filter(|nr| !self.model.contains_key(nr)) {
            assert!(
                recovered.bytes[recovered.range(nr)].iter().all(|b| *b == 0),
                "block {nr}, which was revoked"
            );
        }
        assert!(u64_of(self.written.len()) > 0);
    }
}
