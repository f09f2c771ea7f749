//! Volumes on a Ceph cluster: `cargo hunt ceph [--seed N] [--rounds N] [--keep]`.
//!
//! A cluster of one monitor and one OSD is made in a directory of its own, on ports of its own, with pools of
//! size 1 ([`cluster`]). Its images are served by `qemu-nbd` on sockets ([`gateway`]), as `docs/remote.md` says,
//! and Hectare works on them through `nbd+unix://`: the behaviour suite of devices, a volume that is built,
//! one that is filled and read back ([`volumes`]), and the random program of `cargo hunt remote` while
//! `qemu-nbd` and the OSD are killed and started again ([`crashes`]). Two want one volume at once ([`openers`]).
//! After each, Ceph exports the image, and e2fsck and the kernel judge its bytes.
//!
//! The cluster holds nothing of worth: it has no passwords, and listens on loopback only. Its processes are
//! ended by their ids. Nothing is read of a configuration in /etc/ceph.
//!
//! What is missing (Ceph's programs, `qemu-nbd` with its driver for RBD) is the reason that it can't run
//! here, or a part of it; `HECTARE_REQUIRE_ALL=1` makes the latter a failure.

#[allow(clippy::unwrap_used)] // tests of devices, which panic
#[path = "../../../../crates/remote/nbd/tests/nbd/behaviour.rs"]
mod behaviour;
mod cluster;
mod crashes;
mod gateway;
mod openers;
mod volumes;

use cluster::Cluster;
use gateway::Gateway;
use hectare_nbd::{Address, NbdDevice, Options as Client};
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit, may_skip};
use hectare_tools::install::{Tool, install};
use hectare_tools::job_folder::{Scratch, leave_nothing};
use hectare_tools::steps::{parsed, understood};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What the cluster needs.
const TOOLS: [Tool; 6] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("monmaptool", "ceph-base"),
    ("ceph", "ceph-common"),
    ("rbd", "ceph-common"),
    ("/usr/lib/x86_64-linux-gnu/qemu/block-rbd.so", "qemu-block-extra"),
];
const USAGE: &str = "usage: cargo hunt ceph [--seed N] [--rounds N] [--keep]";

#[derive(Clone, PartialEq, Debug)]
struct Options {
    seed: u64,
    /// Runs of the random program with each kind of crash.
    rounds: u64,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { seed: 1, rounds: 3, keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || parsed(word, words.next().ok_or(format!("{word} needs a value"))?);
            match *word {
                "--seed" => options.seed = number()?,
                "--rounds" => options.rounds = number()?,
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.rounds == 0 { Err("--rounds: at least one".to_owned()) } else { Ok(options) }
    }
}

/// What all parts of the job work with.
struct Bench {
    cluster: Cluster,
    /// The command `hectare`.
    hectare: PathBuf,
    folder: PathBuf,
    seed: u64,
    rounds: u64,
}

impl Bench {
    /// A new image of so many MiB that is served.
    fn image(&self, name: &str, mib: u64, features: Features) -> Result<Gateway, Ended> {
        let size = format!("{mib}M");
        let mut words = vec!["create", "--size", &size];
        if features == Features::None {
            words.extend(["--image-feature", "layering"]);
        }
        self.cluster.rbd(&[&words[..], &[name]].concat())?;
        Gateway::start(&self.cluster, name)
    }

    /// The bytes of an image as Ceph exports them.
    fn exported(&self, name: &str) -> Result<PathBuf, Ended> {
        let copy = self.folder.join(format!("{name}.img"));
        std::fs::remove_file(&copy).unwrap_or_default(); // of the last time, if any
        self.cluster.rbd(&["export", "--no-progress", name, &copy.display().to_string()])?;
        Ok(copy)
    }

    fn hectare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.hectare);
        command.args(words);
        command
    }
}

/// The features of an RBD image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Features {
    /// Those that Ceph gives an image if none are named; they include a lock for one writer at a time.
    Default,
    /// None but layering.
    None,
}

/// An export, opened for writing.
fn opened(address: &Address) -> Result<NbdDevice, Ended> {
    let options = Client { write: true, ..Client::default() };
    NbdDevice::open(address, &options).map_err(|error| Ended::Failed(error.to_string()))
}

type Part = fn(&Bench) -> Result<String, Ended>;

/// The parts of the job, by name.
const PARTS: [(&str, Part); 7] = [
    ("device behaviour", volumes::behaves),
    ("a built volume", volumes::is_built),
    ("a full volume", volumes::is_filled),
    ("qemu-nbd killed", crashes::of_gateway),
    ("the OSD killed", crashes::of_osd),
    ("qemu-nbd killed, with an exclusive lock", crashes::of_lock_owner),
    ("two openers", openers::one_is_refused),
];

/// Runs the job with its arguments; it ends well if all of it passed, or some parts and the others can't run
/// here.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let result = job(&options);
    leave_nothing();
    Exit::of(&format!("ceph --seed {}", options.seed), result)
}

fn job(options: &Options) -> Result<(), Ended> {
    install(&TOOLS).print();
    cluster::need_programs()?;
    gateway::need_driver()?;
    // Not in memory: the OSD wants direct input and output.
    let scratch = Scratch::new(Path::new("/var/tmp"), "hectare-ceph")?;
    let hectare = built(false).ok_or_else(|| Ended::Skipped("hectare can't be built".to_owned()))?;
    println!("{}", Cluster::version()?.trim_end());
    let cluster = Cluster::start(scratch.path(), options.keep)?;
    let folder = scratch.path().to_owned();
    let bench = Bench { cluster, hectare, folder, seed: options.seed, rounds: options.rounds };
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for (name, part) in PARTS {
        let began = Instant::now();
        // What is asserted panics; the cluster and its logs are to be seen then, too.
        let done = catch_unwind(AssertUnwindSafe(|| part(&bench)));
        match done.unwrap_or_else(|_| Err(Ended::Failed("it panicked, as printed above".to_owned()))) {
            Ok(said) => {
                passed += 1;
                println!("{name}: {said} ({:.1} s)", began.elapsed().as_secs_f64());
            }
            Err(Ended::Skipped(reason)) => {
                skipped += 1;
                println!("{name}: skipped: {reason}");
            }
            Err(Ended::Failed(reason)) => {
                failed.push(format!("{name}: {reason}"));
                if options.keep {
                    eprintln!("the logs are in {} until Enter is pressed", bench.folder.display());
                    let _ = std::io::stdin().read_line(&mut String::new()); // an end of input ends it, too
                }
            }
        }
    }
    println!("ceph: {passed} passed, {} failed, {skipped} skipped", failed.len());
    match failed.is_empty() && (skipped == 0 || may_skip()) {
        true => Ok(()),
        false if failed.is_empty() => Err(format!("{skipped} parts would be skipped").into()),
        false => Err(failed.join("; ").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let options = Options::parse(&["--seed", "7", "--rounds", "9", "--keep"]).unwrap();
        assert_eq!(options, Options { seed: 7, rounds: 9, keep: true });
        for wrong in [&["--seed"][..], &["--rounds", "-1"], &["--rounds", "0"], &["often"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
