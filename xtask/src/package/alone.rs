//! A command that needs no library, in an archive: `cargo xtask package --static`.
//!
//! In order of preference, by what the toolchain has:
//!
//! - musl, whose standard library rustup installs (`rustup target add`);
//! - musl with a standard library built from its sources (component `rust-src`), by `cargo-zigbuild`, which
//!   brings the C library;
//! - glibc, linked statically. It looks up hosts' names only where a glibc of the same version is installed,
//!   which addresses of servers need.
//!
//! With `--test` it runs in a root directory that has nothing else.

use super::build::{Built, COMMAND, PROFILE, Program, dist};
use super::chroot::Chroot;
use super::deb::fresh;
use super::layout::{Family, Package, What, entries};
use super::stage::stage;
use super::{Ended, Facts, output, step, trial};
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::{quiet, root, sysroot, target_folder};
use hectare_tools::tool::need;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the command is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Musl,
    MuslFromSources,
    Glibc,
}

impl Way {
    /// The best that is possible here.
    fn found() -> Self {
        if library_folder(Self::Musl).is_some_and(|folder| folder.is_dir()) {
            return Self::Musl;
        }
        let sources = sysroot(&[]).is_some_and(|root| root.join("lib/rustlib/src/rust/library/std").is_dir());
        if sources && quiet(Command::new("cargo-zigbuild").arg("--version")).is_some() {
            return Self::MuslFromSources;
        }
        Self::Glibc
    }

    fn target(self) -> String {
        let library = if self == Self::Glibc { "gnu" } else { "musl" };
        format!("{}-unknown-linux-{library}", std::env::consts::ARCH)
    }

    /// The cargo that builds it.
    fn build(self, facts: &Facts, target: &Path) -> Command {
        let flags: &[&str] = match self {
            Self::Musl => &[],
            // The C library's objects come from cargo-zigbuild, not from rustup.
            Self::MuslFromSources => &["-Clink-self-contained=no"],
            Self::Glibc => &["-Ctarget-feature=+crt-static"],
        };
        let mut cargo = dist(facts, target, flags);
        match self {
            Self::MuslFromSources => cargo.arg("zigbuild").arg("-Zbuild-std").env("RUSTC_BOOTSTRAP", "1"),
            Self::Musl | Self::Glibc => cargo.arg("build"),
        };
        cargo.args(["--locked", "--profile", PROFILE, "--target", &self.target()]).args(COMMAND);
        cargo
    }
}

fn library_folder(way: Way) -> Option<PathBuf> {
    let said = quiet(Command::new("rustc").args(["--print", "target-libdir", "--target", &way.target()]))?;
    Some(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()))
}

/// Makes the archive, and tries it.
pub(super) fn run(is_tried: bool) -> Result<(), String> {
    let facts = Facts::of(root())?;
    let target = target_folder();
    let work = Scratch::new(&target, "hectare-package")?;
    let way = Way::found();
    println!("linked statically for {}", way.target());
    step(&mut way.build(&facts, &target))?;
    let program = Program::of(&target.join(way.target()).join(PROFILE).join("hectare"), work.path())?;
    let (command, built) = (program.binary.clone(), Built { command: program, ..Built::default() });
    let file = packed(&facts, &built, way, work.path(), &target.join("packages-static"))?;
    let size = fs::metadata(&file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    println!("{size:>10} bytes  {}", file.display());
    let mut outcome = trial::Outcome::default();
    if is_tried {
        outcome.take("the size of the static command", trial::size(&command));
        outcome.take("the static command needs no library", needs_nothing(&command));
        outcome.take("the static command in an empty root directory", tried(&command));
    }
    outcome.print();
    outcome.failed.is_empty().then_some(()).ok_or("see above".to_owned())
}

/// The files of the package of the command, below one directory, without links for mount(8).
fn packed(facts: &Facts, built: &Built, way: Way, work: &Path, out: &Path) -> Result<PathBuf, String> {
    let name = format!("hectare-{}-{}", facts.version, way.target());
    let mut entries = entries(Package::Command, Family::Rpm, facts, built)?;
    entries.retain(|entry| !matches!(entry.what, What::Link(_)));
    for entry in &mut entries {
        entry.path = format!("{name}/{}", entry.path.trim_start_matches("usr/"));
    }
    let staged = work.join("static");
    fresh(&staged)?;
    stage(&entries, &staged.join("root"), facts.epoch)?;
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let (tar, file) = (work.join("static.tar"), out.join(format!("{name}.tar.gz")));
    let mut archiver = need("tar").map_err(|skip| skip.to_string())?;
    archiver.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", "-cf"]);
    step(archiver.arg(&tar).arg("-C").arg(staged.join("root")).arg(&name))?;
    let bytes = fs::read(&tar).map_err(|error| format!("{}: {error}", tar.display()))?;
    fs::write(&file, super::layout::compressed(&bytes)?)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

fn needs_nothing(command: &Path) -> Result<(), Ended> {
    let said = output(need("readelf")?.args(["--program-headers", "--dynamic"]).arg(command))?;
    let needs = said.lines().filter(|line| line.contains("(NEEDED)") || line.contains("INTERP"));
    let needs: Vec<&str> = needs.collect();
    if needs.is_empty() { Ok(()) } else { Err(needs.join("; ").into()) }
}

/// What is done in an empty root directory, `$0`; only `mount` has others beside it.
const TRIAL: &str = "
mkdir \"$0/tree\"
echo content > \"$0/tree/file\"
hectare() { chroot \"$0\" /hectare \"$@\"; }
hectare --version
hectare mkfs /empty.img 64M
hectare check /empty.img
hectare build --from /tree --free 4M /disk.img
hectare check /disk.img
test \"$(hectare cat /disk.img:/file)\" = content
hectare mount /disk.img /mnt
test \"$(cat \"$0/mnt/file\")\" = content
echo more > \"$0/mnt/more\"
hectare umount /mnt
hectare check /disk.img
test \"$(hectare cat /disk.img:/more)\" = more
";

fn tried(command: &Path) -> Result<(), Ended> {
    let chroot = Chroot::empty()?;
    let there = chroot.path().join("hectare");
    fs::copy(command, &there).map_err(|error| format!("{}: {error}", there.display()))?;
    println!("{}", chroot.beside(TRIAL)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::facts;
    use super::*;

    #[test]
    fn each_way_is_for_a_target_of_its_library() {
        for (way, library) in [(Way::Musl, "-musl"), (Way::MuslFromSources, "-musl"), (Way::Glibc, "-gnu")] {
            assert!(way.target().ends_with(library));
            let cargo = way.build(&facts(), Path::new("/target"));
            let words: Vec<_> = cargo.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            assert!(words.contains(&way.target()) && words.contains(&"--locked".to_owned()), "{words:?}");
        }
    }
}
