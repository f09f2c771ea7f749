//! An older image as a model: what it has where, so that a new one differs only where the content does.
//!
//! Every path of the new tree that the old image has too keeps its inode number, and its content the blocks
//! that the old content had, as many as both need. Content is not compared: what did not change has the same
//! bytes at the same place, and what changed, changes there. Nor do access times differ where nothing else
//! does: reading a source updates them. The rest goes where the new volume is free.
//!
//! Invariants: an image made like another is a function of the tree, the options and that image. Nothing of
//! the old image is trusted: places that the new volume uses otherwise, or that two files claim, are not
//! kept.
//!
//! What it is not: a reader of images (the caller walks the old one), or a difference between two.

use crate::image_error::ImageError;
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::Compat;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::{FormatOptions, InodeCount};
use hectare_units::{BlockNr, Bytes, InodeNr};
use std::collections::HashMap;

/// An inode of the old image.
#[derive(Clone, Debug)]
pub struct OldInode {
    /// Its number.
    pub inode: InodeNr,
    /// The extents of its content, in order.
    pub extents: Vec<Extent>,
    /// When it was last read.
    pub atime: Timestamp,
    /// When its content last changed.
    pub mtime: Timestamp,
    /// The blocks of its map.
    pub map_nodes: Vec<BlockNr>,
    /// Its attribute block.
    pub attribute_block: Option<BlockNr>,
}

/// An older image.
#[derive(Clone, Debug)]
pub struct Like {
    superblock: SuperBlock,
    journal: Option<Bytes>,
    inodes: HashMap<Box<[u8]>, OldInode>,
}

impl Like {
    /// A model with this superblock and a journal of this length, and no files so far.
    #[must_use]
    pub fn new(superblock: SuperBlock, journal: Option<Bytes>) -> Self {
        Self { superblock, journal, inodes: HashMap::new() }
    }

    /// Adds what is at a path: names with `/` between them, none at the start; empty for the root.
    pub fn add(&mut self, path: &[u8], inode: OldInode) {
        self.inodes.insert(path.into(), inode);
    }

    /// When the old image was made, in seconds since 1970.
    #[must_use]
    pub fn made(&self) -> i64 {
        self.superblock.raw().s_mkfs_time.get().into()
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.superblock.geometry()
    }

    /// Takes what is at a path.
    pub(crate) fn take(&mut self, path: &[u8]) -> Option<OldInode> {
        self.inodes.remove(path)
    }

    /// Options that also keep what identifies the old image: its UUID and hash seed, unless others are given.
    #[must_use]
    pub fn options(&self, options: &FormatOptions) -> FormatOptions {
        let mut options = options.clone();
        options.uuid.get_or_insert(self.superblock.uuid());
        options.hash_seed.get_or_insert(self.superblock.raw().s_hash_seed);
        options
    }

    /// Options for a volume of this length with as many inodes in each group as the old image, and as long a
    /// journal.
    pub(crate) fn options_for(&self, options: &FormatOptions, size: Bytes) -> FormatOptions {
        let old = self.geometry();
        let blocks = (size.get() >> old.block_size.shift()).saturating_sub(old.first_data_block.into());
        let groups = blocks.div_ceil(old.blocks_per_group().into());
        let inodes = InodeCount::Exactly(groups * u64::from(old.inodes_per_group));
        let has_journal = self.superblock.features().compat.contains(Compat::HAS_JOURNAL);
        let journal = self.journal.filter(|_| has_journal).map(|len| len.get() >> 20);
        let journal_mib = options.journal_mib.or(journal.filter(|mib| *mib > 0));
        FormatOptions { inodes, journal_mib, ..options.clone() }
    }

    /// Refuses options that give another kind of volume than the old one.
    ///
    /// # Errors
    /// What differs.
    pub(crate) fn check(&self, new: &Geometry) -> Result<(), ImageError> {
        let old = self.geometry();
        let differs = |what: &str, old: String, new: String| {
            let reason = format!(
                "--like: the old image has {what} {old}, and the new one would have {new}: give the options \
                 that the old one was made with"
            );
            Err(ImageError::Impossible(reason))
        };
        if old.block_size != new.block_size {
            return differs("blocks of", old.block_size.get().to_string(), new.block_size.get().to_string());
        }
        if old.inode_size != new.inode_size {
            return differs("inodes of", old.inode_size.to_string(), new.inode_size.to_string());
        }
        if old.cluster_ratio_shift != 0 || new.cluster_ratio_shift != 0 {
            let reason = "--like: a volume with bigalloc can't be a model, nor be made like another";
            return Err(ImageError::Impossible(reason.to_owned()));
        }
        Ok(())
    }
}
