//! The distinct sets of extended attributes of a tree under construction.
//!
//! A node keeps the *stored form* of its set: 0 for none, else one more than the set's number. Sets are never
//! removed; those that no node has any more are left out by `finish`.

use crate::error::Error;
use crate::tree::Xattr;
use hectare_ext4::acl::Acl;
use hectare_units::{low32, u64_of, usize_of};
use std::collections::HashMap;
use std::sync::Arc;

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The most bytes of extended attributes that a tree keeps in memory.
const LEN_MAX: u64 = 1 << 30;

/// All sets, each once.
#[derive(Debug, Default)]
pub(crate) struct XattrSets {
    sets: Vec<Arc<[Xattr]>>,
    numbers: HashMap<Arc<[Xattr]>, u32>,
    /// Bytes of all sets.
    len: u64,
}

impl XattrSets {
    /// The stored form of a set; of several attributes of one name the last one counts.
    pub(crate) fn store(&mut self, mut xattrs: Vec<Xattr>) -> Result<u32, Error> {
        if xattrs.is_empty() {
            return Ok(0);
        }
        xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        xattrs.dedup_by(|later, earlier| {
            let is_same = later.name == earlier.name;
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        if let Some(known) = self.numbers.get(&*xattrs) {
            return Ok(*known);
        }
        let len: usize = xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
        self.len += u64_of(len);
        if self.len > LEN_MAX {
            return Err(Error::TooMany { what: "bytes of extended attributes", limit: LEN_MAX });
        }
        let set: Arc<[Xattr]> = xattrs.into();
        self.sets.push(set.clone());
        let stored = low32(u64_of(self.sets.len())); // 2^32 sets are more than LEN_MAX bytes
        self.numbers.insert(set, stored);
        Ok(stored)
    }

    /// The set of a stored form.
    pub(crate) fn get(&self, stored: u32) -> &[Xattr] {
        stored.checked_sub(1).map_or(&[], |at| &self.sets[usize_of(at)])
    }

    /// The stored form of a set with these attributes set in it: each replaces one of its name.
    pub(crate) fn with(&mut self, stored: u32, added: &[Xattr]) -> Result<u32, Error> {
        let xattrs = self.get(stored).iter().chain(added).cloned().collect();
        self.store(xattrs)
    }

    /// The stored form of a set after a change of its node's mode: an access ACL follows it.
    pub(crate) fn chmod(&mut self, stored: u32, mode: u16) -> Result<u32, Error> {
        // What is no ACL is refused when the set is laid out.
        let acl = self.get(stored).iter().find(|xattr| &*xattr.name == ACL_ACCESS);
        let Some(mut acl) = acl.and_then(|xattr| Acl::from_xattr(&xattr.value).ok().flatten()) else {
            return Ok(stored);
        };
        acl.chmod(mode);
        self.with(stored, &[Xattr { name: ACL_ACCESS.into(), value: acl.to_xattr().into() }])
    }

    /// All sets, by number.
    pub(crate) fn into_sets(self) -> Vec<Arc<[Xattr]>> {
        self.sets
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn xattr(name: &[u8], value: &[u8]) -> Xattr {
        Xattr { name: name.into(), value: value.into() }
    }

    #[test]
    fn equal_sets_are_one_and_an_attribute_replaces_its_name() {
        let mut sets = XattrSets::default();
        let a = sets.store(vec![xattr(b"user.b", b"1"), xattr(b"user.a", b"2")]).unwrap();
        assert_eq!(sets.store(vec![xattr(b"user.a", b"2"), xattr(b"user.b", b"1")]).unwrap(), a);
        let b = sets.with(a, &[xattr(b"user.a", b"3")]).unwrap();
        assert_eq!(sets.get(b), [xattr(b"user.a", b"3"), xattr(b"user.b", b"1")]);
        assert_eq!(sets.with(b, &[xattr(b"user.a", b"2")]).unwrap(), a);
        assert_eq!((sets.store(Vec::new()).unwrap(), sets.get(0)), (0, &[][..]));
    }

    #[test]
    fn regression_of_two_attributes_of_one_name_the_last_one_counts() {
        let mut sets = XattrSets::default();
        let twice = sets.with(0, &[xattr(b"user.a", b"2"), xattr(b"user.b", b""), xattr(b"user.a", b"1")]);
        assert_eq!(sets.get(twice.unwrap()), [xattr(b"user.a", b"1"), xattr(b"user.b", b"")]);
    }
}
