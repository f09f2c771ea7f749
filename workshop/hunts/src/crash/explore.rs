//! Explores many runs, and for each the states that a crash could leave.

use super::at::At;
use super::expect::Expected;
use super::format::Format;
use super::repro::Kept;
use super::session::{Recording, Setup, record};
use super::trial::{Oracle, Trial, caught};
use super::workload::Workload;
use hectare_device::{CrashStates, Event, MemoryDevice};
use hectare_tools::error::{Error, Result};
use hectare_units::random::SplitMix64;
use hectare_units::u64_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// About how many points are tested in one run: longer logs are sampled.
const POINTS_OF_RUN: u64 = 600;
/// States at each point: all that was written, and what storage chose, twice.
const STATES: u64 = 3;

/// The parameters of a search.
pub struct Search<'a> {
    /// In turn; not empty.
    pub workloads: &'a [Workload],
    /// The one to use; else each run chooses.
    pub format: Option<Format>,
    /// The seed of the first run; the next has the next.
    pub seed: u64,
    /// How many crashes.
    pub points: u64,
    /// Concurrent runs.
    pub threads: usize,
    /// Also checks every n-th state with the oracle.
    pub oracle: Option<(&'a Oracle<'a>, u64)>,
    /// Whether the device only pretends to flush: to see that the search finds the consequences.
    pub flushes_lie: bool,
    /// The only crash to test, of the first run.
    pub only: Option<At>,
}

/// The progress of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Crashes tested, of each workload.
    pub points: Vec<(Workload, u64)>,
    /// Runs that are done.
    pub runs: u64,
}

impl Progress {
    /// Crashes tested.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.points.iter().map(|(_, count)| count).sum()
    }
}

/// A failure.
pub struct Failure {
    /// The problem.
    pub what: String,
    /// The workload.
    pub workload: Workload,
    /// The volume.
    pub format: Format,
    /// The seed of the run.
    pub seed: u64,
    /// The crash; none if the run itself failed.
    pub at: Option<At>,
    /// What is needed to reproduce it.
    pub kept: Kept,
}

struct Shared<'a> {
    search: &'a Search<'a>,
    next: AtomicU64,
    runs: AtomicU64,
    counts: [AtomicU64; Workload::ALL.len()],
    stop: AtomicBool,
    told: &'a (dyn Fn(&Progress) + Sync),
}

/// Tests crashes until there were enough or one was not survived; calls `told` after every run.
///
/// # Errors
/// If there is nothing to run on. What a crash broke is no error but the failure.
pub fn explore(
    search: &Search<'_>,
    told: &(dyn Fn(&Progress) + Sync),
) -> Result<(Progress, Option<Failure>)> {
    let shared = Shared {
        search,
        next: AtomicU64::new(0),
        runs: AtomicU64::new(0),
        counts: Default::default(),
        stop: AtomicBool::new(false),
        told,
    };
    let threads = if search.only.is_some() { 1 } else { search.threads.max(1) };
    let results: Vec<Result<Option<Failure>>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| shared.work())).collect();
        let end = |panic| std::panic::resume_unwind(panic);
        running.into_iter().map(|thread| thread.join().unwrap_or_else(end)).collect()
    });
    let failures: Vec<Option<Failure>> = results.into_iter().collect::<Result<_>>()?;
    let first = failures.into_iter().flatten().min_by_key(|failure| failure.seed);
    Ok((shared.progress(), first))
}

/// Tests one crash of a kept run.
///
/// # Errors
/// The problem after it.
pub fn look_at(kept: &Kept, at: At, oracle: Option<&Oracle<'_>>) -> std::result::Result<(), String> {
    let recording = kept.recording();
    let mut run = Run::new(&recording, kept.seed());
    run.one(at, oracle).map(drop)
}

