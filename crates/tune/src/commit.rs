//! Writes the copy in memory to the device.
//!
//! The superblock is written last, in one piece, after all else is durable: where nothing but superblocks
//! changes, a crash leaves the old one or the new one. Where more changes, the volume is marked as having
//! errors first, so that after a crash in between nothing uses it before e2fsck has looked at it.

use crate::error::Result;
use crate::volume::Overlay;
use hectare_device::{Device, Span};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_units::{Bytes, GroupNr, index_of};

/// Writes what differs. `old` is the superblock on the device.
pub(crate) fn write(overlay: &Overlay, old: &SuperBlock, structural: bool) -> Result<()> {
    let device = overlay.inner();
    if structural {
        let mut marked = old.clone();
        marked.set_state(marked.state() & !STATE_VALID | STATE_ERROR);
        device.write_at(SUPERBLOCK_OFFSET, &marked.render(GroupNr::new(0)))?;
        device.flush()?;
    }
    let superblock = Span::new(SUPERBLOCK_OFFSET, Bytes::of(SIZE));
    for span in overlay.changed() {
        for part in without(span, superblock) {
            write_part(overlay, part)?;
        }
    }
    device.flush()?;
    let mut bytes = [0; SIZE];
    overlay.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    device.write_at(SUPERBLOCK_OFFSET, &bytes)?;
    Ok(device.flush()?)
}

/// Writes a part if it is not what is there.
fn write_part(overlay: &Overlay, part: Span) -> Result<()> {
    let device = overlay.inner();
    // The last page may reach beyond the end.
    let len = index_of(device.len().saturating_sub(part.at).min(part.len).get());
    let (mut new, mut old) = (vec![0; len], vec![0; len]);
    overlay.read_at(part.at, &mut new)?;
    device.read_at(part.at, &mut old)?;
    if new != old {
        device.write_at(part.at, &new)?;
    }
    Ok(())
}

/// What is left of a span without another one.
fn without(span: Span, hole: Span) -> Vec<Span> {
    let (start, end) = (span.at.get(), span.at.get() + span.len.get());
    let (from, to) = (hole.at.get(), hole.at.get() + hole.len.get());
    let parts = [(start, end.min(from)), (start.max(to), end)];
    let kept = parts.into_iter().filter(|(start, end)| start < end);
    kept.map(|(start, end)| Span::new(Bytes::new(start), Bytes::new(end - start))).collect()
}
