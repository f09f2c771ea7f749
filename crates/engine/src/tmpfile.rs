//! Makes files without a name (`O_TMPFILE`), and finds inodes by number and generation.
//!
//! A nameless file is an orphan from the start: it lives while it is open, and a crash frees it. Linking it
//! once gives it a name and makes it a file like others ([`Volume::link`](crate::Volume::link)).
//!
//! A handle that outlives its file (a network file system's) names an inode by its number and its generation,
//! which changes each time the number is given out.

use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::namespace::{Creation, NAME_CREDITS, NewNode};
use crate::open_file::OpenFile;
use crate::stat::Metadata;
use crate::stores::orphans::ORPHAN_CREDITS;
use crate::volume::Volume;
use hectare_ext4::inode::Kind;
use hectare_units::InodeNr;
use std::sync::Arc;

impl Volume {
    /// Makes a file without a name, as if it were made in a directory, and opens it. It is freed when it is
    /// closed, unless it was `linkable` and has been linked.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_nameless(&self, parent: InodeNr, creation: Creation, linkable: bool) -> Result<OpenFile> {
        self.check_makes_files()?;
        let dir = self.directory(parent)?;
        let made = self.retry(|| {
            let _operation = dir.lock().read();
            self.check_directory_writable(&dir, Deed::AddName)?;
            let prepared = self.prepare(&dir, Kind::File, creation)?;
            let mut handle = self.start(NAME_CREDITS + ORPHAN_CREDITS)?;
            let made = self.make_node(&mut handle, parent, NewNode::File, prepared)?;
            made.edit(&mut handle, &self.inodes).links = 0;
            made.set_linkable(linkable);
            self.add_orphan(&mut handle, &made);
            self.nameless.lock().insert(made.nr(), Arc::clone(&made));
            Ok(made)
        })?;
        self.open_found(made)
    }

    /// The metadata of the inode that a handle of this number and generation was made for.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is gone, whether or not the number was given out again, or never existed; or
    /// the error of reading it.
    pub fn inode_with_generation(&self, nr: InodeNr, generation: u32) -> Result<Metadata> {
        let stale = || Error::Stale(nr);
        if self.is_special(nr) || self.geometry().inode_slot(nr).is_none() {
            return Err(stale());
        }
        let metadata = match self.stat(nr) {
            Err(Error::NotFound) => return Err(stale()),
            found => found?,
        };
        if metadata.generation == generation { Ok(metadata) } else { Err(stale()) }
    }
}
