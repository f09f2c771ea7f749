//! The face of [`crate::data`]: syncing, trimming, and what is asked of a volume about file data.

use crate::data::gather::Gathered;
use crate::data::{checks, gather, sync, trim, truncate, verity, writeback};
use crate::error::Result;
use crate::names::gather::gather_directory;
use crate::volume::Volume;
use hectare_ext4::extent::Extent;
use hectare_ext4::inode::Kind;
use hectare_ext4::verity::{Algorithm, Params};
use hectare_units::{BlockNr, InodeNr};
use std::ops::Range;
use std::time::Duration;

impl Volume {
    /// Bytes of the longest file there can be.
    #[must_use]
    pub fn file_size_max(&self) -> u64 {
        checks::file_size_max(self.core())
    }

    /// Discards the free runs of at least `min_len` bytes, clipped to a range of the volume's bytes; returns
    /// how many bytes that was.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a range that begins beyond the volume or is shorter than a block, or a
    /// `min_len` that no group can hold; [`crate::Error::ReadOnly`]; [`crate::Error::Corrupt`] for a bitmap
    /// that can't be used; the device's error.
    pub fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        trim::trim(self.core(), range, min_len)
    }

    /// Moves the blocks of a file or directory to fewer places, if there is room for that: what it holds and
    /// its times stay. Its readers and writers wait meanwhile. With a journal, a crash leaves each block at
    /// its old place or at its new one; without one, the volume may need a check.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`], and nothing has moved, for what is neither a regular file nor a
    /// directory, for inodes of the format, and on volumes with `bigalloc`; [`crate::Error::ReadOnly`];
    /// [`crate::Error::NoSpace`] if the map has no room to change; the error of reading, of copying or of
    /// the map. What has moved before stays.
    pub fn gather(&self, nr: InodeNr) -> Result<Gathered> {
        let inode = self.core().state.inode(nr)?;
        let is_directory = inode.get().kind() == Some(Kind::Directory);
        if is_directory { gather_directory(self.core(), &inode) } else { gather::gather(self.core(), &inode) }
    }

    /// Moves one extent of a file to the blocks from `to` on, as [`Self::gather`] does; returns whether it
    /// was moved: not if the file is mapped otherwise by now, or if the place is not free.
    ///
    /// # Errors
    /// Those of [`Self::gather`].
    pub fn move_extent(&self, nr: InodeNr, extent: Extent, to: BlockNr) -> Result<bool> {
        gather::move_to(self.core(), &self.core().state.inode(nr)?, extent, to)
    }

    /// Checks that a file may get this size, not that it can: for callers that must do something else first,
    /// only if the change is allowed.
    ///
    /// # Errors
    /// [`crate::Error::FileTooLarge`], [`crate::Error::Immutable`], [`crate::Error::AppendOnly`],
    /// [`crate::Error::ReadOnly`], [`crate::Error::NotFound`], or that it is no regular file.
    pub fn check_resize(&self, nr: InodeNr, size: u64) -> Result<()> {
        truncate::check_resize(self.core(), nr, size)
    }

    /// Places small appends that have been buffered for at least `age`. The volume's thread calls it
    /// periodically. Errors are reported by fsync or close of the file.
    pub fn place_aged(&self, age: Duration) {
        writeback::place_aged(self.core(), age);
    }

    /// Seals a file with fs-verity: its content never changes again, and can be verified. The volume must
    /// have the feature (`verity`).
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] without that feature, for blocks larger than the volume's, and for files
    /// that can't be written; [`crate::Error::NoSpace`], and the file is then as it was; as for writing.
    pub fn enable_verity(&self, nr: InodeNr, params: Params) -> Result<()> {
        verity::enable(self.core(), &self.core().state.inode(nr)?, params)
    }

    /// The digest of a file that fs-verity seals, with the hash it is made by.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] if the file is not sealed; [`crate::Error::Corrupt`] for a descriptor
    /// that is not one.
    pub fn verity_digest(&self, nr: InodeNr) -> Result<(Algorithm, Vec<u8>)> {
        verity::digest(self.core(), &*self.core().state.inode(nr)?)
    }

    /// Verifies all of a file that fs-verity seals.
    ///
    /// # Errors
    /// As [`Self::verity_digest`]; [`crate::Error::Corrupt`], with file and block, for one that is not as it
    /// was sealed.
    pub fn verify_verity(&self, nr: InodeNr) -> Result<()> {
        verity::verify(self.core(), &*self.core().state.inode(nr)?)
    }

    /// Writes everything changed so far and flushes the device.
    ///
    /// # Errors
    /// The first write that failed, now, or earlier where buffered bytes of a file were lost since the volume
    /// was last synced by this handle; open files, and other handles of the volume, report that, too.
    pub fn sync(&self) -> Result<()> {
        sync::settle(self.core())?;
        writeback::check_placed(self.core(), self.heard())
    }

    /// Writes everything as [`Self::sync`] does, for a caller that reports to nobody: buffered bytes that
    /// are lost, now or earlier, remain to be reported to those who sync.
    ///
    /// # Errors
    /// The first other write that failed.
    pub fn settle(&self) -> Result<()> {
        sync::settle(self.core())
    }

    /// Makes an inode durable: its changes, those of the names that lead to it where they were changed with
    /// it, and its data. Other inodes' changes in the same transaction come along; later ones don't.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn sync_inode(&self, nr: InodeNr) -> Result<()> {
        sync::sync_inode(self.core(), nr)
    }
}
