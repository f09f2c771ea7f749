//! `cargo hunt portable`: what other hosts than Linux get.
//!
//! 1. The tests of the crates that are for any host, on Linux with `--cfg hectare_portable`: the standard library
//!    takes the place of Linux's system calls. `rustix` and `libc` are then no dependencies of theirs (those of the
//!    NBD client aside), so that what is missed does not compile. Of the command line they are those that need
//!    neither the reference tools nor mounts (`crates/hectare-cli/tests/any_host.rs`).
//! 2. `cargo check` for Windows and macOS, and of the whole command for Linux with musl, with the standard libraries
//!    of those that are installed (`rustup target add`). The C in `ring` (for TLS) is not compiled: checks don't link,
//!    so a program that makes empty files stands in for the compiler.
//!
//! What is not there is skipped by name. What this is not: a run on those hosts.

use hectare_tools::ended::{Exit, may_skip};
use hectare_tools::steps::{cargo, shown, sysroot, target_folder, understood};
use hectare_tools::workspace;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "usage: cargo hunt portable [--check]";
/// Sets the switch.
const SWITCH: &str = "--cfg hectare_portable";
/// Crates that are for Linux: mounts, and the library for other languages.
const FOR_LINUX: [&str; 4] = ["hectare-fuse", "hectare-monitor", "hectare-capi", "hectare-python"];
/// Those with C in them.
const WITH_C: [&str; 3] = ["hectare-nbd", "hectare-store", "hectare-cli"];
/// Those that are only compiled: the tests need what Linux has.
const UNTESTED: [&str; 1] = ["hectare-store"];
const TARGETS: [&str; 4] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin", MUSL];
/// Linux with another C library, of which static commands are made (`cargo xtask package --static`).
const MUSL: &str = "x86_64-unknown-linux-musl";
/// In place of a compiler: makes the file that `-o` names.
const STAND_IN: &str =
    "#!/bin/sh\nfor word; do [ \"$before\" = -o ] && : > \"$word\"; before=$word; done\nexit 0\n";

/// Runs everything; it ends well if nothing failed.
pub(crate) fn run(words: &[&str]) -> Exit {
    let with_tests = match words {
        [] => Ok(true),
        ["--check"] => Ok(false),
        _ => Err(format!("{} is not understood", words.join(" "))),
    };
    let Some(with_tests) = understood(with_tests, USAGE) else { return Exit::Usage };
    (checks() && (!with_tests || tests())).into()
}

/// What is built with other flags has its own place, or it would be built again each time.
fn folder() -> PathBuf {
    target_folder().join("portable")
}

/// The product's crates for any host.
fn crates() -> Vec<String> {
    let all = workspace::packages().unwrap_or_default().into_iter();
    let ours = all.filter(|package| package.manifest.starts_with("crates/")).map(|package| package.name);
    ours.filter(|name| !FOR_LINUX.contains(&name.as_str()) && !WITH_C.contains(&name.as_str())).collect()
}

fn packages<S: AsRef<str>>(names: &[S]) -> Vec<String> {
    names.iter().flat_map(|name| ["-p".to_owned(), name.as_ref().to_owned()]).collect()
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
    let here = shown(switched("check").args(packages(&crates())).args(packages(&WITH_C)));
    // All of them, that one run shows everything that fails.
    let there = TARGETS.map(check_target);
    here && there.iter().all(|passed| *passed)
}

fn check_target(target: &str) -> bool {
    if !sysroot(&[]).is_some_and(|sysroot| sysroot.join("lib/rustlib").join(target).is_dir()) {
        println!("skipped {target}: its standard library is not installed (rustup target add {target})");
        return may_skip();
    }
    let compiler = match stand_in() {
        Ok(compiler) => compiler,
        Err(error) => {
            eprintln!("the compiler's stand-in can't be made: {error}");
            return false;
        }
    };
    let variable = |tool: &str| format!("{tool}_{}", target.replace('-', "_"));
    let check = |what: &[String]| {
        let mut check = cargo();
        check.args(["check", "--target", target]).args(what).env("CARGO_TARGET_DIR", folder());
        shown(check.env(variable("CC"), &compiler).env(variable("AR"), &compiler))
    };
    if target == MUSL {
        return check(&packages(&["hectare-cli"]));
    }
    // The library with all that it can have there.
    let features =
        ["-p", "hectare", "--features", "hectare/admin,hectare/disk,hectare/nbd"].map(str::to_owned);
    check(&packages(&crates())) && check(&[&packages(&WITH_C)[..], &features].concat())
}

fn stand_in() -> std::io::Result<PathBuf> {
    let path = folder().join("no-cc");
    std::fs::create_dir_all(folder())?;
    std::fs::write(&path, STAND_IN)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn tests() -> bool {
    let all = crates().into_iter().chain(WITH_C.map(str::to_owned));
    let tested: Vec<_> = all.filter(|name| !UNTESTED.contains(&name.as_str())).collect();
    // Together: each crate alone has other features of what it needs, which would be compiled again.
    let passed = shown(switched("test").arg("--no-fail-fast").args(packages(&tested)));
    let ended = if passed { "passed" } else { "failed" };
    println!("the tests of {} crates {ended} with {SWITCH}", tested.len());
    passed
}
