//! The tests of the Python package.
//!
//! `make test` runs pytest on the module that the workspace's build has made: it is laid beside the package's Python
//! files, as an installation has them ([`staged`]). `cargo xtask python` does the same on the wheel that users would
//! install, built by maturin: minutes, so it is a job of its own, and `make hunt` runs it.
//!
//! The environment is kept in `target/python`. What the machine lacks (an interpreter, pandas) is skipped, by name and
//! counted: [`Outcome`] has what `make test` adds to its totals.
//!
//! pytest writes its outcomes into a file, a line each (`tests/conftest.py`): nothing is read from its
//! screen.
//!
//! `cargo xtask python bench` builds an optimised wheel instead, and runs `bench_read.py` on it.

use hectare_tools::built::built;
use hectare_tools::steps::{cargo, quiet, root, shown, target_folder, went_well};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the package is.
const FOLDER: &str = "crates/bind/python";
/// As in `pyproject.toml`.
const ENTRY_POINTS: &str = "[fsspec.specs]\next4 = hectare.fsspec:Ext4FileSystem\n";
/// The first version of Python that the wheel is for, as `sys.version_info` has it.
const OLDEST: &str = "(3, 11)";
/// Names the command `hectare` that the tests compare with.
const COMMAND: &str = "HECTARE_COMMAND";
/// Names the library for C that the tests compare with.
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
    let outcome = on_the_wheel().unwrap_or_else(|outcome| outcome);
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
    let measured = environment(&["maturin>=1.9.4,<2"]).and_then(|environment| {
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

/// What has been built, and the tests run with.
pub(crate) struct Compared {
    /// The command `hectare`.
    pub(crate) command: PathBuf,
    /// The shared library for C.
    pub(crate) c_library: PathBuf,
    /// The package's module.
    pub(crate) module: PathBuf,
}

/// Runs the tests on the module.
pub(crate) fn outcome(compared: &Compared) -> Outcome {
    let environment = match environment(&["pytest"]) {
        Ok(environment) => environment,
        Err(reason) => return skipped_whole(&reason),
    };
    match staged(&environment, &compared.module) {
        Ok(package) => tested(&environment, Some(&package), compared),
        Err(reason) => failed(reason),
    }
}

/// Runs the tests on the wheel.
fn on_the_wheel() -> Result<Outcome, Outcome> {
    let environment =
        environment(&["maturin>=1.9.4,<2", "pytest"]).map_err(|reason| skipped_whole(&reason))?;
    let wheel = wheel(&environment, "dev").map_err(failed)?;
    if !installed(&environment, &wheel) {
        return Err(failed("the wheel can't be installed".to_owned()));
    }
    let command = built(false).ok_or_else(|| failed("the command can't be built".to_owned()))?;
    let c_library = built_c_library().ok_or_else(|| failed("the library for C can't be built".to_owned()))?;
    Ok(tested(&environment, None, &Compared { command, c_library, module: PathBuf::new() }))
}

fn failed(reason: String) -> Outcome {
    Outcome { failed: vec![format!("python: {reason}")], ..Outcome::default() }
}

/// Lays the package out as an installation has it: its Python files, the module beside them, and what names its
/// version and its entry points.
fn staged(environment: &Path, module: &Path) -> Result<PathBuf, String> {
    let package = environment.join("package");
    let _ = std::fs::remove_dir_all(&package); // absent at first
    let told = |error: std::io::Error| format!("{}: {error}", package.display());
    let (code, about) = (package.join("hectare"), package.join("hectare-0.dist-info"));
    for folder in [&code, &about] {
        std::fs::create_dir_all(folder).map_err(told)?;
    }
    let sources = root().join(FOLDER).join("python/hectare");
    for file in
        std::fs::read_dir(&sources).map_err(|error| format!("{}: {error}", sources.display()))?.flatten()
    {
        if file.path().is_file() {
            std::fs::copy(file.path(), code.join(file.file_name())).map_err(told)?;
        }
    }
    std::fs::copy(module, code.join("_native.abi3.so"))
        .map_err(|error| format!("{}: {error}", module.display()))?;
    let version = version().ok_or("the workspace has no version")?;
    let metadata = format!("Metadata-Version: 2.1\nName: hectare\nVersion: {version}\n");
    std::fs::write(about.join("METADATA"), metadata).map_err(told)?;
    std::fs::write(about.join("entry_points.txt"), ENTRY_POINTS).map_err(told)?;
    Ok(package)
}

/// The version of the package.
fn version() -> Option<String> {
    let all = hectare_tools::workspace::packages()?;
    Some(all.into_iter().find(|package| package.name == "hectare-python")?.version)
}

fn skipped_whole(reason: &str) -> Outcome {
    let skipped = vec![("python, the whole package".to_owned(), reason.to_owned())];
    required(Outcome { skipped, ..Outcome::default() })
}

/// The same, with every skip a failure where all is required.
fn required(mut outcome: Outcome) -> Outcome {
    if !hectare_tools::ended::may_skip() {
        let skipped = outcome.skipped.drain(..);
        outcome.failed.extend(skipped.map(|(name, reason)| format!("{name} would be skipped: {reason}")));
    }
    outcome
}

/// The environment with these packages, made or completed; its folder, or what is missing.
fn environment(packages: &[&str]) -> Result<PathBuf, String> {
    let version = format!("import sys; sys.exit(sys.version_info < {OLDEST})");
    if quiet(Command::new("python3").args(["-c", &version])).is_none() {
        return Err(format!("there is no python3, or one older than {OLDEST}"));
    }
    let folder = target_folder().join("python");
    let python = folder.join("venv/bin/python");
    let is_sound = quiet(Command::new(&python).args(["-m", "pip", "--version"])).is_some();
    if !is_sound {
        let _ = std::fs::remove_dir_all(&folder); // absent at first; venv would fail by itself
        if !shown(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv"))) {
            return Err("python3 -m venv fails: install python3-venv".to_owned());
        }
    }
    let install = |packages: &[&str]| {
        let mut pip = Command::new(&python);
        shown(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages))
    };
    if !install(packages) {
        return Err(format!("pip can't install {}", packages.join(" ")));
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
    let _ = std::fs::remove_dir_all(&wheels); // of an earlier version; absent at first
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
    // Forced: pip takes a wheel of a version that it has for the one that it has.
    let options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"];
    shown(install.arg("install").args(options).arg(wheel))
}

/// Runs pytest, away from the sources, on the package in a folder or else on the one that is installed.
fn tested(environment: &Path, package: Option<&Path>, compared: &Compared) -> Outcome {
    let records = environment.join("records");
    let _ = std::fs::remove_file(&records); // absent at first
    let mut pytest = Command::new(environment.join("venv/bin/python"));
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root().join(FOLDER).join("tests"));
    pytest
        .current_dir(environment)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HECTARE_PYTEST_RECORDS", &records)
        .env(COMMAND, &compared.command)
        .env(C_LIBRARY, &compared.c_library);
    if let Some(package) = package {
        pytest.env("PYTHONPATH", package);
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
