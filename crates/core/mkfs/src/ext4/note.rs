//! The notes on choices that a user may want to know of, or to override.

use hectare_units::{BlockSize, Blocks, Bytes};
use std::fmt;

/// Something that was decided differently from what the options say, or is worth knowing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// Block numbers beyond 32 bits leave no room for the resize inode.
    NoResizeInode,
    /// The descriptors would fill most of a group, so each meta group holds its own.
    MetaGroups,
    /// The volume is large, so each meta group holds its own descriptors.
    MetaGroupsByDefault,
    /// The volume is large, so flex groups have this many groups.
    LargerFlexGroups(u32),
    /// The volume is so large that space is allocated in clusters of this many bytes.
    Clusters(Bytes),
    /// The volume has more of the usual blocks than can be numbered, so they have this size.
    LargerBlocks(BlockSize),
    /// The volume has one block more than can be numbered; the last is left unused.
    LastBlockUnused,
    /// The end of the device is left unused: a last group of this many blocks would hold only metadata.
    LastGroupDropped(Blocks),
    /// The volume is too small for a journal.
    NoJournal,
    /// The groups have this many blocks instead of the most possible, for the number of inodes.
    SmallerGroups(u32),
    /// Only this many descriptor blocks are reserved for growing, for the number of inodes.
    SmallerReserve(u32),
    /// Metadata lies in its groups, not packed: that takes flex groups.
    NotPacked,
    /// The volume is laid out for the device's stripes, with this many blocks on one disk and on all.
    StripeOfDevice(u16, u32),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResizeInode => {
                write!(f, "resize_inode is off: it can't be used with more than 2^32 - 1 blocks")
            }
            Self::MetaGroups => write!(f, "meta_bg is on: the group descriptors would fill most of a group"),
            Self::MetaGroupsByDefault => write!(
                f,
                "meta_bg is on: above 16 TiB each meta group holds its own descriptors (-O ^meta_bg decides \
                 otherwise)"
            ),
            Self::LargerFlexGroups(groups) => write!(
                f,
                "flex groups have {groups} groups, so that there are fewer places where metadata lies (-G \
                 decides otherwise)"
            ),
            Self::Clusters(bytes) => write!(
                f,
                "bigalloc is on, with clusters of {bytes} bytes, so that there are about a million groups at \
                 most (-O ^bigalloc, -C or -g decide otherwise)"
            ),
            Self::LargerBlocks(size) => write!(
                f,
                "blocks have {size} bytes: of smaller ones there would be more than 2^48; Linux mounts such \
                 blocks only where its pages are as large"
            ),
            Self::LastBlockUnused => {
                write!(f, "the last block is left unused: ext4 numbers at most 2^48 - 1 blocks")
            }
            Self::LastGroupDropped(blocks) => {
                write!(f, "the last {blocks} blocks are left unused: too few for a group")
            }
            Self::NoJournal => write!(f, "the volume is too small for a journal and has none"),
            Self::SmallerGroups(blocks) => {
                write!(f, "groups have {blocks} blocks to make room for the inodes")
            }
            Self::SmallerReserve(blocks) => write!(
                f,
                "{blocks} blocks of descriptors are reserved for growing, fewer than usual, to make room for \
                 the inodes"
            ),
            Self::NotPacked => {
                write!(f, "packed_meta_blocks packs no tables without flex groups; add -O flex_bg")
            }
            Self::StripeOfDevice(stride, width) => write!(
                f,
                "laid out for the device's stripes of {width} blocks, {stride} on a disk; -E \
                 stride=0,stripe_width=0 for none"
            ),
        }
    }
}
