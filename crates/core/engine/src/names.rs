//! Names: directories, and the operations that find, make and remove what they name.
//!
//! Operations are functions on [`crate::state::Core`]; none of them knows [`crate::Volume`].

pub(crate) mod create;
pub(crate) mod directory;
pub(crate) mod gather;
pub(crate) mod inline_directory;
pub(crate) mod lookup;
pub(crate) mod node;
pub(crate) mod paths;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod tmpfile;
