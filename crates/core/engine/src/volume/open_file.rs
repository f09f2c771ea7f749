//! Open files.
//!
//! An [`OpenFile`] keeps its inode alive: a file whose last name is removed while it is open lives until it
//! is closed, and is then freed. It has no position; every read and write gives an offset.
//!
//! Small writes at the end of a file may be buffered in memory for a while ([`crate::data::append`]): others
//! see them at once, but [`OpenFile::sync`] or [`OpenFile::close`] reports their writeback errors.

use crate::attributes::stat::{Changes, Metadata};
use crate::attributes::{ownership, stat};
use crate::caller::Caller;
use crate::data::checks::Source;
use crate::data::fallocate::FallocateMode;
use crate::data::seek::FileExtent;
use crate::data::{copy, fallocate, read, seek, truncate, verity, write, writeback};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::names::remove;
use crate::space::map::MapRef;
use crate::space::reserve;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{InodeNr, LogicalBlock, u64_of};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An open regular file.
pub struct OpenFile {
    volume: Volume,
    inode: Arc<CachedInode>,
    /// The number of the last writeback error reported here.
    heard: AtomicU64,
}

impl OpenFile {
    /// The inode's number.
    #[must_use]
    pub fn inode(&self) -> InodeNr {
        self.inode.nr()
    }

    /// Reads from byte `at` on; fewer bytes than requested, or none, only at the end of the file.
    ///
    /// A write that has returned is seen whole. A concurrent one, over existing bytes, may be seen in part,
    /// as with direct I/O in the kernel.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Device`], or [`Error::Unsupported`] for content that can't be read;
    /// [`Error::Stale`] for a file without a name once the volume is closed, which frees it.
    pub fn read_at(&self, at: u64, out: &mut [u8]) -> Result<usize> {
        let _operation = self.inode.lock().read();
        self.check_alive()?;
        verity::read_locked(self.volume.core(), &self.inode, at, out)
    }

    /// Writes at byte `at`, which may lie beyond the end; fewer bytes than requested only if the volume is
    /// full. Bytes at the end of the file may be buffered in memory, with their space counted, until the file
    /// is synced or closed.
    ///
    /// Overlapping writes are serialized, on every device and across extents: of two, the bytes that both
    /// write are in the end all of the same one. The same holds for a write and any other call that changes
    /// the content, except [`Self::copy_range`], which copies in chunks. Overwrites of existing bytes run
    /// concurrently if they do not overlap; writes that need space or extend the file run alone.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if not even the first byte found room, [`Error::FileTooLarge`] if it lies beyond the
    /// largest size; [`Error::ReadOnly`], [`Error::Unsupported`] for files of a form that can't be written yet.
    pub fn write_at(&self, at: u64, data: &[u8]) -> Result<usize> {
        write::write(self.volume.core(), &self.inode, at, data, Source::Caller)
    }

