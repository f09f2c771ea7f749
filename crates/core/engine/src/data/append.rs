//! Delayed allocation: buffers small appends in memory and allocates their blocks later, together.
//!
//! Without it, a log written 100 bytes at a time would take a transaction and an allocation for each write;
//! and many logs growing side by side would be fragmented. So bytes written at the end of a file, a few at a
//! time and into space that is not mapped yet, are kept beside the inode
//! ([`crate::stores::appended::Delayed`]). They are *placed* (written to newly mapped blocks, as by any
//! write) when the file is synced or closed, when they are many or old, and before anything else reads or
//! changes the file's map.
//!
//! Space is counted when bytes are buffered: a claim covers the clusters they need, and the blocks by which
//! the tree may grow in the worst case. So the write itself reports a full volume, and writeback never lacks
//! space. Claims exceed what will be needed; an allocation that finds no space therefore has everything
//! placed before it fails ([`crate::data::writeback::place_for_space`]).
//!
//! The same holds for the quotas of the file's owners, of which the clusters of the bytes are claimed.
//!
//! Invariants, under the file's operation lock:
//! - the bytes begin at the size in the inode; the size that a file reports is where they end;
//! - a file with buffered bytes is on the volume's list and is open: its last close places them.
//!
//! Bytes that can't be written because the device fails are lost, as with the kernel. The error is kept
//! beside the inode and reported once per open file, at fsync or close ([`crate::stores::wb_error`]). The
//! next sync of the volume, or closing it, reports it as well; nothing else can where the last close of a
//! file loses bytes.
//!
//! Locks: a file's state ([`crate::stores::appended::Delayed::state`]) is locked after everything else but
//! groups; never take the inode's data lock under it.

use crate::data::checks::Source;
use crate::data::{checks, claims, writeback};
use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::state::Core;
use crate::stores::appended::{Buffer, State};
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::extent::Mapping;
use hectare_units::{Bytes, Clusters, LogicalBlock, u64_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Larger writes are placed at once.
const SMALL_MAX: usize = 64 << 10;

/// A file with more buffered bytes than this is placed.
const FILE_MAX: usize = 1 << 20;

/// Bytes are charged to the budget in units of this size.
const CHARGE: usize = 4096;

/// Buffers a write at `at` if it qualifies; returns whether it did. The caller holds the operation lock
/// exclusively, and has checked that the size is possible.
pub(crate) fn append_delayed(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
) -> Result<bool> {
    if data.len() >= SMALL_MAX || core.state.delay.budget == 0 {
        return Ok(false);
    }
    let gathered = match inode.delayed().end() {
        Some(end) => {
            if at < end {
                checks::check_write(core, inode, at, source)?;
            }
            extend_buffer(core, inode, at, data)?
        }
        None => begin_buffer(core, inode, at, data, source)?,
    };
    let Some(len) = gathered else { return Ok(false) };
    if source == Source::Caller {
        core.touch(inode)?;
    }
    if len >= FILE_MAX.min(core.state.delay.budget) {
        writeback::place_locked(core, inode)?;
    }
    Ok(true)
}

/// Adds to the bytes of a file; returns how many there are then, or `None` if these can't be added.
fn extend_buffer(core: &Core, inode: &Arc<CachedInode>, at: u64, data: &[u8]) -> Result<Option<usize>> {
    let mut state = inode.delayed().state();
    let State { buffer: Some(buffer), claim: Some(claim), quota, .. } = &mut *state else {
        return Ok(None);
    };
    if at < buffer.start || at > buffer.end() {
        return Ok(None);
    }
    let end = buffer.end().max(at + u64_of(data.len()));
    let clusters = claims::clusters_to(core, buffer.first_cluster, end);
    if clusters > buffer.clusters {
        let need = claims::with_nodes(core, clusters);
        if need > claim.left() {
            let Some(more) = claims::claim_ahead(core, need - claim.left())? else { return Ok(None) };
            claim.absorb(more);
        }
        // As much of it as the limits allow is written at once.
        let bytes = (clusters - buffer.clusters).get() * core.state.geometry().cluster_bytes();
        match quota.as_mut().map_or(Ok(()), |quota| quota.extend(bytes)) {
            Err(Error::QuotaExceeded { .. }) => return Ok(None),
            extended => extended?,
        }
        core.state.delay.promised.fetch_add((clusters - buffer.clusters).get(), Ordering::Relaxed);
        buffer.clusters = clusters;
    }
    buffer.write(at, data);
    if buffer.bytes.len() > buffer.charged {
        let charged = buffer.bytes.len().next_multiple_of(CHARGE);
        core.state.delay.bytes.fetch_add(charged - buffer.charged, Ordering::Relaxed);
        buffer.charged = charged;
    }
    inode.delayed().set_end(end);
    Ok(Some(buffer.bytes.len()))
}

/// Buffers the first bytes of a file, if they continue it into space that is not mapped.
fn begin_buffer(
    core: &Core,
    inode: &Arc<CachedInode>,
    at: u64,
    data: &[u8],
    source: Source,
) -> Result<Option<usize>> {
    checks::check_write(core, inode, at, source)?;
    if core.state.journals_data(&inode.get()) {
        return Ok(None);
    }
    let Some(first_cluster) = unmapped_after_end(core, inode, at)? else { return Ok(None) };
    let need = claims::with_nodes(core, claims::clusters_to(core, first_cluster, at + 1));
    let Some(claim) = claims::claim_ahead(core, need)? else { return Ok(None) };
    let (_, quota) = core.state.claim_clusters(inode.nr(), &inode.get(), Clusters::ZERO)?;
    if !core.state.delay.register(inode) {
        return Ok(None);
    }
    let buffer = Buffer {
        start: at,
        bytes: Vec::new(),
        first_cluster,
        clusters: Clusters::ZERO,
        charged: 0,
        since: Instant::now(),
    };
    {
        let mut state = inode.delayed().state();
        (state.buffer, state.claim, state.quota) = (Some(buffer), Some(claim), quota);
    }
    let len = extend_buffer(core, inode, at, data)?;
    if len.is_none() {
        writeback::drop_delayed(core, inode);
    }
    Ok(len)
}

/// The first cluster of the file that bytes appended at `at` need; `None` unless that is the end of the
/// file, nothing is mapped after it but the rest of its last block, and writes need not be durable.
fn unmapped_after_end(core: &Core, inode: &CachedInode, at: u64) -> Result<Option<u64>> {
    let geometry = core.state.geometry();
    let (size, shift) = (geometry.block_size, geometry.cluster_ratio_shift);
    let held = inode.get();
    if held.size != at || core.state.syncs_changes(held.flags) {
        return Ok(None);
    }
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    let block = LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?;
    let first = match map.lookup(block)? {
        Mapping::Hole { next: None } => u64::from(block.get()),
        Mapping::Mapped(last)
            if last.end() == u64::from(block.get()) + 1 && size.within(held.bytes()) > 0 =>
        {
            match last.end().try_into().map(|next| map.lookup(LogicalBlock::new(next))) {
                Ok(Ok(Mapping::Hole { next: None })) => last.end(),
                Ok(Err(error)) => return Err(error),
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    // With bigalloc, the cluster that holds the previous block may be allocated already.
    let cluster = first >> shift;
    let begun = first > cluster << shift && map.first_in(cluster << shift, first)?.is_some();
    Ok(Some(cluster + u64::from(begun)))
}
