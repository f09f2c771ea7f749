//! Runs a workload on a volume whose device records everything.

use super::content::Edit;
use super::devices::Parts;
use super::format::{FORMATS, Format, open_options};
use super::history::{BEGINS, Done, History, number};
use super::op::Op;
use super::self_describing;
use super::tree::Tree;
use super::trial::caught;
use super::workload::{Generator, Workload};
use hectare_device::{Event, MemoryDevice, OverlayDevice, RecordDevice};
use hectare_engine::{Creation, Error, FallocateMode, NewNode, OpenFile, RenameMode, Volume, XattrHow};
use hectare_tools::error::Result;
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of, low32, u64_of};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Ids of a thread's files begin at a multiple of this, the first of which is its directory's.
const IDS: u32 = 100_000;

/// Operations between two checks of the log's position.
const WARM_STEP: usize = 8;
/// The maximum number of checks; with few syncs, the log does not get to its end.
const WARM_STEPS_MAX: usize = 400;

/// How old a change gets where a thread of the volume commits.
const COMMIT_INTERVAL: Duration = Duration::from_micros(300);

type Recorder = RecordDevice<Arc<OverlayDevice<Arc<MemoryDevice>>>>;

/// What a run consists of; all of it follows from the workload and the seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Setup {
    pub(super) workload: Workload,
    pub(super) format: Format,
    pub(super) seed: u64,
    /// Operations of each thread before those whose crashes are tested.
    warm: usize,
    operations: usize,
    discard: bool,
    /// Whether warming up continues until the log is about to wrap.
    wraps: bool,
    /// Open files are closed before the volume is.
    tidy: bool,
    /// The space left free, if it is limited.
    left: Option<Bytes>,
}

impl Setup {
    /// The setup of a seed; with a format of its own choice if none is given.
    pub(super) fn new(workload: Workload, seed: u64, format: Option<Format>) -> Self {
        let mut random = SplitMix64::stream(seed, 1);
        let chosen = random.pick(&FORMATS).copied().unwrap_or(FORMATS[0]);
        let warm = match workload {
            Workload::Directory => 150 + random.below(150),
            _ if random.one_in(3) => 0,
            _ => random.below(200),
        };
        let operations = 20 + random.below(30);
        Self {
            workload,
            format: format.unwrap_or(chosen),
            seed,
            warm: index_of(warm / u64_of(workload.threads())),
            operations: index_of(operations),
            discard: random.one_in(4),
            tidy: !random.one_in(4),
            wraps: random.one_in(4),
            left: workload.runs_full().then(|| Bytes::kib(random.below(400))),
        }
    }
}

