//! What a test run adds up to: counts, names, and times.

use crate::python;
use hectare_tools::skip::{Extent, Record};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The totals of the checks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeSet<(String, String)>,
    tests: Vec<Test>,
}

/// A test that ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Test {
    /// Its program and name.
    pub(super) name: String,
    /// How long it took, in seconds.
    pub(super) wall: f64,
    /// The processor time of its process and of those that it waited for, in seconds; none if nobody measured.
    pub(super) cpu: Option<f64>,
}

/// How many of the slowest tests are listed.
const SLOWEST: usize = 30;

impl Tally {
    pub(super) fn check(&mut self, name: &str, passed: bool) {
        if passed { self.pass() } else { self.fail(name) }
    }

    pub(super) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(super) fn fail(&mut self, name: &str) {
        self.failed.push(name.to_owned());
    }

    /// Counts what could not be checked here; where all is required that is a failure.
    pub(super) fn skip(&mut self, name: &str, reason: &str) {
        if !hectare_tools::ended::may_skip() {
            return self.fail(&format!("{name} would be skipped: {reason}"));
        }
        self.skipped.insert((name.to_owned(), reason.to_owned()));
    }

    /// Notes the time of a test.
    pub(super) fn time(&mut self, test: Test) {
        self.tests.push(test);
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    pub(super) fn failures(&self) -> usize {
        self.failed.len()
    }

    pub(super) fn is_sound(&self) -> bool {
        self.failed.is_empty()
    }

    /// A test that skipped itself was counted as passed. Tests that skip themselves by one name and for one reason
    /// count as one.
    pub(super) fn take_skips(&mut self, records: &[Record]) {
        let whole = records.iter().filter(|record| record.extent == Extent::Test);
        let whole: BTreeSet<_> = whole.map(|record| (&record.test, &record.reason)).collect();
        self.passed = self.passed.saturating_sub(whole.len());
        for record in records {
            self.skip(&record.test, &record.reason);
        }
    }

    pub(super) fn take_python(&mut self, outcome: python::Outcome) {
        self.passed += outcome.passed;
        self.failed.extend(outcome.failed);
        self.skipped.extend(outcome.skipped);
    }

    pub(super) fn print(&self) {
        if !self.tests.is_empty() {
            println!("\nthe slowest tests, seconds of wall and processor time:");
        }
        for Test { name, wall, cpu } in self.slowest() {
            let cpu = cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
            println!("{wall:>8.1}{cpu:>8}  {name}");
        }
        println!();
        for (name, reason) in &self.skipped {
            println!("skipped {name}: {reason}");
        }
        for name in &self.failed {
            println!("FAILED {name}");
        }
        println!("{}", self.line());
    }

    fn slowest(&self) -> Vec<&Test> {
        let mut tests: Vec<&Test> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.wall.total_cmp(&a.wall));
        tests.truncate(SLOWEST);
        tests
    }

    pub(super) fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len())
    }
}

/// The times of the steps.
#[derive(Default)]
pub(super) struct Steps(Vec<(&'static str, Duration)>);

impl Steps {
    /// Runs a step and notes its time.
    pub(super) fn time<T>(&mut self, name: &'static str, step: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = step();
        self.add(name, began.elapsed());
        result
    }

    pub(super) fn add(&mut self, name: &'static str, time: Duration) {
        self.0.push((name, time));
    }

    pub(super) fn print(&self) {
        println!("\nthe steps, in seconds:");
        for (name, time) in &self.0 {
            println!("{:>8.1}  {name}", time.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_tools::skip;

    #[test]
    fn skips_are_counted_once_and_failures_named() {
        let mut tally = Tally::default();
        (0..3).for_each(|_| tally.pass());
        tally.check("test c", false);
        // Two tests that skip themselves by one name are one.
        let twice = "test\tmount::needs_root\tmounting needs root\n".repeat(2);
        tally.take_skips(&skip::parse(&(twice + "part\ta::b, 64k\tno such kernel\n")));
        assert_eq!(tally.line(), "2 passed, 1 failed, 2 skipped");
        assert!(!tally.is_sound() && tally.failures() == 1);
    }

    #[test]
    fn the_slowest_come_first() {
        let mut tally = Tally::default();
        for n in 0..40_u8 {
            tally.time(Test { name: n.to_string(), wall: n.into(), cpu: None });
        }
        let names: Vec<_> = tally.slowest().into_iter().map(|test| test.name.clone()).collect();
        assert_eq!((names.len(), &*names[0], &*names[29]), (SLOWEST, "39", "10"));
    }
}
