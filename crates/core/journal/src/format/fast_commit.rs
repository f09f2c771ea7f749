//! The fast-commit area: the changes of a few fsyncs since the last full commit, in ext4's own terms.
//!
//! The area is a row of *records* (tag, length, value) that do not cross a block's end. A HEAD record opens
//! the first fast commit after a full one and names the transaction that was running; a TAIL record ends each
//! fast commit with that transaction's number again and a checksum, and fills up its block. Records with no
//! valid TAIL behind them never happened: the machine stopped while they were written, or they are left from
//! an earlier transaction.
//!
//! [`FastCommits`] takes the area block by block and collects the fast commits that count. Applying them
//! needs a volume and is not the journal's task. None are written.
//!
//! Hazards: numbers are little-endian, unlike everywhere else in a journal. The checksum is a crc32c started
//! from zero, and is continued over the blocks of one fast commit. Values are untrusted: inode numbers are
//! not zero, and lengths fit, but nothing more was checked.

use hectare_ext4::Unsupported;
use hectare_ext4::checksum::crc32c;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, TxnId, join32};

pub(super) const ADD_RANGE: u16 = 1;
pub(super) const DEL_RANGE: u16 = 2;
pub(super) const CREATE: u16 = 3;
pub(super) const LINK: u16 = 4;
pub(super) const UNLINK: u16 = 5;
pub(super) const INODE: u16 = 6;
pub(super) const PAD: u16 = 7;
pub(super) const TAIL: u16 = 8;
pub(super) const HEAD: u16 = 9;

/// Bytes of tag and length.
pub(super) const FRONT_LEN: usize = 4;
/// The checksum covers a TAIL up to, and without, itself: front and transaction number.
const TAIL_COVERED: usize = FRONT_LEN + 4;
/// Bytes of an inode that every volume has.
const INODE_LEN_MIN: usize = 128;
const NAME_LEN_MAX: usize = 255;
/// Lengths above this in an extent mean "unwritten", and that much less.
pub(super) const EXTENT_LEN_MAX: u16 = 32768;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FastRecord {
    /// A range of a file is mapped.
    AddRange {
        /// The file.
        inode: InodeNr,
        /// The first block of the range in the file.
        first: LogicalBlock,
        /// How many blocks: 1 to 32768.
        len: u16,
        /// The first block on the device.
        start: BlockNr,
        /// Whether the blocks are mapped but read as zeros.
        unwritten: bool,
    },
    /// A range of a file is a hole.
    DelRange {
        /// The file.
        inode: InodeNr,
        /// The first block of the range in the file.
        first: LogicalBlock,
        /// How many blocks.
        len: u32,
    },
    /// An inode was created under a name.
    Create(FastEntry),
    /// An inode got a further name.
    Link(FastEntry),
    /// An inode lost a name.
    Unlink(FastEntry),
    /// An inode as it lies on disk.
    Inode {
        /// Which.
        inode: InodeNr,
        /// Its bytes: 128 or more.
        raw: Vec<u8>,
    },
}

impl FastRecord {
    /// The inode that is changed, or named.
    #[must_use]
    pub const fn inode(&self) -> InodeNr {
        match self {
            Self::AddRange { inode, .. } | Self::DelRange { inode, .. } | Self::Inode { inode, .. } => *inode,
            Self::Create(entry) | Self::Link(entry) | Self::Unlink(entry) => entry.inode,
        }
    }
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FastEntry {
    /// The directory.
    pub parent: InodeNr,
    /// What the name is for.
    pub inode: InodeNr,
    /// The name: 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// The changes of one fast commit, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FastCommit {
    /// The changes.
    pub records: Vec<FastRecord>,
}

/// Collects the fast commits of an area.
#[derive(Clone, Debug)]
pub struct FastCommits {
    expected: TxnId,
    crc: u32,
    started: bool,
    pending: FastCommit,
    complete: Vec<FastCommit>,
}

/// Why no further record counts.
enum Stop {
    End,
    Unsupported(Unsupported),
}

impl FastCommits {
    /// Collects those made while transaction `expected` was running, that is, the one after the last that
    /// was committed to the log.
    #[must_use]
    pub const fn new(expected: TxnId) -> Self {
        let pending = FastCommit { records: Vec::new() };
        Self { expected, crc: 0, started: false, pending, complete: Vec::new() }
    }

    /// Takes the next block of the area and says whether the block after it may count as well.
    ///
    /// # Errors
    /// If the fast commits of this transaction use a feature that is not known.
    pub fn feed(&mut self, block: &[u8]) -> Result<bool, Unsupported> {
        if !self.started && block.first_chunk() != Some(&HEAD.to_le_bytes()) {
            return Ok(false);
        }
        self.started = true;
        let mut rest = block;
        while rest.len() >= FRONT_LEN {
            match self.record(rest) {
                Ok(used) => rest = rest.get(used..).unwrap_or_default(),
                Err(Stop::End) => return Ok(false),
                Err(Stop::Unsupported(reason)) => return Err(reason),
            }
        }
        Ok(true)
    }

