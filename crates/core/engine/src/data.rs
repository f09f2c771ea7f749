//! File data: reading, writing, sizes, and when buffered bytes reach the device.
//!
//! Operations are functions on [`crate::state::Core`]; none of them knows [`crate::Volume`].

pub(crate) mod append;
pub(crate) mod checks;
pub(crate) mod claims;
pub(crate) mod clear;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod exact_append;
pub(crate) mod fallocate;
pub(crate) mod gather;
pub(crate) mod inline;
pub(crate) mod journalled;
pub(crate) mod overwrite;
pub(crate) mod pieces;
pub(crate) mod read;
pub(crate) mod reclaim;
pub(crate) mod seek;
pub(crate) mod sync;
pub(crate) mod trim;
pub(crate) mod truncate;
pub(crate) mod verity;
pub(crate) mod write;
pub(crate) mod writeback;
