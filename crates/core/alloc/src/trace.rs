//! Records how a request was served, to explain why a file lies where it does.
//!
//! While a volume records, each search collects [`Event`]s: what every pass skipped and for what reason, what
//! it scanned, what it took. Events are small values; equal events of neighbouring groups are merged.
//! At its end the request is stored as a [`RequestTrace`], and the last ones are kept ([`Recording`] sets
//! how many); the number of older ones dropped is counted. Space that was kept for a file is recorded too:
//! then no pass ran at all.
//!
//! Costs: a volume that does not record pays for one branch at each place where something could be noted. One
//! that does pays for the events and one lock a request; reasons are derived from the group info at the
//! moment the group is skipped, after the search has read it, so when threads race a reason may be the newer
//! one.
//!
//! Invariants: memory is bounded, whatever the volume and the requests; what is left out is counted.
//!
//! What it is not: the counters ([`crate::stats`]), which are always on and don't distinguish groups.

use crate::layout::{Layout, Run};
use crate::request::{GoalFrom, Purpose, Request};
use crate::size_class::Stage;
use crate::stats::Pass;
use crate::sync::Mutex;
use hectare_units::u64_of;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How much is kept of the traces of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Requests, the last ones.
    pub requests: usize,
    /// Their events in all; one request has no more either.
    pub events: usize,
}

impl Recording {
    /// For a volume in use: the last 10,000 requests, in 4 MiB at most.
    pub const LAST: Self = Self { requests: 10_000, events: 100_000 };
    /// For examining a single request: a million events, so that every group of it is named.
    pub const WHOLE: Self = Self { requests: 100, events: 1_000_000 };
}

/// Why something was skipped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Why {
    /// The index did not name the groups: the order is the one it was asked for.
    Index,
    /// Their flex group is for requests of other sizes.
    Class,
    /// Another request had the lock.
    Busy,
    /// The free runs are shorter on average.
    Average,
    /// The largest free chunk is smaller.
    Chunk,
    /// No free run is as long, as an earlier scan has found.
    Longest,
    /// Fewer clusters are free.
    Free,
    /// The first group of a flex group is left to directories.
    Directories,
    /// It is not in memory, and the request has read as much as it may before the last passes.
    Unread,
    /// It can't be read, or is broken.
    Unreadable,
    /// It promised enough until its lock was had.
    Changed,
    /// A run that was found before is as long.
    NoBetter,
}

/// Why a pass was not made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NotMade {
    /// There is no flex group of the request's size class, or none that has no class yet.
    NoUnit,
    /// The request has no goal.
    NoGoal,
    /// The length is no power of two, or one that is not served by aligned chunks.
    NoChunk,
    /// The pass before asked for as little.
    SameLength,
    /// The length asked for is too long for the goal to be trimmed.
    NoTrim,
}

/// Why a pass ended before it had examined all groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ended {
    /// Too many of the groups that the index named failed.
    Patience,
    /// As many runs were scanned as `mb_max_to_scan` allows, or the best is good enough.
    Enough,
    /// The chosen run was lost to another request.
    Lost,
}

/// What happened to groups in a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum What {
    /// They were skipped.
    Passed {
        /// For that reason.
        why: Why,
        /// The value of the best of them, which was too little: clusters free, in the longest run, in the
        /// largest chunk, or on average. With [`Why::Index`], the order they fell short of.
        best: u32,
    },
    /// One was scanned under its lock.
    Scanned {
        /// Runs that were counted as scanned.
        extents: u32,
        /// The longest free run in it, in clusters.
        longest: u32,
    },
    /// A run was taken in one.
    Taken {
        /// Where it starts in the group.
        start: u32,
        /// How many clusters it has.
        len: u32,
    },
    /// The pass was not made: no group was examined.
    NotMade(NotMade),
    /// The pass ended here.
    Ended(Ended),
}

/// One thing that happened in a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// The pass.
    pub pass: Pass,
    /// Which size classes it covered.
    pub stage: Stage,
    /// The length that a run had to have, in clusters.
    pub need: u32,
    /// The first group.
    pub group: u32,
    /// How many groups from that on; 0 where none is meant.
    pub groups: u32,
    /// What happened.
    pub what: What,
}

