//! The replay over the allocator in real time.

use hectare_alloc as alloc;

#[path = "replay.rs"]
pub(super) mod replay;
