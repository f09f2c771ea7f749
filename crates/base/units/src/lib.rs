//! The newtypes of units and numbers that every layer of Hectare uses.
//!
//! A volume is full of integers that must not be mixed: a block's number on the device, its number inside a
//! file, a count of blocks, a group, an inode, a byte offset. Each has a type here, and the only arithmetic
//! offered is the arithmetic that means something (a block number plus a count is a block number; two block
//! numbers don't add).
//!
//! Hazards: values read from disk are untrusted, so every operation that can overflow exists in a `checked_`
//! form; the operators panic on overflow in every profile (`overflow-checks` is on in release too) and are
//! for values already validated. This crate holds no format knowledge and no I/O; beside the types it has a
//! few tools that every layer needs: the table that is filled on first touch ([`OnceTable`]), random numbers
//! ([`random`]), the buckets of histograms ([`log_scale`]), hexadecimal digits ([`hex()`]),
//! the parts that all addresses have ([`address`]).

pub mod address;
mod block;
mod bytes;
mod convert;
mod hex;
mod ids;
pub mod log_scale;
pub mod memory;
pub mod random;
pub mod record;
mod table;
mod thread;

pub use block::{BlockNr, BlockSize, Blocks, ClusterNr, Clusters, LogicalBlock};
pub use bytes::Bytes;
pub use convert::{high32, index_of, join32, low8, low16, low32, u64_of, usize_of};
pub use hex::hex;
pub use ids::{GroupNr, InodeNr, NO_OWNER, TxnId, owner_number};
pub use memory::OutOfMemory;
pub use table::OnceTable;
pub use thread::thread_number;
