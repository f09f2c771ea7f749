//! All hunts that have a seed, with fresh ones, for a time: `cargo hunt all --minutes N [--seed N]` (`make hunt`).
//!
//! The time is cut into *turns* of a minute or two, each a call of one hunt. A hunt that found something lately gets
//! more of them: its share falls with the hours that it has searched since in vain, to a tenth at the least, so that
//! none is ever left out ([`Record::weight`]). The records are kept in `target/hunts/records.json`.
//!
//! A turn that finds something leaves a file in `out/hunts`: the command that repeats it, and all it said. A
//! turn that takes longer than [`LIMIT`] is ended, and has found something. A hunt that can't run here, or
//! finds something three times in a row, gets no more turns. A turn that skipped a whole test is not counted
//! as work, but named.
//!
//! The run ends with a table, also when it is interrupted, and fails if anything was found. What a hunt finds
//! becomes a named test.

use hectare_oracle::mount::can_mount;
use hectare_tools::built::built_for_tests;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::install::{Tool, install};
use hectare_tools::job_folder::with_path;
use hectare_tools::skip::{self, Extent};
use hectare_tools::steps::{arbitrary_seed, minutes, parsed, root, target_folder, understood};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt all [--minutes N] [--seed N]";
/// What the hunts use beside what tests do.
const TOOLS: [Tool; 2] = [("stress-ng", "stress-ng"), ("fio", "fio")];

/// The longest that a turn may take, far longer than any does on a busy machine; the tests may take four
/// times that.
const LIMIT: Duration = Duration::from_secs(900);
/// The seconds that a turn counts at least when shares are compared: else one that ends at once would be
/// taken again and again.
const LEAST: f64 = 60.0;
/// So many findings in a row end a hunt: they have one cause, most likely.
const IN_A_ROW: u32 = 3;

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

const TURNS: [Turn; 14] = [
    turn("crash", &["crash", "--points", "5000"], (5000, "states"), false),
    turn("remote", &["remote", "--runs", "100"], (100, "runs"), false),
    turn("conform", &["conform", "--minutes", "1"], (60, "seconds"), true),
    turn("stress", &["stress", "--seconds", "2"], (30, "volumes"), true),
    turn("killed", &["killed", "--times", "10"], (10, "kills"), true),
    turn("repair", &["repair", "--trials", "30"], (30, "volumes"), false),
    turn("repair sealed", &["repair", "--sealed", "--trials", "60"], (60, "volumes"), false),
    turn("repair crash", &["repair", "--crash", "--trials", "200"], (200, "states"), false),
    turn("resize", &["resize", "--pairs", "15"], (15, "pairs"), true),
    turn("salvage", &["salvage", "--runs", "1"], (6, "volumes"), true),
    turn("soak", &["soak", "--minutes", "1"], (60, "seconds"), false),
    turn("tests", &["tests"], (46, "tests"), true),
    turn("explore", &["explore"], (5, "explorers"), false),
    turn("wheel", &["wheel"], (280, "tests"), false),
];

/// What is known of a hunt from all runs on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    cases: u64,
    findings: u64,
    /// Seconds that it has searched since it last found something.
    in_vain: f64,
}

impl Turn {
    fn limit(&self) -> Duration {
        if self.words == ["tests"] { 4 * LIMIT } else { LIMIT }
    }
}

impl Record {
    /// Its share of the time, beside those of the others.
    fn weight(&self) -> f64 {
        (1.0 / (1.0 + self.in_vain.max(0.0) / 3600.0)).max(0.1)
    }
}

/// What a hunt did in this run.
#[derive(Clone, Debug, Default)]
struct Done {
    turns: u64,
    seconds: f64,
    /// The seconds that count when shares are compared.
    share: f64,
    cases: u64,
    findings: Vec<String>,
    /// How many findings there were since a turn found nothing.
    in_a_row: u32,
    /// Turns that skipped whole tests; and those tests, with the reasons.
    skipped: u64,
    skips: BTreeMap<String, String>,
}

