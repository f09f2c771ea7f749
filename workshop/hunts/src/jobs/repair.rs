//! Damages volumes at random and repairs them, beside e2fsck: `cargo hunt repair [--sealed | --odd | --crash]
//! [--trials N] [--seed N] [--keep DIR]`.
//!
//! Runs the trials of the repair's own tests. Without a mode these are volumes of ten feature sets with some
//! thousand files. `--sealed` takes small volumes of 26 kinds, and one of 5,000 files, and makes their
//! checksums right after the damage. `--odd` takes the odd and broken images of the corpus. `--crash` looks at
//! N states that a power cut leaves while a repair is written or taken back. The last line sums up; a volume
//! that is not mended fails the job, and is left in the folder of `--keep`.

use super::tests::run_tests;
use hectare_tools::ended::Exit;
use hectare_tools::hunt::SEED;
use hectare_tools::steps::{parsed, understood};

const USAGE: &str =
    "usage: cargo hunt repair [--sealed | --odd | --crash] [--trials N] [--seed N] [--keep DIR]";

/// Which trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Damaged,
    Sealed,
    Odd,
    Crash,
}

impl Mode {
    /// The test that makes them.
    fn test(self) -> &'static str {
        match self {
            Self::Damaged => "random::damaged_volumes_are_mended",
            Self::Sealed => "random::sealed_damage_is_mended",
            Self::Odd => "random::damaged_odd_volumes_are_mended",
            Self::Crash => "crash::a_repair_survives_power_cuts",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Options {
    mode: Mode,
    trials: u64,
    seed: u64,
    keep: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { mode: Mode::Damaged, trials: 300, seed: 1, keep: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--sealed" => options.mode = Mode::Sealed,
                "--odd" => options.mode = Mode::Odd,
                "--crash" => options.mode = Mode::Crash,
                "--trials" => options.trials = parsed(word, value()?)?,
                "--seed" => options.seed = parsed(word, value()?)?,
                "--keep" => options.keep = Some(value()?.to_owned()),
                other => return Err(format!("{other} is no option")),
            }
        }
        // Each volume has the next seed.
        let last = options.seed.checked_add(options.trials);
        last.map(|_| options).ok_or_else(|| "--seed: it leaves no room for so many trials".to_owned())
    }
}

/// Runs the job with its arguments; it ends well if every volume was mended.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let mut variables =
        vec![("HECTARE_TRIALS", options.trials.to_string()), (SEED, options.seed.to_string())];
    variables.extend(options.keep.map(|keep| ("HECTARE_KEEP", keep)));
    let done = run_tests(
        "hectare-repair",
        "oracle",
        &[options.mode.test()],
        &["--exact", "--nocapture"],
        &variables,
    );
    Exit::of(&format!("repair --seed {}", options.seed), done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_names() {
        let options = Options::parse(&["--trials", "7", "--keep", "kept"]).unwrap();
        assert_eq!(options, Options { mode: Mode::Damaged, trials: 7, seed: 1, keep: Some("kept".into()) });
        assert_eq!(Options::parse(&["--crash"]).unwrap().mode, Mode::Crash);
        assert!(Options::parse(&["--trials"]).is_err() && Options::parse(&["-x"]).is_err());
        assert!(Options::parse(&["--seed", &u64::MAX.to_string()]).is_err());
    }
}
