//! The mount against the kernel's ext4, call by call: a short version of `cargo hunt conform`.

use hectare_hunts::conform::{CREWS, Conform, Done, EXERCISES, SETS};
use hectare_hunts::kill_test::Ended;
use hectare_oracle::{hunt, scratch, skip, skip_part};
use std::path::PathBuf;

/// Calls of a sequence.
const STEPS: u32 = 240;
/// Steps of an exercise.
const EXERCISE: u32 = 120;
/// Steps of each concurrent worker.
const TOGETHER: u32 = 150;

/// The seed of all, as short as one types it.
fn seed() -> u64 {
    hunt::seed("conform") % 1_000_000
}

fn conform(name: &str) -> Result<(Conform, PathBuf), hectare_oracle::Skip> {
    let folder = scratch::fresh(name);
    std::fs::create_dir(&folder).unwrap();
    let program = &crate::program();
    Ok((Conform::new(program, &folder)?, folder))
}

#[test]
fn calls_that_fail_fail_as_with_the_kernel() {
    const NAME: &str = "conform::calls_that_fail_fail_as_with_the_kernel";
    let (conform, folder) = match conform("conform-cases") {
        Ok(conform) => conform,
        Err(reason) => skip!(NAME, reason),
    };
    let (count, differences) = match conform.cases() {
        Ok(cases) => cases,
        Err(Ended::Skip(reason)) => skip!(NAME, reason),
        Err(Ended::Failed(what)) => panic!("{what}"),
    };
    assert!(differences.is_empty(), "of {count} cases differ: {differences:#?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn random_calls_answer_as_with_the_kernel() {
    const NAME: &str = "conform::random_calls_answer_as_with_the_kernel";
    let (conform, folder) = match conform("conform-sequence") {
        Ok(conform) => conform,
        Err(reason) => skip!(NAME, reason),
    };
    let mut all = Done::default();
    for set in SETS {
        match conform.sequence(set, seed(), STEPS) {
            Ok(done) => all = Done { calls: all.calls + done.calls, refused: all.refused + done.refused },
            Err(Ended::Skip(reason)) => skip_part!(&format!("{NAME}, {set:?}"), reason),
            Err(Ended::Failed(what)) => panic!("{set:?}: {what}"),
        }
    }
    // Too many refused calls would compare little, none at all would leave errors out.
    assert!(all.calls == 0 || (10..=35).contains(&(all.refused * 100 / all.calls)), "{all:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_holds_what_a_model_and_the_kernel_hold() {
    const NAME: &str = "conform::a_file_holds_what_a_model_and_the_kernel_hold";
    let (conform, folder) = match conform("conform-exercise") {
        Ok(conform) => conform,
        Err(reason) => skip!(NAME, reason),
    };
    for set in EXERCISES {
        match conform.exercise(set, seed(), EXERCISE) {
            Ok(()) => {}
            Err(Ended::Skip(reason)) => skip_part!(&format!("{NAME}, {set:?}"), reason),
            Err(Ended::Failed(what)) => panic!("{set:?}: {what}"),
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn several_at_once_find_what_they_would_in_the_kernel() {
    const NAME: &str = "conform::several_at_once_find_what_they_would_in_the_kernel";
    let (conform, folder) = match conform("conform-crew") {
        Ok(conform) => conform,
        Err(reason) => skip!(NAME, reason),
    };
    for set in CREWS {
        match conform.crew(set, seed(), TOGETHER) {
            Ok(()) => {}
            Err(Ended::Skip(reason)) => skip_part!(&format!("{NAME}, {set:?}"), reason),
            Err(Ended::Failed(what)) => panic!("{set:?}: {what}"),
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
