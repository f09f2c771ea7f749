//! Workloads on the engine, in directories and on the kernel; their results; and the reports of them.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod age_command;
mod bench_command;
mod explain;
mod markup;
mod reports;
mod reproduce;
mod reproduce_command;
#[path = "../../../../crates/hectare-cli/tests/hectare/support.rs"]
#[allow(dead_code)] // the tests of the command use more of it
mod support;
mod volumes;
mod workloads;

/// The program with a command: experiments are in the lab's, the others in `hectare`, which the workspace's build has
/// made beside it.
fn program_of(command: Option<&std::ffi::OsStr>) -> std::path::PathBuf {
    let lab = std::path::Path::new(env!("CARGO_BIN_EXE_hectare-lab"));
    let is_ours =
        ["age", "bench", "reproduce", "mechanisms"].iter().any(|name| command == Some(name.as_ref()));
    if is_ours {
        return lab.to_owned();
    }
    let hectare = lab.with_file_name("hectare");
    assert!(hectare.exists(), "{} is missing: cargo build -p hectare-cli", hectare.display());
    hectare
}
