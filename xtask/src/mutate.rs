//! Mutations: `cargo xtask mutate alloc [NAME]...` switches the allocator's mechanisms off, one after the
//! other, in a copy of its code, and runs the tests that must fail then. A name is a mutation's or a
//! mechanism's.
//!
//! A mutation ([`Mutation`]) is a text of a source file with what it becomes, and the tests, by name, each of
//! which has to notice. One that nothing notices *survives*: either a test is missing, or the code does
//! nothing. A mutation whose text is not there any more, that does not compile, or whose tests are not there,
//! is an error: the list ([`list`]) goes with the code, and a test of this crate sees to that.
//!
//! The copy and what is built of it lie in `target/mutate`, so the sources are never touched. It takes a
//! quarter of an hour. What it is not: a search for mutations; each of these says what it is about.

mod list;

use hectare_tools::steps::{cargo, root, target_folder, understood, went_well};
use list::MUTATIONS;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo xtask mutate alloc [NAME]...";

/// A change of the code that some tests must notice.
struct Mutation {
    /// Its name.
    name: &'static str,
    /// The mechanism that it switches off, if any.
    mechanism: Option<&'static str>,
    /// The file, relative to the crate's directory.
    file: &'static str,
    /// The replaced text, which occurs once.
    text: &'static str,
    /// The replacement.
    with: &'static str,
    /// Tests that fail then: the module of `tests/alloc`, or `lib`, and the name.
    tests: &'static [(&'static str, &'static str)],
}

/// The timeout for a test that a mutation makes hang.
const PATIENCE: Duration = Duration::from_secs(300);
/// The crate.
const ALLOC: &str = "crates/core/alloc";

/// The outcome of a mutation.
enum Outcome {
    /// Every test named has failed.
    Noticed,
    /// This one has not.
    Survived(&'static str),
}

/// Runs the job with its arguments; returns whether every mutation was noticed.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(chosen) = understood(choose(words), USAGE) else { return false };
    went_well("mutate", all(&chosen))
}

fn choose(words: &[&str]) -> Result<Vec<&'static Mutation>, String> {
    let ["alloc", names @ ..] = words else { return Err("only alloc can be mutated".to_owned()) };
    if let Some(name) = names.iter().find(|name| !MUTATIONS.iter().any(|mutation| mutation.is(name))) {
        return Err(format!("there is no mutation '{name}', nor one of a mechanism of that name"));
    }
    let chosen = |mutation: &Mutation| names.is_empty() || names.iter().any(|name| mutation.is(name));
    Ok(MUTATIONS.iter().filter(|mutation| chosen(mutation)).collect())
}

fn all(chosen: &[&Mutation]) -> Result<(), String> {
    let copy = Copy::new(&target_folder().join("mutate"))?;
    copy.unchanged(chosen)?;
    let mut survivors = Vec::new();
    for (at, mutation) in chosen.iter().enumerate() {
        let started = Instant::now();
        let outcome = copy.try_one(mutation)?;
        let (word, seconds) = (
            match outcome {
                Outcome::Noticed => "noticed".to_owned(),
                Outcome::Survived(test) => format!("SURVIVED {test}"),
            },
            started.elapsed().as_secs(),
        );
        println!("{:>3}/{} {:<28} {seconds:>4} s  {word}", at + 1, chosen.len(), mutation.name);
        if matches!(outcome, Outcome::Survived(_)) {
            survivors.push(mutation.name);
        }
    }
    println!("{} mutations, {} survived", chosen.len(), survivors.len());
    if survivors.is_empty() { Ok(()) } else { Err(format!("survived: {}", survivors.join(", "))) }
}

/// A copy of the workspace, as far as cargo needs it.
struct Copy {
    source: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn new(folder: &Path) -> Result<Self, String> {
        let copy = Self { source: folder.join("source"), target: folder.join("target") };
        let _ = fs::remove_dir_all(&copy.source); // of the last run
        fs::create_dir_all(&copy.source).map_err(|error| format!("{}: {error}", copy.source.display()))?;
        for part in ["Cargo.toml", "Cargo.lock", "crates", "workshop", "xtask"] {
            copy_all(&root().join(part), &copy.source.join(part))?;
        }
        Ok(copy)
    }

    /// That the tests pass as long as nothing is mutated: else their failures would say nothing.
    fn unchanged(&self, chosen: &[&Mutation]) -> Result<(), String> {
        let tests: BTreeSet<_> = chosen.iter().flat_map(|mutation| mutation.tests).collect();
        for (target, test) in tests {
            if self.fails(target, test)? {
                return Err(format!("{test} fails although nothing is mutated"));
            }
        }
        Ok(())
    }

