//! Runs one workload on one target, once per number of threads.
//!
//! Every run opens the target anew, works in the directory `bench-WORKLOAD` at its root, and ends with a sync
//! that is timed separately. An image is then closed and inspected ([`crate::inspect`]) before anything is
//! removed. Runs of one call don't find each other's files: the directory is removed between them. But
//! freeing used space does not restore its layout: [`bench_afresh`] gives every run a fresh copy of the
//! image.

use crate::image_copy::fresh_copy;
use crate::inspect::{Inspection, inspect};
use crate::latency::Latency;
use crate::run::{RAW, Run};
use crate::stats::AllocatorStats;
use crate::target::Target;
use crate::target::directory::Directory;
use crate::target::engine::{Engine, Through};
use crate::target::raw::Raw;
use crate::timing::{self, Timing, timed};
use crate::workload::{Ran, Workload};
use hectare_alloc::{Policy, Recording, Tunables};
use hectare_engine::{DataMode, Explanation, OpenOptions};
use hectare_tools::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// A directory of the host.
    Directory(PathBuf),
    /// A file of the host, which must not exist; the workload's files are parts of it.
    Raw(PathBuf),
}

/// How the engine works on an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How it chooses space.
    pub policy: Policy,
    /// The allocator's tunables.
    pub tunables: Tunables,
    /// The journal's data mode; `None`: the volume's default.
    pub data_mode: Option<DataMode>,
    /// Whether small appends are buffered before they are allocated (delayed allocation).
    pub delayed_allocation: bool,
    /// Whether each write over existing bytes starts a handle, as ext4 once did.
    pub overwrite_handles: bool,
    /// Whether requests for space and commits are timed, at the cost of two clock readings each.
    pub timed: bool,
    /// Whether the last requests for space are recorded.
    pub explain: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let (policy, tunables) = (Policy::default(), Tunables::default());
        Self {
            policy,
            tunables,
            data_mode: None,
            delayed_allocation: true,
            overwrite_handles: false,
            timed: false,
            explain: false,
        }
    }
}

impl Settings {
    /// The options for opening a volume.
    fn open_options(&self) -> OpenOptions {
        let Self { policy, tunables, data_mode, delayed_allocation, overwrite_handles, explain, .. } = *self;
        let defaults = OpenOptions::default();
        let delayed_bytes = if delayed_allocation { defaults.delayed_bytes } else { 0 };
        let record = explain.then_some(Recording::LAST);
        OpenOptions { policy, tunables, data_mode, delayed_bytes, overwrite_handles, record, ..defaults }
    }

    /// The settings that differ from the default, except the policy, as a suffix of the engine's name.
    fn suffix(&self) -> String {
        let mode = self.data_mode.map(|mode| format!("data={}", mode.name()));
        let nodelalloc = (!self.delayed_allocation).then(|| "nodelalloc".to_owned());
        let handles = self.overwrite_handles.then(|| "overwrite handles".to_owned());
        let all = mode.into_iter().chain(nodelalloc).chain(handles).chain(self.tunables.changed());
        all.map(|one| format!(" {one}")).collect()
    }
}

/// What happens to the files after a run.
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
    /// With how many threads, one run for each; unused if the workload itself sets it.
    pub threads: Vec<u32>,
    /// What happens to the files of the last run; those of earlier ones are removed.
    pub after: After,
    /// Whether to remove the directory of an earlier call instead of refusing.
    pub replace: bool,
    /// A name for reports.
    pub label: Option<String>,
}

impl Bench {
    /// The directory of the files, from the target's root.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("bench-{}", self.workload.name())
    }
}

