//! What jobs run, built with the features that `make test` builds everything with: another set of them would
//! compile nearly all crates once more.
//!
//! Cargo joins the features of the packages that are selected, and those of dependencies of tests where a test is
//! among the targets. So a build for a job selects the whole workspace, and a target of each kind that it needs. A
//! release is the exception: it is what users get, with the features of its own package.

use crate::steps::{cargo, root, shown, target_folder};
use crate::tool::line_of;
use crate::workspace::packages;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The features of the test run: all of the command's.
pub const FEATURES: [&str; 2] = ["--features", "hectare-cli/store"];
/// A program of tests, which joins the features of tests with those of the command.
const ANY_TEST: &str = "hunts";

/// Builds the binary `hectare`: with all optimisations if `released`, else as the tests run it. Returns where it is.
pub fn built(released: bool) -> Option<PathBuf> {
    if released {
        return released_program("hectare-cli", "hectare");
    }
    let mut build = of_workspace(&["build", "--bin", "hectare", "--test", ANY_TEST]);
    shown(&mut build).then(|| target_folder().join("debug/hectare"))
}

/// Builds a package's program with all optimisations. Returns where it is.
pub fn released_program(package: &str, program: &str) -> Option<PathBuf> {
    let done = shown(cargo().args(["build", "--quiet", "--release", "--package", package]));
    done.then(|| target_folder().join("release").join(program))
}

/// Builds what `make test` runs, and nothing that it does not; returns whether that succeeded.
pub fn built_for_tests() -> bool {
    let mut build = cargo();
    build.args(["build", "--workspace", "--lib", "--bins", "--tests", "--examples"]).args(FEATURES);
    shown(&mut build)
}

/// A program of tests, and the directory of its package.
#[derive(Clone, Debug)]
pub struct TestProgram {
    executable: PathBuf,
    directory: PathBuf,
}

impl TestProgram {
    /// Builds the test program of that name of a package.
    ///
    /// # Errors
    /// Why there is none, or all that is wrong with its source.
    pub fn built(package: &str, program: &str) -> Result<Self, String> {
        let packages = packages().ok_or("cargo can't list the workspace's packages")?;
        let found = packages.into_iter().find(|one| one.name == package);
        let manifest = root().join(found.ok_or(format!("the workspace has no package {package}"))?.manifest);
        let mut build = of_workspace(&["test", "--no-run", "--message-format", "json-render-diagnostics"]);
        build.args(["--test", program]);
        println!("\n$ {}", line_of(&build));
        let output = build.output().map_err(|error| format!("cargo can't be run: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let executable = executable(&String::from_utf8_lossy(&output.stdout), &manifest, program)
            .ok_or_else(|| format!("{package} has no test program {program}"))?;
        Ok(Self { executable, directory: manifest.parent().unwrap_or(&manifest).to_owned() })
    }

    /// A command that runs it, as cargo would.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

fn of_workspace(words: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.args(words).args(["--quiet", "--workspace"]).args(FEATURES);
    cargo
}

/// The program of those tests of a package, in what cargo says of a build.
fn executable(said: &str, manifest: &Path, program: &str) -> Option<PathBuf> {
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = messages.filter(|message| {
        message["manifest_path"].as_str().map(Path::new) == Some(manifest)
            && message["target"]["name"] == program
            && message["profile"]["test"] == true
    });
    found.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::executable;
    use std::path::Path;

    #[test]
    fn a_test_program_is_found_by_package_and_name() {
        let message = |manifest: &str, name: &str, test: bool, at: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{manifest}","target":{{"name":"{name}"}},"#
            ) + &format!(r#""profile":{{"test":{test}}},"executable":{at}}}"#)
        };
        let said = [
            message("/a/Cargo.toml", "oracle", true, "\"/t/oracle-1\""),
            message("/b/Cargo.toml", "oracle", false, "null"),
            message("/b/Cargo.toml", "oracle", true, "\"/t/oracle-2\""),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let found = |manifest: &str, program| executable(&said, Path::new(manifest), program);
        assert_eq!(found("/b/Cargo.toml", "oracle").as_deref(), Some(Path::new("/t/oracle-2")));
        assert_eq!(found("/b/Cargo.toml", "engine"), None);
        assert_eq!(found("/c/Cargo.toml", "oracle"), None);
    }
}
