//! Scans one group for a run.

use super::Search;
use crate::buddy::Buddy;
use crate::criteria::{Length, Pass, Scan};
use crate::locked_group::LockedGroup;
use crate::source::GroupSource;
use std::ops::Range;

impl<S: GroupSource> Search<'_, '_, S> {
    /// The run to take in a group: at least `need` long, at most the full length.
    pub(super) fn scan(&mut self, locked: &LockedGroup<'_>, pass: &Pass, need: u32) -> Option<Range<u32>> {
        let (want, buddy) = (self.plan.want, locked.group().buddy());
        let need = match pass.length {
            Length::Average => self.average(buddy)?,
            _ => need,
        };
        let found = match pass.scan {
            Scan::AtGoal => {
                let at = self.plan.at?;
                let len = buddy.run_at(at, want);
                (len >= need).then_some(at..at + len)
            }
            Scan::Chunk => {
                let start = buddy.chunk(need.ilog2())?;
                Some(start..start + need)
            }
            Scan::FromGoal => self.first_after_goal(locked, need),
            Scan::First => self.first(locked, need),
            Scan::Best | Scan::Shortest | Scan::Longest => None,
        };
        if found.is_some() {
            self.count_extent(pass);
        }
        found
    }

    /// A run was scanned.
    pub(super) fn count_extent(&mut self, pass: &Pass) {
        self.stats.extents_scanned += 1;
        self.stats.pass(pass.counted).extents_scanned += 1;
    }

    /// The length of the average run if that is of use: some run is as long.
    fn average(&self, buddy: &Buddy) -> Option<u32> {
        let average = buddy.free().checked_div(buddy.fragments())?.min(self.plan.asked);
        (average >= self.plan.least).then_some(average)
    }

    /// The first run from the goal on, else the first of the group.
    fn first_after_goal(&self, locked: &LockedGroup<'_>, need: u32) -> Option<Range<u32>> {
        match self.plan.at {
            Some(at) if locked.nr() == self.plan.group => {
                let after = first_run(locked.group().buddy(), at, need, self.plan.want);
                after.or_else(|| self.first(locked, need))
            }
            _ => self.first(locked, need),
        }
    }

    /// The first run of the group, aligned to a stripe if that can be.
    fn first(&self, locked: &LockedGroup<'_>, need: u32) -> Option<Range<u32>> {
        let (want, buddy) = (self.plan.want, locked.group().buddy());
        if let Some(stripe) = self.state.stripe()
            && self.plan.data
            && need.is_multiple_of(stripe)
        {
            let start = self.state.layout.group_start(locked.nr()).get();
            let aligned = first_aligned(buddy, start, need, stripe);
            if aligned.is_some() {
                return aligned;
            }
        }
        let found = first_run(buddy, 0, need, want);
        if found.is_none() {
            locked.note_none_of(need);
        }
        found
    }
}

/// The first run from `from` on that is at least `need` long, no more than `want` of it.
pub(super) fn first_run(buddy: &Buddy, mut from: u32, need: u32, want: u32) -> Option<Range<u32>> {
    while let Some(run) = buddy.next_run(from, want) {
        if run.end - run.start >= need {
            return Some(run);
        }
        from = run.end;
    }
    None
}

/// The first run of `len` that starts at a multiple of `stripe` on the volume; the group starts at `base`.
fn first_aligned(buddy: &Buddy, base: u64, len: u32, stripe: u32) -> Option<Range<u32>> {
    let mut from = 0;
    while let Some(run) = buddy.next_run(from, len.saturating_add(stripe)) {
        let place = base + u64::from(run.start);
        let skip = u32::try_from(place.next_multiple_of(u64::from(stripe)) - place).ok()?;
        if run.end - run.start >= len.saturating_add(skip) {
            return Some(run.start + skip..run.start + skip + len);
        }
        from = run.end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_run_starts_at_a_stripe_of_the_volume() {
        let buddy = Buddy::new(vec![0b111, 0], 128, 14);
        assert_eq!(first_aligned(&buddy, 0, 32, 16), Some(16..48));
        assert_eq!(first_aligned(&buddy, 100, 32, 16), Some(12..44));
        assert_eq!(first_aligned(&buddy, 0, 128, 16), None);
    }

    #[test]
    fn shorter_runs_are_passed_over() {
        let buddy = Buddy::new(vec![1 << 4 | 1 << 20], 64, 14);
        assert_eq!(first_run(&buddy, 0, 10, 12), Some(5..17));
        assert_eq!(first_run(&buddy, 10, 11, 12), Some(21..33));
        assert_eq!(first_run(&buddy, 0, 44, 50), None);
    }
}
