//! Short runs of the hunts, and what longer ones have found.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod conform;
mod crash;
mod killed;
mod remote;
mod remote_servers;
mod remote_sizes;
mod stress;

/// The command, which the workspace's build has made beside this program.
fn program() -> std::path::PathBuf {
    let own = std::env::current_exe().expect("a process knows its program");
    let command = own.ancestors().nth(2).expect("target/debug/deps/PROGRAM").join("hectare");
    assert!(command.exists(), "{} is missing: cargo build -p hectare-cli", command.display());
    command
}
