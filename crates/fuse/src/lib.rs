//! An ext4 volume behind a mount: the engine answers the kernel's FUSE requests.
//!
//! [`Adapter`] turns requests into calls of the engine's inode-level API and needs no mount: it is driven
//! from bytes over any descriptor ([`client`] is such a driver). [`serve`] mounts it, on many threads,
//! until it is unmounted or told to end. [`MountOptions`] are what `mount -o` knows.
//!
//! Who owns what: with the kernel's writeback cache, size, modification and change time of open files are the
//! kernel's until it writes them back; we are the only other writer, so that names, negative names and
//! attributes may be kept by the kernel for as long as it likes.
//!
//! Durability: `fsync` is the engine's, and so is `sync_interval`; what the kernel's cache holds is lost with
//! a crash, as with any file system.
//!
//! Hazards: an inode that the kernel knows must live ([`nodes`]); numbers that the kernel does not know are
//! refused, since some of them belong to the format.

mod adapter;
mod attr;
pub mod client;
mod errno;
mod mount;
mod nodes;
mod null;
mod options;
mod session;
mod unmount;

pub use adapter::{Adapter, Behaviour};
pub use options::{Atime, BadOption, MountOptions, OPTIONS, OptionRow};
pub use session::{ServeError, serve, serve_null};
pub use unmount::unmount;
