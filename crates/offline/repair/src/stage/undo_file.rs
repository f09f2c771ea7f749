//! The undo file: what a repair changes, as it was.
//!
//! A header of 64 bytes: magic, the device's length before and after, the number of pieces; the checksums of
//! both sectors of the superblock, as it says while the repair goes on and as it is afterwards; the time that
//! the repair stores; the checksum of the header. Then for each piece 24 bytes (offset, length, checksums of
//! old and new bytes and of these numbers) and the old bytes. All numbers are little-endian.
//!
//! A file is read piece by piece, and again for each use, since it may be larger than memory.
//!
//! Where a journal on another device changes, too, the magic is another, and behind all pieces follow their
//! number (8 bytes and a checksum of 4) and the pieces of that device.

use hectare_ext4::checksum::crc32c;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::SIZE;
use hectare_units::{Bytes, index_of, low32, u64_of, usize_of};
use std::io::{Read, Seek, Write};

const MAGIC: &[u8; 16] = b"hectare undo 2\n\0";
/// With the pieces of a journal's device.
const MAGIC_JOURNAL: &[u8; 16] = b"hectare undo 3\n\0";
const HEADER: usize = 64;
const PIECE: usize = 24;
/// The longest piece.
pub(crate) const PIECE_MAX: usize = 1 << 20;
/// What a device writes whole or not at all.
const SECTOR: usize = 512;

/// Why writing out, or taking back, failed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// What is staged has no room in the file that it spills to. Nothing was written then.
    #[error(transparent)]
    Spill(hectare_device::Error),
    /// The undo file can't be read or written.
    #[error("undo file: {0}")]
    File(#[from] std::io::Error),
    /// It is none, or is damaged.
    #[error("it is no undo file of this program, or is damaged: {0}")]
    Broken(&'static str),
    /// It is of a journal on another device, too, which is not given.
    #[error(
        "the repair changed the volume's journal, on its own device, too: name that device (--journal FILE)"
    )]
    NeedsJournal,
    /// It belongs to something else, or the volume was changed since.
    #[error(
        "the undo file does not fit: the volume differs at byte {0} from what the repair left, so it was \
             changed since, or is another"
    )]
    Foreign(u64),
    /// The journal on another device is not the one, or was used since.
    #[error("the undo file does not fit: {0} is not the volume's journal, or was used since")]
    ForeignJournal(String),
}

/// Checksums of the two sectors of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Halves([u32; 2]);

impl Halves {
    pub(crate) fn of(superblock: &[u8; SIZE]) -> Self {
        let (first, second) = superblock.split_at(SECTOR);
        Self([crc32c(!0, first), crc32c(!0, second)])
    }

    /// Whether each sector is that of one of some superblocks.
    pub(crate) fn are_mixed_of(self, others: &[Self]) -> bool {
        (0..2).all(|i| others.iter().any(|other| other.0[i] == self.0[i]))
    }
}

/// What is known of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The device's length.
    pub(crate) before: Bytes,
    pub(crate) after: Bytes,
    pub(crate) pieces: u64,
    /// The superblock while the repair goes on.
    pub(crate) marked: Halves,
    /// The superblock afterwards.
    pub(crate) new: Halves,
    /// The time that the repair stored.
    pub(crate) now: u32,
    /// Whether pieces of a journal's device follow those of the volume.
    pub(crate) with_journal: bool,
}

/// A stretch as it was, and the checksum of what comes there.
pub(crate) struct Piece {
    pub(crate) at: Bytes,
    pub(crate) old: Vec<u8>,
    pub(crate) new_sum: u32,
}

impl Header {
    pub(crate) fn write(&self, file: &mut dyn Write) -> std::io::Result<()> {
        let mut bytes = if self.with_journal { MAGIC_JOURNAL } else { MAGIC }.to_vec();
        for long in [self.before.get(), self.after.get(), self.pieces] {
            bytes.extend(long.to_le_bytes());
        }
        for word in [self.marked.0[0], self.marked.0[1], self.new.0[0], self.new.0[1], self.now] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(crc32c(!0, &bytes).to_le_bytes());
        file.write_all(&bytes)
    }

