//! The oldest Rust that is supported: `cargo xtask msrv [--all]`.
//!
//! The number is `rust-version` in `Cargo.toml`. The job checks the library, or the whole workspace,
//! with that very toolchain, which rustup brings; a newer one proves nothing. Its build is thrown away: it
//! shares nothing with that of the usual toolchain.

use hectare_tools::ended::Ended;
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::{other_cargo, quiet, root, shown, target_folder};
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
        let how = format!("rustup toolchain install {version} --profile minimal");
        return Ended::Skipped(format!("Rust {version} is not installed: {how}")).print("msrv", "");
    }
    let folder = match Scratch::new(&target_folder(), "hectare-msrv") {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    let mut check = other_cargo(&version);
    shown(check.arg("check").args(what).arg("--target-dir").arg(folder.path()))
}

/// The version that `Cargo.toml` names.
fn wanted() -> Option<String> {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).ok()?.parse().ok()?;
    Some(manifest.get("workspace")?.get("package")?.get("rust-version")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_manifests() {
        assert!(wanted().is_some_and(|version| version.starts_with("1.")));
    }
}
