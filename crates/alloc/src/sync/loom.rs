//! What loom offers in place of the real thing.
//!
//! Loom takes `SeqCst` on a load or a read-modify-write for `AcqRel`, and would show failures that the
//! language rules out; full fences it models. The atomics here put a fence after each `SeqCst` write and
//! before each `SeqCst` read, which gives these accesses the single order the language promises them.

pub(crate) use ::loom::sync::atomic::fence;
pub(super) use ::loom::sync::{Condvar, Mutex, MutexGuard, RwLock};
pub(crate) use ::loom::sync::{RwLockReadGuard, RwLockWriteGuard};
pub(crate) use ::loom::thread;
use std::sync::atomic::Ordering;

/// A full fence if the access is to have a place in the single order.
fn fence_if_total(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident, $int:ty, { $($op:ident),* }) => {
        /// As in `std`, with a total order of its `SeqCst` accesses.
        #[derive(Debug, Default)]
        pub(crate) struct $name(::loom::sync::atomic::$name);

        #[allow(dead_code)] // the set of `std`, whatever the crate uses of it today
        impl $name {
            pub(crate) fn new(value: $int) -> Self {
                Self(::loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn into_inner(self) -> $int {
                self.0.into_inner()
            }

            pub(crate) fn load(&self, order: Ordering) -> $int {
                fence_if_total(order);
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $int, order: Ordering) {
                self.0.store(value, order);
                fence_if_total(order);
            }

            $(pub(crate) fn $op(&self, value: $int, order: Ordering) -> $int {
                fence_if_total(order);
                let old = self.0.$op(value, order);
                fence_if_total(order);
                old
            })*

            pub(crate) fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                fence_if_total(success);
                let result = self.0.compare_exchange(current, new, success, failure);
                fence_if_total(success);
                result
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange(current, new, success, failure)
            }

            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                f: impl FnMut($int) -> Option<$int>,
            ) -> Result<$int, $int> {
                fence_if_total(success);
                let result = self.0.fetch_update(success, failure, f);
                fence_if_total(success);
                result
            }
        }
    };
}

atomic!(AtomicBool, bool, { swap, fetch_and, fetch_or, fetch_xor });
atomic!(AtomicU32, u32, { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min });
atomic!(AtomicU64, u64, { swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min });
atomic!(AtomicUsize, usize, {
    swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min
});
