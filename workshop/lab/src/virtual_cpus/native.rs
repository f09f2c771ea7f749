//! The replay and the probes over the allocator in real time.

use hectare_alloc as alloc;

#[allow(clippy::duplicate_mod)] // over each of the two
pub(super) mod probe;
#[allow(clippy::duplicate_mod)] // over each of the two
pub(super) mod replay;
