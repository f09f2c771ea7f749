//! Compares formatting, in turn, with the usual formatters: `cargo benchmark mkfs [--only NAME] [--pairs N]
//! [--quick] [--binary FILE] [--json FILE] [--list]`.
//!
//! | cases | ours | theirs |
//! |---|---|---|
//! | `xfs-*` | `hectare mkfs -t xfs` | `mkfs.xfs` |
//! | `ext4-*` | the format that hectare chooses | mke2fs, with options for the same |
//! | `ext4-single-*` | no clusters, as mke2fs chooses by default | mke2fs, with options for the rest |
//! | `using-*` | `hectare mkdir` in an existing volume ([`using`]) | |
//!
//! Beside both stands what the writes of ours take alone ([`limit`]).
//!
//! Every run but those of `using-*` makes a volume in a new sparse file: both write no zeros and discard
//! nothing. Each run reports its time, the program's peak memory, the bytes and the number of its write
//! calls, and the file's allocated size afterwards. The volumes of a case are the same from both, as the
//! formatter's own tests show; so the measurements are of the same work.
//!
//! Files lie in memory (tmpfs), which holds any length but must hold all that is written; those with more
//! written data lie on an XFS volume of its own, in a sparse file beside cargo's output.
//!
//! Hazards: needs up to 6 GiB of memory, and for the largest 60 GiB of disk, root and loop devices (without,
//! that case is reported as skipped). The peak memory is what `/proc` reports while the program runs, sampled
//! every millisecond, so what it takes at its very end may be missed.

mod limit;
pub(super) mod measure;
mod using;

use super::figures::shown;
use super::results::{aligned, machine};
use hectare_lab::paired_stats::Spread;
use hectare_oracle::KernelMount;
use hectare_tools::job_folder::{Scratch, leave_nothing};
use hectare_tools::steps::target_folder;
use limit::writes_alone;
use measure::{Figures, measure};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use using::use_volume;

const NAME: &str = "hectare-bench-mkfs";
const TIB: u64 = 1 << 40;
const PB: u64 = 1_000_000_000_000_000;
/// The most memory a format, or using a volume, may take.
const MEMORY_MAX: f64 = 64.0;
/// Seconds that a gigabyte written may take where there is no peer.
const SECONDS_PER_GB: f64 = 1.0;
/// Seconds that opening a volume, making a directory and closing it may take.
const SECONDS_OF_USE: f64 = 0.2;
/// The length of the volume that holds the largest files.
const BACKING: u64 = 100 << 30;

/// mke2fs's words for the shape that is hectare's own choice; clusters come after them.
const LIKE_OURS: &[&str] = &["-O", "bigalloc,meta_bg,^resize_inode", "-G", "64", "-C"];
/// Ours for clusters of one block, mke2fs's own choice.
const LIKE_THEIRS: &[&str] = &["-O", "^bigalloc"];

/// Where the file lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Storage {
    Memory,
    Xfs,
}

/// The timed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Job {
    Make,
    Use,
}

/// What is made or used, and the peer.
struct Case {
    job: Job,
    name: &'static str,
    size: u64,
    place: Storage,
    ours: &'static [&'static str],
    theirs: Option<Peer>,
    /// Of a thousandth of the size: nothing is claimed of it.
    is_quick: bool,
}

impl Case {
    /// Our arguments before the image.
    fn ours_words(&self) -> Vec<&'static str> {
        [&["mkfs", "-q"], self.ours].concat()
    }
}

/// The other formatter.
struct Peer {
    tool: &'static str,
    words: Vec<&'static str>,
    /// How many times faster ours is claimed to be.
    times: f64,
}

