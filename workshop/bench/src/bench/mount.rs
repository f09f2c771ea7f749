//! Compares mounts with fuse2fs: `cargo benchmark mount [--only JOB]... [--pairs N] [--quick] [--binary
//! FILE] [--json FILE]`; and the gain of single mount options ([`option_ablation`]): `cargo benchmark mount
//! levers`.
//!
//! Four contenders do the same jobs ([`jobs`]) in turn, on images of their own in memory: `hectare mount`,
//! fuse2fs, the kernel through a loop device, and a file system that answers every request at once and keeps
//! nothing ([`mounts`]), which is the limit of what a server can reach. Every contender of a round gets a
//! fresh image; ours is checked by `e2fsck -fn` afterwards.
//!
//! The claims ([`thresholds`]): five times fuse2fs wherever the limit is six times; and always no longer than
//! 1.25 times what the limit takes and the kernel takes for the work itself, together; for a large file at
//! least 0.8 of the kernel's speed.
//!
//! Hazards: needs root, FUSE and loop devices, and some 3 GiB of memory. fuse2fs takes minutes for 50,000
//! names in a directory, so it lists them in the first round only; the table says so.

mod jobs;
mod mounts;
mod option_ablation;
mod thresholds;

use hectare_tools::ended::Exit;
use hectare_tools::job_folder::{Scratch, leave_nothing};
use hectare_tools::steps::{parsed, root, understood};
use jobs::{Ground, Job};
use mounts::{Mounted, Side};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use thresholds::{Seconds, Verdict};

const USAGE: &str = "usage: cargo benchmark mount [levers] [--only JOB]... [--pairs N] [--quick] \
                     [--binary FILE] [--json FILE]";

struct Options {
    only: Vec<String>,
    pairs: u32,
    quick: bool,
    binary: Option<PathBuf>,
    json: PathBuf,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            only: Vec::new(),
            pairs: 5,
            quick: false,
            binary: None,
            json: root().join("out/bench-mount.json"),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().map(|v| (*v).to_owned()).ok_or(format!("{word} needs a value"));
            match *word {
                "--only" => options.only.push(value()?),
                "--pairs" => options.pairs = parsed(word, &value()?)?,
                "--quick" => options.quick = true,
                "--binary" => options.binary = Some(value()?.into()),
                "--json" => options.json = value()?.into(),
                other => return Err(format!("{other} is no option")),
            }
        }
        let unknown = options.only.iter().find(|only| !Job::ALL.iter().any(|job| job.is(only)));
        match unknown {
            Some(unknown) => Err(format!("{unknown} is no job")),
            None if options.pairs == 0 => Err("--pairs: at least 1".into()),
            None => Ok(options),
        }
    }

    fn wants(&self, job: Job) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| job.is(only))
    }
}

/// What all contenders share.
struct Stage {
    binary: PathBuf,
    scratch: Scratch,
    tar: PathBuf,
}

impl Stage {
    fn new(binary: PathBuf, quick: bool) -> Result<Self, String> {
        let scratch = Scratch::new(Path::new("/dev/shm"), "hectare-bench-mount")?;
        let tar = jobs::source_tar(scratch.path(), if quick { 1 } else { 8 })?;
        Ok(Self { binary, scratch, tar })
    }

    /// Runs a job; returns how many seconds it took.
    fn run(&self, mounted: &Mounted, job: Job, quick: bool) -> Result<f64, String> {
        let ground = Ground { dir: mounted.path(), tar: &self.tar, quick };
        let seconds = ground.run(job).map_err(|error| format!("{}: {job}: {error}", mounted.title()))?;
        eprintln!("  {job}: {seconds:.4} s");
        Ok(seconds)
    }
}

/// Reverses the order in every other round.
fn alternate<T>(order: &mut [T], round: u32) {
    if round % 2 == 1 {
        order.reverse();
    }
}

/// Seconds by job and side, in the order of rounds.
type Times = BTreeMap<(Job, Side), Vec<f64>>;

/// Runs the comparison; it ends well if everything ran, was clean and was as claimed.
pub(super) fn run(words: &[&str]) -> Exit {
    if let ["null", dir] = words {
        return mounts::be_null(Path::new(dir)).into();
    }
    let levers = words.first() == Some(&"levers");
    let words = if levers { &words[1..] } else { words };
    let options = match levers && words.contains(&"--json") {
        true => Err("levers: they are printed only, --json is not for them".to_owned()),
        false => Options::parse(words),
    };
    let Some(options) = understood(options, USAGE) else { return Exit::Usage };
    let Some(binary) = super::built(options.binary.as_deref()) else { return Exit::NotHere };
    let met = Stage::new(binary, options.quick).and_then(|stage| {
        if !levers {
            return compare(&stage, &options);
        }
        // There are no claims about them.
        option_ablation::pull(&stage, &options).map(|table| {
            print!("{table}");
            true
        })
    });
    leave_nothing();
    met.inspect_err(|message| eprintln!("{message}")).unwrap_or(false).into()
}

fn compare(stage: &Stage, options: &Options) -> Result<bool, String> {
    let mut times = Times::new();
    for round in 0..options.pairs {
        let mut order = Side::ALL;
        alternate(&mut order, round);
        for side in order {
            eprintln!("round {}: {}", round + 1, side.title());
            let mounted = Mounted::new(side, "", stage)?;
            let wanted = Job::ALL.into_iter().filter(|job| options.wants(*job));
            for job in wanted.filter(|job| round == 0 || side != Side::Fuse2fs || !job.is_slow()) {
                let seconds = stage.run(&mounted, job, options.quick)?;
                times.entry((job, side)).or_default().push(seconds);
            }
            mounted.end()?;
        }
    }
    let verdicts: Vec<Verdict> = Job::ALL.into_iter().filter_map(|job| judged(job, &times)).collect();
    print!("{}", thresholds::table(&verdicts));
    write(&options.json, &times)?;
    println!("figures: {}", options.json.display());
    Ok(verdicts.iter().all(Verdict::is_met))
}

fn judged(job: Job, times: &Times) -> Option<Verdict> {
    let of = |side| times.get(&(job, side)).cloned();
    let seconds = Seconds {
        hectare: of(Side::Hectare)?,
        fuse2fs: of(Side::Fuse2fs)?,
        kernel: of(Side::Kernel)?,
        null: of(Side::Null)?,
    };
    Verdict::new(job, seconds)
}

fn write(path: &Path, times: &Times) -> Result<(), String> {
    let rows: Vec<_> = times
        .iter()
        .map(|((job, side), seconds)| {
            json!({"job": job.to_string(), "side": side.title(), "seconds": seconds})
        })
        .collect();
    let failed = |error: std::io::Error| format!("can't write {}: {error}", path.display());
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    fs::write(path, format!("{:#}\n", json!(rows))).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let options = Options::parse(&["--only", "tar-x", "--pairs", "7", "--quick"]).unwrap();
        assert!(options.wants(Job::TarX) && !options.wants(Job::Create));
        assert_eq!((options.pairs, options.quick), (7, true));
        for wrong in [&["--pairs", "0"][..], &["--only", "nothing"], &["--pairs"], &["more"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
