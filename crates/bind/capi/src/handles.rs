//! Handles: numbers that C takes for pointers.
//!
//! A number leads to an object as long as that is open, and afterwards to nothing: no number is given twice. The
//! lowest two bits name the kind, so that the number of a volume never is one of a file. The objects are in
//! several maps with a lock each, so that threads seldom wait for each other.

use crate::failure::{EBADF, Failure};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const KIND_BITS: u32 = 2;

/// What a handle is of. None is 0, so that no handle is NULL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Volume = 1,
    File = 2,
    Directory = 3,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::File => "file",
            Self::Directory => "directory",
        }
    }
}

/// An open object in use: what closes its handle meanwhile does not end it.
pub(crate) type Held<T> = Arc<T>;

/// The maps that share the objects of one kind.
const PARTS: usize = 64;
/// The last number of an object.
const LAST: usize = usize::MAX >> KIND_BITS;

/// A table of the open objects of one kind.
pub(crate) struct Table<T> {
    parts: [RwLock<BTreeMap<usize, Held<T>>>; PARTS],
    next: AtomicUsize,
    kind: Kind,
}

impl<T: Clone> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { parts: [const { RwLock::new(BTreeMap::new()) }; PARTS], next: AtomicUsize::new(0), kind }
    }

    /// The handle of a new object: never NULL.
    pub(crate) fn insert<H>(&self, object: T) -> Result<*mut H, Failure> {
        let after = |number: usize| (number < LAST).then(|| number + 1);
        let number = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).map_err(|_| {
            Failure::new(ENFILE, format!("all numbers for the handles of a {} are used up", self.kind.name()))
        })?;
        self.part(number).write().insert(number, Held::new(object));
        // Never followed.
        Ok(std::ptr::without_provenance_mut(number << KIND_BITS | self.kind as usize))
    }

    /// The object of a handle, which stays while it is held, even if another thread closes the handle.
    pub(crate) fn get<H>(&self, handle: *mut H) -> Result<Held<T>, Failure> {
        let number = self.number(handle)?;
        self.part(number).read().get(&number).cloned().ok_or_else(|| self.stale())
    }

    /// The object of a handle, which leads to nothing any more. Of two that close it at the same time one gets it.
    pub(crate) fn take<H>(&self, handle: *mut H) -> Result<T, Failure> {
        let number = self.number(handle)?;
        let taken = self.part(number).write().remove(&number);
        taken.map(Arc::unwrap_or_clone).ok_or_else(|| self.stale())
    }

    fn part(&self, number: usize) -> &RwLock<BTreeMap<usize, Held<T>>> {
        &self.parts[number % PARTS]
    }

    fn number<H>(&self, handle: *mut H) -> Result<usize, Failure> {
        let number = handle.addr();
        let kind = number & ((1 << KIND_BITS) - 1);
        if kind == self.kind as usize { Ok(number >> KIND_BITS) } else { Err(self.stale()) }
    }

    fn stale(&self) -> Failure {
        Failure::new(EBADF, format!("the handle leads to no open {}", self.kind.name()))
    }
}

const ENFILE: i32 = 23;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_handle_leads_to_its_object_until_it_is_closed() {
        static TABLE: Table<u32> = Table::new(Kind::File);
        let first: *mut u8 = TABLE.insert(7).ok().unwrap();
        assert!(!first.is_null());
        assert_eq!(TABLE.get(first).ok().as_deref(), Some(&7));
        assert_eq!(TABLE.take(first).ok(), Some(7));
        assert!(TABLE.take(first).is_err());
        let second: *mut u8 = TABLE.insert(8).ok().unwrap();
        assert_ne!(first, second, "a place that is used again has another handle");
        assert!(TABLE.get(first).is_err());
        static OTHERS: Table<u32> = Table::new(Kind::Directory);
        let other: *mut u8 = OTHERS.insert(9).ok().unwrap();
        assert!(TABLE.get(other).is_err() && OTHERS.get(second).is_err(), "kinds have numbers of their own");
        for wrong in [0, 1, 3, usize::MAX, usize::MAX / 2] {
            let wrong: *mut u8 = std::ptr::without_provenance_mut(wrong);
            assert!(wrong == second || TABLE.get(wrong).is_err());
        }
    }

    #[test]
    fn regression_a_closed_handle_came_again() {
        static TABLE: Table<u32> = Table::new(Kind::File);
        let first: *mut u8 = TABLE.insert(0).ok().unwrap();
        assert_eq!(TABLE.take(first).ok(), Some(0));
        // A generation of eleven bits came again after 2047 uses of a place.
        for number in 1..if cfg!(miri) { 100 } else { 10_000 } {
            let next: *mut u8 = TABLE.insert(number).ok().unwrap();
            assert!(next != first && TABLE.get(first).is_err(), "after {number} more");
            assert_eq!(TABLE.take(next).ok(), Some(number));
        }
        TABLE.next.store(LAST, Ordering::Relaxed);
        assert!(TABLE.insert::<u8>(1).is_err(), "there are no more numbers");
    }

    #[test]
    fn regression_two_threads_that_closed_at_once_were_both_told_that_they_had() {
        static TABLE: Table<u32> = Table::new(Kind::File);
        // Miri interprets: with all of them the test would not end in minutes.
        const HANDLES: u32 = if cfg!(miri) { 100 } else { 20_000 };
        let barrier = Barrier::new(2);
        let handles: Vec<usize> =
            (0..HANDLES).map(|number| TABLE.insert::<u8>(number).ok().unwrap().addr()).collect();
        let close_all = || {
            let closes = |handle: &usize| {
                barrier.wait();
                TABLE.take(std::ptr::without_provenance_mut::<u8>(*handle)).is_ok()
            };
            handles.iter().filter(|handle| closes(handle)).count()
        };
        let closed = std::thread::scope(|scope| {
            let other = scope.spawn(close_all);
            close_all() + other.join().unwrap()
        });
        assert_eq!(closed, handles.len());
    }
}
