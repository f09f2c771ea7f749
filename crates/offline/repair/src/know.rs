//! What a round knows: the volume that it works on, what is in use, and records of what was found.
//!
//! What it is not: it mends nothing but the superblock, without which nothing is known.

pub(crate) mod known;
pub(crate) mod map;
pub(crate) mod noted;
pub(crate) mod places;
pub(crate) mod slot;
pub(crate) mod stored;
pub(crate) mod superblock_search;
pub(crate) mod task;
pub(crate) mod work;
