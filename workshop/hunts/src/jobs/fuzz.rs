//! Fuzzing: `cargo hunt fuzz [TARGET ...|all] [--seconds N]` builds the targets and runs them, a line for
//! each.
//!
//! The targets are those of the package in `workshop/fuzz/`, each linked with libFuzzer (crate `libfuzzer-sys`,
//! which compiles it: a C++ compiler is needed). Coverage comes from flags that the stable compiler takes, so
//! neither a nightly toolchain nor a tool to install is needed, and no sanitizer: the findings are panics,
//! hangs (10 s) and amplification (`workshop/fuzz/src/measure.rs`), see `docs/fuzzing.md`.
//!
//! After a target that writes has run, e2fsck checks the resulting volumes of its undamaged inputs (see
//! [`kept`]). `cargo hunt fuzz bases` makes the base volumes of inputs anew (see [`bases`]). Interesting inputs are
//! in `workshop/fuzz/corpus`, failing ones in `workshop/fuzz/artifacts`; git ignores both. `cargo hunt fuzz keep`
//! adds some of the former to those of `workshop/fuzz/kept` (see [`corpus`]).

mod bases;
mod corpus;
mod kept;

use hectare_fuzz::targets::NAMES as TARGETS;
use hectare_oracle::tool;
use hectare_tools::ended::Exit;
use hectare_tools::steps::{cargo, parsed, quiet, root, target_folder, understood};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Those that keep what they have written, for e2fsck.
const WRITERS: [&str; 5] = ["write", "map_write", "inline_write", "fold_write", "quota_write"];
/// Coverage counters for libFuzzer; all of it stable. Comparisons are not traced, which would halve the
/// speed: inputs are changes to something sound, and the formats' magic values are in a dictionary.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Copt-level=3",
];
const USAGE: &str = "usage: cargo hunt fuzz [TARGET ...|all|bases|keep] [--seconds N]";
const SECONDS: u32 = 60;
/// Longer inputs find nothing that shorter ones don't, and are slow.
const INPUT_MAX: usize = 8192;
/// Address space of a target: an allocation without bound fails at once instead of filling the machine.
const ADDRESS_SPACE: u64 = 4 << 30;

/// The result of one run.
struct Outcome {
    executions: u64,
    seconds: u64,
    crashes: usize,
}

/// Runs the job with its arguments; it ends well if nothing was found.
pub(crate) fn run(words: &[&str]) -> Exit {
    if words == ["bases"] {
        return bases::make().into();
    }
    if words == ["keep"] {
        return build(TARGETS).map_or(Exit::NotHere, |folder| corpus::add(&folder, TARGETS).into());
    }
    let Some((targets, seconds)) = understood(parse(words), USAGE) else { return Exit::Usage };
    let Some(folder) = build(&targets) else { return Exit::NotHere };
    println!("{:<12} {:>12} {:>8} {:>8}", "target", "executions", "seconds", "crashes");
    let mut clean = true;
    for target in targets {
        match fuzz(&folder, target, seconds) {
            Ok(outcome) => {
                let Outcome { executions, seconds, crashes } = outcome;
                println!("{target:<12} {executions:>12} {seconds:>8} {crashes:>8}");
                clean &= crashes == 0 && (!WRITERS.contains(&target) || kept::judge(&folder, target));
            }
            Err(error) => {
                eprintln!("can't run {target}: {error}");
                clean = false;
            }
        }
    }
    clean.into()
}

fn parse<'a>(words: &[&'a str]) -> Result<(Vec<&'a str>, u32), String> {
    let (mut targets, mut seconds) = (Vec::new(), SECONDS);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "all" => targets.extend(TARGETS),
            "--seconds" => {
                seconds = parsed(word, words.next().ok_or("--seconds needs a value")?)?;
                // 0 has no end for libFuzzer.
                if seconds == 0 {
                    return Err("--seconds: at least 1".to_owned());
                }
            }
            target if TARGETS.contains(&target) => targets.push(target),
            other => {
                return Err(format!("there is no fuzz target {other}; there are {}", TARGETS.join(", ")));
            }
        }
    }
    if targets.is_empty() {
        targets.extend(TARGETS);
    }
    Ok((targets, seconds))
}

