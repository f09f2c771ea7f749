//! Caches where a file's bytes lie: a few runs of written blocks, found again without a lock.
//!
//! Reads and overwrites of an open file mostly meet the run of the previous one. Walking the tree for that
//! costs a lock, a copy of the root and, for larger files, a node; a cached run costs a few loads. Readers
//! take no lock and write to nothing shared; each slot is a sequence lock.
//!
//! Invariants: a run is kept only while the inode can't change (under its data lock), and every change of the
//! inode makes all runs kept before it void ([`Runs::forget`], under the same lock held exclusively). So what
//! [`Runs::find`] finds is true as long as the map can't change, for which the caller holds the operation
//! lock. A run lies inside the size of the file.
//!
//! What it is not: a cache that must be consulted. A caller that finds nothing reads the map.

use hectare_units::{Bytes, index_of, u64_of};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Slots of a file.
const SLOTS: usize = 8;
/// Bytes of the file, as a power of two, that share a slot: those of the longest extent with blocks of 4 KiB,
/// so that a file of few long extents has a slot for each.
const SLOT_SHIFT: u32 = 27;
/// Set beside a place (which is a multiple of the block size) if the run may be written over.
const WRITABLE: u64 = 1;

/// A run of a file's bytes that is contiguous on the device, in written blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first byte of the file.
    pub(crate) start: u64,
    /// The byte of the file after the last.
    pub(crate) end: u64,
    /// Where the first byte lies; at the start of a block.
    pub(crate) place: Bytes,
    /// Whether the file may be written.
    pub(crate) writable: bool,
}

/// One run, valid between two equal and even readings of `sequence`.
#[derive(Default)]
struct Slot {
    sequence: AtomicU64,
    version: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    place: AtomicU64,
}

/// The runs of one file.
#[derive(Default)]
pub(crate) struct Runs {
    /// Counts the changes of the inode.
    version: AtomicU64,
    slots: OnceLock<Box<[Slot; SLOTS]>>,
}

impl Runs {
    /// Invalidates all cached runs. The caller holds the inode's data lock exclusively.
    pub(crate) fn forget(&self) {
        if self.slots.get().is_some() {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Where the `len` bytes from `at` on lie, and whether they may be overwritten, if one cached run holds
    /// all of them.
    pub(crate) fn find(&self, at: u64, len: usize) -> Option<(Bytes, bool)> {
        let slot = &self.slots.get()?[slot_of(at)];
        let version = self.version.load(Ordering::Acquire);
        let sequence = slot.sequence.load(Ordering::Acquire);
        let kept_for = slot.version.load(Ordering::Relaxed);
        let start = slot.start.load(Ordering::Relaxed);
        let end = slot.end.load(Ordering::Relaxed);
        let place = slot.place.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = sequence.is_multiple_of(2) && slot.sequence.load(Ordering::Relaxed) == sequence;
        if !whole || kept_for != version || at < start || end.checked_sub(at)? < u64_of(len) {
            return None;
        }
        Some((Bytes::new((place & !WRITABLE) + (at - start)), place & WRITABLE != 0))
    }

    /// Caches a run that holds byte `at`. The caller holds the inode's data lock. If another thread is
    /// writing the same slot, that thread's run stays.
    pub(crate) fn keep(&self, at: u64, run: &Run) {
        let slot = &self.slots.get_or_init(Box::default)[slot_of(at)];
        let sequence = slot.sequence.load(Ordering::Relaxed);
        if !sequence.is_multiple_of(2)
            || slot
                .sequence
                .compare_exchange(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        fence(Ordering::Release);
        slot.version.store(self.version.load(Ordering::Relaxed), Ordering::Relaxed);
        slot.start.store(run.start, Ordering::Relaxed);
        slot.end.store(run.end, Ordering::Relaxed);
        slot.place.store(run.place.get() | u64::from(run.writable), Ordering::Relaxed);
        slot.sequence.store(sequence + 2, Ordering::Release);
    }
}

fn slot_of(at: u64) -> usize {
    index_of((at >> SLOT_SHIFT) % u64_of(SLOTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, end: u64, place: u64) -> Run {
        Run { start, end, place: Bytes::new(place), writable: true }
    }

    #[test]
    fn a_run_is_found_for_what_lies_in_it() {
        let runs = Runs::default();
        assert_eq!(runs.find(0, 1), None);
        runs.keep(5000, &run(4096, 9000, 1 << 20));
        assert_eq!(runs.find(4096, 4904), Some((Bytes::new(1 << 20), true)));
        assert_eq!(runs.find(8999, 1), Some((Bytes::new((1 << 20) + 4903), true)));
        assert_eq!((runs.find(4095, 1), runs.find(4096, 4905), runs.find(9001, 0)), (None, None, None));
        runs.keep(5000, &Run { writable: false, ..run(4096, 9000, 4096) });
        assert_eq!(runs.find(4096, 1), Some((Bytes::new(4096), false)));
    }

    #[test]
    fn a_change_voids_what_was_kept_before_it() {
        let runs = Runs::default();
        runs.forget();
        runs.keep(0, &run(0, 100, 4096));
        assert!(runs.find(0, 1).is_some());
        runs.forget();
        assert_eq!(runs.find(0, 1), None);
        runs.keep(0, &run(0, 100, 8192));
        assert_eq!(runs.find(1, 1), Some((Bytes::new(8193), true)));
    }

    #[test]
    fn long_extents_have_slots_of_their_own() {
        let runs = Runs::default();
        for n in 0..8 {
            runs.keep(n << 27, &run(n << 27, (n + 1) << 27, (n + 10) << 27));
        }
        for n in 0..8 {
            assert_eq!(runs.find((n << 27) + 7, 9), Some((Bytes::new(((n + 10) << 27) + 7), true)));
        }
    }

    #[test]
    fn readers_never_see_half_of_a_run() {
        let runs = Runs::default();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (runs, done) = (&runs, &done);
                scope.spawn(move || {
                    for n in 0..20_000_u64 {
                        let start = (n * 2 + writer) % 1000 * 1024;
                        runs.keep(0, &run(start, start + 1024, start * 4));
                    }
                    done.store(true, Ordering::Release);
                });
            }
            scope.spawn(|| {
                let mut at = 0;
                while !done.load(Ordering::Acquire) {
                    at = (at + 1024) % (1000 * 1024);
                    if let Some((place, _)) = runs.find(at, 1024) {
                        assert_eq!(place.get(), at * 4);
                    }
                }
            });
        });
    }
}
