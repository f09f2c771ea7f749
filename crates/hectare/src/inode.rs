//! Operations by inode numbers, for servers of mounts: the engine's own interface, whole.
//!
//! [`Volume`](crate::Volume) is made of it and gives it by [`engine`](crate::Volume::engine). Nothing here
//! hides anything: what is found at a number may be gone the next moment, so who keeps numbers holds the
//! inodes ([`Volume::hold_inode`]).

pub use hectare_engine::{
    Access, Ask, AskGoal, Caller, Capabilities, Changes, Cleaned, Cookie, Corrupt, Creation, DataMode,
    DeviceNumber, DirEntry, Error, Explanation, Extent, ExtentFlags, FallocateMode, FileExtent, FoundErrors,
    FreeExtents, Gathered, Gauges, GroupDesc, GroupReport, HeldInode, HeldSpace, InodeBlocks, InodeFlags,
    JournalDevice, JournalStats, Kind, Mechanism, Metadata, NewNode, Observed, Observer, OnError, OpenFile,
    OpenOptions, Place, Policy, QuotaKind, QuotaLimits, QuotaRecord, QuotaReport, QuotaResource, Recording,
    RenameMode, Result, Shape, Shutdown, SizeClasses, SpaceCounts, StatFs, StatsSnapshot, SuperBlock,
    Synchronous, Timestamp, Tolerances, Tunables, VerityAlgorithm, VerityParams, Volume, XattrHow, on_behalf,
};
pub use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, GroupNr, InodeNr, LogicalBlock};
