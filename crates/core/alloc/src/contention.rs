//! How contended the locks of groups are, as one small number.
//!
//! The number rises when a thread has to wait for a group's lock and falls when one gets it at once, so it
//! describes the last few locks. Above [`THRESHOLD`] the volume counts as busy. That changes one thing: a
//! file that is no longer open still gets a window for its remaining clusters, so that the next locks are
//! taken for more space each (`prealloc`). Source: ext4's `s_lock_busy`, its constants, and where it is read.
//!
//! What it is not: exact. Two threads that change it at once may count as one. It is used only as a hint,
//! and an atomic addition per lock would itself contend.

use crate::sync::{AtomicU32, Ordering};

/// More than this is busy.
const THRESHOLD: u32 = 2;
/// The number never gets higher.
const MAX: u32 = 8;

/// The number, away from the cache lines (fetched in pairs) of others: while nothing is contended it is only
/// read.
#[repr(align(128))]
pub(crate) struct Contention {
    level: AtomicU32,
    /// Whether it is counted at all.
    counted: bool,
}

impl Contention {
    /// Not contended. If not `counted`, it stays so.
    pub(crate) fn new(counted: bool) -> Self {
        Self { level: AtomicU32::new(0), counted }
    }

    /// A lock was had at once.
    #[inline]
    pub(crate) fn got_at_once(&self) {
        let level = self.level();
        if level > 0 {
            self.level.store(level - 1, Ordering::Relaxed);
        }
    }

    /// A lock has to be waited for.
    #[cold]
    pub(crate) fn must_wait(&self) {
        if self.counted {
            self.level.store((self.level() + 1).min(MAX), Ordering::Relaxed);
        }
    }

    /// The number.
    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Whether the volume counts as busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.level() > THRESHOLD
    }
}

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom"))))]
mod tests {
    use super::*;

    #[test]
    fn waits_raise_it_to_eight_and_each_success_takes_one() {
        let contention = Contention::new(true);
        contention.got_at_once();
        assert_eq!(contention.level(), 0);
        let busy: Vec<bool> = (0..3)
            .map(|_| {
                contention.must_wait();
                contention.is_busy()
            })
            .collect();
        assert_eq!(busy, [false, false, true]);
        for _ in 0..20 {
            contention.must_wait();
        }
        assert_eq!(contention.level(), 8);
        for left in [7, 6, 5, 4, 3] {
            contention.got_at_once();
            assert_eq!((contention.level(), contention.is_busy()), (left, true));
        }
        contention.got_at_once();
        assert!(!contention.is_busy());
    }

    #[test]
    fn what_is_not_counted_is_never_busy() {
        let contention = Contention::new(false);
        for _ in 0..20 {
            contention.must_wait();
        }
        assert_eq!((contention.level(), contention.is_busy()), (0, false));
    }
}