/// All cases, in the order they run; a thousandth of the size where all is small.
fn cases(quick: bool) -> Vec<Case> {
    let xfs = |name, size, place| Case {
        job: Job::Make,
        name,
        size,
        place,
        ours: &["-t", "xfs"],
        theirs: Some(Peer { tool: "mkfs.xfs", words: vec!["-q", "-K", "-f"], times: 10.0 }),
        is_quick: quick,
    };
    let ext4 = |name, size, ours, words: &[&'static str]| {
        let words = ["-q", "-F", "-t", "ext4"].iter().chain(words).copied().collect();
        let peer = (!name_is_alone(name)).then_some(Peer { tool: "mke2fs", words, times: 20.0 });
        Case { job: Job::Make, name, size, place: Storage::Memory, ours, theirs: peer, is_quick: quick }
    };
    // The last has the most groups.
    let using = |name, size, ours| Case { job: Job::Use, ..ext4(name, size, ours, &[]) };
    let clusters = |size: &'static str| [LIKE_OURS, &[size]].concat();
    let single = &["-O", "meta_bg,^resize_inode", "-G", "64"];
    let mut all = vec![
        xfs("xfs-1P", PB, Storage::Memory),
        xfs("xfs-10P", 10 * PB, Storage::Memory),
        xfs("xfs-100P", 100 * PB, Storage::Memory),
        xfs("xfs-1E", 1000 * PB, Storage::Xfs),
        ext4("ext4-16T", 16 * TIB, &[], &[]),
        ext4("ext4-200T", 200 * TIB, &[], &clusters("8192")),
        ext4("ext4-1024T", 1024 * TIB, &[], &clusters("32768")),
        ext4("ext4-single-200T", 200 * TIB, LIKE_THEIRS, single),
        ext4("ext4-single-1024T", 1024 * TIB, LIKE_THEIRS, single),
        ext4("ext4-alone-10P", 10 * PB, &[], &[]),
        ext4("ext4-alone-1E", 1000 * PB, &[], &[]),
        using("using-alone-1024T", 1024 * TIB, &[]),
        using("using-alone-10240T", 10 * 1024 * TIB, &[]),
        using("using-alone-single-1024T", 1024 * TIB, LIKE_THEIRS),
    ];
    if quick {
        all.retain(|case| case.place == Storage::Memory);
        all.iter_mut().for_each(|case| case.size = (case.size / 1000).next_multiple_of(1 << 20));
    }
    all
}

/// Cases without a peer.
fn name_is_alone(name: &str) -> bool {
    name.contains("alone")
}

/// Runs the job; returns whether everything ran and was as claimed.
pub(super) fn run(options: &super::Options, binary: &Path) -> bool {
    let wanted = |case: &Case| {
        options.only.is_empty() || options.only.iter().any(|only| case.name.starts_with(only.as_str()))
    };
    let cases: Vec<Case> = cases(options.quick).into_iter().filter(wanted).collect();
    let mut results = Vec::new();
    for case in &cases {
        results.push(compare(case, binary, options.pairs));
        // Written after each case: a complete run takes long, and may be interrupted.
        if let Err(error) = write(&options.json, &results) {
            eprintln!("can't write {}: {error}", options.json.display());
            return false;
        }
    }
    print!("{}", table(&results));
    print!("{}", growth(&results));
    results.iter().for_each(|result| print!("{}", result.verdicts()));
    leave_nothing();
    println!("figures: {}", options.json.display());
    !results.is_empty() && results.iter().all(Outcome::is_good)
}

/// The names of all cases.
pub(super) fn names() -> Vec<String> {
    cases(false).into_iter().map(|case| case.name.to_string()).collect()
}

/// Prints all cases.
pub(super) fn list() {
    cases(false).iter().for_each(|case| println!("{:<25} {} bytes", case.name, case.size));
}

/// A case's results, round by round.
struct Outcome<'c> {
    case: &'c Case,
    ours: Vec<Figures>,
    theirs: Vec<Figures>,
    /// Seconds that our writes take alone.
    alone: Vec<f64>,
    /// Why it was not run.
    skipped: Option<String>,
    failures: Vec<String>,
}

/// A directory for the file, and what is removed with it.
struct Ground {
    folder: PathBuf,
    /// Dropped in this order.
    _mount: Option<KernelMount>,
    _scratch: Scratch,
}

impl Ground {
    fn prepare(place: Storage) -> Result<Self, String> {
        if place == Storage::Memory {
            let scratch = Scratch::new(Path::new("/dev/shm"), NAME)?;
            return Ok(Self { folder: scratch.path().to_owned(), _mount: None, _scratch: scratch });
        }
        let scratch = Scratch::new(&target_folder(), NAME)?;
        let image = scratch.path().join("backing");
        sparse(&image, BACKING)?;
        measure("mkfs.xfs", &["-q", "-K", "-f"], &image, None)?;
        // What one program leaves does not add to the next one's allocation.
        let mount = KernelMount::new(&image, "discard").map_err(|skip| skip.to_string())?;
        Ok(Self { folder: mount.path().to_owned(), _mount: Some(mount), _scratch: scratch })
    }
}

