//! What a search records about itself, where its volume records ([`crate::trace`]).
//!
//! Everything here is off the path of a request that is not recorded: [`Search::note`] is the one branch. The
//! groups that an index left out were never looked at, so they are derived from the positions of the walk
//! before and after the step.

use super::{Search, Walk};
use crate::criteria::{Pass, Scan, Test};
use crate::error::AllocError;
use crate::group_info::GroupInfo;
use crate::locked_group::LockedGroup;
use crate::reservation::Reservation;
use crate::source::GroupSource;
use crate::trace::{Answer, Ended, Event, NotMade, What, Why};
use hectare_units::{GroupNr, low32};
use std::ops::Range;

impl<S: GroupSource> Search<'_, '_, S> {
    /// Has something noted, if anything is.
    #[inline]
    pub(super) fn note(&mut self, write: impl FnOnce(&mut Self)) {
        if self.steps.is_some() {
            write(self);
        }
    }

    fn push(&mut self, pass: &Pass, need: u32, groups: Range<u32>, what: What) {
        let event = Event {
            pass: pass.counted,
            stage: self.stage,
            need,
            group: groups.start,
            groups: groups.end.saturating_sub(groups.start),
            what,
        };
        if let Some(steps) = &mut self.steps {
            steps.push(event);
        }
    }

    /// The length that was looked for last.
    pub(super) fn noted_need(&self) -> u32 {
        self.steps.as_ref().map_or(0, |steps| steps.need())
    }

    /// Nothing of a pass was done.
    #[cold]
    pub(super) fn note_not_made(&mut self, pass: &Pass, why: NotMade) {
        self.push(pass, 0, 0..0, What::NotMade(why));
    }

    /// A pass has ended before its last group.
    #[cold]
    pub(super) fn note_ended(&mut self, pass: &Pass, need: u32, why: Ended) {
        self.push(pass, need, 0..0, What::Ended(why));
    }

    /// A group was skipped for a known reason.
    #[cold]
    pub(super) fn note_passed(&mut self, group: GroupNr, pass: &Pass, need: u32, why: Why) {
        let group = group.get();
        self.push(pass, need, group..group + 1, What::Passed { why, best: 0 });
    }

    /// A group was skipped because it does not promise enough, or because nothing is known of it.
    #[cold]
    pub(super) fn note_unpromising(&mut self, nr: GroupNr, pass: &Pass, need: u32) {
        let (why, best) = match self.state.table.get(nr) {
            Some(info) => self.shortcoming(nr, info, pass, need),
            None if self.unreadable.contains(&nr.get()) => (Why::Unreadable, 0),
            None => (Why::Unread, 0),
        };
        self.push(pass, need, nr.get()..nr.get() + 1, What::Passed { why, best });
    }

    /// Why a group is not good enough for a pass, and what the best is that it has.
    fn shortcoming(&self, nr: GroupNr, info: &GroupInfo, pass: &Pass, need: u32) -> (Why, u32) {
        let state = info.state();
        let chunk =
            if state.loaded { state.orders.largest.map_or(0, |order| 1 << order) } else { info.longest() };
        let (why, best, least) = match pass.test {
            Test::Fits => (Why::Longest, info.longest(), need),
            Test::Average => (Why::Average, info.average(), need),
            Test::Free if info.free() < need => (Why::Free, info.free(), need),
            Test::Free => (Why::Longest, info.longest(), self.plan.least),
            Test::Chunk => (Why::Chunk, chunk, need),
        };
        match why {
            _ if best < least => (why, best),
            _ if !self.admits(nr) => (Why::Class, 0),
            Why::Chunk if self.is_for_directories(nr) => (Why::Directories, 0),
            _ => (Why::Changed, 0),
        }
    }

    /// A group was scanned.
    #[cold]
    pub(super) fn note_scanned(&mut self, locked: &LockedGroup<'_>, pass: &Pass, need: u32) {
        let buddy = locked.group().buddy();
        let longest = match (pass.scan, self.plan.at) {
            (Scan::AtGoal, Some(at)) => buddy.run_at(at, self.plan.want),
            _ => {
                let next = |from| buddy.next_run(from, u32::MAX);
                let runs = std::iter::successors(next(0), |run| next(run.end));
                runs.map(|run| run.end - run.start).max().unwrap_or(0)
            }
        };
        let extents =
            self.stats.extents_scanned - std::mem::replace(&mut self.noted, self.stats.extents_scanned);
        let group = locked.nr().get();
        self.push(pass, need, group..group + 1, What::Scanned { extents, longest });
    }

    /// A run was taken.
    #[cold]
    pub(super) fn note_taken(&mut self, group: GroupNr, start: u32, pass: &Pass, taken: &Reservation) {
        let what = What::Taken { start, len: low32(taken.len().get()) };
        self.push(pass, self.noted_need(), group.get()..group.get() + 1, what);
    }

    /// A walk has left these ranges behind, but for the group it has found.
    #[cold]
    pub(super) fn note_leap(
        &mut self,
        before: [Range<u32>; 2],
        walk: &Walk,
        found: Option<GroupNr>,
        pass: &Pass,
        need: u32,
    ) {
        let after = walk.left();
        for (was, _) in before.into_iter().zip(&after).filter(|(was, is)| was != *is) {
            let end = found.map(GroupNr::get).filter(|group| was.contains(group)).unwrap_or(was.end);
            self.note_left_out(was.start..end, walk.order(), pass, need);
        }
        if found.is_none() && after.iter().any(|left| !left.is_empty()) {
            self.note_ended(pass, need, Ended::Patience);
        }
    }

    /// Groups that neither the index nor the one of classes has named.
    fn note_left_out(&mut self, groups: Range<u32>, order: u32, pass: &Pass, need: u32) {
        let mut from = groups.start;
        while from < groups.end {
            let left = from..groups.end;
            let admitted = match (&self.state.classes, self.plan.class) {
                (Some(classes), Some(class)) => {
                    classes.next(class, self.stage, left).unwrap_or(groups.end..groups.end)
                }
                _ => left,
            };
            if from < admitted.start {
                self.push(pass, need, from..admitted.start, What::Passed { why: Why::Class, best: 0 });
            }
            from = admitted.end;
            self.note_unindexed(admitted, order, pass, need);
        }
    }

    /// Groups that the index has not named: they have less, or nothing is known of them that could be named.
    fn note_unindexed(&mut self, groups: Range<u32>, order: u32, pass: &Pass, need: u32) {
        let by_index = What::Passed { why: Why::Index, best: order };
        if self.reads_left > 0 {
            if !groups.is_empty() {
                self.push(pass, need, groups, by_index);
            }
            return;
        }
        for group in groups {
            let loaded = self.state.table.get(GroupNr::new(group)).is_some_and(|info| info.state().loaded);
            let what = if loaded { by_index } else { What::Passed { why: Why::Unread, best: 0 } };
            self.push(pass, need, group..group + 1, what);
        }
    }

    /// The search has come to its end.
    #[cold]
    pub(super) fn hand_in<E>(&mut self, found: Result<Option<&Reservation>, &AllocError<E>>) {
        let (Some(recorder), Some(steps)) = (&self.state.recorder, self.steps.take()) else { return };
        let answer = match (found, steps.taken()) {
            (Ok(Some(taken)), Some(by)) => Answer::taken(by, taken.run()),
            (Ok(_), _) => Answer::NotAtGoal,
            (Err(AllocError::NoSpace), _) => Answer::NoSpace,
            (Err(_), _) => Answer::Failed,
        };
        recorder.hand_in(self.plan.described(self.state), *steps, answer);
    }
}
