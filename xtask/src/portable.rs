//! `cargo xtask portable`: what other hosts than Linux get.
//!
//! 1. The tests of the crates that are for any host, on Linux with `--cfg hectare_portable`: the standard library
//!    takes the place of Linux's system calls. `rustix` and `libc` are then no dependencies of theirs (those of the
//!    NBD client aside), so that what is missed does not compile.
//! 2. `cargo check` for Windows and macOS, with the standard libraries of those that are installed
//!    (`rustup target add`). The C in `ring` (for TLS) is not compiled: checks don't link, so a program that
//!    makes empty files stands in for the compiler.
//!
//! What is not there is skipped by name. What this is not: a run on those hosts.

use crate::steps::{cargo, quiet, root, shown, target_folder};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "usage: cargo xtask portable [--check]";
/// Sets the switch.
const SWITCH: &str = "--cfg hectare_portable";
/// For any host, in the order of the layers.
const CRATES: [&str; 24] = [
    "hectare-units",
    "hectare-device",
    "hectare-host",
    "hectare-partition",
    "hectare-lvm",
    "hectare-alloc",
    "hectare-ext4",
    "hectare-mmp",
    "hectare-probe",
    "hectare-disk",
    "hectare-identify",
    "hectare-journal",
    "hectare-xfs",
    "hectare-check",
    "hectare-mkfs",
    "hectare-salvage",
    "hectare-resize",
    "hectare-tune",
    "hectare-populate",
    "hectare-disk-build",
    "hectare-engine",
    "hectare-repair",
    "hectare-export",
    "hectare",
];
/// Those with C in them.
const WITH_C: [&str; 1] = ["hectare-nbd"];
const TARGETS: [&str; 3] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin"];
/// In place of a compiler: makes the file that `-o` names.
const STAND_IN: &str =
    "#!/bin/sh\nfor word; do [ \"$before\" = -o ] && : > \"$word\"; before=$word; done\nexit 0\n";

/// Runs everything; returns whether nothing failed.
pub(crate) fn run(words: &[&str]) -> bool {
    match words {
        [] => checks() && tests(),
        ["--check"] => checks(),
        _ => {
            eprintln!("{USAGE}");
            false
        }
    }
}

/// What is built with other flags has its own place, or it would be built again each time.
fn folder() -> PathBuf {
    target_folder().join("portable")
}

fn packages<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["-p", *name]).collect()
}

/// A command of cargo, with the switch.
fn switched(command: &str) -> Command {
    let mut switched = cargo();
    switched
        .arg(command)
        .env("CARGO_TARGET_DIR", folder())
        .env("RUSTFLAGS", SWITCH)
        .env("RUSTDOCFLAGS", SWITCH);
    switched
}

fn checks() -> bool {
    let here = shown(switched("check").args(packages(&CRATES)).args(packages(&WITH_C)));
    // All of them, that one run shows everything that fails.
    let there = TARGETS.map(check_target);
    here && there.iter().all(|passed| *passed)
}

fn check_target(target: &str) -> bool {
    let sysroot = quiet(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()));
    let sysroot = sysroot.map(|said| PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    if !sysroot.is_some_and(|sysroot| sysroot.join("lib/rustlib").join(target).is_dir()) {
        println!("skipped {target}: its standard library is not installed (rustup target add {target})");
        return true;
    }
    let compiler = match stand_in() {
        Ok(compiler) => compiler,
        Err(error) => {
            eprintln!("the compiler's stand-in can't be made: {error}");
            return false;
        }
    };
    let variable = |tool: &str| format!("{tool}_{}", target.replace('-', "_"));
    let check = |what: &[&str]| {
        let mut check = cargo();
        check.args(["check", "--target", target]).args(what).env("CARGO_TARGET_DIR", folder());
        shown(check.env(variable("CC"), &compiler).env(variable("AR"), &compiler))
    };
    check(&packages(&CRATES)) && check(&packages(&WITH_C))
}

fn stand_in() -> std::io::Result<PathBuf> {
    let path = folder().join("no-cc");
    std::fs::create_dir_all(folder())?;
    std::fs::write(&path, STAND_IN)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn tests() -> bool {
    // One at a time: together they would need more memory and disk than small machines have.
    let passed = CRATES.map(|name| shown(switched("test").args(["-p", name])));
    let failed = passed.iter().filter(|passed| !**passed).count();
    println!("{} crates passed, {failed} failed, with {SWITCH}", passed.len() - failed);
    failed == 0
}
