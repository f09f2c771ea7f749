//! Copies a range from one file to another, or within one (`copy_file_range`).
//!
//! Data goes from the device to the device through one large buffer; it never leaves the engine. What reads
//! as zeros without having been written (holes, unwritten extents) is not written: the target gets a hole
//! there, and where it had data, that is punched out.
//!
//! The files are locked anew for every chunk, the lower number first, so that others are not kept out for
//! long: of a file that changes meanwhile some chunks may be older than others, as with any reading.

use crate::encrypted_names::check_not_ciphertext;
use crate::error::{Error, Result};
use crate::file::Source;
use crate::open_file::OpenFile;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{index_of, u64_of};
use std::sync::Arc;

/// Bytes copied at a time: large enough that the cost of a transaction does not show.
const PIECE: u64 = 4 << 20;

/// What the source has.
enum Found {
    /// The number of bytes to read.
    Data(u64),
    /// The number of bytes that were never written.
    Hole(u64),
}

impl OpenFile {
    /// Copies up to `len` bytes from byte `at` of this file to byte `target_at` of another one of the same
    /// volume, and returns how many: fewer at the end of this file, or if the volume becomes full. Other
    /// changes of either file may come between the chunks of at most 4 MiB.
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
        let volume = self.volume();
        if !Arc::ptr_eq(&volume.inner, &target.volume().inner) {
            return Err(Error::OtherVolume);
        }
        volume.check_takes_changes()?;
        let len = len.min(self.metadata()?.size.saturating_sub(at));
        let target_end = volume.check_size(target_at, len)?;
        if self.inode() == target.inode() && at < target_end && target_at < at + len {
            return Err(Error::Invalid("the ranges to copy between overlap"));
        }
        let (mut done, mut buffer) = (0, Vec::new());
        while done < len {
            let (from, to) = ((self, at + done), (target, target_at + done));
            match volume.copy_piece(from, to, len - done, whose, &mut buffer) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
            volume.relieve()?;
        }
        volume.sync_if_asked(target.cached())?;
        Ok(done)
    }
}

impl Volume {
    /// Copies a first part of a range; returns how many bytes, 0 at the end of the source.
    fn copy_piece(
        &self,
        (source, at): (&OpenFile, u64),
        (target, target_at): (&OpenFile, u64),
        len: u64,
        whose: Source,
        buffer: &mut Vec<u8>,
    ) -> Result<u64> {
        let (from, to) = (source.cached(), target.cached());
        let (source_first, same) = (from.nr() < to.nr(), from.nr() == to.nr());
        let _before = (source_first && !same).then(|| from.lock().read());
        let _target = to.lock().write();
        let _after = (!source_first && !same).then(|| from.lock().read());
        self.place_locked(to)?;
        self.check_write(to, target_at, whose)?;
        match self.find_piece(from, at, len)? {
            Found::Data(0) | Found::Hole(0) => Ok(0),
            Found::Data(len) => {
                buffer.resize(index_of(len), 0);
                let read = self.read_locked(from, at, buffer)?;
                self.clear_tail(to, target_at)?;
                self.bring_large_file(target_at + u64_of(read));
                let data = &buffer[..read];
                Ok(u64_of(if self.journals_data(&to.get()) {
                    self.write_journalled(to, target_at, data, whose)?
                } else {
                    self.write_pieces(to, target_at, data, whose)?
                }))
            }
            Found::Hole(len) => self.copy_hole(to, target_at, len, whose).map(|()| len),
        }
    }

    /// What begins at byte `at` of a file, up to `len` bytes of it.
    fn find_piece(&self, inode: &CachedInode, at: u64, len: u64) -> Result<Found> {
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
        let (place, run) = self.run_at(inode, at)?;
        if place.is_none() {
            return Ok(Found::Hole(run.min(len)));
        }
        let (mut data, len) = (run, len.min(PIECE));
        while data < len {
            let (Some(_), run) = self.run_at(inode, at + data)? else { break };
            data += run;
        }
        Ok(Found::Data(data.min(len)))
    }

    /// Makes a range of a file read as zeros without allocating it, and the file at least as long.
    fn copy_hole(&self, inode: &Arc<CachedInode>, at: u64, len: u64, whose: Source) -> Result<()> {
        let (size, end) = (inode.get().size, at + len);
        let inside = at..end.min(size);
        let has_data = self.seek_data_locked(inode, at)?.is_some_and(|data| data < inside.end);
        if has_data {
            self.punch(inode, inside, whose)?;
        }
        if end > size {
            self.clear_tail(inode, end)?;
            self.bring_large_file(end);
        }
        self.note_size(inode, size.max(end), whose)
    }
}
