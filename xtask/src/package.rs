//! Packages of the command and of the library: `cargo xtask package [--test] [--rebuild] [--static]`.
//!
//! | package | what it has |
//! |---|---|
//! | `hectare` | the command, manual pages, completions, names by which mount(8) calls it, documentation |
//! | `hectare-lab` | the lab: workloads, ageing, the published experiments |
//! | `libhectare0` | the shared library |
//! | `libhectare-dev`, as .rpm `libhectare-devel` | header, static library, pkg-config's file, examples |
//!
//! Each is made as .deb and as .rpm, in `target/packages`, from one list of files ([`layout`]). The formats
//! are written by the systems' own programs (decision 17), which also find out what a binary needs; where one
//! is missing its packages are skipped by name.
//!
//! Invariant: the same commit and the same toolchain give the same bytes, in any directory. So nothing may
//! depend on the time (all files have the time of the commit, or `SOURCE_DATE_EPOCH`), on the umask, on the
//! number of processors, or on where the sources lie (the compiler replaces those paths).
//!
//! `--test` looks at what was made, and installs it in a new Debian ([`trial`]); `--rebuild` builds the
//! commit once more elsewhere and compares; `--static` makes one archive with a binary that needs no library
//! ([`alone`]).
//!
//! What it is not: a build for another processor or system than this one. A .deb needs a libc at least as new
//! as that of the machine it was built on.

mod alone;
mod build;
mod chroot;
mod deb;
mod layout;
mod notices;
mod rpm;
mod stage;
mod trial;

use crate::setup;
use build::Built;
use hectare_tools::ended::Ended;
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::{cargo, metadata, quiet, root, target_folder, understood, went_well};
use hectare_tools::tool::{need, run as heard};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo xtask package [--test] [--rebuild] [--static]";
/// Who is named as the maintainer if `DEBFULLNAME` and `DEBEMAIL` are not set. It has no address.
const MAINTAINER: (&str, &str) = ("Hectare authors", "hectare@localhost.localdomain");

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Options {
    test: bool,
    rebuild: bool,
    alone: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        for word in words {
            match *word {
                "--test" => options.test = true,
                "--rebuild" => options.rebuild = true,
                "--static" => options.alone = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        if options.alone && options.rebuild {
            return Err("--rebuild is for packages: leave out --static".to_owned());
        }
        Ok(options)
    }
}

/// What all packages have in common.
#[derive(Clone, Debug)]
struct Facts {
    version: String,
    /// The time of everything in the packages, in seconds since 1970.
    epoch: u64,
    /// The same as RFC 2822 has it.
    date: String,
    /// Name and address.
    maintainer: String,
    /// Where the sources lie.
    sources: PathBuf,
}

impl Facts {
    fn of(sources: PathBuf) -> Result<Self, String> {
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text,
            Err(_) => last_commit(&sources)?,
        };
        let epoch =
            epoch.trim().parse().map_err(|_| format!("{epoch} is no number of seconds since 1970"))?;
        let mut date = need("date").map_err(|skip| skip.to_string())?;
        let date = heard(date.args(["-u", "-R", &format!("--date=@{epoch}")]));
        let named = |key: &str, default: &str| std::env::var(key).unwrap_or_else(|_| default.to_owned());
        let (name, address) = (named("DEBFULLNAME", MAINTAINER.0), named("DEBEMAIL", MAINTAINER.1));
        Ok(Self {
            version: version().ok_or("cargo metadata has no version of hectare-cli")?,
            epoch,
            date: date.stdout.trim().to_owned(),
            maintainer: format!("{name} <{address}>"),
            sources,
        })
    }
}

fn last_commit(sources: &Path) -> Result<String, String> {
    let time = quiet(Command::new("git").current_dir(sources).args(["log", "-1", "--format=%ct"]));
    let time = time.ok_or("these sources have no commit: set SOURCE_DATE_EPOCH")?;
    Ok(String::from_utf8_lossy(&time.stdout).into_owned())
}

fn version() -> Option<String> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array()?;
    let command = packages.iter().find(|package| package["name"] == "hectare-cli")?;
    Some(command["version"].as_str()?.to_owned())
}

/// What was made, and what could not be made here.
#[derive(Debug, Default)]
struct Made {
    files: Vec<PathBuf>,
    skipped: Vec<(String, String)>,
}

/// Runs the job with its arguments; returns whether nothing failed.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(options) = understood(Options::parse(words), USAGE) else { return false };
    if !setup::for_packages() {
        return went_well("package", Err("tools are missing, see above".to_owned()));
    }
    let done = if options.alone { alone::run(options.test) } else { packages(options) };
    went_well("package", done)
}

