//! Compares the program under test with the kernel's ext4: the same calls on a mount of each, on volumes that
//! began as the same bytes, and every result compared.
//!
//! Two kinds of runs. A *sequence* ([`Conform::sequence`]) makes random calls from a seed, and compares the
//! result of each, then the two trees, then runs `e2fsck -fn` on both. The *cases* ([`Conform::cases`]) are a
//! table of single calls that should fail, or barely succeed: on full, read-only and immutable volumes, with
//! over-long names and too deep paths. Permitted differences are listed with reasons ([`KNOWN`]); a listed
//! difference that has gone is reported as well, so that the list stays true.
//!
//! Not compared: times that no call set, sizes of directories, blocks in use, the order of a listing.
//!
//! Hazard: mounts belong to the whole machine; `Pair` unmounts its own when it is dropped.

mod call;
mod caller;
mod case;
mod cases;
mod choose;
pub(crate) mod crew;
pub(crate) mod exercise;
mod pair;
mod scenes;
mod user;

use crate::kill_test::Ended;
use call::Call;
use caller::Caller;
use hectare_oracle::compare::Times;
use hectare_oracle::fsck::e2fsck;
use hectare_oracle::trees::random::Random;
use hectare_oracle::{Combo, Skip, What, compare, walk};
use pair::Pair;
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};
use user::User;

/// Feature sets that sequences run on (without revision 0, where e2fsck objects to attributes that the kernel
/// stored), by the names of [`crate::combos()`], and their mount options.
pub const SETS: [(&str, &str); 35] = [
    ("ext4", ""),
    ("ext4-1k", ""),
    ("ext4-2k", ""),
    ("ext4-inode-128", ""),
    ("ext4-inode-512", ""),
    ("no-csum", ""),
    ("uninit-bg-1k", ""),
    ("csum-seed", ""),
    ("meta-bg", ""),
    ("no-flex-bg", ""),
    ("sparse-super2", ""),
    ("bigalloc", ""),
    ("bigalloc-1k", "data=journal"),
    ("no-64bit", ""),
    ("no-dir-index", ""),
    ("large-dir", ""),
    ("orphan-file", ""),
    ("no-journal", ""),
    ("fast-commit", ""),
    ("ext4", "data=journal"),
    ("small-groups", "nodelalloc"),
    ("modern", ""),
    ("ext2", ""),
    ("ext2-1k-128", ""),
    ("ext2-no-filetype", ""),
    ("ext3", ""),
    ("ext3-1k", ""),
    ("ext3-1k", "data=journal"),
    ("ea-inode", ""),
    ("inline-data", ""),
    ("inline-data-512", ""),
    ("inline-data", "data=journal"),
    ("quota", ""),
    ("project", ""),
    ("casefold", ""),
];

/// Exercises of one file: feature sets, and the mount options of the program and of the kernel.
pub const EXERCISES: [(&str, Mounted); 18] = {
    const DEFAULT: Mounted = Mounted { ours: "", kernels: "" };
    const WRITEBACK: Mounted = Mounted { ours: "writeback", kernels: "" };
    const PLAIN: Mounted = Mounted { ours: "nofuseblk", kernels: "" };
    const JOURNAL: Mounted = Mounted { ours: "data=journal", kernels: "data=journal" };
    [
        ("ext4", DEFAULT),
        ("ext4", WRITEBACK),
        ("ext4", PLAIN),
        ("ext4", JOURNAL),
        ("ext4-1k", DEFAULT),
        ("ext4-1k", WRITEBACK),
        ("ext4-1k", PLAIN),
        ("ext4-1k", JOURNAL),
        ("bigalloc", DEFAULT),
        ("bigalloc", WRITEBACK),
        ("bigalloc", PLAIN),
        ("bigalloc", JOURNAL),
        ("bigalloc-1k", DEFAULT),
        ("bigalloc-1k", WRITEBACK),
        ("bigalloc-1k", PLAIN),
        ("bigalloc-1k", JOURNAL),
        ("fast-commit", Mounted { ours: "noopen", kernels: "" }),
        ("small-groups", Mounted { ours: "nodelalloc", kernels: "nodelalloc" }),
    ]
};