impl Shared<'_> {
    fn progress(&self) -> Progress {
        let count = |(workload, count): (Workload, &AtomicU64)| (workload, count.load(Ordering::Relaxed));
        let points = Workload::ALL.into_iter().zip(&self.counts).map(count).collect();
        Progress { points, runs: self.runs.load(Ordering::Relaxed) }
    }

    fn work(&self) -> Result<Option<Failure>> {
        loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let only = self.search.only.is_some() && n > 0;
            if only || self.stop.load(Ordering::Relaxed) || self.progress().total() >= self.search.points {
                return Ok(None);
            }
            let found = self.one_run(n);
            if !matches!(found, Ok(None)) {
                self.stop.store(true, Ordering::Relaxed);
                return found;
            }
            self.runs.fetch_add(1, Ordering::Relaxed);
            (self.told)(&self.progress());
        }
    }

    fn one_run(&self, n: u64) -> Result<Option<Failure>> {
        let workloads = self.search.workloads;
        let workload = workloads[hectare_units::index_of(n % u64_of(workloads.len()))];
        let setup = Setup::new(workload, self.search.seed.wrapping_add(n), self.search.format);
        // Operations that panic have failed; opening a volume may panic, too.
        let recorded = caught(|| record(setup)).unwrap_or_else(|panicked| {
            let Setup { workload, format, seed, .. } = setup;
            let run = format!("workload {}, volume {}, seed {seed}", workload.name(), format.name);
            Err(Error::at(run, panicked))
        })?;
        let mut recording = recorded.recording;
        if self.search.flushes_lie {
            let lie = |event: &Event| if *event == Event::Flush { Event::Mark(0) } else { event.clone() };
            recording.log = recording.log.iter().map(lie).collect();
        }
        let found = match recorded.failure {
            Some(what) => Some((None, what)),
            None => self.crashes(&recording, setup).err().map(|(at, what)| (Some(at), what)),
        };
        Ok(found.map(|(at, what)| Failure {
            what,
            workload,
            format: setup.format,
            seed: setup.seed,
            at,
            kept: Kept::of(setup, at, &recording),
        }))
    }

    /// Looks at the crashes of a run.
    fn crashes(&self, recording: &Recording, setup: Setup) -> std::result::Result<(), (At, String)> {
        let mut run = Run::new(recording, setup.seed);
        let oracle = self.search.oracle;
        if let Some(at) = self.search.only {
            return run.one(at, oracle.map(|(oracle, _)| oracle)).map(drop).map_err(|what| (at, what));
        }
        let slot = Workload::ALL.iter().position(|workload| *workload == setup.workload).unwrap_or(0);
        let mut random = SplitMix64::stream(setup.seed, 2);
        let points: Vec<usize> = run.states.points().filter(|point| *point >= recording.first).collect();
        let one_in = (u64_of(points.len()) * STATES).div_ceil(POINTS_OF_RUN).max(1);
        for point in points {
            if !random.one_in(one_in) {
                continue;
            }
            let mut torn = vec![None];
            if run.states.pending(point) > 0 {
                torn.extend((1..STATES).map(|_| Some(random.below(1_000_000))));
            }
            for torn in torn {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let count = self.counts[slot].fetch_add(1, Ordering::Relaxed);
                let judge =
                    oracle.filter(|(_, every)| count.is_multiple_of(*every)).map(|(oracle, _)| oracle);
                let at = At { point, torn };
                run.one(at, judge).map_err(|what| (at, what))?;
            }
        }
        Ok(())
    }
}

/// The states of one run, in the order of its log.
struct Run<'a> {
    states: CrashStates<MemoryDevice>,
    expected: Expected<'a>,
    format: Format,
    seed: u64,
}

impl<'a> Run<'a> {
    fn new(recording: &'a Recording, seed: u64) -> Self {
        let base = MemoryDevice::from_bytes(&recording.image.to_vec());
        let states = CrashStates::new(base, Arc::clone(&recording.log));
        // Where room is short, a write takes what it finds, in as many transactions.
        let in_order = recording.format.journals_data && !recording.full;
        let expected = Expected::new(&recording.histories, in_order);
        Self { states, expected, format: recording.format, seed }
    }

    /// Looks at one crash.
    fn one(&mut self, at: At, oracle: Option<&Oracle<'_>>) -> std::result::Result<(), String> {
        let state = match at.torn {
            None => self.states.prefix(at.point),
            Some(seed) => self.states.torn(at.point, seed),
        };
        let state = state.map_err(|error| error.to_string())?;
        self.expected.advance(at.point);
        let mut random = SplitMix64::stream(self.seed ^ at.torn.unwrap_or(7), u64_of(at.point));
        let (twice, thorough, seed) = (random.one_in(8), random.one_in(4), random.draw());
        Trial { format: self.format, seed, twice, thorough, oracle }.run(state, &mut self.expected)
    }
}