    pub(crate) fn read(file: &mut dyn Read) -> Result<Self, UndoError> {
        let mut bytes = [0; HEADER];
        file.read_exact(&mut bytes)?;
        let with_journal = &bytes[..16] == MAGIC_JOURNAL;
        if !with_journal && &bytes[..16] != MAGIC || word(&bytes, 60) != crc32c(!0, &bytes[..60]) {
            return Err(UndoError::Broken("its header"));
        }
        Ok(Self {
            before: Bytes::new(long(&bytes, 16)),
            after: Bytes::new(long(&bytes, 24)),
            pieces: long(&bytes, 32),
            marked: Halves([word(&bytes, 40), word(&bytes, 44)]),
            new: Halves([word(&bytes, 48), word(&bytes, 52)]),
            now: word(&bytes, 56),
            with_journal,
        })
    }
}

impl Piece {
    pub(crate) fn write(file: &mut dyn Write, at: Bytes, old: &[u8], new: &[u8]) -> std::io::Result<()> {
        let mut bytes = at.get().to_le_bytes().to_vec();
        for word in [low32(u64_of(old.len())), crc32c(!0, old), crc32c(!0, new)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(crc32c(!0, &bytes).to_le_bytes());
        file.write_all(&bytes)?;
        file.write_all(old)
    }

    pub(crate) fn read(file: &mut dyn Read) -> Result<Self, UndoError> {
        let mut head = [0; PIECE];
        file.read_exact(&mut head)?;
        if word(&head, 20) != crc32c(!0, &head[..20]) {
            return Err(UndoError::Broken("the head of a piece"));
        }
        let len = usize_of(word(&head, 8));
        if len > PIECE_MAX {
            return Err(UndoError::Broken("the length of a piece"));
        }
        let mut old = vec![0; len];
        file.read_exact(&mut old)?;
        if crc32c(!0, &old) != word(&head, 12) {
            return Err(UndoError::Broken("the bytes of a piece"));
        }
        Ok(Self { at: Bytes::new(long(&head, 0)), old, new_sum: word(&head, 16) })
    }
}

/// What a piece is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Volume,
    /// The journal's own device.
    Journal,
}

/// What a file says first: its header, and the superblock as it was, if that is in it.
pub(crate) fn head<F: Read + Seek>(file: &mut F) -> Result<(Header, Option<[u8; SIZE]>), UndoError> {
    file.rewind()?;
    let header = Header::read(file)?;
    let first = if header.pieces > 0 { Some(Piece::read(file)?) } else { None };
    let page = first.filter(|piece| piece.at == Bytes::ZERO);
    let start = index_of(SUPERBLOCK_OFFSET.get());
    let old = page.and_then(|page| page.old.get(start..start + SIZE)?.first_chunk().copied());
    Ok((header, old))
}

/// Reads a whole file, piece by piece: those of the volume first.
pub(crate) fn scan<F: Read + Seek>(
    file: &mut F,
    mut each: impl FnMut(Of, Piece) -> Result<(), UndoError>,
) -> Result<(), UndoError> {
    file.rewind()?;
    let header = Header::read(file)?;
    for _ in 0..header.pieces {
        each(Of::Volume, Piece::read(file)?)?;
    }
    let count = if header.with_journal { read_count(file)? } else { 0 };
    for _ in 0..count {
        each(Of::Journal, Piece::read(file)?)?;
    }
    Ok(())
}

/// How many pieces of the journal's device follow.
fn read_count(file: &mut dyn Read) -> Result<u64, UndoError> {
    let mut bytes = [0; 12];
    file.read_exact(&mut bytes)?;
    if word(&bytes, 8) != crc32c(!0, &bytes[..8]) {
        return Err(UndoError::Broken("the number of the journal's pieces"));
    }
    Ok(long(&bytes, 0))
}

/// Writes how many pieces of the journal's device follow.
pub(crate) fn write_count(file: &mut dyn Write, count: usize) -> std::io::Result<()> {
    let mut bytes = u64_of(count).to_le_bytes().to_vec();
    bytes.extend(crc32c(!0, &bytes).to_le_bytes());
    file.write_all(&bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
}
