//! Handles: numbers that C takes for pointers.
//!
//! A number leads to an object as long as that is open; afterwards it leads to nothing, also when the place
//! is used again, since each use has a generation of its own. The lowest two bits name the kind, so that the
//! number of a volume never is one of a file. The table is free of locks: a look-up costs some nanoseconds.

use crate::failure::{EBADF, Failure};
use sharded_slab::{Config, Entry, Slab};
use std::ops::Deref;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keys leave the bits free that name the kind.
pub(crate) struct Keys;

impl Config for Keys {
    const RESERVED_BITS: usize = KIND_BITS as usize;
}

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

/// An object in the table.
struct Open<T> {
    object: T,
    /// The table itself lets two threads remove what a third one holds.
    closed: AtomicBool,
}

/// An open object in use: what closes its handle meanwhile does not end it.
pub(crate) struct Held<'a, T>(Entry<'a, Open<T>, Keys>);

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.object
    }
}

/// A table of the open objects of one kind.
pub(crate) struct Table<T> {
    slab: LazyLock<Slab<Open<T>, Keys>>,
    kind: Kind,
}

impl<T: Clone> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { slab: LazyLock::new(Slab::new_with_config), kind }
    }

    /// The handle of a new object: never NULL.
    pub(crate) fn insert<H>(&self, object: T) -> Result<*mut H, Failure> {
        let key = self.slab.insert(Open { object, closed: AtomicBool::new(false) });
        let key = key.ok_or_else(|| {
            Failure::new(ENFILE, format!("too many handles of a {} are open", self.kind.name()))
        })?;
        // Never followed.
        Ok(std::ptr::without_provenance_mut(key << KIND_BITS | self.kind as usize))
    }

    /// The object of a handle, which stays while it is held, even if another thread closes the handle.
    pub(crate) fn get<H>(&self, handle: *mut H) -> Result<Held<'_, T>, Failure> {
        self.slab.get(self.key(handle)?).map(Held).ok_or_else(|| self.stale())
    }

    /// The object of a handle, which leads to nothing any more.
    pub(crate) fn take<H>(&self, handle: *mut H) -> Result<T, Failure> {
        let key = self.key(handle)?;
        let held = self.get(handle)?;
        // Of two that close it at the same time one does.
        if held.0.closed.swap(true, Ordering::Relaxed) || !self.slab.remove(key) {
            return Err(self.stale());
        }
        Ok(held.clone())
    }

    fn key<H>(&self, handle: *mut H) -> Result<usize, Failure> {
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
