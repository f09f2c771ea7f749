//! Writeback: places buffered bytes, for syncs and closes, for age and for want of memory or space.

use crate::caller;
use crate::data::checks::{LARGE_FILE, Source};
use crate::data::pieces;
use crate::error::{Error, Result};
use crate::state::Core;
use crate::state::unwinding::Unwinding;
use crate::stores::appended::Buffer;
use crate::stores::inode_cache::CachedInode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Places a file's buffered bytes, before its map is read or changed. The caller holds the operation lock
/// exclusively.
///
/// # Errors
/// The first write that failed; what could not be written is lost. The next fsync or close of the file,
/// and the next sync of the volume, report it as well.
pub(crate) fn place_locked(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    if inode.delayed().end().is_none() {
        return Ok(());
    }
    let Some(buffer) = take_buffer(inode) else { return Ok(()) };
    let _lost = Unwinding::watch(core, "a panic lost buffered bytes of a file");
    let result = write_buffer(core, inode, &buffer);
    if let Err(error) = &result {
        log::error!(inode = inode.nr().get(), error:%; "buffered bytes of a file are lost");
        inode.delayed().state().failed.note(error);
        core.state.delay.failed.lock().note(error);
    }
    settle_buffer(core, inode, &buffer);
    result
}

/// Like [`place_locked`], before the size becomes `size`. What would be truncated stays in the buffer, to be
/// [dropped](drop_delayed) when the size has changed.
pub(crate) fn place_before_resize(core: &Core, inode: &Arc<CachedInode>, size: u64) -> Result<()> {
    if size <= inode.get().size { Ok(()) } else { place_locked(core, inode) }
}

/// Drops a file's buffered bytes. The caller holds the operation lock exclusively.
pub(crate) fn drop_delayed(core: &Core, inode: &Arc<CachedInode>) {
    if let Some(buffer) = take_buffer(inode) {
        settle_buffer(core, inode, &buffer);
    }
}

/// Takes the bytes of a file; their claim stays with the inode, for allocations that find no other space.
fn take_buffer(inode: &CachedInode) -> Option<Buffer> {
    inode.delayed().state().buffer.take()
}

/// Ends buffering for the file.
fn settle_buffer(core: &Core, inode: &Arc<CachedInode>, buffer: &Buffer) {
    // The size is in the inode by now.
    inode.delayed().set_end(0);
    let claims = {
        let mut state = inode.delayed().state();
        (state.claim.take(), state.quota.take())
    };
    drop(claims);
    core.state.delay.unregister(inode);
    core.state.delay.bytes.fetch_sub(buffer.charged, Ordering::Relaxed);
    core.state.delay.promised.fetch_sub(buffer.clusters.get(), Ordering::Relaxed);
}

fn write_buffer(core: &Core, inode: &Arc<CachedInode>, buffer: &Buffer) -> Result<()> {
    core.check_takes_changes()?;
    if inode.is_freed() {
        return Ok(());
    }
    if buffer.end() >= LARGE_FILE {
        core.state.bring_feature(hectare_ext4::feature::RoCompat::LARGE_FILE);
    }
    // Limits were checked when the bytes came.
    let done = caller::without_limits(|| {
        let (at, bytes) = (buffer.start, &buffer.bytes);
        pieces::write_pieces(core, inode, at, bytes, Source::Gathered, pieces::no_reclaim)
    })?;
    if done == buffer.bytes.len() { Ok(()) } else { Err(Error::NoSpace) }
}

/// Places a file's buffered bytes, and returns the writeback error not yet reported to the open file that
/// keeps `heard`: the first step of an fsync. Called with nothing locked.
///
/// # Errors
/// The first write that failed, now or earlier.
pub(crate) fn flush_delayed(core: &Core, inode: &Arc<CachedInode>, heard: &AtomicU64) -> Result<()> {
    if inode.delayed().end().is_some() {
        // An error is recorded, and returned below.
        let _ = place_waiting(core, inode);
    }
    inode.delayed().tell(heard).map_or(Ok(()), Err)
}

/// Places the buffered bytes of all files: the first step of a sync of the volume. An error is recorded.
/// Called with nothing locked.
pub(crate) fn place_all(core: &Core) {
    for inode in core.state.delay.all_files() {
        let _ = place_waiting(core, &inode);
    }
}

/// Returns the first write of buffered bytes that failed since the caller that keeps `heard` was told last.
/// It is reported to the open files, too.
pub(crate) fn check_placed(core: &Core, heard: &AtomicU64) -> Result<()> {
    core.state.delay.failed.lock().tell(heard).map_or(Ok(()), Err)
}

/// The same for a caller that asks once: errors that nobody was told of.
pub(crate) fn check_untold(core: &Core) -> Result<()> {
    let heard = AtomicU64::new(core.state.delay.failed.lock().heard());
    check_placed(core, &heard)
}

/// Places the buffered bytes of all files, and ends buffering. Files without a name lose theirs: they are
/// about to be freed.
///
/// # Errors
/// The first write that failed, now or earlier, and that nobody was told of.
pub(crate) fn end_delay(core: &Core) -> Result<()> {
    core.state.delay.closing.store(true, Ordering::SeqCst);
    for inode in core.state.delay.all_files() {
        let _operation = inode.lock().write();
        if inode.get().links == 0 {
            drop_delayed(core, &inode);
        }
    }
    place_all(core);
    check_untold(core)
}

/// Places small appends that have been buffered for at least `age`. The volume's thread calls it
/// periodically. Errors are reported by fsync or close of the file.
pub(crate) fn place_aged(core: &Core, age: Duration) {
    let aged = |inode: &Arc<CachedInode>| inode.delayed().since().is_some_and(|since| since.elapsed() >= age);
    for inode in core.state.delay.all_files().filter(aged) {
        let _ = place_waiting(core, &inode);
    }
}

/// Places enough to come well under the budget, if it is exceeded. Called with nothing locked.
pub(crate) fn relieve_delayed(core: &Core) {
    let over = |budget| core.state.delay.bytes.load(Ordering::Relaxed) > budget;
    if !over(core.state.delay.budget) {
        return;
    }
    let _relieving = core.state.delay.relieving.lock();
    if !over(core.state.delay.budget) {
        return;
    }
    // The largest first: what is placed early becomes an extent of its own.
    let mut files: Vec<_> =
        core.state.delay.all_files().map(|inode| (inode.delayed().len(), inode)).collect();
    files.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
    for (_, inode) in files {
        if !over(core.state.delay.budget / 4 * 3) {
            return;
        }
        let _ = place_waiting(core, &inode);
    }
}

/// Places the buffered bytes of other files, which returns excess claims; reports whether there were any.
/// Files whose operation lock is held are skipped: the caller may hold operation locks.
pub(crate) fn place_for_space(core: &Core) -> bool {
    let mut placed = false;
    for inode in core.state.delay.all_files() {
        if let Some(_operation) = inode.lock().try_write() {
            let _ = place_locked(core, &inode);
            placed = true;
        }
    }
    placed
}

/// Places the buffered bytes of a file that is not open any more, or drops them if the file has neither a
/// name nor a user. The next sync of the volume reports errors.
pub(crate) fn place_last(core: &Core, inode: &Arc<CachedInode>) {
    if inode.delayed().end().is_none() {
        return;
    }
    let _operation = inode.lock().write();
    if inode.get().links == 0 && !inode.is_in_use() {
        drop_delayed(core, inode);
    } else {
        let _ = place_locked(core, inode);
    }
}

/// As [`place_locked`], with nothing locked.
pub(crate) fn place_waiting(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    let _operation = inode.lock().write();
    place_locked(core, inode)
}
