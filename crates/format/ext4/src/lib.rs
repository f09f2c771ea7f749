//! The ext4 on-disk format: what every byte means, and no more.
//!
//! Two layers. The *records* ([`raw`]) are the bytes as they lie on disk, each declared once with its offsets
//! asserted. The *validated types* (superblock, geometry, group descriptor, inode, extent, directory entry,
//! attribute) are what the rest of Hectare sees: parsing checks everything later arithmetic relies on,
//! rendering writes the checksums. Whatever the bytes, parsing ends with a value or with an error that names
//! structure, place and reason; it does not panic, loop or recurse without bound.
//!
//! Not here: I/O, caches, threads, transactions. Algorithms over several blocks (extent trees, htrees) reach
//! their blocks through small traits, which the engine implements over its cache.

pub mod acl;
pub mod casefold;
pub mod checksum;
pub mod dir;
pub mod error;
pub mod extent;
pub mod feature;
pub mod geometry;
pub mod group;
pub mod indirect;
pub mod inline;
pub mod inode;
pub mod map;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod raw;
pub mod superblock;
#[cfg(test)]
mod testing;
pub mod time;
pub mod verity;
pub mod xattr;

pub use error::{Corrupt, FormatError, Place, Unsupported};
pub use hectare_units::record;
