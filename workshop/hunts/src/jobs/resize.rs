//! Resizes: `cargo hunt resize [--pairs N] [--seed N] [--first N]` judges N random pairs of sizes and
//! features against resize2fs, e2fsck and the kernel (200 of seed 1, unless --pairs and --seed say
//! otherwise).
//! `cargo hunt resize --states N` judges about N states that a power cut leaves of each of 26 resizes.
//!
//! The work is tests of `hectare-resize` that do nothing unless a variable says how many; a pair that fails
//! is printed with its number, and `--first` repeats from there.

use super::tests::run_tests;
use hectare_tools::ended::Exit;
use hectare_tools::steps::{parsed, understood};

const USAGE: &str = "usage: cargo hunt resize [--pairs N] [--seed N] [--first N] | --states N";
const PAIRS: &str = "pairs::many_random_pairs_agree_with_resize2fs";
const STATES: &str = "crash::many_power_cuts_lose_nothing";

/// The test, and the variables that say what it does.
type Work = (&'static str, Vec<(&'static str, String)>);

/// Runs the job with its arguments; it ends well if all pairs were sound.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some((test, variables)) = understood(parse(words), USAGE) else { return Exit::Usage };
    Exit::of(
        "resize",
        run_tests("hectare-resize", "oracle", &[test], &["--exact", "--nocapture"], &variables),
    )
}

fn parse(words: &[&str]) -> Result<Work, String> {
    let (mut pairs, mut seed, mut first, mut states) = (200_u64, 1_u64, 0_u64, None::<u64>);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().copied().ok_or(format!("{word} needs a value"));
        match *word {
            "--pairs" => pairs = parsed(word, value?)?,
            "--seed" => seed = parsed(word, value?)?,
            "--first" => first = parsed(word, value?)?,
            "--states" => states = Some(parsed(word, value?)?),
            other => return Err(format!("{other} is no option")),
        }
    }
    if let Some(states) = states {
        return Ok((STATES, vec![("HECTARE_RESIZE_STATES", states.to_string())]));
    }
    let end = first.checked_add(pairs).ok_or("--first: it leaves no room for so many pairs")?;
    let [pairs, seed, first] = [end, seed, first].map(|value| value.to_string());
    let variables =
        vec![("HECTARE_RESIZE_PAIRS", pairs), ("HECTARE_RESIZE_SEED", seed), ("HECTARE_RESIZE_FIRST", first)];
    Ok((PAIRS, variables))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_or_states_are_asked_for() {
        let (test, variables) = parse(&["--pairs", "15", "--first", "5", "--seed", "7"]).unwrap();
        assert_eq!((test, variables[0].1.as_str(), variables[1].1.as_str()), (PAIRS, "20", "7"));
        assert_eq!(parse(&["--states", "9"]).unwrap().0, STATES);
        for wrong in [&["--pairs"][..], &["--seed", "x"], &["--first", "18446744073709551615"], &["7", "7"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
