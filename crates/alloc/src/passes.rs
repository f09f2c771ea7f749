//! The policies, as tables of passes.
//!
//! A pass says which groups are candidates and in which order, what makes one worth its lock, how it is
//! scanned, how long a run must be, and what to do about a busy one. A table is a row of *steps*: some passes
//! over some of the size classes. The search (`search`) goes through them from top to bottom and ends with
//! the first run it takes.
//!
//! | pass | candidates | scan | busy group |
//! |---|---|---|---|
//! | [`GOAL`] | the goal's group | at the goal, full length | wait |
//! | [`NEAR`] | the goal's group | the first run from the goal on | skip |
//! | [`POWER2`] | index by largest chunk | an aligned chunk | skip |
//! | [`FAST`] | index by average run | the first run of the full length; shorter ones cost nothing | skip |
//! | [`BEST_AVAIL`] | the same, trimmed step by step, not below what is asked | as above | skip |
//! | [`CHUNK`] | index by largest chunk | the first run of what is asked | skip |
//! | [`SPLIT`] | the highest average there is | the first run as long as that average | skip |
//! | [`SLOW`] | every group | the best of a limited number of runs | skip |
//! | [`FIRST`], [`FIRST_ASKED`] | index: may have such a run | the first run, from the goal on | skip |
//! | [`SHORTEST`] | index: may have such a run | the shortest of all that will do | skip |
//! | [`ANY`] | every group | the longest run of all | wait |
//!
//! [`CHUNK`] and [`SPLIT`] are not in the kernel's table. Where the average says that no group is good enough
//! but some has a chunk of the length asked for, the first finds it without a slow pass. The second is for a
//! request longer than any free run: it gets the longest piece that the index promises, at the cost of one
//! run scanned, where the kernel scans up to 200 to the same end.
//!
//! Every table ends with [`ANY`], which is exact: it is the only pass that may say there is no space. No pass
//! is made twice over the same groups with the same demands; so `mballoc-linear` has no trimmed pass, which
//! without an index is the fast pass once more.
//!
//! What it is not: code. What the words mean is in `search`.

use crate::class::Stage;
use crate::policy::Policy;
use crate::stats::Pass as Counted;

/// Which groups, in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Candidates {
    /// The goal's group.
    Goal,
    /// Those the index knows to pass the test, from the goal on and around.
    Indexed,
    /// The same with shorter and shorter lengths.
    Trimmed,
    /// The same with lower and lower averages, from the highest there is.
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
    /// So many free clusters, wherever they lie.
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
    /// As the average run of the group, no longer than asked and no shorter than the least.
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

/// One pass over the groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pass {
    pub(crate) counted: Counted,
    pub(crate) candidates: Candidates,
    pub(crate) test: Test,
    pub(crate) scan: Scan,
    pub(crate) length: Length,
    pub(crate) busy: Busy,
}