/// How a turn ended.
#[derive(Debug, PartialEq)]
enum Found {
    /// It found nothing, but skipped these tests, if any.
    Nothing(BTreeMap<String, String>),
    /// The command that repeats it, all it said, and how it ended.
    Something(String),
    /// It can't run here.
    NotHere(String),
    /// The whole run was interrupted.
    Interrupted,
}

#[derive(Debug, PartialEq)]
struct Options {
    time: Duration,
    seed: u64,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { time: Duration::from_secs(3600), seed: arbitrary_seed() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().copied().ok_or(format!("{word} needs a value"));
            match *word {
                "--minutes" => options.time = minutes(word, value?)?,
                "--seed" => options.seed = parsed(word, value?)?,
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.time.is_zero() { Err("--minutes: more than 0".to_owned()) } else { Ok(options) }
    }
}

/// Runs the job with its arguments; it ends well if nothing was found.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    install(&TOOLS).print();
    let records = target_folder().join("hunts/records.json");
    let mut done = BTreeMap::new();
    let ended = hunt(&options, &records, &mut done);
    let nothing_found = table(&done, &records);
    match Exit::of("hunt", ended) {
        Exit::Good => nothing_found.into(),
        exit => exit,
    }
}

/// Takes turns until the time is over; `done` is what they did, also after an error.
fn hunt(options: &Options, records: &Path, done: &mut BTreeMap<&'static str, Done>) -> Result<(), Ended> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        registered.map_err(|error| format!("signals can't be handled: {error}"))?;
    }
    let own = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let skips = records.with_file_name("skips");
    let mut known = read(records);
    let mut seed = options.seed;
    println!("hunts for {:.0} minutes, from seed {seed}", options.time.as_secs_f64() / 60.0);
    let folder = skips.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(with_path(folder))?;
    let mut turns = possible();
    // On a new tree that takes longer than any turn.
    if !built_for_tests() {
        eprintln!("what the hunts run can't be built: each turn says more");
    }
    let began = Instant::now();
    while began.elapsed() < options.time {
        let Some(turn) = next(&turns, done, &known) else { break };
        let at = Instant::now();
        let found = one(&own, turn, seed, &skips, &interrupted)?;
        let (seconds, this) = (at.elapsed().as_secs_f64(), done.entry(turn.name).or_default());
        let record = known.entry(turn.name.to_owned()).or_default();
        match found {
            Found::Interrupted => break,
            Found::NotHere(reason) => {
                println!("skipped {}: {reason}", turn.name);
                turns.retain(|other| other.name != turn.name);
                continue;
            }
            Found::Something(all) => {
                let what = kept(turn.name, seed, &all);
                println!("{:<14} seed {seed}: FOUND something: {what}", turn.name);
                this.findings.push(what);
                this.in_a_row += 1;
                (record.findings, record.in_vain) = (record.findings + 1, 0.0);
                if this.in_a_row == IN_A_ROW {
                    println!("{} found something {IN_A_ROW} times in a row: no more turns", turn.name);
                    turns.retain(|other| other.name != turn.name);
                }
            }
            Found::Nothing(skips) => {
                let note = if skips.is_empty() { "" } else { ", whole tests skipped" };
                println!("{:<14} seed {seed}: {seconds:.0} s{note}", turn.name);
                this.in_a_row = 0;
                if skips.is_empty() {
                    (this.cases, record.cases) = (this.cases + turn.cases.0, record.cases + turn.cases.0);
                    record.in_vain += seconds;
                } else {
                    this.skipped += 1;
                    this.skips.extend(skips);
                }
            }
        }
        (this.turns, this.seconds) = (this.turns + 1, this.seconds + seconds);
        this.share += seconds.max(LEAST);
        if let Err(error) = write(records, &known) {
            eprintln!("the records can't be kept: {error}");
        }
        seed = seed.wrapping_add(1_000_003);
    }
    if done.values().all(|done| done.turns == 0) && !interrupted.load(Ordering::Relaxed) {
        return Err(Ended::Skipped("no hunt is left".to_owned()));
    }
    Ok(())
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
        done.get(turn.name).map_or(0.0, |done| done.share) / weight
    };
    turns.iter().copied().min_by(|a, b| had(a).total_cmp(&had(b)))
}

