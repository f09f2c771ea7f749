//! Aging: brings a volume to a given fill, and to free extents of a given mean length or histogram, from a
//! seed.
//!
//! The kernel and the engine, and every policy, can then work on the very same image. Which clusters stay
//! free is drawn by `plan`; all others are put into files in the directory `/aged` as unwritten extents: no
//! data is written, so that an image of 100 GiB in a sparse file takes a few MiB.
//!
//! How it is exact: everything planned is first *held* ([`Volume::hold`]), but for a pool of runs that are to
//! be filled anyway. Blocks of directories and extent trees can then only come from the pool. When all else
//! is placed, the rest of the pool is put into files without trees.
//!
//! The result is not what was planned but what a second, read-only pass over the closed volume finds, as
//! e2freefrag counts: runs continue across group boundaries.
//!
//! The same seed gives the same image, byte for byte, on the same image: times and generations follow from
//! the volume and the seed.

mod histogram;
mod lengths;
mod plan;

use crate::fragmentation;
use crate::run::float;
use hectare_device::Device;
use hectare_engine::Bucket;
use hectare_engine::{Creation, Error as EngineError, HeldSpace, OpenFile, OpenOptions, Timestamp, Volume};
use hectare_units::random::SplitMix64;
use hectare_units::{BlockNr, Bytes, GroupNr, index_of, join32, u64_of};
use lengths::Class;
use plan::Plan;
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

pub use histogram::{FreefragOutput, Histogram, Row, Share, short};

/// The directory of the filler files.
pub const DIRECTORY: &str = "/aged";
/// Files that take what is left of the pool; four runs each need no block for their extent tree.
const REST_FILES: usize = 8;
const RUNS_WITHOUT_TREE: usize = 4;
/// The relative tolerance of fill and mean.
const TOLERANCE: f64 = 0.02;
/// The tolerance of a range's share, in percent of the free blocks.
const SHARE_TOLERANCE: f64 = 1.0;

/// The requested state of a volume.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Used blocks in percent of all blocks of the volume: above 0, below 100.
    pub fill: f64,
    /// The fragmentation of the free space.
    pub shape: Shape,
    /// The seed.
    pub seed: u64,
}

/// The lengths of free extents.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// Exponentially distributed.
    Exponential {
        /// The mean length.
        mean: Bytes,
        /// The greatest length. `None`: random.
        longest: Option<Bytes>,
    },
    /// By ranges of lengths.
    Histogram(Histogram),
}

/// The fill and the free-space fragmentation of a volume.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Used blocks in percent of all.
    pub fill: f64,
    /// Mean length of a free extent in bytes.
    pub mean: f64,
    /// Free extents.
    pub extents: u64,
}

/// The free extents of one requested range of lengths.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Reached {
    /// The shortest, in bytes.
    pub from: u64,
    /// The first length in bytes that is too long.
    pub to: u64,
    /// The requested share of the free blocks, in percent; all of them together are 100.
    pub wanted: f64,
    /// The share found after.
    pub reached: f64,
    /// Extents found after.
    pub extents: u64,
}

impl Reached {
    /// Whether the share is the requested one, to 1 % of the free blocks.
    #[must_use]
    pub fn is_near(&self) -> bool {
        (self.reached - self.wanted).abs() <= SHARE_TOLERANCE
    }
}

/// The result of aging.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// As found before.
    pub before: Figures,
    /// As requested.
    pub wanted: Figures,
    /// As found after.
    pub reached: Figures,
    /// Files that fill the volume.
    pub files: u64,
    /// Extents put into them.
    pub runs: u64,
    /// By ranges, if a histogram was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Reached>,
}

impl Report {
    /// Whether fill and mean are the requested ones, to 2 %, and the shares of all ranges, to 1 % of the free
    /// blocks.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        let near = |reached: f64, wanted: f64| (reached - wanted).abs() <= TOLERANCE * wanted;
        near(self.reached.fill, self.wanted.fill)
            && near(100.0 - self.reached.fill, 100.0 - self.wanted.fill)
            && near(self.reached.mean, self.wanted.mean)
            && self.ranges.iter().all(Reached::is_near)
    }
}

/// Why a volume can't be aged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The volume.
    #[error(transparent)]
    Volume(#[from] EngineError),
    /// The request can't be met.
    #[error("{0}")]
    Impossible(String),
}

