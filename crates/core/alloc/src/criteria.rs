//! The policies as tables of criteria.
//!
//! A criterion ([`Pass`]) says which groups are candidates and in which order, what makes one worth its
//! lock, how it is scanned, how long a run must be, and what to do about a busy one. Going through the groups
//! by it is a pass. A table is a row of *steps*: some criteria for some of the size classes. The search
//! (`search`) goes through them from top to bottom and ends with the first run it takes. Tables are made of a
//! policy's mechanisms once, when a volume is opened ([`Tables::new`]).
//!
//! | criterion | candidates | scan | busy group |
//! |---|---|---|---|
//! | [`GOAL`] | the goal's group | at the goal, full length | wait |
//! | [`NEAR`] | the goal's group | the first run from the goal on | skip |
//! | [`POWER2_ALIGNED`] | index by largest chunk | an aligned chunk | skip |
//! | [`GOAL_LEN_FAST`] | index by average run | first run of full length; shorter ones cost nothing | skip |
//! | [`BEST_AVAIL_LEN`] | the same, trimmed step by step, not below what is asked | as above | skip |
//! | [`CHUNK`] | index by largest chunk | the first run of what is asked | skip |
//! | [`SPLIT`] | the highest average there is | the first run as long as that average | skip |
//! | [`GOAL_LEN_SLOW`] | every group | the best of a limited number of runs | skip |
//! | [`FIRST`], [`FIRST_ASKED`] | index: may have such a run | the first run, from the goal on | skip |
//! | [`SHORTEST`] | index: may have such a run | the shortest of all that will do | skip |
//! | [`ANY_FREE`] | every group | the longest run of all | wait |
//!
//! [`POWER2_ALIGNED`] to [`ANY_FREE`] without [`CHUNK`] and [`SPLIT`] are the kernel's criteria (6.18) under
//! their names (`CR_POWER2_ALIGNED` ...), and `mballoc` is just these: the kernel tries a goal only where a
//! window of a file begins at a neighbour's end, which is a separate request
//! ([`Allocator::reserve_at`](crate::Allocator::reserve_at)); other policies try each.
//!
//! Where the average says that no group is good enough but some has a chunk of the length asked for,
//! [`CHUNK`] finds it without a slow pass. [`SPLIT`] is for a request longer than any free run: it gets
//! the longest piece that the index promises, at the cost of one run scanned, where the kernel scans up
//! to 200 to the same end.
//!
//! Every table ends with [`ANY_FREE`], which is exact: it is the only pass that may say there is no space. No
//! pass is made twice over the same groups with the same demands; so without the index there is no trimmed
//! pass, which would be the fast pass once more, and none by chunks or highest averages.
//!
//! What it is not: code. What the words mean is in `search`.

use crate::mechanism::Mechanism;
use crate::policy::{Order, Policy};
use crate::size_class::Stage;
use crate::stats::Pass as Counted;

/// Which groups, in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Candidates {
    /// The goal's group.
    Goal,
    /// Those the index knows to pass the test, from the goal on and around.
    Indexed,
    /// Those, with shorter and shorter lengths.
    Trimmed,
    /// Those, with lower and lower averages, from the highest there is.
    Highest,
    /// All, from the goal on and around.
    Linear,
}

/// What a group must promise, by what can be read without its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// A free chunk that holds the length.
    Chunk,
    /// An average run of the length.
    Average,
    /// Perhaps a run of the length.
    Fits,
    /// That many free clusters, wherever they lie.
    Free,
}

/// What is looked for in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scan {
    /// The run at the goal.
    AtGoal,
    /// An aligned chunk.
    Chunk,
    /// The first run, from the start of the group; one that is aligned to a stripe first.
    First,
    /// The first run, from the goal if it is in the group.
    FromGoal,
    /// The best of a limited number of runs, over all groups.
    Best,
    /// The shortest run that will do, over all groups.
    Shortest,
    /// The longest run, over all groups.
    Longest,
}

/// How long a run must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// The full length.
    Want,
    /// What the caller needs now.
    Asked,
    /// The average run of the group, no longer than asked and no shorter than the least.
    Average,
    /// The least of use.
    Least,
}

/// What to do about a group whose lock another request has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Busy {
    Skip,
    Wait,
}

/// One criterion, by which a pass goes over the groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pass {
    pub(crate) counted: Counted,
    pub(crate) candidates: Candidates,
    pub(crate) test: Test,
    pub(crate) scan: Scan,
    pub(crate) length: Length,
    pub(crate) busy: Busy,
    /// Whether a group whose lock is held is skipped before it is chosen.
    pub(crate) peeks: bool,
}

