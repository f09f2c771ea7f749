//! Writes file data into blocks that are not written yet, and maps them.
//!
//! A write into a hole reserves space, writes the data to its final place, and only then maps it, in a short
//! transaction; so metadata never points at blocks whose data is not written.
//!
//! A caller says what is to be done when the volume is full: most have space freed and try again
//! ([`crate::data::reclaim`]), writeback does not, since it is what that would call.
//!
//! Everything here runs under the inode's operation lock, exclusive.

use crate::data::checks::{FILE_BLOCKS_MAX, Source, Split, ZEROS};
use crate::data::{checks, claims, clear, device};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::space::piece::{Piece, Use};
use crate::space::reserve;
use crate::state::Core;
use crate::state::sync::Seen;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::{Extent, Mapping};
use hectare_units::{Bytes, LogicalBlock, index_of, low32, u64_of};
use std::io::IoSlice;
use std::sync::Arc;

/// Blocks one write maps at a time.
const WRITE_STEP: u32 = 32768;

/// What one step of a write did.
struct Written {
    len: usize,
    /// Whether size and times have their final values already.
    noted: bool,
}

/// No space is freed for a write.
pub(crate) fn no_reclaim(_: &Core, _: Seen) -> Result<bool> {
    Ok(false)
}

/// Writes bytes chunk by chunk, and maps those that lie in no written block yet; returns how many: all,
/// or those before the volume was full. The caller holds the operation lock exclusively.
pub(crate) fn write_pieces(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
    reclaim: impl Fn(&Core, Seen) -> Result<bool>,
) -> Result<usize> {
    let mut noted = true;
    let done = in_steps(core, data.len(), reclaim, |done, split| {
        let piece = write_piece(core, inode, at + u64_of(done), &data[done..], split, source)?;
        noted = piece.noted;
        if source == Source::Gathered {
            claims::spend_claim(core, inode, at + u64_of(done + piece.len), at + u64_of(data.len()));
        }
        Ok(piece.len)
    })?;
    if !noted {
        note_written(core, inode, at + u64_of(done), source)?;
    }
    Ok(done)
}

