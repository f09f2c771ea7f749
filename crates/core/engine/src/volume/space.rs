//! The face of [`crate::space`]: free space, and why it was given out as it was.

use crate::error::Result;
use crate::options::OpenOptions;
use crate::space::explain::{Ask, Explanation};
use crate::space::inode_blocks::{self, InodeBlocks};
use crate::space::statfs::StatFs;
use crate::space::{explain, statfs};
use crate::volume::Volume;
use hectare_alloc::Counts;
use hectare_units::InodeNr;

impl Volume {
    /// The positions of all free clusters, after everything the allocator knows was verified; while nothing
    /// else runs. For tests.
    ///
    /// # Errors
    /// The error, in one line.
    #[doc(hidden)]
    pub fn check_space(&self) -> std::result::Result<Counts, String> {
        self.core().state.allocator.check()?;
        Ok(self.core().state.allocator.counts())
    }

    /// How full the volume is.
    ///
    /// # Errors
    /// The error of reading the journal's inode.
    pub fn statfs(&self) -> Result<StatFs> {
        statfs::statfs(self.core())
    }

    /// The blocks of an inode: its content, its map, its attributes.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is no such inode, or the error of reading it or its map.
    pub fn inode_blocks(&self, nr: InodeNr) -> Result<InodeBlocks> {
        inode_blocks::of(&self.core().state, nr)
    }

    /// The trace of the last requests for space, if the volume was opened to record it
    /// ([`OpenOptions::record`]).
    #[must_use]
    pub fn explanation(&self) -> Option<Explanation> {
        Some(explain::explained(
            self.core(),
            &self.core().state.options,
            self.core().state.allocator.trace()?,
        ))
    }

    /// Simulates a request under the policy and the tunables of [`OpenOptions`] `options`; everything else in
    /// them is ignored. Changes nothing, here or on the device.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the volume is open for writing, or the goal is not on it; those of
    /// finding the end of a file. A lack of space is no error, but a result.
    pub fn explain(&self, ask: &Ask, options: &OpenOptions) -> Result<Explanation> {
        explain::explain(self.core(), ask, options)
    }
}
