//! What is remembered of each directory until all inodes are known.

use hectare_ext4::checksum::Seed;
use hectare_ext4::inode::InodeFlags;
use hectare_units::InodeNr;
use std::ops::Range;

/// A directory that was found.
pub(crate) struct Directory {
    pub(crate) nr: InodeNr,
    /// Where its extents were kept.
    pub(crate) runs: Range<usize>,
    /// Its size in blocks.
    pub(crate) blocks: u32,
    pub(crate) flags: InodeFlags,
    pub(crate) seed: Option<Seed>,
    /// Its content, if that is in the inode: head, tail and size.
    pub(crate) inline: Option<([u8; 60], Vec<u8>, u64)>,
    /// The parent it names itself; 0 for none.
    pub(crate) dot_dot: u32,
    /// The directory that names it; 0 for none.
    pub(crate) parent: u32,
}

impl Directory {
    pub(crate) fn new(nr: InodeNr, flags: InodeFlags, seed: Option<Seed>) -> Self {
        Self { nr, runs: 0..0, blocks: 0, flags, seed, inline: None, dot_dot: 0, parent: 0 }
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.flags.contains(InodeFlags::INDEX)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags.contains(InodeFlags::ENCRYPT)
    }
}