fn sparse(path: &Path, len: u64) -> Result<(), String> {
    let made = File::create(path).and_then(|file| file.set_len(len));
    made.map_err(|error| format!("{}: {error}", path.display()))
}

fn compare<'c>(case: &'c Case, binary: &Path, rounds: u32) -> Outcome<'c> {
    let mut outcome = Outcome::of(case);
    let ground = match Ground::prepare(case.place) {
        Ok(ground) => ground,
        Err(reason) => {
            eprintln!("SKIPPED {}: {reason}", case.name);
            outcome.skipped = Some(reason);
            return outcome;
        }
    };
    let image = ground.folder.join("image");
    let binary = binary.to_string_lossy();
    if case.job == Job::Use {
        let used = use_volume(&mut outcome, &binary, &image, rounds);
        outcome.failures.extend(used.err());
        return outcome;
    }
    for round in 0..rounds {
        for turn in 0..2 {
            let is_ours = (round + turn) % 2 == 0; // the order alternates
            let result = if is_ours {
                measure(&binary, &case.ours_words(), &image, Some(case.size))
            } else if let Some(peer) = &case.theirs {
                sparse(&image, case.size).and_then(|()| measure(peer.tool, &peer.words, &image, None))
            } else {
                continue;
            };
            let _ = std::fs::remove_file(&image); // not there if the run failed
            let title = if is_ours { "hectare" } else { case.theirs.as_ref().map_or("", |peer| peer.tool) };
            match result {
                Ok(figures) => {
                    eprintln!("  {} round {}: {title}: {figures}", case.name, round + 1);
                    if is_ours {
                        match writes_alone(&figures, &image, case.size) {
                            Ok(seconds) => outcome.alone.push(seconds),
                            Err(error) => outcome.failures.push(format!("the writes alone: {error}")),
                        }
                    }
                    if is_ours { &mut outcome.ours } else { &mut outcome.theirs }.push(figures);
                }
                Err(error) => outcome.failures.push(format!("{title}: {error}")),
            }
        }
    }
    outcome
}

/// A claim, and whether it was met.
struct Verdict {
    text: String,
    value: Option<f64>,
    met: bool,
}

impl Verdict {
    fn at_most(text: String, value: Option<f64>, most: Option<f64>) -> Self {
        Self { text, value, met: value.zip(most).is_some_and(|(value, most)| value <= most) }
    }

    /// The line printed for it in the end.
    fn line(&self, case: &str) -> String {
        let verdict = ["MISSED", "met"][usize::from(self.met)];
        format!("{verdict}: {case}: {}: {}\n", self.text, self.value.map_or("nothing".into(), shown))
    }

    fn json(&self) -> Value {
        json!({ "claim": self.text, "value": self.value, "met": self.met })
    }
}

type Figure = fn(&Figures) -> Option<f64>;

const SECONDS: Figure = |run| Some(run.seconds);
const MEMORY: Figure = |run| run.memory_mib;
const WRITTEN: Figure = |run| Some(run.written);

fn seconds(runs: &[Figures]) -> Vec<f64> {
    runs.iter().map(|run| run.seconds).collect()
}

