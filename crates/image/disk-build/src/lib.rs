//! Whole disks from a description: a partition table, what lies before the partitions, and what fills them.
//!
//! [`Spec`] is the description, read from TOML ([`Spec::parse`]) or from a directory of `repart.d` files
//! ([`Spec::from_repart`]). [`Disk::plan`] reads the sources and decides where everything lies; the size of
//! the disk is known then. [`Disk::write`] writes it all to a device.
//!
//! Invariants: nothing overlaps, and what would is an error that names both. The same description, sources
//! and `SOURCE_DATE_EPOCH` give the same bytes, whatever the number of threads. The partition table is
//! written last: its UUIDs can depend on the content.
//!
//! Hazards: a description names files of the host, so it must come from someone trusted with them. What a
//! file holds can change between plan and write; that is an error, not another image.
//!
//! What it is not: a tool that changes disks. It takes a device of zeros, and knows no file formats of
//! images.

mod attributes;
mod content;
mod cursor;
#[cfg(test)]
mod disks_tests;
mod environment;
mod error;
mod identity;
mod layout;
mod plan;
mod repart;
mod spec;
mod table;
mod types;
mod verity;
mod write;

pub use environment::{Environment, OpenSource};
pub use error::{Error, Result};
pub use identity::Identity;
pub use plan::{Disk, PartitionSummary};
pub use spec::{Spec, TableKind};
pub use write::{Made, RootHash};
