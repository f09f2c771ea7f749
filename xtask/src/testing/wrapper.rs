//! `xtask run-test PROGRAM ARGS...`: runs one test and notes its processor time.
//!
//! cargo-nextest starts each test by it (`CARGO_TARGET_..._RUNNER`), and `cargo test` each test program. It appends
//! a line to the file that [`TIMES`] names: the processor time, a tab, the name of the test's program, a space, the
//! name of the test. Counted are the process and its children, as far as somebody waited for them: not the servers
//! of mounts, which outlive their parents, nor threads of the kernel.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Names the file of times.
pub(super) const TIMES: &str = "HECTARE_TEST_TIMES";

/// Runs a test; the exit code is its own.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else {
        eprintln!("usage: xtask run-test PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let Some(times) = std::env::var_os(TIMES).filter(|_| !arguments.contains(&"--list")) else {
        let error = command.exec();
        eprintln!("can't run {program}: {error}");
        return ExitCode::FAILURE;
    };
    let status = match command.status() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("can't run {program}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let test = arguments.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
    note(Path::new(&times), &key(program, test));
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// A test's name in the file: its program's, without the digits that cargo adds, and its own.
fn key(program: &str, test: &str) -> String {
    let stem = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = stem.rsplit_once('-').map_or(&*stem, |(stem, _)| stem);
    format!("{stem} {test}")
}

/// Notes the time of this process's children.
fn note(times: &Path, name: &str) {
    let line = format!("{:.2}\t{name}\n", children().unwrap_or_default());
    let file = OpenOptions::new().create(true).append(true).open(times);
    let written = file.and_then(|mut file: File| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("{}: {error}", times.display());
    }
}

/// Seconds of processor time of the children that were waited for (`cutime` and `cstime` of proc_pid_stat(5)).
fn children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |nr: usize| fields.get(nr)?.parse::<f64>().ok();
    let per_second = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).ok()?);
    Some((ticks(13)? + ticks(14)?) / per_second)
}

/// The times in such a file.
pub(super) fn read(times: &Path) -> HashMap<String, f64> {
    let text = std::fs::read_to_string(times).unwrap_or_default();
    let line = |line: &str| {
        let (seconds, name) = line.split_once('\t')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_by_its_program_and_name() {
        assert_eq!(key("/t/debug/deps/engine-0123456789abcdef", "a::b"), "engine a::b");
    }

    #[test]
    fn the_time_of_a_child_is_read() {
        let spins = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", spins]).status().unwrap().success());
        assert!(children().unwrap() > 0.0);
    }

    #[test]
    fn times_that_were_noted_are_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        note(file.path(), "engine a::b");
        std::fs::write(file.path(), std::fs::read_to_string(file.path()).unwrap() + "junk\n").unwrap();
        assert!(read(file.path()).contains_key("engine a::b"));
    }
}
