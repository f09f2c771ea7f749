//! Locks on the pages of a mapped file: page p has lock p modulo [`STRIPES`]. Neighbours have different
//! locks, and an operation takes those of all its pages, in the order of the locks, each once; so operations
//! never deadlock.
//!
//! Each lock guards the mapping that it returns: while one is held the mapping stays, and a new one can be
//! put in place only under all of them.

use super::mapping::Mapping;
use crate::Span;
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// What one lock is for: the unit that readers see whole.
pub(super) const PAGE_LEN: u64 = 4096;

/// Enough that a few dozen threads seldom meet; 128 KiB for each device.
const STRIPES: usize = 1024;

/// How much of an operation is locked at once; a piece ends at a multiple of it.
pub(super) const PIECE_LEN: u64 = 1 << 20;
const _: () = assert!(PIECE_LEN / PAGE_LEN <= STRIPES as u64);
const _: () = assert!(super::mapping::WINDOW_LEN.is_multiple_of(PIECE_LEN));

/// Alone in the two cache lines that a processor may fetch together.
#[repr(align(128))]
struct Stripe(RwLock<Arc<Mapping>>);

/// All locks of a device.
pub(super) struct Stripes(Box<[Stripe]>);

/// Some of the locks, held.
pub(super) struct StripeGuards<G> {
    first: G,
    /// Those of the other pages, if there are any.
    _rest: Vec<G>,
}

type Shared<'a> = StripeGuards<RwLockReadGuard<'a, Arc<Mapping>>>;
type Exclusive<'a> = StripeGuards<RwLockWriteGuard<'a, Arc<Mapping>>>;

/// All of the locks, held exclusively.
pub(super) struct Whole<'a>(Vec<RwLockWriteGuard<'a, Arc<Mapping>>>);

impl Stripes {
    pub(super) fn new(mapping: Arc<Mapping>) -> Self {
        Self((0..STRIPES).map(|_| Stripe(RwLock::new(Arc::clone(&mapping)))).collect())
    }

    /// Keeps writers of a range out.
    pub(super) fn share(&self, span: Span) -> Shared<'_> {
        self.hold(span, |stripe| stripe.0.read())
    }

    /// Locks a range exclusively.
    pub(super) fn exclude(&self, span: Span) -> Exclusive<'_> {
        self.hold(span, |stripe| stripe.0.write())
    }

    /// Locks everything exclusively.
    pub(super) fn exclude_all(&self) -> Whole<'_> {
        Whole(self.0.iter().map(|stripe| stripe.0.write()).collect())
    }

    fn hold<'a, G>(&'a self, span: Span, lock: impl Fn(&'a Stripe) -> G) -> StripeGuards<G> {
        let [first, second] = numbers(span);
        let mut stripes = self.0[first].iter().chain(&self.0[second]);
        // An empty range has no page; any lock hands out the mapping.
        let lowest = stripes.next().unwrap_or(&self.0[0]);
        StripeGuards { first: lock(lowest), _rest: stripes.map(lock).collect() }
    }
}

/// The numbers of the locks of a range, ascending.
fn numbers(span: Span) -> [Range<usize>; 2] {
    let stripes = u64_of(STRIPES);
    let first = span.at.get() / PAGE_LEN;
    let end = span.end().map_or(u64::MAX, Bytes::get).div_ceil(PAGE_LEN);
    let count = end - first.min(end);
    if count >= stripes {
        return [0..STRIPES, 0..0];
    }
    let start = index_of(first % stripes);
    let stop = start + index_of(count);
    if stop <= STRIPES { [start..stop, 0..0] } else { [0..stop - STRIPES, start..STRIPES] }
}

impl<G: Deref<Target = Arc<Mapping>>> StripeGuards<G> {
    pub(super) fn mapping(&self) -> &Mapping {
        &self.first
    }
}

impl Shared<'_> {
    /// Copies from the mapping, of whose range these are the locks.
    pub(super) fn copy_out(&self, at: Bytes, target: &mut [u8]) {
        self.mapping().copy_out(at, target);
    }
}

impl Exclusive<'_> {
    /// Copies into the mapping, of whose range these are the locks.
    pub(super) fn copy_in(&self, at: Bytes, source: &[u8]) {
        self.mapping().copy_in(at, source);
    }
}

impl Whole<'_> {
    /// Puts another mapping in place of the one there is, which ends.
    pub(super) fn replace(&mut self, mapping: &Arc<Mapping>) {
        self.0.iter_mut().for_each(|held| **held = Arc::clone(mapping));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(at: u64, len: u64) -> Vec<usize> {
        numbers(Span::new(Bytes::new(at), Bytes::new(len))).into_iter().flatten().collect()
    }

    #[test]
    fn a_range_has_the_locks_of_its_pages_ascending_and_once() {
        assert_eq!(locks(0, 1), [0]);
        assert_eq!(locks(4095, 2), [0, 1]);
        assert_eq!(locks(4096, 4096), [1]);
        assert_eq!(locks(4096 * 1023, 8192), [0, 1023]);
        assert_eq!(locks(4096 * 2047 + 5, 4096), [0, 1023]);
        assert_eq!(locks(4096 * 5, 4096 * 1023).len(), 1023);
        assert_eq!(locks(4096 * 5 + 1, 4096 * 1023), (0..1024).collect::<Vec<_>>());
        assert_eq!(locks(77, u64::MAX - 77).len(), 1024);
        assert!(locks(0, 0).is_empty() && locks(u64::MAX, 0).len() <= 1);
        for (at, len) in [(0, 1 << 20), (3 << 20, 1 << 20), (4_190_000, 9000)] {
            let locks = locks(at, len);
            assert!(locks.is_sorted_by(|a, b| a < b), "{locks:?}");
        }
    }
}
