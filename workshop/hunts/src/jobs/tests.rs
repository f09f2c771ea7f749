//! The hunts among the tests of the crates: `cargo hunt tests [--seed N]`.
//!
//! They draw from the seed, and `make test` has them do a tenth of their work (`hectare_tools::hunt`); here they do all
//! of it. Exit status as for any hunt: a test that fails is a finding, and its output names the seed.

use hectare_tools::hunt::{LONG, SEED};
use hectare_tools::steps::{cargo, parsed, shown, understood};

const USAGE: &str = "usage: cargo hunt tests [--seed N]";

/// Packages, their test programs, and those of their tests that are hunts.
const TESTS: [(&str, &str, &[&str]); 4] = [
    (
        "hectare-engine",
        "engine",
        &[
            "churn::space_is_neither_lost_nor_given_twice",
            "fast_commits::random_changes_that_the_kernel_synced_are_there",
            "fast_written::random_changes_are_recovered_after_every_sync",
            "fast_written::the_kernel_and_the_engine_recover_the_same_at_any_moment",
            "gather::power_cuts",
            "hostile::damaged_volumes_hurt_nobody",
            "quotas::random_operations_of_many_users_keep_the_sums_that_e2fsck_counts",
            "ranges::the_kernel_does_the_same",
            "turns::the_kernel_and_the_engine_change_random_kinds_of_volumes_in_turn",
            "value_model::the_kernel_and_we_agree_on_random_attributes_in_turn",
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
    ("hectare-check", "oracle", &["hostile::heaps_of_damage_end_in_a_report"]),
    ("hectare-hunts", "hunts", &["crash::", "conform::", "killed::", "stress::"]),
];

/// Runs the job with its arguments; returns whether nothing was found.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(seed) = understood(parse(words), USAGE) else { return false };
    // All of them, that one finding hides no other.
    let one = |(package, program, tests): &(&str, &str, &[&str])| {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", package, "--test", program, "--"]).args(*tests);
        shown(command.env(SEED, seed.to_string()).env(LONG, "1"))
    };
    TESTS.iter().map(one).fold(true, |all, passed| all && passed)
}

fn parse(words: &[&str]) -> Result<u64, String> {
    match words {
        [] => Ok(1),
        ["--seed", seed] => parsed("--seed", seed),
        _ => Err("only a seed can be given".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_number() {
        assert_eq!(parse(&["--seed", "7"]), Ok(7));
        assert!(parse(&["--seed", "x"]).is_err() && parse(&["--often"]).is_err());
    }
}