impl Event {
    /// Makes `next` part of this event if it says the same of the groups behind.
    fn joins(&mut self, next: &Self) -> bool {
        let Self { pass, stage, need, group, groups, what } = next;
        let follows = (*pass, *stage, *need) == (self.pass, self.stage, self.need)
            && self.group.checked_add(self.groups) == Some(*group);
        match (&mut self.what, what) {
            (What::Passed { why, best }, What::Passed { why: next_why, best: next_best })
                if follows && why == next_why =>
            {
                *best = (*best).max(*next_best);
                self.groups += groups;
                true
            }
            _ => false,
        }
    }
}

/// What was asked for. Lengths in clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Whether it is for the contents of files.
    pub data: bool,
    /// The file, by its inode number, where that is known.
    pub file: Option<u32>,
    /// What is needed now.
    pub asked: u64,
    /// The full length.
    pub want: u64,
    /// The least of use.
    pub least: u64,
    /// The cluster it would best start at.
    pub goal: Option<u64>,
    /// The group the search starts at.
    pub group: u32,
    /// Where the goal comes from.
    pub from: GoalFrom,
    /// Its size class, from the smallest, where there are any.
    pub class: Option<u8>,
}

impl Asked {
    /// What a request asks for that no search is made for.
    pub(crate) fn of(request: &Request, layout: &Layout) -> Self {
        let located = layout.locate(request.goal).filter(|_| request.stream.is_none());
        Self {
            data: request.purpose == Purpose::Data,
            file: request.file,
            asked: request.asked.get(),
            want: request.want.get(),
            least: request.min.get(),
            goal: located.map(|_| request.goal.get()),
            group: located.map_or(0, |(group, _)| group.get()),
            from: request.goal_from,
            class: None,
        }
    }
}

/// What a request came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// A run was taken by a pass.
    Taken {
        /// The pass.
        by: Pass,
        /// Its first cluster.
        start: u64,
        /// Its clusters.
        len: u64,
    },
    /// The file had space kept for it: no pass ran.
    Window {
        /// Its first cluster.
        start: u64,
        /// Its clusters.
        len: u64,
    },
    /// The thread had space kept for small files: no pass ran.
    Slot {
        /// Its first cluster.
        start: u64,
        /// Its clusters.
        len: u64,
    },
    /// Not enough is free at the goal, and nothing else would do.
    NotAtGoal,
    /// No run of the least length is left.
    NoSpace,
    /// The least length is more than may be spent, or than a group holds: no pass ran.
    TooLong,
    /// A group could not be loaded.
    Failed,
}

impl Answer {
    /// Space kept for a file.
    pub(crate) const fn window(run: Run) -> Self {
        Self::Window { start: run.start.get(), len: run.len.get() }
    }

    /// Space kept for the small files of a thread.
    pub(crate) const fn slot(run: Run) -> Self {
        Self::Slot { start: run.start.get(), len: run.len.get() }
    }

    /// Space a pass has found.
    pub(crate) const fn taken(by: Pass, run: Run) -> Self {
        Self::Taken { by, start: run.start.get(), len: run.len.get() }
    }
}

/// A request from beginning to end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestTrace {
    /// Its number since the volume was opened, from 1.
    pub number: u64,
    /// What was asked for.
    pub asked: Asked,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Events that there was no room for.
    pub left_out: u64,
    /// What it came to.
    pub answer: Answer,
}

/// The last requests of a volume that records.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// The requests, in the order in which they ended.
    pub requests: Vec<RequestTrace>,
    /// How many before them were dropped.
    pub overwritten: u64,
}

/// What one request collects on its way.
#[derive(Default)]
pub(crate) struct Steps {
    events: Vec<Event>,
    /// How many are kept at most.
    most: usize,
    left_out: u64,
    taken: Option<Pass>,
}

impl Steps {
    /// Adds an event.
    pub(crate) fn push(&mut self, event: Event) {
        if matches!(event.what, What::Taken { .. }) {
            self.taken = Some(event.pass);
        }
        if self.events.last_mut().is_some_and(|last| last.joins(&event)) {
            return;
        }
        if self.events.len() < self.most {
            self.events.push(event);
        } else {
            self.left_out += 1;
        }
    }

