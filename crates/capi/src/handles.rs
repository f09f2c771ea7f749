//! Handles: numbers that C takes for pointers.
//!
//! A number leads to an object as long as that is open; afterwards it leads to nothing, also when the place
//! is used again, since each use has a generation of its own. The table is free of locks: a look-up costs
//! some nanoseconds.

use crate::failure::{EBADF, Failure};
use sharded_slab::Slab;
use std::sync::LazyLock;

/// A table of the open objects of one kind.
pub(crate) struct Table<T> {
    slab: LazyLock<Slab<T>>,
    what: &'static str,
}

impl<T: Clone> Table<T> {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { slab: LazyLock::new(Slab::new), what }
    }

    /// The handle of a new object: never NULL.
    pub(crate) fn insert<H>(&self, object: T) -> Result<*mut H, Failure> {
        let key = self.slab.insert(object);
        let key = key.ok_or_else(|| Failure::new(ENFILE, format!("too many {}s are open", self.what)))?;
        // Never followed.
        Ok(std::ptr::without_provenance_mut(key.wrapping_add(1)))
    }

    /// The object of a handle.
    pub(crate) fn get<H>(&self, handle: *mut H) -> Result<T, Failure> {
        let found = self.slab.get(handle.addr().wrapping_sub(1));
        found.map(|entry| T::clone(&entry)).ok_or_else(|| self.stale())
    }

    /// The object of a handle, which leads to nothing any more.
    pub(crate) fn take<H>(&self, handle: *mut H) -> Result<T, Failure> {
        let key = handle.addr().wrapping_sub(1);
        let object = self.get(handle)?;
        // Of two that close it at the same time one does.
        if self.slab.remove(key) { Ok(object) } else { Err(self.stale()) }
    }

    fn stale(&self) -> Failure {
        Failure::new(EBADF, format!("the handle leads to no open {}", self.what))
    }
}

const ENFILE: i32 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_to_its_object_until_it_is_closed() {
        static TABLE: Table<u32> = Table::new("number");
        let first: *mut u8 = TABLE.insert(7).ok().unwrap();
        assert!(!first.is_null());
        assert_eq!(TABLE.get(first).ok(), Some(7));
        assert_eq!(TABLE.take(first).ok(), Some(7));
        assert!(TABLE.take(first).is_err());
        let second: *mut u8 = TABLE.insert(8).ok().unwrap();
        assert_ne!(first, second, "a place that is used again has another handle");
        assert!(TABLE.get(first).is_err());
        for wrong in [0, 1, 3, usize::MAX, usize::MAX / 2] {
            let wrong: *mut u8 = std::ptr::without_provenance_mut(wrong);
            assert!(wrong == second || TABLE.get(wrong).is_err());
        }
    }
}
