//! Chooses a group and a place in it: the driver that goes through a policy's table of criteria
//! ([`crate::criteria`]).
//!
//! A pass is a walk over candidate groups (`walk`). Each is checked without its lock, by its group info;
//! then locked, or skipped if it is busy; checked again; scanned (`scan`); and if the scan finds a run, the
//! run is taken at once, under the same lock. Passes that compare runs of several groups first (`survey`)
//! return to the best one. Groups not in memory are loaded on the way: freely where that needs no I/O, else
//! up to a budget per request in the passes that skip busy groups. The same budget pays for reading the
//! pages of untouched groups (`group_table`).
//!
//! # No space
//! [`AllocError::NoSpace`] is exact: it must be true at some moment of the search that no run of the least
//! length is free and can be paid for. Two ways lead to it.
//! - The budget holds less than the least length, by one atomic read: true at that moment.
//! - The last pass has looked at every group, waiting for its lock, and found no such run; and nothing that
//!   makes space free was under way at the start of the search or began before its end
//!   ([`ReleaseEpoch`](crate::release_epoch::ReleaseEpoch)). Then free space only shrank meanwhile: a group
//!   that had no run long enough when it was looked at has none at the end. Groups are passed over without
//!   their lock only by [`GroupInfo::longest`](crate::group_info::GroupInfo::longest), which is never below
//!   the longest run: it is raised under the lock between the two counts of a move, and lowered under the
//!   lock after a scan of the group. It is read, like the counts, in the single order of `SeqCst`. If
//!   something did move, the search looks again. All processors change what moves and what is available, so
//!   only a search that has found nothing reads both: the first time through the table is no proof, and the
//!   table is run once more before a refusal.
//!
//! A group that can't be loaded has nothing free: it is set aside, with the clusters that it announces, and
//! reported to its source. Before a request is refused, loading it is tried once more
//! ([`Groups::reopen_set_aside`]); if that fails, its error is the reason of the refusal.
//!
//! So the search ends unless others make progress for ever: each repetition means that another thread gave
//! space back, or is just doing so.
//!
//! What it is not: a policy (that is the table), nor an account of how much a request may use (the budget).

mod note;
mod plan;
#[cfg(all(test, feature = "shuttle"))]
mod refusal_tests;
mod scan;
mod survey;
mod walk;

pub(crate) use plan::Plan;

use crate::budget::Budget;
use crate::criteria::{Busy, Candidates, Pass, Scan, Step, Test};
use crate::error::AllocError;
use crate::group_info::GroupInfo;
use crate::groups::Groups;
use crate::locked_group::{LockedGroup, NotTaken};
use crate::reservation::Reservation;
use crate::size_class::{Class, Stage};
use crate::source::GroupSource;
use crate::state::State;
use crate::stats::{Pass as Counted, RequestStats};
use crate::sync::{Cost, Ordering, charge, thread};
use crate::trace::{NotMade, Recorder, Steps, Why};
use hectare_units::GroupNr;
use std::ops::Range;
use walk::{Lookup, Walk};

/// Groups a request may read from the device in passes that have others behind them, in flex groups or
/// groups. Source: the kernel's limit of prefetching, 4 times 8 flex groups or 4 times 32 groups.
const READS_MAX: u32 = 32;
const READS_MAX_WITHOUT_FLEX: u32 = 128;

/// A search under way.
pub(crate) struct Search<'a, 'p, S: GroupSource> {
    groups: &'a Groups<S>,
    state: &'a State,
    plan: &'a Plan,
    budget: &'a mut Budget<'p>,
    stats: RequestStats,
    stage: Stage,
    /// Reads from the device left for the passes that have others behind them.
    reads_left: u32,
    /// The page of groups that could not be read last: for none of its other groups it is tried again.
    unreadable: Range<u32>,
    /// Whether the last candidate was skipped because it was busy.
    passed_busy: bool,
    /// What happened, where that is recorded, and how many runs had been scanned when it was noted last.
    steps: Option<Box<Steps>>,
    noted: u32,
}

type PassResult<E> = Result<Option<Reservation>, AllocError<E>>;

impl<'a, 'p, S: GroupSource> Search<'a, 'p, S> {
    pub(crate) fn new(groups: &'a Groups<S>, plan: &'a Plan, budget: &'a mut Budget<'p>) -> Self {
        charge(Cost::Request, 1);
        let state = groups.state();
        let reads_left = if state.config.flex_groups > 1 { READS_MAX } else { READS_MAX_WITHOUT_FLEX };
        Self {
            groups,
            state,
            plan,
            budget,
            stats: RequestStats::default(),
            stage: Stage::Any,
            reads_left,
            unreadable: 0..0,
            passed_busy: false,
            steps: state.recorder.as_ref().map(Recorder::steps),
            noted: 0,
        }
    }

