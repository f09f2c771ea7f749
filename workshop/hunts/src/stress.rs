//! Stresses a volume of any kind through a mount of the program under test: everything at once, each part
//! with its own way to know what must be there.
//!
//! On one mount work, until the time is over:
//! - *fsx*, run after run, on one file: what it reads, also through a mapping, must be what it wrote,
//! - the *exerciser* of the conformance runs, likewise, with direct I/O and holes,
//! - a *crew* of threads, with directories of their own and a shared one, where only some outcomes are right,
//! - *stress-ng*: some thirty processes, each of which repeats and verifies one kind of call.
//!
//! Then a copied tree and a stress-ng that is killed leave files of all kinds behind. What the mount shows of
//! them is compared with what another mount shows, and with what the kernel reads; `e2fsck -fn` must find
//! nothing before and after; in the end the kernel removes all, and e2fsck counts what is free.
//!
//! The seed determines what each part does, not how they interleave: a failure may take several runs to recur.
//! Parts whose program is missing, and the kernel where it can't mount such a volume, are left out and named.
//!
//! Hazard: a server that never answers. [`PATIENCE`] after its work should be over it is killed, which ends
//! all calls.

mod kind;
mod programs;

pub use kind::{KINDS, Kind};

use crate::conform::exercise::Op;
use crate::conform::{crew, exercise};
use crate::kill_test::{Ended, Noise, Server, detach};
use hectare_oracle::loops::Access;
use hectare_oracle::mount::can_mount;
use hectare_oracle::trees::random::Random;
use hectare_oracle::{Combo, Entry, Skip, What, compare, is_root, tool, walk};
use kind::Made;
use programs::{Fsx, LEAVES_A_TREE, stress_ng};
use rustix::fs::FallocateFlags;
use rustix::process::{Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The directory of a volume that all work is done in.
const WORK: &str = "work";
/// Steps of one run of the exerciser.
const EXERCISE: u32 = 300;
/// Steps of each worker in one run of a crew.
const TOGETHER: u32 = 60;
/// The longest time that any part may continue after its end.
const PATIENCE: Duration = Duration::from_secs(240);

/// What was done on one volume.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Operations of fsx.
    pub fsx: u64,
    /// Steps of the exerciser.
    pub exercised: u64,
    /// Steps of all workers of the crews.
    pub crew: u64,
    /// What stress-ng counts as operations.
    pub stress_ng: u64,
    /// Files of the tree that was compared.
    pub entries: usize,
    /// What could not be done here.
    pub left_out: Vec<Skip>,
}

/// The program under test, and a directory for its images and mount points.
#[derive(Debug)]
pub struct Stress {
    program: PathBuf,
    folder: PathBuf,
    fsx: Option<PathBuf>,
}

impl Stress {
    /// Prepares runs of a program (`hectare`) in `folder`, with the fsx of the crate of that name if there is
    /// one.
    ///
    /// # Errors
    /// A [`Skip`] where nothing can be mounted.
    pub fn new(program: &Path, folder: &Path, fsx: Option<&Path>) -> Result<Self, Skip> {
        can_mount()?;
        if !is_root() || fs::File::open("/dev/fuse").is_err() {
            return Err(Skip::new("mounting needs root and /dev/fuse"));
        }
        tool::need("mke2fs")?;
        Ok(Self { program: program.into(), folder: folder.into(), fsx: fsx.map(Into::into) })
    }

    /// Stresses a volume of this kind for about this time, and half as long for making a tree and comparing.
    ///
    /// # Errors
    /// [`Ended::Failed`] with what is wrong.
    pub fn run(&self, kind: Kind, seed: u64, time: Duration) -> Result<Figures, Ended> {
        let dir = self.folder.join("dir");
        fs::create_dir_all(&dir).map_err(told(&dir))?;
        let _unmounted = Detached(&dir);
        self.run_on(&dir, kind, seed, time)
    }

    fn run_on(&self, dir: &Path, kind: Kind, seed: u64, time: Duration) -> Result<Figures, Ended> {
        let made = Made::new(kind, &self.program, &self.folder, WORK)?;
        let serve = || Server::new(&self.program, &made.image, dir, &made.options());
        let extents = Combo::named(kind.combo).extents;
        let (figures, before) = watched(serve()?, time + time / 4, |server| {
            let figures = self.work(&dir.join(WORK), extents, seed, time)?;
            leave_a_tree(&dir.join(WORK), time / 4)?;
            let before = walk(dir);
            server.unmount(&self.program, dir)?;
            Ok::<_, Ended>((figures, before))
        })?;
        let mut figures = Figures { entries: before.len(), ..figures };
        made.check()?;
        watched(serve()?, Duration::ZERO, |server| {
            let again = same("mounted again", &walk(dir), &before);
            server.unmount(&self.program, dir)?;
            again
        })?;
        match judged_by_the_kernel(&made, &before) {
            Err(Ended::Skip(skip)) => figures.left_out.push(Skip::new(format!("the kernel: {skip}"))),
            judged => judged?,
        }
        Ok(figures)
    }

