//! Reads and writes file data. [`crate::truncate`] changes sizes alone.
//!
//! Data goes straight between the caller's buffer and the device; there is no page cache here. A write into a
//! hole reserves space, writes the data to its final place, and only then maps it, in a short transaction; so
//! metadata never points at blocks whose data is not written. A write inside blocks that are mapped and
//! written changes no map at all ([`crate::overwrite`]). Small writes at the end of a file are buffered
//! before they get here ([`crate::delalloc`]). Files with journalled data take another path
//! ([`crate::journalled`]).
//!
//! | write              | inside written blocks | unwritten blocks or holes           | beyond the size |
//! |--------------------|-----------------------|-------------------------------------|-----------------|
//! | operation lock     | shared, and a range   | exclusive                           | exclusive       |
//! | handle             | none                  | after the data is written, to map it | the same        |
//!
//! Invariants: bytes between the end of a file and the end of its last block are zero on the device, so that
//! growing exposes nothing old: shrinking zeroes them, and writes pad the blocks they map. Everything here
//! runs under the inode's operation lock, shared to read and exclusive to change.

use crate::encrypted_names::check_not_ciphertext;
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::map::{MAP_CREDITS, MapMut, MapRef};
use crate::space::{Piece, Use};
use crate::stores::inode_cache::CachedInode;
use crate::stores::runs::Run;
use crate::volume::Volume;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::{self, Extent, Mapping};
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inline::Inline;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_units::{Blocks, Bytes, LogicalBlock, index_of, low32, memory, u64_of};
use std::io::IoSlice;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// One more than the last file block the format can map.
pub(crate) const FILE_BLOCKS_MAX: u64 = (1 << 32) - 1;
/// Blocks one write maps at a time.
const WRITE_STEP: u32 = 32768;
/// Padding for writes: as much as the largest block holds.
pub(crate) static ZEROS: [u8; 65536] = [0; 65536];
/// Files of at least this size need `large_file`.
pub(crate) const LARGE_FILE: u64 = hectare_ext4::inode::LARGE_FILE.get();

/// What to do with an unwritten extent of which only a part is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// It becomes up to three, for which the tree may need a block.
    AsNeeded,
    /// It stays one, and is zeroed around that part: there is no block left, and allocated space must stay
    /// writable.
    Spare,
}

/// What one step of a write did.
struct Written {
    len: usize,
    /// Whether size and times have their final values already.
    noted: bool,
}

/// Where written bytes come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A caller, now: the times change with it. If there is no space, some is freed first.
    Caller,
    /// A caller who keeps the file's times, and sets them.
    TimesKept,
    /// A cache that took the bytes when the file's flags allowed it; they may forbid it by now.
    Cache,
    /// Buffered bytes: the times changed when they arrived, and there is a claim on space for them.
    Gathered,
}

impl Volume {
    /// Copies bytes of a file out; fewer than requested at its end. The caller holds the operation lock.
    pub(crate) fn read_locked(&self, inode: &CachedInode, at: u64, out: &mut [u8]) -> Result<usize> {
        if let Some((place, _)) = inode.runs().find(at, out.len()) {
            self.device.read_at(place, out)?;
            return Ok(out.len());
        }
        let placed = {
            let data = inode.get();
            check_not_ciphertext(&data, inode.nr())?;
            let len = data.size.saturating_sub(at).min(u64_of(out.len()));
            if data.flags.contains(InodeFlags::INLINE_DATA) {
                return self.read_inline(inode, &data, at, &mut out[..index_of(len)]);
            }
            index_of(len)
        };
        let (mapped, rest) = out.split_at_mut(placed);
        self.read_mapped(inode, at, mapped)?;
        let gathered = !rest.is_empty() && inode.delayed().end().is_some();
        Ok(placed + if gathered { inode.delayed().read(at + u64_of(placed), rest) } else { 0 })
    }

