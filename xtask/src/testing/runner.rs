//! Runs the tests of the workspace: by cargo-nextest, which starts each in a process of its own, side by side with
//! others as `.config/nextest.toml` says; where it is absent by `cargo test`, one program after the other.

use super::report::{Tally, Test};
use super::wrapper::{self, TIMES};
use hectare_tools::built::FEATURES;
use hectare_tools::steps::{cargo, quiet, root, target_folder};
use hectare_tools::tool::line_of;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Where nextest's profile has its report: below the workspace, wherever cargo's target directory is.
const REPORT: &str = "target/nextest/default/junit.xml";

/// Runs all tests.
pub(super) fn run(tally: &mut Tally, set: impl Fn(&mut Command)) {
    if quiet(cargo().args(["nextest", "--version"])).is_none() {
        println!("\ncargo-nextest is not installed: one test program at a time");
        // Not --lib nor --bins: these take no notice of `test = false`.
        let all = [&["--workspace", "--no-fail-fast", "--tests"][..], &FEATURES].concat();
        by_cargo(tally, &all, &set);
        return;
    }
    let (times, report) = (target_folder().join("times.log"), root().join(REPORT));
    for old in [&times, &report] {
        let _ = std::fs::remove_file(old); // absent at first
    }
    let mut nextest = cargo();
    nextest.args(["nextest", "run", "--workspace", "--no-fail-fast"]).args(FEATURES);
    nextest.args(["--status-level", "slow", "--final-status-level", "fail", "--show-progress", "none"]);
    nextest.env(TIMES, &times);
    if let Some((name, value)) = starter() {
        nextest.env(name, value);
    }
    set(&mut nextest);
    println!("\n$ {}", line_of(&nextest));
    let succeeded = nextest.status().is_ok_and(|status| status.success());
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let failed_before = tally.failures();
    take(tally, &text, &wrapper::read(&times));
    if !succeeded && tally.failures() == failed_before {
        tally.fail("cargo nextest did not come to its end");
    }
    if succeeded && text.is_empty() {
        tally.fail("cargo nextest left no report");
    }
}

/// The variable that has cargo start each test by a program that measures it, and its value. None where the path has
/// a blank, at which cargo would split it: nothing is measured then.
fn starter() -> Option<(String, String)> {
    // Not this process's own program, which the compilation may have replaced.
    let program = target_folder().join("debug/xtask").display().to_string();
    let name = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
    (!program.contains(' ')).then(|| (name, format!("{program} run-test")))
}

/// Runs the examples in the documentation, of everything with the features of the tests: a selection has others, and
/// would be compiled for itself.
pub(super) fn documentation(tally: &mut Tally, set: impl Fn(&mut Command)) {
    by_cargo(tally, &[&["--doc", "--workspace", "--no-fail-fast"][..], &FEATURES].concat(), &set);
}

/// Takes the tests of nextest's report, which is in JUnit's form.
fn take(tally: &mut Tally, report: &str, cpu: &HashMap<String, f64>) {
    for case in report.split("<testcase ").skip(1) {
        let (head, rest) = case.split_once('>').unwrap_or((case, ""));
        let body =
            if head.ends_with('/') { "" } else { rest.split("</testcase>").next().unwrap_or_default() };
        let (program, name) = (attribute(head, "classname"), attribute(head, "name"));
        let full = format!("{program} {name}");
        if body.contains("<failure") || body.contains("<error") {
            tally.fail(&format!("test {full}"));
        } else {
            tally.pass();
        }
        let wall = attribute(head, "time").parse().unwrap_or_default();
        tally.time(Test { cpu: cpu.get(&measured_as(&program, &name)).copied(), name: full, wall });
    }
}

/// The name of a test in the file of times: nextest names programs `package` (a library), `package::program`, or
/// `package::bin/program`.
fn measured_as(program: &str, name: &str) -> String {
    let last = program.rsplit(['/', ':']).next().unwrap_or(program);
    format!("{} {name}", last.replace('-', "_"))
}

