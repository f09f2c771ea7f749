//! Writes file data: chooses between overwriting, buffering, the journal and new blocks.
//!
//! Data goes straight between the caller's buffer and the device; there is no page cache here. A write inside
//! blocks that are mapped and written changes no map at all ([`crate::data::overwrite`]). Small writes at the
//! end of a file are buffered ([`crate::data::append`]). Files with journalled data take another path
//! ([`crate::data::journalled`]); all others are written piece by piece ([`crate::data::pieces`]).
//!
//! What goes over the largest size of a file is not written, as on Linux: the call returns how much was.
//!
//! | write              | inside written blocks | unwritten blocks or holes           | beyond the size |
//! |--------------------|-----------------------|-------------------------------------|-----------------|
//! | operation lock     | shared, and a range   | exclusive                           | exclusive       |
//! | handle             | none                  | after the data is written, to map it | the same        |

use crate::data::checks::Source;
use crate::data::{append, checks, clear, inline, journalled, overwrite, pieces, reclaim, writeback};
use crate::error::Result;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_units::{index_of, u64_of};
use std::sync::Arc;

/// Writes bytes to a file. Returns how many were written: all, or those before the volume was full or the file as
/// large as it can be.
pub(crate) fn write(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
) -> Result<usize> {
    core.check_takes_changes()?;
    if data.is_empty() {
        return Ok(0);
    }
    let (data, end) = fitting(core, inode, at, data)?;
    let gathers = inode.delayed().end() == Some(at);
    if !gathers && overwrite::overwrite(core, inode, at, data, source)? {
        return Ok(data.len());
    }
    let done = {
        let _operation = inode.lock().write();
        write_locked(core, inode, at, data, end, source)?
    };
    follow_up(core, inode)?;
    Ok(done)
}

/// Writes bytes at the end of a file, which no other call moves meanwhile. Returns where they begin, and how many
/// were written: as [`write`].
pub(crate) fn write_at_end(core: &Core, inode: &Arc<CachedInode>, data: &[u8]) -> Result<(u64, usize)> {
    core.check_takes_changes()?;
    let (at, done) = {
        let _operation = inode.lock().write();
        let at = checks::content_end(inode);
        if data.is_empty() {
            return Ok((at, 0));
        }
        let (data, end) = fitting(core, inode, at, data)?;
        (at, write_locked(core, inode, at, data, end, Source::Caller)?)
    };
    follow_up(core, inode)?;
    Ok((at, done))
}

/// The part of `data` that the file can hold from byte `at` on, and where it ends.
fn fitting<'a>(core: &Core, inode: &CachedInode, at: u64, data: &'a [u8]) -> Result<(&'a [u8], u64)> {
    let len = checks::fitting(core, inode, at, u64_of(data.len()))?;
    Ok((&data[..index_of(len)], at + len))
}

/// What follows a write, without the operation lock: buffers over their limits are placed, and a file that
/// requires sync is synced.
fn follow_up(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    writeback::relieve_delayed(core);
    core.relieve()?;
    if inode.delayed().end().is_none() {
        core.sync_if_asked(inode)?; // buffers nothing if the file requires sync
    }
    Ok(())
}

/// Writes bytes that change the map or the size. The caller holds the operation lock exclusively.
fn write_locked(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    end: u64,
    source: Source,
) -> Result<usize> {
    if inline::write(core, inode, at, data, source)? {
        return Ok(data.len());
    }
    if append::append_delayed(core, inode, at, data, source)? {
        return Ok(data.len());
    }
    writeback::place_locked(core, inode)?;
    checks::check_write(core, inode, at, source)?;
    clear::clear_tail(core, inode, at)?;
    checks::bring_large_file(core, end);
    if core.state.journals_data(&inode.get()) {
        return journalled::write_journalled(core, inode, at, data, source);
    }
    pieces::write_pieces(core, inode, at, data, source, reclaim::reclaim)
}