/// Some passes over the groups of some classes.
pub(crate) type Step = (Stage, Box<[Pass]>);

const fn pass(counted: Counted, candidates: Candidates, test: Test, scan: Scan, length: Length) -> Pass {
    Pass { counted, candidates, test, scan, length, busy: Busy::Skip, peeks: false }
}

/// The goal itself.
pub(crate) const GOAL: Pass = Pass {
    busy: Busy::Wait,
    ..pass(Counted::Goal, Candidates::Goal, Test::Fits, Scan::AtGoal, Length::Want)
};
/// Close behind the goal.
pub(crate) const NEAR: Pass =
    pass(Counted::GoalFast, Candidates::Goal, Test::Fits, Scan::FromGoal, Length::Want);
/// A power of two, aligned.
pub(crate) const POWER2_ALIGNED: Pass =
    pass(Counted::P2Aligned, Candidates::Indexed, Test::Chunk, Scan::Chunk, Length::Want);
/// The full length, where the average run is that long.
pub(crate) const GOAL_LEN_FAST: Pass =
    pass(Counted::GoalFast, Candidates::Indexed, Test::Average, Scan::First, Length::Want);
/// [`GOAL_LEN_FAST`] before runs shorter than the goal were skipped: each is counted, and when
/// `mb_max_to_scan` have been, the best of them is taken.
pub(crate) const GOAL_LEN_FAST_COUNTING: Pass = Pass { scan: Scan::Best, ..GOAL_LEN_FAST };
/// A trimmed length, where the average run is that long.
pub(crate) const BEST_AVAIL_LEN: Pass =
    pass(Counted::BestAvail, Candidates::Trimmed, Test::Average, Scan::First, Length::Asked);
/// The length asked for, where some chunk is that long.
pub(crate) const CHUNK: Pass =
    pass(Counted::Chunk, Candidates::Indexed, Test::Chunk, Scan::First, Length::Asked);
/// The longest average there is.
pub(crate) const SPLIT: Pass =
    pass(Counted::Split, Candidates::Highest, Test::Average, Scan::First, Length::Average);
/// The best of a limited number of runs.
pub(crate) const GOAL_LEN_SLOW: Pass =
    pass(Counted::GoalSlow, Candidates::Linear, Test::Free, Scan::Best, Length::Want);
/// The first run of the full length.
pub(crate) const FIRST: Pass =
    pass(Counted::FirstFit, Candidates::Indexed, Test::Fits, Scan::FromGoal, Length::Want);
/// The first run of the length asked for.
pub(crate) const FIRST_ASKED: Pass =
    pass(Counted::FirstFit, Candidates::Indexed, Test::Fits, Scan::FromGoal, Length::Asked);
/// The shortest run that will do.
pub(crate) const SHORTEST: Pass =
    pass(Counted::BestFit, Candidates::Indexed, Test::Fits, Scan::Shortest, Length::Want);
/// Whatever there is.
pub(crate) const ANY_FREE: Pass = Pass {
    busy: Busy::Wait,
    ..pass(Counted::AnyFree, Candidates::Linear, Test::Fits, Scan::Longest, Length::Least)
};

/// The goal and nothing else, as short as the caller allows.
pub(crate) const AT_GOAL: Pass = Pass { length: Length::Least, ..GOAL };
/// Metadata: at its goal, else close behind it.
const METADATA: [Pass; 4] = [GOAL, NEAR, GOAL_LEN_FAST, ANY_FREE];

/// The pass over all groups in order.
const fn linear(pass: Pass) -> Pass {
    Pass { candidates: Candidates::Linear, ..pass }
}

/// The passes of a policy, by what they demand.
struct Rows {
    /// For the full length.
    full: Vec<Pass>,
    /// For the length asked for.
    asked: Vec<Pass>,
    /// For what there is, over all groups.
    last: Vec<Pass>,
}

