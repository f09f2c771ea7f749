//! A target without libFuzzer: it runs the files it is given, or for some seconds changes to kept inputs.
//!
//! The latter is no search, for nothing guides it; it is what the test suite has seconds for. The same inputs
//! come in the same order every time: the n-th depends on `SEED`, n and the kept inputs only, and how many
//! there are on the machine. Each is written to a file before it runs, so that whatever ends the program, a
//! signal too, leaves the input behind.

use crate::measure::{self, Cost};
use crate::patch::EDGES;
use crate::targets::{NAMES, Target, named};
use crate::{bases, kept};
use fastrand::Rng;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Where the sequence of inputs begins.
const SEED: u64 = 21;
/// The longest input; as for the fuzzer.
const INPUT_MAX: usize = 8192;
/// The most changes to an input.
const CHANGES_MAX: usize = 5;

/// Runs a target as the command line says: `TARGET FILE ...`, or `TARGET --smoke SECONDS KEPT INPUT`, where
/// `KEPT` has the kept inputs (see [`kept`]) and `INPUT` is the file that has the input that runs.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let target = words.next().and_then(|name| named(name.to_str()?));
    let done = target
        .ok_or_else(|| io::Error::other(format!("usage: fuzz TARGET ...; targets: {}", NAMES.join(", "))))
        .and_then(|target| run(target, &words.collect::<Vec<_>>()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(target: Target, words: &[OsString]) -> io::Result<()> {
    match words {
        [smoke, seconds, kept, input] if smoke == "--smoke" => {
            let seconds = seconds.to_str().and_then(|seconds| seconds.parse().ok());
            let seconds = seconds.ok_or_else(|| io::Error::other("--smoke takes a number of seconds"))?;
            changes(target, Duration::from_secs(seconds), kept.as_ref(), input.as_ref())
        }
        files => files.iter().try_for_each(|file| {
            let bytes = std::fs::read(file)?;
            measure::bounded(bytes.len(), || target(&bytes));
            Ok(())
        }),
    }
}

/// Runs the kept inputs, then changes to them until `time` is over.
fn changes(target: Target, time: Duration, kept: &Path, input: &Path) -> io::Result<()> {
    // A panic of any thread ends the program, as it does under libFuzzer.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::abort();
    }));
    let kept = kept::read(kept)?;
    let current = File::create(input)?;
    bases::all(); // not the first input's cost
    let (started, mut count, mut most) = (Instant::now(), 0, Cost::default());
    while count < kept.len() || started.elapsed() < time {
        let bytes = nth(&kept, count);
        current.set_len(0)?;
        current.write_all_at(&bytes, 0)?;
        most = most.max(measure::bounded(bytes.len(), || target(&bytes)));
        count += 1;
    }
    println!("{count} inputs; at most {} KiB of heap, {:?}", most.heap >> 10, most.time);
    Ok(())
}

/// The n-th input: a kept one, or when all have been, a changed one.
fn nth(kept: &[Vec<u8>], n: usize) -> Vec<u8> {
    if let Some(input) = kept.get(n) {
        return input.clone();
    }
    let mut random = Rng::with_seed(SEED ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut input = random.choice(kept).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..=CHANGES_MAX) {
        change(&mut input, &mut random, kept);
    }
    input.truncate(INPUT_MAX);
    input
}

fn change(input: &mut Vec<u8>, random: &mut Rng, kept: &[Vec<u8>]) {
    let at = random.usize(0..=input.len());
    let end = (at + random.usize(1..=32)).min(input.len());
    let other = random.choice(kept).map_or(&[][..], Vec::as_slice);
    let from = random.usize(0..=other.len());
    let edge = EDGES[random.usize(..EDGES.len())].to_le_bytes();
    let noise = [random.u8(..), random.u8(..), random.u8(..)];
    match random.u8(..8) {
        0 => input.splice(at..end, []).for_each(drop),
        1 => input.splice(at..at, noise).for_each(drop),
        2 => input.splice(at..end, other[from..].iter().take(32).copied()).for_each(drop),
        3 => input.splice(at.., other[from..].iter().copied()).for_each(drop),
        4 => input.splice(at..(at + 4).min(input.len()), edge).for_each(drop),
        5 => input.splice(at..(at + 2).min(input.len()), edge[..2].iter().copied()).for_each(drop),
        6 => input.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (noise[0] & 7)),
        _ => input.get_mut(at).into_iter().for_each(|byte| *byte = noise[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_kept_ones_and_then_the_same_changes_every_time() {
        let kept = [b"one".to_vec(), vec![7; 3000]];
        assert_eq!([nth(&kept, 0), nth(&kept, 1)], kept);
        let inputs: Vec<_> = (2..2000).map(|n| nth(&kept, n)).collect();
        assert!(inputs.iter().enumerate().all(|(i, input)| *input == nth(&kept, i + 2)));
        assert!(inputs.iter().filter(|input| !kept.contains(input)).count() > 1900);
        assert!(inputs.iter().all(|input| input.len() <= INPUT_MAX));
        assert!(nth(&[], 5).len() <= INPUT_MAX);
    }
}
