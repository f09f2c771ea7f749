//! What executing a plan of any format takes: a beginning, chunks in any order, and an end.
//!
//! Order matters only at both ends (`ends`); in between, threads render chunks (`chunks`) and one of them at
//! a time writes for all (`writer`). What this is not: a plan, which is a format's own.

mod chunks;
mod ends;
mod writer;

pub(crate) use chunks::each_chunk;
pub(crate) use ends::{discard, refuse_read_only, seal, wipe};
pub(crate) use writer::{Out, Writer};
