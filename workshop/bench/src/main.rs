//! Comparisons with the kernel and other tools: `cargo benchmark NAME` (see [`mod@bench`]).
//!
//! `cargo benchmark live` draws the live page of a mount that is worked on, for the README (see [`live`]). Exit
//! status: 0 done, 1 failed, 2 usage, 3 can't run here.

mod bench;
mod live;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let exit = match words[..] {
        ["live", ref rest @ ..] => live::run(rest),
        ref rest => bench::run(rest),
    };
    exit.into()
}
