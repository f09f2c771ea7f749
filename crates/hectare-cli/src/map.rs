//! The picture of a volume: usage, fragmentation of the free space, location of metadata.
//!
//! [`survey`] reads the volume into cells, [`layout`] makes a scene of them. What this is not: drawing (that
//! is `picture`).

pub(crate) mod layout;
pub(crate) mod survey;
