//! A workload runs on a volume whose device records everything.

use super::cell;
use super::content::Edit;
use super::dice::Dice;
use super::format::{FORMATS, Format, open_options};
use super::history::{BEGINS, Done, History, number};
use super::op::Op;
use super::tree::Tree;
use super::workload::{Generator, Workload};
use crate::error::{Error, Result};
use hectare_device::{Device, Event, MemoryDevice, OverlayDevice, RecordDevice};
use hectare_engine::{Creation, FallocateMode, NewNode, OpenFile, RenameMode, Volume, XattrHow};
use hectare_units::{low32, u64_of};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ids of a thread's files begin at a multiple of this, the first of which is its directory's.
const IDS: u32 = 100_000;

/// Operations before it is looked at again how far the log is.
const WARM_STEP: usize = 8;
/// How often it is looked at; where little is synced, it does not get to its end.
const WARM_STEPS_MAX: usize = 400;

type Recorder = RecordDevice<OverlayDevice<Arc<MemoryDevice>>>;

/// What a run consists of; all of it follows from the workload and the seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Setup {
    pub(super) workload: Workload,
    pub(super) format: Format,
    pub(super) seed: u64,
    /// Operations of each thread before those whose crashes are looked at.
    warm: usize,
    operations: usize,
    discard: bool,
    /// The warming up goes on until the log is about to begin anew.
    wraps: bool,
    /// Open files are closed before the volume is.
    tidy: bool,
}

impl Setup {
    /// The setup of a seed; with a format of its own choice if none is given.
    pub(super) fn new(workload: Workload, seed: u64, format: Option<Format>) -> Self {
        let mut dice = Dice::new(seed, 1);
        let chosen = dice.pick(&FORMATS).copied().unwrap_or(FORMATS[0]);
        let warm = match workload {
            Workload::Directory => 150 + dice.below(150),
            _ if dice.one_in(3) => 0,
            _ => dice.below(200),
        };
        let operations = 20 + dice.below(30);
        Self {
            workload,
            format: format.unwrap_or(chosen),
            seed,
            warm: hectare_units::index_of(warm / u64_of(workload.threads())),
            operations: hectare_units::index_of(operations),
            discard: dice.one_in(4),
            tidy: !dice.one_in(4),
            wraps: dice.one_in(4),
        }
    }
}

/// Everything a run did.
pub(super) struct Recording {
    /// The kind of volume.
    pub(super) format: Format,
    /// The volume before it.
    pub(super) image: Arc<MemoryDevice>,
    /// What it did to the device.
    pub(super) log: Arc<[Event]>,
    /// What each thread did to the volume.
    pub(super) histories: Vec<History>,
    /// The first point to look at.
    pub(super) first: usize,
}

/// A run, whole or up to a failure.
pub(super) struct Recorded {
    pub(super) recording: Recording,
    /// The operation that failed.
    pub(super) failure: Option<String>,
}

/// Runs a workload.
///
/// # Errors
/// If there is no volume to run it on.
pub(super) fn record(setup: Setup) -> Result<Recorded> {
    let threads = setup.workload.threads();
    let tops: Vec<(String, u32)> =
        (0..threads).map(|n| (format!("t{n}"), IDS * (low32(u64_of(n)) + 1))).collect();
    let image = setup.format.make(setup.seed, &tops)?;
    let recorder = Arc::new(RecordDevice::new(OverlayDevice::new(Arc::clone(&image))));
    let mut options = open_options(setup.seed);
    options.discard = setup.discard;
    let volume = Volume::open(Arc::clone(&recorder) as Arc<dyn Device>, options)
        .map_err(|error| Error::at(format!("volume {}", setup.format.name), error))?;
    let first = AtomicUsize::new(0);
    let workers: Vec<Worker<'_>> = (0u64..)
        .zip(tops)
        .map(|(n, (top, id))| {
            let tree = Tree::new(&top, id);
            let dice = Dice::new(setup.seed, 10 + n);
            let generator = Generator::new(setup.workload, dice, setup.format.unit(), tree, id + 1);
            let history = History { top, id, done: Vec::new() };
            let (volume, recorder, open) = (&volume, &recorder, HashMap::new());
            Worker { volume, recorder, generator, history, open, failure: None }
        })
        .collect();
    let mut workers: Vec<Worker<'_>> = std::thread::scope(|scope| {
        let first = &first;
        let running: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.work(setup, first))).collect();
        let end = |panic| std::panic::resume_unwind(panic);
        running.into_iter().map(|thread| thread.join().unwrap_or_else(end)).collect()
    });
    let first = if setup.warm == 0 && !setup.wraps { 0 } else { first.into_inner() };
    workers[0].close(setup.tidy);
    let failure = workers.iter_mut().find_map(|worker| worker.failure.take());
    let histories = workers.into_iter().map(|worker| worker.history).collect();
    let recording = Recording { format: setup.format, image, log: recorder.log(), histories, first };
    Ok(Recorded { recording, failure })
}