/// Runs it, announcing each step through `say`.
///
/// # Errors
/// One line that names the target, or the file, and the reason. Files of a run that failed are removed if
/// they would have been otherwise.
pub fn bench(bench: &Bench, mut say: impl FnMut(&str)) -> Result<Vec<Run>> {
    let counts = counts(bench)?;
    let mut runs = Vec::new();
    for (nr, threads) in counts.iter().enumerate() {
        let threads = *threads;
        clear(bench, nr > 0 || bench.replace)?;
        say(&format!("{}, {threads} thread{}", bench.workload.name(), if threads == 1 { "" } else { "s" }));
        let run = once(bench, threads);
        if run.is_err() && bench.after == After::Remove {
            let _ = clear(bench, true); // the failure of the run is what is reported
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

/// Runs it as [`bench()`] does, but each run on a fresh copy of the image, which is removed after it: all start
/// from the same bytes, and the image is not changed. Messages name the image.
///
/// # Errors
/// Those of [`bench()`] and [`fresh_copy`]; also if the target is no image.
pub fn bench_afresh(of: &Bench, mut say: impl FnMut(&str)) -> Result<Vec<Run>> {
    let On::Engine { image, through, settings } = &of.on else {
        return Err(Error::Invalid("a fresh copy is made of an image: use engine:IMAGE".into()));
    };
    let (through, settings) = (*through, *settings);
    let one = |threads: u32| {
        let copy = fresh_copy(image)?;
        let on = On::Engine { image: copy.path().to_owned(), through, settings };
        let run = Bench { on, threads: vec![threads], after: After::Keep, ..of.clone() };
        let runs = bench(&run, &mut say).map_err(|error| renamed(error, copy.path(), image))?;
        let target = image.display().to_string();
        Ok(runs.into_iter().map(move |run| Run { target: target.clone(), folder: None, ..run }))
    };
    let runs: Result<Vec<_>> = counts(of)?.into_iter().map(one).collect();
    Ok(runs?.into_iter().flatten().collect())
}

/// An error about a copy, as one about the image.
fn renamed(error: Error, copy: &Path, image: &Path) -> Error {
    let (copy, image) = (copy.display().to_string(), image.display().to_string());
    match error {
        Error::At { what, reason } => Error::At { what: what.replace(&copy, &image), reason },
        Error::Invalid(text) => Error::Invalid(text.replace(&copy, &image)),
    }
}

/// The numbers of threads, a run for each.
fn counts(bench: &Bench) -> Result<Vec<u32>> {
    let own = bench.workload.own_threads().map(|threads| vec![threads]);
    let counts = own.unwrap_or_else(|| bench.threads.clone());
    if counts.is_empty() || counts.iter().any(|count| !(1..=4096).contains(count)) {
        return Err(Error::Invalid("the number of threads is 1 to 4096".into()));
    }
    Ok(counts)
}

/// Removes the directory, or refuses because it exists.
fn clear(bench: &Bench, may_remove: bool) -> Result<()> {
    let folder = bench.folder();
    let is_there = looking(&bench.on, |target| match target.exists(&folder)? {
        true if !may_remove => {
            let reason = match bench.on {
                On::Raw(_) => "it is there; --replace removes it first".to_owned(),
                _ => format!("/{folder} is there from an earlier run; --replace removes it first"),
            };
            Err(Error::at(target.name(), reason))
        }
        is_there => Ok(is_there),
    })?;
    if !is_there {
        return Ok(());
    }
    with_target(&bench.on, |target| {
        target.remove_dir_all(&folder)?;
        target.sync()
    })
    .map(|(cleared, _)| cleared)
}

/// Opens the target read-only.
fn looking<T>(on: &On, act: impl FnOnce(&dyn Target) -> Result<T>) -> Result<T> {
    match on {
        On::Engine { image, .. } => act(&Engine::look(image)?),
        On::Directory(_) | On::Raw(_) => with_target(on, act).map(|(looked, _)| looked),
    }
}

/// Opens the target, uses it, closes it; for an image, with the seconds that opening and closing took.
fn with_target<T>(on: &On, act: impl FnOnce(&dyn Target) -> Result<T>) -> Result<(T, Option<[f64; 2]>)> {
    match on {
        On::Directory(base) => Ok((act(&Directory::open(base)?)?, None)),
        On::Raw(file) => Ok((act(&Raw::new(file))?, None)),
        On::Engine { image, through, settings } => {
            let times = settings.timed.then(Arc::default);
            let (engine, open) =
                timed(|| Engine::open_watched(image, *through, settings.open_options(), times));
            let engine = engine?;
            let result = act(&engine);
            let (closed, close) = timed(|| engine.close());
            let result = result?;
            closed?;
            Ok((result, Some([open, close])))
        }
    }
}

/// The results of a run before the image is closed.
struct Worked {
    ran: Ran,
    sync_seconds: f64,
    allocator: Option<AllocatorStats>,
    pauses: Option<Latency>,
    timing: Timing,
    explanation: Option<Explanation>,
    remarks: Vec<String>,
    name: String,
}

fn once(bench: &Bench, threads: u32) -> Result<Run> {
    let folder = bench.folder();
    let workload = looking(&bench.on, |target| bench.workload.fitted(target, threads))?;
    let (mut worked, ends) = with_target(&bench.on, |target| work(&workload, target, &folder, threads))?;
    [worked.timing.open_seconds, worked.timing.close_seconds] = ends.map_or([None; 2], |ends| ends.map(Some));
    let (system, policy) = match &bench.on {
        On::Engine { through, settings, .. } => {
            (format!("{}{}", through.system(), settings.suffix()), Some(settings.policy.to_string()))
        }
        On::Raw(_) => (RAW.to_owned(), None),
        On::Directory(base) => (Directory::open(base)?.file_system().unwrap_or("folder".into()), None),
    };
    Ok(Run {
        workload: bench.workload.name().to_owned(),
        variant: workload.variant(),
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
        timing: worked.timing,
        explanation: worked.explanation,
        remarks: worked.remarks,
    })
}

fn work(workload: &Workload, target: &dyn Target, folder: &str, threads: u32) -> Result<Worked> {
    target.create_dir(folder)?;
    target.sync()?;
    let before = target.allocator_stats();
    let _ = target.take_times(); // of making the directory
    let processor = timing::processor();
    let mut ran = workload.run(target, folder, threads)?;
    let (synced, sync_seconds) = timed(|| target.sync());
    synced?;
    let spent = timing::processor()
        .zip(processor)
        .map(|(after, before)| [after[0] - before[0], after[1] - before[1]]);
    let [reservations, commits] = target.take_times();
    let timing = Timing {
        user_seconds: spent.map(|spent| spent[0]),
        system_seconds: spent.map(|spent| spent[1]),
        reservations,
        commits,
        ..Timing::default()
    };
    let counted = || target.allocator_stats().map(|after| after.since(&before.unwrap_or_default()));
    let allocator = ran.allocator.take().or_else(counted);
    let (pauses, remarks, explanation) = (target.commit_pauses(), target.remarks(), target.explanation());
    Ok(Worked { ran, sync_seconds, allocator, pauses, timing, explanation, remarks, name: target.name() })
}

/// Only a closed image can be inspected: a mounted one must be unmounted by the user first.
fn look(on: &On, folder: &str) -> Result<Option<Inspection>> {
    match on {
        On::Engine { image, .. } => inspect(image, folder).map(Some),
        On::Directory(_) | On::Raw(_) => Ok(None),
    }
}
