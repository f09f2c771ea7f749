//! Operations by inode numbers, for servers of mounts: the engine's own interface, whole.
//!
//! [`Volume`](crate::Volume) is made of it and gives it by [`engine`](crate::Volume::engine). Nothing here
//! hides anything: what is found at a number may be gone the next moment, so who keeps numbers holds the
//! inodes ([`Volume::hold_inode`]).

pub use hectare_engine::{
    Access, Caller, Capabilities, Changes, Cookie, Creation, DeviceNumber, DirEntry, Error, Extent,
    ExtentFlags, FallocateMode, FileExtent, HeldInode, InodeBlocks, InodeFlags, Kind, Metadata, NewNode,
    OpenFile, OpenOptions, RenameMode, Result, Shutdown, StatFs, Synchronous, Timestamp, Volume, XattrHow,
    on_behalf,
};
pub use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, GroupNr, InodeNr, LogicalBlock};
