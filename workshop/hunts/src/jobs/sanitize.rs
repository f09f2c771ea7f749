//! `cargo hunt sanitize [address|thread|miri]...`: the library for C, and the programs that misuse it, under
//! AddressSanitizer, ThreadSanitizer and Miri.
//!
//! | what | how |
//! |---|---|
//! | `address` | library and programs instrumented, the library as a static one; leaks are errors |
//! | `thread` | the same, with a standard library that is instrumented too, which needs `rust-src` |
//! | `miri` | the unit tests of the crates below whose `unsafe` code Miri can run |
//!
//! The programs are those of `crates/bind/capi/tests/programs`, on images that this job makes. They need a nightly
//! toolchain; what the machine lacks is skipped, by name. Everything is built in `target/sanitize`, which is
//! removed afterwards: it has a gigabyte or two.
//!
//! Hazard: the C side is compiled by gcc and linked with the runtime of rustc's LLVM; the two agree on what the
//! compilers call, as long as gcc is older than the LLVM. What the runtime can't see is memory of C libraries that
//! are linked in uninstrumented (compression): it sees their allocations, not their accesses.

use hectare_oracle::tool::need;
use hectare_tools::ended::{Ended, Exit, may_skip};
use hectare_tools::steps::{other_cargo, root, shown, sysroot, target_folder, understood};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo hunt sanitize [address|thread|miri]...";
const TARGET: &str = "x86_64-unknown-linux-gnu";
const ALL: [&str; 3] = ["address", "thread", "miri"];
/// What Miri runs: a package, and the filter of its tests.
const MIRI: [(&str, &str); 1] = [("hectare-capi", "")];

/// Runs the job with its arguments; it ends well if nothing was found.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(wanted) = understood(parse(words), USAGE) else { return Exit::Usage };
    let Some(nightly) = nightly() else {
        return Exit::of("sanitize", Err(Ended::Skipped("there is no nightly toolchain".to_owned())));
    };
    let mut found = Vec::new();
    for name in wanted {
        let done = match name {
            "miri" => miri(&nightly),
            _ => sanitized(&nightly, name),
        };
        match done {
            Ok(None) => println!("{name}: nothing found"),
            Ok(Some(reason)) => {
                println!("skipped {name}: {reason}");
                if !may_skip() {
                    found.push(format!("{name} would be skipped: {reason}"));
                }
            }
            Err(reason) => found.push(format!("{name}: {reason}")),
        }
        let _ = fs::remove_dir_all(folder()); // absent if all was skipped
    }
    Exit::of("sanitize", if found.is_empty() { Ok(()) } else { Err(found.join("; ").into()) })
}

/// The sanitizers that are asked for; all if none are.
fn parse(words: &[&str]) -> Result<Vec<&'static str>, String> {
    match words.iter().find(|word| !ALL.contains(word)) {
        Some(word) => Err(format!("{word} is no sanitizer")),
        None => Ok(ALL.into_iter().filter(|one| words.is_empty() || words.contains(one)).collect()),
    }
}

fn folder() -> PathBuf {
    target_folder().join("sanitize")
}

/// The toolchain's folder.
fn nightly() -> Option<PathBuf> {
    sysroot(&["+nightly"])
}

fn nightly_cargo() -> Command {
    let mut cargo = other_cargo("nightly");
    cargo.env("CARGO_TARGET_DIR", folder());
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only").env("CARGO_INCREMENTAL", "0");
    cargo
}

