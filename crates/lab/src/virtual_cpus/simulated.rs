//! The replay over the allocator in virtual time.

use hectare_alloc_virtual as alloc;

#[path = "replay.rs"]
pub(super) mod replay;