/// Builds targets, each as a program of its own; returns their directory.
fn build(targets: &[&str]) -> Option<PathBuf> {
    let host = host()?;
    let folder = target_folder().join(&host).join("fuzz");
    let one = |target: &str| {
        let mut cargo = cargo();
        // Flags meant for the targets would end up in build scripts too, were there no --target.
        cargo
            .args(["build", "--profile=fuzz", "--package=hectare-fuzz", "--features=libfuzzer", "--quiet"])
            .args(["--bin=fuzz", "--target", &host])
            .env("HECTARE_FUZZ_TARGET", target)
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
        let built = cargo.status().is_ok_and(|status| status.success());
        built && fs::copy(folder.join("fuzz"), folder.join(target)).is_ok()
    };
    let built = targets.iter().all(|target| one(target));
    if !built {
        eprintln!("the fuzz targets can't be built; a C++ compiler (g++) is needed besides Rust");
    }
    built.then_some(folder)
}

/// The compiler's own target.
fn host() -> Option<String> {
    let text = quiet(Command::new("rustc").arg("-vV"))?.stdout;
    let text = String::from_utf8(text).ok()?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

fn fuzz(folder: &Path, target: &str, seconds: u32) -> std::io::Result<Outcome> {
    let (corpus, artifacts) = (
        root().join("workshop/fuzz/corpus").join(target),
        root().join("workshop/fuzz/artifacts").join(target),
    );
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    corpus::plant(target, &corpus)?;
    let before = files(&artifacts);
    let log_path = artifacts.with_extension("log");
    let log = fs::File::create(&log_path)?;
    let mut command = limited(&folder.join(target));
    let status = command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_MAX}"))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-reload=0", "-len_control=10"])
        .arg(format!("-dict={}", root().join("workshop/fuzz/words.dict").display()))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .status()?;
    let log = String::from_utf8_lossy(&fs::read(&log_path)?).into_owned();
    let failed = !status.success();
    if failed {
        let told = |line: &&str| {
            line.contains("panicked at") || line.contains("ERROR:") || line.contains("Test unit")
        };
        log.lines().filter(told).for_each(|line| println!("  {line}"));
        println!("  everything it said: {}", log_path.display());
    }
    let crashes = files(&artifacts).saturating_sub(before).max(usize::from(failed));
    Ok(Outcome { executions: executions(&log), seconds: last_seconds(&log), crashes })
}

/// The program with its address space limited, where there is `prlimit` for it.
fn limited(program: &Path) -> Command {
    match tool("prlimit") {
        Some(mut prlimit) => {
            prlimit.arg(format!("--as={ADDRESS_SPACE}")).arg(program);
            prlimit
        }
        None => Command::new(program),
    }
}

/// The inputs of a target that are kept.
fn corpus_of(target: &str) -> PathBuf {
    root().join("workshop/fuzz/corpus").join(target)
}

/// Where the inputs that failed are put.
fn artifacts_of(target: &str) -> PathBuf {
    root().join("workshop/fuzz/artifacts").join(target)
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// The count in the last status line (`#1234 ...`) or the final statistics.
fn executions(log: &str) -> u64 {
    let statistics = log.lines().filter_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let status = log.lines().filter_map(|line| line.strip_prefix('#')?.split_whitespace().next());
    let number = |text: &str| text.trim().parse::<u64>().ok();
    statistics.filter_map(number).chain(status.filter_map(number)).max().unwrap_or(0)
}

/// The seconds of the line `Done N runs in S second(s)`; 0 if it ended before.
fn last_seconds(log: &str) -> u64 {
    let done = log.lines().rev().find_map(|line| line.strip_prefix("Done ")?.split(" in ").nth(1));
    done.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_targets_and_seconds() {
        assert_eq!(parse(&["inode", "--seconds", "5"]), Ok((vec!["inode"], 5)));
        assert_eq!(parse(&[]).map(|(targets, _)| targets.len()), Ok(TARGETS.len()));
        assert!(parse(&["nothing"]).is_err());
        assert!(parse(&["--seconds"]).is_err() && parse(&["--seconds", "0"]).is_err());
    }

    #[test]
    fn the_log_tells_executions_and_seconds() {
        let log = "#2\tINITED cov: 3\n#1500\tREDUCE cov\nDone 2000 runs in 61 second(s)\n\
                   stat::number_of_executed_units: 2000\n";
        assert_eq!((executions(log), last_seconds(log)), (2000, 61));
        assert_eq!((executions("#77 NEW"), last_seconds("#77 NEW")), (77, 0));
    }

    #[test]
    fn every_target_has_its_kept_inputs() {
        for target in TARGETS {
            assert!(corpus::file_of(target).is_file(), "{target}");
        }
    }
}
