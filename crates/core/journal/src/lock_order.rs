//! The order in which one thread may take locks, checked in debug builds.
//!
//! Two threads that take the same locks in different orders can wait for each other for ever, and no test is
//! sure to hit the moment. So every lock has a rank, and a thread takes locks in ascending rank only. Code
//! that takes a lock calls [`enter`] first and keeps the returned value as long as the lock; a violation
//! panics at once, in whatever order the threads happen to run. Release builds check nothing and pay nothing.
//!
//! It does not check the order among locks of one rank (parent before child, lower inode number first; tree
//! blocks from the root down): that is up to the callers. The allocator is below this crate and checks
//! nothing; its callers enter [`LockRank::Group`] if they want its locks covered.

use std::fmt;
use std::marker::PhantomData;

/// What a lock is for, in the order in which a thread may take them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockRank {
    /// A whole operation on a name or an inode. Several at once: parent before child, lower inode first.
    Operation,
    /// Bytes of a file that are written over in place. One range at a time, under its operation lock.
    Range,
    /// An open handle, or the commit's exclusive step. One at a time.
    Handle,
    /// The data of an inode: its map and fields. Several at once: lower inode first.
    InodeData,
    /// A group of the allocator. One at a time.
    Group,
    /// A cached block. Several at once: from the root of a structure down.
    Block,
}

impl LockRank {
    /// Whether a thread that holds a lock of this rank may take another one of it.
    const fn repeats(self) -> bool {
        matches!(self, Self::Operation | Self::InodeData | Self::Block)
    }
}

impl fmt::Display for LockRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operation => "an operation lock",
            Self::Range => "a range of a file",
            Self::Handle => "a handle",
            Self::InodeData => "an inode's data lock",
            Self::Group => "a group lock",
            Self::Block => "a block lock",
        })
    }
}

/// A lock's place in the order, held as long as the lock is. It stays on its thread.
#[derive(Debug)]
#[must_use = "keep it as long as the lock"]
pub struct Ranked {
    rank: LockRank,
    // The order is one thread's: a rank entered here can't be left elsewhere.
    _thread: PhantomData<*const ()>,
}

/// Declares that this thread is about to take a lock of `rank`.
///
/// # Panics
/// In debug builds, if it holds a lock that must not be held then.
#[track_caller]
pub fn enter(rank: LockRank) -> Ranked {
    check(rank);
    held::push(rank);
    Ranked { rank, _thread: PhantomData }
}

/// Declares that this thread is about to wait for a thread that takes a lock of `rank`.
///
/// # Panics
/// In debug builds, if it holds a lock that must not be held then.
#[track_caller]
pub fn check(rank: LockRank) {
    if let Some(top) = held::top() {
        let fine = top < rank || (top == rank && rank.repeats());
        assert!(fine, "lock order: this thread is about to wait for {rank} while it holds {top}");
    }
}

impl Drop for Ranked {
    fn drop(&mut self) {
        held::remove(self.rank);
    }
}

/// The ranks this thread holds.
#[cfg(debug_assertions)]
mod held {
    use super::LockRank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn top() -> Option<LockRank> {
        HELD.with_borrow(|held| held.iter().max().copied())
    }

    pub(super) fn push(rank: LockRank) {
        HELD.with_borrow_mut(|held| held.push(rank));
    }

    /// Locks may be released in any order, so it is not always the last one that goes.
    pub(super) fn remove(rank: LockRank) {
        HELD.with_borrow_mut(|held| {
            if let Some(at) = held.iter().rposition(|one| *one == rank) {
                held.remove(at);
            }
        });
    }
}

/// Release builds keep no record.
#[cfg(not(debug_assertions))]
mod held {
    use super::LockRank;

    pub(super) const fn top() -> Option<LockRank> {
        None
    }

    pub(super) const fn push(_: LockRank) {}

    pub(super) const fn remove(_: LockRank) {}
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn ascending_order_is_fine_and_is_released_in_any_order() {
        let operation = enter(LockRank::Operation);
        let child = enter(LockRank::Operation);
        let handle = enter(LockRank::Handle);
        drop(operation);
        let block = enter(LockRank::Block);
        drop(handle);
        drop(child);
        drop(block);
        drop(enter(LockRank::Operation));
    }

    #[test]
    #[should_panic(expected = "about to wait for an operation lock while it holds a group lock")]
    fn descending_order_panics() {
        let _group = enter(LockRank::Group);
        let _operation = enter(LockRank::Operation);
    }

    #[test]
    #[should_panic(expected = "about to wait for a handle while it holds an inode's data lock")]
    fn a_lock_in_between_counts_although_a_lower_one_came_later() {
        let _data = enter(LockRank::InodeData);
        check(LockRank::Handle);
    }

    #[test]
    #[should_panic(expected = "about to wait for a group lock while it holds a group lock")]
    fn groups_are_taken_one_at_a_time() {
        let _first = enter(LockRank::Group);
        let _second = enter(LockRank::Group);
    }
}
