//! `cargo xtask python`: the tests of the Python package, on the wheel that users would install.
//!
//! It makes a new environment in `target/python`, builds the wheel there by maturin, installs both and runs
//! pytest. What the machine lacks (an interpreter, maturin, pandas) is skipped, by name and counted:
//! [`Outcome`] has what `make test` adds to its totals. The wheel of the tests is not optimised.
//!
//! pytest writes its outcomes into a file, a line each (`tests/conftest.py`): nothing is read from its
//! screen.
//!
//! `cargo xtask python bench` builds an optimised wheel instead, and runs `bench_read.py` on it.

use crate::steps::{built_command, cargo, quiet, root, shown, target_folder, went_well};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the package is.
const FOLDER: &str = "crates/bind/python";
/// The first version of Python that the wheel is for, as `sys.version_info` has it.
const OLDEST: &str = "(3, 11)";
/// Names the command `hectare` that the tests compare with; one is built if it is not set.
const COMMAND: &str = "HECTARE_COMMAND";
/// Names the library for C that the tests compare with; one is built if it is not set.
const C_LIBRARY: &str = "HECTARE_C_LIBRARY";

/// What the tests gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many passed.
    pub(crate) passed: usize,
    /// Names of those that failed.
    pub(crate) failed: Vec<String>,
    /// Names and reasons of those that were skipped.
    pub(crate) skipped: Vec<(String, String)>,
}

/// Runs the tests; returns whether none failed.
pub(crate) fn run() -> bool {
    let outcome = outcome(prepared(), Compared::default());
    for (name, reason) in &outcome.skipped {
        println!("skipped {name}: {reason}");
    }
    for name in &outcome.failed {
        println!("FAILED {name}");
    }
    let (failed, skipped) = (outcome.failed.len(), outcome.skipped.len());
    println!("{} passed, {failed} failed, {skipped} skipped", outcome.passed);
    outcome.failed.is_empty()
}

/// Builds an optimised wheel and measures how fast it reads; `words` are the program's. Returns whether it
/// met its goal.
pub(crate) fn bench(words: &[&str]) -> bool {
    let measured = environment().and_then(|environment| {
        let wheel = wheel(&environment, "release")?;
        if !installed(&environment, &wheel) {
            return Err("the wheel can't be installed".to_owned());
        }
        let mut python = Command::new(environment.join("venv/bin/python"));
        python.arg(root().join(FOLDER).join("bench_read.py")).args(words);
        if shown(&mut python) { Ok(()) } else { Err("it is below its goal".to_owned()) }
    });
    went_well("python bench", measured)
}

/// What the tests need: an environment with the tools, and the wheel.
pub(crate) struct Prepared {
    environment: PathBuf,
    wheel: PathBuf,
}

/// What the tests compare the package with. What is `None` is built; a variable of the environment goes first.
#[derive(Default)]
pub(crate) struct Compared {
    /// The command `hectare`.
    pub(crate) command: Option<PathBuf>,
    /// The shared library for C.
    pub(crate) c_library: Option<PathBuf>,
}

/// Makes the environment and builds the wheel; else the outcome is settled. It writes to nothing that the tests of
/// the workspace use, and may run beside them.
pub(crate) fn prepared() -> Result<Prepared, Outcome> {
    let environment = environment().map_err(|reason| skipped_whole(&reason))?;
    match wheel(&environment, "dev") {
        Ok(wheel) => Ok(Prepared { environment, wheel }),
        Err(failed) => Err(Outcome { failed: vec![format!("python: {failed}")], ..Outcome::default() }),
    }
}

/// Runs the tests.
pub(crate) fn outcome(prepared: Result<Prepared, Outcome>, compared: Compared) -> Outcome {
    match prepared {
        Ok(Prepared { environment, wheel }) => tested(&environment, &wheel, compared),
        Err(outcome) => outcome,
    }
}

fn skipped_whole(reason: &str) -> Outcome {
    let skipped = vec![("python, the whole package".to_owned(), reason.to_owned())];
    required(Outcome { skipped, ..Outcome::default() })
}

/// The same, with every skip a failure where all is required.
fn required(mut outcome: Outcome) -> Outcome {
    if !crate::ended::may_skip() {
        let skipped = outcome.skipped.drain(..);
        outcome.failed.extend(skipped.map(|(name, reason)| format!("{name} would be skipped: {reason}")));
    }
    outcome
}

