//! `make test`: runs every check, and prints one line that counts them.
//!
//! Formatting, lints and tidy count as one check each. A test that skipped itself is counted as skipped
//! although the harness calls it passed; a part that a test left out, and an ignored test, count as skipped
//! too. Skips are listed by name, failures last.
//!
//! The fuzz targets run for seconds each, as tests of their package. Beside the workspace's tests run those
//! of the schedule explorers, which need the crate built with an explorer's locks in the place of the real
//! ones ([`EXPLORERS`]). The wheel of Python is built while they run.

use crate::python::{self, Compared};
use crate::steps::{cargo, quiet, shown, target_folder};
use crate::{features, published, setup, tidy};
use hectare_oracle::skip::{self, Extent, LOG, Record};
use hectare_oracle::tool::line_of;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Why the advisory database was not checked.
const NO_DENY: &str = "cargo-deny is not installed; tidy has looked at licences, sources and bans";

/// The totals of the checks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeSet<(String, String)>,
    /// Test programs that have begun and not ended.
    running: usize,
}

/// Runs everything; returns whether nothing failed.
pub(crate) fn run() -> bool {
    setup::run();
    let mut tally = Tally::default();
    match quiet(cargo().args(["fmt", "--version"])) {
        Some(_) => tally.check("formatting", shown(cargo().args(["fmt", "--all", "--check"]))),
        None => tally.skip("formatting", "rustfmt is not installed"),
    }
    match quiet(cargo().args(["clippy", "--version"])) {
        Some(_) => tally.check("lints", lints()),
        None => tally.skip("lints", "clippy is not installed"),
    }
    println!("\n$ cargo xtask tidy");
    tally.check("tidy", tidy::run());
    tally.check("a reader of the library", features::reader_compiles());
    match published::can_package() {
        true => tally.check("packages", published::run(&[])),
        false => tally.skip("packages", "packaging crates together needs cargo 1.90"),
    }
    match quiet(cargo().args(["deny", "--version"])) {
        Some(_) => tally.check("dependencies", shown(cargo().args(["deny", "check"]))),
        None => tally.skip("dependencies", NO_DENY),
    }
    let log = target_folder().join("skips.log");
    let _ = std::fs::remove_file(&log); // absent at first; a test that can't append to it fails by itself
    let prepared = std::thread::scope(|scope| {
        let prepared = scope.spawn(python::prepared);
        tests(&mut tally, &["--workspace", "--no-fail-fast"], &log);
        for explorer in EXPLORERS {
            tests(&mut tally, explorer, &log);
        }
        prepared.join()
    });
    match prepared {
        Ok(prepared) => tally.take_python(python::outcome(prepared, built_by_tests())),
        Err(_) => tally.fail("python: its wheel can't be built"),
    }
    let records = skip::parse(&std::fs::read_to_string(&log).unwrap_or_default());
    tally.take_skips(&records);
    hectare_oracle::scratch::sweep();
    tally.print();
    tally.failed.is_empty()
}

/// Of everything, fuzz targets too: the one check that they compile. And of the command line without the lab,
/// which nothing else builds.
fn lints() -> bool {
    let lint = |what: &[&str]| shown(cargo().arg("clippy").args(what).args(["--", "-D", "warnings"]));
    lint(&["--workspace", "--all-targets"]) && lint(&["--package", "hectare-cli", "--no-default-features"])
}

/// Tests under an explorer: what to build, and which tests. An explorer's lock works only inside its run, so
/// the others can't be run with it. The numbers of schedules in them are chosen for all to take some seconds.
const EXPLORERS: [&[&str]; 3] = [
    &["-p", "hectare-alloc", "--features", "shuttle", "--test", "shuttle"],
    &["-p", "hectare-alloc", "--features", "shuttle", "--lib", "--", "random_schedules", "refusal_tests"],
    &["-p", "hectare-alloc", "--features", "loom", "--lib", "--", "every_schedule"],
];

/// Concurrent tests: one more than there are processors, for tests on disks and mounts wait for a quarter of
/// their time. An explicit number is respected.
fn test_threads() -> String {
    let said = std::env::var("RUST_TEST_THREADS").ok();
    said.unwrap_or_else(|| (std::thread::available_parallelism().map_or(1, usize::from) + 1).to_string())
}