/// Takes a turn.
fn one(own: &Path, turn: &Turn, seed: u64, skips: &Path, interrupted: &AtomicBool) -> Result<Found, String> {
    let seed = seed.to_string();
    let words = [turn.words, &["--seed", &seed]].concat();
    let failed = |error: std::io::Error| format!("{} can't be run: {error}", turn.name);
    let _ = fs::remove_file(skips); // of the turn before
    let mut output = tempfile::tempfile().map_err(failed)?;
    let mut command = Command::new(own);
    command.args(&words).current_dir(root()).env(skip::LOG, skips);
    command.stdout(output.try_clone().map_err(failed)?).stderr(output.try_clone().map_err(failed)?);
    let status = within(&mut command, turn.limit(), interrupted).map_err(failed)?;
    let mut said = Vec::new();
    output.rewind().and_then(|()| output.read_to_end(&mut said)).map_err(failed)?;
    let said = String::from_utf8_lossy(&said);
    let ended = match status {
        None if interrupted.load(Ordering::Relaxed) => return Ok(Found::Interrupted),
        None => format!("it was ended after {} minutes", turn.limit().as_secs() / 60),
        Some(status) if status.success() => return Ok(Found::Nothing(skipped_tests(skips))),
        Some(status) if status.code() == Some(Exit::NotHere as i32) => {
            return Ok(Found::NotHere(said.trim_end().lines().last().unwrap_or_default().to_owned()));
        }
        Some(status) => status.to_string(),
    };
    Ok(Found::Something(format!("cargo hunt {}\n\n{said}\n{ended}\n", words.join(" "))))
}

/// How a command ends that has a process group of its own; none if the group had to be killed, because the
/// time was over or all is to stop.
fn within(command: &mut Command, limit: Duration, stop: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
    let mut child = command.process_group(0).spawn()?;
    let began = Instant::now();
    while began.elapsed() < limit && !stop.load(Ordering::Relaxed) {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(50));
    }
    kill_process_group(Pid::from_child(&child), Signal::KILL)?;
    child.wait().map(|_| None)
}

/// The whole tests of a log of skips, with the reasons.
fn skipped_tests(log: &Path) -> BTreeMap<String, String> {
    let log = fs::read_to_string(log).unwrap_or_default(); // absent if there are none
    let whole = skip::parse(&log).into_iter().filter(|record| record.extent == Extent::Test);
    whole.map(|record| (record.test, record.reason)).collect()
}

/// Keeps what a turn found in a file; or prints it, if that can't be written. Returns where it is.
fn kept(name: &str, seed: u64, all: &str) -> String {
    let folder = root().join("out/hunts");
    let file = folder.join(format!("{}-{seed}.txt", name.replace(' ', "-")));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&file, all)) {
        Ok(()) => file.display().to_string(),
        Err(error) => {
            println!("{all}");
            format!("{name}, seed {seed}, as printed above ({}: {error})", file.display())
        }
    }
}

/// The records; one that can't be understood is kept beside.
fn read(records: &Path) -> BTreeMap<String, Record> {
    let text = fs::read(records).unwrap_or_else(|_| b"{}".to_vec()); // absent at first
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        let bad = records.with_extension("bad");
        let _ = fs::rename(records, &bad); // the next write reports it
        eprintln!("{}: {error}; it is {} now", records.display(), bad.display());
        BTreeMap::new()
    })
}

fn write(records: &Path, known: &BTreeMap<String, Record>) -> Result<(), String> {
    let folder = records.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(with_path(folder))?;
    let text = serde_json::to_vec_pretty(known).map_err(|error| error.to_string())?;
    // Whole at any moment.
    let new = records.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, records)).map_err(with_path(records))
}

