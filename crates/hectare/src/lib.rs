//! Real ext2, ext3 and ext4 volumes from user space, without mounting and without the kernel's file system.
//!
//! ```
//! use std::io::{Read, Write};
//! use hectare::{Size, Volume, build, check, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let image = folder.path().join("disk.img");
//! # let made = folder.path().join("tree.img");
//! # std::fs::create_dir(folder.path().join("rootfs"))?;
//! # std::fs::write(folder.path().join("rootfs/hello"), "hello")?;
//! # let rootfs = folder.path().join("rootfs");
//! // Make an empty volume in a new file, and use it as std::fs would a directory.
//! mkfs::Format::new().label("data").create(&image, 64 << 20)?;
//! let volume = Volume::open_writable(&image)?;
//! volume.create_dir_all("/etc/app")?;
//! volume.write("/etc/hostname", "box\n")?;
//! let mut log = volume.create("/etc/app/log")?;
//! writeln!(log, "one line")?;
//! log.close()?;
//! volume.rename("/etc/app/log", "/etc/app/log.1")?;
//! volume.close()?;
//!
//! // Read it.
//! let volume = Volume::open(&image)?;
//! assert_eq!(volume.read_to_string("/etc/hostname")?, "box\n");
//! for entry in volume.read_dir("/etc")? {
//!     let entry = entry?;
//!     println!("{} {}", entry.path().display(), entry.metadata()?.len());
//! }
//! let mut text = String::new();
//! volume.open_file("/etc/app/log.1")?.read_to_string(&mut text)?;
//! assert_eq!(text, "one line\n");
//!
//! // Is it sound?
//! assert!(check::check(&image)?.is_clean());
//!
//! // Turn a directory into an image that is just large enough.
//! build::Image::new().folder(&rootfs).size(Size::Minimal).create(&made)?;
//! assert_eq!(Volume::open(&made)?.read("/hello")?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | module | for |
//! |---|---|
//! | [`fs`] | programs that know `std::fs`: [`Volume`], [`File`](fs::File), [`ReadDir`](fs::ReadDir) |
//! | [`mkfs`] | making empty volumes |
//! | [`build`] | a directory, tars, a container image to an image |
//! | [`check`] | whether a volume is sound |
//! | [`device`] | volumes that are no file: memory, disk images and partitions, NBD, your own storage |
//! | [`inode`] | servers of mounts: operations by inode numbers |
//! | `admin` | mending, resizing, tuning (feature `admin`) |
//! | `fuse` | mounts (feature `fuse`) |
//!
//! # What is promised
//!
//! - A volume is what the kernel's ext4 and e2fsck expect after everything, also after a crash: what was
//!   synced is there when it is opened again.
//! - Every handle is `Send` and `Sync`; operations may run on any number of threads.
//! - No input makes it panic; a damaged volume gives an [`Error`] that names the file, the place and the
//!   reason.
//! - A long call reports its progress and can be cancelled ([`Watch`]); one that was leaves nothing that could be
//!   taken for the whole.
//! - Opening takes a lock on the file, so that two programs don't write one volume. It does not keep a kernel
//!   from mounting the same file.
//!
//! Paths are those of the volume: `/`-separated, from its root, any bytes but NUL ([`VolumePath`]). Symbolic
//! links are followed inside the volume only.

#[cfg(feature = "admin")]
pub mod admin;
#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "check")]
pub mod check;
pub mod device;
mod error;
pub mod fs;
#[cfg(feature = "fuse")]
pub mod fuse;
pub mod inode;
#[cfg(feature = "mkfs")]
pub mod mkfs;
mod path;
mod sync;
mod volume;
mod watch;

pub use error::{Error, Result};
pub use path::VolumePath;
pub use volume::{Space, Volume, VolumeOptions};
pub use watch::{Progress, Step, Watch};

#[cfg(feature = "build")]
pub use build::Size;

/// The example of the project's page, as a test that compiles; it would leave a file where it runs.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../../../README.md")]
    mod page {}
}
