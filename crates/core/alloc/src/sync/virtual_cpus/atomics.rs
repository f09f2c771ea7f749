//! Atomics in virtual time: the real ones, used at the CPU's turn and charged for moving their lines.

use super::lines::Use;
use super::run::touch;
use std::sync::atomic::Ordering;

/// How a store is paid: with a full fence the CPU waits for it.
fn store_use(order: Ordering) -> Use {
    if order == Ordering::SeqCst { Use::Update } else { Use::Store }
}

/// One method of an atomic: those of `std` that the crate uses.
macro_rules! method {
    (new, $int:ty) => {
        pub(crate) const fn new(value: $int) -> Self {
            Self(Inner::new(value))
        }
    };
    (load, $int:ty) => {
        pub(crate) fn load(&self, order: Ordering) -> $int {
            touch(self, Use::Load);
            self.0.load(order)
        }
    };
    (store, $int:ty) => {
        pub(crate) fn store(&self, value: $int, order: Ordering) {
            touch(self, store_use(order));
            self.0.store(value, order);
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
            touch(self, Use::Update);
            self.0.compare_exchange(current, new, success, failure)
        }
    };
    (fetch_update, $int:ty) => {
        pub(crate) fn fetch_update(
            &self,
            success: Ordering,
            failure: Ordering,
            f: impl FnMut($int) -> Option<$int>,
        ) -> Result<$int, $int> {
            // A load and an exchange, with no other access between them.
            touch(self, Use::Update);
            self.0.fetch_update(success, failure, f)
        }
    };
    ($op:ident, $int:ty) => {
        pub(crate) fn $op(&self, value: $int, order: Ordering) -> $int {
            touch(self, Use::Update);
            self.0.$op(value, order)
        }
    };
}

macro_rules! atomic {
    ($module:ident, $name:ident, $int:ty, [$($method:ident),*]) => {
        mod $module {
            use super::{Use, store_use, touch};
            use std::sync::atomic::{$name as Inner, Ordering};

            /// As in `std`.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub(crate) struct $name(Inner);

            impl $name {
                $(method!($method, $int);)*
            }
        }
        pub(crate) use $module::$name;
    };
}

atomic!(flag, AtomicBool, bool, [new, load, store, swap]);
atomic!(half, AtomicU32, u32, [new, load, store, fetch_add, fetch_sub]);
atomic!(
    word,
    AtomicU64,
    u64,
    [new, load, store, swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_update, compare_exchange]
);

/// `n` words of zero.
pub(crate) fn zeroed_words(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}
