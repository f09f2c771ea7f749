//! The oldest Rust that is supported: `cargo xtask msrv [--all]`.
//!
//! The number is `rust-version` in `Cargo.toml`. The job checks the library, or everything that is published,
//! with that very toolchain, which rustup brings; a newer one proves nothing. Its build is thrown away: it
//! shares nothing with that of the usual toolchain.

use crate::steps::{quiet, root, shown};
use std::fs;
use std::process::Command;

/// `cargo xtask msrv [--all]`.
pub(crate) fn run(words: &[&str]) -> bool {
    let what: &[&str] = match words {
        [] => &["--package", "hectare", "--all-features"],
        ["--all"] => &["--workspace", "--exclude", "hectare-fuzz", "--exclude", "xtask"],
        _ => {
            eprintln!("usage: cargo xtask msrv [--all]");
            return false;
        }
    };
    let Some(version) = wanted() else {
        eprintln!("Cargo.toml names no rust-version");
        return false;
    };
    let toolchain = format!("+{version}");
    if quiet(Command::new("rustc").args([&toolchain, "--version"])).is_none() {
        eprintln!("Rust {version} is not installed: rustup toolchain install {version} --profile minimal");
        return false;
    }
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("no temporary directory: {error}");
            return false;
        }
    };
    // Not the cargo that runs this, but rustup's, which takes a toolchain's name.
    let mut check = Command::new("cargo");
    check.current_dir(root()).arg(&toolchain).arg("check").args(what);
    cargo_free(&mut check);
    shown(check.arg("--target-dir").arg(folder.path()))
}

/// Leaves out what the running cargo has said to its children: it names the other toolchain.
fn cargo_free(command: &mut Command) {
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
}

/// The version that `Cargo.toml` names.
fn wanted() -> Option<String> {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).ok()?.parse().ok()?;
    Some(manifest["workspace"]["package"]["rust-version"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_manifests() {
        assert!(wanted().is_some_and(|version| version.starts_with("1.")));
    }
}