/// Some passes over the groups of some classes.
pub(crate) type Step = (Stage, &'static [Pass]);

const fn pass(counted: Counted, candidates: Candidates, test: Test, scan: Scan, length: Length) -> Pass {
    Pass { counted, candidates, test, scan, length, busy: Busy::Skip }
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
pub(crate) const POWER2: Pass =
    pass(Counted::P2Aligned, Candidates::Indexed, Test::Chunk, Scan::Chunk, Length::Want);
/// The full length where the average run has it.
pub(crate) const FAST: Pass =
    pass(Counted::GoalFast, Candidates::Indexed, Test::Average, Scan::First, Length::Want);
/// A trimmed length where the average run has it.
pub(crate) const BEST_AVAIL: Pass =
    pass(Counted::BestAvail, Candidates::Trimmed, Test::Average, Scan::First, Length::Asked);
/// What is asked where some chunk has it.
pub(crate) const CHUNK: Pass =
    pass(Counted::BestAvail, Candidates::Indexed, Test::Chunk, Scan::First, Length::Asked);
/// The longest average there is.
pub(crate) const SPLIT: Pass =
    pass(Counted::BestAvail, Candidates::Highest, Test::Average, Scan::First, Length::Average);
/// The best of a limited number of runs.
pub(crate) const SLOW: Pass =
    pass(Counted::GoalSlow, Candidates::Linear, Test::Free, Scan::Best, Length::Want);
/// The first run of the full length.
pub(crate) const FIRST: Pass =
    pass(Counted::GoalFast, Candidates::Indexed, Test::Fits, Scan::FromGoal, Length::Want);
/// The first run of what is asked.
pub(crate) const FIRST_ASKED: Pass =
    pass(Counted::GoalSlow, Candidates::Indexed, Test::Fits, Scan::FromGoal, Length::Asked);
/// The shortest run that will do.
pub(crate) const SHORTEST: Pass =
    pass(Counted::GoalSlow, Candidates::Indexed, Test::Fits, Scan::Shortest, Length::Want);
/// Whatever there is.
pub(crate) const ANY: Pass = Pass {
    busy: Busy::Wait,
    ..pass(Counted::AnyFree, Candidates::Linear, Test::Fits, Scan::Longest, Length::Least)
};
const POWER2_LINEAR: Pass = Pass { candidates: Candidates::Linear, ..POWER2 };
const FAST_LINEAR: Pass = Pass { candidates: Candidates::Linear, ..FAST };

/// Single clusters of metadata: as near as can be, whatever the policy.
const METADATA: &[Step] = &[(Stage::Any, &[GOAL, NEAR, FAST, ANY])];

const MBALLOC: &[Step] = &[(Stage::Any, &[GOAL, POWER2, FAST, BEST_AVAIL, CHUNK, SPLIT, SLOW, ANY])];

const MBALLOC_LINEAR: &[Step] = &[(Stage::Any, &[GOAL, POWER2_LINEAR, FAST_LINEAR, SLOW, ANY])];

const FIRST_FIT: &[Step] = &[(Stage::Any, &[GOAL, FIRST, ANY])];

const BEST_FIT: &[Step] = &[(Stage::Any, &[SHORTEST, ANY])];

/// A unit of another class only when what is asked can't be had otherwise.
const SIZE_CLASS: &[Step] = &[
    (Stage::Matching, &[GOAL, FIRST]),
    (Stage::Unset, &[GOAL, FIRST]),
    (Stage::Matching, &[FIRST_ASKED]),
    (Stage::Unset, &[FIRST_ASKED]),
    (Stage::Any, &[GOAL, FIRST, FIRST_ASKED, SPLIT, ANY]),
];

const HYBRID: &[Step] = &[
    (Stage::Matching, &[GOAL, POWER2, FAST]),
    (Stage::Unset, &[GOAL, POWER2, FAST]),
    (Stage::Matching, &[BEST_AVAIL, CHUNK]),
    (Stage::Unset, &[BEST_AVAIL, CHUNK]),
    (Stage::Any, &[GOAL, POWER2, FAST, BEST_AVAIL, CHUNK, SPLIT, SLOW, ANY]),
];

const HYBRID_LINEAR: &[Step] = &[
    (Stage::Matching, &[GOAL, POWER2_LINEAR, FAST_LINEAR, SLOW]),
    (Stage::Unset, &[GOAL, POWER2_LINEAR, FAST_LINEAR, SLOW]),
    (Stage::Any, &[GOAL, POWER2_LINEAR, FAST_LINEAR, SLOW, ANY]),
];

/// The table of a policy, with or without the index.
pub(crate) const fn table(policy: Policy, indexed: bool) -> &'static [Step] {
    match (policy, indexed) {
        (Policy::Mballoc, true) => MBALLOC,
        (Policy::Mballoc, false) | (Policy::MballocLinear, _) => MBALLOC_LINEAR,
        (Policy::SizeClass, _) => SIZE_CLASS,
        (Policy::Hybrid, true) => HYBRID,
        (Policy::Hybrid, false) => HYBRID_LINEAR,
        (Policy::BestFit, _) => BEST_FIT,
        (Policy::FirstFit, _) => FIRST_FIT,
    }
}

/// The table of a policy for requests that are to lie close behind their goal.
pub(crate) const fn packed(policy: Policy, indexed: bool) -> &'static [Step] {
    if has_classes(policy) { SIZE_CLASS } else { table(policy, indexed) }
}

/// The table of requests for metadata.
pub(crate) const fn metadata() -> &'static [Step] {
    METADATA
}

/// Whether a policy sets parts of the volume apart.
pub(crate) const fn has_classes(policy: Policy) -> bool {
    matches!(policy, Policy::SizeClass | Policy::Hybrid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> impl Iterator<Item = &'static [Step]> {
        let of = |policy| [true, false].map(|indexed| table(policy, indexed));
        Policy::ALL.into_iter().flat_map(of).chain([metadata()])
    }

    #[test]
    fn every_table_ends_with_the_exact_pass_over_all_groups() {
        for table in tables() {
            let (stage, passes) = table.last().unwrap();
            assert_eq!((*stage, *passes.last().unwrap()), (Stage::Any, ANY));
        }
    }

    #[test]
    fn only_the_first_and_the_last_pass_of_a_step_wait_for_busy_groups() {
        for (_, passes) in tables().flatten() {
            for pass in *passes {
                assert_eq!(pass.busy == Busy::Wait, *pass == GOAL || *pass == ANY, "{pass:?}");
            }
        }
    }

    #[test]
    fn no_pass_is_made_twice_over_the_same_classes() {
        for table in tables() {
            for stage in [Stage::Matching, Stage::Unset, Stage::Any] {
                let steps = table.iter().filter(|step| step.0 == stage);
                let passes: Vec<Pass> = steps.flat_map(|step| step.1).copied().collect();
                for (at, pass) in passes.iter().enumerate() {
                    assert!(!passes[..at].contains(pass), "{pass:?} twice at {stage:?}");
                }
            }
        }
    }

    #[test]
    fn classes_are_a_matter_of_policies_with_more_than_one_stage() {
        for policy in Policy::ALL {
            let staged = table(policy, true).iter().any(|step| step.0 != Stage::Any);
            assert_eq!(staged, has_classes(policy));
        }
    }
}