    /// The length that was looked for last.
    pub(crate) fn need(&self) -> u32 {
        self.events.last().map_or(0, |event| event.need)
    }

    /// The pass that took a run.
    pub(crate) const fn taken(&self) -> Option<Pass> {
        self.taken
    }
}

/// The requests that are kept.
pub(crate) struct Recorder {
    limits: Recording,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    requests: VecDeque<RequestTrace>,
    /// Events of all of them.
    events: usize,
    /// Requests that were ever handed in.
    count: u64,
}

impl Recorder {
    pub(crate) fn new(limits: Recording) -> Self {
        Self { limits, kept: Mutex::new(Kept::default()) }
    }

    /// An empty collector for a request's events.
    pub(crate) fn steps(&self) -> Box<Steps> {
        Box::new(Steps { most: self.limits.events, ..Steps::default() })
    }

    /// A request has ended.
    pub(crate) fn hand_in(&self, asked: Asked, steps: Steps, answer: Answer) {
        let Steps { events, left_out, .. } = steps;
        let mut kept = self.kept.lock();
        kept.count += 1;
        kept.events += events.len();
        let number = kept.count;
        kept.requests.push_back(RequestTrace { number, asked, events, left_out, answer });
        while kept.requests.len() > self.limits.requests || kept.events > self.limits.events {
            let Some(oldest) = kept.requests.pop_front() else { break };
            kept.events -= oldest.events.len();
        }
    }

    /// A copy of the kept traces.
    pub(crate) fn trace(&self) -> Trace {
        let kept = self.kept.lock();
        let requests: Vec<_> = kept.requests.iter().cloned().collect();
        Trace { overwritten: kept.count - u64_of(requests.len()), requests }
    }
}

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom"))))]
mod tests {
    use super::*;

    fn event(group: u32, what: What) -> Event {
        Event { pass: Pass::GoalFast, stage: Stage::Any, need: 8, group, groups: 1, what }
    }

    fn asked() -> Asked {
        let from = GoalFrom::Caller;
        let (asked, want, least) = (1, 1, 1);
        Asked { data: true, file: None, asked, want, least, goal: None, group: 0, from, class: None }
    }

    #[test]
    fn neighbours_that_say_the_same_are_one_event() {
        let mut steps = Recorder::new(Recording::WHOLE).steps();
        for (group, best) in [(0, 3), (1, 5), (2, 4)] {
            steps.push(event(group, What::Passed { why: Why::Average, best }));
        }
        steps.push(event(4, What::Passed { why: Why::Average, best: 1 }));
        steps.push(event(5, What::Passed { why: Why::Busy, best: 0 }));
        let seen: Vec<_> = steps.events.iter().map(|event| (event.group, event.groups, event.what)).collect();
        let passed = |why, best| What::Passed { why, best };
        let average = passed(Why::Average, 5);
        assert_eq!(seen, [(0, 3, average), (4, 1, passed(Why::Average, 1)), (5, 1, passed(Why::Busy, 0))]);
    }

    #[test]
    fn the_oldest_go_first_and_what_is_left_out_is_counted() {
        let recorder = Recorder::new(Recording { requests: 3, events: 4 });
        let hand_in = |events: u32| {
            let mut steps = recorder.steps();
            for group in 0..events {
                steps.push(event(2 * group, What::Scanned { extents: 1, longest: 1 }));
            }
            recorder.hand_in(asked(), *steps, Answer::NoSpace);
        };
        let numbers = || -> Vec<u64> { recorder.trace().requests.iter().map(|one| one.number).collect() };
        (0..4).for_each(|_| hand_in(1));
        assert_eq!((numbers(), recorder.trace().overwritten), (vec![2, 3, 4], 1), "no more than 3 requests");
        hand_in(3);
        assert_eq!((numbers(), recorder.trace().overwritten), (vec![4, 5], 3), "no more than 4 events");
        hand_in(10);
        let trace = recorder.trace();
        assert_eq!((trace.requests.len(), trace.overwritten), (1, 5));
        assert_eq!((trace.requests[0].events.len(), trace.requests[0].left_out), (4, 6));
    }
}
