//! Storage devices: flat, byte-addressed, of a known length. Everything above reads and writes a volume
//! through [`Device`] and cannot tell a disk from an image file or from memory.
//!
//! - **Backends** hold bytes: [`FileDevice`] (regular files and block devices), [`DaxDevice`] (files in
//!   memory, mapped), [`MemoryDevice`] (a vector, for tests and small images), [`SparseDevice`] (an exabyte
//!   of which only the written part is stored).
//! - **Layers** wrap any device: [`FaultDevice`] (operations that fail on demand), [`TraceDevice`] (what was
//!   asked, when), [`StatsDevice`] (how much was asked), [`SliceDevice`] (a window, such as a partition),
//!   [`OverlayDevice`] (changes that stay in memory), [`ElsewhereDevice`] (blocks read from
//!   another place), [`CacheDevice`] (memory over a device of which each operation is slow),
//!   [`FencedDevice`] (no changes once another host has the device), [`CancelDevice`] (nothing once the caller
//!   wants no more),
//!   [`RememberingDevice`] (a failed flush that everyone learns of),
//!   [`RecordDevice`] (a log of all changes, of which
//!   [`CrashStates`] makes what a power cut can leave).
//!
//! Hazards that every implementation must answer:
//! - *Reaching outside.* A device never grows by being written to: a range that does not fit is refused
//!   before anything is touched, with all arithmetic on the range checked.
//! - *Half-done work.* `read_at` and `write_at` do all or report an error; after a failed write the content
//!   of the range is undefined, outside the range it is untouched.
//! - *Order.* Nothing but [`Device::flush`] orders writes towards durable storage. Overlapping operations of
//!   several threads are the caller's affair (the engine has writes of a file that overlap wait for each
//!   other); disjoint ones never disturb each other, even inside a sector.
//! - *Failed flushes.* After a failed flush it is unknown what became durable, and retrying proves nothing.
//!   The storage may report the error to one caller only. Where a device has several, [`RememberingDevice`]
//!   returns the error to all of them, from then on.
//!
//! Files are devices on any host: with all that Linux has for it (`file`), elsewhere by the standard library alone
//! (`portable`); [`DaxDevice`] is for Linux only. Other crates find what they need of the host in [`os`].
//!
//! What this crate is not: it knows no on-disk format, and starts no thread that outlives an operation.

mod beside;
mod cancel;
mod clock;
mod crash;
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod dax;
mod device;
mod durability;
mod error;
mod extent;
mod fence;
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod file;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
use portable as file;
mod file_options;
mod layer;
mod memory;
pub mod os;
mod pending;
mod publish;
mod request;
mod scratch;
mod span;
mod sparse;
mod topology;

pub use cancel::Cancel;
pub use clock::Clock;
pub use crash::{CrashStates, Discarded};
#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use dax::DaxDevice;
pub use device::{Device, check_change, check_range, total_len};
pub use durability::Durability;
pub use error::{Error, Operation, Reason, Result, kind_of};
pub use extent::Extent;
pub use fence::{Fence, Mark, look, pass};
pub use file::{Claim, FileDevice, MOUNT_KEY, check_output_place};
pub use file_options::{FileOptions, Overwrite};
pub use layer::cache::{CacheCounters, CacheDevice, CacheLimits};
pub use layer::cancel::{CancelDevice, Until};
pub use layer::elsewhere::{Elsewhere, ElsewhereDevice};
pub use layer::fault::{FaultDevice, Outcome, Rule};
pub use layer::fence::FencedDevice;
pub use layer::overlay::OverlayDevice;
pub use layer::record::{Event, RecordDevice};
pub use layer::remember::RememberingDevice;
pub use layer::slice::SliceDevice;
pub use layer::stats::{Counters, Snapshot, StatsDevice};
pub use layer::trace::{Record, TraceDevice};
pub use memory::MemoryDevice;
pub use pending::PendingFile;
pub use request::Request;
pub use span::Span;
pub use sparse::SparseDevice;
pub use topology::Topology;
