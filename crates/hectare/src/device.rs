//! What a volume lies on: a file, a block device, memory, a part of a disk, or your own storage.
//!
//! Implement [`Device`] and give it to [`VolumeOptions::open_device`](crate::VolumeOptions::open_device).
//! Its contract is short and hard: what was written before a successful flush is durable, in any order; a
//! write is not.

pub use hectare_device::{
    Cancel, CancelDevice, Claim, Device, Error, Extent, Fence, FileDevice, FileOptions, Mark, MemoryDevice,
    Operation, Overwrite, PendingFile, Reason, Request, Result, SliceDevice, Span, SparseDevice, Topology,
    Until, check_change, check_range, kind_of, total_len,
};
#[cfg(feature = "disk")]
pub use hectare_disk as disk;
#[cfg(feature = "nbd")]
pub use hectare_nbd as nbd;
pub use hectare_units::Bytes;
