//! The group index and the counters, for `benches/index.rs`.

use crate::index::{GroupIndex, Orders};
use crate::stats::{Pass, RequestStats, Stats};
use hectare_units::GroupNr;

/// A group index beside counters.
pub struct Index {
    index: GroupIndex,
    stats: Stats,
}

/// Orders with the same largest and average order.
fn orders(order: Option<u32>) -> Orders {
    Orders { largest: order, average: order }
}

impl Index {
    /// An index of `groups` groups in which each `step`th has order 9 and no other has any.
    #[must_use]
    pub fn new(groups: u32, step: u32) -> Self {
        let index = GroupIndex::new(groups, 14);
        for group in (0..groups).skip(step as usize / 2).step_by(step as usize) {
            index.update(GroupNr::new(group), Orders::default(), Orders { largest: Some(9), average: None });
        }
        Self { index, stats: Stats::default() }
    }

    /// The first group of order 9 in `start..end`.
    #[must_use]
    pub fn next(&self, start: u32, end: u32) -> Option<u32> {
        self.index.next_largest(9, start..end).map(GroupNr::get)
    }

    /// Moves a group from one order to another.
    pub fn update(&self, group: u32, from: Option<u32>, to: Option<u32>) {
        self.index.update(GroupNr::new(group), orders(from), orders(to));
    }

    /// Hands in the counters of a typical request.
    pub fn count(&self) {
        let mut request = RequestStats { reqs: 1, success: 1, groups_scanned: 1, ..RequestStats::default() };
        request.pass(Pass::GoalFast).hits = 1;
        self.stats.add(std::hint::black_box(&request));
    }
}
