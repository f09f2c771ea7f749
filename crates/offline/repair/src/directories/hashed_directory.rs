//! Directories that are both encrypted and casefolded: behind each name lies its hash, which only the key
//! gives. Such a directory is written with the hashes that are there, and without an index, which the kernel
//! does not need to find a name.

use crate::know::slot::Slot;
use crate::know::stored::{NameHash, Stored};
use hectare_ext4::dir::FileType;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{InodeNr, low8, low16, u64_of};

/// Bytes before a record's name, and of a record that holds a block's checksum.
const HEADER: usize = 8;
const TAIL: usize = 12;
/// Marks the record of the checksum.
const TAIL_TYPE: u8 = 0xde;

/// Whether the records of a directory hold hashes.
pub(crate) fn is_hashed(slot: &Slot) -> bool {
    slot.flags().contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
}

/// Where the hash lies behind a name of so many bytes, from the record's start.
const fn hash_at(name_len: usize) -> usize {
    (HEADER + name_len).next_multiple_of(4)
}

/// The hash behind the name of the record at `at`; `None` if the record, or the block, ends before it.
pub(crate) fn hash_of(block: &[u8], at: usize, name_len: usize, end: usize) -> Option<NameHash> {
    let len = block.get(at + 4..at + 6)?.first_chunk().map(|two| u16::from_le_bytes(*two))?;
    let start = at + hash_at(name_len);
    let within = usize::from(len) >= hash_at(name_len) + size_of::<NameHash>();
    block[..end].get(start..).filter(|_| within)?.first_chunk().copied()
}

/// The blocks of a directory with these entries; those without a hash are left out. Checksums are not set.
pub(crate) fn build(entries: &[Stored], own: InodeNr, parent: InodeNr, size: usize, sealed: bool) -> Vec<u8> {
    let end = if sealed { size - TAIL } else { size };
    let mut blocks = Blocks { bytes: Vec::new(), size, end, last: None };
    let folder = FileType::Directory.code();
    blocks.add(own.get(), b".", folder, None);
    blocks.add(parent.get(), b"..", folder, None);
    for entry in entries.iter().filter(|entry| entry.hash.is_some()) {
        blocks.add(entry.inode, &entry.name, entry.file_type, entry.hash);
    }
    blocks.close();
    blocks.bytes
}

/// Blocks that are being filled.
struct Blocks {
    bytes: Vec<u8>,
    size: usize,
    /// Where the records of a block end.
    end: usize,
    /// The start of the last record, and the byte after it.
    last: Option<(usize, usize)>,
}

impl Blocks {
    fn add(&mut self, inode: u32, name: &[u8], file_type: u8, hash: Option<NameHash>) {
        let len = hash_at(name.len()) + hash.map_or(0, |hash| hash.len());
        let at = match self.last {
            Some((_, next)) if next % self.size + len <= self.end && !next.is_multiple_of(self.size) => next,
            _ => {
                self.close();
                self.bytes.resize(self.bytes.len() + self.size, 0);
                self.bytes.len() - self.size
            }
        };
        self.bytes[at..at + 4].copy_from_slice(&inode.to_le_bytes());
        self.bytes[at + 6] = low8(u64_of(name.len()));
        self.bytes[at + 7] = file_type;
        self.bytes[at + HEADER..at + HEADER + name.len()].copy_from_slice(name);
        if let Some(hash) = hash {
            let start = at + hash_at(name.len());
            self.bytes[start..start + hash.len()].copy_from_slice(&hash);
        }
        self.set_len(at, len);
        self.last = Some((at, at + len));
    }

    fn set_len(&mut self, at: usize, len: usize) {
        // A record that fills a block of 64 KiB.
        let stored = low16(u64_of(len.min(0xffff)));
        self.bytes[at + 4..at + 6].copy_from_slice(&stored.to_le_bytes());
    }

    /// Lets the last record of a block reach to its end, and adds the record of the checksum.
    fn close(&mut self) {
        let Some((at, _)) = self.last.take() else { return };
        let start = at / self.size * self.size;
        self.set_len(at, start + self.end - at);
        if self.end < self.size {
            self.set_len(start + self.end, TAIL);
            self.bytes[start + self.end + 7] = TAIL_TYPE;
        }
    }
}