/// Ages the volume on a device, which no other opener may use meanwhile.
///
/// # Errors
/// [`Error::Impossible`] if the request can't be met on this volume (nothing is changed then), or the volume
/// was aged before; [`Error::Volume`] if it can't be read or written.
pub fn age(device: &Arc<dyn Device>, options: &Options) -> Result<Report, Error> {
    let target = Target::of(device, options)?;
    let (cut, wanted) = target.plan(options)?;
    let (files, runs) = target.fill(device, options, cut)?;
    let volume = Volume::open(Arc::clone(device), OpenOptions::read_only())?;
    let reached = Target::figures(&volume)?;
    let ranges = match &options.shape {
        Shape::Histogram(histogram) => ranges(&volume, histogram)?,
        Shape::Exponential { .. } => Vec::new(),
    };
    Ok(Report { seed: options.seed, before: target.before, wanted, reached, files, runs, ranges })
}

/// The free extents of a volume and its fill, for reproducing them on another.
///
/// # Errors
/// [`Error::Impossible`] if nothing is free; [`Error::Volume`] if it can't be read.
pub fn like(device: &Arc<dyn Device>) -> Result<FreefragOutput, Error> {
    let volume = Volume::open(Arc::clone(device), OpenOptions::read_only())?;
    let row = |bucket: &Bucket| Row {
        from: bucket.from_bytes,
        to: bucket.from_bytes.saturating_mul(2),
        extents: bucket.runs,
        bytes: bucket.bytes,
    };
    let histogram = Histogram::counted(fragmentation::free_extents(&volume)?.histogram.iter().map(row));
    let fill = Some(Target::figures(&volume)?.fill);
    Ok(FreefragOutput { histogram: histogram.map_err(Error::Impossible)?, fill })
}

/// The free extents found in each range of a histogram.
fn ranges(volume: &Volume, histogram: &Histogram) -> Result<Vec<Reached>, EngineError> {
    let block = volume.superblock().geometry().block_size.bytes().get();
    let lengths: Vec<u64> =
        fragmentation::free_runs(volume)?.iter().map(|run| (run.end - run.start) * block).collect();
    let all = float(lengths.iter().sum());
    let reached = |share: &Share| {
        let inside = || lengths.iter().filter(|len| (share.from..share.to).contains(len));
        Reached {
            from: share.from,
            to: share.to,
            wanted: 100.0 * share.percent / histogram.sum(),
            reached: 100.0 * float(inside().sum()) / all,
            extents: u64_of(inside().count()),
        }
    };
    Ok(histogram.shares().iter().map(reached).collect())
}

/// A volume as it was found, and its requested state.
struct Target {
    before: Figures,
    /// Free runs, in whole clusters, each inside one group. Clusters count from the first group's start.
    stretches: Vec<Range<u64>>,
    /// Clusters to stay free.
    free: u64,
    first_block: u64,
    cluster_blocks: u64,
    block_bytes: u64,
    time: Timestamp,
}

impl Target {
    fn of(device: &Arc<dyn Device>, options: &Options) -> Result<Self, Error> {
        let volume = Volume::open(Arc::clone(device), OpenOptions::read_only())?;
        let geometry = volume.superblock().geometry();
        let (cluster_blocks, block_bytes) =
            (u64::from(geometry.cluster_blocks()), geometry.block_size.bytes().get());
        let impossible = |what: &str| Err(Error::Impossible(what.to_owned()));
        if !(options.fill > 0.0 && options.fill < 100.0) {
            return impossible("a fill is above 0 and below 100 percent");
        }
        let cluster = block_bytes * cluster_blocks;
        if matches!(options.shape, Shape::Exponential { mean, .. } if mean.get() < cluster) {
            return impossible("the mean free extent is shorter than a cluster");
        }
        if volume.resolve(DIRECTORY, false).is_ok() {
            return impossible("the volume was aged before: it has a directory /aged");
        }
        let first_block = u64::from(geometry.first_data_block);
        let mut stretches = Vec::new();
        for group in 0..volume.group_count() {
            for run in volume.free_runs(GroupNr::new(group))? {
                // The last cluster of a volume may be incomplete; it is left as it is.
                let start = (run.start.get() - first_block) / cluster_blocks;
                let end = (run.end.get() - first_block) / cluster_blocks;
                if start < end {
                    stretches.push(start..end);
                }
            }
        }
        let all = geometry.clusters_count().get();
        let free = rounded(float(all) * (100.0 - options.fill) / 100.0);
        let raw = volume.superblock().raw();
        let time = join32(raw.s_wtime.get(), raw.s_wtime_hi.into());
        Ok(Self {
            before: Self::figures(&volume)?,
            stretches,
            free,
            first_block,
            cluster_blocks,
            block_bytes,
            time: Timestamp::from_seconds(i64::try_from(time).unwrap_or(0)),
        })
    }

