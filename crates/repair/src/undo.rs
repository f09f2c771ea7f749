//! Writes a repaired volume out, and takes that back.
//!
//! Before the first byte of the device changes, everything that will change is in the undo file, durable, with
//! checksums of what was there and of what comes. Then the superblock is marked as faulty, the changed blocks
//! are written, and last the page of the superblock: a power cut leaves the old volume, or one that is marked
//! and can be taken back or repaired.
//!
//! The file: a header of 64 bytes (magic, version, device length before and after, the number of pieces, the
//! checksum of the header), then for each piece 24 bytes (offset, length, checksums of old and new bytes) and
//! the old bytes. All numbers are little-endian.

use crate::work::Overlay;
use hectare_device::Device;
use hectare_ext4::checksum::crc32c;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, STATE_ERROR, SuperBlock};
use hectare_units::{Bytes, GroupNr, index_of, low32, u64_of};
use std::io::{Read, Write};

const MAGIC: &[u8; 16] = b"hectare undo 1\n\0";
const HEADER: usize = 64;
const PIECE: usize = 24;
/// The longest piece.
const PIECE_MAX: usize = 1 << 20;

/// Why writing out, or taking back, failed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The undo file can't be read or written.
    #[error("undo file: {0}")]
    File(#[from] std::io::Error),
    /// It is none, or is damaged.
    #[error("it is no undo file of this program, or is damaged: {0}")]
    Broken(&'static str),
    /// It belongs to something else, or the volume was changed since.
    #[error(
        "the undo file does not fit: the volume differs at byte {0} from what the repair left, so it was \
             changed since, or is another"
    )]
    Foreign(u64),
}

/// A stretch of the device that changes.
struct Piece {
    at: u64,
    old: Vec<u8>,
    new: Vec<u8>,
}

/// Writes the changes of an overlay to the device below it. With `undo` what was there goes to that file
/// first; `sync` makes the file durable.
///
/// # Errors
/// If the device or the file fails; up to the error, what was written is as the module says.
pub fn write_out<W: Write>(
    overlay: &Overlay,
    undo: Option<W>,
    sync: impl FnOnce() -> std::io::Result<()>,
) -> Result<u64, UndoError> {
    let device = overlay.inner();
    let pieces = pieces(overlay)?;
    if pieces.is_empty() && overlay.len() == device.len() {
        return Ok(0);
    }
    if let Some(mut file) = undo {
        file.write_all(&header(device.len(), overlay.len(), pieces.len()))?;
        for piece in &pieces {
            file.write_all(&piece_header(piece))?;
            file.write_all(&piece.old)?;
        }
        file.flush()?;
    }
    sync()?;
    if overlay.len() > device.len() {
        device.resize(overlay.len())?;
    }
    mark(&**device)?;
    let holds_superblock = |piece: &&Piece| piece.at <= SUPERBLOCK_OFFSET.get();
    for piece in pieces.iter().filter(|piece| !holds_superblock(piece)) {
        device.write_at(Bytes::new(piece.at), &piece.new)?;
    }
    device.flush()?;
    for piece in pieces.iter().filter(holds_superblock) {
        device.write_at(Bytes::new(piece.at), &piece.new)?;
    }
    device.flush()?;
    Ok(pieces.iter().map(|piece| u64_of(piece.new.len())).sum())
}

/// Marks the superblock that is there as faulty, if it is one.
fn mark(device: &dyn Device) -> Result<(), UndoError> {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    if let Ok(sb) = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)) {
        device.write_at(SUPERBLOCK_OFFSET, &marked(sb))?;
        device.flush()?;
    }
    Ok(())
}

