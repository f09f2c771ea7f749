//! Pins inodes: keeps them alive without an open file.
//!
//! A mount must keep every inode that its kernel still knows: one whose last name is removed lives, with all
//! its content, until the kernel forgets it, whether it is open or not. A [`HeldInode`] does that for any
//! kind of inode. It is no open file: the preallocated space of a file is released when the last [`OpenFile`]
//! is closed, even while the inode is pinned.
//!
//! Invariant: pins are counted under the inode's operation lock, so that a removal sees them or has freed the
//! inode before. The number of a pinned inode means the same inode for as long as it is pinned.

use crate::attributes::stat;
use crate::attributes::stat::{Changes, Metadata};
use crate::data::{checks, reclaim};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::names::{lookup, remove};
use crate::space::map_edit::MAP_CREDITS;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use crate::volume::open_file::OpenFile;
use hectare_ext4::time::Timestamp;
use hectare_units::InodeNr;
use std::sync::Arc;

/// A pinned inode.
pub struct HeldInode {
    volume: Volume,
    inode: Arc<CachedInode>,
}

impl HeldInode {
    /// The inode's number.
    #[must_use]
    pub fn inode(&self) -> InodeNr {
        self.inode.nr()
    }

    /// The inode's metadata.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn metadata(&self) -> Result<Metadata> {
        lookup::stat_of(self.volume.core(), &self.inode)
    }

    /// Opens the inode, a regular file.
    ///
    /// # Errors
    /// As [`Volume::open_inode`].
    pub fn open(&self) -> Result<OpenFile> {
        self.volume.open_found(Arc::clone(&self.inode))
    }

    /// Returns an error where the regular file can't be written: before a cache, such as the kernel's,
    /// accepts bytes for it. `appends` says that all writes will be at the end.
    ///
    /// # Errors
    /// [`Error::Immutable`] and, unless it `appends`, [`Error::AppendOnly`];
    /// [`Error::Unsupported`] for a file of a form that can't be written yet; otherwise as any write.
    pub fn check_opens_for_writing(&self, appends: bool) -> Result<()> {
        let _operation = self.inode.lock().read();
        self.volume.core().check_takes_changes()?;
        checks::check_content_writable(self.volume.core(), &self.inode)?;
        if appends { Ok(()) } else { Deed::Rewrite.check(self.inode.get().flags, self.inode.nr()) }
    }

    /// Sets the times of writes, for a caller that keeps them while a file is open for writing, whatever its
    /// flags have become meanwhile.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]...
    pub fn set_written(&self, mtime: Timestamp, ctime: Timestamp) -> Result<()> {
        let changes = Changes { mtime: Some(mtime), ctime: Some(ctime), ..Changes::default() };
        reclaim::retry(self.volume.core(), || {
            let _operation = self.inode.lock().write();
            self.volume.core().check_takes_changes()?;
            self.inode.check_alive()?;
            stat::change_locked(self.volume.core(), &self.inode, &changes)
        })?;
        self.volume.core().sync_if_asked(&self.inode)
    }

    /// Sets the time of last access, and nothing else: an access is no change of the inode.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]...
    pub fn set_accessed(&self, at: Timestamp) -> Result<()> {
        {
            let _operation = self.inode.lock().read();
            self.inode.check_alive()?;
            let mut handle = self.volume.core().start(MAP_CREDITS)?;
            self.inode.edit(&mut handle, &self.volume.core().state.inodes).atime =
                self.volume.core().state.nearest(at);
        }
        self.volume.core().relieve()
    }
}

impl Drop for HeldInode {
    fn drop(&mut self) {
        if self.inode.let_go() == 0 {
            remove::delete_unnamed(self.volume.core(), &self.inode);
        }
    }
}

impl Volume {
    /// Pins an inode by its number.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such inode, or if it belongs to the format (the journal...).
    pub fn hold_inode(&self, nr: InodeNr) -> Result<HeldInode> {
        if self.core().state.is_special(nr) {
            return Err(Error::NotFound);
        }
        self.hold_found(self.core().state.inode(nr)?)
    }

    /// Pins the inode that a name leads to.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn hold_named(&self, parent: InodeNr, name: &[u8]) -> Result<HeldInode> {
        let dir = self.core().state.inode(parent)?;
        self.hold_found(lookup::lookup_inode(self.core(), &dir, name)?)
    }

    fn hold_found(&self, inode: Arc<CachedInode>) -> Result<HeldInode> {
        let operation = inode.lock().read();
        inode.check_alive()?;
        inode.held();
        drop(operation);
        Ok(HeldInode { volume: self.clone(), inode })
    }
}
