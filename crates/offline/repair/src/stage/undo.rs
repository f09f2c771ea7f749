//! Takes back what a repair wrote.
//!
//! Every stretch must be as the repair left it, or as it was before; else the volume was changed since. One
//! whose repair, or whose taking back, was interrupted may hold anything there, and is known by its
//! superblock: each of its two sectors is the old one, the new one, or the one with the mark. A whole old one is
//! no such sign: it is also what a repair taken back leaves, and the volume may have been changed since.
//!
//! Taking back marks the superblock first as well, and writes the old one last.

use crate::stage::undo_file::{self, Halves, Header, Of, Piece, UndoError};
use hectare_device::{Device, Span};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::RawMmp;
use hectare_ext4::superblock::{SIZE, STATE_ERROR, SuperBlock};
use hectare_journal::recovery::external_uuid;
use hectare_units::{BlockNr, Bytes, GroupNr, index_of, u64_of};
use std::io::{Read, Seek};
use std::ops::Range;

/// Puts back what an undo file holds, and gives the bytes that were. `journal` is the device of the volume's
/// journal, if it is another.
///
/// # Errors
/// [`UndoError::Foreign`], [`UndoError::NeedsJournal`] and [`UndoError::Broken`] before anything is written;
/// else if a device fails.
pub fn undo<F: Read + Seek>(
    device: &dyn Device,
    journal: Option<&dyn Device>,
    file: &mut F,
) -> Result<u64, UndoError> {
    let (header, old) = undo_file::head(file)?;
    let journal = journal.filter(|_| header.with_journal);
    if journal.is_none() && header.with_journal {
        return Err(UndoError::NeedsJournal);
    }
    verify(device, journal, &header, old.as_ref(), file)?;
    let mark = old.as_ref().and_then(marked).or_else(|| marked(&superblock_of(device).ok()?));
    if let Some(mark) = mark.filter(|_| old.is_some()) {
        device.write_at(SUPERBLOCK_OFFSET, &mark)?;
        device.flush()?;
    }
    let (mut count, mut of_volume) = (0, true);
    undo_file::scan(file, |of, piece| match (of, journal) {
        (Of::Volume, _) => {
            let there = index_of(header.before.saturating_sub(piece.at).get().min(u64_of(piece.old.len())));
            if there > 0 {
                write_around_superblock(device, piece.at, &piece.old[..there])?;
            }
            count += u64_of(there);
            Ok(())
        }
        (Of::Journal, None) => Err(UndoError::NeedsJournal),
        (Of::Journal, Some(journal)) => {
            // The log is as it was only where the volume is.
            if std::mem::take(&mut of_volume) {
                device.flush()?;
            }
            count += u64_of(piece.old.len());
            Ok(journal.write_at(piece.at, &piece.old)?)
        }
    })?;
    device.flush()?;
    if let Some(journal) = journal {
        journal.flush()?;
    }
    if device.len() != header.before {
        device.resize(header.before)?;
    }
    if let Some(old) = old {
        device.write_at(SUPERBLOCK_OFFSET, &old)?;
    }
    device.flush()?;
    Ok(count)
}

/// Writes a stretch without the superblock.
fn write_around_superblock(device: &dyn Device, at: Bytes, bytes: &[u8]) -> Result<(), UndoError> {
    let start = index_of(SUPERBLOCK_OFFSET.get());
    if at != Bytes::ZERO {
        return Ok(device.write_at(at, bytes)?);
    }
    device.write_at(at, &bytes[..start.min(bytes.len())])?;
    match bytes.get(start + SIZE..) {
        Some(rest) => Ok(device.write_at(SUPERBLOCK_OFFSET + Bytes::of(SIZE), rest)?),
        None => Ok(()),
    }
}

/// Refuses a device that an undo file does not fit, and a file that is damaged anywhere.
fn verify<F: Read + Seek>(
    device: &dyn Device,
    journal: Option<&dyn Device>,
    header: &Header,
    old: Option<&[u8; SIZE]>,
    file: &mut F,
) -> Result<(), UndoError> {
    undo_file::scan(file, |_, _| Ok(()))?;
    if device.len() != header.after && device.len() != header.before {
        return Err(UndoError::Foreign(device.len().get()));
    }
    if let Some(journal) = journal.filter(|journal| !names_journal(device, *journal)) {
        return Err(UndoError::ForeignJournal(journal.name().to_owned()));
    }
    if interrupted_by(device, header, old)? {
        return Ok(());
    }
    let mark = mark_of(device);
    undo_file::scan(file, |of, piece| match (of, journal) {
        (Of::Volume, _) => verify_piece(device, mark.as_ref(), &piece),
        (Of::Journal, Some(journal)) => verify_piece(journal, None, &piece)
            .map_err(|_| UndoError::ForeignJournal(journal.name().to_owned())),
        (Of::Journal, None) => Err(UndoError::NeedsJournal),
    })
}

/// Whether a device is the journal that the volume names.
pub(crate) fn names_journal(device: &dyn Device, journal: &dyn Device) -> bool {
    let sb = superblock_of(device)
        .ok()
        .and_then(|bytes| SuperBlock::parse_torn(&bytes, Bytes::new(u64::MAX)).ok());
    let found = sb.as_ref().and_then(|sb| external_uuid(journal, sb.geometry().block_size).ok());
    sb.zip(found).is_some_and(|(sb, found)| sb.raw().s_journal_uuid == found)
}