fn spread(runs: &[Figures], of: Figure) -> Option<Spread> {
    Spread::of(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

impl<'c> Outcome<'c> {
    fn of(case: &'c Case) -> Self {
        let (ours, theirs, alone, failures) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { case, ours, theirs, alone, skipped: None, failures }
    }
}

impl Outcome<'_> {
    /// How many times faster than the peer.
    fn times(&self) -> Option<Spread> {
        self.times_of(&seconds(&self.ours))
    }

    fn times_of(&self, of: &[f64]) -> Option<Spread> {
        Spread::of_ratios(&seconds(&self.theirs), of)
    }

    fn claims(&self) -> Vec<Verdict> {
        if self.skipped.is_some() || self.case.is_quick {
            return Vec::new();
        }
        let ours = |of: Figure| spread(&self.ours, of).map(|spread| spread.median);
        let memory = Verdict::at_most(
            format!("at most {MEMORY_MAX} MiB of memory"),
            spread(&self.ours, MEMORY).map(|spread| spread.max),
            Some(MEMORY_MAX),
        );
        if self.case.job == Job::Use {
            let text = format!("at most {SECONDS_OF_USE} s to open, change and close");
            return vec![memory, Verdict::at_most(text, ours(SECONDS), Some(SECONDS_OF_USE))];
        }
        let Some(peer) = &self.case.theirs else {
            let each = ours(|run| Some(run.seconds / (run.written / 1e9)));
            let text = format!("at most {SECONDS_PER_GB} s for a GB written");
            return vec![memory, Verdict::at_most(text, each, Some(SECONDS_PER_GB))];
        };
        let times = self.times().map(|spread| spread.median);
        let fast = Verdict {
            text: format!("at least {} times as fast as {}", peer.times, peer.tool),
            value: times,
            met: times.is_some_and(|times| times >= peer.times),
        };
        let theirs = spread(&self.theirs, WRITTEN).map(|spread| spread.median);
        vec![fast, memory, Verdict::at_most("bytes written at most theirs".into(), ours(WRITTEN), theirs)]
    }

    fn is_good(&self) -> bool {
        self.skipped.is_none() && self.failures.is_empty() && self.claims().iter().all(|claim| claim.met)
    }

    fn verdicts(&self) -> String {
        let name = self.case.name;
        let mut text: String = self.claims().iter().map(|claim| claim.line(name)).collect();
        for failure in &self.failures {
            let _ = writeln!(text, "FAILED {name}: {failure}");
        }
        if let Some(reason) = &self.skipped {
            let _ = writeln!(text, "SKIPPED {name}: {reason}");
        }
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |title: &str, runs: &[Figures], times: Option<Spread>| {
            let cell = |of: Figure| spread(runs, of).map_or("-".to_owned(), |spread| shown(spread.median));
            let seconds = spread(runs, SECONDS).map_or("-".to_owned(), with_range);
            let times = times.map_or("-".to_owned(), with_range);
            let (memory, written) = (cell(MEMORY), cell(|run| Some(run.written / 1e6)));
            let (writes, taken) = (cell(|run| Some(run.writes)), cell(|run| Some(run.taken / 1e6)));
            vec![self.case.name.to_owned(), title.to_owned(), seconds, times, memory, written, writes, taken]
        };
        let mut rows = vec![row("hectare", &self.ours, self.times())];
        rows.extend(self.case.theirs.as_ref().map(|peer| row(peer.tool, &self.theirs, None)));
        if self.case.job == Job::Use {
            return rows;
        }
        let alone = [Spread::of(&self.alone), self.times_of(&self.alone)];
        let alone = alone.map(|spread| spread.map_or("-".to_owned(), with_range));
        let titles = [self.case.name, "the writes alone"].map(str::to_owned);
        let rest = std::iter::repeat_n("-".to_owned(), HEADINGS.len() - 4);
        rows.push(titles.into_iter().chain(alone).chain(rest).collect());
        rows
    }

    fn json(&self) -> Value {
        let runs = |runs: &[Figures]| runs.iter().map(Figures::json).collect::<Vec<_>>();
        let claims: Vec<Value> = self.claims().iter().map(Verdict::json).collect();
        let peer = self.case.theirs.as_ref().map(|peer| peer.tool);
        json!({
            "case": self.case.name, "bytes": self.case.size, "ours": runs(&self.ours),
            "theirs": runs(&self.theirs), "alone": self.alone, "peer": peer,
            "times": self.times(), "claims": claims, "skipped": self.skipped, "failures": self.failures,
        })
    }
}

/// A figure with its spread, for a table.
pub(super) fn with_range(spread: Spread) -> String {
    format!("{} ({} to {})", shown(spread.median), shown(spread.min), shown(spread.max))
}

const HEADINGS: [&str; 8] =
    ["case", "program", "seconds", "times", "peak MiB", "MB written", "write calls", "MB taken"];

/// All cases as one table, for a page.
fn table(results: &[Outcome<'_>]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec(), vec!["---".to_owned(); HEADINGS.len()]];
    rows.extend(results.iter().flat_map(Outcome::rows));
    let rows: Vec<Vec<String>> = rows.into_iter().map(barred).collect();
    aligned(&rows)
}

/// A row with the bars of a page's table.
pub(super) fn barred(row: Vec<String>) -> Vec<String> {
    std::iter::once("|".to_owned()).chain(row.into_iter().flat_map(|cell| [cell, "|".to_owned()])).collect()
}

/// How time, bytes and memory grow with the size: the exponent that fits best, by least squares of
/// logarithms, of the cases of a kind that lie in one place.
fn growth(results: &[Outcome<'_>]) -> String {
    let mut text = String::from("\ngrowth with the size: exponents of seconds, bytes written, memory\n");
    for (kind, title, is_ours) in [
        ("xfs-", "hectare", true),
        ("xfs-", "mkfs.xfs", false),
        ("ext4-single-", "hectare", true),
        ("ext4-single-", "mke2fs", false),
        ("ext4-", "hectare", true),
        ("ext4-", "mke2fs", false),
    ] {
        let of_kind = |outcome: &&Outcome<'_>| {
            let name = outcome.case.name;
            outcome.case.place == Storage::Memory
                && name.starts_with(kind)
                && name.starts_with("ext4-single-") == (kind == "ext4-single-")
        };
        let fit = |of: Figure| {
            let points = results.iter().filter(of_kind).filter_map(|outcome| {
                let runs = if is_ours { &outcome.ours } else { &outcome.theirs };
                Some((outcome.case.size, spread(runs, of)?.median))
            });
            exponent(&points.collect::<Vec<_>>()).map_or("-".to_owned(), |exponent| format!("{exponent:.2}"))
        };
        let exponents = [fit(SECONDS), fit(WRITTEN), fit(MEMORY)];
        let _ = writeln!(text, "  {kind:<13} {title:<9} {}", exponents.join("  "));
    }
    text
}

/// The exponent `b` of the curve `a * size^b` that fits best; `None` of fewer than two sizes.
fn exponent(points: &[(u64, f64)]) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // a size to sixteen digits
    let logs: Vec<(f64, f64)> =
        points.iter().map(|(size, value)| ((*size as f64).ln(), value.ln())).collect();
    let count = f64::from(u32::try_from(logs.len()).ok()?);
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = logs.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = logs.iter().map(|point| (point.0 - x).powi(2)).sum();
    (below > 0.0 && above.is_finite()).then(|| above / below)
}

fn write(file: &Path, results: &[Outcome<'_>]) -> std::io::Result<()> {
    let cases: Vec<Value> = results.iter().map(Outcome::json).collect();
    super::results::write_json(file, &json!({ "machine": machine(), "cases": cases }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(seconds: f64, memory_mib: f64, written: f64) -> Figures {
        Figures { seconds, cpu: seconds, memory_mib: Some(memory_mib), written, writes: 1.0, taken: written }
    }

    #[test]
    fn claims_are_of_pairs_memory_and_bytes() {
        let cases = cases(false);
        let case = cases.iter().find(|case| case.name == "xfs-10P").unwrap();
        let outcome = |ours, theirs| Outcome { ours, theirs, ..Outcome::of(case) };
        assert!(outcome(vec![figures(1.0, 60.0, 1e9)], vec![figures(12.0, 90.0, 1e9)]).is_good());
        for (seconds, memory, written) in [(2.0, 60.0, 1e9), (1.0, 65.0, 1e9), (1.0, 60.0, 1.1e9)] {
            let bad = outcome(vec![figures(seconds, memory, written)], vec![figures(12.0, 90.0, 1e9)]);
            assert_eq!(bad.verdicts().matches("MISSED").count(), 1, "{}", bad.verdicts());
        }
        assert!(!outcome(Vec::new(), Vec::new()).is_good(), "nothing ran");
        let skipped = Outcome { skipped: Some("no room".into()), ..Outcome::of(case) };
        assert!(!skipped.is_good(), "it was skipped");
        let used = cases.iter().find(|case| case.job == Job::Use).unwrap();
        let using =
            |seconds, memory| Outcome { ours: vec![figures(seconds, memory, 1e3)], ..Outcome::of(used) };
        assert!(using(0.1, 60.0).is_good() && !using(0.3, 60.0).is_good() && !using(0.1, 65.0).is_good());
    }

    #[test]
    fn a_line_has_the_exponent_one_and_no_growth_zero() {
        let line = exponent(&[(10, 3.0), (100, 30.0), (1000, 300.0)]).unwrap();
        assert!((line - 1.0).abs() < 1e-9);
        assert!(exponent(&[(10, 3.0), (1000, 3.0)]).unwrap().abs() < 1e-9);
        assert_eq!(exponent(&[(10, 3.0)]), None);
    }

    #[test]
    fn cases_have_names_of_their_own() {
        let cases = cases(false);
        for (nr, case) in cases.iter().enumerate() {
            assert!(cases[..nr].iter().all(|other| other.name != case.name), "{}", case.name);
            assert_eq!(case.theirs.is_none(), name_is_alone(case.name));
            assert_eq!(case.size % 4096, 0);
        }
    }
}
