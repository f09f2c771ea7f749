//! Feature bits of a version 5 superblock.
//!
//! An unknown read-only compatible bit forbids writing, an unknown incompatible one forbids mounting.
//! Features that every version 5 volume has are in the version word, see [`crate::superblock`].

bitflags::bitflags! {
    /// `sb_features_ro_compat`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RoCompat: u32 {
        /// A tree of the inode chunks that have free inodes.
        const FINOBT = 1;
        /// A tree that records the owner of each block.
        const RMAPBT = 1 << 1;
        /// Files share blocks, counted in a tree.
        const REFLINK = 1 << 2;
        /// The inode trees' blocks are counted in the AGI.
        const INOBTCOUNT = 1 << 3;
    }

    /// `sb_features_incompat`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Incompat: u32 {
        /// Directory entries hold the type of what they name.
        const FTYPE = 1;
        /// Inode chunks may have holes.
        const SPINODES = 1 << 1;
        /// The UUID in metadata is not the volume's.
        const META_UUID = 1 << 2;
        /// Times are nanoseconds since 1901, until 2486.
        const BIGTIME = 1 << 3;
        /// Files and attributes may have many more extents.
        const NREXT64 = 1 << 5;
    }
}