/// Prints what was done; whether nothing was found.
fn table(done: &BTreeMap<&'static str, Done>, records: &Path) -> bool {
    println!(
        "\n{:<14} {:>6} {:>9} {:>9} {:<8} {:>8} {:>8}",
        "hunt", "turns", "seconds", "cases", "", "skipped", "findings"
    );
    for (name, done) in done {
        let Done { turns, seconds, cases, skipped, findings, .. } = done;
        let unit = TURNS.iter().find(|turn| turn.name == *name).map_or("", |turn| turn.cases.1);
        let findings = findings.len();
        println!("{name:<14} {turns:>6} {seconds:>9.0} {cases:>9} {unit:<8} {skipped:>8} {findings:>8}");
    }
    for (test, reason) in done.values().flat_map(|done| &done.skips) {
        println!("skipped: {test}: {reason}");
    }
    let findings: Vec<&String> = done.values().flat_map(|done| &done.findings).collect();
    findings.iter().for_each(|what| println!("found: {what}"));
    println!("records of all runs: {}", records.display());
    findings.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HUNTS;

    #[test]
    fn minutes_and_seeds_of_another_form_are_refused() {
        let options = Options::parse(&["--minutes", "1.5", "--seed", "7"]).unwrap();
        assert_eq!(options, Options { time: Duration::from_secs(90), seed: 7 });
        for wrong in [
            &["--minutes", "soon"][..],
            &["--minutes", "-1"],
            &["--minutes", "0"],
            &["--seed", "x"],
            &["--seed"],
            &["7"],
        ] {
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
            done.entry(turn.name).or_default().share += 60.0;
            counts[usize::from(turn.name == turns[1].name)] += 1;
        }
        assert_eq!(counts, [10, 100]);
    }

    #[test]
    fn records_that_were_damaged_or_are_of_another_version_end_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("records.json");
        assert!(read(&records).is_empty());
        fs::write(&records, "{\"soak\": {\"cases\": 7}, \"crash\": {\"in_vain\": -3600}}").unwrap();
        let known = read(&records);
        assert_eq!(known["soak"], Record { cases: 7, ..Record::default() });
        assert!((known["crash"].weight() - 1.0).abs() < 1e-9);
        fs::write(&records, "{\"soak\"").unwrap();
        assert!(read(&records).is_empty() && records.with_extension("bad").exists());
        write(&records, &known).unwrap();
        assert_eq!(read(&records), known);
    }

    #[test]
    fn a_group_that_takes_too_long_is_killed_with_all_its_processes() {
        let never = AtomicBool::new(false);
        let mut quick = Command::new("sh");
        let status = within(quick.args(["-c", "exit 3"]), LIMIT, &never).unwrap();
        assert_eq!(status.unwrap().code(), Some(3));
        // The pipe is closed when the last process that holds it has ended.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut slow = Command::new("sh");
        slow.args(["-c", "sleep 600 & sleep 600"]).stdout(writer);
        assert!(within(&mut slow, Duration::from_millis(200), &never).unwrap().is_none());
        drop(slow);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_turn_tells_what_it_skipped_what_it_found_and_that_it_cannot_run() {
        let folder = tempfile::tempdir().unwrap();
        let skips = folder.path().join("skips");
        let taken = |words| {
            let never = AtomicBool::new(false);
            one(Path::new("/bin/sh"), &turn("shell", words, (1, ""), false), 7, &skips, &never).unwrap()
        };
        assert_eq!(taken(&["-c", "exit 0"]), Found::Nothing(BTreeMap::new()));
        const WHOLE: &[&str] =
            &["-c", "printf 'test\\ta\\tno root\\npart\\tb\\tlong\\n' > $HECTARE_SKIP_LOG"];
        let skipped = BTreeMap::from([("a".to_owned(), "no root".to_owned())]);
        assert_eq!(taken(WHOLE), Found::Nothing(skipped));
        let missing = taken(&["-c", "echo first; echo no fuse >&2; exit 3"]);
        assert_eq!(missing, Found::NotHere("no fuse".to_owned()));
        let found = Found::Something(
            "cargo hunt -c echo lost; exit 1 --seed 7\n\nlost\n\nexit status: 1\n".to_owned(),
        );
        assert_eq!(taken(&["-c", "echo lost; exit 1"]), found);
    }
}
