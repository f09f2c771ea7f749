//! Sums over many requests: how many each pass answered, and at what cost.

use super::{Units, counted, how, sections};
use hectare_alloc::{Answer, Criterion, RequestTrace, What, Why};
use hectare_engine::Explanation;
use hectare_units::u64_of;
use std::fmt::Write;

/// The totals of some passes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    /// Requests that they answered.
    answered: u64,
    /// How often they ran.
    made: u64,
    /// Groups that they skipped without scanning them.
    pub(crate) passed: u64,
    /// Skipped groups that were busy.
    busy: u64,
    /// Groups that they scanned.
    pub(crate) scanned: u64,
    /// Runs that they examined.
    pub(crate) runs: u64,
}

/// The passes, in the order in which they are printed.
const PASSES: [Criterion; 10] = [
    Criterion::Goal,
    Criterion::P2Aligned,
    Criterion::GoalFast,
    Criterion::BestAvail,
    Criterion::Chunk,
    Criterion::Split,
    Criterion::GoalSlow,
    Criterion::FirstFit,
    Criterion::BestFit,
    Criterion::AnyFree,
];

impl Sum {
    /// The totals of the passes that `counts` selects, for some requests.
    pub(crate) fn of(requests: &[RequestTrace], counts: impl Fn(Criterion) -> bool) -> Self {
        let mut sum = Self::default();
        for request in requests {
            sum.answered += u64::from(matches!(request.answer, Answer::Taken { by, .. } if counts(by)));
            for section in sections(&request.events) {
                let own = section.iter().filter(|event| counts(event.pass));
                sum.made += u64::from(own.clone().any(|event| !matches!(event.what, What::NotMade(_))));
                own.for_each(|event| sum.add(event.what, event.groups));
            }
        }
        sum
    }

    fn add(&mut self, what: What, groups: u32) {
        match what {
            What::Passed { why, .. } => {
                self.passed += u64::from(groups);
                self.busy += if why == Why::Busy { u64::from(groups) } else { 0 };
            }
            What::Scanned { extents, .. } => {
                self.scanned += 1;
                self.runs += u64::from(extents);
            }
            _ => {}
        }
    }
}

/// Everything in a table.
pub(crate) fn text(explanation: &Explanation) -> String {
    let trace = &explanation.trace;
    let requests = counted(u64_of(trace.requests.len()), "request");
    let mut text = format!("policy {}: {requests}", how(explanation));
    if trace.overwritten > 0 {
        let _ = write!(text, ", the last; {} before are forgotten", trace.overwritten);
    }
    let _ = writeln!(
        text,
        "\n  {:<20}{:>9}{:>9}{:>12}{:>9}{:>9}{:>10}",
        "", "answered", "tried", "passed by", "busy", "scanned", "runs"
    );
    for (name, answered) in without_a_pass(&trace.requests) {
        let _ = writeln!(text, "  {name:<20}{answered:>9}");
    }
    for criterion in PASSES {
        let Sum { answered, made, passed, busy, scanned, runs } =
            Sum::of(&trace.requests, |pass| pass == criterion);
        if made > 0 {
            let name = criterion.criterion();
            let _ = writeln!(
                text,
                "  {name:<20}{answered:>9}{made:>9}{passed:>12}{busy:>9}{scanned:>9}{runs:>10}"
            );
        }
    }
    text
}

/// Requests that no pass answered, by their outcome.
fn without_a_pass(requests: &[RequestTrace]) -> Vec<(&'static str, usize)> {
    let count = |is: fn(&Answer) -> bool| requests.iter().filter(|request| is(&request.answer)).count();
    let mut counts = vec![
        ("kept for the file", count(|answer| matches!(answer, Answer::Window { .. }))),
        ("kept for a thread", count(|answer| matches!(answer, Answer::Slot { .. }))),
        ("not at the goal", count(|answer| matches!(answer, Answer::NotAtGoal))),
        ("no space", count(|answer| matches!(answer, Answer::NoSpace | Answer::TooLong))),
        ("failed", count(|answer| matches!(answer, Answer::Failed))),
    ];
    counts.retain(|(_, count)| *count > 0);
    counts
}

/// The total of several requests for one file.
pub(crate) fn pieces(units: Units, requests: &[RequestTrace]) -> String {
    let taken = requests.iter().filter_map(|request| match request.answer {
        Answer::Taken { start, len, .. } | Answer::Window { start, len } | Answer::Slot { start, len } => {
            Some((start, len))
        }
        _ => None,
    });
    let runs: Vec<String> = taken.map(|(start, len)| units.blocks(start, len)).collect();
    match runs.len() {
        0 => "nothing".to_owned(),
        count => format!("{}: {}", counted(u64_of(count), "run"), runs.join(", ")),
    }
}
