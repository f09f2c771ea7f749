//! What a volume lies on: a file, a block device, memory, a part of a disk, or your own storage.
//!
//! ```
//! use hectare::device::{Bytes, Device, MemoryDevice};
//! use hectare::{Volume, mkfs};
//! use std::sync::Arc;
//!
//! # fn main() -> hectare::Result<()> {
//! // A gibibyte in memory, of which only what was written takes any.
//! let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::gib(1)));
//! mkfs::Format::new().on_device(&*device)?;
//! let volume = Volume::options().write(true).open_device(Arc::clone(&device))?;
//! volume.write("/hello", "world")?;
//! volume.close()
//! # }
//! ```
//!
//! For storage of your own implement [`Device`]: `name`, `len`, `read_at`, `write_at`, `flush`, `zero`, `discard`,
//! `resize`, `is_zeroed` and `is_read_only`; the example `own_device` does it in a page. Its contract is short
//! and hard: what was written before a successful flush is durable, in any order; a write is not. Errors are made
//! by [`Error::new`] or [`Error::io`].
//!
//! A disk image (`disk::open`) and a partition (`partition::open`, both of feature `disk`) are devices as well, and
//! so is an NBD export (`nbd::NbdDevice`, feature `nbd`):
//!
#![cfg_attr(feature = "disk", doc = "```no_run")]
#![cfg_attr(not(feature = "disk"), doc = "```ignore")]
//! use hectare::device::{FileOptions, disk, partition};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = Path::new("disk.qcow2");
//! let file = FileOptions::new().open(path)?;
//! let format = disk::Format::of(&file)?.ok_or("a raw disk")?;
//! let whole = disk::open(file, path, format, disk::Backing::Beside)?;
//! let second = partition::open(whole, 2)?;
//! println!("{}", hectare::Volume::options().open_device(Arc::new(second))?.read_to_string("/etc/hostname")?);
//! # Ok(())
//! # }
//! ```

pub use hectare_device::{
    Cancel, CancelDevice, Claim, Device, Error, Extent, Fence, FileDevice, FileOptions, Mark, MemoryDevice,
    Operation, Overwrite, PendingFile, Reason, Request, Result, SliceDevice, Span, SparseDevice, Topology,
    Until, check_change, check_range, kind_of, total_len,
};
#[cfg(feature = "disk")]
pub use hectare_disk as disk;
#[cfg(feature = "nbd")]
pub use hectare_nbd as nbd;
#[cfg(feature = "disk")]
pub use hectare_partition as partition;
pub use hectare_units::Bytes;