struct Worker<'a> {
    volume: &'a Volume,
    recorder: &'a Recorder,
    generator: Generator,
    history: History,
    open: HashMap<u32, OpenFile>,
    failure: Option<String>,
}

impl Worker<'_> {
    /// All it has to do; the first tells from which event on crashes are looked at.
    fn work(mut self, setup: Setup, first: &AtomicUsize) -> Self {
        self.run(setup.warm);
        if setup.wraps {
            self.run_to_the_end_of_the_log(setup.format);
        }
        if self.history.id == IDS {
            first.store(self.recorder.events(), Ordering::SeqCst);
        }
        self.run(setup.operations);
        self
    }

    /// Works until little of the log is left before its end, or for long.
    fn run_to_the_end_of_the_log(&mut self, format: Format) {
        for _ in 0..WARM_STEPS_MAX {
            let log = self.recorder.log();
            let mut places = log.iter().filter_map(|event| match event {
                Event::Write { at, .. } => Some(at.get()),
                _ => None,
            });
            let Some(journal) = places.next().map(|at| format.journal_at(at)) else { return };
            let last = places.rev().find(|at| journal.contains(at)).unwrap_or(journal.start);
            if self.failure.is_some() || journal.end - last < (journal.end - journal.start) / 16 {
                return;
            }
            self.run(WARM_STEP);
        }
    }

    fn run(&mut self, operations: usize) {
        for _ in 0..operations {
            if self.failure.is_some() {
                return;
            }
            let op = self.generator.next();
            self.one(op, |worker, op, number| worker.perform(op, number));
        }
    }

    fn one(&mut self, op: Op, perform: impl FnOnce(&mut Self, &Op, u32) -> hectare_engine::Result<()>) {
        let number = number(self.history.done.len());
        // What other threads did is promised by a sync if it had returned before this mark.
        let began = if op == Op::SyncAll { self.recorder.mark(BEGINS) } else { self.recorder.events() };
        if let Err(error) = perform(self, &op, number) {
            self.failure = Some(format!("operation {number} ({op}) failed: {error}"));
        }
        // A mark says that what a sync wrote last had returned.
        let ended = if op.is_sync() { self.recorder.mark(number.into()) } else { self.recorder.events() };
        self.history.done.push(Done { op, began, ended });
    }

    /// Closes the volume, which makes everything durable.
    fn close(&mut self, tidy: bool) {
        if tidy {
            self.open.clear();
        }
        if self.failure.is_none() {
            self.one(Op::SyncAll, |worker, _, _| worker.volume.close());
        }
    }

    fn file(&mut self, id: u32) -> hectare_engine::Result<&OpenFile> {
        if !self.open.contains_key(&id) {
            let path = self.generator.tree().path(id).ok_or(hectare_engine::Error::NotFound)?;
            self.open.insert(id, self.volume.open_file(path)?);
        }
        self.open.get(&id).ok_or(hectare_engine::Error::NotFound)
    }

    fn perform(&mut self, op: &Op, number: u32) -> hectare_engine::Result<()> {
        let volume = self.volume;
        let creation = |id: &u32| Creation { permissions: 0o755, uid: *id, gid: 0 };
        match op {
            Op::Create { path, id } => volume.make(path, NewNode::File, creation(id)).map(drop),
            Op::MakeDir { path, id } => volume.create_dir(path, creation(id)).map(drop),
            Op::Symlink { path, id, target } => volume.symlink(target, path, creation(id)).map(drop),
            Op::Link { from, to } => volume.hard_link(from, to),
            Op::Rename { from, to } => volume.rename_path(from, to, RenameMode::Replace),
            Op::Exchange { a, b } => volume.rename_path(a, b, RenameMode::Exchange),
            Op::Unlink { path } => volume.remove_file(path),
            Op::RemoveDir { path } => volume.remove_dir(path),
            Op::SetXattr { path, name, len } => {
                let id = self.generator.tree().id(path).unwrap_or(0);
                let value = cell::attribute(id, number, *len);
                volume.set_xattr(volume.resolve(path, false)?, name, &value, XattrHow::Either)
            }
            Op::RemoveXattr { path, name } => volume.remove_xattr(volume.resolve(path, false)?, name),
            Op::Edit { id, edit } => perform_edit(self.file(*id)?, *edit, *id, number),
            Op::Close { id } => {
                self.open.remove(id);
                Ok(())
            }
            Op::SyncFile { id } => self.file(*id)?.sync(),
            Op::SyncData { id } => self.file(*id)?.sync_data(),
            Op::SyncDir { path } => volume.sync_inode(volume.resolve(path, false)?),
            Op::SyncAll => volume.sync(),
        }
    }
}

