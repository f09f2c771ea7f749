//! Servers that fail: `cargo hunt remote [--runs N] [--seed N] [--threads N]` opens volumes over connections that
//! break, servers that crash, and replies that come late, and checks that nothing acknowledged is lost (see
//! `hectare_hunts::remote`).
//!
//! e2fsck checks what is left of every run. A failure is printed with its seed, which makes the run again, but for
//! the timing of its threads; the others go on.

use hectare_hunts::remote::{Fault, Oracle, Outcome, run as one};
use hectare_oracle::{fsck, tool};
use hectare_tools::ended::Exit;
use hectare_tools::steps::{parsed, understood};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt remote [--runs N] [--seed N] [--threads N]";

/// Runs between two lines.
const TOLD_EVERY: u64 = 100;

struct Options {
    runs: u64,
    seed: u64,
    threads: usize,
}

/// What was done with one kind of fault.
#[derive(Default)]
struct Sum {
    runs: u64,
    steps: u64,
    promises: u64,
    reconnects: u64,
    requests: u64,
    ended: u64,
    longest: Duration,
}

/// Runs the job with its arguments; it ends well if everything was survived.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(parse(words), USAGE) else { return Exit::Usage };
    let oracle: Option<Arc<Oracle>> = match tool("e2fsck") {
        Some(_) => Some(Arc::new(e2fsck)),
        None => {
            println!("without e2fsck: only the checker judges");
            None
        }
    };
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let (mut outcomes, mut failures) = (Vec::new(), 0_u64);
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= options.runs {
                return (outcomes, failures);
            }
            match one(options.seed.wrapping_add(turn), oracle.clone()) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    failures += 1;
                    println!("{error}");
                }
            }
            let count = done.fetch_add(1, Ordering::Relaxed) + 1;
            if count % TOLD_EVERY == 0 {
                println!("{count} runs in {} s", began.elapsed().as_secs());
            }
        }
    };
    let (outcomes, failures) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().fold((Vec::new(), 0), |(mut all, sum), thread| match thread.join() {
            Ok((outcomes, failures)) => {
                all.extend(outcomes);
                (all, sum + failures)
            }
            Err(_) => (all, sum + 1),
        })
    });
    tell(&outcomes);
    println!("{} runs, {failures} failed", options.runs);
    (failures == 0).into()
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { runs: 1000, seed: 1, threads: 2 };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || parsed::<u64>(word, words.next().ok_or(format!("{word} needs a value"))?);
        match *word {
            "--runs" => options.runs = value()?,
            "--seed" => options.seed = value()?,
            "--threads" => options.threads = usize::try_from(value()?.clamp(1, 64)).unwrap_or(1),
            other => return Err(format!("{other} is no option")),
        }
    }
    Ok(options)
}

fn tell(outcomes: &[Outcome]) {
    let mut sums: BTreeMap<Fault, Sum> = BTreeMap::new();
    for outcome in outcomes {
        let sum = sums.entry(outcome.fault).or_default();
        sum.runs += 1;
        sum.steps += u64::from(outcome.steps);
        sum.promises += outcome.promises;
        sum.reconnects += outcome.reconnects;
        sum.requests += outcome.requests;
        sum.ended += u64::from(outcome.ended);
        sum.longest = sum.longest.max(outcome.longest);
    }
    println!("fault      runs   steps  promises  reconnects  requests  ended  longest step");
    for (fault, sum) in sums {
        println!(
            "{:<9}{:>6}{:>8}{:>10}{:>12}{:>10}{:>7}{:>11.1} s",
            format!("{fault:?}"),
            sum.runs,
            sum.steps,
            sum.promises,
            sum.reconnects,
            sum.requests,
            sum.ended,
            sum.longest.as_secs_f64()
        );
    }
}

fn e2fsck(bytes: &[u8]) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), bytes).map_err(|error| error.to_string())?;
    match fsck::e2fsck(file.path()) {
        Ok(report) if !report.is_sound() => Err(report.output),
        _ => Ok(()),
    }
}