    fn read_inline(&self, inode: &CachedInode, data: &Inode, at: u64, out: &mut [u8]) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let tail = self.inline_tail(inode.nr(), data)?;
        let place = Place::Inode(inode.nr());
        let inline = Inline::new(&data.block, tail.as_deref(), data.bytes(), place)?;
        Ok(inline.read_at(data.bytes(), Bytes::new(at), out))
    }

    /// Fills `out` from byte `at` of a file's map, whatever its size; holes read as zeros. The data lock is
    /// not held during I/O: a commit may be waiting for a thread that waits for this lock.
    fn read_mapped(&self, inode: &CachedInode, mut at: u64, mut out: &mut [u8]) -> Result<()> {
        let journalled = self.journals_data(&inode.get());
        while !out.is_empty() {
            let (source, len) = self.run_at(inode, at)?;
            let (now, rest) = out.split_at_mut(index_of(len.min(u64_of(out.len()))));
            match source {
                Some(source) if journalled => self.blocks.read_at(source, now)?,
                Some(source) => self.device.read_at(source, now)?,
                None => now.fill(0),
            }
            at += u64_of(now.len());
            out = rest;
        }
        Ok(())
    }

    /// Where byte `at` of a file lies, `None` if it reads as zero, and how many bytes follow likewise. A run
    /// of written blocks is cached.
    pub(crate) fn run_at(&self, inode: &CachedInode, at: u64) -> Result<(Option<Bytes>, u64)> {
        let size = self.geometry().block_size;
        let block = LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?;
        let data = inode.get();
        let map = MapRef { volume: self, nr: inode.nr(), inode: &data };
        Ok(match map.lookup(block)? {
            Mapping::Mapped(extent) => {
                let (start, end) = (extent.logical.offset(size).get(), extent.end() << size.shift());
                let place = extent.physical.offset(size);
                if extent.unwritten {
                    return Ok((None, end - at));
                }
                if at < data.size && !self.journals_data(&data) {
                    let writable = !self.read_only && self.takes_overwrites(inode, &data);
                    inode.runs().keep(at, &Run { start, end: end.min(data.size), place, writable });
                }
                (Some(place + Bytes::new(at - start)), end - at)
            }
            Mapping::Hole { next } => (None, next.map_or(u64::MAX, |next| next.offset(size).get()) - at),
        })
    }

    /// Whether bytes inside the size of a file may be overwritten without anything to do afterwards.
    fn takes_overwrites(&self, inode: &CachedInode, data: &Inode) -> bool {
        data.kind() == Some(Kind::File)
            && !inode.is_freed()
            && !self.syncs_changes(data.flags)
            && Deed::Rewrite.is_allowed(data.flags)
            && self.check_file_writable(data, inode.nr()).is_ok()
    }

    /// Writes bytes to a file. Returns how many were written: all, or those before the volume was full.
    pub(crate) fn write(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        source: Source,
    ) -> Result<usize> {
        self.check_takes_changes()?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = self.check_size(at, u64_of(data.len()))?;
        let gathers = inode.delayed().end() == Some(at);
        if !gathers && self.overwrite(inode, at, data, source)? {
            return Ok(data.len());
        }
        let done = {
            let _operation = inode.lock().write();
            self.write_locked(inode, at, data, end, source)?
        };
        self.relieve_delayed();
        self.relieve()?;
        if inode.delayed().end().is_none() {
            self.sync_if_asked(inode)?; // buffers nothing if the file requires sync
        }
        Ok(done)
    }

    /// Writes bytes that change the map or the size. The caller holds the operation lock exclusively.
    fn write_locked(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        end: u64,
        source: Source,
    ) -> Result<usize> {
        if self.append_delayed(inode, at, data, source)? {
            return Ok(data.len());
        }
        self.place_locked(inode)?;
        self.check_write(inode, at, source)?;
        self.clear_tail(inode, at)?;
        self.bring_large_file(end);
        if self.journals_data(&inode.get()) {
            return self.write_journalled(inode, at, data, source);
        }
        self.write_pieces(inode, at, data, source)
    }

    /// Writes bytes chunk by chunk, and maps those that lie in no written block yet; returns how many: all,
    /// or those before the volume was full. The caller holds the operation lock exclusively.
    pub(crate) fn write_pieces(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        source: Source,
    ) -> Result<usize> {
        let mut noted = true;
        let done = self.in_steps(data.len(), source, |done, split| {
            let piece = self.write_piece(inode, at + u64_of(done), &data[done..], split, source)?;
            noted = piece.noted;
            if source == Source::Gathered {
                self.spend_claim(inode, at + u64_of(done + piece.len), at + u64_of(data.len()));
            }
            Ok(piece.len)
        })?;
        if !noted {
            self.note_written(inode, at + u64_of(done), source)?;
        }
        Ok(done)
    }

    /// Writes `len` bytes in steps: each gets the number of bytes done and how to split an extent, and
    /// returns how many it did. Returns how many all did: all, or those before the volume was full.
    pub(crate) fn in_steps(
        &self,
        len: usize,
        source: Source,
        mut step: impl FnMut(usize, Split) -> Result<usize>,
    ) -> Result<usize> {
        let (mut done, mut split) = (0, Split::AsNeeded);
        while done < len {
            let seen = self.seen();
            match step(done, split) {
                Ok(more) => (done, split) = (done + more, Split::AsNeeded),
                Err(Error::NoSpace) if source != Source::Gathered && self.reclaim(seen)? => {}
                Err(Error::NoSpace) if split == Split::AsNeeded => split = Split::Spare,
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(crate) fn check_size(&self, at: u64, len: u64) -> Result<u64> {
        let end = at.checked_add(len).ok_or(Error::FileTooLarge)?;
        if end > self.file_size_max() { Err(Error::FileTooLarge) } else { Ok(end) }
    }

    /// Bytes of the longest file there can be.
    #[must_use]
    pub fn file_size_max(&self) -> u64 {
        FILE_BLOCKS_MAX << self.geometry().block_size.shift()
    }

    /// Records that the volume has a large file, if a file ends at byte `end`.
    pub(crate) fn bring_large_file(&self, end: u64) {
        if end >= LARGE_FILE {
            self.bring_feature(RoCompat::LARGE_FILE);
        }
    }

    /// Returns an error where there is no content to write, and for what the file's flags forbid.
    pub(crate) fn check_write(&self, inode: &CachedInode, at: u64, source: Source) -> Result<()> {
        if source == Source::Cache {
            return self.check_has_content(inode);
        }
        self.check_content_writable(inode)?;
        self.check_appends(inode, at)
    }

    /// Returns an error where there is no content to change, and where the file's flags forbid any change.
    pub(crate) fn check_content_writable(&self, inode: &CachedInode) -> Result<()> {
        self.check_has_content(inode)?;
        Deed::Grow.check(inode.get().flags, inode.nr())
    }

    fn check_has_content(&self, inode: &CachedInode) -> Result<()> {
        if inode.is_freed() {
            return Err(Error::NotFound);
        }
        let data = inode.get();
        match data.kind() {
            Some(Kind::Directory) => return Err(Error::IsADirectory),
            Some(Kind::File) => {}
            _ => return Err(Error::Invalid("only regular files have content to write")),
        }
        self.check_file_writable(&data, inode.nr())
    }

    /// Returns an error for overwriting bytes of a file that forbids it.
    pub(crate) fn check_appends(&self, inode: &CachedInode, at: u64) -> Result<()> {
        let gathered = inode.delayed().end().unwrap_or(0);
        let data = inode.get();
        if at < data.size.max(gathered) { Deed::Rewrite.check(data.flags, inode.nr()) } else { Ok(()) }
    }

    /// Writes as much of `data` as one mapping step takes.
    fn write_piece(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        split: Split,
        source: Source,
    ) -> Result<Written> {
        let size = self.geometry().block_size;
        let block = LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?;
        let within = u64_of(size.within(Bytes::new(at)));
        let wanted = (within + u64_of(data.len())).div_ceil(size.bytes().get()).min(u64::from(WRITE_STEP));
        if let Some(piece) = self.kept_for(inode, block, low32(wanted)) {
            return self.fill_piece(inode, at, piece, data, source);
        }
        let held = inode.get();
        let map = MapRef { volume: self, nr: inode.nr(), inode: &held };
        match map.lookup(block)? {
            Mapping::Mapped(extent) => {
                let len = low32(wanted.min(extent.end() - u64::from(block.get())));
                let part = self.part_in(data, within, len);
                let physical = extent.block_of(block).ok_or(Error::FileTooLarge)?;
                drop(held);
                if !extent.unwritten {
                    self.write_data(physical.offset(size) + Bytes::new(within), part)?;
                    self.count_written(part.len());
                    return Ok(Written { len: part.len(), noted: false });
                }
                let target = Extent { logical: block, len, physical, unwritten: true };
                self.write_padded(&target, within, part)?;
                let range = match split {
                    Split::AsNeeded => u64::from(block.get())..target.end(),
                    Split::Spare => {
                        let size_after = inode.get().size.max(at + u64_of(part.len()));
                        self.clear_around(inode, &target, size_after)?
                    }
                };
                self.settle(inode, at, source, |map| {
                    extent::mark(map, LogicalBlock::new(low32(range.start)), range.end, false)?;
                    Ok(part.len())
                })
            }
            Mapping::Hole { next } => {
                let room = next.map_or(FILE_BLOCKS_MAX, |next| next.get().into()) - u64::from(block.get());
                let piece =
                    self.reserve_for(inode.nr(), &held, block, low32(wanted.min(room)), Use::data(inode))?;
                drop(held);
                self.fill_piece(inode, at, piece, data, source)
            }
        }
    }

    /// Writes as much of `data` to byte `at` as one new extent takes, and maps it.
    fn fill_piece(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        piece: Piece,
        data: &[u8],
        source: Source,
    ) -> Result<Written> {
        let within = u64_of(self.geometry().block_size.within(Bytes::new(at)));
        let part = self.part_in(data, within, piece.extent.len);
        self.write_padded(&piece.extent, within, part)?;
        self.settle(inode, at, source, |map| {
            let mapped = map.publish(piece, false)?;
            Ok(self.part_in(part, within, mapped).len())
        })
    }

    /// The part of `data` that fits into `blocks` blocks from byte `within` of the first on.
    pub(crate) fn part_in<'a>(&self, data: &'a [u8], within: u64, blocks: u32) -> &'a [u8] {
        let bytes = (u64::from(blocks) << self.geometry().block_size.shift()).saturating_sub(within);
        &data[..data.len().min(index_of(bytes))]
    }

    /// Zeroes what an unwritten extent of the file has around `target`, a part of it, so that it can be
    /// marked as a whole, except beyond the end of the file; returns the blocks that can be marked now.
    pub(crate) fn clear_around(
        &self,
        inode: &Arc<CachedInode>,
        target: &Extent,
        size_after: u64,
    ) -> Result<Range<u64>> {
        let size = self.geometry().block_size;
        let mapping = {
            let held = inode.get();
            MapRef { volume: self, nr: inode.nr(), inode: &held }.lookup(target.logical)?
        };
        let Mapping::Mapped(extent) = mapping else { return Err(Error::NoSpace) };
        let first = u64::from(extent.logical.get());
        let end = extent.end().min(size_after.div_ceil(size.bytes().get()));
        for blocks in [first..u64::from(target.logical.get()), target.end()..end] {
            if !blocks.is_empty() {
                let at = (extent.physical + Blocks::new(blocks.start - first)).offset(size);
                self.clear_place(inode, at, (blocks.end - blocks.start) << size.shift())?;
            }
        }
        Ok(first..end)
    }

    /// Makes what was written at `at` part of the file: `change` maps it and returns how many bytes it is. In
    /// the same transaction the size grows with it, so that no written block ever lies beyond the end.
    fn settle(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        source: Source,
        change: impl FnOnce(&mut MapMut<'_, '_>) -> Result<usize>,
    ) -> Result<Written> {
        let mut handle = self.start(MAP_CREDITS)?;
        let mut target = inode.edit(&mut handle, &self.inodes);
        let mut map = MapMut { volume: self, handle: &mut handle, nr: inode.nr(), inode: &mut target };
        let len = change(&mut map)?;
        self.bring_written(&mut target, at + u64_of(len), source);
        Ok(Written { len, noted: true })
    }

    /// Writes `part` into the blocks of an extent that are not mapped as written yet, `within` bytes after
    /// their start, and zeros into the rest of the blocks it touches.
    fn write_padded(&self, target: &Extent, within: u64, part: &[u8]) -> Result<()> {
        let size = self.geometry().block_size;
        let end = within + u64_of(part.len());
        let head = &ZEROS[..index_of(within)];
        let tail = &ZEROS[..index_of(end.next_multiple_of(size.bytes().get()) - end)];
        let slices = [IoSlice::new(head), IoSlice::new(part), IoSlice::new(tail)];
        self.write_data_parts(target.physical.offset(size), &slices)?;
        self.count_written(part.len());
        Ok(())
    }

    /// Sets the size a write leads to, and the times.
    fn note_written(&self, inode: &Arc<CachedInode>, end: u64, source: Source) -> Result<()> {
        let mut handle = self.start(MAP_CREDITS)?;
        self.bring_written(&mut inode.edit(&mut handle, &self.inodes), end, source);
        Ok(())
    }

    /// Updates the inode for a write up to byte `end`: the size, and the times if the caller does not keep
    /// them.
    pub(crate) fn bring_written(&self, target: &mut Inode, end: u64, source: Source) {
        target.size = target.size.max(end);
        self.stamp_for(target, source);
    }

    /// Stamps a file whose content changed, unless the caller keeps its times.
    pub(crate) fn stamp_for(&self, target: &mut Inode, source: Source) {
        if source == Source::Caller {
            self.stamp(target);
        }
    }

    /// Zeroes the bytes between the end of the file and the end of its last block, before a write or a growth
    /// that starts beyond the end would expose them.
    pub(crate) fn clear_tail(&self, inode: &Arc<CachedInode>, next: u64) -> Result<()> {
        let size = self.geometry().block_size;
        let (end, within) = {
            let held = inode.get();
            (held.size, size.within(held.bytes()))
        };
        if next <= end || within == 0 {
            return Ok(());
        }
        match self.run_at(inode, end)?.0 {
            Some(at) => self.clear_place(inode, at, u64_of(size.len() - within)),
            None => Ok(()),
        }
    }

    /// The ranges of a file that are mapped and written, in order, as byte offset and length, clipped to its
    /// size. The caller holds the operation lock.
    pub(crate) fn data_ranges_locked(&self, inode: &CachedInode) -> Result<Vec<(u64, u64)>> {
        let held = inode.get();
        if held.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(if held.size == 0 { Vec::new() } else { vec![(0, held.size)] });
        }
        let size = self.geometry().block_size;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut left = self.geometry().blocks_count.get();
        let mut broken = None;
        let map = MapRef { volume: self, nr: inode.nr(), inode: &held };
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
}