/// Everything a run did.
pub(super) struct Recording {
    /// The kind of volume.
    pub(super) format: Format,
    /// Whether the volume had little room left.
    pub(super) full: bool,
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
    let image = setup.format.make(setup.seed, &tops, setup.left)?;
    let recorder = Arc::new(RecordDevice::new(Arc::new(OverlayDevice::new(Arc::clone(&image)))));
    let mut options = open_options(setup.seed);
    options.discard = setup.discard;
    options.commit_interval = setup.workload.has_committer().then_some(COMMIT_INTERVAL);
    let volume = Parts::recorded(setup.format.sizes(), &recorder)?
        .open(options)
        .map_err(|error| hectare_tools::error::Error::at(format!("volume {}", setup.format.name), error))?;
    let first = AtomicUsize::new(0);
    let workers: Vec<Worker<'_>> = (0u64..)
        .zip(tops)
        .map(|(n, (top, id))| {
            let tree = Tree::new(&top, id);
            let random = SplitMix64::stream(setup.seed, 10 + n);
            let generator = Generator::new(setup.workload, random, setup.format, tree, id + 1);
            let history = History { top, id, done: Vec::new() };
            let (volume, recorder, open) = (&volume, &recorder, HashMap::new());
            let may_be_full = setup.left.is_some();
            Worker { volume, recorder, generator, history, open, may_be_full, failure: None }
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
    let (format, full, log) = (setup.format, setup.left.is_some(), recorder.log());
    let recording = Recording { format, full, image, log, histories, first };
    Ok(Recorded { recording, failure })
}

struct Worker<'a> {
    volume: &'a Volume,
    recorder: &'a Recorder,
    generator: Generator,
    history: History,
    open: HashMap<u32, OpenFile>,
    /// Whether it is no failure that there is no room.
    may_be_full: bool,
    failure: Option<String>,
}

impl Worker<'_> {
    /// Does all of its work; stores in `first` the event from which on crashes are tested.
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
            if let Some(done) = self.history.done.last() {
                self.generator.note(&done.op);
            }
        }
    }

    /// Does an operation and notes what was done, which on a full volume may be less.
    fn one(&mut self, op: Op, perform: impl FnOnce(&mut Self, &Op, u32) -> hectare_engine::Result<Op>) {
        let number = number(self.history.done.len());
        // What other threads did is promised by a sync if it had returned before this mark.
        let began = if op == Op::SyncAll { self.recorder.mark(BEGINS) } else { self.recorder.events() };
        let op = match caught(|| perform(self, &op, number)) {
            Ok(Ok(done)) => done,
            Ok(Err(Error::NoSpace)) if self.may_be_full && !op.is_sync() => {
                Op::Refused { what: op.to_string() }
            }
            Ok(Err(error)) => {
                self.failure = Some(format!("operation {number} ({op}) failed: {error}"));
                op
            }
            Err(panicked) => {
                self.failure = Some(format!("operation {number} ({op}) {panicked}"));
                op
            }
        };
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
            self.one(Op::SyncAll, |worker, _, _| worker.volume.close().map(|()| Op::SyncAll));
        }
    }

    fn file(&mut self, id: u32) -> hectare_engine::Result<&OpenFile> {
        if !self.open.contains_key(&id) {
            let path = self.generator.tree().path(id).ok_or(Error::NotFound)?;
            self.open.insert(id, self.volume.open_file(path)?);
        }
        self.open.get(&id).ok_or(Error::NotFound)
    }

    /// Does an operation; returns what was done.
    fn perform(&mut self, op: &Op, number: u32) -> hectare_engine::Result<Op> {
        if let Op::Edit { id, edit } = *op {
            let may_be_full = self.may_be_full;
            let done = match (self.file(id)?, edit) {
                (file, Edit::Write { at, len }) if may_be_full => write_some(file, id, number, (at, len))?,
                (file, _) => match perform_edit(file, edit, id, number) {
                    Err(Error::NoSpace) if may_be_full => part_of(file, edit)?,
                    result => Some(result.map(|()| edit)?),
                },
            };
            let refused = Op::Refused { what: op.to_string() };
            return Ok(done.map_or(refused, |edit| Op::Edit { id, edit }));
        }
        self.perform_whole(op, number).map(|()| op.clone())
    }

    fn perform_whole(&mut self, op: &Op, number: u32) -> hectare_engine::Result<()> {
        let volume = self.volume;
        let creation = |id: &u32| Creation { permissions: 0o755, umask: 0, uid: *id, gid: 0 };
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
                let value = self_describing::attribute(id, number, *len);
                volume.set_xattr(volume.resolve(path, false)?, name, &value, XattrHow::Either)
            }
            Op::RemoveXattr { path, name } => volume.remove_xattr(volume.resolve(path, false)?, name),
            Op::Close { id } => {
                self.open.remove(id);
                Ok(())
            }
            Op::SyncFile { id } => self.file(*id)?.sync(),
            Op::SyncData { id } => self.file(*id)?.sync_data(),
            Op::SyncDir { path } => volume.sync_inode(volume.resolve(path, false)?),
            Op::SyncAll => volume.sync(),
            Op::Edit { .. } | Op::Refused { .. } => Ok(()),
        }
    }
}

