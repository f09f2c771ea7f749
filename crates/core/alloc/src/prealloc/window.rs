//! The space kept for one file: which clusters of the file each piece of it is for.
//!
//! A window does not know where space comes from or when it is given back: [`super::Preallocation`] does.
//! Its lock is a leaf but for the groups that pieces are given back to.

use super::sum;
use crate::reservation::Reservation;
use crate::sync::{AtomicBool, Mutex};
use hectare_units::Clusters;

/// Pieces a window may be in; random writers leave many.
pub(super) const PIECES_MAX: usize = 64;

/// The space kept for one file. Dropping it gives the space back. On a cache line of its own, since files are
/// written by different threads.
#[repr(align(64))]
#[derive(Default)]
pub struct Window {
    pieces: Mutex<Vec<Kept>>,
    /// Whether it is on the list of those that may be discarded.
    pub(super) registered: AtomicBool,
}

/// Space for the clusters of a file from `logical` on.
struct Kept {
    logical: u64,
    space: Reservation,
}

impl Kept {
    fn end(&self) -> u64 {
        self.logical + self.space.len().get()
    }
}

impl Window {
    /// Gives back everything kept; how many clusters that was.
    pub fn discard(&self) -> Clusters {
        let mut pieces = self.pieces.lock();
        let len = sum(pieces.iter().map(|kept| &kept.space));
        pieces.clear();
        len
    }

    /// Takes up to `len` clusters for the file's clusters from `logical` on, if they are kept.
    #[must_use]
    pub fn take(&self, logical: u64, len: Clusters) -> Option<Reservation> {
        let mut pieces = self.pieces.lock();
        let at = pieces.iter().position(|kept| kept.logical <= logical && logical < kept.end())?;
        let kept = &mut pieces[at];
        let mut taken = kept.space.split_off(Clusters::new(logical - kept.logical));
        let rest = taken.split_off(len);
        let after = Kept { logical: logical + taken.len().get(), space: rest };
        match (kept.space.is_empty(), after.space.is_empty()) {
            (true, true) => drop(pieces.remove(at)),
            (true, false) => *kept = after,
            (false, true) => {}
            (false, false) => pieces.insert(at + 1, after),
        }
        Some(taken)
    }

    /// Where the first piece starts that is kept for clusters of the file after this one.
    pub(super) fn next_after(&self, logical: u64) -> Option<u64> {
        self.pieces.lock().iter().map(|kept| kept.logical).filter(|start| *start > logical).min()
    }

    /// Keeps space for the file's clusters from `logical` on.
    pub(super) fn keep(&self, logical: u64, space: Reservation) {
        let mut pieces = self.pieces.lock();
        pieces.push(Kept { logical, space });
        if pieces.len() > PIECES_MAX {
            drop(pieces.remove(0));
        }
    }
}