    fn figures(volume: &Volume) -> Result<Figures, EngineError> {
        let free = fragmentation::free_extents(volume)?;
        let geometry = volume.superblock().geometry();
        let all = float(geometry.blocks_count.bytes(geometry.block_size).get());
        Ok(Figures {
            fill: 100.0 - 100.0 * float(free.bytes) / all,
            mean: free.mean(),
            extents: free.extents,
        })
    }

    /// What stays free and what is filled, and the state that this should give.
    fn plan(&self, options: &Options) -> Result<(Plan, Figures), Error> {
        let available: u64 = self.stretches.iter().map(|run| run.end - run.start).sum();
        if available < self.free {
            let fill = self.before.fill;
            let what = format!("the volume is fuller than {} % already: {fill:.2} %", options.fill);
            return Err(Error::Impossible(what));
        }
        let mut random = SplitMix64::new(options.seed);
        let (lengths, mean) = match &options.shape {
            Shape::Exponential { mean, longest } => {
                (self.exponential(*mean, *longest, &mut random)?, float(mean.get()))
            }
            Shape::Histogram(histogram) => self.by_class(histogram, &mut random)?,
        };
        let extents = u64_of(lengths.len());
        let mut plan =
            plan::cut(&self.stretches, &lengths, &mut random).ok_or_else(|| self.no_room(extents))?;
        // The pool is taken from the end: the longest runs, so that it is few of them.
        plan.used.sort_by_key(|run| (run.end - run.start, run.start));
        Ok((plan, Figures { fill: options.fill, mean, extents }))
    }

    fn exponential(
        &self,
        mean: Bytes,
        longest: Option<Bytes>,
        random: &mut SplitMix64,
    ) -> Result<Vec<u64>, Error> {
        let (cluster, asked) = (self.cluster(), float(mean.get()));
        let extents = rounded(float(self.free * cluster) / asked).max(1);
        if (float(self.free * cluster) / float(extents) - asked).abs() > TOLERANCE * asked {
            let what = "what stays free can't be cut into a whole number of extents of that mean";
            return Err(Error::Impossible(what.to_owned()));
        }
        let most = longest.map_or(u64::MAX, |longest| longest.get() / cluster);
        let most = most.min(plan::longest(&self.stretches));
        lengths::exponential(self.free, extents, most, random).ok_or_else(|| self.no_room(extents))
    }

    /// Lengths by a histogram, and their mean in bytes.
    fn by_class(&self, histogram: &Histogram, random: &mut SplitMix64) -> Result<(Vec<u64>, f64), Error> {
        let cluster = self.cluster();
        let classes = lengths::classes(histogram, self.free, cluster, plan::longest(&self.stretches))?;
        let extents: u64 = classes.iter().map(|class: &Class| class.count).sum();
        let mean = float(self.free * cluster) / float(extents.max(1));
        Ok((lengths::by_class(&classes, random), mean))
    }

    /// Bytes of a cluster.
    fn cluster(&self) -> u64 {
        self.cluster_blocks * self.block_bytes
    }

    fn no_room(&self, extents: u64) -> Error {
        let free = self.free * self.cluster();
        Error::Impossible(format!("{extents} free extents of {free} bytes together don't fit here"))
    }

    fn blocks(&self, clusters: &Range<u64>) -> Range<BlockNr> {
        let block = |cluster| BlockNr::new(self.first_block + cluster * self.cluster_blocks);
        block(clusters.start)..block(clusters.end)
    }

    /// Extents of one file: what a single node below the root holds, less a few.
    fn runs_per_file(&self) -> usize {
        index_of(self.block_bytes / 12 - 8)
    }