fn perform_edit(file: &OpenFile, edit: Edit, id: u32, number: u32) -> hectare_engine::Result<()> {
    match edit {
        Edit::Write { at, len } => file.write_all_at(at, &cell::written(id, number, at, len)),
        Edit::Resize { size } => file.set_len(size),
        Edit::Allocate { at, len, keep_size } => {
            file.fallocate(FallocateMode::Allocate { keep_size }, at, len)
        }
        Edit::Punch { at, len } => file.fallocate(FallocateMode::PunchHole, at, len),
        Edit::Zero { at, len, keep_size } => file.fallocate(FallocateMode::ZeroRange { keep_size }, at, len),
        Edit::Collapse { at, len } => file.fallocate(FallocateMode::CollapseRange, at, len),
        Edit::Insert { at, len } => file.fallocate(FallocateMode::InsertRange, at, len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the log begins anew among the crashes that are looked at.
    fn wraps(recording: &Recording, format: Format) -> bool {
        let places = recording.log.iter().map(|event| match event {
            Event::Write { at, .. } => at.get(),
            _ => 0,
        });
        let places: Vec<u64> = places.collect();
        let journal = format.journal_at(places[0]);
        // Not its superblock.
        let inside = places[recording.first..].iter().filter(|at| **at > journal.start && **at < journal.end);
        inside.clone().zip(inside.skip(1)).any(|(before, at)| before > at)
    }

    #[test]
    fn the_log_begins_anew_in_some_runs() {
        let mut count = 0;
        for seed in 0..32 {
            let setup = Setup::new(Workload::Append, seed, None);
            let run = record(setup).unwrap();
            assert_eq!(run.failure, None);
            count += usize::from(wraps(&run.recording, setup.format));
        }
        assert!(count >= 4, "{count} of 32");
    }

    #[test]
    fn a_run_follows_from_its_seed() {
        for workload in [Workload::Names, Workload::Fallocate, Workload::Xattr] {
            let run = || record(Setup::new(workload, 7, None)).unwrap().recording;
            let (one, other) = (run(), run());
            assert!(one.log == other.log && one.histories == other.histories, "{}", workload.name());
        }
    }
}
