//! The project's own jobs: `cargo xtask JOB`.
//!
//! | job | what it does |
//! |---|---|
//! | `tidy` | checks the repository itself: layers, module essays, lengths, banned words (see [`tidy`]) |
//! | `setup` | installs the Debian packages that tests need, if it may; else says what is missing |
//! | `test` | setup, formatting, lints, tidy and every test, then one line that counts them |
//! | `demo` | turns a real directory into an image, checks and inspects it |
//! | `api` | compares the public interface with its snapshots, or writes these (see [`api`]) |
//! | `features` | checks the sets of features of the library (see [`features`]) |
//! | `msrv` | checks that the oldest supported Rust compiles it (see [`msrv`]) |
//! | `package-crates` | packages what is published (see [`published`]) |
//! | `boot` | boots a Debian that was built from a container image, in a virtual machine (see [`boot`]) |
//! | `fuzz` | builds and runs the fuzz targets (see [`fuzz`]) |
//! | `corpus` | runs every reading command on every image of a directory, within limits (see [`corpus`]) |
//! | `ceph` | volumes on a Ceph cluster of one node whose servers are killed (see [`ceph`]) |
//! | `conform` | compares the mount with the kernel's ext4, call by call (see [`conform`]) |
//! | `crash` | tests the states that power cuts leave, a hundred thousand of them (see [`crash`]) |
//! | `remote` | volumes on servers and networks that fail, from seeds (see [`remote`]) |
//! | `resize` | judges random resizes against resize2fs, e2fsck and the kernel (see [`resize`]) |
//! | `bench` | compares the engine with the kernel, in turn on the same volumes (see [`mod@bench`]) |
//! | `killed` | kills the server of a mount in the middle of work, repeatedly (see [`killed`]) |
//! | `live` | draws the live page of a mount that is worked on, for the README (see [`live`]) |
//! | `mutate` | switches the allocator's mechanisms off in the code; tests must notice (see [`mutate`]) |
//! | `package` | makes .deb and .rpm packages, and installs them in a new Debian (see [`package`]) |
//! | `peers` | what other libraries read and write of the same volumes, beside ours (see [`peers`]) |
//! | `portable` | checks and tests what other hosts than Linux get (see [`portable`]) |
//! | `python` | tests the Python package on its wheel, in an environment of its own (see [`python`]) |
//! | `salvage` | counts what comes out of damaged volumes, by us and by others (see [`salvage`]) |
//! | `sanitize` | the library for C under AddressSanitizer, ThreadSanitizer and Miri (see [`sanitize`]) |
//! | `unicode` | makes the tables of case folding from the standard's files (see [`unicode`]) |
//! | `repair` | damages volumes at random and repairs them, beside e2fsck (see [`repair`]) |
//! | `stress` | stress programs on a mount of every kind of volume (see [`stress`]) |
//! | `soak` | threads that do everything at once, for minutes, with every byte checked (see [`soak`]) |
//!
//! Everything slow or privileged lives here and not in shell scripts. Exit status: 0 done, 1 failed, 2 usage.

mod api;
mod bench;
mod boot;
mod ceph;
mod conform;
mod corpus;
mod crash;
mod demo;
mod ended;
mod features;
mod fuzz;
mod killed;
mod live;
mod msrv;
mod mutate;
mod package;
mod peers;
mod portable;
mod published;
mod python;
mod remote;
mod repair;
mod resize;
mod salvage;
mod sanitize;
mod scratch;
mod setup;
mod soak;
mod steps;
mod stress;
mod testing;
mod tidy;
mod unicode;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy|setup|test|demo|api|features|msrv|package-crates|\
                     boot|ceph|fuzz|corpus|conform|crash|bench|killed|\
                     live|mutate|package|peers|portable|python|remote|repair|resize|salvage|\
                     sanitize|soak|stress|unicode";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["tidy"] => tidy::run(),
        ["tidy", "--layers"] => tidy::layers(),
        ["setup"] => setup::run(),
        ["test"] => testing::run(),
        ["demo"] => demo::run(),
        ["api", ref rest @ ..] => api::run(rest),
        ["features"] => features::run(),
        ["msrv", ref rest @ ..] => msrv::run(rest),
        ["package-crates", ref rest @ ..] => published::run(rest),
        ["boot", ref rest @ ..] => boot::run(rest),
        ["ceph", ref rest @ ..] => ceph::run(rest),
        ["fuzz", ref rest @ ..] => fuzz::run(rest),
        ["corpus", ref rest @ ..] => corpus::run(rest),
        ["conform", ref rest @ ..] => conform::run(rest),
        ["crash", ref rest @ ..] => crash::run(rest),
        ["remote", ref rest @ ..] => remote::run(rest),
        ["resize", ref rest @ ..] => resize::run(rest),
        ["bench", ref rest @ ..] => bench::run(rest),
        ["killed", ref rest @ ..] => killed::run(rest),
        ["live", ref rest @ ..] => live::run(rest),
        ["mutate", ref rest @ ..] => mutate::run(rest),
        ["package", ref rest @ ..] => package::run(rest),
        ["peers", ref rest @ ..] => peers::run(rest),
        ["portable", ref rest @ ..] => portable::run(rest),
        ["python"] => python::run(),
        ["python", "bench", ref rest @ ..] => python::bench(rest),
        ["sanitize", ref rest @ ..] => sanitize::run(rest),
        ["salvage", ref rest @ ..] => salvage::run(rest),
        ["repair", ref rest @ ..] => repair::run(rest),
        ["soak", ref rest @ ..] => soak::run(rest),
        ["stress", ref rest @ ..] => stress::run(rest),
        ["unicode", ref rest @ ..] => unicode::run(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
