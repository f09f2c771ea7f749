//! Which extended attributes ext4 can hold.

use crate::tree::Xattr;
use hectare_host::Attribute;

/// Whether ext4 can store an attribute of this name.
pub(crate) fn fits_ext4(name: &[u8]) -> bool {
    let in_space = |space: &[u8]| name.strip_prefix(space).is_some_and(|rest| !rest.is_empty());
    in_space(b"user.")
        || in_space(b"trusted.")
        || in_space(b"security.")
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

/// The attributes of a file of the host as those of a node.
pub(crate) fn of_host(found: Vec<Attribute>) -> Vec<Xattr> {
    found.into_iter().map(|Attribute { name, value }| Xattr { name, value }).collect()
}