/// Concurrent runs: feature sets, and mount options.
pub const CREWS: [(&str, Mounted); 6] = [
    ("ext4", Mounted { ours: "", kernels: "" }),
    ("ext4-1k", Mounted { ours: "writeback", kernels: "" }),
    ("no-dir-index", Mounted { ours: "nofuseblk", kernels: "" }),
    ("bigalloc", Mounted { ours: "data=journal", kernels: "data=journal" }),
    ("no-journal", Mounted { ours: "", kernels: "" }),
    ("modern", Mounted { ours: "nodelalloc", kernels: "nodelalloc" }),
];
/// Calls that are made before the program is killed without a sync.
const UNSYNCED: u32 = 40;
/// The size of a volume for a concurrent run.
const CREW_SIZE: &str = "512M";

/// The mount options of the two sides.
#[derive(Clone, Copy, Debug)]
pub struct Mounted {
    /// The program's.
    pub ours: &'static str,
    /// The kernel's.
    pub kernels: &'static str,
}

/// Intended differences, by case (`GROUND: CASE`), and why.
pub const KNOWN: [(&str, &str); 2] =
    [("scenes: more than there is", KEEPS_SIZE), ("scenes, 1 KiB: more than there is", KEEPS_SIZE)];
const KEEPS_SIZE: &str = "FUSE passes no size to the kernel along with an error: \
                          a file that gets less than it asked for keeps its size";

/// The totals of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Calls made on each side.
    pub calls: u64,
    /// How many of them failed, alike on both sides.
    pub refused: u64,
}

/// A case whose results differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// The result of the program under test.
    pub ours: String,
    /// The result of the kernel's ext4.
    pub kernels: String,
}

/// The program under test, and a directory for its images and mount points.
#[derive(Debug)]
pub struct Conform {
    program: PathBuf,
    folder: PathBuf,
    alone: bool,
}

/// Restores the process's usual `umask` after a sequence that changes it.
struct Umask(bool);

impl Drop for Umask {
    fn drop(&mut self) {
        if self.0 {
            rustix::process::umask(Mode::from_raw_mode(0o022));
        }
    }
}

impl Conform {
    /// Prepares runs whose images and mount points are made in `folder`.
    ///
    /// # Errors
    /// A [`Skip`] where nothing can be mounted.
    pub fn new(program: &Path, folder: &Path) -> Result<Self, Skip> {
        pair::can_run()?;
        Ok(Self { program: program.into(), folder: folder.into(), alone: false })
    }

