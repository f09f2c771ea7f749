//! Writes fast commits: records as the blocks of the fast-commit area.
//!
//! What [`FastCommits`](super::FastCommits) reads. A record never crosses a block's end: where it does not
//! fit, a PAD record fills the block, so room for one is always kept. The TAIL takes the rest of its block, and
//! the next fast commit begins with the next block.
//!
//! Hazard: a record that no block can hold (a large inode in a small block) makes a fast commit impossible; the
//! caller commits in full. What it is not: it knows no area and no device ([`Log`](crate::Log)).

use super::fast_commit::{
    ADD_RANGE, CREATE, DEL_RANGE, EXTENT_LEN_MAX, FRONT_LEN, FastEntry, FastRecord, HEAD, INODE, LINK, PAD,
    TAIL, UNLINK,
};
use hectare_ext4::checksum::crc32c;
use hectare_units::{BlockSize, TxnId, high32, low16, low32, u64_of};

/// Bytes of a TAIL's value: the transaction's number and the checksum.
const TAIL_LEN: usize = 8;

/// The blocks of a fast commit of transaction `txn`; the first one after a full commit opens the area. `None`
/// if a record does not fit a block.
#[must_use]
pub fn encode_fast_commit(
    records: &[FastRecord],
    txn: TxnId,
    opens_area: bool,
    block_size: BlockSize,
) -> Option<Vec<u8>> {
    let mut blocks = Blocks { bytes: Vec::new(), crc: 0, size: block_size.len() };
    if opens_area {
        blocks.put(HEAD, &[&[0; 4], &txn.get().to_le_bytes()])?;
    }
    for record in records {
        blocks.record(record)?;
    }
    blocks.tail(txn)?;
    Some(blocks.bytes)
}

struct Blocks {
    bytes: Vec<u8>,
    crc: u32,
    size: usize,
}

impl Blocks {
    /// Bytes up to the end of the block.
    fn left(&self) -> usize {
        self.size - self.bytes.len() % self.size
    }

    /// Fills the block unless it has room for a value, and a PAD behind it. `None` if no block has.
    fn make_room(&mut self, len: usize) -> Option<()> {
        let need = FRONT_LEN + len + FRONT_LEN;
        if need > self.size {
            return None;
        }
        let left = self.left();
        if need > left {
            self.append(PAD, &[&vec![0; left - FRONT_LEN]]);
        }
        Some(())
    }

    fn put(&mut self, tag: u16, value: &[&[u8]]) -> Option<()> {
        self.make_room(value.iter().map(|part| part.len()).sum())?;
        self.append(tag, value);
        Some(())
    }

    fn append(&mut self, tag: u16, value: &[&[u8]]) {
        let from = self.bytes.len();
        self.front(tag, value.iter().map(|part| part.len()).sum());
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.crc = crc32c(self.crc, &self.bytes[from..]);
    }

    fn front(&mut self, tag: u16, len: usize) {
        self.bytes.extend(tag.to_le_bytes());
        self.bytes.extend(low16(u64_of(len)).to_le_bytes());
    }

    fn record(&mut self, record: &FastRecord) -> Option<()> {
        let nr = record.inode().get().to_le_bytes();
        match record {
            FastRecord::AddRange { first, len, start, unwritten, .. } => {
                let stored = if *unwritten { len + EXTENT_LEN_MAX } else { *len };
                let high = low16(high32(start.get()).into());
                let parts: [&[u8]; 5] = [
                    &nr,
                    &first.get().to_le_bytes(),
                    &stored.to_le_bytes(),
                    &high.to_le_bytes(),
                    &low32(start.get()).to_le_bytes(),
                ];
                self.put(ADD_RANGE, &parts)
            }
            FastRecord::DelRange { first, len, .. } => {
                self.put(DEL_RANGE, &[&nr, &first.get().to_le_bytes(), &len.to_le_bytes()])
            }
            FastRecord::Create(entry) => self.entry(CREATE, entry),
            FastRecord::Link(entry) => self.entry(LINK, entry),
            FastRecord::Unlink(entry) => self.entry(UNLINK, entry),
            FastRecord::Inode { raw, .. } => self.put(INODE, &[&nr, raw]),
        }
    }

    fn entry(&mut self, tag: u16, entry: &FastEntry) -> Option<()> {
        let numbers = [entry.parent.get().to_le_bytes(), entry.inode.get().to_le_bytes()];
        self.put(tag, &[&numbers[0], &numbers[1], &entry.name])
    }

    fn tail(&mut self, txn: TxnId) -> Option<()> {
        self.make_room(TAIL_LEN)?;
        let (from, len) = (self.bytes.len(), self.left() - FRONT_LEN);
        self.front(TAIL, len);
        self.bytes.extend(txn.get().to_le_bytes());
        let crc = crc32c(self.crc, &self.bytes[from..]);
        self.bytes.extend(crc.to_le_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(self.size), 0);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FastCommit, FastCommits};
    use hectare_units::{BlockNr, InodeNr, LogicalBlock};
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = FastEntry> {
        (1..u32::MAX, 1..u32::MAX, proptest::collection::vec(any::<u8>(), 1..256)).prop_map(
            |(parent, inode, name)| FastEntry {
                parent: InodeNr::new(parent),
                inode: InodeNr::new(inode),
                name,
            },
        )
    }

    fn record() -> impl Strategy<Value = FastRecord> {
        let inode = (1..u32::MAX).prop_map(InodeNr::new);
        let first = any::<u32>().prop_map(LogicalBlock::new);
        prop_oneof![
            (inode.clone(), first.clone(), 1..32768u16, 0..1u64 << 48, any::<bool>()).prop_map(
                |(inode, first, len, start, unwritten)| FastRecord::AddRange {
                    inode,
                    first,
                    len,
                    start: BlockNr::new(start),
                    unwritten
                }
            ),
            (inode.clone(), first, any::<u32>()).prop_map(|(inode, first, len)| FastRecord::DelRange {
                inode,
                first,
                len
            }),
            entry().prop_map(FastRecord::Create),
            entry().prop_map(FastRecord::Link),
            entry().prop_map(FastRecord::Unlink),
            (inode, proptest::collection::vec(any::<u8>(), 128..900))
                .prop_map(|(inode, raw)| FastRecord::Inode { inode, raw }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            commits in proptest::collection::vec(proptest::collection::vec(record(), 0..20), 1..5),
            txn in any::<u32>(),
        ) {
            let txn = TxnId::new(txn);
            let mut area = Vec::new();
            for (n, records) in commits.iter().enumerate() {
                area.extend(encode_fast_commit(records, txn, n == 0, BlockSize::KIB1).expect("they fit"));
            }
            prop_assert_eq!(area.len() % 1024, 0);
            let mut reader = FastCommits::new(txn);
            for block in area.chunks(1024) {
                prop_assert!(reader.feed(block).expect("no feature is used"));
            }
            let expected: Vec<_> = commits.into_iter().map(|records| FastCommit { records }).collect();
            prop_assert_eq!(reader.finish(), expected);
        }
    }

    #[test]
    fn a_record_that_fits_no_block_makes_it_impossible() {
        let of = |len| [FastRecord::Inode { inode: InodeNr::new(12), raw: vec![1; len] }];
        let txn = TxnId::new(1);
        assert!(encode_fast_commit(&of(1024 - 12), txn, true, BlockSize::KIB1).is_some());
        assert!(encode_fast_commit(&of(1024 - 11), txn, true, BlockSize::KIB1).is_none());
    }
}