/// An attribute of an element, as text.
fn attribute(head: &str, name: &str) -> String {
    let after = head.split(&format!(" {name}=\"")).nth(1);
    let after = after.or_else(|| head.strip_prefix(&format!("{name}=\"")));
    let value = after.and_then(|after| after.split('"').next()).unwrap_or_default();
    value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Concurrent tests of one program: one more than there are processors, for tests on disks and mounts wait for a
/// quarter of their time. An explicit number is respected.
fn test_threads() -> String {
    let said = std::env::var("RUST_TEST_THREADS").ok();
    said.unwrap_or_else(|| (std::thread::available_parallelism().map_or(1, usize::from) + 1).to_string())
}

/// Runs `cargo test` with these arguments.
pub(super) fn by_cargo(tally: &mut Tally, arguments: &[&str], set: &impl Fn(&mut Command)) {
    let failed_before = tally.failures();
    let mut command = cargo();
    command.arg("test").args(arguments).env("RUST_TEST_THREADS", test_threads()).stdout(Stdio::piped());
    set(&mut command);
    println!("\n$ {}", line_of(&command));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tally.fail(&format!("cargo test did not start: {error}")),
    };
    let mut harness = Harness::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            harness.read(&line, tally);
        }
    }
    let succeeded = child.wait().is_ok_and(|status| status.success());
    harness.finish(succeeded, tally, failed_before);
}

/// The harness's output, line by line.
#[derive(Default)]
struct Harness {
    /// Test programs that have begun and not ended.
    running: usize,
}

impl Harness {
    /// Takes one line: `running N tests`, `test result: ...`, or `test NAME ... ok|FAILED|ignored[, REASON]`.
    fn read(&mut self, line: &str, tally: &mut Tally) {
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
            ("ok", _) => tally.pass(),
            ("FAILED", _) => tally.fail(&format!("test {name}")),
            ("ignored", "") => tally.skip(name, "ignored"),
            ("ignored", reason) => tally.skip(name, reason),
            _ => {}
        }
    }

    /// Nothing may hide behind another failure: neither a program that died nor one that was never built.
    /// `failed_before` checks had failed when this `cargo test` began.
    fn finish(&mut self, succeeded: bool, tally: &mut Tally, failed_before: usize) {
        let died = std::mem::take(&mut self.running);
        let has_named = tally.failures() > failed_before;
        if died > 0 {
            tally.fail(&format!("{died} test programs died in the middle"));
        }
        if !succeeded && !has_named {
            tally.fail("cargo test did not come to its end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nextests_report_is_counted_and_its_failures_are_named() {
        let report = r#"<testsuite name="a">
<testcase name="b::c" classname="hectare-x::tests" timestamp="t" time="0.5"></testcase>
<testcase name="d&lt;1&gt;" classname="hectare-x" time="1.25"><failure type="f">no</failure></testcase>
<testcase name="e" classname="hectare-x::bin/y" time="2" /></testsuite>"#;
        let mut tally = Tally::default();
        take(&mut tally, report, &HashMap::from([("tests b::c".to_owned(), 0.25)]));
        assert_eq!(tally.line(), "2 passed, 1 failed, 0 skipped");
        assert!(format!("{tally:?}").contains("test hectare-x d<1>"), "{tally:?}");
        assert!(format!("{tally:?}").contains("cpu: Some(0.25)"), "{tally:?}");
    }

    #[test]
    fn programs_are_named_as_their_files_are() {
        assert_eq!(measured_as("hectare-x", "a"), "hectare_x a");
        assert_eq!(measured_as("hectare-x::oracle", "a"), "oracle a");
        assert_eq!(measured_as("xtask::bin/xtask", "a"), "xtask a");
    }

    #[test]
    fn the_harness_is_counted() {
        let (mut harness, mut tally) = (Harness::default(), Tally::default());
        let lines = "running 4 tests
test a::b ... ok
test c ... FAILED
test d ... ignored
test e ... ignored, needs a week
test src/lib.rs - thing (line 3) ... ok
test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured";
        lines.lines().for_each(|line| harness.read(line, &mut tally));
        assert_eq!(tally.line(), "2 passed, 1 failed, 2 skipped");
        harness.finish(false, &mut tally, 0);
        assert_eq!(tally.failures(), 1);
    }

    #[test]
    fn what_died_or_was_not_built_is_a_failure() {
        let (mut harness, mut tally) = (Harness::default(), Tally::default());
        ["running 2 tests", "test a ... FAILED"].iter().for_each(|line| harness.read(line, &mut tally));
        harness.finish(false, &mut tally, 0);
        assert_eq!(tally.failures(), 2);
        harness.finish(false, &mut tally, 2);
        assert_eq!(tally.failures(), 3, "an earlier failure hides nothing");
        let mut unbuilt = Tally::default();
        Harness::default().finish(false, &mut unbuilt, 0);
        assert_eq!(unbuilt.line(), "0 passed, 1 failed, 0 skipped");
    }
}
