//! Moves the blocks of a directory together ([`crate::data::gather`]).
//!
//! Invariant: nothing of the directory changes but where its blocks lie. Its operation lock is held
//! exclusively, so that no lookup or listing meets a block that moves.

use crate::data::gather::{self, Gathered};
use crate::error::Result;
use crate::names::directory::DirRef;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use std::sync::Arc;

/// Moves a directory's blocks together, where that makes the places they are in fewer.
pub(crate) fn gather_directory(core: &Core, inode: &Arc<CachedInode>) -> Result<Gathered> {
    let (state, nr) = (&core.state, inode.nr());
    gather::gather_with(core, inode, &|inode, at| DirRef { state, nr, inode }.kind(at))
}
