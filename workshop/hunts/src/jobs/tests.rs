//! The hunts among the tests of the crates: `cargo hunt tests [--seed N]`.
//!
//! They draw from the seed, and `make test` has them do a part of their work (`hectare_tools::hunt`): a tenth, or
//! a few cases of a long table; here they do all of it. Exit status as for any hunt: a test that fails is a finding,
//! and its output names the seed.

use hectare_tools::built::TestProgram;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::hunt::{LONG, SEED};
use hectare_tools::steps::{parsed, shown, understood};

const USAGE: &str = "usage: cargo hunt tests [--seed N]";

/// Packages, their test programs, and those of their tests that are hunts.
const TESTS: [(&str, &str, &[&str]); 8] = [
    (
        "hectare-engine",
        "engine",
        &[
            "churn::space_is_neither_lost_nor_given_twice",
            "fast_commits::random_changes_that_the_kernel_synced_are_there",
            "fast_feature::random_changes_are_recovered_after_every_sync",
            "fast_feature::the_kernel_and_the_engine_recover_the_same_at_any_moment",
            "gather::power_cuts",
            "hostile::damaged_volumes_hurt_nobody",
            "quotas::random_operations_of_many_users_keep_the_sums_that_e2fsck_counts",
            "ranges::the_kernel_does_the_same",
            "read::trees_of_full_scale_are_read_as_the_kernel_reads_them",
            "turns::the_kernel_and_the_engine_change_random_kinds_of_volumes_in_turn",
            "value_model::the_kernel_and_we_agree_on_random_attributes_in_turn",
            "write::trees_of_full_scale_are_written_right",
        ],
    ),
    (
        "hectare-nbd",
        "nbd",
        &[
            "faults::connections_that_break_anywhere_lose_nothing",
            "faults::a_server_that_crashes_and_forgets_loses_nothing",
        ],
    ),
    (
        "hectare-check",
        "oracle",
        &[
            "corpus::verdicts_are_those_of_e2fsck",
            "damage::one_byte_changed_is_seen_as_e2fsck_sees_it",
            "hostile::heaps_of_damage_end_in_a_report",
        ],
    ),
    (
        "hectare-cli",
        "hectare",
        &[
            "corpus::no_broken_image_breaks_a_command",
            "salvage_resume::runs_that_are_killed_at_any_time_give_the_same_in_the_end",
        ],
    ),
    (
        "hectare-mkfs",
        "mkfs",
        &["mke2fs::volumes_equal_those_of_mke2fs", "xfs::volumes_with_options_are_those_of_mkfs_xfs"],
    ),
    ("hectare-repair", "oracle", &["corpus::the_corpus_is_mended"]),
    ("hectare-tune", "oracle", &["drawn::drawn_options_on_drawn_volumes"]),
    ("hectare-hunts", "hunts", &["crash::", "conform::", "killed::", "stress::"]),
];

/// Runs the job with its arguments; it ends well if nothing was found.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(seed) = understood(parse(words), USAGE) else { return Exit::Usage };
    // All of them, that one finding hides no other.
    let ends = TESTS.map(|(package, program, tests)| {
        run_tests(package, program, tests, &[], &[(SEED, seed.to_string()), (LONG, "1".to_owned())])
    });
    // A finding before what can't be built.
    let worst =
        ends.into_iter().filter_map(Result::err).max_by_key(|ended| matches!(ended, Ended::Failed(_)));
    Exit::of(&format!("tests --seed {seed}"), worst.map_or(Ok(()), Err))
}

/// Runs those tests of a package's test program whose names begin like this, with options of the program and
/// variables.
pub(super) fn run_tests(
    package: &str,
    program: &str,
    tests: &[&str],
    options: &[&str],
    variables: &[(&str, String)],
) -> Result<(), Ended> {
    let built = TestProgram::built(package, program)
        .map_err(|reason| Ended::Skipped(format!("the tests of {package} can't be built: {reason}")))?;
    let test = || {
        let mut test = built.command();
        test.args(tests).args(options);
        test
    };
    let listed = test().arg("--list").output().map_err(|error| format!("{program} of {package}: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    if let Some(unknown) = tests.iter().find(|test| !has(&listed, test)) {
        return Err(format!("{package} has no test {unknown}").into());
    }
    match shown(test().envs(variables.iter().map(|(name, value)| (name, value)))) {
        true => Ok(()),
        false => Err(format!("tests of {package} failed").into()),
    }
}

/// Whether there is a test whose name begins like this, in what a test program lists.
fn has(listed: &str, name: &str) -> bool {
    listed.lines().any(|line| line.ends_with(": test") && line.starts_with(name))
}

fn parse(words: &[&str]) -> Result<u64, String> {
    match words {
        [] => Ok(1),
        ["--seed", seed] => parsed("--seed", seed),
        _ => Err("only a seed can be given".to_owned()),
    }
}

#[cfg(test)]
mod of_this {
    use super::*;

    #[test]
    fn a_seed_is_a_number() {
        assert_eq!(parse(&["--seed", "7"]), Ok(7));
        assert!(parse(&["--seed", "x"]).is_err() && parse(&["--often"]).is_err());
    }

    #[test]
    fn a_name_that_no_test_has_is_seen() {
        let listed = "damage::one_byte: test\ndamage::table: bench\n\n1 test, 1 benchmark\n";
        assert!(has(listed, "damage::one_byte") && has(listed, "damage::"));
        assert!(!has(listed, "damage::two_bytes") && !has(listed, "damage::table") && !has("", "damage::"));
    }
}
