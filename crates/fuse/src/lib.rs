//! An ext4 volume behind a mount: the engine answers the kernel's FUSE requests.
//!
//! [`Adapter`] turns requests into calls of the engine's inode-level API and needs no mount: it is driven
//! from bytes ([`client`] is such a driver). [`serve`] mounts it, on many threads,
//! until it is unmounted or told to end. [`MountOptions`] are what `mount -o` knows.
//!
//! Who owns what: with the kernel's writeback cache (`-o writeback`), size, modification and
//! change time of open files are the
//! kernel's until it writes them back; we are the only other writer, so that names, negative names and
//! attributes may be kept by the kernel for as long as it likes. What changes without it asking for that
//! (set-ID bits that writing takes) it is told before it gets its answer.
//!
//! Durability: `fsync` is the engine's, and so is `sync_interval`; what the kernel's cache holds is lost with
//! a crash, as with any file system.
//!
//! What the kernel has gathered comes in nobody's name and with no space promised. So it does not gather
//! unless asked to: then `write` hears at once that the volume is full or a file too large. What still comes
//! late is what was written through a shared mapping, of which `msync`, `fsync` and `close` tell. Data takes
//! the blocks reserved for root only where nobody but root can come, and flags of a file that forbid writing
//! are looked at when it is opened and not when the kernel's writeback cache brings bytes.
//!
//! Hazards: an inode that the kernel knows must live ([`nodes`]); numbers that the kernel does not know are
//! refused, since some of them belong to the format. Nothing that a request says is taken for granted
//! ([`protocol`]).

mod adapter;
mod adaptive_polling;
mod attr;
mod auto_commit;
pub mod client;
mod errno;
mod event_loop;
mod loops;
mod mount;
mod mountinfo;
mod node_table;
mod null;
mod options;
mod privileged_helper;
mod protocol;
mod remount;
mod request_stats;
mod sandbox;
mod session;
mod shutdown;
mod unmount;

pub use adapter::{Adapter, Behaviour};
pub use mount::{How, Mounting, is_root};
pub use mountinfo::{MountedImage, mounted_image, mounted_on};
pub use options::{Atime, BadOption, MountOptions, OPTIONS, OptionRow, metrics_address};
pub use privileged_helper::{Keeper, keep};
pub use remount::{REMOUNT, remount};
pub use request_stats::{Counted, Histogram, Operation, Operations, OperationsSnapshot};
pub use sandbox::{Confined, confine};
pub use session::{Image, ServeError, serve, serve_null};
pub use shutdown::shut_down;
pub use unmount::{Unmounted, unmount};