fn packages(options: Options) -> Result<(), String> {
    let facts = Facts::of(root())?;
    let target = target_folder();
    let work = Scratch::new(&target, "hectare-package")?;
    let built = Built::new(&facts, &target, work.path())?;
    let out = target.join("packages");
    let _ = fs::remove_dir_all(&out); // absent at first
    let made = pack(&facts, &built, work.path(), &out)?;
    println!();
    for path in &made.files {
        let size = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        println!("{:>10} bytes  {}", size, path.display());
    }
    let mut outcome = trial::Outcome { skipped: made.skipped.clone(), ..trial::Outcome::default() };
    if options.test {
        outcome += trial::run(&facts, &built, &made, work.path());
    }
    if options.rebuild {
        outcome.take("the same bytes when it is built elsewhere", rebuilt(&facts, &made));
    }
    outcome.print();
    outcome.failed.is_empty().then_some(()).ok_or("see above".to_owned())
}

/// Makes all packages of what was built, in a new directory.
fn pack(facts: &Facts, built: &Built, work: &Path, out: &Path) -> Result<Made, String> {
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut made = Made::default();
    made.add("the .deb packages", deb::write(facts, built, work, out))?;
    made.add("the .rpm packages", rpm::write(facts, built, work, out))?;
    Ok(made)
}

impl Made {
    fn add(&mut self, what: &str, written: Result<Vec<PathBuf>, Ended>) -> Result<(), String> {
        match written {
            Ok(files) => self.files.extend(files),
            Err(Ended::Skipped(reason)) => self.skipped.push((what.to_owned(), reason)),
            Err(Ended::Failed(reason)) => return Err(format!("{what}: {reason}")),
        }
        Ok(())
    }
}

/// Builds the last commit in another directory, and compares the packages.
fn rebuilt(facts: &Facts, made: &Made) -> Result<(), Ended> {
    let changed = quiet(Command::new("git").current_dir(root()).args(["status", "--porcelain"]));
    if changed.is_none_or(|said| !said.stdout.is_empty()) {
        return Err("these sources have changes that are not committed, so another build differs"
            .to_owned()
            .into());
    }
    let folder = Scratch::new(&std::env::temp_dir(), "hectare-rebuild")?;
    let sources = folder.path().join("elsewhere");
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet"]).arg(root()).arg(&sources);
    step(&mut clone)?;
    let facts = Facts { sources, ..facts.clone() };
    let built = Built::new(&facts, &folder.path().join("target"), folder.path())?;
    let again = pack(&facts, &built, folder.path(), &folder.path().join("packages"))?;
    same(&made.files, &again.files)
}

/// Compares files byte for byte, in their order.
fn same(files: &[PathBuf], again: &[PathBuf]) -> Result<(), Ended> {
    if files.len() != again.len() {
        return Err(format!("{} packages became {}", files.len(), again.len()).into());
    }
    for (one, other) in files.iter().zip(again) {
        let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        if read(one)? != read(other)? {
            return Err(format!("{} differs from {}", one.display(), other.display()).into());
        }
    }
    Ok(())
}

/// Runs a command visibly; that it failed is an error.
fn step(command: &mut Command) -> Result<(), String> {
    let line = hectare_tools::tool::line_of(command);
    hectare_tools::steps::shown(command).then_some(()).ok_or(format!("failed: {line}"))
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String, String> {
    let said = heard(command);
    if said.succeeded() { Ok(said.stdout) } else { Err(said.report()) }
}

/// cargo, for sources anywhere.
fn cargo_in(sources: &Path) -> Command {
    let mut cargo = cargo();
    cargo.current_dir(sources);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts that say nothing of this machine.
    pub(super) fn facts() -> Facts {
        Facts {
            version: "1.2.3".to_owned(),
            epoch: 1_700_000_000,
            date: "Tue, 14 Nov 2023 22:13:20 +0000".to_owned(),
            maintainer: "A B <a@b.c>".to_owned(),
            sources: root(),
        }
    }

    #[test]
    fn words_become_options() {
        let packages = Options { test: true, rebuild: true, alone: false };
        assert_eq!(Options::parse(&["--test", "--rebuild"]), Ok(packages));
        let alone = Options { test: true, rebuild: false, alone: true };
        assert_eq!(Options::parse(&["--static", "--test"]), Ok(alone));
        assert!(Options::parse(&["--static", "--rebuild"]).is_err());
        assert!(Options::parse(&["--now"]).is_err());
    }

    #[test]
    fn packages_that_differ_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &str| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let (one, same_bytes, other) = (path("a", "1"), path("b", "1"), path("c", "2"));
        assert_eq!(same(std::slice::from_ref(&one), &[same_bytes]), Ok(()));
        assert!(same(std::slice::from_ref(&one), &[other]).is_err());
        assert!(same(&[one], &[]).is_err());
    }
}