/// Builds library and programs with a sanitizer, and runs them. `Some` is why not.
fn sanitized(sysroot: &Path, name: &str) -> Result<Option<String>, String> {
    let with_std = name == "thread";
    if let Err(skip) = need("gcc") {
        return Ok(Some(skip.to_string()));
    }
    if with_std && !sysroot.join("lib/rustlib/src/rust/library").exists() {
        return Ok(Some("the toolchain has no rust-src".to_owned()));
    }
    let short = if name == "address" { "asan" } else { "tsan" };
    let runtime = sysroot.join(format!("lib/rustlib/{TARGET}/lib/librustc-nightly_rt.{short}.a"));
    if !runtime.exists() {
        return Ok(Some(format!("the toolchain has no {short} for {TARGET}")));
    }
    let mut build = nightly_cargo();
    build.args(["rustc", "--quiet", "-p", "hectare-capi", "--lib", "--crate-type", "staticlib"]);
    build.args(["--target", TARGET]);
    if with_std {
        build.args(["-Z", "build-std"]);
    }
    build.env(
        "RUSTFLAGS",
        format!("-Zsanitizer={name} -Cforce-frame-pointers=yes -Cunsafe-allow-abi-mismatch=sanitizer"),
    );
    if !shown(&mut build) {
        return Err("the library can't be built".to_owned());
    }
    let library = folder().join(TARGET).join("debug/libhectare_c.a");
    let scratch = hectare_tools::job_folder::Scratch::new(Path::new("/dev/shm"), "hectare-sanitize")?;
    let compiled = |program: &str| -> Result<PathBuf, String> {
        let made = scratch.path().join(program);
        let capi = root().join("crates/bind/capi");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fno-omit-frame-pointer"]);
        gcc.arg(format!("-fsanitize={name}")).arg("-I").arg(capi.join("include")).arg("-c").arg("-o");
        gcc.arg(made.with_extension("o")).arg(capi.join(format!("tests/programs/{program}.c")));
        let mut link = Command::new("gcc");
        link.arg("-o").arg(&made).arg(made.with_extension("o")).arg(&library).arg("-Wl,--whole-archive");
        link.arg(&runtime).args(["-Wl,--no-whole-archive", "-Wl,--export-dynamic", "-lstdc++", "-lpthread"]);
        link.args(["-ldl", "-lrt", "-lm", "-lresolv"]);
        if shown(&mut gcc) && shown(&mut link) { Ok(made) } else { Err(format!("{program} can't be built")) }
    };
    let path = |end: &str| scratch.path().join(end).to_string_lossy().into_owned();
    let image = |name: &str| -> Result<String, String> {
        let made = hectare::mkfs::Format::new().replace(true).create(path(name), 32 << 20);
        made.map(|()| path(name)).map_err(|error| error.to_string())
    };
    fs::create_dir(path("images")).map_err(|error| error.to_string())?;
    let mut failed = Vec::new();
    let programs = [
        ("misuse", vec![image("misuse.img")?]),
        ("calls", vec![path("images")]),
        ("faults", vec![path("images"), "1".to_owned(), "1000000".to_owned()]),
        ("threads", vec!["10".to_owned(), path("threads.img")]),
        ("operations", vec![image("operations.img")?]),
    ];
    for (program, words) in programs {
        let mut run = Command::new(compiled(program)?);
        run.args(words)
            .env("ASAN_OPTIONS", "detect_leaks=1")
            .env("TSAN_OPTIONS", "halt_on_error=0 exitcode=66");
        run.env("LSAN_OPTIONS", "report_objects=1").stdin(operations(scratch.path())?);
        if !shown(&mut run) {
            failed.push(program);
        }
    }
    if failed.is_empty() { Ok(None) } else { Err(format!("{} failed", failed.join(", "))) }
}

/// What the program `operations` reads: some of each.
fn operations(folder: &Path) -> Result<fs::File, String> {
    let path = folder.join("lines");
    let mut lines = String::new();
    for round in 0..200 {
        let (slot, at) = (round % 8, round * 977);
        lines += &format!(
            "mkdir d{slot} 448\nopen {slot} d{slot}/f{round} 7 384\nwrite {slot} {at} {at} {round}\n\
             read {slot} 9000 {at}\nsetxattr d{slot}/f{round} user.a 100 {round}\n\
             link d{slot}/f{round} l{round}\n\
             rename l{round} d{slot}/g\npunch {slot} 0 {at}\n\
             symlink d{slot} s{slot}\nlist s{slot}\n\
             truncate {slot} {round}\nunlink d{slot}/f{round}\nfstat {slot}\ncontent d{slot}/g\n"
        );
    }
    lines += "tree .\n";
    fs::write(&path, lines).and_then(|()| fs::File::open(&path)).map_err(|error| error.to_string())
}

/// Runs unit tests under Miri. `Some` is why not.
fn miri(sysroot: &Path) -> Result<Option<String>, String> {
    if !sysroot.join("bin/cargo-miri").exists() || !sysroot.join("lib/rustlib/src/rust/library").exists() {
        return Ok(Some("the toolchain has no miri, or no rust-src that it needs".to_owned()));
    }
    let mut failed = Vec::new();
    for (package, filter) in MIRI {
        let mut test = nightly_cargo();
        test.args(["miri", "test", "--quiet", "-p", package, "--lib", "--", filter]);
        if !shown(test.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance")) {
            failed.push(package);
        }
    }
    if failed.is_empty() { Ok(None) } else { Err(format!("{} failed", failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_sanitizer_is_refused() {
        assert!(parse(&["memory"]).is_err());
        assert_eq!(parse(&["miri"]), Ok(vec!["miri"]));
        assert_eq!(parse(&[]), Ok(ALL.to_vec()));
    }
}
