//! Resizes: `cargo hunt resize [--pairs N] [--seed N] [--first N]` judges N random pairs of sizes and
//! features against resize2fs, e2fsck and the kernel (200 of seed 1, unless --pairs and --seed say
//! otherwise).
//! `cargo hunt resize --states N` judges about N states that a power cut leaves of each of 26 resizes.
//!
//! The work is tests of `hectare-resize` that do nothing unless a variable says how many; a pair that fails
//! is printed with its number, and `--first` repeats from there.

use hectare_tools::steps::root;
use std::process::Command;

const USAGE: &str = "usage: cargo hunt resize [--pairs N] [--seed N] [--first N] | --states N";
const PAIRS: &str = "many_random_pairs_agree_with_resize2fs";
const STATES: &str = "many_power_cuts_lose_nothing";

/// Runs the job with its arguments; returns whether all pairs were sound.
pub(crate) fn run(words: &[&str]) -> bool {
    let (mut pairs, mut seed, mut first, mut states) = (200, 1, 0, None);
    for words in words.chunks(2) {
        let number = words.get(1).and_then(|text| text.parse::<u64>().ok());
        let (Some(number), Some(option)) = (number, words.first()) else {
            eprintln!("{USAGE}");
            return false;
        };
        match *option {
            "--pairs" => pairs = number,
            "--seed" => seed = number,
            "--first" => first = number,
            "--states" => states = Some(number),
            _ => {
                eprintln!("{USAGE}");
                return false;
            }
        }
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args([
        "test",
        "-p",
        "hectare-resize",
        "--test",
        "oracle",
        "--",
        "--nocapture",
        if states.is_some() { STATES } else { PAIRS },
    ]);
    if let Some(states) = states {
        cargo.env("HECTARE_RESIZE_STATES", states.to_string());
    }
    cargo.env("HECTARE_RESIZE_PAIRS", (first + pairs).to_string());
    cargo.env("HECTARE_RESIZE_SEED", seed.to_string()).env("HECTARE_RESIZE_FIRST", first.to_string());
    cargo.status().is_ok_and(|status| status.success())
}
