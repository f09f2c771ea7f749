//! Copies a range from one file to another, or within one (`copy_file_range`).
//!
//! Data goes from the device to the device through one large buffer; it never leaves the engine. What reads
//! as zeros without having been written (holes, unwritten extents) is not written: the target gets a hole
//! there, and where it had data, that is punched out.
//!
//! The files are locked anew for every chunk, the lower number first, so that others are not kept out for
//! long: of a file that changes meanwhile some chunks may be older than others, as with any reading.

use crate::data::checks::Source;
use crate::data::fallocate::punch;
use crate::data::{
    checks, clear, inline, journalled, pieces, read, reclaim, seek, truncate, verity, writeback,
};
use crate::encrypted_names::check_not_ciphertext;
use crate::error::{Error, Result};
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{index_of, u64_of};
use std::sync::Arc;

/// Bytes copied at a time: large enough that the cost of a transaction does not show.
const PIECE: u64 = 4 << 20;

/// A file, and a byte of it.
type FilePlace<'a> = (&'a Arc<CachedInode>, u64);

/// What the source has.
enum Found {
    /// The number of bytes to read.
    Data(u64),
    /// The number of bytes that were never written.
    Hole(u64),
}

/// Copies up to `len` bytes between two places of files; `whose` says whether the target's times change.
/// Returns how many bytes: fewer at the end of the source, where the target is as large as it can be, or for
/// an error behind what is copied, which the next call meets.
pub(crate) fn copy(
    core: &Core,
    (source, at): FilePlace<'_>,
    (target, target_at): FilePlace<'_>,
    len: u64,
    whose: Source,
) -> Result<u64> {
    core.check_takes_changes()?;
    let len = len.min(checks::content_end(source).saturating_sub(at));
    let len = checks::fitting(core, target, target_at, len)?;
    if source.nr() == target.nr() && at < target_at + len && target_at < at + len {
        return Err(Error::Invalid("the ranges to copy between overlap"));
    }
    let (mut done, mut buffer) = (0, Vec::new());
    while done < len {
        let (from, to) = ((source, at + done), (target, target_at + done));
        let relieved = core.relieve();
        match relieved.and_then(|()| copy_piece(core, from, to, len - done, whose, &mut buffer)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    core.relieve()?;
    core.sync_if_asked(target)?;
    Ok(done)
}

/// Copies a first part of a range; returns how many bytes, 0 at the end of the source.
fn copy_piece(
    core: &Core,
    (from, at): FilePlace<'_>,
    (to, target_at): FilePlace<'_>,
    len: u64,
    whose: Source,
    buffer: &mut Vec<u8>,
) -> Result<u64> {
    let (source_first, same) = (from.nr() < to.nr(), from.nr() == to.nr());
    let _before = (source_first && !same).then(|| from.lock().read());
    let _target = to.lock().write();
    let _after = (!source_first && !same).then(|| from.lock().read());
    writeback::place_locked(core, to)?;
    checks::check_write(core, to, target_at, whose)?;
    match find_piece(core, from, at, len)? {
        Found::Data(0) | Found::Hole(0) => Ok(0),
        Found::Data(len) => {
            buffer.resize(index_of(len), 0);
            let read = verity::read_locked(core, from, at, buffer)?;
            if inline::write(core, to, target_at, &buffer[..read], whose)? {
                return Ok(u64_of(read));
            }
            clear::clear_tail(core, to, target_at)?;
            checks::bring_large_file(core, target_at + u64_of(read));
            let data = &buffer[..read];
            Ok(u64_of(if core.state.journals_data(&to.get()) {
                journalled::write_journalled(core, to, target_at, data, whose)?
            } else {
                pieces::write_pieces(core, to, target_at, data, whose, reclaim::reclaim)?
            }))
        }
        Found::Hole(len) => {
            inline::leave(core, to).and_then(|()| copy_hole(core, to, target_at, len, whose)).map(|()| len)
        }
    }
}

/// What begins at byte `at` of a file, up to `len` bytes of it.
fn find_piece(core: &Core, inode: &CachedInode, at: u64, len: u64) -> Result<Found> {
    let (size, is_mapped) = {
        let data = inode.get();
        check_not_ciphertext(&data, inode.nr())?;
        (data.size, !data.flags.contains(InodeFlags::INLINE_DATA))
    };
    let end = size.max(inode.delayed().end().unwrap_or(0));
    if at >= size || !is_mapped {
        return Ok(Found::Data(len.min(PIECE).min(end.saturating_sub(at))));
    }
    let len = len.min(size - at);
    let (place, run) = read::run_at(core, inode, at)?;
    if place.is_none() {
        return Ok(Found::Hole(run.min(len)));
    }
    let (mut data, len) = (run, len.min(PIECE));
    while data < len {
        let (Some(_), run) = read::run_at(core, inode, at + data)? else { break };
        data += run;
    }
    Ok(Found::Data(data.min(len)))
}

/// Makes a range of a file read as zeros without allocating it, and the file at least as long.
fn copy_hole(core: &Core, inode: &Arc<CachedInode>, at: u64, len: u64, whose: Source) -> Result<()> {
    let (size, end) = (inode.get().size, at + len);
    let inside = at..end.min(size);
    let has_data = seek::seek_data_locked(core, inode, at)?.is_some_and(|data| data < inside.end);
    if has_data {
        punch::punch(core, inode, inside, whose)?;
    }
    if end > size {
        clear::clear_tail(core, inode, end)?;
        checks::bring_large_file(core, end);
    }
    truncate::note_size(core, inode, size.max(end), whose)
}