    /// Everything at once, until the time is over.
    fn work(&self, root: &Path, extents: bool, seed: u64, time: Duration) -> Result<Figures, Ended> {
        let end = Instant::now() + time;
        let (fsx, ng) = (self.fsx.as_ref(), tool::need("stress-ng").map(drop));
        let noise = root.join("stress-ng");
        fs::create_dir(&noise).map_err(told(&noise))?;
        let numbers = thread::scope(|scope| {
            let fsx = fsx.map(|program| Fsx { program: program.clone(), folder: self.folder.clone() });
            let jobs: [Job<'_>; 4] = [
                scope.spawn(move || {
                    let Some(fsx) = fsx else { return Ok(0) };
                    repeated(end, seed, |seed| fsx.run(&root.join(format!("fsx-{seed}")), seed))
                }),
                scope.spawn(move || repeated(end, seed, |seed| exercised(root, extents, seed))),
                scope.spawn(move || repeated(end, seed, |seed| crewed(root, seed))),
                scope.spawn(move || ng.map_or(Ok(0), |()| stress_ng(&noise, seed, time))),
            ];
            let numbers: Vec<_> = jobs.into_iter().map(joined).collect();
            numbers.into_iter().collect::<Result<Vec<u64>, String>>()
        })?;
        let mut left_out: Vec<Skip> = tool::need("stress-ng").err().into_iter().collect();
        left_out
            .extend(self.fsx.is_none().then(|| Skip::new("fsx is not installed (cargo hunt stress does)")));
        let [fsx, exercised, crew, stress_ng] = numbers[..] else {
            return Err("a job is missing".to_owned().into());
        };
        Ok(Figures { fsx, exercised, crew, stress_ng, entries: 0, left_out })
    }
}

/// Does something with a server, up to its end. It is killed if that takes much longer than `time`.
fn watched<T>(server: Server, time: Duration, job: impl FnOnce(Server) -> T) -> T {
    let (id, longest) = (server.id(), time + PATIENCE);
    let (over, waits) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
                eprintln!("stress: no end after {longest:?}: the server is killed");
                let _ = kill_process(id, Signal::KILL); // its end is noticed by those who wait for it
            }
        });
        let done = job(server);
        drop(over);
        done
    })
}

/// A directory that nothing is mounted on in the end: after a failure the server is dead, but its mount is there.
struct Detached<'d>(&'d Path);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        if let Err(what) = detach(self.0) {
            eprintln!("stress: {what}");
        }
    }
}

type Job<'s> = ScopedJoinHandle<'s, Result<u64, String>>;

fn joined(job: Job<'_>) -> Result<u64, String> {
    job.join().unwrap_or_else(|_| Err("a part panicked".into()))
}

fn told(path: &Path) -> impl FnOnce(std::io::Error) -> Ended + use<> {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}").into()
}

/// Runs something again and again with the next seed, until the time is over; returns the sum.
fn repeated(end: Instant, seed: u64, run: impl Fn(u64) -> Result<u64, String>) -> Result<u64, String> {
    let mut done = 0;
    for seed in (0..).map(|n| seed.wrapping_add(n)) {
        done += run(seed).map_err(|what| format!("seed {seed}: {what}"))?;
        if Instant::now() >= end {
            break;
        }
    }
    Ok(done)
}

/// One file exercised against the model; a failing story is shortened.
fn exercised(root: &Path, extents: bool, seed: u64) -> Result<u64, String> {
    let mut story = exercise::story(&mut Random::new(&format!("stress-{seed}")), EXERCISE);
    // Files that are mapped by blocks can have holes made, but nothing allocated in advance.
    let can = |mode: FallocateFlags| extents || mode.contains(FallocateFlags::PUNCH_HOLE);
    story.retain(|op| !matches!(op, Op::Allocate(mode, ..) if !can(*mode)));
    let play = |name: &str, story: &[_]| exercise::play(name, &[("the mount", root)], story);
    match play(&format!("exercised-{seed}"), &story) {
        Ok(()) => Ok(story.len() as u64),
        Err(wrong) => {
            let mut files = 0;
            Err(exercise::shortened(story, wrong, |story| {
                files += 1;
                play(&format!("exercised-{seed}-{files}"), story).err()
            }))
        }
    }
}

/// A crew in a directory of its own.
fn crewed(root: &Path, seed: u64) -> Result<u64, String> {
    let root = root.join(format!("crew-{seed}"));
    fs::create_dir(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let stories = crew::work(&root, seed, TOGETHER)?;
    Ok(stories.iter().map(|story| story.len() as u64).sum::<u64>() + u64::from(TOGETHER))
}

/// Has files of all kinds made, which stay.
fn leave_a_tree(root: &Path, time: Duration) -> Result<(), Ended> {
    let noise = Noise::begin(root, LEAVES_A_TREE)?;
    thread::sleep(time.max(Duration::from_secs(2)));
    drop(noise);
    Ok(())
}

fn same(who: &str, found: &[Entry], expected: &[Entry]) -> Result<(), Ended> {
    let same = compare(found, expected, What::all());
    same.map_err(|differences| format!("{who}: the trees differ: {differences}").into())
}

/// Has the kernel read everything, and then remove it.
fn judged_by_the_kernel(made: &Made, expected: &[Entry]) -> Result<(), Ended> {
    let (mount, journal) = made.mount(Access::ReadOnly)?;
    let found = walk(mount.path());
    mount.unmount();
    drop(journal);
    same("the kernel", &found, expected)?;
    let (mount, journal) = made.mount(Access::ReadWrite)?;
    let work = mount.path().join(WORK);
    // stress-ng may leave files that can't be changed. Its result does not matter, for links have no flags.
    let _ = tool::run(tool::need("chattr")?.args(["-R", "-f", "-i", "-a"]).arg(&work));
    let removed = fs::remove_dir_all(&work).map_err(told(&work));
    mount.unmount();
    drop(journal);
    removed?;
    made.check()
}