/// Refuses a device where a piece is neither as it was before the repair, nor as it was after it. The block of
/// multiple mount protection, `mark`, does not count: a crash right after a repair leaves this host's mark there.
fn verify_piece(device: &dyn Device, mark: Option<&Range<u64>>, piece: &Piece) -> Result<(), UndoError> {
    let mut found = padded(device, Span::new(piece.at, Bytes::of(piece.old.len())))?;
    let is_known = |found: &[u8]| found == piece.old || crc32c(!0, found) == piece.new_sum;
    if is_known(&found) {
        return Ok(());
    }
    if let Some(part) = mark.and_then(|mark| part_within(piece, mark)) {
        found[part.clone()].copy_from_slice(&piece.old[part]);
    }
    if is_known(&found) {
        return Ok(());
    }
    Err(UndoError::Foreign(piece.at.get()))
}

/// Where the mark of multiple mount protection lies, if the volume has it.
fn mark_of(device: &dyn Device) -> Option<Range<u64>> {
    let sb = SuperBlock::parse(&superblock_of(device).ok()?, Bytes::new(u64::MAX)).ok()?;
    let (block, geometry) = (sb.raw().s_mmp_block.get(), sb.geometry());
    let has_one = sb.features().incompat.contains(Incompat::MMP) && block < geometry.blocks_count.get();
    let start = BlockNr::new(block).offset(geometry.block_size).get();
    has_one.then(|| start..start.saturating_add(u64_of(size_of::<RawMmp>())))
}

/// The bytes of a piece that lie in a range of the device.
fn part_within(piece: &Piece, range: &Range<u64>) -> Option<Range<usize>> {
    let (start, len) = (piece.at.get(), u64_of(piece.old.len()));
    let part = range.start.saturating_sub(start).min(len)..range.end.saturating_sub(start).min(len);
    (!part.is_empty()).then(|| index_of(part.start)..index_of(part.end))
}

/// Whether the repair that made an undo file, or its taking back, did not come to its end on a device. `old`
/// is the superblock as it was.
pub(crate) fn interrupted_by(
    device: &dyn Device,
    header: &Header,
    old: Option<&[u8; SIZE]>,
) -> Result<bool, UndoError> {
    let Some(old) = old else { return Ok(false) };
    if device.len() != header.after && device.len() != header.before {
        return Ok(false);
    }
    // Of an undo file of version 0.1, taking back leaves another mark than the repair did.
    let mark = marked(old).map_or(header.marked, |mark| Halves::of(&mark));
    let (found, old) = (Halves::of(&superblock_of(device)?), Halves::of(old));
    let known = found.are_mixed_of(&[old, header.marked, mark, header.new]);
    Ok(known && found != old && found != header.new)
}

/// The bytes of a stretch; zeros where the device is too short.
pub(crate) fn padded(device: &dyn Device, span: Span) -> Result<Vec<u8>, UndoError> {
    let mut bytes = vec![0; index_of(span.len.get())];
    let there = device.len().saturating_sub(span.at).min(span.len);
    if there > Bytes::ZERO {
        device.read_at(span.at, &mut bytes[..index_of(there.get())])?;
    }
    Ok(bytes)
}

/// The bytes where the superblock is.
pub(crate) fn superblock_of(device: &dyn Device) -> Result<[u8; SIZE], UndoError> {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(bytes)
}

/// A superblock with the mark of a volume that is being repaired; `None` if it is none. Other programs know it by
/// its state; a repair, by a name that none of them leaves there.
pub(crate) fn marked(bytes: &[u8; SIZE]) -> Option<[u8; SIZE]> {
    let mut sb = SuperBlock::parse(bytes, Bytes::new(u64::MAX)).ok()?;
    sb.set_state(sb.state() | STATE_ERROR);
    sb.set_last_error_function("hectare repair");
    Some(sb.render(GroupNr::new(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::order::Order;
    use crate::stage::staged::Staged;
    use crate::stage::write_out::write_out;
    use hectare_device::MemoryDevice;
    use std::io::Cursor;
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
        let staged = Staged::new(Arc::clone(&below));
        let overlay = staged.overlay();
        overlay.write_at(Bytes::new(1024), &[1; 10]).unwrap();
        overlay.write_at(Bytes::new(9000), &[2; 9000]).unwrap();
        overlay.write_at(Bytes::new(79_000), &[3; 1000]).unwrap();
        let (after, mut file) = (bytes_of(&**overlay), Vec::new());
        write_out(&staged, &Order::default(), 1, Some(&mut file), || Ok(())).unwrap();
        assert!(bytes_of(&*below) == after);
        (below, before, file)
    }

    #[test]
    fn what_was_written_is_taken_back() {
        let (device, before, file) = written();
        undo(&*device, None, &mut Cursor::new(&file)).unwrap();
        assert!(bytes_of(&*device) == before);
        undo(&*device, None, &mut Cursor::new(&file)).unwrap();
        assert!(bytes_of(&*device) == before, "twice is once");
    }

    #[test]
    fn a_volume_changed_since_stays_as_it_is() {
        let (device, _, file) = written();
        device.write_at(Bytes::new(9001), b"x").unwrap();
        let changed = bytes_of(&*device);
        assert!(matches!(undo(&*device, None, &mut Cursor::new(&file)), Err(UndoError::Foreign(_))));
        assert!(bytes_of(&*device) == changed);
    }

    #[test]
    fn every_damage_to_the_file_is_noticed() {
        let (device, _, file) = written();
        let after = bytes_of(&*device);
        for at in (0..file.len()).step_by(97) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(undo(&*device, None, &mut Cursor::new(&damaged)).is_err(), "byte {at}");
            assert!(undo(&*device, None, &mut Cursor::new(&file[..at])).is_err(), "cut at {at}");
        }
        assert!(bytes_of(&*device) == after);
    }
}