/// Makes the environment, with what builds the wheel and tests it; its folder, or what is missing.
fn environment() -> Result<PathBuf, String> {
    let version = format!("import sys; sys.exit(sys.version_info < {OLDEST})");
    if quiet(Command::new("python3").args(["-c", &version])).is_none() {
        return Err(format!("there is no python3, or one older than {OLDEST}"));
    }
    let folder = target_folder().join("python");
    let _ = std::fs::remove_dir_all(&folder); // absent at first; venv would fail by itself
    if !shown(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv"))) {
        return Err("python3 -m venv fails: install python3-venv".to_owned());
    }
    let install = |packages: &[&str]| {
        let mut pip = Command::new(folder.join("venv/bin/pip"));
        shown(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages))
    };
    if !install(&["maturin>=1.9.4,<2", "pytest"]) {
        return Err("maturin and pytest can't be installed by pip".to_owned());
    }
    // Tests that need one of these skip themselves.
    for optional in [&["fsspec"][..], &["pandas", "pyarrow"]] {
        install(optional);
    }
    Ok(folder)
}

/// Builds the wheel by a profile of cargo's; its path.
fn wheel(environment: &Path, profile: &str) -> Result<PathBuf, String> {
    let wheels = environment.join("wheels");
    let mut maturin = Command::new(environment.join("venv/bin/maturin"));
    maturin.args(["build", "--locked", "--profile", profile, "--out"]).arg(&wheels);
    if !shown(maturin.current_dir(root().join(FOLDER))) {
        return Err("the wheel can't be built".to_owned());
    }
    let entries = std::fs::read_dir(&wheels).map_err(|error| format!("{}: {error}", wheels.display()))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|end| end == "whl")).ok_or("there is no wheel".to_owned())
}

fn installed(environment: &Path, wheel: &Path) -> bool {
    let mut install = Command::new(environment.join("venv/bin/pip"));
    shown(install.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps"]).arg(wheel))
}

/// Installs the wheel and runs pytest on it, away from the sources.
fn tested(environment: &Path, wheel: &Path, compared: Compared) -> Outcome {
    if !installed(environment, wheel) {
        return Outcome {
            failed: vec!["python: the wheel can't be installed".to_owned()],
            ..Outcome::default()
        };
    }
    let records = environment.join("records");
    let mut pytest = Command::new(environment.join("venv/bin/python"));
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root().join(FOLDER).join("tests"));
    pytest
        .current_dir(environment)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HECTARE_PYTEST_RECORDS", &records);
    let compared = [
        (COMMAND, compared.command, built_command as fn() -> Option<PathBuf>),
        (C_LIBRARY, compared.c_library, built_c_library),
    ];
    for (variable, path, build) in compared {
        if std::env::var_os(variable).is_none()
            && let Some(path) = path.or_else(build)
        {
            pytest.env(variable, path);
        }
    }
    let succeeded = shown(&mut pytest);
    required(counted(&std::fs::read_to_string(&records).unwrap_or_default(), succeeded))
}

/// Builds the shared library for C; its path.
fn built_c_library() -> Option<PathBuf> {
    let done = shown(cargo().args(["build", "--quiet", "--package", "hectare-capi", "--lib"]));
    done.then(|| target_folder().join("debug/libhectare_c.so"))
}

/// Counts the records; that pytest failed or ran nothing is not lost.
fn counted(records: &str, succeeded: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for line in records.lines() {
        let mut parts = line.split('\t');
        let (kind, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match kind {
            "passed" => outcome.passed += 1,
            "skipped" => {
                outcome.skipped.push((format!("python {name}"), parts.next().unwrap_or_default().to_owned()));
            }
            _ => outcome.failed.push(format!("python {name}")),
        }
    }
    if outcome.failed.is_empty() && (!succeeded || outcome.passed == 0) {
        outcome.failed.push("python: pytest did not come to its end".to_owned());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_and_a_failure_without_one_is_one() {
        let records = "passed\ttests/a.py::one\t\nskipped\ttests/a.py::two\tno pandas\n";
        let outcome = counted(records, true);
        assert_eq!((outcome.passed, outcome.failed.len()), (1, 0));
        assert_eq!(outcome.skipped, [("python tests/a.py::two".to_owned(), "no pandas".to_owned())]);
        assert_eq!(counted(records, false).failed.len(), 1);
        assert_eq!(counted("", true).failed.len(), 1);
        assert_eq!(counted("failed\ttests/a.py::one\t\n", false).failed, ["python tests/a.py::one"]);
    }
}
