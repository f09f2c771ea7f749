//! One workload on one target, once per number of threads.
//!
//! Every run opens the target anew, works in the folder `bench-WORKLOAD` at its root, and ends with a sync
//! that is timed by itself. An image is then closed and looked at ([`crate::inspect`]) before anything is
//! removed. Runs of one call don't find each other's files: the folder is removed between them.

use crate::error::{Error, Result};
use crate::inspect::{Inspection, inspect};
use crate::latency::Latency;
use crate::run::{RAW, Run};
use crate::stats::AllocatorStats;
use crate::target::Target;
use crate::target::directory::Directory;
use crate::target::engine::{Engine, Through};
use crate::target::raw::Raw;
use crate::workload::{Ran, Workload};
use hectare_alloc::{Policy, Recording, Tunables};
use hectare_engine::{DataMode, Explanation, OpenOptions};
use std::path::PathBuf;
use std::time::Instant;

/// What to run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum On {
    /// An image, by our engine.
    Engine {
        /// The file or block device.
        image: PathBuf,
        /// How it reaches the image.
        through: Through,
        /// How the engine works.
        settings: Settings,
    },
    /// A folder of the host.
    Directory(PathBuf),
    /// A file of the host, which must not exist; the workload's files are parts of it.
    Raw(PathBuf),
}

/// How the engine works on an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How it chooses space.
    pub policy: Policy,
    /// The knobs of the search for space.
    pub tunables: Tunables,
    /// What the journal promises of data; `None`: what the volume asks for.
    pub data_mode: Option<DataMode>,
    /// Whether small appends are buffered before they get a place (delayed allocation).
    pub delayed_allocation: bool,
    /// Whether what the last requests for space went through is kept.
    pub explain: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let (policy, tunables) = (Policy::default(), Tunables::default());
        Self { policy, tunables, data_mode: None, delayed_allocation: true, explain: false }
    }
}

impl Settings {
    /// What a volume is opened with.
    fn open_options(&self) -> OpenOptions {
        let Self { policy, tunables, data_mode, delayed_allocation, explain } = *self;
        let defaults = OpenOptions::default();
        let delayed_bytes = if delayed_allocation { defaults.delayed_bytes } else { 0 };
        OpenOptions {
            policy,
            tunables,
            data_mode,
            delayed_bytes,
            record: explain.then_some(Recording::LAST),
            ..defaults
        }
    }

    /// What differs from the default, beside the policy, as a name for the engine so set.
    fn suffix(&self) -> String {
        let mode = self.data_mode.map(|mode| format!("data={}", mode.name()));
        let nodelalloc = (!self.delayed_allocation).then(|| "nodelalloc".to_owned());
        let all = mode.into_iter().chain(nodelalloc).chain(self.tunables.changed());
        all.map(|one| format!(" {one}")).collect()
    }
}

/// What becomes of the files when a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// They stay.
    Keep,
    /// They are removed.
    Remove,
}

/// What to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Bench {
    /// What to do.
    pub workload: Workload,
    /// Where.
    pub on: On,
    /// With how many threads, one run for each; of no use where the workload itself says it.
    pub threads: Vec<u32>,
    /// What becomes of the files of the last run; those of earlier ones are removed.
    pub after: After,
    /// Whether to remove the folder of an earlier call instead of refusing.
    pub replace: bool,
    /// A name for reports.
    pub label: Option<String>,
}

impl Bench {
    /// The folder the files lie in, from the target's root.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("bench-{}", self.workload.name())
    }
}

/// Runs it, telling `say` what comes next.
///
/// # Errors
/// One line that names the target, or the file, and the reason. Files of a run that failed are removed if
/// they would have been otherwise.
pub fn bench(bench: &Bench, mut say: impl FnMut(&str)) -> Result<Vec<Run>> {
    let own = bench.workload.own_threads().map(|threads| vec![threads]);
    let counts = own.unwrap_or_else(|| bench.threads.clone());
    if counts.is_empty() || counts.iter().any(|count| !(1..=4096).contains(count)) {
        return Err(Error::Invalid("the number of threads is 1 to 4096".into()));
    }
    let mut runs = Vec::new();
    for (nr, threads) in counts.iter().enumerate() {
        let threads = *threads;
        clear(bench, nr > 0 || bench.replace)?;
        say(&format!("{}, {threads} thread{}", bench.workload.name(), if threads == 1 { "" } else { "s" }));
        let run = once(bench, threads);
        if run.is_err() && bench.after == After::Remove {
            let _ = clear(bench, true); // the failure of the run is what is told
        }
        runs.push(run?);
    }
    if bench.after == After::Remove {
        clear(bench, true)?;
        runs.iter_mut().for_each(|run| run.folder = None);
    } else if let Some((_, earlier)) = runs.split_last_mut() {
        earlier.iter_mut().for_each(|run| run.folder = None);
    }
    Ok(runs)
}