    /// Goes through a table.
    pub(crate) fn run(mut self, table: &[Step]) -> Result<Reservation, AllocError<S::Error>> {
        self.stats.reqs = 1;
        let result = self.repeat(table);
        self.state.stats.add(&self.stats);
        self.note(|search| search.hand_in(result.as_ref().map(Some)));
        result
    }

    /// Tries one pass, which is all that is tried.
    pub(crate) fn run_one(mut self, stages: &[Stage], pass: &Pass) -> PassResult<S::Error> {
        self.stats.reqs = 1;
        let mut found = Ok(None);
        for stage in stages {
            self.stage = *stage;
            found = self.pass(pass);
            if !matches!(found, Ok(None)) {
                break;
            }
        }
        self.state.stats.add(&self.stats);
        let found = match found {
            Err(AllocError::NoSpace) => Ok(None),
            found => found,
        };
        self.note(|search| search.hand_in(found.as_ref().map(Option::as_ref)));
        found
    }

    fn repeat(&mut self, table: &[Step]) -> Result<Reservation, AllocError<S::Error>> {
        let mut seen = None;
        loop {
            for (stage, passes) in table {
                if let Some(found) = self.step(*stage, passes)? {
                    return Ok(found);
                }
            }
            match seen {
                Some(seen) if self.state.release_epoch.none_since(seen) => {
                    if self.unreadable.is_empty() {
                        return Err(AllocError::NoSpace);
                    }
                    // Groups of which not even the infos could be read may have space.
                    self.groups.group_info(GroupNr::new(self.unreadable.start))?;
                    self.unreadable = 0..0;
                }
                // A thread that is just giving space back may need the processor.
                Some(_) => thread::yield_now(),
                None => {}
            }
            seen = Some(self.state.release_epoch.before());
            if self.budget.holds(&self.state.counters) < u64::from(self.plan.least) {
                return Err(AllocError::NoSpace);
            }
        }
    }