    /// The same in a process that does nothing else: sequences may change its `umask`.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Makes `steps` random calls on volumes of a feature set, mounted with `options`; after a third of them
    /// both are remounted; after another third all is synced, the program is killed, and the kernel recovers
    /// its volume. In the end it is killed once more, in the middle of some calls.
    ///
    /// # Errors
    /// [`Ended::Failed`] with the first difference and the calls that led to it, or e2fsck's output;
    /// [`Ended::Skip`] if the kernel here can't mount such a volume.
    pub fn sequence(&self, set: (&str, &str), seed: u64, steps: u32) -> Result<Done, Ended> {
        let combo = Combo::named(set.0);
        let mut pair = Pair::new(&self.program, &self.folder, (combo.args, combo.size), [set.1; 2])?;
        let mut random = Random::new(&format!("conform-{}-{}-{seed}", set.0, set.1));
        let (mut ours, mut kernels) = (Caller::new(pair.ours()), Caller::new(pair.kernels()));
        let mut done = Done::default();
        let mut story: Vec<String> = Vec::new();
        let mut first = Call::first().into_iter();
        let _umask = Umask(self.alone);
        for step in 0..steps {
            if step == steps / 3 {
                drop((ours, kernels));
                pair.again()?;
                (ours, kernels) = (Caller::new(pair.ours()), Caller::new(pair.kernels()));
            } else if step == steps / 3 * 2 && combo.has_journal() {
                // Open and unlinked files don't exist after that.
                pair.sync()?;
                pair.kill()?;
                (ours, kernels) = (Caller::new(pair.ours()), Caller::new(pair.kernels()));
            }
            let (who, call) = match first.next() {
                Some(call) => (User::Root, call),
                None => {
                    (User::random(&mut random), kernels.ground().with_umask(self.alone).call(&mut random))
                }
            };
            let (mine, theirs) = (ours.make(who, &call), kernels.make(who, &call));
            story.push(format!("{who:?}: {call:?} -> {theirs}"));
            if mine != theirs {
                let led = story[story.len().saturating_sub(12)..].join("\n  ");
                return Err(format!("step {step}: {mine}, but the kernel, in the end:\n  {led}").into());
            }
            if combo.has("inline_data") && call.moves_content_out() {
                // The kernel (6.18) moves content out of an inode through its journal, but reads it from the
                // device: until it has been written home, and read again, the file reads as zeros.
                pair.checkpoint_kernels()?;
                kernels.drop_cached(&call);
            }
            done.calls += 1;
            done.refused += u64::from(theirs.starts_with("error"));
        }
        drop((ours, kernels));
        Self::same_trees(&pair, set).map_err(|ended| self.with_story(ended, &story))?;
        if combo.has_journal() {
            // Unsynced changes may be there or not, but the volume must be sound.
            let mut caller = Caller::new(pair.ours());
            for _ in 0..UNSYNCED {
                let call = caller.ground().call(&mut random);
                caller.make(User::random(&mut random), &call);
            }
            pair.kill()?;
        }
        Self::sound(pair, set)?;
        Ok(done)
    }

    /// Writes down the calls that led to a failure, and says where.
    fn with_story(&self, ended: Ended, story: &[String]) -> Ended {
        let Ended::Failed(what) = ended else { return ended };
        let path = self.folder.join("story.txt");
        match std::fs::write(&path, story.join("\n")) {
            Ok(()) => Ended::Failed(format!("{what}\nthe calls are in {}", path.display())),
            Err(error) => Ended::Failed(format!("{what}\n{}: {error}", path.display())),
        }
    }

    /// Exercises one file, on a feature set of [`EXERCISES`], with `steps` reads and changes.
    ///
    /// # Errors
    /// [`Ended::Failed`] with the first step after which a side differs from the model, and the shortest
    /// story that ends so; or as [`Conform::sequence`].
    pub fn exercise(&self, set: (&str, Mounted), seed: u64, steps: u32) -> Result<(), Ended> {
        let (name, Mounted { ours, kernels }) = set;
        let combo = Combo::named(name);
        let pair = Pair::new(&self.program, &self.folder, (combo.args, combo.size), [ours, kernels])?;
        let story = exercise::story(&mut Random::new(&format!("exercise-{name}-{ours}-{seed}")), steps);
        let sides = [("the program", pair.ours()), ("the kernel", pair.kernels())];
        let play = |name: &str, story: &[_]| exercise::play(name, &sides, story);
        if let Err(wrong) = play("exercised", &story) {
            let mut files = 0;
            return Err(exercise::shortened(story, wrong, |story| {
                files += 1;
                play(&format!("exercised-{files}"), story).err()
            })
            .into());
        }
        Self::judge(pair, (name, ours))
    }