    /// Writes at the end of the file, in one step with finding out where that is. Returns the offset of the first
    /// byte and how many were written. Concurrent appends do not overlap. The rest is as with [`Self::write_at`].
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        write::write_at_end(self.volume.core(), &self.inode, data)
    }

    /// Like [`Self::write_at`], but does not update mtime and ctime.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_keeping_times(&self, at: u64, data: &[u8]) -> Result<usize> {
        write::write(self.volume.core(), &self.inode, at, data, Source::TimesKept)
    }

    /// Like [`Self::write_at`], for a cache that took the bytes when the file's flags (immutable,
    /// append-only) allowed it, and writes them back now, perhaps in whole pages with bytes that the file has
    /// already: flags are not checked.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_from_cache(&self, at: u64, data: &[u8]) -> Result<usize> {
        write::write(self.volume.core(), &self.inode, at, data, Source::Cache)
    }

    /// Writes all of `data` at byte `at`.
    ///
    /// # Errors
    /// As [`Self::write_at`], also for a later byte: what comes before that is written.
    pub fn write_all_at(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            // Fewer are written only for a reason that the next call reports.
            done += self.write_at(at + u64_of(done), &data[done..])?;
        }
        Ok(())
    }

    /// Makes the file longer (with a hole) or shorter.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`], [`Error::ReadOnly`]...
    pub fn set_len(&self, size: u64) -> Result<()> {
        truncate::set_size(self.volume.core(), &self.inode, size, Source::Caller)?;
        self.volume.core().sync_if_asked(&self.inode)
    }

    /// Like [`Self::set_len`], but does not update mtime and ctime.
    ///
    /// # Errors
    /// As [`Self::set_len`].
    pub fn set_len_keeping_times(&self, size: u64) -> Result<()> {
        truncate::set_size(self.volume.core(), &self.inode, size, Source::TimesKept)?;
        self.volume.core().sync_if_asked(&self.inode)
    }

    /// Allocates the `len` bytes from `at` on, without writing: they read as zeros until they are written,
    /// and writing there, inside the size, can't fail for want of space. The file grows to the end of the
    /// range unless `keep_size`.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; what was allocated before stays, and the file is as long as that unless
    /// `keep_size`. [`Error::FileTooLarge`], [`Error::ReadOnly`], [`Error::Invalid`] if `len` is 0.
    pub fn allocate(&self, at: u64, len: u64, keep_size: bool) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size }, at, len)
    }

    /// The file's metadata.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn metadata(&self) -> Result<Metadata> {
        self.check_alive()?;
        Metadata::of(&self.volume.core().state, &self.inode)
    }

    /// Copies up to `len` bytes from byte `at` of this file to byte `target_at` of another one of the same
    /// volume, and returns how many: fewer at the end of this file, or for an error behind what was copied,
    /// which the next call meets. Other changes of either file may come between the chunks of at most 4 MiB.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the ranges overlap in one file, [`Error::OtherVolume`]; [`Error::NoSpace`] if
    /// not even the first byte found room; otherwise as for reading and writing.
    pub fn copy_range(&self, at: u64, target: &OpenFile, target_at: u64, len: u64) -> Result<u64> {
        self.copy_to(at, (target, target_at), len, Source::Caller)
    }

    /// Like [`Self::copy_range`], but does not update the target's mtime and ctime.
    ///
    /// # Errors
    /// As [`Self::copy_range`].
    pub fn copy_range_keeping_times(
        &self,
        at: u64,
        target: &OpenFile,
        target_at: u64,
        len: u64,
    ) -> Result<u64> {
        self.copy_to(at, (target, target_at), len, Source::TimesKept)
    }

    /// Copies into another file; `whose` says whether its times change.
    fn copy_to(&self, at: u64, (target, target_at): (&Self, u64), len: u64, whose: Source) -> Result<u64> {
        if !self.volume.is_same(&target.volume) {
            return Err(Error::OtherVolume);
        }
        copy::copy(self.volume.core(), (&self.inode, at), (&target.inode, target_at), len, whose)
    }

    /// Changes permissions, owners, times or size.
    ///
    /// # Errors
    /// As [`Volume::change`].
    pub fn change(&self, changes: &Changes) -> Result<()> {
        stat::change(self.volume.core(), self.inode.nr(), changes)
    }

    /// Returns an error if the file's flags forbid to open it for writing, at its end only if `appends`.
    ///
    /// # Errors
    /// [`Error::Immutable`] or [`Error::AppendOnly`].
    pub fn check_opens_to_write(&self, appends: bool) -> Result<()> {
        let deed = if appends { Deed::Grow } else { Deed::Rewrite };
        deed.check(self.inode.get().flags, self.inode.nr())
    }

    /// Clears what must not survive a write ([`Volume::drop_privileges`]), for a caller who is about to write.
    ///
    /// # Errors
    /// As [`Volume::drop_privileges`].
    pub fn drop_privileges(&self, caller: &Caller<'_>) -> Result<bool> {
        ownership::drop_privileges(self.volume.core(), &self.inode, caller)
    }

    /// The ranges that hold data, in order, as byte offset and length; what lies between them reads as zeros.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Device`].
    pub fn data_ranges(&self) -> Result<Vec<(u64, u64)>> {
        self.place()?;
        let _operation = self.inode.lock().read();
        read::data_ranges_locked(self.volume.core(), &self.inode)
    }

    /// Makes the file's data durable, and what is needed to find it; not the times of overwrites.
    ///
    /// # Errors
    /// The first write that failed, now, or earlier where buffered bytes could not be written: that is
    /// reported once per open file.
    pub fn sync_data(&self) -> Result<()> {
        writeback::flush_delayed(self.volume.core(), &self.inode, &self.heard)?;
        self.volume.core().sync_cached(&self.inode, true)
    }

    /// The file's extents, in order, as in its map: neighbours that could be one extent but are two are
    /// returned as two. Unwritten extents and those beyond the size are among them; content kept in the inode
    /// has none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Device`].
    pub fn extents(&self) -> Result<Vec<Extent>> {
        self.place()?;
        let _operation = self.inode.lock().read();
        let held = self.inode.get();
        let mut extents = Vec::new();
        if held.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(extents);
        }
        let map = MapRef { state: &self.volume.core().state, nr: self.inode.nr(), inode: &held };
        map.for_each(LogicalBlock::ZERO, &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        })?;
        Ok(extents)
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(crate) fn cached(&self) -> &Arc<CachedInode> {
        &self.inode
    }

    /// Makes the file durable: its data, its map, its attributes and times, and the name it got when it was
    /// made or last renamed.
    ///
    /// # Errors
    /// The first write that failed, now, or earlier where buffered bytes could not be written: that is
    /// reported once per open file.
    pub fn sync(&self) -> Result<()> {
        writeback::flush_delayed(self.volume.core(), &self.inode, &self.heard)?;
        self.volume.core().sync_cached(&self.inode, false)
    }

    /// Allocates or frees the `len` bytes from `at` on, or moves what follows them, according to `mode`.
    ///
    /// Operations on many extents take several transactions. After a crash in the middle the volume is clean
    /// and the file holds nothing foreign, but a first part may be done and the rest not: some of the range
    /// punched or zeroed, or, when collapsing and inserting, some of what follows moved and the rest not yet.
    /// (The kernel promises as much.) Few extents are one transaction: all or nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `len` is 0, or where a mode can't be applied there;
    /// [`Error::FileTooLarge`]; [`Error::NoSpace`], after which a first part may be done;
    /// [`Error::AppendOnly`] for an append-only file and anything but allocating;
    /// [`Error::ReadOnly`], [`Error::Unsupported`] as for writing.
    pub fn fallocate(&self, mode: FallocateMode, at: u64, len: u64) -> Result<()> {
        fallocate::fallocate(self.volume.core(), &self.inode, mode, (at, len), Source::Caller)
    }

    /// Like [`Self::fallocate`], but does not update mtime and ctime.
    ///
    /// # Errors
    /// As [`Self::fallocate`].
    pub fn fallocate_keeping_times(&self, mode: FallocateMode, at: u64, len: u64) -> Result<()> {
        fallocate::fallocate(self.volume.core(), &self.inode, mode, (at, len), Source::TimesKept)
    }

    /// The first byte at or after `at` that may hold data (`SEEK_DATA`); `None` (the kernel's `ENXIO`) if
    /// there is none, or `at` is not before the end. Holes and unwritten extents are no data.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Device`].
    pub fn seek_data(&self, at: u64) -> Result<Option<u64>> {
        self.place()?;
        let _operation = self.inode.lock().read();
        seek::seek_data_locked(self.volume.core(), &self.inode, at)
    }

    /// The first byte at or after `at` that is not data (`SEEK_HOLE`), at the latest the end of the file;
    /// `None` (the kernel's `ENXIO`) if `at` is not before the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Device`].
    pub fn seek_hole(&self, at: u64) -> Result<Option<u64>> {
        self.place()?;
        let _operation = self.inode.lock().read();
        seek::seek_hole_locked(self.volume.core(), &self.inode, at)
    }

    /// The extents of a range of bytes, as the kernel's `FIEMAP` reports them: in order, clipped to the
    /// range's blocks, the last one marked. Extents beyond the size are included.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Device`].
    pub fn extents_in(&self, range: Range<u64>) -> Result<Vec<FileExtent>> {
        self.place()?;
        let _operation = self.inode.lock().read();
        seek::extents_in_locked(self.volume.core(), &self.inode, range)
    }

    /// Closes the file and reports whether everything written to it so far was placed, which dropping can't.
    /// That does not make it durable; see [`Self::sync`].
    ///
    /// # Errors
    /// The first write that failed, by any writer, unless it was reported here before.
    pub fn close(self) -> Result<()> {
        writeback::flush_delayed(self.volume.core(), &self.inode, &self.heard)
    }

    /// Returns an error for a file without a name that was freed when the volume was closed.
    fn check_alive(&self) -> Result<()> {
        if self.inode.is_freed() { Err(Error::Stale(self.inode.nr())) } else { Ok(()) }
    }

    /// Places the buffered bytes, before the map is read.
    fn place(&self) -> Result<()> {
        self.check_alive()?;
        if self.inode.delayed().end().is_none() {
            return Ok(());
        }
        let _operation = self.inode.lock().write();
        writeback::place_locked(self.volume.core(), &self.inode)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.inode.closed() > 0 {
            return;
        }
        writeback::place_last(self.volume.core(), &self.inode);
        reserve::discard_window(self.volume.core(), &self.inode);
        remove::delete_unnamed(self.volume.core(), &self.inode);
    }
}

impl Volume {
    pub(crate) fn open_found(&self, inode: Arc<CachedInode>) -> Result<OpenFile> {
        match inode.get().kind() {
            Some(Kind::File) => {}
            Some(Kind::Directory) => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("only regular files have content to open")),
        }
        // Counted under the operation lock, so that a removal sees it or has freed the inode before.
        let operation = inode.lock().read();
        inode.check_alive()?;
        inode.opened();
        drop(operation);
        let heard = AtomicU64::new(inode.delayed().heard());
        Ok(OpenFile { volume: self.clone(), inode, heard })
    }

    /// Opens a regular file by its inode number.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::Invalid`] for anything else that has no content,
    /// [`Error::NotFound`].
    pub fn open_inode(&self, nr: InodeNr) -> Result<OpenFile> {
        self.open_found(self.core().state.inode(nr)?)
    }
}
