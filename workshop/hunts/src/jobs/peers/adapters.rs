//! The peers, and how each is built and run.
//!
//! Every program gets a limited time and memory: a reader that a damaged volume leads round in circles must not
//! take the machine with it.

use super::listing::Listing;
use crate::jobs::{LIMITED, TIMED_OUT};
use hectare_oracle::tool::{find, need};
use hectare_tools::steps::{cargo, quiet, root, shown, target_folder};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// In seconds. A list of the largest volume here takes a few.
const PATIENCE: &str = "90";
/// What a program may allocate.
const MEMORY_KIB: u64 = 3 << 20;
/// Ours is the first of all.
pub(super) const OURS: &str = "hectare";

/// The others.
pub(super) const PEERS: [&str; 5] = ["ext4", "dissect.extfs", "go-diskfs", "ext4-view", "lwext4"];

/// A library that can be run.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Its name, with the version.
    pub(super) name: String,
    program: PathBuf,
    /// What comes before `list IMAGE`.
    words: Vec<String>,
    /// Whether the program has one job only, and takes no word for it.
    lists_only: bool,
    /// Whether it writes into what it lists, which must be a copy.
    changes: bool,
}

/// How a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// With this exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It was stopped.
    TimedOut,
}

/// What a program printed, and how it ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) end: End,
    pub(super) printed: Vec<u8>,
    pub(super) said: String,
    pub(super) time: Duration,
}

impl Peer {
    /// Whether it is ours.
    pub(super) fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }

    /// Whether it can write.
    pub(super) fn writes(&self) -> bool {
        !self.lists_only
    }

    /// What it finds in an image.
    pub(super) fn list(&self, image: &Path, scratch: &Path) -> Result<(Listing, Ran), String> {
        let job: &[&str] = if self.lists_only { &[] } else { &["list"] };
        let copy = scratch.join("copy.img");
        let image = if self.changes {
            let mut cp = Command::new("cp");
            let copied = quiet(cp.args(["--sparse=always", "--no-preserve=mode"]).args([image, &copy]));
            copied.map(|_| copy.as_path()).ok_or(format!("{} can't be copied", image.display()))?
        } else {
            image
        };
        let ran = self.run(job, image, &[], None, scratch)?;
        Ok((Listing::parse(&ran.printed), ran))
    }

    /// Runs one of its jobs on an image, with a file as its input.
    pub(super) fn run(
        &self,
        job: &[&str],
        image: &Path,
        more: &[&str],
        input: Option<&Path>,
        scratch: &Path,
    ) -> Result<Ran, String> {
        let (out, said) = (scratch.join("printed"), scratch.join("said"));
        let failed = |error: std::io::Error| format!("{}: {error}", self.name);
        let stdin = input.map(File::open).transpose().map_err(failed)?;
        let mut command = need("timeout").map_err(|skip| skip.to_string())?;
        command.args(LIMITED).args([
            PATIENCE,
            "sh",
            "-c",
            &format!("ulimit -d {MEMORY_KIB} && ulimit -c 0 && exec \"$0\" \"$@\""),
        ]);
        command.arg(&self.program).args(&self.words).args(job).arg(image).args(more);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("RUST_BACKTRACE", "0");
        command.stdin(stdin.map_or_else(Stdio::null, Stdio::from));
        command.stdout(File::create(&out).map_err(failed)?).stderr(File::create(&said).map_err(failed)?);
        let started = Instant::now();
        let end = end_of(command.status().map_err(failed)?);
        let text = fs::read(&said).unwrap_or_default();
        let said = String::from_utf8_lossy(&text).trim_end().to_owned();
        Ok(Ran { end, printed: fs::read(&out).map_err(failed)?, said, time: started.elapsed() })
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.signal(), status.code()) {
        (Some(signal), _) => End::Signal(signal),
        (None, Some(TIMED_OUT)) => End::TimedOut,
        (None, code) => End::Code(code.unwrap_or(-1)),
    }
}