    /// Fills the volume by plan; returns how many files and extents that took.
    fn fill(&self, device: &Arc<dyn Device>, options: &Options, cut: Plan) -> Result<(u64, u64), Error> {
        let open = OpenOptions {
            use_reserved_blocks: true,
            keep_clusters: false,
            fixed_time: Some(self.time),
            seed: Some(options.seed),
            ..OpenOptions::default()
        };
        let Plan { free, mut used } = cut;
        let pool = self.pool(&mut used)?;
        used.sort_by_key(|run| run.start);
        let volume = Volume::open(Arc::clone(device), open)?;
        let hold = |runs: &[Range<u64>]| {
            runs.iter().map(|run| volume.hold(self.blocks(run))).collect::<Result<Vec<_>, _>>()
        };
        let kept = hold(&free)?;
        let placed = hold(&used)?;
        let runs = u64_of(placed.len());
        let done = self.place(&volume, placed, &pool);
        drop(kept);
        let closed = volume.close();
        let (files, rest) = done?;
        closed?;
        Ok((files, runs + rest))
    }

    /// Takes the pool for metadata out of the runs to fill.
    fn pool(&self, used: &mut Vec<Range<u64>>) -> Result<Vec<Range<u64>>, Error> {
        let files = u64_of(used.len().div_ceil(self.runs_per_file()) + REST_FILES);
        // Two tree nodes a file, its entry in the directory, a few for the directory itself.
        let need = 2 * files + files * 64 / self.block_bytes + 16;
        let (mut pool, mut have) = (Vec::new(), 0);
        while have < need {
            let Some(run) = used.pop() else {
                return Err(Error::Impossible("too little would be filled to hold the filler files".into()));
            };
            have += run.end - run.start;
            pool.push(run);
        }
        Ok(pool)
    }

    fn place(
        &self,
        volume: &Volume,
        placed: Vec<HeldSpace>,
        pool: &[Range<u64>],
    ) -> Result<(u64, u64), EngineError> {
        volume.create_dir(DIRECTORY, Creation::default())?;
        let rest_files: Vec<OpenFile> =
            (0..REST_FILES).map(|nr| create(volume, &rest_name(nr))).collect::<Result<_, _>>()?;
        let mut files = 0;
        let mut placed = placed.into_iter().peekable();
        while placed.peek().is_some() {
            let file = create(volume, &format!("{DIRECTORY}/{files:06}"))?;
            file.append_held(placed.by_ref().take(self.runs_per_file()))?;
            files += 1;
        }
        volume.sync()?;
        let rest = self.rest_of(volume, pool)?;
        let (mut used, mut placed) = (0, 0);
        for (runs, file) in rest.chunks(RUNS_WITHOUT_TREE).zip(&rest_files) {
            let mut held = Vec::new();
            for run in runs {
                match volume.hold(run.clone()) {
                    Ok(space) => held.push(space),
                    // Preallocated by another file: it is freed when the volume is closed, and stays free.
                    Err(EngineError::NoSpace) => {}
                    Err(error) => return Err(error),
                }
            }
            placed += u64_of(held.len());
            file.append_held(held)?;
            used += 1;
        }
        drop(rest_files);
        for nr in used..REST_FILES {
            volume.remove_file(rest_name(nr))?;
        }
        Ok((files + u64_of(used), placed))
    }

    /// What metadata left of the pool, the longest runs first. The volume was committed just before.
    fn rest_of(&self, volume: &Volume, pool: &[Range<u64>]) -> Result<Vec<Range<BlockNr>>, EngineError> {
        let geometry = volume.superblock().geometry();
        let mut rest = Vec::new();
        for run in pool.iter().map(|run| self.blocks(run)) {
            let Some(group) = geometry.group_of(run.start) else { continue };
            for free in volume.free_runs(group)? {
                let part = free.start.max(run.start)..free.end.min(run.end);
                if part.start < part.end {
                    rest.push(part);
                }
            }
        }
        rest.sort_by_key(|run| (std::cmp::Reverse((run.end - run.start).get()), run.start));
        Ok(rest)
    }
}

fn create(volume: &Volume, path: &str) -> Result<OpenFile, EngineError> {
    volume.create_file(path, Creation { permissions: 0o600, ..Creation::default() })
}

fn rest_name(nr: usize) -> String {
    format!("{DIRECTORY}/rest-{nr}")
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative, far below 2^52
fn rounded(x: f64) -> u64 {
    x.round().max(0.0) as u64
}
