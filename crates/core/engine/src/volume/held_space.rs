//! Held space: free blocks that the caller chose, for laying out a volume on purpose.
//!
//! The work is done by [`crate::data::exact_append`].

use crate::data::exact_append;
use crate::error::{Error, Result};
use crate::volume::Volume;
use crate::volume::open_file::OpenFile;
use hectare_alloc::Reservation;
use hectare_units::BlockNr;
use std::ops::Range;

/// Free blocks of a volume that are held: no other allocation can get them. Dropping it returns them.
#[must_use = "dropping held space gives it back"]
pub struct HeldSpace {
    volume: Volume,
    space: Reservation,
}

impl HeldSpace {
    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> Range<BlockNr> {
        exact_append::blocks_of(&self.volume.core().state, &self.space)
    }
}

impl std::fmt::Debug for HeldSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HeldSpace").field(&self.blocks()).finish()
    }
}

impl Volume {
    /// Holds exactly these blocks, which must be free and lie in one group; whole clusters with `bigalloc`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is not made of whole clusters, or holds none; [`Error::NoSpace`]
    /// if not all of it is free and open to the caller; [`Error::ReadOnly`].
    pub fn hold(&self, blocks: Range<BlockNr>) -> Result<HeldSpace> {
        let space = exact_append::hold(self.core(), blocks)?;
        Ok(HeldSpace { volume: self.clone(), space })
    }
}

impl OpenFile {
    /// Appends held space to the file, in the order given, as unwritten extents: the file grows by it and
    /// reads as zeros there. On an error, what was not put into the file is returned.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file does not end with a whole block, or space is another volume's;
    /// [`Error::FileTooLarge`]; [`Error::NoSpace`] if the extent tree finds no block to grow by;
    /// [`Error::ReadOnly`], [`Error::Unsupported`] as for writing.
    pub fn append_held(&self, pieces: impl IntoIterator<Item = HeldSpace>) -> Result<()> {
        let own = |piece: HeldSpace| {
            let same = piece.volume.is_same(self.volume());
            if same { Ok(piece.space) } else { Err(Error::Invalid("the held space is another volume's")) }
        };
        exact_append::append(self.volume().core(), self.cached(), pieces.into_iter().map(own))
    }
}
