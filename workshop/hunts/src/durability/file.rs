//! The records of one file: what may be found of it.
//!
//! Hazard: what the server had not written completely when it died may be new in one block and old in the
//! next, and a file that was about to be truncated may have zeros up to the end of a block; so the parts of a
//! record that lie in different blocks are compared separately.

use super::RECORD;
use hectare_oracle::trees::random::Random;

/// Bytes of the smallest blocks that a volume can have.
const BLOCK: usize = 1024;

/// A file, as it was written.
#[derive(Debug)]
pub(super) struct File {
    tag: u64,
    id: u32,
    /// The versions that each record may be found with, the latest last; as many as the file ever had since
    /// it was synced.
    records: Vec<Vec<u32>>,
    /// Records it has now.
    len: usize,
    /// Records that must be there.
    promised: usize,
    version: u32,
    /// Whether it was synced, and no operation that removes its name has begun since.
    is_promised: bool,
}

impl File {
    pub(super) fn new(tag: u64, id: u32) -> Self {
        Self { tag, id, records: Vec::new(), len: 0, promised: 0, version: 0, is_promised: false }
    }

    /// Records it has now.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether it must be found.
    pub(super) fn is_promised(&self) -> bool {
        self.is_promised
    }

    /// Notes that it may be gone, name and all.
    pub(super) fn unpromise(&mut self) {
        self.is_promised = false;
    }

    /// Notes that records are written with a new version; returns their bytes.
    pub(super) fn write(&mut self, from: usize, count: usize) -> Vec<u8> {
        self.version += 1;
        let end = from + count;
        self.records.resize(self.records.len().max(end), Vec::new());
        self.len = self.len.max(end);
        for versions in &mut self.records[from..end] {
            versions.push(self.version);
        }
        (from..end).flat_map(|record| self.bytes(record, self.version)).collect()
    }

    /// Notes that the file is truncated.
    pub(super) fn cut(&mut self, len: usize) {
        self.len = len;
        self.promised = self.promised.min(len);
    }

    /// Notes that it was synced.
    pub(super) fn synced(&mut self) {
        self.records.truncate(self.len);
        for versions in &mut self.records {
            versions.drain(..versions.len().saturating_sub(1));
        }
        self.promised = self.len;
        self.is_promised = true;
    }

    /// The bytes of a record of a version.
    fn bytes(&self, record: usize, version: u32) -> Vec<u8> {
        Random::new(&format!("{}-{}-{record}-{version}", self.tag, self.id)).bytes(RECORD)
    }

    /// Checks whether the file may have these bytes; returns how many records had to be there.
    pub(super) fn verify(&self, bytes: &[u8]) -> Result<usize, String> {
        let (least, most) = (self.promised * RECORD, self.records.len() * RECORD);
        if !(least..=most).contains(&bytes.len()) {
            return Err(format!("it is {} bytes long, not {least} to {most}", bytes.len()));
        }
        for (record, found) in bytes.chunks(RECORD).enumerate() {
            self.verify_record(record, found)?;
        }
        Ok(self.promised)
    }

    fn verify_record(&self, record: usize, found: &[u8]) -> Result<(), String> {
        let versions: Vec<Vec<u8>> =
            self.records[record].iter().map(|version| self.bytes(record, *version)).collect();
        let start = record * RECORD;
        let mut at = 0;
        while at < found.len() {
            let end = found.len().min(at + BLOCK - (start + at) % BLOCK);
            let part = &found[at..end];
            let known = versions.iter().any(|bytes| bytes[at..end] == *part);
            let unwritten = record >= self.promised && part.iter().all(|byte| *byte == 0);
            if !known && !unwritten {
                let kind = if part.iter().all(|byte| *byte == 0) { "zeros" } else { "nothing of it" };
                let versions = &self.records[record];
                let (byte, promised) = (start + at, self.promised);
                return Err(format!(
                    "from byte {byte} there is {kind}: record {record}, which may be of the versions \
                     {versions:?}; {promised} records were synced"
                ));
            }
            at = end;
        }
        Ok(())
    }
}
