//! A volume with changes over it that are not written yet: where they are kept, how they are written, and how
//! they are taken back.
//!
//! What it is not: it knows nothing of what is changed and why.

pub(crate) mod order;
pub(crate) mod overlay;
pub(crate) mod pages;
pub(crate) mod staged;
pub(crate) mod undo;
pub(crate) mod undo_file;
pub(crate) mod write_out;
