//! Mounts an ext4 volume through FUSE: the engine answers the kernel's requests.
//!
//! [`Adapter`] turns requests into calls of the engine's inode-level API and needs no mount: it is driven
//! from bytes ([`client`] is such a driver). [`serve`] mounts it, on many threads, until it is unmounted or
//! gets a signal. [`MountOptions`] are the options of `mount -o`.
//!
//! Ownership: with the kernel's writeback cache (`-o writeback`), size, modification and change time of open
//! files are the kernel's until it writes them back; the server is the only other writer, so the kernel may
//! cache names, negative names and attributes for as long as it likes. Of changes that it did not ask for
//! (set-ID bits cleared by a write) it is notified before it gets its answer.
//!
//! Durability: `fsync` is the engine's, and so is the commit interval; what the kernel's cache holds is lost
//! with a crash, as with any file system.
//!
//! Data that the kernel buffers arrives without its writer's credentials and without reserved space. So the
//! kernel does not buffer writes by default: then `write` reports at once that the volume is full or a file
//! too large. Only writes through a shared mapping still arrive late; `msync`, `fsync` and `close` report
//! their errors. Data takes the blocks reserved for root only on mounts that only root can access, and file
//! flags that forbid writing are checked when a file is opened and not when the kernel's writeback cache
//! sends data.
//!
//! Hazards: an inode that the kernel knows must live (`node_table`); numbers that the kernel does not know
//! are refused, since some of them belong to the format. Nothing in a request is trusted (`protocol`).

mod adapter;
mod adaptive_polling;
mod attr;
mod auto_commit;
pub mod client;
mod ending;
mod errno;
mod event_loop;
mod fd_passing;
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
mod root;
mod sandbox;
mod session;
mod shutdown;
mod thread_load;
mod unmount;

pub use adapter::{Adapter, Behaviour};
pub use ending::ending_signals;
pub use mount::{How, Mounting};
pub use mountinfo::{MountedImage, mounted_image, mounted_on};
pub use options::{Atime, BadOption, MountOptions, OPTIONS, OptionRow, metrics_address};
pub use privileged_helper::{Keeper, keep};
pub use protocol::init::VERSION as PROTOCOL;
pub use remount::{REMOUNT, remount};
pub use request_stats::{Counted, Histogram, Operation, Operations, OperationsSnapshot};
pub use root::is_root;
pub use sandbox::{Confined, confine};
pub use session::{Image, ServeError, serve, serve_null};
pub use shutdown::shut_down;
pub use unmount::{Unmounted, unmount};