/// Removes the folder, or refuses because it is there.
fn clear(bench: &Bench, may_remove: bool) -> Result<()> {
    let folder = bench.folder();
    with_target(&bench.on, |target| {
        if !target.exists(&folder)? {
            return Ok(());
        }
        if !may_remove {
            let reason = match bench.on {
                On::Raw(_) => "it is there; --replace removes it first".to_owned(),
                _ => format!("/{folder} is there from an earlier run; --replace removes it first"),
            };
            return Err(Error::at(target.name(), reason));
        }
        target.remove_dir_all(&folder)?;
        target.sync()
    })
}

/// Opens the target, uses it, closes it.
fn with_target<T>(on: &On, act: impl FnOnce(&dyn Target) -> Result<T>) -> Result<T> {
    match on {
        On::Directory(base) => act(&Directory::open(base)?),
        On::Raw(file) => act(&Raw::new(file)),
        On::Engine { image, through, settings } => {
            let engine = Engine::open(image, *through, settings.open_options())?;
            let result = act(&engine);
            let closed = engine.close();
            let result = result?;
            closed?;
            Ok(result)
        }
    }
}

/// What a run says before the image is closed.
struct Worked {
    ran: Ran,
    sync_seconds: f64,
    allocator: Option<AllocatorStats>,
    pauses: Option<Latency>,
    explanation: Option<Explanation>,
    remarks: Vec<String>,
    name: String,
}

fn once(bench: &Bench, threads: u32) -> Result<Run> {
    let folder = bench.folder();
    let worked = with_target(&bench.on, |target| work(bench, target, &folder, threads))?;
    let (system, policy) = match &bench.on {
        On::Engine { through, settings, .. } => {
            (format!("{}{}", through.system(), settings.suffix()), Some(settings.policy.to_string()))
        }
        On::Raw(_) => (RAW.to_owned(), None),
        On::Directory(base) => (Directory::open(base)?.file_system().unwrap_or("folder".into()), None),
    };
    Ok(Run {
        workload: bench.workload.name().to_owned(),
        variant: bench.workload.variant(),
        target: worked.name,
        policy,
        label: bench.label.clone(),
        threads: worked.ran.threads,
        measure: worked.ran.measure,
        jobs: worked.ran.jobs,
        wall_seconds: worked.ran.wall_seconds,
        sync_seconds: worked.sync_seconds,
        inspection: look(&bench.on, &folder)?,
        folder: (system != RAW).then_some(folder),
        system,
        allocator: worked.allocator,
        pauses: worked.pauses,
        explanation: worked.explanation,
        remarks: worked.remarks,
    })
}

fn work(bench: &Bench, target: &dyn Target, folder: &str, threads: u32) -> Result<Worked> {
    target.create_dir(folder)?;
    target.sync()?;
    let before = target.allocator_stats();
    let ran = bench.workload.run(target, folder, threads)?;
    let started = Instant::now();
    target.sync()?;
    let sync_seconds = started.elapsed().as_secs_f64();
    let allocator = target.allocator_stats().map(|after| after.since(&before.unwrap_or_default()));
    let (pauses, remarks, explanation) = (target.commit_pauses(), target.remarks(), target.explanation());
    Ok(Worked { ran, sync_seconds, allocator, pauses, explanation, remarks, name: target.name() })
}

/// Only a closed image can be looked at: of a folder somebody else unmounts the image first.
fn look(on: &On, folder: &str) -> Result<Option<Inspection>> {
    match on {
        On::Engine { image, .. } => inspect(image, folder).map(Some),
        On::Directory(_) | On::Raw(_) => Ok(None),
    }
}