impl Rows {
    /// `indexed` says whether there is an index to ask.
    fn new(policy: Policy, indexed: bool) -> Self {
        let has = |mechanism| policy.has(mechanism);
        let (mut asked, mut last) = (Vec::new(), Vec::new());
        let goal = has(Mechanism::Goal).then_some(GOAL);
        let full: Vec<Pass> = match policy.order {
            Order::Criteria => {
                let fast = if has(Mechanism::SkipSmaller) { GOAL_LEN_FAST } else { GOAL_LEN_FAST_COUNTING };
                if indexed && has(Mechanism::BestAvail) {
                    asked.push(BEST_AVAIL_LEN);
                }
                if indexed && has(Mechanism::Chunk) {
                    asked.push(CHUNK);
                }
                // Without the index only the slow criterion finds what is asked in a unit of the class.
                let slow = if has(Mechanism::Classes) && !indexed { &mut asked } else { &mut last };
                slow.push(GOAL_LEN_SLOW);
                goal.into_iter().chain([POWER2_ALIGNED, fast]).collect()
            }
            Order::FirstFit => {
                if has(Mechanism::Classes) {
                    asked.push(FIRST_ASKED);
                }
                goal.into_iter().chain([FIRST]).collect()
            }
            Order::BestFit => vec![SHORTEST],
        };
        if indexed && has(Mechanism::Split) {
            last.insert(0, SPLIT);
        }
        last.push(ANY_FREE);
        let shape = |pass: Pass| {
            let asks = pass.candidates == Candidates::Indexed && !indexed;
            locking(if asks { linear(pass) } else { pass }, policy)
        };
        let shaped = |passes: Vec<Pass>| passes.into_iter().map(shape).collect();
        Self { full: shaped(full), asked: shaped(asked), last: shaped(last) }
    }

    /// A unit of another class only when the length asked for is not free elsewhere.
    fn table(self, has_classes: bool) -> Box<[Step]> {
        let Self { full, asked, last } = self;
        let mut table: Vec<Step> = Vec::new();
        if has_classes {
            for passes in [&full, &asked] {
                table.push((Stage::Matching, passes.as_slice().into()));
                table.push((Stage::Unset, passes.as_slice().into()));
            }
        }
        table.push((Stage::Any, [full, asked, last].concat().into()));
        table.retain(|(_, passes)| !passes.is_empty());
        table.into()
    }
}

/// What a pass of a policy does about busy groups.
fn locking(pass: Pass, policy: Policy) -> Pass {
    let (skips, peeks) = match pass.counted {
        // It is exact, so it looks at every group.
        Counted::AnyFree => (false, false),
        Counted::Goal => (policy.has(Mechanism::GoalTryLock), false),
        _ => (policy.has(Mechanism::TryLock), policy.has(Mechanism::Peek)),
    };
    Pass { busy: if skips { Busy::Skip } else { Busy::Wait }, peeks, ..pass }
}

/// The tables of a policy.
pub(crate) struct Tables {
    /// For contents of files.
    pub(crate) data: Box<[Step]>,
    /// For those that are to lie close behind their goal.
    pub(crate) packed: Box<[Step]>,
    /// For single clusters of metadata: as near as can be, whatever the policy.
    pub(crate) metadata: Box<[Step]>,
    /// For what is to lie at its goal, as short as the caller allows, or is asked for again elsewhere.
    pub(crate) at_goal: Pass,
}

