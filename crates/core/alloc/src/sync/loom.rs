//! Loom's replacements for the real locks and atomics.
//!
//! Loom takes `SeqCst` on a load or a read-modify-write for `AcqRel`, and would show failures that the
//! language rules out; full fences it models. The atomics here put a fence after each `SeqCst` write and
//! before each `SeqCst` read, which gives these accesses the single order the language promises them.

use ::loom::sync::atomic::fence;
pub(super) use ::loom::sync::{Mutex, MutexGuard};
pub(crate) use ::loom::thread;
use std::sync::atomic::Ordering;

/// A full fence if the access is to have a place in the single order.
fn fence_if_total(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

/// One method of an atomic: those of `std` that the crate uses.
macro_rules! method {
    (new, $int:ty) => {
        pub(crate) fn new(value: $int) -> Self {
            Self(Inner::new(value))
        }
    };
    (load, $int:ty) => {
        pub(crate) fn load(&self, order: Ordering) -> $int {
            fence_if_total(order);
            self.0.load(order)
        }
    };
    (store, $int:ty) => {
        pub(crate) fn store(&self, value: $int, order: Ordering) {
            self.0.store(value, order);
            fence_if_total(order);
        }
    };
    (compare_exchange, $int:ty) => {
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
    };
    (fetch_update, $int:ty) => {
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
    };
    ($op:ident, $int:ty) => {
        pub(crate) fn $op(&self, value: $int, order: Ordering) -> $int {
            fence_if_total(order);
            let old = self.0.$op(value, order);
            fence_if_total(order);
            old
        }
    };
}

macro_rules! atomic {
    ($module:ident, $name:ident, $int:ty, [$($method:ident),*]) => {
        mod $module {
            use super::fence_if_total;
            use ::loom::sync::atomic::$name as Inner;
            use std::sync::atomic::Ordering;

            /// As in `std`, with a total order of its `SeqCst` accesses.
            #[derive(Debug, Default)]
            pub(crate) struct $name(Inner);

            impl $name {
                $(method!($method, $int);)*
            }
        }
        pub(crate) use $module::$name;
    };
}

atomic!(flag, AtomicBool, bool, [new, load, store, swap]);
atomic!(half, AtomicU32, u32, [new, load, store, swap, fetch_add, fetch_sub]);
atomic!(
    word,
    AtomicU64,
    u64,
    [new, load, store, swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_update, compare_exchange]
);
