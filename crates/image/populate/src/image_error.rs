//! Why an image could not be made.

use crate::error::ShownPath;
use hectare_units::Bytes;

/// Why an image could not be made, one line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A source can't be read, or changed while it was read.
    #[error(transparent)]
    Source(#[from] crate::Error),
    /// The format can't be made as asked.
    #[error(transparent)]
    Format(#[from] hectare_mkfs::Error),
    /// The image can't be written.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// The planned superblock is not valid.
    #[error(transparent)]
    Superblock(#[from] hectare_ext4::FormatError),
    /// The extended attributes of a file don't fit.
    #[error("{path}: its extended attributes can't be stored: {reason}")]
    Attributes {
        /// The file.
        path: ShownPath,
        /// Which, and why.
        reason: String,
    },
    /// A directory is larger than the format allows.
    #[error("{path}: the directory can't be stored: {reason}")]
    Directory {
        /// The directory.
        path: ShownPath,
        /// Why.
        reason: String,
    },
    /// A file is larger than the format allows.
    #[error(
        "{path}: its {size} bytes are more than a file can have \
         with blocks of {block_size} bytes ({max}); \
         larger blocks (-b) allow more"
    )]
    FileTooLarge {
        /// The file.
        path: ShownPath,
        /// Its size.
        size: Bytes,
        /// Bytes of a block.
        block_size: u32,
        /// The most a file can have.
        max: Bytes,
    },
    /// A symbolic link's target does not fit a block.
    #[error(
        "{path}: the link's target of {len} bytes does not fit a block of {block_size} bytes; \
         larger blocks (-b) do"
    )]
    TargetTooLong {
        /// The link.
        path: ShownPath,
        /// Bytes of its target.
        len: usize,
        /// Bytes of a block.
        block_size: u32,
    },
    /// A file can only be stored with a feature that the volume lacks.
    #[error("{path}: {what} needs the feature {feature}; add -O {feature}")]
    NeedsFeature {
        /// The file.
        path: ShownPath,
        /// What about it.
        what: &'static str,
        /// The feature's name.
        feature: &'static str,
    },
    /// A file has more names than an inode can count.
    #[error("{path}: it has {links} names, an inode can count 65000")]
    TooManyLinks {
        /// The first of the names.
        path: ShownPath,
        /// How many.
        links: u32,
    },
    /// The requested size is too small.
    #[error(
        "{size} bytes are too small: {lacking} more are needed for what the image is to hold; ask for \
         --size {enough} or more"
    )]
    TooSmall {
        /// The requested size.
        size: Bytes,
        /// How many bytes are lacking.
        lacking: Bytes,
        /// The smallest size that is enough.
        enough: Bytes,
    },
    /// The requested inodes are too few.
    #[error(
        "-N {asked}: the image is to hold {needed} files and directories; ask for at least that many inodes"
    )]
    TooFewInodes {
        /// The requested number.
        asked: u64,
        /// The required number.
        needed: u64,
    },
    /// No volume of any size would hold the tree.
    #[error("no volume of this shape can hold so much: {0}")]
    Impossible(String),
}
