//! Builds what packages have: the command, the libraries, manual pages and completions.
//!
//! The profile `dist` (Cargo.toml) differs from `release` in size, not in what is checked. The compiler
//! replaces the paths of the sources, of cargo's directory and of the target directory, which panics would
//! name: so the binaries don't depend on where they are built, and name no directory of a developer.
//!
//! Hazard: `RUSTFLAGS` of the environment would change the binaries, so they are not passed on.

use super::{Facts, cargo_in, output, step};
use hectare_tools::tool::need;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The profile, and the directory below the target directory.
pub(super) const PROFILE: &str = "dist";

/// Where the parts of packages are.
#[derive(Clone, Debug, Default)]
pub(super) struct Built {
    pub(super) command: Program,
    pub(super) lab: Program,
    pub(super) shared: PathBuf,
    pub(super) archive: PathBuf,
}

/// A program, and what it writes of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub(super) binary: PathBuf,
    /// A directory with all pages of section 1.
    pub(super) pages: PathBuf,
    /// A directory with a file named for each shell.
    pub(super) completions: PathBuf,
}

/// What cargo is to build of the command: with object stores.
pub(super) const COMMAND: [&str; 4] = ["-p", "hectare-cli", "--features", "hectare-cli/store"];

/// The shells that have a place for completions.
pub(super) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

impl Built {
    /// Builds from the facts' sources.
    pub(super) fn new(facts: &Facts, target: &Path, work: &Path) -> Result<Self, String> {
        // The lab by itself: what it needs of the command has no object stores.
        for what in [&COMMAND[..], &["-p", "hectare-lab"]] {
            step(dist(facts, target, &[]).args(["build", "--locked", "--profile", PROFILE]).args(what))?;
        }
        for kind in ["cdylib", "staticlib"] {
            let mut library = dist(facts, target, &[]);
            library.args(["rustc", "--locked", "--profile", PROFILE, "-p", "hectare-capi", "--lib"]);
            step(library.args(["--crate-type", kind]))?;
        }
        let folder = target.join(PROFILE);
        let archive = work.join("libhectare.a");
        fs::copy(folder.join("libhectare_c.a"), &archive)
            .map_err(|error| format!("libhectare_c.a: {error}"))?;
        let mut strip = need("strip").map_err(|skip| skip.to_string())?;
        step(strip.args(["--strip-debug", "--enable-deterministic-archives"]).arg(&archive))?;
        let command = Program::of(&folder.join("hectare"), work)?;
        let lab = Program::of(&folder.join("hectare-lab"), work)?;
        Ok(Self { command, lab, shared: folder.join("libhectare_c.so"), archive })
    }
}

impl Program {
    /// A program without symbols, with what it writes of itself, in directories of its own below `work`.
    pub(super) fn of(built: &Path, work: &Path) -> Result<Self, String> {
        let name = built.file_name().unwrap_or_default();
        let work = work.join(Path::new("programs").join(name));
        fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
        let binary = stripped(built, &work.join(name))?;
        let (pages, completions) = written_by(&binary, &work)?;
        Ok(Self { binary, pages, completions })
    }
}

/// A copy of a command without symbols. Those of a package with settings of its own in a profile are left by cargo
/// (1.95), whatever the profile says.
fn stripped(command: &Path, copy: &Path) -> Result<PathBuf, String> {
    let mut strip = need("strip").map_err(|skip| skip.to_string())?;
    step(strip.arg("--strip-all").arg("-o").arg(copy).arg(command))?;
    Ok(copy.to_owned())
}

/// What a command writes of itself: the directories of manual pages and of completions.
fn written_by(command: &Path, work: &Path) -> Result<(PathBuf, PathBuf), String> {
    let (pages, completions) = (work.join("pages"), work.join("completions"));
    for folder in [&pages, &completions] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    step(Command::new(command).arg("manual").arg(&pages))?;
    for shell in SHELLS {
        let text = output(Command::new(command).args(["completions", shell]))?;
        let path = completions.join(shell);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((pages, completions))
}

/// cargo with what makes a build the same in any directory, and with more flags for the compiler.
pub(super) fn dist(facts: &Facts, target: &Path, more: &[&str]) -> Command {
    let mut flags = vec![prefix(&facts.sources, "hectare"), prefix(target, "hectare/target")];
    if let Some(home) = cargo_home() {
        flags.push(prefix(&home, "cargo"));
    }
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    let mut cargo = cargo_in(&facts.sources);
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_TARGET_DIR", target)
        .env("SOURCE_DATE_EPOCH", facts.epoch.to_string())
        .env_remove("RUSTFLAGS");
    cargo
}

fn prefix(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}=/{to}", from.display())
}

fn cargo_home() -> Option<PathBuf> {
    let said = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    said.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}
