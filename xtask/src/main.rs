//! The project's own jobs: `cargo xtask JOB`.
//!
//! | job | what it does |
//! |---|---|
//! | `tidy` | checks the repository itself: layers, module essays, lengths, banned words (see [`tidy`]) |
//! | `setup` | installs the Debian packages that tests need, if it may; else says what is missing |
//! | `test` | setup, formatting, lints, tidy and every test, then one line that counts them |
//! | `lint` | formatting, tidy and lints: the checks of `test` that compile no test |
//! | `explore` | runs the schedule explorers of the allocator (see [`testing`]) |
//! | `demo` | turns a real directory into an image, checks and inspects it |
//! | `api` | compares the public interface with its snapshots, or writes these (see [`api`]) |
//! | `features` | checks the sets of features of the library (see [`features`]) |
//! | `msrv` | checks that the oldest supported Rust compiles it (see [`msrv`]) |
//! | `package-crates` | packages what is published (see [`published`]) |
//! | `mutate` | switches the allocator's mechanisms off in the code; tests must notice (see [`mutate`]) |
//! | `package` | makes .deb and .rpm packages, and installs them in a new Debian (see [`package`]) |
//! | `python` | tests the Python package on its wheel, in an environment of its own (see [`python`]) |
//! | `unicode` | makes the tables of case folding from the standard's files (see [`unicode`]) |
//!
//! Hunts are jobs of `cargo hunt`, comparisons of `cargo benchmark`, experiments of `hectare-lab`: this program uses
//! nothing of Hectare's, so that it compiles in seconds. Exit status: 0 done, 1 failed, 2 usage.

mod api;
mod demo;
mod features;
mod msrv;
mod mutate;
mod package;
mod published;
mod python;
mod setup;
mod testing;
mod tidy;
mod unicode;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy|setup|test|lint|explore|demo|api|features|msrv|package-crates|\
                     mutate|package|python|unicode";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["run-test", ref rest @ ..] = words[..] {
        return testing::wrapper::run(rest);
    }
    let done = match words[..] {
        ["tidy"] => tidy::run(),
        ["tidy", "--layers"] => tidy::layers(),
        ["setup"] => setup::run(),
        ["test"] => testing::run(),
        ["lint"] => testing::lint(),
        ["explore"] => testing::explorers::always(),
        ["demo"] => demo::run(),
        ["api", ref rest @ ..] => api::run(rest),
        ["features"] => features::run(),
        ["msrv", ref rest @ ..] => msrv::run(rest),
        ["package-crates", ref rest @ ..] => published::run(rest),
        ["mutate", ref rest @ ..] => mutate::run(rest),
        ["package", ref rest @ ..] => package::run(rest),
        ["python"] => python::run(),
        ["python", "bench", ref rest @ ..] => python::bench(rest),
        ["unicode", ref rest @ ..] => unicode::run(rest),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