    /// The fast commits that count, in order.
    #[must_use]
    pub fn finish(self) -> Vec<FastCommit> {
        self.complete
    }

    /// Takes the record that `bytes` start with, and says how long it is.
    fn record(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        let tag = half(bytes, 0).ok_or(Stop::End)?;
        let len = half(bytes, 2).ok_or(Stop::End)?;
        let used = FRONT_LEN + usize::from(len);
        let whole = bytes.get(..used).ok_or(Stop::End)?;
        let value = &whole[FRONT_LEN..];
        match tag {
            TAIL => self.tail(whole)?,
            HEAD => {
                self.head(value)?;
                self.crc = crc32c(self.crc, whole);
            }
            _ => {
                let record = if tag == PAD { None } else { Some(parse(tag, value).ok_or(Stop::End)?) };
                self.pending.records.extend(record);
                self.crc = crc32c(self.crc, whole);
            }
        }
        Ok(used)
    }

    fn head(&self, value: &[u8]) -> Result<(), Stop> {
        let (features, txn) = word(value, 0).zip(word(value, 4)).ok_or(Stop::End)?;
        if TxnId::new(txn) != self.expected {
            return Err(Stop::End);
        }
        if features != 0 {
            let text = format!("the fast commits of the journal use the unknown features {features:#x}");
            return Err(Stop::Unsupported(Unsupported(text)));
        }
        Ok(())
    }