/// The command and the library for C that the tests of the workspace have built.
fn built_by_tests() -> Compared {
    let folder = target_folder().join("debug");
    Compared { command: Some(folder.join("hectare")), c_library: Some(folder.join("deps/libhectare_c.so")) }
}

/// Runs `cargo test` with these arguments.
fn tests(tally: &mut Tally, args: &[&str], log: &Path) {
    let failed_before = tally.failed.len();
    let mut command = cargo();
    command
        .arg("test")
        .args(args)
        .env(LOG, log)
        .env("RUST_TEST_THREADS", test_threads())
        .stdout(Stdio::piped());
    println!("\n$ {}", line_of(&command));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tally.fail(&format!("cargo test did not start: {error}")),
    };
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally.read_line(&line);
        }
    }
    let succeeded = child.wait().is_ok_and(|status| status.success());
    tally.finish(succeeded, failed_before);
}

impl Tally {
    fn check(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.fail(name);
        }
    }

    fn fail(&mut self, name: &str) {
        self.failed.push(name.to_owned());
    }

    fn skip(&mut self, name: &str, reason: &str) {
        self.skipped.insert((name.to_owned(), reason.to_owned()));
    }

    /// Nothing may hide behind another failure: neither a program that died nor one that was never built.
    /// `failed_before` checks had failed when this `cargo test` began.
    fn finish(&mut self, succeeded: bool, failed_before: usize) {
        let died = std::mem::take(&mut self.running);
        if died > 0 {
            self.fail(&format!("{died} test programs died in the middle"));
        }
        if !succeeded && !self.failed.iter().skip(failed_before).any(|name| name.starts_with("test ")) {
            self.fail("cargo test did not come to its end");
        }
    }

    /// Takes one line of the harness: `running N tests`, `test result: ...`, or `test NAME ...
    /// ok|FAILED|ignored[, REASON]`.
    fn read_line(&mut self, line: &str) {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.running += 1;
        } else if line.starts_with("test result: ") {
            self.running = self.running.saturating_sub(1);
        }
        let Some((name, result)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        else {
            return;
        };
        match result.split_once(", ").unwrap_or((result, "")) {
            ("ok", _) => self.passed += 1,
            ("FAILED", _) => self.failed.push(format!("test {name}")),
            ("ignored", "") => self.skip(name, "ignored"),
            ("ignored", reason) => self.skip(name, reason),
            _ => {}
        }
    }

    fn take_skips(&mut self, records: &[Record]) {
        let whole = records.iter().filter(|record| record.extent == Extent::Test).count();
        self.passed = self.passed.saturating_sub(whole);
        for record in records {
            self.skip(&record.test, &record.reason);
        }
    }

    fn take_python(&mut self, outcome: python::Outcome) {
        self.passed += outcome.passed;
        self.failed.extend(outcome.failed);
        self.skipped.extend(outcome.skipped);
    }

    fn print(&self) {
        println!();
        for (name, reason) in &self.skipped {
            println!("skipped {name}: {reason}");
        }
        for name in &self.failed {
            println!("FAILED {name}");
        }
        println!("{}", self.line());
    }

    fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_and_the_skip_log_are_counted_once() {
        let mut tally = Tally::default();
        let lines = "running 4 tests
test a::b ... ok
test c ... FAILED
test d ... ignored
test e ... ignored, needs a week
test mount::needs_root ... ok
test src/lib.rs - thing (line 3) ... ok
test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured";
        lines.lines().for_each(|line| tally.read_line(line));
        let log = "test\tmount::needs_root\tmounting needs root\npart\ta::b, 64k\tno such kernel\n";
        tally.take_skips(&skip::parse(log));
        assert_eq!(tally.line(), "2 passed, 1 failed, 4 skipped");
        assert_eq!(tally.failed, ["test c"]);
        tally.finish(false, 0);
        assert_eq!(tally.failed, ["test c"]);
    }

    #[test]
    fn what_died_or_was_not_built_is_a_failure() {
        let mut died = Tally::default();
        ["running 2 tests", "test a ... FAILED"].iter().for_each(|line| died.read_line(line));
        died.finish(false, 0);
        assert_eq!(died.failed.len(), 2);
        died.finish(false, 2);
        assert_eq!(died.failed.len(), 3, "an earlier failure hides nothing");
        let mut unbuilt = Tally::default();
        unbuilt.finish(false, 0);
        assert_eq!(unbuilt.line(), "0 passed, 1 failed, 0 skipped");
    }
}
