//! Times of 2310 and later, which are no fault, but may not be meant.
//!
//! A time's two highest bits lie in its extra field. Old kernels stored years before 1970 with both bits set, which
//! today's kernels, and this program, read as 2310 to 2378. An inode does not record which kernel wrote it. So
//! such times are counted and left as they are; `e2fsck -fn` reports them as well, and exits with 0.

use crate::report::{Problem, What};
use hectare_ext4::error::Place;
use hectare_units::InodeNr;

/// How many inodes have such a time, and the first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LateTimes {
    inodes: u32,
    first: Option<InodeNr>,
}

impl LateTimes {
    /// Counts an inode.
    pub(crate) fn add(&mut self, nr: InodeNr) {
        self.absorb(Self { inodes: 1, first: Some(nr) });
    }

    /// Adds what another thread has counted.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.inodes += other.inodes;
        self.first = [self.first, other.first].into_iter().flatten().min();
    }

    /// What there is to note.
    pub(crate) fn note(self) -> Option<Problem> {
        let Self { inodes, first } = self;
        let others = match inodes {
            1 => String::new(),
            inodes => format!(" ({inodes} inodes)"),
        };
        let reason = format!("a time is in 2310 or later{others}; old kernels stored years before 1970 so");
        Some(Problem { what: What::Inode, place: Place::Inode(first?), reason: reason.into() })
    }
}
