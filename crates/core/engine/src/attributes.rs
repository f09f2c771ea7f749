//! Attributes of inodes: metadata, flags, permissions, extended attributes.
//!
//! Operations are functions on [`crate::state::Core`]; none of them knows [`crate::Volume`].

pub(crate) mod flags;
pub(crate) mod freeing;
pub(crate) mod grow;
pub(crate) mod label;
pub(crate) mod ownership;
pub(crate) mod permission;
pub(crate) mod stat;
pub(crate) mod value_inodes;
pub(crate) mod xattr_names;
pub(crate) mod xattr_permission;
pub(crate) mod xattr_read;
pub(crate) mod xattr_store;
pub(crate) mod xattrs;
