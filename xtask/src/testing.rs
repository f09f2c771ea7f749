//! `make test`: runs every check, and prints one line that counts them.
//!
//! | step | what it does |
//! |---|---|
//! | set-up | installs the tools that tests use; one that was to be had and is missing is a failure |
//! | formatting, tidy, lints | end the run if they fail: what they find is found without compiling anything |
//! | packages, reader | what is published can be packaged; the library compiles without features |
//! | compile | everything at once, with the features that are on for any of it |
//! | tests | every test of the workspace, side by side (see [`runner`]) |
//! | documentation | the examples in the documentation of the library |
//! | explorers | schedules of the allocator, where its sources have changed (see [`explorers`]) |
//! | python | the Python package on the module that was compiled, beside the tests (see [`crate::python`]) |
//!
//! At the end are the time of each step, the thirty slowest tests with their processor time, the skips and failures
//! by name, and the count. A test that skipped itself is counted as skipped although the runner calls it passed; a
//! part that a test left out counts as skipped, too.
//!
//! Tests that draw at random begin from a seed that follows from the commit; it is printed, and `HECTARE_SEED=`
//! repeats it.

pub(crate) mod explorers;
mod report;
mod runner;
pub(crate) mod wrapper;

use crate::python::{self, Compared};
use crate::{features, published, setup, tidy};
use hectare_tools::built::{FEATURES, built_for_tests};
use hectare_tools::scratch;
use hectare_tools::skip::{self, LOG};
use hectare_tools::steps::{cargo, quiet, shown, target_folder};
use report::{Steps, Tally};
use std::path::Path;
use std::process::Command;

/// The seed of what draws at random.
const SEED: &str = "HECTARE_SEED";
/// Why the advisory database was not checked.
const NO_DENY: &str = "cargo-deny is not installed; tidy has looked at licences, sources and bans";

/// Runs everything; returns whether nothing failed.
pub(crate) fn run() -> bool {
    let seed = match seed() {
        Ok(seed) => seed.to_string(),
        Err(reason) => {
            eprintln!("{reason}");
            return false;
        }
    };
    let (mut tally, mut steps) = (Tally::default(), Steps::default());
    let log = target_folder().join("skips.log");
    let _ = std::fs::remove_file(&log); // absent at first; a test that can't append to it fails by itself
    steps.time("set-up", || install(&mut tally));
    if before_compiling(&mut tally, &mut steps) {
        after_compiling(&mut tally, &mut steps, &log, &seed);
    } else {
        tally.fail("the tests did not run: mend what is above first");
    }
    let records = skip::parse(&std::fs::read_to_string(&log).unwrap_or_default());
    tally.take_skips(&records);
    scratch::sweep();
    steps.print();
    tally.print();
    tally.is_sound()
}

/// The job: the checks that compile no test.
pub(crate) fn lint() -> bool {
    let (mut tally, mut steps) = (Tally::default(), Steps::default());
    before_compiling(&mut tally, &mut steps);
    tally.print();
    tally.is_sound()
}

fn install(tally: &mut Tally) {
    let installed = setup::for_tests();
    for ((name, package), reason) in &installed.missing {
        tally.fail(&format!("set-up: {name} (Debian package {package}) is missing: {reason}"));
    }
    for ((name, package), reason) in &installed.skipped {
        tally.skip(&format!("set-up: {name} (Debian package {package})"), reason);
    }
}

/// The checks of the sources; false if one failed.
fn before_compiling(tally: &mut Tally, steps: &mut Steps) -> bool {
    let failed = tally.failures();
    steps.time("formatting", || match quiet(cargo().args(["fmt", "--version"])) {
        Some(_) => tally.check("formatting", shown(cargo().args(["fmt", "--all", "--check"]))),
        None => tally.skip("formatting", "rustfmt is not installed"),
    });
    println!("\n$ cargo xtask tidy");
    steps.time("tidy", || tally.check("tidy", tidy::run()));
    if tally.failures() > failed {
        return false;
    }
    steps.time("lints", || match quiet(cargo().args(["clippy", "--version"])) {
        Some(_) => tally.check("lints", lints()),
        None => tally.skip("lints", "clippy is not installed"),
    });
    steps.time("reader", || tally.check("a reader of the library", features::reader_compiles()));
    steps.time("packages", || match published::can_package() {
        true => tally.check("packages", published::run(&[])),
        false => tally.skip("packages", "packaging crates together needs cargo 1.90"),
    });
    match quiet(cargo().args(["deny", "--version"])) {
        Some(_) => tally.check("dependencies", shown(cargo().args(["deny", "check"]))),
        None => tally.skip("dependencies", NO_DENY),
    }
    tally.failures() == failed
}

/// Of everything, fuzz targets too: the one check that they compile. And of the command as it is built by default.
fn lints() -> bool {
    let lint = |what: &[&str]| shown(cargo().arg("clippy").args(what).args(["--", "-D", "warnings"]));
    lint(&[&["--workspace", "--all-targets"][..], &FEATURES].concat()) && lint(&["--package", "hectare-cli"])
}

fn after_compiling(tally: &mut Tally, steps: &mut Steps, log: &Path, seed: &str) {
    let compiled = steps.time("compile", built_for_tests);
    tally.check("compilation", compiled);
    if !compiled {
        return;
    }
    println!("\nseed of what draws at random: {SEED}={seed}");
    let set = |command: &mut Command| {
        command.env(LOG, log).env(SEED, seed);
    };
    let python = std::thread::scope(|scope| {
        let python = scope.spawn(|| steps_of(|| python::outcome(&built_by_tests())));
        steps.time("tests", || runner::run(tally, set));
        steps.time("documentation", || runner::documentation(tally, set));
        steps.time("explorers", || explorers::run(tally, set));
        python.join()
    });
    match python {
        Ok((outcome, time)) => {
            steps.add("python (beside)", time);
            tally.take_python(outcome);
        }
        Err(_) => tally.fail("python: its tests can't be run"),
    }
}

fn steps_of<T>(step: impl FnOnce() -> T) -> (T, std::time::Duration) {
    let began = std::time::Instant::now();
    (step(), began.elapsed())
}

/// The seed: the one that is set, else the first digits of the commit's name; 1 outside a repository.
///
/// # Errors
/// The one that is set is not a number.
fn seed() -> Result<u64, String> {
    if let Some(text) = std::env::var_os(SEED) {
        let text = text.to_string_lossy();
        return text.parse().map_err(|_| format!("{SEED}={text}: a seed is a number below 2^64"));
    }
    let said = quiet(git().args(["rev-parse", "--short=8", "HEAD"]));
    let name = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    Ok(name.and_then(|name| u64::from_str_radix(name.get(..8)?, 16).ok()).unwrap_or(1))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(hectare_tools::steps::root());
    git
}

/// What the Python package is tested with: the command, the library for C and the module that were compiled.
fn built_by_tests() -> Compared {
    let folder = target_folder().join("debug");
    Compared {
        command: folder.join("hectare"),
        c_library: folder.join("libhectare_c.so"),
        module: folder.join("libhectare_native.so"),
    }
}
