//! A file's attributes as a list, wherever they are stored.

use super::Name;
use hectare_units::InodeNr;

/// One attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Its name.
    pub name: Name,
    /// Its value, in the form it has on disk (ACLs: see [`crate::acl`]).
    pub value: Value,
}

/// An attribute's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// The bytes themselves.
    Inline(Vec<u8>),
    /// The bytes are the content of another inode (`ea_inode`).
    Inode {
        /// That inode.
        inode: InodeNr,
        /// How many bytes it holds, at most 2^24.
        size: u32,
        /// The entry's hash, from which the value is verified.
        hash: u32,
    },
}

impl Attr {
    /// The attribute `name` with the bytes `value`.
    #[must_use]
    pub fn new(name: Name, value: impl Into<Vec<u8>>) -> Self {
        Self { name, value: Value::Inline(value.into()) }
    }
}

/// What `set` may do (the flags of `setxattr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// Create it or replace its value.
    #[default]
    Either,
    /// Only create it (`XATTR_CREATE`).
    Create,
    /// Only replace its value (`XATTR_REPLACE`).
    Replace,
}

/// Why an attribute was not set or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetError {
    /// It exists (`EEXIST`).
    #[error("the attribute exists")]
    Exists,
    /// It doesn't exist (`ENODATA`).
    #[error("there is no such attribute")]
    Missing,
}

/// The attribute called `name`.
#[must_use]
pub fn find<'a>(attrs: &'a [Attr], name: &Name) -> Option<&'a Attr> {
    attrs.iter().find(|attr| attr.name == *name)
}

/// Gives the attribute `name` the bytes `value`.
///
/// # Errors
/// If it exists and must not, or doesn't and must; the list is then unchanged.
pub fn set(attrs: &mut Vec<Attr>, name: &Name, value: &[u8], how: How) -> Result<(), SetError> {
    let value = Value::Inline(value.to_vec());
    match attrs.iter_mut().find(|attr| attr.name == *name) {
        Some(_) if how == How::Create => return Err(SetError::Exists),
        None if how == How::Replace => return Err(SetError::Missing),
        Some(attr) => attr.value = value,
        None => attrs.push(Attr { name: name.clone(), value }),
    }
    Ok(())
}

/// Takes the attribute `name` off the list and gives it back.
///
/// # Errors
/// If there is none.
pub fn remove(attrs: &mut Vec<Attr>, name: &Name) -> Result<Attr, SetError> {
    let at = attrs.iter().position(|attr| attr.name == *name).ok_or(SetError::Missing)?;
    Ok(attrs.remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_and_remove_follow_the_flags_of_setxattr() {
        let name = Name::parse(b"user.a").unwrap();
        let mut attrs = Vec::new();
        assert_eq!(set(&mut attrs, &name, b"1", How::Replace), Err(SetError::Missing));
        assert_eq!(set(&mut attrs, &name, b"1", How::Create), Ok(()));
        assert_eq!(set(&mut attrs, &name, b"2", How::Create), Err(SetError::Exists));
        assert_eq!(set(&mut attrs, &name, b"3", How::Replace), Ok(()));
        assert_eq!(find(&attrs, &name), Some(&Attr::new(name.clone(), b"3")));
        assert_eq!(set(&mut attrs, &name, b"4", How::Either), Ok(()));
        assert_eq!(remove(&mut attrs, &name).unwrap(), Attr::new(name.clone(), b"4"));
        assert_eq!(remove(&mut attrs, &name), Err(SetError::Missing));
    }
}
