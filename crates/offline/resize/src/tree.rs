//! The map of an inode, read through the overlay.

use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_ext4::extent::{TreeGeometry, TreeRead};
use hectare_units::{BlockNr, InodeNr};

/// What a map is read with.
pub(crate) struct Tree<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) nr: InodeNr,
    pub(crate) root: [u8; 60],
}

impl TreeRead for Tree<'_> {
    type Error = Error;
    type Node = Vec<u8>;

    fn root(&self) -> [u8; 60] {
        self.root
    }

    fn node(&self, nr: BlockNr) -> Result<Vec<u8>> {
        self.volume.read(nr)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.volume.geometry(), self.nr)
    }
}
