//! Resizes: `cargo xtask resize [--pairs N] [--seed N] [--first N]` judges N random pairs of sizes and features
//! against resize2fs, e2fsck and the kernel (200 of seed 1, unless --pairs and --seed say otherwise).
//!
//! The work is a test of `hectare-resize` that does nothing unless a variable says how many; a pair that fails is
//! printed with its number, and `--first` repeats from there.

use crate::steps::root;
use std::process::Command;

const USAGE: &str = "usage: cargo xtask resize [--pairs N] [--seed N] [--first N]";
const TEST: &str = "many_random_pairs_agree_with_resize2fs";

/// Runs the job with its arguments; returns whether all pairs were sound.
pub(crate) fn run(words: &[&str]) -> bool {
    let (mut pairs, mut seed, mut first) = (200, 1, 0);
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
        TEST,
    ]);
    cargo.env("HECTARE_RESIZE_PAIRS", (first + pairs).to_string());
    cargo.env("HECTARE_RESIZE_SEED", seed.to_string()).env("HECTARE_RESIZE_FIRST", first.to_string());
    cargo.status().is_ok_and(|status| status.success())
}
