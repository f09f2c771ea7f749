//! Mending, resizing and tuning of volumes that nobody uses: the crates behind the commands, whole.
//!
//! Each works on a [`Device`](crate::device::Device) that is open for writing and locked, prepares the
//! whole of what it does in memory, and writes only what the checker finds sound.
//!
//! # Cancelling
//!
//! All of them are cancelled through the device ([`Watch::guard`](crate::Watch::guard)). Their errors then are
//! those of the device, with the reason [`Reason::Cancelled`](crate::device::Reason::Cancelled), or what came of
//! it; [`Watch::is_cancelled`](crate::Watch::is_cancelled) says whether that was it.
//!
//! - [`repair::repair`] and [`repair::write_out`]: until [`FirstChange`](Until::FirstChange). The volume is as it
//!   was; an undo file that was begun is of no use.
//! - [`resize::resize`]: until [`FirstFlush`](Until::FirstFlush). The volume is as it was; what lies in blocks that
//!   it does not use, and behind it, may have changed.
//! - [`tune`]: until [`FirstChange`](Until::FirstChange). The volume is as it was.
//!
//! From then on they continue to their end: what they write is short, and a volume that is half changed helps
//! nobody.
//!
//! # Mending
//!
//! A repair is staged in memory and judged by the checker; only what it finds sound is written, and what was there
//! is kept in an undo file, if there is one ([`repair::undo`]).
//!
//! ```
//! use hectare::admin::repair::{self, Options, Staged};
//! use hectare::device::{Bytes, Device, MemoryDevice};
//! use hectare::mkfs;
//! use std::{fs::File, sync::Arc};
//!
//! # let folder = tempfile::tempdir()?;
//! # let undo_file = folder.path().join("disk.undo");
//! // Of an image: FileOptions::new().write(true).open("disk.img")?
//! let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(64)));
//! mkfs::Format::new().on_device(&*device)?;
//! device.write_at(Bytes::new(1024 + 16), &[7])?; // the superblock's count of free inodes
//! let options = Options { now: 1_700_000_000, ..Options::default() };
//! let staged = Staged::new(Arc::clone(&device));
//! let repaired = staged.repair(&options)?;
//! assert!(!repaired.mends.is_empty() && !repaired.loses());
//! let undo = File::create(&undo_file)?;
//! repair::write_out(&staged, &repaired.order, options.now, Some(&undo), || undo.sync_all())?;
//! # assert!(hectare::check::check_device(&*device, &Default::default())?.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Resizing
//!
//! ```
//! use hectare::admin::{Until, resize::{self, Target, Width}};
//! use hectare::device::{Bytes, Device, MemoryDevice};
//! use hectare::{Watch, mkfs};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(64)));
//! mkfs::Format::new().on_device(&*device)?;
//! let watch = Watch::default(); // a clone, on another thread: watch.cancel()
//! let guarded = watch.guard(device, Until::FirstFlush);
//! let options = resize::Options { width: Width::AsNeeded, check: true, now: Duration::ZERO };
//! resize::resize(&guarded, Target::Min, false, &options)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use hectare_device::Until;
pub use hectare_repair as repair;
pub use hectare_resize as resize;
pub use hectare_tune as tune;
