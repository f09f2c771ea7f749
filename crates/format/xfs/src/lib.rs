//! The XFS on-disk format, version 5, as far as a fresh volume needs it: what every byte means, and no more.
//!
//! [`raw`] declares the records as they lie on disk. [`Volume`] holds what a superblock says and computes
//! locations. The other modules render one structure each, in final form and with its checksum:
//! superblocks, the headers of an allocation group, the roots of its trees, inodes, the first record of the
//! log.
//!
//! Format facts are those of the "XFS Algorithms & Data Structures" document; numbers are big-endian but for
//! the checksums.
//!
//! Hazard: a reader recomputes much of this from the superblock alone (where the first inodes must lie, how
//! long a free list may be); the formatter and these rules must agree to the block.
//!
//! Not here: choosing a geometry (mkfs), reading a volume that others wrote, I/O.

pub mod btree;
mod checksum;
pub mod feature;
pub mod group;
pub mod inode;
pub mod log;
pub mod raw;
pub mod superblock;
pub mod volume;

pub use feature::{Incompat, RoCompat};
pub use volume::{LogPlace, Run, Stripe, Volume};