    fn try_one(&self, mutation: &Mutation) -> Result<Outcome, String> {
        let path = self.source.join(ALLOC).join(mutation.file);
        let before = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mutated = mutation.apply(&before)?;
        let put = |text: &str| fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));
        put(&mutated)?;
        let outcome = self.judge(mutation);
        put(&before)?;
        outcome
    }

    fn judge(&self, mutation: &Mutation) -> Result<Outcome, String> {
        for (target, test) in mutation.tests {
            if !self.fails(target, test).map_err(|error| format!("{}: {error}", mutation.name))? {
                return Ok(Outcome::Survived(test));
            }
        }
        Ok(Outcome::Noticed)
    }

    /// Whether a test fails; one that does not end counts as failed.
    fn fails(&self, target: &str, test: &str) -> Result<bool, String> {
        let built = self.cargo(target).arg("--no-run").output().map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(format!("it does not compile:\n{}", String::from_utf8_lossy(&built.stderr)));
        }
        let mut run = self.cargo(target);
        run.args(["--", "--exact", &path_of(target, test)]).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = ended(&mut run)?;
        match output.as_deref() {
            Some(output) if output.contains("test result: ok. 1 passed") => Ok(false),
            Some(output) if output.contains("running 0 tests") => Err(format!("there is no test {test}")),
            _ => Ok(true),
        }
    }

    fn cargo(&self, target: &str) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(&self.source).env("CARGO_TARGET_DIR", &self.target);
        cargo.args(["test", "--quiet", "--offline", "--package", "hectare-alloc"]);
        match target {
            "lib" => cargo.arg("--lib"),
            _ => cargo.args(["--test", "alloc"]),
        };
        cargo
    }
}

/// The name by which a test program has a test.
fn path_of(target: &str, test: &str) -> String {
    if target == "lib" { test.to_owned() } else { format!("{target}::{test}") }
}

/// A command's output; `None` if it did not end in time.
fn ended(command: &mut Command) -> Result<Option<String>, String> {
    let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    let until = Instant::now() + PATIENCE;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if Instant::now() > until {
            // Kills the test as well as cargo.
            let group = rustix::process::Pid::from_child(&child);
            // If that fails, it has just ended by itself.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            child.wait().map_err(|error| error.to_string())?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Copies a file or a directory, recursively.
fn copy_all(from: &Path, to: &Path) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", from.display());
    if !from.is_dir() {
        return fs::copy(from, to).map(|_| ()).map_err(told);
    }
    fs::create_dir_all(to).map_err(told)?;
    for entry in fs::read_dir(from).map_err(told)?.flatten() {
        if entry.file_name() != "target" {
            copy_all(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

impl Mutation {
    /// Whether a name is its own or its mechanism's.
    fn is(&self, name: &str) -> bool {
        self.name == name || self.mechanism == Some(name)
    }

    /// The text of the file with the change.
    fn apply(&self, source: &str) -> Result<String, String> {
        match source.matches(self.text).count() {
            1 => Ok(source.replace(self.text, self.with)),
            times => Err(format!("{}: its text is in {} {times} times, not once", self.name, self.file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_alloc::Mechanism;
    use std::collections::HashSet;

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(ALLOC).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn every_mutation_still_applies() {
        for mutation in MUTATIONS {
            let source = read(mutation.file);
            let mutated = mutation.apply(&source).unwrap();
            assert_ne!(mutated, source, "{}", mutation.name);
        }
    }

    #[test]
    fn every_test_that_is_named_is_there() {
        for mutation in MUTATIONS {
            assert!(!mutation.tests.is_empty(), "{}", mutation.name);
            for (target, test) in mutation.tests {
                // search::plan::tests::name is in src/search/plan.rs, or in a file of its own beside it.
                let (path, name) = match test.rsplit_once("::tests::") {
                    Some((module, name)) => (format!("src/{}", module.replace("::", "/")), name),
                    None => (format!("tests/alloc/{target}"), *test),
                };
                let files = [format!("{path}.rs"), format!("{path}/tests.rs")];
                let has = |file: &String| {
                    root().join(ALLOC).join(file).exists() && read(file).contains(&format!("fn {name}("))
                };
                assert!(files.iter().any(has), "{}: {target} {test}", mutation.name);
            }
        }
    }

    #[test]
    fn every_mechanism_has_a_mutation_and_each_name_is_there_once() {
        let mut names = HashSet::new();
        assert!(MUTATIONS.iter().all(|mutation| names.insert(mutation.name)));
        for about in Mechanism::LIST {
            let has = |mutation: &Mutation| mutation.mechanism == Some(about.name);
            assert!(MUTATIONS.iter().any(has), "{} has none", about.name);
        }
        let known = |name: &str| Mechanism::named(name).is_some();
        assert!(MUTATIONS.iter().filter_map(|mutation| mutation.mechanism).all(known));
    }

    #[test]
    fn words_choose_mutations() {
        assert_eq!(choose(&["alloc"]).unwrap().len(), MUTATIONS.len());
        assert_eq!(choose(&["alloc", "index-chunks"]).unwrap().len(), 1);
        assert!(choose(&["alloc", "index"]).unwrap().len() > 1, "all of a mechanism");
        for wrong in [&[][..], &["engine"], &["alloc", "guesswork"]] {
            assert!(choose(wrong).is_err(), "{wrong:?}");
        }
    }
}
