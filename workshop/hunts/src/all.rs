//! All hunts that have a seed, with fresh ones, for a time: `cargo hunt all --minutes N [--seed N]` (`make hunt`).
//!
//! The time is cut into *turns* of a minute or two, each a call of one hunt. A hunt that found something lately gets
//! more of them: its share falls with the hours that it has searched since in vain, to a tenth at the least, so that
//! none is ever left out ([`Record::weight`]). The records are kept in `target/hunts/records.json`.
//!
//! A turn that finds something leaves a file in `out/hunts`: the command that repeats it, and all it said. The run
//! ends with a table, and fails if anything was found. What a hunt finds becomes a named test.

use hectare_oracle::mount::can_mount;
use hectare_tools::install::{Tool, install};
use hectare_tools::job_folder::with_path;
use hectare_tools::steps::{minutes, parsed, root, target_folder, understood};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt all [--minutes N] [--seed N]";
/// What the hunts use beside what tests do.
const TOOLS: [Tool; 2] = [("stress-ng", "stress-ng"), ("fio", "fio")];

/// A part of the hunts' work, small enough to take turns.
struct Turn {
    name: &'static str,
    /// The hunt and its options, but for the seed.
    words: &'static [&'static str],
    /// What it looks at, and how many of them.
    cases: (u64, &'static str),
    /// Whether it mounts, which takes root.
    mounts: bool,
}

const fn turn(
    name: &'static str,
    words: &'static [&'static str],
    cases: (u64, &'static str),
    mounts: bool,
) -> Turn {
    Turn { name, words, cases, mounts }
}

const TURNS: [Turn; 12] = [
    turn("crash", &["crash", "--points", "5000"], (5000, "states"), false),
    turn("remote", &["remote", "--runs", "100"], (100, "runs"), false),
    turn("conform", &["conform", "--minutes", "1"], (60, "seconds"), true),
    turn("stress", &["stress", "--seconds", "2"], (30, "volumes"), true),
    turn("killed", &["killed", "--times", "10"], (10, "kills"), true),
    turn("repair", &["repair", "--trials", "30"], (30, "volumes"), false),
    turn("repair sealed", &["repair", "--sealed", "--trials", "60"], (60, "volumes"), false),
    turn("repair crash", &["repair", "--crash", "--trials", "200"], (200, "states"), false),
    turn("resize", &["resize", "--pairs", "15"], (15, "pairs"), true),
    turn("salvage", &["salvage", "--runs", "1"], (5, "volumes"), false),
    turn("soak", &["soak", "--minutes", "1"], (60, "seconds"), false),
    turn("tests", &["tests"], (35, "tests"), true),
];

/// What is known of a hunt from all runs on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Record {
    cases: u64,
    findings: u64,
    /// Seconds that it has searched since it last found something.
    in_vain: f64,
}

impl Record {
    /// Its share of the time, beside those of the others.
    fn weight(&self) -> f64 {
        (1.0 / (1.0 + self.in_vain / 3600.0)).max(0.1)
    }
}

/// What a hunt did in this run.
#[derive(Clone, Debug, Default)]
struct Done {
    turns: u64,
    seconds: f64,
    cases: u64,
    findings: Vec<PathBuf>,
}

#[derive(Debug, PartialEq)]
struct Options {
    time: Duration,
    seed: u64,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { time: Duration::from_secs(3600), seed: fresh_seed() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--minutes" => options.time = minutes(word, value?)?,
                "--seed" => options.seed = parsed(word, value?)?,
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// An arbitrary seed.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::from(now.subsec_nanos()) << 20 ^ now.as_secs()) % 1_000_000_000
}

/// Runs the job with its arguments; returns whether nothing was found.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(options) = understood(Options::parse(words), USAGE) else { return false };
    install(&TOOLS).print();
    let records = target_folder().join("hunts/records.json");
    match hunt(&options, &records) {
        Ok(done) => table(&done, &records),
        Err(error) => {
            eprintln!("hunt: {error}");
            false
        }
    }
}

fn hunt(options: &Options, records: &Path) -> Result<BTreeMap<&'static str, Done>, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let folder = root().join("out/hunts");
    fs::create_dir_all(&folder).map_err(with_path(&folder))?;
    let mut known = read(records);
    let mut done: BTreeMap<&'static str, Done> = BTreeMap::new();
    let (began, mut seed) = (Instant::now(), options.seed);
    println!("hunts for {:.0} minutes, from seed {seed}", options.time.as_secs_f64() / 60.0);
    let turns = possible();
    while began.elapsed() < options.time {
        let Some(turn) = next(&turns, &done, &known) else { return Err("no hunt can run here".to_owned()) };
        let at = Instant::now();
        let found = one(&own, turn, seed, &folder)?;
        let (seconds, this) = (at.elapsed().as_secs_f64(), done.entry(turn.name).or_default());
        let record = known.entry(turn.name.to_owned()).or_default();
        (this.turns, this.seconds) = (this.turns + 1, this.seconds + seconds);
        record.in_vain += seconds;
        match found {
            Some(file) => {
                println!("{:<14} seed {seed}: FOUND something: {}", turn.name, file.display());
                this.findings.push(file);
                (record.findings, record.in_vain) = (record.findings + 1, 0.0);
            }
            None => {
                println!("{:<14} seed {seed}: {seconds:.0} s", turn.name);
                (this.cases, record.cases) = (this.cases + turn.cases.0, record.cases + turn.cases.0);
            }
        }
        write(records, &known)?;
        seed = seed.wrapping_add(1_000_003);
    }
    Ok(done)
}

