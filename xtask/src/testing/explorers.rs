//! The schedule explorers of the allocator (shuttle, loom), which need it built with their locks in the place of the
//! real ones: minutes, to show again what was shown before. So they run when the sources differ from those that they
//! last passed with, whose hash is kept with the project ([`EXPLORED`]); `make hunt` runs them always
//! (`cargo xtask explore`).

use super::report::Tally;
use super::runner;
use hectare_tools::steps::root;
use hectare_tools::tree_hash::tree_hash;
use std::process::Command;

/// The hash of the sources that they last passed with.
const EXPLORED: &str = "crates/core/alloc/explored";
/// What they explore: the allocator, and what it stands on.
const SOURCES: [&str; 7] = [
    "crates/core/alloc/src",
    "crates/core/alloc/Cargo.toml",
    "crates/core/alloc/tests",
    "crates/base/units/src",
    "crates/base/units/Cargo.toml",
    "workshop/alloc-virtual/Cargo.toml",
    "xtask/src/testing/explorers.rs",
];

/// Tests under an explorer, and of virtual processors: what to build, and which tests. An explorer's lock works
/// only inside its run, so the others can't be run with it. The numbers of schedules in them are chosen for all
/// to take some seconds.
const EXPLORERS: [&[&str]; 5] = [
    &["-p", "hectare-alloc", "--features", "shuttle", "--test", "shuttle"],
    &["-p", "hectare-alloc", "--features", "shuttle", "--lib", "--", "random_schedules"],
    &["-p", "hectare-alloc", "--features", "shuttle", "--lib", "--", "refusal_tests"],
    &["-p", "hectare-alloc", "--features", "loom", "--lib", "--", "every_schedule"],
    &["-p", "hectare-alloc-virtual", "--lib", "--", "virtual_cpus"],
];

/// Runs them if what they explore has changed, and notes that they passed.
pub(super) fn run(tally: &mut Tally, set: impl Fn(&mut Command)) {
    let now = tree_hash(&root(), &SOURCES);
    let kept = std::fs::read_to_string(root().join(EXPLORED)).unwrap_or_default();
    if kept.trim() == now {
        println!("\nthe schedules of the allocator were explored with these sources ({EXPLORED})");
        return;
    }
    explore_and_note(tally, now, &set);
}

/// Runs them, and notes that they passed with the sources of that hash.
fn explore_and_note(tally: &mut Tally, now: String, set: &impl Fn(&mut Command)) {
    if !explore(tally, set) {
        return;
    }
    match std::fs::write(root().join(EXPLORED), now + "\n") {
        Ok(()) => println!("{EXPLORED} has the hash of these sources: commit it, or each run explores again"),
        Err(error) => tally.fail(&format!("{EXPLORED}: {error}")),
    }
}

/// Runs them; whether all passed. One whose filter finds no test any more has failed.
fn explore(tally: &mut Tally, set: &impl Fn(&mut Command)) -> bool {
    let failed = tally.failures();
    for explorer in EXPLORERS {
        let passed = tally.passed();
        runner::by_cargo(tally, explorer, set);
        if tally.passed() == passed {
            tally.fail(&format!("cargo test {}: no test passed", explorer.join(" ")));
        }
    }
    tally.failures() == failed
}

/// The job: runs them whether something has changed or not.
pub(crate) fn always() -> bool {
    let mut tally = Tally::default();
    explore_and_note(&mut tally, tree_hash(&root(), &SOURCES), &|_| {});
    tally.print();
    tally.is_sound()
}
