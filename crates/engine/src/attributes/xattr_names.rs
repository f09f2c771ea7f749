//! The names of extended attributes that callers give.

use crate::error::{Error, Result};
use hectare_ext4::xattr::{Index, Name, NameError};

pub(crate) fn parse_name(name: &[u8]) -> Result<Name> {
    Name::parse(name).map_err(|error| match error {
        NameError::Prefix => Error::Unsupported(
            "attribute names begin with user., trusted., security. or system.posix_acl_".into(),
        ),
        NameError::Length | NameError::Malformed => Error::Invalid("this is no attribute name"),
    })
}

/// Returns an error for attributes that are not for programs: `system.` belongs to the format, except ACLs.
pub(crate) fn check_outside(name: &Name) -> Result<()> {
    match name.index() {
        Index::USER | Index::TRUSTED | Index::SECURITY | Index::ACL_ACCESS | Index::ACL_DEFAULT => Ok(()),
        _ => Err(Error::Unsupported("attributes of this kind are not for programs".into())),
    }
}