/// What differs between an overlay and the device below. The superblock's page comes always, for its mark.
fn pieces(overlay: &Overlay) -> Result<Vec<Piece>, UndoError> {
    let device = overlay.inner();
    let mut list: Vec<Piece> = Vec::new();
    for span in overlay.changed() {
        let len = index_of(span.len.get().min(overlay.len().get() - span.at.get()));
        let (mut old, mut new) = (vec![0; len], vec![0; len]);
        overlay.read_at(span.at, &mut new)?;
        let below = index_of(device.len().saturating_sub(span.at).get().min(u64_of(len)));
        device.read_at(span.at, &mut old[..below])?;
        if old == new && span.at.get() > SUPERBLOCK_OFFSET.get() {
            continue;
        }
        match list.last_mut() {
            Some(last)
                if last.at + u64_of(last.old.len()) == span.at.get()
                    && last.old.len() < PIECE_MAX
                    && last.at > SUPERBLOCK_OFFSET.get() =>
            {
                last.old.extend(old);
                last.new.extend(new);
            }
            _ => list.push(Piece { at: span.at.get(), old, new }),
        }
    }
    Ok(list)
}

fn header(before: Bytes, after: Bytes, pieces: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..24].copy_from_slice(&before.get().to_le_bytes());
    bytes[24..32].copy_from_slice(&after.get().to_le_bytes());
    bytes[32..40].copy_from_slice(&u64_of(pieces).to_le_bytes());
    let sum = crc32c(!0, &bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn piece_header(piece: &Piece) -> [u8; PIECE] {
    let mut bytes = [0; PIECE];
    bytes[..8].copy_from_slice(&piece.at.to_le_bytes());
    bytes[8..12].copy_from_slice(&low32(u64_of(piece.old.len())).to_le_bytes());
    bytes[12..16].copy_from_slice(&crc32c(!0, &piece.old).to_le_bytes());
    bytes[16..20].copy_from_slice(&crc32c(!0, &piece.new).to_le_bytes());
    let sum = crc32c(!0, &bytes[..20]);
    bytes[20..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A piece of an undo file.
struct Old {
    at: Bytes,
    bytes: Vec<u8>,
    new_sum: u32,
}

/// Puts back what an undo file holds, after verifying that every stretch is as the repair left it, or as it
/// was before. A volume whose repair was interrupted may hold anything there, and is known by its mark.
///
/// # Errors
/// [`UndoError::Foreign`] and [`UndoError::Broken`] before anything is written; else if the device fails.
pub fn undo(device: &dyn Device, file: &mut dyn Read) -> Result<u64, UndoError> {
    let (before, after, pieces) = read_file(file)?;
    if device.len() != after && device.len() != before {
        return Err(UndoError::Foreign(device.len().get()));
    }
    let interrupted = is_interrupted(device, &pieces)?;
    for piece in &pieces {
        let mut found = vec![0; piece.bytes.len()];
        let there = index_of(device.len().saturating_sub(piece.at).get().min(u64_of(found.len())));
        device.read_at(piece.at, &mut found[..there])?;
        if found != piece.bytes && crc32c(!0, &found) != piece.new_sum && !interrupted {
            return Err(UndoError::Foreign(piece.at.get()));
        }
    }
    let mut count = 0;
    // The superblock comes last, as when it was repaired.
    for piece in pieces.iter().rev() {
        let there = index_of(before.saturating_sub(piece.at).get().min(u64_of(piece.bytes.len())));
        if there > 0 {
            device.write_at(piece.at, &piece.bytes[..there])?;
        }
        count += u64_of(there);
        if piece.at.get() <= SUPERBLOCK_OFFSET.get() {
            device.flush()?;
        }
    }
    if device.len() != before {
        device.resize(before)?;
    }
    device.flush()?;
    Ok(count)
}

/// Whether the superblock is the old one with the mark: then a repair did not come to its end.
fn is_interrupted(device: &dyn Device, pieces: &[Old]) -> Result<bool, UndoError> {
    let start = index_of(SUPERBLOCK_OFFSET.get());
    let page = pieces.iter().find(|piece| piece.at == Bytes::ZERO);
    let Some(old) = page.and_then(|piece| piece.bytes.get(start..start + SIZE)) else { return Ok(false) };
    let mut found = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut found)?;
    Ok(SuperBlock::parse(old, Bytes::new(u64::MAX)).is_ok_and(|sb| marked(sb) == found))
}

/// A superblock with the mark of a volume that is being repaired.
fn marked(mut sb: SuperBlock) -> [u8; SIZE] {
    sb.set_state(sb.state() | STATE_ERROR);
    sb.render(GroupNr::new(0))
}

fn read_file(file: &mut dyn Read) -> Result<(Bytes, Bytes, Vec<Old>), UndoError> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b))
    };
    let long = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b))
    };
    if &header[..16] != MAGIC || word(&header, 60) != crc32c(!0, &header[..60]) {
        return Err(UndoError::Broken("its header"));
    }
    let mut pieces = Vec::new();
    for _ in 0..long(&header, 32) {
        let mut head = [0; PIECE];
        file.read_exact(&mut head)?;
        if word(&head, 20) != crc32c(!0, &head[..20]) {
            return Err(UndoError::Broken("the head of a piece"));
        }
        let len = hectare_units::usize_of(word(&head, 8));
        if len > PIECE_MAX + 4096 {
            return Err(UndoError::Broken("the length of a piece"));
        }
        let mut bytes = vec![0; len];
        file.read_exact(&mut bytes)?;
        if crc32c(!0, &bytes) != word(&head, 12) {
            return Err(UndoError::Broken("the bytes of a piece"));
        }
        pieces.push(Old { at: Bytes::new(long(&head, 0)), bytes, new_sum: word(&head, 16) });
    }
    Ok((Bytes::new(long(&header, 16)), Bytes::new(long(&header, 24)), pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::MemoryDevice;
    use std::sync::Arc;

    fn bytes_of(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; index_of(device.len().get())];
        device.read_at(Bytes::ZERO, &mut bytes).unwrap();
        bytes
    }

    /// A device with changes over it, and the file that takes them back.
    fn written() -> (Arc<dyn Device>, Vec<u8>, Vec<u8>) {
        let before: Vec<u8> = (0..80_000u32).map(|i| hectare_units::low8(u64::from(i % 251))).collect();
        let below: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&before));
        let overlay = Overlay::new(Arc::clone(&below));
        overlay.write_at(Bytes::new(1024), &[1; 10]).unwrap();
        overlay.write_at(Bytes::new(9000), &[2; 9000]).unwrap();
        overlay.write_at(Bytes::new(79_000), &[3; 1000]).unwrap();
        let (after, mut file) = (bytes_of(&overlay), Vec::new());
        write_out(&overlay, Some(&mut file), || Ok(())).unwrap();
        assert!(bytes_of(&*below) == after);
        (below, before, file)
    }

    #[test]
    fn what_was_written_is_taken_back() {
        let (device, before, file) = written();
        undo(&*device, &mut &file[..]).unwrap();
        assert!(bytes_of(&*device) == before);
        undo(&*device, &mut &file[..]).unwrap();
        assert!(bytes_of(&*device) == before, "twice is once");
    }

    #[test]
    fn a_volume_changed_since_stays_as_it_is() {
        let (device, _, file) = written();
        device.write_at(Bytes::new(9001), b"x").unwrap();
        let changed = bytes_of(&*device);
        assert!(matches!(undo(&*device, &mut &file[..]), Err(UndoError::Foreign(_))));
        assert!(bytes_of(&*device) == changed);
    }

    #[test]
    fn every_damage_to_the_file_is_noticed() {
        let (device, _, file) = written();
        let after = bytes_of(&*device);
        for at in (0..file.len()).step_by(97) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(undo(&*device, &mut &damaged[..]).is_err(), "byte {at}");
            assert!(undo(&*device, &mut &file[..at]).is_err(), "cut at {at}");
        }
        assert!(bytes_of(&*device) == after);
    }
}