/// Writes `len` bytes in steps: each gets the number of bytes done and how to split an extent, and
/// returns how many it did. For lack of space, `reclaim` may free some, and says whether another try may
/// succeed. Returns how many all did: all, or those before the volume was full.
pub(crate) fn in_steps(
    core: &Core,
    len: usize,
    reclaim: impl Fn(&Core, Seen) -> Result<bool>,
    mut step: impl FnMut(usize, Split) -> Result<usize>,
) -> Result<usize> {
    let (mut done, mut split) = (0, Split::AsNeeded);
    while done < len {
        let seen = core.seen();
        match step(done, split) {
            Ok(more) => (done, split) = (done + more, Split::AsNeeded),
            Err(error) if core.may_lack_space(&error) && reclaim(core, seen)? => {}
            Err(error) if core.may_lack_space(&error) && split == Split::AsNeeded => split = Split::Spare,
            Err(Error::QuotaExceeded { .. }) if done > 0 => break,
            Err(error) if done > 0 && core.may_lack_space(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes as much of `data` as one mapping step takes.
fn write_piece(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    split: Split,
    source: Source,
) -> Result<Written> {
    let size = core.state.geometry().block_size;
    let block = LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?;
    let within = u64_of(size.within(Bytes::new(at)));
    let wanted = (within + u64_of(data.len())).div_ceil(size.bytes().get()).min(u64::from(WRITE_STEP));
    if let Some(piece) = reserve::kept_for(core, inode, block, low32(wanted)) {
        return fill_piece(core, inode, at, piece, data, source);
    }
    let held = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    match map.lookup(block)? {
        Mapping::Mapped(extent) => {
            let len = low32(wanted.min(extent.end() - u64::from(block.get())));
            let part = checks::part_in(core, data, within, len);
            let physical = extent.block_of(block).ok_or(Error::FileTooLarge)?;
            drop(held);
            if !extent.unwritten {
                device::write_data(core, physical.offset(size) + Bytes::new(within), part)?;
                core.state.count_written(part.len());
                return Ok(Written { len: part.len(), noted: false });
            }
            let target = Extent { logical: block, len, physical, unwritten: true };
            write_padded(core, &target, within, part)?;
            let range = match split {
                Split::AsNeeded => u64::from(block.get())..target.end(),
                Split::Spare => {
                    let size_after = inode.get().size.max(at + u64_of(part.len()));
                    clear::clear_around(core, inode, &target, size_after)?
                }
            };
            settle(core, inode, at, source, |map| {
                map.mark(LogicalBlock::new(low32(range.start)), range.end, false)?;
                Ok(part.len())
            })
        }
        Mapping::Hole { next } => {
            let room = next.map_or(FILE_BLOCKS_MAX, |next| next.get().into()) - u64::from(block.get());
            let piece = reserve::reserve_for(
                core,
                inode.nr(),
                &held,
                block,
                low32(wanted.min(room)),
                Use::data(inode),
            )?;
            drop(held);
            fill_piece(core, inode, at, piece, data, source)
        }
    }
}

/// Writes as much of `data` to byte `at` as one new extent takes, and maps it.
fn fill_piece(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    piece: Piece,
    data: &[u8],
    source: Source,
) -> Result<Written> {
    let within = u64_of(core.state.geometry().block_size.within(Bytes::new(at)));
    let part = checks::part_in(core, data, within, piece.extent.len);
    write_padded(core, &piece.extent, within, part)?;
    settle(core, inode, at, source, |map| {
        let mapped = map.publish(piece, false)?;
        Ok(checks::part_in(core, part, within, mapped).len())
    })
}

/// Makes what was written at `at` part of the file: `change` maps it and returns how many bytes it is. In
/// the same transaction the size grows with it, so that no written block ever lies beyond the end.
fn settle(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    source: Source,
    change: impl FnOnce(&mut MapMut<'_, '_>) -> Result<usize>,
) -> Result<Written> {
    let mut handle = core.start(MAP_CREDITS)?;
    let mut target = inode.edit(&mut handle, &core.state.inodes);
    let mut map = MapMut { core, handle: &mut handle, nr: inode.nr(), inode: &mut target };
    let len = change(&mut map)?;
    checks::bring_written(core, &mut target, at + u64_of(len), source);
    Ok(Written { len, noted: true })
}

/// Writes `part` into the blocks of an extent that are not mapped as written yet, `within` bytes after
/// their start, and zeros into the rest of the blocks it touches.
fn write_padded(core: &Core, target: &Extent, within: u64, part: &[u8]) -> Result<()> {
    let size = core.state.geometry().block_size;
    let end = within + u64_of(part.len());
    let head = &ZEROS[..index_of(within)];
    let tail = &ZEROS[..index_of(end.next_multiple_of(size.bytes().get()) - end)];
    let slices = [IoSlice::new(head), IoSlice::new(part), IoSlice::new(tail)];
    device::write_data_parts(core, target.physical.offset(size), &slices)?;
    core.state.count_written(part.len());
    Ok(())
}

/// Sets the size a write leads to, and the times.
fn note_written(core: &Core, inode: &Arc<CachedInode>, end: u64, source: Source) -> Result<()> {
    let mut handle = core.start(MAP_CREDITS)?;
    checks::bring_written(core, &mut inode.edit(&mut handle, &core.state.inodes), end, source);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::open::assemble::tests::unformatted;
    use std::cell::{Cell, RefCell};

    /// What a write of 10 bytes does that finds room for `room` of them, where space is freed `times` times.
    fn steps(room: usize, times: u32) -> (Result<usize>, Vec<&'static str>) {
        let core = unformatted(OpenOptions::default());
        let (calls, left) = (RefCell::new(Vec::new()), Cell::new(times));
        let reclaim = |_: &Core, _| {
            calls.borrow_mut().push("reclaim");
            let more = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            Ok(more)
        };
        let done = in_steps(&core, 10, reclaim, |done, split| {
            calls.borrow_mut().push(if split == Split::Spare { "spare" } else { "split" });
            let now = 4.min(room.saturating_sub(done)).min(10 - done);
            if now == 0 { Err(Error::NoSpace) } else { Ok(now) }
        });
        (done, calls.into_inner())
    }

    #[test]
    fn a_full_volume_is_relieved_then_spared_and_then_ends_the_write() {
        let (done, calls) = steps(12, 0);
        assert!(matches!(done, Ok(10)), "{done:?}");
        assert_eq!(calls, ["split"; 3]);
        let (done, calls) = steps(4, 1);
        assert!(matches!(done, Ok(4)), "{done:?}");
        assert_eq!(calls, ["split", "split", "reclaim", "split", "reclaim", "spare", "reclaim"]);
        let (done, calls) = steps(0, 0);
        assert!(matches!(done, Err(Error::NoSpace)), "{done:?}");
        assert_eq!(calls, ["split", "reclaim", "spare", "reclaim"]);
    }
}
