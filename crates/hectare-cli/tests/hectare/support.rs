//! Runs the binary, and makes volumes to run it on.

use hectare_oracle::{Combo, Scale, Skip, Tree, filled};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any command on a test's volume may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The result of a run of the binary.
pub(crate) struct Ran {
    /// The exit code; `None` if a signal or the timeout ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: Vec<u8>,
    /// Standard error.
    pub(crate) err: String,
    /// The command line.
    pub(crate) line: String,
    /// Whether it had to be stopped.
    pub(crate) hung: bool,
}

impl Ran {
    /// Itself, if it exited with 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.line, self.err);
        self
    }

    /// Its one line on standard error, if it exited with 1.
    #[track_caller]
    pub(crate) fn refused(&self) -> &str {
        self.ended(1)
    }

    /// Its one line on standard error, if it exited with 2.
    #[track_caller]
    pub(crate) fn misused(&self) -> &str {
        self.ended(2)
    }

    #[track_caller]
    fn ended(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}\n{}", self.line, self.err);
        let line = self.err.trim_end_matches('\n');
        assert!(!line.is_empty() && !line.contains('\n'), "{}\n{}", self.line, self.err);
        // With --json it is an object.
        let prefixes = ["hectare: ", "hectare-lab: ", "{\"error\":\""];
        let error = prefixes.into_iter().find_map(|prefix| line.strip_prefix(prefix));
        error.unwrap_or_else(|| panic!("{line}"))
    }

    /// Standard output as text.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{}: {error}", self.line))
    }
}

/// The program with the command that the arguments begin with.
fn program<S: AsRef<OsStr>>(arguments: &[S]) -> PathBuf {
    crate::program_of(arguments.first().map(AsRef::as_ref))
}

/// Runs the binary.
#[track_caller]
pub(crate) fn hectare<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    hectare_within(arguments, PATIENCE)
}

/// Runs the binary with variables in its environment.
#[track_caller]
pub(crate) fn hectare_in<S: AsRef<OsStr>>(arguments: &[S], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(program(arguments));
    command.args(arguments).env_remove("SOURCE_DATE_EPOCH").envs(variables.iter().copied());
    run_within(&mut command, PATIENCE)
}

/// How many times as fast the waits for other hosts (MMP) pass for those that are given [`FAST`].
pub(crate) const SPEED: u32 = 10;

/// The variable for it, which only debug builds read.
pub(crate) const FAST: (&str, &str) = ("HECTARE_TEST_CLOCK", "10");

/// Runs the binary with these waits fast.
#[track_caller]
pub(crate) fn hectare_fast<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    hectare_in(arguments, &[FAST])
}

/// Runs the binary, and stops it after a time.
#[track_caller]
pub(crate) fn hectare_within<S: AsRef<OsStr>>(arguments: &[S], patience: Duration) -> Ran {
    run_within(Command::new(program(arguments)).args(arguments), patience)
}

/// Runs the binary with at most this many KiB of memory of its own (`RLIMIT_DATA`), and stops it after a
/// time.
#[track_caller]
pub(crate) fn hectare_bounded(arguments: &[&str], kib: u32, patience: Duration) -> Ran {
    let script = format!("ulimit -d {kib} && exec \"$0\" \"$@\"");
    run_within(Command::new("sh").args(["-c", &script]).arg(program(arguments)).args(arguments), patience)
}

/// Runs the binary with this on its standard input.
#[track_caller]
pub(crate) fn hectare_fed<S: AsRef<OsStr>>(arguments: &[S], input: &str) -> Ran {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input).unwrap();
    fed_within(Command::new(program(arguments)).args(arguments), file.reopen().unwrap().into(), PATIENCE)
}

#[track_caller]
fn run_within(command: &mut Command, patience: Duration) -> Ran {
    fed_within(command, Stdio::null(), patience)
}

#[track_caller]
fn fed_within(command: &mut Command, input: Stdio, patience: Duration) -> Ran {
    command.stdin(input);
    let outputs = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    command.env("TZ", "UTC");
    command.stdout(outputs.0.reopen().unwrap()).stderr(outputs.1.reopen().unwrap());
    let line = format!("{command:?}");
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    let (status, hung) = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break (status, false);
        }
        if started.elapsed() > patience {
            child.kill().unwrap();
            break (child.wait().unwrap(), true);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let out = std::fs::read(outputs.0.path()).unwrap();
    let err = String::from_utf8_lossy(&std::fs::read(outputs.1.path()).unwrap()).into_owned();
    Ran { code: status.code(), out, err, line, hung }
}

/// A directory that is removed when the test ends, and an image in it.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) image: PathBuf,
}

impl Bench {
    /// No image yet.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img");
        Self { folder, image }
    }

    /// An empty volume by mke2fs.
    pub(crate) fn fresh(combo: &str) -> Result<Self, Skip> {
        let bench = Self::empty();
        Combo::named(combo).make(&bench.image)?;
        Ok(bench)
    }

    /// A volume with a tree in it that the kernel or `mke2fs -d` wrote.
    pub(crate) fn filled(combo: &str, tree: Tree) -> Result<Self, Skip> {
        let bench = Self::empty();
        filled(&Combo::named(combo), tree, &Scale::SMALL)?.copy_to(&bench.image).unwrap();
        Ok(bench)
    }

    /// `IMAGE:PATH`.
    pub(crate) fn at(&self, path: &str) -> String {
        at(&self.image, path)
    }

    /// A path in the directory.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The image's path as text.
    pub(crate) fn image(&self) -> &str {
        self.image.to_str().unwrap()
    }

    /// Runs a command that must succeed, and checks the volume with e2fsck.
    #[track_caller]
    pub(crate) fn changed(&self, arguments: &[&str]) {
        hectare(arguments).ok();
        hectare_oracle::assert_clean(&self.image).unwrap();
    }
}

/// `IMAGE:PATH`.
pub(crate) fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// The bytes of a file, to verify later that it was not changed.
pub(crate) fn digest(image: &Path) -> [u8; 32] {
    let mut content = hectare_oracle::Content::new();
    let mut file = File::open(image).unwrap();
    let (mut buffer, mut at) = (vec![0; 1 << 20], 0);
    loop {
        match std::io::Read::read(&mut file, &mut buffer).unwrap() {
            0 => return content.finish(at),
            n => {
                content.add(at, &buffer[..n]);
                at += n as u64;
            }
        }
    }
}

/// Copies the binary. Not by this process, of which another thread may start a program at that moment: that one
/// would have the file open for writing, and so it could not be run.
pub(crate) fn copy_binary(to: &Path) {
    let mut cp = hectare_oracle::tool::need("cp").unwrap();
    let _ = hectare_oracle::tool::run(cp.arg(program::<&str>(&[])).arg(to)).expect_success();
}