    /// Runs several workers at once on a feature set of [`CREWS`], each for `steps` steps.
    ///
    /// # Errors
    /// [`Ended::Failed`] with what did not hold, or where the sides differ; or as [`Conform::sequence`].
    pub fn crew(&self, set: (&str, Mounted), seed: u64, steps: u32) -> Result<(), Ended> {
        let (name, Mounted { ours, kernels }) = set;
        let pair =
            Pair::new(&self.program, &self.folder, (Combo::named(name).args, CREW_SIZE), [ours, kernels])?;
        let mine = crew::work(pair.ours(), seed, steps).map_err(|what| format!("the program: {what}"))?;
        let theirs = crew::work(pair.kernels(), seed, steps).map_err(|what| format!("the kernel: {what}"))?;
        for (mine, theirs) in mine.iter().zip(&theirs) {
            if let Some(at) = mine.iter().zip(theirs).position(|(mine, theirs)| mine != theirs) {
                let led = theirs[at.saturating_sub(12)..=at].join("\n  ");
                return Err(format!("step {at}: {}, but the kernel:\n  {led}", mine[at]).into());
            }
        }
        Self::judge(pair, (name, ours))
    }

    /// Compares the trees, unmounts, and checks both with e2fsck.
    fn judge(pair: Pair, set: (&str, &str)) -> Result<(), Ended> {
        Self::same_trees(&pair, set)?;
        Self::sound(pair, set)
    }

    fn same_trees(pair: &Pair, set: (&str, &str)) -> Result<(), Ended> {
        let what = What { mtimes: Times::Ignored, holes: None, ..What::all() };
        // Of files that are mapped by blocks, the kernel (6.18) may call data that is not allocated yet a hole.
        rustix::fs::open(pair.kernels(), OFlags::RDONLY, Mode::empty())
            .and_then(rustix::fs::syncfs)
            .map_err(|error| {
                Ended::Failed(format!("{set:?}: the kernel's volume can't be synced: {error}"))
            })?;
        let same = compare(&walk(pair.ours()), &walk(pair.kernels()), what);
        same.map_err(|differences| Ended::Failed(format!("{set:?}: the trees differ: {differences}")))
    }

    fn sound(pair: Pair, set: (&str, &str)) -> Result<(), Ended> {
        for image in pair.unmount()? {
            let report = e2fsck(&image)?;
            if !report.is_sound() {
                return Err(format!("{set:?}: {}: {}", image.display(), report.output).into());
            }
        }
        Ok(())
    }

    /// Runs the table of cases; returns the number of cases, and the differences other than [`KNOWN`] ones,
    /// with the known ones that are none.
    ///
    /// # Errors
    /// [`Ended`] where a volume can't be made or mounted.
    pub fn cases(&self) -> Result<(u64, Vec<Difference>), Ended> {
        let mut count = 0;
        let mut differences = Vec::new();
        for ground in &cases::GROUNDS {
            let pair = Pair::new(&self.program, &self.folder, (ground.args, ground.size), [""; 2])?;
            (ground.prepare)(pair.ours());
            (ground.prepare)(pair.kernels());
            let pair = if ground.read_only { pair.read_only()? } else { pair };
            for case in ground.cases {
                let name = format!("{}: {}", ground.name, case.name);
                let (ours, kernels) = ((case.run)(pair.ours()), (case.run)(pair.kernels()));
                count += 1;
                let known = KNOWN.iter().any(|(known, _)| *known == name);
                if known && ours == kernels {
                    let ours = format!("{ours}, as the kernel: it is a known difference no more");
                    differences.push(Difference { case: name, ours, kernels });
                } else if !known && ours != kernels {
                    differences.push(Difference { case: name, ours, kernels });
                }
            }
            (ground.clear)(pair.ours());
            (ground.clear)(pair.kernels());
            match Self::judge(pair, (ground.name, "")) {
                Err(Ended::Failed(ours)) => {
                    let case = format!("{}: afterwards", ground.name);
                    differences.push(Difference { case, ours, kernels: "as it should be".into() });
                }
                judged => judged?,
            }
        }
        Ok((count, differences))
    }
}
