//! Writes a repaired volume out.
//!
//! Before the first byte of the device changes, everything that will change is in the undo file, durable,
//! with checksums of what was there and of what comes. Then the superblock is marked as faulty, and the
//! changes are written in an order that another repair can finish ([`crate::stage::order`]), the superblock last.
//! So a power cut leaves the old volume, the new one, or one that is known by its mark and can be taken back
//! exactly; without the undo file it can be repaired again.
//!
//! The log on a device of its own is emptied when everything that it held is in its place, and before the
//! superblock says so.
//!
//! What is staged is in memory or, durably, in the file that it spills to before anything else happens: to
//! read it needs no space then.
//!
//! A broken superblock can't be marked. The new one is written first in its place, with the mark: no backup
//! is changed while there is nothing else.

use crate::stage::order::{Order, Phase};
use crate::stage::overlay::Changed;
use crate::stage::staged::Staged;
use crate::stage::undo::{marked, padded, superblock_of};
use crate::stage::undo_file::{Halves, Header, PIECE_MAX, Piece, UndoError, write_count};
use hectare_device::{Device, Span};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::SIZE;
use hectare_units::{Bytes, u64_of};
use std::io::Write;

/// Writes the changes of a repair to the device, and gives the bytes written. With `undo` what was there goes
/// to that file first; `sync` makes the file durable. `now` is the time that the repair stored.
///
/// # Errors
/// [`UndoError::Spill`] before anything is written. If the device or the file fails; up to the error, what
/// was written is as the module says.
pub fn write_out<W: Write>(
    staged: &Staged,
    order: &Order,
    now: u32,
    undo: Option<W>,
    sync: impl FnOnce() -> std::io::Result<()>,
) -> Result<u64, UndoError> {
    staged.settle()?;
    let (device, overlay) = (staged.device(), staged.overlay());
    let stretches = stretches(staged)?;
    let of_journal = journal_stretches(staged)?;
    if stretches.is_empty() && overlay.len() == device.len() {
        return Ok(0);
    }
    let mark = mark(staged)?;
    if let Some(mut file) = undo {
        let header = Header {
            before: overlay.inner().len(),
            after: overlay.len(),
            pieces: u64_of(stretches.len()),
            marked: Halves::of(&mark),
            new: Halves::of(&superblock_of(&**overlay)?),
            now,
            with_journal: !of_journal.is_empty(),
        };
        header.write(&mut file)?;
        for span in &stretches {
            Piece::write(
                &mut file,
                span.at,
                &padded(&**overlay.inner(), *span)?,
                &padded(&**overlay, *span)?,
            )?;
        }
        if let Some(journal) = staged.journal().filter(|_| header.with_journal) {
            write_count(&mut file, of_journal.len())?;
            for span in &of_journal {
                let (old, new) =
                    (padded(&**journal.overlay.inner(), *span)?, padded(&*journal.overlay, *span)?);
                Piece::write(&mut file, span.at, &old, &new)?;
            }
        }
        file.flush()?;
    }
    sync()?;
    if overlay.len() > device.len() {
        device.resize(overlay.len())?;
    }
    device.write_at(SUPERBLOCK_OFFSET, &mark)?;
    device.flush()?;
    for phase in Phase::ALL {
        if phase == Phase::Journal {
            write_journal(staged, &of_journal)?;
        }
        for part in stretches.iter().flat_map(|span| order.parts(*span, phase)) {
            device.write_at(part.at, &padded(&**overlay, part)?)?;
        }
        device.flush()?;
    }
    Ok(stretches.iter().map(|span| span.len.get()).sum())
}

/// Writes what changes on the journal's own device.
fn write_journal(staged: &Staged, stretches: &[Span]) -> Result<(), UndoError> {
    let Some(journal) = staged.journal().filter(|_| !stretches.is_empty()) else { return Ok(()) };
    for span in stretches {
        journal.device.write_at(span.at, &padded(&*journal.overlay, *span)?)?;
    }
    Ok(journal.device.flush()?)
}

/// What changes on the journal's own device, page by page; a page that an interrupted repair had changed is
/// among them if it is in the overlay.
fn journal_stretches(staged: &Staged) -> Result<Vec<Span>, UndoError> {
    let Some(journal) = staged.journal() else { return Ok(Vec::new()) };
    let mut list = Vec::new();
    for span in journal.overlay.changed().into_iter().flat_map(Changed::spans) {
        let span = Span::new(span.at, span.len.min(journal.overlay.len().saturating_sub(span.at)));
        let new = padded(&*journal.overlay, span)?;
        if padded(&**journal.overlay.inner(), span)? != new || padded(&*journal.device, span)? != new {
            list.push(span);
        }
    }
    Ok(list)
}

/// The superblock while the repair goes on: the old one with a mark, or the new one if that is broken.
fn mark(staged: &Staged) -> Result<[u8; SIZE], UndoError> {
    let (old, new) = (superblock_of(&**staged.overlay().inner())?, superblock_of(&**staged.overlay())?);
    Ok(marked(&old).or_else(|| marked(&new)).unwrap_or(old))
}

/// What changes on the device, in stretches of [`PIECE_MAX`] at most. The superblock's page comes always, for
/// its mark.
fn stretches(staged: &Staged) -> Result<Vec<Span>, UndoError> {
    let overlay = staged.overlay();
    let mut changed = overlay.changed();
    changed.extend(staged.before().map(|before| before.changed()).unwrap_or_default());
    changed.sort_unstable_by_key(|changed| changed.region);
    changed.dedup_by(|later, first| {
        let same = later.region == first.region;
        if same {
            first.pages |= later.pages;
        }
        same
    });
    let mut list: Vec<Span> = Vec::new();
    for Span { at, len } in changed.into_iter().flat_map(Changed::spans) {
        let span = Span::new(at, len.min(overlay.len().saturating_sub(at)));
        let (old, new) = (padded(&**overlay.inner(), span)?, padded(&**overlay, span)?);
        let same = old == new && padded(&**staged.device(), span)? == new;
        if span.len == Bytes::ZERO || same && span.at > SUPERBLOCK_OFFSET {
            continue;
        }
        match list.last_mut() {
            Some(last) if last.at + last.len == span.at && last.len + span.len <= Bytes::of(PIECE_MAX) => {
                last.len += span.len;
            }
            _ => list.push(span),
        }
    }
    Ok(list)
}
