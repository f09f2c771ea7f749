//! Reads file data, straight from the device into the caller's buffer.
//!
//! There is no page cache here: what is read often is cached by the caller (a mount: by its kernel). Where
//! bytes lie is remembered beside the inode ([`crate::stores::runs`]), so that a read of an open file takes
//! no lock but the operation lock, shared.

use crate::encrypted_names::check_not_ciphertext;
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::space::map::MapRef;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::runs::Run;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::Mapping;
use hectare_ext4::inline::Inline;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_units::{Bytes, LogicalBlock, index_of, memory, u64_of};
use std::ops::ControlFlow;

/// Copies bytes of a file out; fewer than requested at its end. The caller holds the operation lock.
pub(crate) fn read_locked(core: &Core, inode: &CachedInode, at: u64, out: &mut [u8]) -> Result<usize> {
    if let Some((place, _)) = inode.runs().find(at, out.len()) {
        core.state.device.read_at(place, out)?;
        return Ok(out.len());
    }
    let placed = {
        let data = inode.get();
        check_not_ciphertext(&data, inode.nr())?;
        let len = data.size.saturating_sub(at).min(u64_of(out.len()));
        if data.flags.contains(InodeFlags::INLINE_DATA) {
            return read_inline(core, inode, &data, at, &mut out[..index_of(len)]);
        }
        index_of(len)
    };
    let (mapped, rest) = out.split_at_mut(placed);
    read_mapped(core, inode, at, mapped)?;
    let gathered = !rest.is_empty() && inode.delayed().end().is_some();
    Ok(placed + if gathered { inode.delayed().read(at + u64_of(placed), rest) } else { 0 })
}

fn read_inline(core: &Core, inode: &CachedInode, data: &Inode, at: u64, out: &mut [u8]) -> Result<usize> {
    if out.is_empty() {
        return Ok(0);
    }
    let tail = core.state.inline_tail(inode.nr(), data)?;
    let place = Place::Inode(inode.nr());
    let inline = Inline::new(&data.block, tail.as_deref(), data.bytes(), place)?;
    Ok(inline.read_at(data.bytes(), Bytes::new(at), out))
}

/// Fills `out` from byte `at` of a file's map, whatever its size; holes read as zeros. The data lock is
/// not held during I/O: a commit may be waiting for a thread that waits for this lock.
pub(crate) fn read_mapped(core: &Core, inode: &CachedInode, mut at: u64, mut out: &mut [u8]) -> Result<()> {
    let journalled = core.state.journals_data(&inode.get());
    while !out.is_empty() {
        let (source, len) = run_at(core, inode, at)?;
        let (now, rest) = out.split_at_mut(index_of(len.min(u64_of(out.len()))));
        match source {
            Some(source) if journalled => core.state.blocks.read_at(source, now)?,
            Some(source) => core.state.device.read_at(source, now)?,
            None => now.fill(0),
        }
        at += u64_of(now.len());
        out = rest;
    }
    Ok(())
}

/// Where byte `at` of a file lies, `None` if it reads as zero, and how many bytes follow likewise. A run
/// of written blocks is cached.
pub(crate) fn run_at(core: &Core, inode: &CachedInode, at: u64) -> Result<(Option<Bytes>, u64)> {
    let size = core.state.geometry().block_size;
    let block = LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?;
    let data = inode.get();
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &data };
    Ok(match map.lookup(block)? {
        Mapping::Mapped(extent) => {
            let (start, end) = (extent.logical.offset(size).get(), extent.end() << size.shift());
            let place = extent.physical.offset(size);
            if extent.unwritten {
                return Ok((None, end - at));
            }
            if at < data.size && !core.state.journals_data(&data) {
                let writable = !core.state.read_only && takes_overwrites(core, inode, &data);
                inode.runs().keep(at, &Run { start, end: end.min(data.size), place, writable });
            }
            (Some(place + Bytes::new(at - start)), end - at)
        }
        Mapping::Hole { next } => (None, next.map_or(u64::MAX, |next| next.offset(size).get()) - at),
    })
}

/// Whether bytes inside the size of a file may be overwritten without anything to do afterwards.
fn takes_overwrites(core: &Core, inode: &CachedInode, data: &Inode) -> bool {
    data.kind() == Some(Kind::File)
        && !inode.is_freed()
        && !core.state.syncs_changes(data.flags)
        && Deed::Rewrite.is_allowed(data.flags)
        && core.state.check_file_writable(data, inode.nr()).is_ok()
}

/// The ranges of a file that are mapped and written, in order, as byte offset and length, clipped to its
/// size. The caller holds the operation lock.
pub(crate) fn data_ranges_locked(core: &Core, inode: &CachedInode) -> Result<Vec<(u64, u64)>> {
    let held = inode.get();
    if held.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(if held.size == 0 { Vec::new() } else { vec![(0, held.size)] });
    }
    let size = core.state.geometry().block_size;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut left = core.state.geometry().blocks_count.get();
    let mut broken = None;
    let map = MapRef { state: &core.state, nr: inode.nr(), inode: &held };
    map.for_each(LogicalBlock::ZERO, &mut |extent| {
        let start = extent.logical.offset(size).get();
        let end = (extent.end() << size.shift()).min(held.size);
        if start >= held.size {
            return ControlFlow::Break(());
        }
        // Tables that name each other repeatedly make endless ranges of a few blocks.
        let Some(rest) = left.checked_sub(extent.len.into()) else {
            let what = "it has more blocks than the volume";
            broken = Some(Corrupt::new("the map", Place::Inode(inode.nr()), what).into());
            return ControlFlow::Break(());
        };
        left = rest;
        if !extent.unwritten {
            match ranges.last_mut() {
                Some((at, len)) if *at + *len == start => *len = end - *at,
                _ => match memory::reserve(&mut ranges, 1) {
                    Ok(()) => ranges.push((start, end - start)),
                    Err(refused) => {
                        broken = Some(refused.into());
                        return ControlFlow::Break(());
                    }
                },
            }
        }
        ControlFlow::Continue(())
    })?;
    broken.map_or(Ok(ranges), Err)
}