    fn step(&mut self, stage: Stage, passes: &[Pass]) -> PassResult<S::Error> {
        self.stage = stage;
        if let (Some(classes), Some(class)) = (&self.state.classes, self.plan.class)
            && !classes.has(class, stage)
        {
            self.note(|search| passes.iter().for_each(|pass| search.note_not_made(pass, NotMade::NoUnit)));
            return Ok(None);
        }
        for pass in passes {
            if let Some(found) = self.pass(pass)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn pass(&mut self, pass: &Pass) -> PassResult<S::Error> {
        let Some(need) = self.plan.need(pass) else {
            let why = if pass.scan == Scan::Chunk { NotMade::NoChunk } else { NotMade::SameLength };
            self.note(|search| search.note_not_made(pass, why));
            return Ok(None);
        };
        let found = match (pass.candidates, pass.scan) {
            (Candidates::Goal, _) => return self.goal(pass, need),
            (_, Scan::Best | Scan::Shortest | Scan::Longest) => self.survey(pass, need)?,
            (Candidates::Trimmed, _) => self.trimmed(pass)?,
            (Candidates::Highest, _) => self.highest(pass)?,
            (Candidates::Indexed | Candidates::Linear, _) => {
                let lookup = self.lookup(pass, need);
                self.walk(pass, need, lookup)?
            }
        };
        if found.is_none() {
            self.stats.pass(pass.counted).useless_loops += 1;
        }
        Ok(found)
    }

    /// The goal's group only.
    fn goal(&mut self, pass: &Pass, need: u32) -> PassResult<S::Error> {
        let group = self.plan.group;
        if self.plan.at.is_none() {
            self.note(|search| search.note_not_made(pass, NotMade::NoGoal));
            return Ok(None);
        }
        if !self.admits(group) {
            self.note(|search| search.note_passed(group, pass, need, Why::Class));
            return Ok(None);
        }
        self.visit(group, pass, need)
    }

    /// How the index answers for a pass.
    fn lookup(&self, pass: &Pass, need: u32) -> Lookup {
        let orders = self.state.config.orders();
        match (pass.candidates, pass.test) {
            (Candidates::Linear, _) | (_, Test::Free) => Lookup::Linear,
            (_, Test::Chunk) => Lookup::chunk(need, orders),
            (_, Test::Average) => Lookup::average(need, orders),
            (_, Test::Fits) => Lookup::may_fit(need, orders),
        }
    }

    fn walk(&mut self, pass: &Pass, need: u32, lookup: Lookup) -> PassResult<S::Error> {
        let mut walk = Walk::new(self.state, self.plan, pass, lookup);
        while let Some(group) = self.next(&mut walk, pass, need) {
            if let Some(found) = self.visit(group, pass, need)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn next(&mut self, walk: &mut Walk, pass: &Pass, need: u32) -> Option<GroupNr> {
        let class = self.plan.class.filter(|_| self.stage != Stage::Any).map(|class| (class, self.stage));
        if std::mem::take(&mut self.passed_busy) {
            walk.excuse();
        }
        let before = self.steps.is_some().then(|| walk.left());
        let found = walk.next(self.state, class, self.reads_left > 0);
        self.stats.class_skips += walk.passed_over();
        if let Some(before) = before {
            self.note_leap(before, walk, found, pass, need);
        }
        found
    }

    /// Lengths of powers of two, from the full length down, until a group has one on average.
    fn trimmed(&mut self, pass: &Pass) -> PassResult<S::Error> {
        let orders = self.state.tunables.mb_best_avail_max_trim_order();
        let mut trims = self.plan.trims(orders, self.state.stripe()).peekable();
        if trims.peek().is_none() {
            self.note(|search| search.note_not_made(pass, NotMade::NoTrim));
        }
        for need in trims {
            self.stats.trims += 1;
            let lookup = self.lookup(pass, need);
            if let Some(found) = self.walk(pass, need, lookup)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The groups of the highest average, then of the next lower one.
    fn highest(&mut self, pass: &Pass) -> PassResult<S::Error> {
        let top = self.state.highest_average();
        // Below the order of the least length no average is long enough.
        let last = Lookup::average(self.plan.least, self.state.config.orders()).order();
        for order in (last..=top.unwrap_or(0)).rev() {
            // An untouched group may turn out to be worse than it could have been.
            let need = if order == 0 { 1 } else { 1 << (order + 1) };
            if let Some(found) = self.walk(pass, need.max(self.plan.least), Lookup::Average(order))? {
                self.stats.splits += 1;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether the class of a group's unit is one for this stage.
    fn admits(&self, group: GroupNr) -> bool {
        match (&self.state.classes, self.plan.class) {
            (Some(classes), Some(class)) => classes.admits(group, class, self.stage),
            _ => true,
        }
    }

    /// Looks for a run in one group and takes it.
    fn visit(&mut self, group: GroupNr, pass: &Pass, need: u32) -> PassResult<S::Error> {
        let Some(mut locked) = self.enter(group, pass, need) else { return Ok(None) };
        let found = self.scan(&locked, pass, need);
        self.note(|search| search.note_scanned(&locked, pass, need));
        match found {
            Some(range) => self.take(&mut locked, &range, pass),
            None => Ok(None),
        }
    }

    /// Locks a group that promises enough, before and after.
    fn enter(&mut self, group: GroupNr, pass: &Pass, need: u32) -> Option<LockedGroup<'a>> {
        charge(Cost::Group, 1);
        let info = self.info(group, pass);
        if pass.peeks && matches!(info, Ok(Some(info)) if info.is_locked()) {
            self.stats.busy_peeks += 1;
            self.passed_busy = true;
            self.note(|search| search.note_passed(group, pass, need, Why::Busy));
            return None;
        }
        self.stats.pass(pass.counted).groups_considered += 1;
        let info = match info {
            Ok(Some(info)) if self.promises(group, info, pass, need) => info,
            Ok(_) => {
                self.note(|search| search.note_unpromising(group, pass, need));
                return None;
            }
            Err(_) => return self.go_on_without(group, pass, need),
        };
        let locked = match self.lock(group, info, pass, need) {
            Ok(Some(locked)) => locked,
            Ok(None) => return None,
            Err(_) => return self.go_on_without(group, pass, need),
        };
        if !self.promises(group, info, pass, need) || !self.admits(group) {
            self.note(|search| search.note_unpromising(group, pass, need));
            return None;
        }
        self.stats.groups_scanned += 1;
        Some(locked)
    }

    /// A group can't be loaded, which was reported to its source: it has nothing for this request or any other.
    #[cold]
    fn go_on_without(&mut self, group: GroupNr, pass: &Pass, need: u32) -> Option<LockedGroup<'a>> {
        self.note(|search| search.note_passed(group, pass, need, Why::Unreadable));
        None
    }

    /// What is known of a group, read now if need be and the pass may.
    #[inline]
    fn info(&mut self, group: GroupNr, pass: &Pass) -> Result<Option<&'a GroupInfo>, AllocError<S::Error>> {
        match self.state.table.get(group) {
            Some(info) => Ok(Some(info)),
            None => self.read_info(group, pass),
        }
    }

    #[cold]
    fn read_info(
        &mut self,
        group: GroupNr,
        pass: &Pass,
    ) -> Result<Option<&'a GroupInfo>, AllocError<S::Error>> {
        if self.unreadable.contains(&group.get()) || !self.may_read(pass) {
            return Ok(None);
        }
        let read = self.groups.group_info(group);
        if read.is_err() {
            self.unreadable = self.state.table.mates(group);
        }
        read.map(Some)
    }

    /// Whether a pass may read from the device; if so, that it does.
    fn may_read(&mut self, pass: &Pass) -> bool {
        if matches!(pass.counted, Counted::Goal | Counted::GoalSlow | Counted::AnyFree) {
            return true;
        }
        let may = self.reads_left > 0;
        self.reads_left -= u32::from(may);
        may
    }

    /// What a group must look like without its lock to be worth it.
    fn promises(&self, group: GroupNr, info: &GroupInfo, pass: &Pass, need: u32) -> bool {
        match pass.test {
            Test::Fits => info.longest() >= need,
            Test::Average => info.average() >= need,
            Test::Free => info.free() >= need && info.longest() >= self.plan.least,
            Test::Chunk => {
                let order = need.next_power_of_two().ilog2();
                let state = info.state();
                let has =
                    if state.loaded { state.orders.largest >= Some(order) } else { info.longest() >= need };
                has && !(pass.scan == Scan::Chunk && self.is_for_directories(group))
            }
        }
    }

    /// The first group of each flex group is left to directories and metadata, if flex groups are not tiny.
    /// Source: the kernel's rule for aligned requests of data.
    fn is_for_directories(&self, group: GroupNr) -> bool {
        let flex = self.state.config.flex_groups;
        self.plan.data && flex >= 4 && group.get().is_multiple_of(flex)
    }

    fn lock(
        &mut self,
        group: GroupNr,
        info: &'a GroupInfo,
        pass: &Pass,
        need: u32,
    ) -> Result<Option<LockedGroup<'a>>, AllocError<S::Error>> {
        let groups = self.groups;
        if pass.busy == Busy::Wait {
            let place = info.lock(&self.state.contention, &mut self.stats.busy_waits);
            return groups.loaded(group, info, place).map(Some);
        }
        let Some(place) = info.try_lock(&self.state.contention) else {
            self.stats.busy_skips += 1;
            self.passed_busy = true;
            self.note(|search| search.note_passed(group, pass, need, Why::Busy));
            return Ok(None);
        };
        if place.is_none() && groups.source().needs_io(group) && !self.may_read(pass) {
            self.note(|search| search.note_passed(group, pass, need, Why::Unread));
            return Ok(None);
        }
        groups.loaded(group, info, place).map(Some)
    }

    /// Takes a run that was just found.
    fn take(
        &mut self,
        locked: &mut LockedGroup<'_>,
        range: &Range<u32>,
        pass: &Pass,
    ) -> PassResult<S::Error> {
        let group = locked.nr();
        let class = self.plan.class.map(|class| (class, self.stage));
        match Reservation::take(locked, range, self.plan.least, self.budget, class) {
            Ok(reservation) => {
                self.count_success(group, range, pass, class);
                self.note(|search| search.note_taken(group, range.start, pass, &reservation));
                Ok(Some(reservation))
            }
            Err(NotTaken::CantPay) => Err(AllocError::NoSpace),
            Err(NotTaken::WrongClass) => {
                self.note(|search| search.note_passed(group, pass, search.noted_need(), Why::Class));
                Ok(None)
            }
        }
    }

    fn count_success(
        &mut self,
        group: GroupNr,
        range: &Range<u32>,
        pass: &Pass,
        class: Option<(Class, Stage)>,
    ) {
        let (plan, len) = (self.plan, range.end - range.start);
        let stats = &mut self.stats;
        stats.pass(pass.counted).hits += 1;
        stats.success += u32::from(len >= plan.asked);
        stats.len_goal_hits += u32::from(len >= plan.want);
        stats.goal_hits += u32::from(group == plan.group && plan.at == Some(range.start));
        stats.p2_hits += u32::from(pass.scan == Scan::Chunk);
        match class {
            Some((_, Stage::Matching)) => stats.class_hits_matching += 1,
            Some((_, Stage::Unset)) => stats.class_hits_unset += 1,
            Some((_, Stage::Any)) => stats.class_hits_any += 1,
            None => {}
        }
        if let Some((kept, last)) = plan.stream.and_then(|key| self.state.stream(key)) {
            stats.stream_goal_hits += u32::from(group == plan.group);
            if last != group {
                kept.store(group.get(), Ordering::Relaxed);
            }
        }
    }
}
