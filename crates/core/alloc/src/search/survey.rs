//! Passes that compare the runs of several groups before they take one.
//!
//! The best run so far is remembered without its lock. At the end it is checked again, and may be gone:
//! then the pass has failed, or, where it must be exact, is repeated. It is repeated only because another
//! thread took a run, so this ends.

use super::{PassResult, Search};
use crate::criteria::{Pass, Scan};
use crate::group_info::GroupInfo;
use crate::locked_group::LockedGroup;
use crate::size_class::Stage;
use crate::source::GroupSource;
use crate::trace::{Ended, Why};
use hectare_units::GroupNr;
use std::ops::Range;

/// The best run so far.
type Best = Option<(GroupNr, Range<u32>)>;

/// What to do after a run was scanned.
enum Verdict {
    /// Look at the next one.
    Next,
    /// Take this one.
    Take(Range<u32>),
    /// Take the best one; enough was scanned.
    Enough,
}

impl<S: GroupSource> Search<'_, '_, S> {
    pub(super) fn survey(&mut self, pass: &Pass, need: u32) -> PassResult<S::Error> {
        loop {
            let mut best = None;
            if let Some(found) = self.look_over(pass, need, &mut best)? {
                return Ok(Some(found));
            }
            let Some((group, range)) = best else { return Ok(None) };
            if let Some(found) = self.take_again(group, range.start, pass)? {
                return Ok(Some(found));
            }
            self.stats.lost += 1;
            self.note(|search| search.note_ended(pass, need, Ended::Lost));
            if pass.scan != Scan::Longest {
                return Ok(None);
            }
        }
    }

    /// Goes over the groups; takes a run if one is as good as can be.
    fn look_over(&mut self, pass: &Pass, need: u32, best: &mut Best) -> PassResult<S::Error> {
        let lookup = self.lookup(pass, need);
        let mut walk = super::Walk::new(self.state, self.plan, pass, lookup);
        while let Some(group) = self.next(&mut walk, pass, need) {
            let no_better = |info: &GroupInfo| info.longest() <= length(best.as_ref());
            if pass.scan == Scan::Longest && self.state.table.get(group).is_some_and(no_better) {
                self.note(|search| search.note_passed(group, pass, need, Why::NoBetter));
                continue;
            }
            let Some(mut locked) = self.enter(group, pass, need) else { continue };
            let verdict = self.look(&locked, pass, best);
            self.note(|search| search.note_scanned(&locked, pass, need));
            match verdict {
                Verdict::Next => {}
                Verdict::Take(range) => return self.take(&mut locked, &range, pass),
                Verdict::Enough => {
                    self.note(|search| search.note_ended(pass, need, Ended::Enough));
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Looks at the runs of one group.
    fn look(&mut self, locked: &LockedGroup<'_>, pass: &Pass, best: &mut Best) -> Verdict {
        let buddy = locked.group().buddy();
        let limit = if pass.scan == Scan::Longest { self.plan.want } else { u32::MAX };
        let (mut from, mut longest) = (0, 0);
        while let Some(run) = buddy.next_run(from, limit) {
            from = run.end;
            longest = longest.max(run.end - run.start);
            if run.end - run.start < self.shortest_of_use(pass) {
                continue;
            }
            self.count_extent(pass);
            match self.judge(locked.nr(), run, pass, best) {
                Verdict::Next => {}
                verdict => return verdict,
            }
        }
        // All were measured to their ends, or the scan would have ended.
        locked.note_none_of(longest + 1);
        match pass.scan {
            Scan::Best if length(best.as_ref()) >= self.plan.want => Verdict::Enough,
            _ => Verdict::Next,
        }
    }

    fn shortest_of_use(&self, pass: &Pass) -> u32 {
        match pass.scan {
            Scan::Shortest => self.plan.want,
            // A unit of this class or none is not to be fragmented while others have the length asked for.
            Scan::Best if self.stage != Stage::Any => self.plan.asked,
            _ => self.plan.least,
        }
    }

    fn judge(&mut self, group: GroupNr, run: Range<u32>, pass: &Pass, best: &mut Best) -> Verdict {
        let (want, len, so_far) = (self.plan.want, run.end - run.start, length(best.as_ref()));
        if len == want {
            return Verdict::Take(run);
        }
        let better = if so_far >= want { len > want && len < so_far } else { len > so_far };
        let first = best.is_none();
        if better {
            *best = Some((group, run));
        }
        if pass.scan != Scan::Best || first {
            return Verdict::Next;
        }
        let (tunables, seen) = (&self.state.tunables, self.stats.extents_scanned);
        if seen > tunables.mb_max_to_scan() {
            self.stats.breaks += 1;
            return Verdict::Enough;
        }
        if length(best.as_ref()) >= want && seen > tunables.mb_min_to_scan() {
            return Verdict::Enough;
        }
        Verdict::Next
    }

    /// Takes what is still free of a run that was found before.
    fn take_again(&mut self, group: GroupNr, at: u32, pass: &Pass) -> PassResult<S::Error> {
        let info = self.state.info(group);
        let place = info.lock(&self.state.contention, &mut self.stats.busy_waits);
        let mut locked = self.groups.loaded(group, info, place)?;
        let len = locked.group().buddy().run_at(at, self.plan.want);
        if len < self.shortest_of_use(pass).min(self.plan.want) || !self.admits(group) {
            return Ok(None);
        }
        self.take(&mut locked, &(at..at + len), pass)
    }
}

fn length(best: Option<&(GroupNr, Range<u32>)>) -> u32 {
    best.map_or(0, |(_, range)| range.end - range.start)
}