impl Tables {
    /// The tables of a policy; `indexed` says whether the volume is large enough to ask the index first.
    pub(crate) fn new(policy: Policy, indexed: bool) -> Self {
        let has_classes = policy.has(Mechanism::Classes);
        let table = |policy: Policy| {
            // First fit and best fit are for all volumes what they are for large ones.
            let indexed = policy.has(Mechanism::Index) && (indexed || policy.order != Order::Criteria);
            Rows::new(policy, indexed).table(has_classes)
        };
        let packed = if policy.has(Mechanism::Room) { policy.first_fit() } else { policy };
        Self {
            data: table(policy),
            packed: table(packed),
            metadata: [(Stage::Any, METADATA.map(|pass| locking(pass, policy)).into())].into(),
            at_goal: locking(AT_GOAL, policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every policy with a name, and each of them with every mechanism switched.
    fn policies() -> impl Iterator<Item = Policy> {
        let switched = |policy: Policy| {
            Mechanism::LIST.iter().map(move |about| {
                let mechanism = about.mechanism;
                if policy.has(mechanism) { policy.without(mechanism) } else { policy.with(mechanism) }
            })
        };
        Policy::ALL.into_iter().chain(Policy::ALL.into_iter().flat_map(switched))
    }

    fn tables() -> impl Iterator<Item = (Policy, Box<[Step]>)> {
        let of = |policy| {
            [true, false].into_iter().flat_map(move |indexed| {
                let Tables { data, packed, metadata, .. } = Tables::new(policy, indexed);
                [data, packed, metadata].map(|table| (policy, table))
            })
        };
        policies().flat_map(of)
    }

    fn names(table: &[Step]) -> Vec<(Stage, Vec<&'static str>)> {
        table
            .iter()
            .map(|(stage, passes)| (*stage, passes.iter().map(|pass| pass.counted.criterion()).collect()))
            .collect()
    }

    #[test]
    fn every_table_ends_with_the_exact_pass_over_all_groups() {
        for (policy, table) in tables() {
            let (stage, passes) = table.last().unwrap();
            assert_eq!((*stage, *passes.last().unwrap()), (Stage::Any, ANY_FREE), "{policy}");
        }
    }

    #[test]
    fn mballoc_is_the_kernels_table() {
        let expected =
            ["CR_POWER2_ALIGNED", "CR_GOAL_LEN_FAST", "CR_BEST_AVAIL_LEN", "CR_GOAL_LEN_SLOW", "CR_ANY_FREE"];
        let indexed = Tables::new(Policy::MBALLOC, true).data;
        assert_eq!(names(&indexed), [(Stage::Any, expected.to_vec())]);
        let linear = Tables::new(Policy::MBALLOC, false).data;
        assert_eq!(linear, Tables::new(Policy::MBALLOC_LINEAR, true).data);
        let without = expected.into_iter().filter(|name| *name != "CR_BEST_AVAIL_LEN").collect();
        assert_eq!(names(&linear), [(Stage::Any, without)]);
    }

    #[test]
    fn busy_groups_are_skipped_by_try_lock_and_waited_for_at_the_goal_and_in_the_end() {
        for policy in policies() {
            let Tables { data, packed, metadata, at_goal } = Tables::new(policy, true);
            assert_eq!(at_goal.busy == Busy::Skip, policy.has(Mechanism::GoalTryLock), "{policy}");
            for pass in [data, packed, metadata].iter().flatten().flat_map(|step| &step.1) {
                let skips = match pass.counted {
                    Counted::AnyFree => false,
                    Counted::Goal => policy.has(Mechanism::GoalTryLock),
                    _ => policy.has(Mechanism::TryLock),
                };
                assert_eq!(pass.busy, if skips { Busy::Skip } else { Busy::Wait }, "{policy}: {pass:?}");
                let may_peek = !matches!(pass.counted, Counted::AnyFree | Counted::Goal);
                assert_eq!(pass.peeks, may_peek && policy.has(Mechanism::Peek), "{policy}: {pass:?}");
            }
        }
    }

    #[test]
    fn no_pass_is_made_twice_over_the_same_classes() {
        for (policy, table) in tables() {
            for stage in [Stage::Matching, Stage::Unset, Stage::Any] {
                let steps = table.iter().filter(|step| step.0 == stage);
                let passes: Vec<Pass> = steps.flat_map(|step| step.1.iter()).copied().collect();
                for (at, pass) in passes.iter().enumerate() {
                    assert!(!passes[..at].contains(pass), "{policy}: {pass:?} twice at {stage:?}");
                }
            }
        }
    }

    /// Small volumes have no index, and went straight to units of other classes.
    #[test]
    fn regression_classes_are_tried_for_what_is_asked_without_an_index_too() {
        let table = Tables::new(Policy::HYBRID, false).data;
        for stage in [Stage::Matching, Stage::Unset] {
            let mut passes = table.iter().filter(|step| step.0 == stage).flat_map(|step| step.1.iter());
            assert!(passes.any(|pass| pass.counted == Counted::GoalSlow), "{stage:?}");
        }
    }

    #[test]
    fn every_mechanism_of_the_search_changes_the_table() {
        let before = |policy: Policy| Tables::new(policy, true);
        for (policy, mechanism) in [
            (Policy::HYBRID, Mechanism::Goal),
            (Policy::FIRST_FIT, Mechanism::Goal),
            (Policy::MBALLOC, Mechanism::Index),
            (Policy::MBALLOC, Mechanism::BestAvail),
            (Policy::MBALLOC, Mechanism::SkipSmaller),
            (Policy::MBALLOC, Mechanism::TryLock),
            (Policy::MBALLOC, Mechanism::Peek),
            (Policy::HYBRID.with(Mechanism::GoalTryLock), Mechanism::GoalTryLock),
            (Policy::HYBRID, Mechanism::Chunk),
            (Policy::HYBRID, Mechanism::Split),
            (Policy::HYBRID, Mechanism::Classes),
            (Policy::FIRST_FIT, Mechanism::Index),
            (Policy::BEST_FIT, Mechanism::TryLock),
        ] {
            let without = policy.without(mechanism);
            assert!(policy.has(mechanism) && before(policy).data != before(without).data, "{without}");
        }
    }
}