/// The turns that this machine can take; the others are named.
fn possible() -> Vec<&'static Turn> {
    let mounts = can_mount();
    let (can, not): (Vec<_>, Vec<_>) = TURNS.iter().partition(|turn| !turn.mounts || mounts.is_ok());
    if let Err(reason) = mounts {
        not.iter().for_each(|turn| println!("skipped {}: {reason}", turn.name));
    }
    can
}

/// The turn whose hunt has had the least of its share; of equals the first.
fn next<'a>(
    turns: &[&'a Turn],
    done: &BTreeMap<&str, Done>,
    known: &BTreeMap<String, Record>,
) -> Option<&'a Turn> {
    let had = |turn: &Turn| {
        let weight = known.get(turn.name).map_or(1.0, Record::weight);
        done.get(turn.name).map_or(0.0, |done| done.seconds) / weight
    };
    turns.iter().copied().min_by(|a, b| had(a).total_cmp(&had(b)))
}

/// Takes a turn; the file of what was found, if anything was.
fn one(own: &Path, turn: &Turn, seed: u64, folder: &Path) -> Result<Option<PathBuf>, String> {
    let seed = seed.to_string();
    let words = [turn.words, &["--seed", &seed]].concat();
    let output = Command::new(own).args(&words).current_dir(root()).output();
    let output = output.map_err(|error| format!("{} can't be run: {error}", turn.name))?;
    if output.status.success() {
        return Ok(None);
    }
    let file = folder.join(format!("{}-{seed}.txt", turn.name.replace(' ', "-")));
    let mut text = format!("cargo hunt {}\n\n", words.join(" ")).into_bytes();
    text.extend(&output.stdout);
    text.extend(&output.stderr);
    text.extend(format!("\n{}\n", output.status).bytes());
    fs::write(&file, text).map_err(with_path(&file))?;
    Ok(Some(file))
}

fn read(records: &Path) -> BTreeMap<String, Record> {
    let text = fs::read(records).unwrap_or_default(); // absent at first
    serde_json::from_slice(&text).unwrap_or_default()
}

fn write(records: &Path, known: &BTreeMap<String, Record>) -> Result<(), String> {
    let folder = records.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(with_path(folder))?;
    let text = serde_json::to_vec_pretty(known).map_err(|error| error.to_string())?;
    fs::write(records, text).map_err(with_path(records))
}

/// Prints what was done; whether nothing was found.
fn table(done: &BTreeMap<&'static str, Done>, records: &Path) -> bool {
    println!("\n{:<14} {:>6} {:>9} {:>9} {:<8} {:>8}", "hunt", "turns", "seconds", "cases", "", "findings");
    for (name, Done { turns, seconds, cases, findings }) in done {
        let unit = TURNS.iter().find(|turn| turn.name == *name).map_or("", |turn| turn.cases.1);
        println!("{name:<14} {turns:>6} {seconds:>9.0} {cases:>9} {unit:<8} {:>8}", findings.len());
    }
    let files: Vec<&PathBuf> = done.values().flat_map(|done| &done.findings).collect();
    files.iter().for_each(|file| println!("found: {}", file.display()));
    println!("records of all runs: {}", records.display());
    files.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HUNTS;

    #[test]
    fn minutes_and_seeds_of_another_form_are_refused() {
        let options = Options::parse(&["--minutes", "1.5", "--seed", "7"]).unwrap();
        assert_eq!(options, Options { time: Duration::from_secs(90), seed: 7 });
        for wrong in [&["--minutes", "soon"][..], &["--minutes", "-1"], &["--seed", "x"], &["--seed"], &["7"]]
        {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_turn_is_a_hunt_and_its_name_is_its_own() {
        for turn in &TURNS {
            assert!(HUNTS.iter().any(|(name, _)| *name == turn.words[0]), "{}", turn.name);
            assert_eq!(TURNS.iter().filter(|other| other.name == turn.name).count(), 1, "{}", turn.name);
        }
    }

    #[test]
    fn who_found_something_lately_gets_more_turns_and_nobody_none() {
        let turns: Vec<&Turn> = TURNS.iter().take(2).collect();
        let record = |in_vain| Record { in_vain, ..Record::default() };
        let known = BTreeMap::from([
            (turns[0].name.to_owned(), record(1e9)),
            (turns[1].name.to_owned(), record(0.0)),
        ]);
        let mut done: BTreeMap<&str, Done> = BTreeMap::new();
        let mut counts = [0, 0];
        for _ in 0..110 {
            let turn = next(&turns, &done, &known).unwrap();
            done.entry(turn.name).or_default().seconds += 60.0;
            counts[usize::from(turn.name == turns[1].name)] += 1;
        }
        assert_eq!(counts, [10, 100]);
    }
}
