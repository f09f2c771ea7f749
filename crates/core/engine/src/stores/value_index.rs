//! Finds the inodes that hold attribute values (`ea_inode`) by the values' hashes, so that equal values share
//! one.
//!
//! Like the kernel's cache this is a memory of what was seen: values that were set or read since the volume
//! was opened. It is bounded; what it forgets is stored twice, which is correct.
//!
//! The lock here decides between two that use one value at once, one of which is the last: an inode that is
//! taken under it has users, and one that lost its last user under it is never taken again. It comes after a
//! handle and before the data of an inode.

use crate::stores::inode_cache::CachedInode;
use hectare_units::InodeNr;
use std::collections::HashMap;
use std::sync::Arc;

/// The most values remembered.
const VALUES_MAX: usize = 16_384;

/// The inodes of values, by hash, and those to be freed.
#[derive(Default)]
pub(crate) struct ValueIndex {
    by_hash: HashMap<u32, InodeNr>,
    dropped: Vec<Arc<CachedInode>>,
}

impl ValueIndex {
    /// The inode that holds, or held, a value of this hash.
    pub(crate) fn find(&self, hash: u32) -> Option<InodeNr> {
        self.by_hash.get(&hash).copied()
    }

    /// Remembers where the value of a hash lies.
    pub(crate) fn note(&mut self, hash: u32, nr: InodeNr) {
        if self.by_hash.len() >= VALUES_MAX {
            self.by_hash.clear();
        }
        self.by_hash.insert(hash, nr);
    }

    /// Forgets an inode that holds the value of a hash no more.
    pub(crate) fn forget(&mut self, hash: u32, nr: InodeNr) {
        if self.find(hash) == Some(nr) {
            self.by_hash.remove(&hash);
        }
    }

    /// Adds an inode whose value no attribute uses any more: an orphan, to be freed without a handle.
    pub(crate) fn drop_value(&mut self, inode: &Arc<CachedInode>) {
        self.dropped.push(Arc::clone(inode));
    }

    /// The inodes to be freed; each is returned once.
    pub(crate) fn take_dropped(&mut self) -> Vec<Arc<CachedInode>> {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_until_they_are_forgotten() {
        let mut index = ValueIndex::default();
        index.note(7, InodeNr::new(20));
        assert_eq!(index.find(7), Some(InodeNr::new(20)));
        index.forget(7, InodeNr::new(21));
        assert_eq!(index.find(7), Some(InodeNr::new(20)), "another inode was meant");
        index.forget(7, InodeNr::new(20));
        assert_eq!(index.find(7), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut index = ValueIndex::default();
        for n in 0..40_000 {
            index.note(n, InodeNr::new(20));
            assert!(index.by_hash.len() <= VALUES_MAX);
        }
        assert_eq!(index.find(39_999), Some(InodeNr::new(20)));
    }
}
