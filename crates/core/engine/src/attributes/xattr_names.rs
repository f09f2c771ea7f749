//! The names of extended attributes that callers give.

use crate::error::{Error, Result};
use hectare_ext4::xattr::{Index, Name, NameError};

/// The name as it is stored, or the error.
pub(crate) fn parse_name(name: &[u8]) -> Result<Name> {
    Name::parse(name).map_err(|error| match error {
        NameError::Prefix => Error::Unsupported(
            "attribute names begin with user., trusted., security. or system.posix_acl_".into(),
        ),
        NameError::Length => Error::Invalid("an attribute name has 1 to 255 bytes, its prefix included"),
        NameError::Malformed => {
            Error::Invalid("this is no attribute name: nothing follows the prefix, or a zero byte is in it")
        }
    })
}

/// Returns an error for attributes that are not for programs: `system.` belongs to the format, except ACLs.
pub(crate) fn check_outside(name: &Name) -> Result<()> {
    match name.index() {
        Index::USER | Index::TRUSTED | Index::SECURITY | Index::ACL_ACCESS | Index::ACL_DEFAULT => Ok(()),
        _ => Err(Error::Unsupported("attributes of this kind are not for programs".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_a_prefix_that_programs_may_use() {
        for name in ["user.a", "trusted.b", "security.selinux", "system.posix_acl_access"] {
            assert!(parse_name(name.as_bytes()).and_then(|name| check_outside(&name)).is_ok(), "{name}");
        }
        assert!(matches!(parse_name(b"other.a"), Err(Error::Unsupported(_))));
        assert!(matches!(parse_name(&[b"user.".as_slice(), &[b'x'; 256]].concat()), Err(Error::Invalid(_))));
        let data = parse_name(b"system.data").and_then(|name| check_outside(&name));
        assert!(matches!(data, Err(Error::Unsupported(_))), "{data:?}");
    }
}