    fn tail(&mut self, whole: &[u8]) -> Result<(), Stop> {
        let (txn, found) = word(whole, FRONT_LEN).zip(word(whole, TAIL_COVERED)).ok_or(Stop::End)?;
        let crc = crc32c(self.crc, &whole[..TAIL_COVERED]);
        if TxnId::new(txn) != self.expected || found != crc {
            return Err(Stop::End);
        }
        self.crc = 0;
        self.complete.push(std::mem::take(&mut self.pending));
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_le_bytes(*half))
}

fn inode(value: &[u8], at: usize) -> Option<InodeNr> {
    InodeNr::from_disk(word(value, at)?)
}

fn parse(tag: u16, value: &[u8]) -> Option<FastRecord> {
    match tag {
        ADD_RANGE => add_range(value),
        DEL_RANGE if value.len() == 12 => Some(FastRecord::DelRange {
            inode: inode(value, 0)?,
            first: LogicalBlock::new(word(value, 4)?),
            len: word(value, 8)?,
        }),
        CREATE => entry(value).map(FastRecord::Create),
        LINK => entry(value).map(FastRecord::Link),
        UNLINK => entry(value).map(FastRecord::Unlink),
        INODE => {
            let raw = value.get(4..).filter(|raw| raw.len() >= INODE_LEN_MIN)?;
            Some(FastRecord::Inode { inode: inode(value, 0)?, raw: raw.to_vec() })
        }
        _ => None,
    }
}

/// An inode number and an extent as in an extent tree.
fn add_range(value: &[u8]) -> Option<FastRecord> {
    let stored = half(value, 8).filter(|stored| value.len() == 16 && *stored != 0)?;
    let unwritten = stored > EXTENT_LEN_MAX;
    Some(FastRecord::AddRange {
        inode: inode(value, 0)?,
        first: LogicalBlock::new(word(value, 4)?),
        len: if unwritten { stored - EXTENT_LEN_MAX } else { stored },
        start: BlockNr::new(join32(word(value, 12)?, half(value, 10)?.into())),
        unwritten,
    })
}

fn entry(value: &[u8]) -> Option<FastEntry> {
    let name = value.get(8..).filter(|name| (1..=NAME_LEN_MAX).contains(&name.len()))?;
    Some(FastEntry { parent: inode(value, 0)?, inode: inode(value, 4)?, name: name.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::{low16, u64_of};
    use proptest::prelude::*;

    const LEN: usize = 1024;

    /// Writes an area as a journal would.
    #[derive(Default)]
    struct Area {
        bytes: Vec<u8>,
        crc: u32,
    }

    impl Area {
        fn put(&mut self, tag: u16, value: &[u8]) {
            let left = LEN - self.bytes.len() % LEN;
            if FRONT_LEN * 2 + value.len() > left {
                self.raw(PAD, &vec![0; left - FRONT_LEN]);
            }
            self.raw(tag, value);
        }

        fn raw(&mut self, tag: u16, value: &[u8]) {
            let mut whole = tag.to_le_bytes().to_vec();
            whole.extend(low16(u64_of(value.len())).to_le_bytes());
            whole.extend(value);
            self.crc = crc32c(self.crc, &whole);
            self.bytes.extend(whole);
        }

        fn head(&mut self, features: u32, txn: u32) {
            self.put(HEAD, &[features.to_le_bytes(), txn.to_le_bytes()].concat());
        }

        fn tail(&mut self, txn: u32) {
            let left = LEN - self.bytes.len() % LEN - FRONT_LEN;
            let mut front = TAIL.to_le_bytes().to_vec();
            front.extend(low16(u64_of(left)).to_le_bytes());
            front.extend(txn.to_le_bytes());
            let crc = crc32c(self.crc, &front);
            self.bytes.extend(front);
            self.bytes.extend(crc.to_le_bytes());
            self.bytes.resize(self.bytes.len().next_multiple_of(LEN), 0);
            self.crc = 0;
        }

        fn read(&self, expected: u32) -> Result<Vec<FastCommit>, Unsupported> {
            let mut reader = FastCommits::new(TxnId::new(expected));
            for block in self.bytes.chunks(LEN) {
                if !reader.feed(block)? {
                    break;
                }
            }
            Ok(reader.finish())
        }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn two_commits() -> Area {
        let mut area = Area::default();
        area.head(0, 7);
        area.put(CREATE, &[words(&[2, 12]), b"file".to_vec()].concat());
        area.put(INODE, &[words(&[12]), vec![9; 600]].concat());
        area.put(INODE, &[words(&[13]), vec![8; 600]].concat());
        area.tail(7);
        area.put(ADD_RANGE, &words(&[12, 100, 32770 | (1 << 16), 5]));
        area.put(DEL_RANGE, &words(&[12, 4, 6]));
        area.put(UNLINK, &[words(&[2, 12]), b"file".to_vec()].concat());
        area.tail(7);
        area
    }

    #[test]
    fn complete_fast_commits_are_read_as_they_were_written() {
        let commits = two_commits().read(7).unwrap();
        let nr = InodeNr::new(12);
        let entry = FastEntry { parent: InodeNr::ROOT, inode: nr, name: b"file".to_vec() };
        assert_eq!(commits.len(), 2);
        assert_eq!(commits[0].records[0], FastRecord::Create(entry.clone()));
        assert_eq!(commits[0].records[1], FastRecord::Inode { inode: nr, raw: vec![9; 600] });
        assert_eq!(commits[0].records.len(), 3);
        let range = FastRecord::AddRange {
            inode: nr,
            first: LogicalBlock::new(100),
            len: 2,
            start: BlockNr::new((1 << 32) + 5),
            unwritten: true,
        };
        let hole = FastRecord::DelRange { inode: nr, first: LogicalBlock::new(4), len: 6 };
        assert_eq!(commits[1].records, [range, hole, FastRecord::Unlink(entry)]);
    }

    #[test]
    fn another_transaction_and_what_has_no_tail_do_not_count() {
        assert_eq!(two_commits().read(8).unwrap(), []);
        let mut area = two_commits();
        area.put(DEL_RANGE, &words(&[12, 4, 6]));
        assert_eq!(area.read(7).unwrap().len(), 2);
        area.tail(6);
        assert_eq!(area.read(7).unwrap().len(), 2);
        assert_eq!(Area::default().read(7).unwrap(), []);
    }

    #[test]
    fn a_flipped_bit_ends_the_area_at_its_commit() {
        let area = two_commits();
        let second = 2 * LEN; // the first commit has two blocks
        for at in 0..area.bytes.len() {
            let mut damaged = Area { bytes: area.bytes.clone(), crc: 0 };
            damaged.bytes[at] ^= 1;
            let commits = damaged.read(7).unwrap_or_default();
            let left = two_commits().read(7).unwrap();
            assert!(left.starts_with(&commits), "byte {at}");
            assert!(commits.len() >= usize::from(at >= second), "byte {at}");
        }
    }

    #[test]
    fn unknown_features_are_refused_by_number() {
        let mut area = Area::default();
        area.head(0x10, 7);
        area.tail(7);
        assert!(area.read(7).unwrap_err().to_string().contains("0x10"));
        assert_eq!(area.read(6).unwrap(), []);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            records in proptest::collection::vec(
                (0..11u16, proptest::collection::vec(0..40u8, 0..300)),
                0..40,
            ),
            tails in any::<u64>(),
        ) {
            let mut area = Area::default();
            area.head(0, 7);
            for (i, (tag, value)) in records.iter().enumerate() {
                area.put(*tag, value);
                if tails >> (i % 64) & 1 == 1 {
                    area.tail(7);
                }
            }
            let _ = area.read(7);
        }
    }
}
