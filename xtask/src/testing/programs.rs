//! The workspace's test programs, run by us.
//!
//! `cargo test` can run nothing beside its programs. So cargo builds them and says where they are ([`workspace`]), and
//! [`run`] keeps [`LANES`] of them running, while the caller does something else. A program gets the directory and the variables that cargo would give it.
//! What it writes goes into a file of its own below `target/testing`, and is handed on when it has ended, so that no
//! two are mixed. It is no pipe: a process that a test left behind would hold the run by its end of it.
//!
//! What this is not: a limit of time. A program that hangs holds the run; what has begun is printed, and its file
//! says how far it came.

use crate::steps::{cargo, root, target_folder};
use hectare_oracle::tool::line_of;
use serde_json::Value;
use std::fs::File;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Programs that run at the same time. Each runs several tests at once itself. Two are a little faster, but tests of
/// one program then disturb those of another: by `sync`, and by taking a loop device that has just become free.
const LANES: usize = 1;

/// Packages whose tests take longest: what begins first is not left alone at the end.
const LONGEST: [&str; 3] = ["hectare-cli", "hectare-engine", "hectare-fuse"];

/// A program to run.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) command: Command,
}

/// What became of a job.
pub(super) struct Ended {
    pub(super) name: String,
    /// What it wrote, errors as well.
    pub(super) output: String,
    /// Why it did not succeed; none if it did.
    pub(super) failure: Option<String>,
    pub(super) took: Duration,
}

/// Builds the workspace's test programs; those that take longest come first. `None` if one can't be built,
/// which cargo has said.
pub(super) fn workspace() -> Option<Vec<Job>> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    println!("\n$ {}", line_of(&build));
    let built = build.stderr(Stdio::inherit()).output().ok().filter(|built| built.status.success())?;
    let messages = String::from_utf8_lossy(&built.stdout);
    let mut found: Vec<(usize, Job)> = messages.lines().filter_map(job).collect();
    found.sort_by_key(|(order, _)| *order); // which keeps cargo's order otherwise
    Some(found.into_iter().map(|(_, job)| job).collect())
}

/// The test program that a message of cargo's speaks of, and its place.
fn job(message: &str) -> Option<(usize, Job)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let program = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = message["package_id"].as_str()?;
    let order =
        LONGEST.iter().position(|name| package.contains(&format!("#{name}@"))).unwrap_or(LONGEST.len());
    let source = Path::new(message["target"]["src_path"].as_str()?);
    let name = source.strip_prefix(root()).unwrap_or(source).display().to_string();
    let mut command = Command::new(program);
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Some((order, Job { name, command }))
}

/// Runs all jobs, and hands each that has ended to `each`.
pub(super) fn run(jobs: Vec<Job>, each: impl FnMut(Ended)) -> Result<()> {
    let folder = target_folder().join("testing");
    std::fs::create_dir_all(&folder)?;
    let waiting = Mutex::new(jobs.into_iter());
    let (sender, ended) = channel();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            let (waiting, folder, sender) = (&waiting, &folder, sender.clone());
            scope.spawn(move || lane(waiting, folder, &sender));
        }
        drop(sender);
        ended.iter().for_each(each);
    });
    Ok(())
}

/// Runs one job after the other.
fn lane(waiting: &Mutex<std::vec::IntoIter<Job>>, folder: &Path, sender: &Sender<Ended>) {
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    while let Some(Job { name, mut command }) = next() {
        println!("begun: {name}");
        let start = Instant::now();
        let (output, failure) = match finished(&mut command, &log(folder, &name)) {
            Ok(done) => done,
            Err(error) => (String::new(), Some(format!("{}: {error}", line_of(&command)))),
        };
        if sender.send(Ended { name, output, failure, took: start.elapsed() }).is_err() {
            return;
        }
    }
}

/// The file for what a job writes.
fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-") + ".log")
}

/// Runs a command; returns what it wrote, and why it did not succeed.
fn finished(command: &mut Command, log: &Path) -> Result<(String, Option<String>)> {
    let file = File::create(log)?;
    let status = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).status()?;
    let output = std::fs::read(log)?;
    let failure = (!status.success()).then(|| format!("it ended with {status}"));
    Ok((String::from_utf8_lossy(&output).into_owned(), failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        Job { name: text.to_owned(), command }
    }

    #[test]
    fn all_jobs_run_and_say_how_they_ended() {
        let jobs = ["echo a; echo b >&2", "exit 3", "kill -9 $$"].map(shell);
        let missing = Job { name: "missing".to_owned(), command: Command::new("/nonexistent/program") };
        let mut ended = Vec::new();
        run(jobs.into_iter().chain([missing]).collect(), |one| ended.push(one)).unwrap();
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        let said = |at: usize| ended[at].failure.clone().unwrap_or_default();
        assert_eq!((ended[0].output.as_str(), said(0).as_str()), ("a\nb\n", ""));
        assert!(said(1).contains("exit status: 3") && said(2).contains("signal: 9"));
        assert!(said(3).starts_with("program: ") && said(3).contains("os error 2"), "{}", said(3));
    }

    #[test]
    fn test_programs_are_told_from_what_else_is_built() {
        let folder = root().join("crates/engine");
        let message = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": format!("path+file://{}#hectare-engine@0.1.0", folder.display()),
                "manifest_path": folder.join("Cargo.toml"),
                "target": { "src_path": folder.join("tests/engine/main.rs") },
                "profile": { "test": test },
                "executable": "/target/debug/deps/engine-0123",
            })
            .to_string()
        };
        let (order, found) = job(&message(true)).unwrap();
        assert_eq!((order, found.name.as_str()), (1, "crates/engine/tests/engine/main.rs"));
        assert_eq!(found.command.get_current_dir(), Some(folder.as_path()));
        assert!(job(&message(false)).is_none() && job("no message").is_none());
    }
}
