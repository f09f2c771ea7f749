//! Direct overwrites: writes over mapped, written blocks in place, without a handle.
//!
//! A write inside the size and inside written blocks changes no map. It shares the operation lock with reads
//! and other such writes, and its time stamp waits for the next commit ([`crate::stores::lazytime`]).
//!
//! Guarantee: two overlapping writes of one file end wholly as one or the other, across extents and on every
//! device, since each enters its range ([`crate::stores::writers`]) for as long as it writes. Writes that do
//! not overlap run concurrently. All other changes of content exclude these by the operation lock. A read is
//! not kept out: one that overlaps a write may see parts of it, as with direct I/O in the kernel.

use crate::data::checks::Source;
use crate::data::{checks, device, read};
use crate::error::Result;
use crate::space::map_edit::MAP_CREDITS;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::error::{Corrupt, Place};
use hectare_units::{Bytes, index_of, u64_of};
use std::sync::Arc;

/// Overwrites blocks that are mapped and written, inside the size, under the shared lock; returns whether
/// that was possible. No handle is needed: only the times change, and wait for the next commit.
pub(crate) fn overwrite(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
) -> Result<bool> {
    let (listed, looked_up) = {
        let _operation = inode.lock().read();
        let place = match inode.runs().find(at, data.len()) {
            Some((place, true)) => Some(place),
            _ if is_written(core, inode, at, data.len(), source)? => None,
            _ => return Ok(false),
        };
        if core.state.options.overwrite_handles {
            // Like the transaction in which ext4 looked up the mapping.
            drop(core.start(MAP_CREDITS)?);
        }
        overwrite_range(core, inode, at, data, place)?;
        core.state.count_written(data.len());
        (source == Source::Caller && core.touch(inode)?, place.is_none())
    };
    if listed {
        core.relieve()?;
    }
    if looked_up {
        core.sync_if_asked(inode)?; // files that require sync have no runs cached as writable
    }
    Ok(true)
}

/// Whether the bytes all lie inside the size and in written blocks, and may be overwritten in place.
fn is_written(core: &Core, inode: &CachedInode, mut at: u64, len: usize, source: Source) -> Result<bool> {
    let end = at + u64_of(len);
    if inode.get().is_inline() || end > inode.get().size || core.state.journals_data(&inode.get()) {
        return Ok(false);
    }
    checks::check_write(core, inode, at, source)?;
    while at < end {
        let (Some(_), len) = read::run_at(core, inode, at)? else { return Ok(false) };
        at += len.min(end - at);
    }
    Ok(true)
}

/// Overwrites bytes, alone in their range: in one write where they all lie at `place`.
fn overwrite_range(
    core: &Core,
    inode: &CachedInode,
    at: u64,
    data: &[u8],
    place: Option<Bytes>,
) -> Result<()> {
    let _writing = inode.writers().enter(at..at + u64_of(data.len()));
    match place {
        Some(place) => device::write_data(core, place, data),
        None => overwrite_runs(core, inode, at, data),
    }
}

fn overwrite_runs(core: &Core, inode: &CachedInode, mut at: u64, data: &[u8]) -> Result<()> {
    let mut rest = data;
    while !rest.is_empty() {
        if let Some((place, true)) = inode.runs().find(at, rest.len()) {
            return device::write_data(core, place, rest);
        }
        let (Some(place), len) = read::run_at(core, inode, at)? else {
            return Err(Corrupt::new("the map", Place::Inode(inode.nr()), "it changes by itself").into());
        };
        let (now, after) = rest.split_at(index_of(len.min(u64_of(rest.len()))));
        device::write_data(core, place, now)?;
        at += u64_of(now.len());
        rest = after;
    }
    Ok(())
}
