//! The log of the journal, before anything else is judged: where it lies, whether it counts, and putting what
//! it holds in its place.

mod age;
mod forgotten;
pub(crate) mod place;
mod replay;
