//! The replay and the probes over the allocator in virtual time.

use hectare_alloc_virtual as alloc;

#[allow(clippy::duplicate_mod)] // over each of the two
#[path = "native/probe.rs"]
pub(super) mod probe;
#[allow(clippy::duplicate_mod)] // over each of the two
#[path = "native/replay.rs"]
pub(super) mod replay;
