//! What is remembered of each directory until all inodes are known.

use hectare_ext4::checksum::Seed;
use hectare_ext4::inode::InodeFlags;
use hectare_units::InodeNr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A directory that was found. What its content and that of others says of its parent is set through a shared
/// reference: several threads read directories.
pub(crate) struct Directory {
    pub(crate) nr: InodeNr,
    /// Its size in blocks.
    pub(crate) blocks: u32,
    /// Where its extents were kept.
    pub(crate) runs: Range<usize>,
    pub(crate) flags: InodeFlags,
    pub(crate) seed: Option<Seed>,
    /// Its content, if that is in the inode.
    pub(crate) inline: Option<Box<Inside>>,
    /// The parent it names itself; 0 for none.
    dot_dot: AtomicU32,
    /// The directory that names it; 0 for none.
    parent: AtomicU32,
}

/// The content of a directory in its inode.
pub(crate) struct Inside {
    pub(crate) head: [u8; 60],
    pub(crate) tail: Vec<u8>,
    pub(crate) size: u64,
}

impl Directory {
    pub(crate) fn new(nr: InodeNr, flags: InodeFlags, seed: Option<Seed>) -> Self {
        let (dot_dot, parent) = Default::default();
        Self { nr, blocks: 0, runs: 0..0, flags, seed, inline: None, dot_dot, parent }
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.flags.contains(InodeFlags::INDEX)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags.contains(InodeFlags::ENCRYPT)
    }

    /// The parent it names itself; 0 for none.
    pub(crate) fn dot_dot(&self) -> u32 {
        self.dot_dot.load(Relaxed)
    }

    /// The directory that names it; 0 for none.
    pub(crate) fn parent(&self) -> u32 {
        self.parent.load(Relaxed)
    }

    pub(crate) fn set_dot_dot(&self, nr: u32) {
        self.dot_dot.store(nr, Relaxed);
    }

    /// Notes a directory that names it; false if there is one already. If it names itself it lies below
    /// itself, whatever else names it.
    pub(crate) fn add_parent(&self, nr: InodeNr) -> bool {
        if nr == self.nr {
            return self.parent.swap(nr.get(), Relaxed) != nr.get();
        }
        self.parent.compare_exchange(0, nr.get(), Relaxed, Relaxed).is_ok()
    }
}
