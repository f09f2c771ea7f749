//! Runs commands visibly: each is printed before it runs, so that it can be repeated by hand.

use crate::tool::line_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The workspace's directory.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")); // workshop/tools
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The cargo that runs this, in the workspace's directory.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Prints a command as one would type it, then runs it; returns whether it succeeded.
pub fn shown(command: &mut Command) -> bool {
    println!("\n$ {}", line_of(command));
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("can't run {}: {error}", line_of(command));
            false
        }
    }
}

/// The options of a job's command line; if they don't parse, the error and the usage are printed, on a line.
pub fn understood<O>(parsed: Result<O, String>, usage: &str) -> Option<O> {
    parsed.inspect_err(|message| eprintln!("{message}; {usage}")).ok()
}

/// The value of an option, as whatever it is to be.
pub fn parsed<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option}: {text} is no number of that kind"))
}

/// An arbitrary seed, for a run that was given none.
pub fn arbitrary_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| u64::from(now.subsec_nanos()) << 20 ^ now.as_secs()) % 1_000_000_000
}

/// The longest that a job can be asked to run: sums of it and the clock's time are in range.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The value of an option that is a number of seconds.
pub fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    let time = Duration::from_secs(parsed(option, text)?);
    if time > LONGEST { Err(format!("{option}: {text} seconds are more than a year")) } else { Ok(time) }
}

/// The value of an option that is a number of minutes, with parts.
pub fn minutes(option: &str, text: &str) -> Result<Duration, String> {
    let time = Duration::try_from_secs_f64(parsed::<f64>(option, text)? * 60.0);
    let time = time.ok().filter(|time| *time <= LONGEST);
    time.ok_or_else(|| format!("{option}: {text} is no number of minutes, up to a year"))
}

/// Whether a job succeeded; if not, its name and the error are printed.
pub fn went_well(job: &str, result: Result<(), String>) -> bool {
    result.inspect_err(|message| eprintln!("{job} FAILED: {message}")).is_ok()
}

/// The cargo of another toolchain, in the workspace's directory: rustup's, which takes a toolchain's name. The
/// variables that the running cargo set name its own toolchain, and are removed.
pub fn other_cargo(toolchain: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.arg(format!("+{toolchain}")).current_dir(root());
    let inherited = ["CARGO", "RUSTC", "RUSTC_WRAPPER", "RUSTDOC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
    for name in inherited.into_iter().chain(["RUSTUP_TOOLCHAIN"]) {
        cargo.env_remove(name);
    }
    cargo
}

/// Where a toolchain lies; `arguments` may begin with its name, as `+nightly`.
pub fn sysroot(arguments: &[&str]) -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    let said = quiet(rustc.current_dir(root()).args(arguments).args(["--print", "sysroot"]))?;
    Some(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()))
}

/// The output of a command, if it ran and succeeded.
pub fn quiet(command: &mut Command) -> Option<Output> {
    command.output().ok().filter(|output| output.status.success())
}

/// What `cargo metadata` says of the workspace's own packages; needs no network.
pub fn metadata() -> Option<serde_json::Value> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    serde_json::from_slice(&quiet(&mut metadata)?.stdout).ok()
}

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    let said = metadata().and_then(|m| m["target_directory"].as_str().map(PathBuf::from));
    said.unwrap_or_else(|| root().join("target"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_no_clock_can_take_are_refused() {
        assert_eq!(seconds("-s", "7"), Ok(Duration::from_secs(7)));
        assert_eq!(minutes("-m", "0.5"), Ok(Duration::from_secs(30)));
        assert!(seconds("-s", &u64::MAX.to_string()).is_err() && seconds("-s", "-1").is_err());
        assert!(["1e15", "-1", "NaN", "soon"].iter().all(|text| minutes("-m", text).is_err()));
    }
}
