//! Fuzz target: the fast-commit area: records of any bytes, their checksums right more often than not.

use crate::input::Input;
use hectare_ext4::checksum::crc32c;
use hectare_journal::format::{FastCommits, FastRecord};
use hectare_units::{TxnId, u64_of};

const BLOCK: usize = 1024;
const RUNNING: TxnId = TxnId::new(5);
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
/// Bytes of the area at most.
const AREA: usize = 64 * BLOCK;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let area = if input.byte() & 1 == 0 { written(&mut input) } else { input.rest().to_vec() };
    let mut commits = FastCommits::new(RUNNING);
    for block in area.chunks(BLOCK) {
        match commits.feed(block) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                break;
            }
        }
    }
    let mut gathered = 0;
    for record in commits.finish().iter().flat_map(|commit| &commit.records) {
        gathered += check(record);
    }
    assert!(gathered <= u64_of(area.len()), "more was read than there is");
}

/// What a record promises; how many bytes of content it has.
fn check(record: &FastRecord) -> u64 {
    match record {
        FastRecord::AddRange { len, .. } => {
            assert!((1..=32768).contains(len));
            0
        }
        FastRecord::DelRange { .. } => 0,
        FastRecord::Create(entry) | FastRecord::Link(entry) | FastRecord::Unlink(entry) => {
            assert!((1..=255).contains(&entry.name.len()));
            u64_of(entry.name.len())
        }
        FastRecord::Inode { raw, .. } => {
            assert!(raw.len() >= 128);
            u64_of(raw.len())
        }
    }
}

/// Records as an input says, in blocks; each TAIL with the checksum of the records before it.
fn written(input: &mut Input<'_>) -> Vec<u8> {
    let mut area = Area { bytes: Vec::new(), crc: 0 };
    while !input.is_empty() && area.bytes.len() < AREA {
        let what = input.byte();
        match u16::from(what % 12) {
            HEAD => area.record(HEAD, &[0u32.to_le_bytes(), RUNNING.get().to_le_bytes()].concat()),
            TAIL => area.tail(if what < 240 { 0 } else { input.byte() }),
            tag => {
                let len = usize::from(input.byte());
                area.record(tag, input.bytes(len));
            }
        }
    }
    area.bytes
}

struct Area {
    bytes: Vec<u8>,
    crc: u32,
}

impl Area {
    /// What is left of the last block.
    fn room(&self) -> usize {
        BLOCK - self.bytes.len() % BLOCK
    }

    fn push(&mut self, tag: u16, len: usize, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&tag.to_le_bytes());
        self.bytes.extend_from_slice(&u16::try_from(len).unwrap_or(0).to_le_bytes());
        self.bytes.extend_from_slice(value);
        self.crc = crc32c(self.crc, &self.bytes[start..]);
    }

    /// A record, in the next block if it does not fit into this one.
    fn record(&mut self, tag: u16, value: &[u8]) {
        let room = self.room();
        if 4 + value.len() > room {
            if room >= 4 {
                self.push(PAD, room - 4, &vec![0; room - 4]);
            }
            self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        }
        self.push(tag, value.len(), value);
    }

    /// The end of a fast commit, which fills up its block; its checksum is right if nothing is wrong with it.
    fn tail(&mut self, wrong: u8) {
        if self.room() < 12 {
            self.record(PAD, &[0; 8]);
        }
        let room = self.room();
        self.push(TAIL, room - 4, &RUNNING.get().to_le_bytes());
        self.bytes.extend_from_slice(&(self.crc ^ u32::from(wrong)).to_le_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        self.crc = 0;
    }
}