fn perform_edit(file: &OpenFile, edit: Edit, id: u32, number: u32) -> hectare_engine::Result<()> {
    match edit {
        Edit::Write { .. } | Edit::Comb { .. } => edit
            .written()
            .try_for_each(|(at, len)| file.write_all_at(at, &self_describing::written(id, number, at, len))),
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

/// Writes until there is no room; what was written, if anything was.
fn write_some(
    file: &OpenFile,
    id: u32,
    number: u32,
    (at, len): (u64, u64),
) -> hectare_engine::Result<Option<Edit>> {
    let data = self_describing::written(id, number, at, len);
    let mut done = 0;
    while done < len {
        match file.write_at(at + done, &data[index_of(done)..]) {
            Err(Error::NoSpace) => break,
            written => done += u64_of(written?),
        }
    }
    Ok((done > 0).then_some(Edit::Write { at, len: done }))
}

/// The part of an edit that was done before space ran out; none if it has no visible effect.
///
/// Allocating shows in the size alone. If a range was punched in part, the file is truncated before it.
fn part_of(file: &OpenFile, edit: Edit) -> hectare_engine::Result<Option<Edit>> {
    let size = file.metadata()?.size;
    match edit {
        Edit::Allocate { keep_size: true, .. } => Ok(None),
        Edit::Allocate { at, keep_size, .. } => {
            Ok((size > at).then_some(Edit::Allocate { at, len: size - at, keep_size }))
        }
        Edit::Punch { at, .. } => {
            let size = size.min(at);
            file.set_len(size)?;
            Ok(Some(Edit::Resize { size }))
        }
        _ => Err(Error::NoSpace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_engine::OpenOptions;

    /// Whether the log wraps among the tested crashes.
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

    fn run_of(workload: Workload, format: &str, seed: u64) -> Recording {
        let run = record(Setup::new(workload, seed, Format::by_name(format))).unwrap();
        assert_eq!(run.failure, None);
        run.recording
    }

    #[test]
    fn full_volumes_refuse_and_do_in_part() {
        let (mut refused, mut done) = (0, 0);
        for seed in 0..8 {
            for history in run_of(Workload::Full, "1k", seed).histories {
                let full = history.done.iter().filter(|done| matches!(done.op, Op::Refused { .. })).count();
                refused += full;
                done += history.done.len() - full;
            }
        }
        assert!(refused > 50 && done > refused, "{refused} refused, {done} done");
    }

    #[test]
    fn large_files_have_trees_of_several_leaves() {
        // A leaf of 1 KiB has room for 84 extents.
        let most = (0..6).map(|seed| {
            let recording = run_of(Workload::Large, "1k", seed);
            let base = OverlayDevice::new(Arc::clone(&recording.image));
            let mut states = hectare_device::CrashStates::new(base, Arc::clone(&recording.log));
            let end: Arc<dyn hectare_device::Device> = Arc::new(states.prefix(recording.log.len()).unwrap());
            let volume = Volume::open(end, OpenOptions::read_only()).unwrap();
            let files = volume.read_dir("t0").unwrap().into_iter().filter_map(|entry| {
                let is_file = volume.stat(entry.inode).unwrap().is_file();
                is_file.then(|| volume.open_inode(entry.inode).unwrap().extents().unwrap().len())
            });
            files.max().unwrap_or(0)
        });
        let most: Vec<usize> = most.collect();
        assert!(most.iter().any(|extents| *extents > 2 * 84), "{most:?}");
    }

    #[test]
    fn a_thread_of_the_volume_commits_without_being_asked() {
        let mut flushes = 0;
        for seed in 0..8 {
            let recording = run_of(Workload::Committer, "1k", seed);
            let syncs: Vec<_> = recording.histories[0].done.iter().filter(|done| done.op.is_sync()).collect();
            let asked = |event: usize| syncs.iter().any(|sync| (sync.began..sync.ended).contains(&event));
            let events = recording.log.iter().enumerate();
            flushes += events.filter(|(n, event)| **event == Event::Flush && !asked(*n)).count();
        }
        assert!(flushes > 8, "{flushes} flushes that nobody asked for");
    }

    #[test]
    fn a_run_follows_from_its_seed() {
        for workload in [Workload::Names, Workload::Fallocate, Workload::Xattr, Workload::Full] {
            let run = || record(Setup::new(workload, 7, None)).unwrap().recording;
            let (one, other) = (run(), run());
            assert!(one.log == other.log && one.histories == other.histories, "{}", workload.name());
        }
    }
}