/// Builds what is wanted, ours first; what can't be had is printed.
pub(super) fn prepare(wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Peer>, String> {
    let ours = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut peers = vec![Peer {
        name: OURS.to_owned(),
        program: ours,
        words: vec!["peers".to_owned(), "adapter".to_owned()],
        lists_only: false,
        changes: false,
    }];
    let folder = target_folder().join("peers");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    type Build = fn(&Path) -> Result<Peer, String>;
    let builds: [Build; 5] = [pypi_ext4, dissect, diskfs, ext4_view, lwext4];
    for (name, build) in PEERS.into_iter().zip(builds).filter(|(name, _)| wanted(name)) {
        match build(&folder) {
            Ok(peer) => peers.push(peer),
            Err(reason) => println!("skipped {name}: {reason}"),
        }
    }
    Ok(peers)
}

fn sources() -> PathBuf {
    root().join("workshop/hunts/peers")
}

fn pypi_ext4(folder: &Path) -> Result<Peer, String> {
    by_pip(folder, "ext4", "1.4.1", "pypi_ext4.py")
}

fn dissect(folder: &Path) -> Result<Peer, String> {
    by_pip(folder, "dissect.extfs", "3.15", "dissect_extfs.py")
}

/// A library of Python, in an environment of its own.
fn by_pip(folder: &Path, package: &str, version: &str, script: &str) -> Result<Peer, String> {
    let environment = folder.join(package);
    let python = environment.join("bin/python");
    let has = format!("import importlib.metadata as m; assert m.version('{package}') == '{version}'");
    if quiet(Command::new(&python).args(["-c", &has])).is_none() {
        let _ = fs::remove_dir_all(&environment); // of another version, or absent
        if !shown(Command::new("python3").args(["-m", "venv"]).arg(&environment)) {
            return Err("python3 -m venv fails: install python3-venv".to_owned());
        }
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", &format!("{package}=={version}")]);
        if !shown(&mut pip) {
            return Err(format!("pip can't install version {version}"));
        }
    }
    let script = sources().join(script).to_string_lossy().into_owned();
    let name = format!("{package} {version}");
    Ok(Peer { name, program: python, words: vec![script], lists_only: true, changes: false })
}

fn diskfs(folder: &Path) -> Result<Peer, String> {
    const VERSION: &str = "v1.9.4";
    let go = find("go").or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|path| path.exists()));
    let go = go.ok_or("Go is not installed")?;
    let (folder, program) = (folder.join("go-diskfs"), folder.join("go-diskfs/adapter"));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    fs::copy(sources().join("diskfs.go"), folder.join("main.go")).map_err(failed)?;
    fs::write(folder.join("go.mod"), "module adapter\n\ngo 1.25\n").map_err(failed)?;
    let run = |words: &[&str]| shown(Command::new(&go).args(words).current_dir(&folder));
    if !run(&["get", &format!("github.com/diskfs/go-diskfs@{VERSION}")]) || !run(&["build", "-o", "adapter"])
    {
        return Err(format!("version {VERSION} can't be fetched or built"));
    }
    Ok(Peer {
        name: format!("go-diskfs {}", &VERSION[1..]),
        program,
        words: vec![],
        lists_only: false,
        changes: false,
    })
}

fn ext4_view(folder: &Path) -> Result<Peer, String> {
    const VERSION: &str = "0.9.3";
    let folder = folder.join("ext4-view");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let manifest = format!(
        "[package]\nname = \"adapter\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [[bin]]\nname = \"adapter\"\npath = \"main.rs\"\n\n\
         [dependencies]\next4-view = {{ version = \"={VERSION}\", features = [\"std\"] }}\n\
         sha2 = \"0.10\"\n\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    fs::copy(sources().join("ext4_view.rs"), folder.join("main.rs")).map_err(failed)?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--target-dir", "target"]).current_dir(&folder);
    if !shown(&mut build) {
        return Err(format!("version {VERSION} can't be fetched or built"));
    }
    let program = folder.join("target/release/adapter");
    Ok(Peer {
        name: format!("ext4-view {VERSION}"),
        program,
        words: vec![],
        lists_only: true,
        changes: false,
    })
}

/// lwext4 is in no registry by itself; a crate has its sources, with a change or two of its own. Only these are
/// compiled, by gcc.
fn lwext4(folder: &Path) -> Result<Peer, String> {
    const CRATE: &str = "lwext4_rust";
    const VERSION: &str = "0.2.0";
    let folder = folder.join("lwext4");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder.join("src")).map_err(failed)?;
    let manifest = format!(
        "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{CRATE} = \
         \"={VERSION}\"\n\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    fs::write(folder.join("src/lib.rs"), "").map_err(failed)?;
    let mut vendor = cargo();
    vendor.args(["vendor", "--quiet", "vendor"]).current_dir(&folder);
    if quiet(&mut vendor).is_none() {
        return Err(format!("version {VERSION} of {CRATE} can't be fetched"));
    }
    let library = folder.join("vendor").join(CRATE).join("c/lwext4");
    let entries = fs::read_dir(library.join("src")).map_err(failed)?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let sources_of_it: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "c")).collect();
    let program = folder.join("adapter");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-w", "-DCONFIG_USE_DEFAULT_CFG=1", "-DCONFIG_DEBUG_PRINTF=0"]);
    gcc.args([
        "-DCONFIG_HAVE_OWN_ASSERT=0",
        "-DCONFIG_HAVE_OWN_OFLAGS=0",
        "-DCONFIG_BLOCK_DEV_CACHE_SIZE=16",
    ]);
    gcc.arg("-I").arg(library.join("include")).arg("-I").arg(library.join("blockdev/linux"));
    gcc.arg("-o").arg(&program).arg(sources().join("lwext4.c")).args(sources_of_it);
    if !shown(gcc.arg(library.join("blockdev/linux/file_dev.c"))) {
        return Err("gcc can't compile it".to_owned());
    }
    let name = format!("lwext4 (in {CRATE} {VERSION})");
    Ok(Peer { name, program, words: vec![], lists_only: false, changes: true })
}
