//! The workloads' own options.

use super::common::{Common, Threads};
use hectare_cli::shared::{Failure, Outcome, parse_size, reason};
use hectare_lab::workload::fragmentation::{self, Mix};
use hectare_lab::workload::processes::Worker;
use hectare_lab::workload::random_overwrite::Fit;
use hectare_lab::workload::{
    How, fallocate2, fsync_append, many_appenders, random_overwrite, small_files, streams,
};
use hectare_lab::{Access, Streams as Pattern, Workload};
use std::path::PathBuf;
use std::time::Duration;

/// Allocate in steps of 8 KiB up to 1 MiB, then truncate to zero, repeatedly; one file per thread
///
/// All files lie in one directory, as in will-it-scale, so that all jobs start at the same group.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    hectare-lab bench fallocate2 --on engine:disk.img --threads 1,2,64 --seconds 5\n  \
    hectare-lab bench fallocate2 --on /mnt/ext4 --processes 1,2,64")]
pub(super) struct Fallocate2 {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    threads: Threads,
    /// Use processes instead of threads, as containers do; only in a directory, such as a mount
    #[arg(long, value_name = "N,...", value_delimiter = ',', conflicts_with = "threads",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: Vec<u32>,
    /// Give each job a directory of its own, which may lie in another group
    #[arg(long)]
    apart: bool,
    /// Duration of each run
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_seconds)]
    seconds: Duration,
}

impl Fallocate2 {
    pub(super) fn run(&self) -> Outcome {
        let processes = !self.processes.is_empty();
        if processes {
            self.common
                .check_folders("--processes need a directory, such as a mount: an image has one process")?;
        }
        let options = fallocate2::Options {
            time: self.seconds,
            apart: self.apart,
            processes: processes.then(Fallocate2Job::worker).transpose()?,
            ..fallocate2::Options::default()
        };
        let jobs = if processes { &self.processes } else { &self.threads.threads };
        self.common.run(&Workload::Fallocate2(options), jobs)
    }
}

/// Options of an fallocate2 process, which bench starts
#[derive(clap::Args)]
pub(super) struct Fallocate2Job {
    folder: PathBuf,
    path: String,
    step: u64,
    file: u64,
}

impl Fallocate2Job {
    /// This program as a worker process.
    fn worker() -> Outcome<Worker> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::of("the path of this program is not known", reason(&error)))?;
        Ok(Worker { program, arguments: vec!["bench".into(), "fallocate2-job".into()] })
    }

    pub(super) fn run(&self) {
        fallocate2::work_alone(&self.folder, &self.path, self.step, self.file);
    }
}

/// Create many small files in one directory, as fs_mark does
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    hectare-lab bench small-files --on engine:disk.img --threads 64 --files 40000\n  \
    hectare-lab bench small-files --presize 16M --nodelalloc --threads 8 --stats --on engine:a.img \\\n      \
    --policy mballoc,-best-avail,mballoc")]
pub(super) struct SmallFiles {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    threads: Threads,
    /// Total number of files
    #[arg(long, value_name = "N", default_value_t = 40_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// Bytes per file
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = parse_size)]
    size: u64,
    /// Bytes per write
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_some)]
    write: u64,
    /// Sync each file before it is closed
    #[arg(long)]
    fsync: bool,
    /// Extend each file to this size, as a hole, before it is written, and truncate it to its size
    /// afterwards: ext4 then preallocates as for a large file. Above 8M each file is one allocator call with
    /// a goal length of 8 MiB for one block, as in the tests of the best-available series
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    presize: u64,
}

impl SmallFiles {
    pub(super) fn run(&self) -> Outcome {
        let (files, size, write) = (self.files, self.size, self.write);
        let options =
            small_files::Options { files, size, write, fsync_each: self.fsync, presize: self.presize };
        self.common.run(&Workload::SmallFiles(options), &self.threads.threads)
    }
}

/// Options that the fragmentation workloads share.
#[derive(clap::Args)]
struct Fragmentation {
    #[command(flatten)]
    common: Common,
    /// Scale, 1 being as in fsperf: sizes, loops and times shrink with it
    #[arg(long, value_name = "0..1", default_value = "1", value_parser = parse_scale)]
    scale: f64,
}

impl Fragmentation {
    fn run(&self, mix: Mix, no_sync: bool) -> Outcome {
        let options = fragmentation::Options { mix, scale: self.scale, no_sync };
        self.common.run(&Workload::Fragmentation(options), &[])
    }
}

/// Fragmentation: 32 appenders to 4 GiB in all beside four jobs that allocate and free 256 MiB (20 s)
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    hectare-lab bench append-vs-fallocate --on engine:disk.img --policy mballoc,hybrid\n  \
    hectare-lab bench append-vs-fallocate --no-sync --on engine:disk.img")]
pub(super) struct AppendVsFallocate {
    #[command(flatten)]
    all: Fragmentation,
    /// Append 128 KiB at a time without syncing, instead of 64 KiB with fdatasync
    #[arg(long)]
    no_sync: bool,
}

impl AppendVsFallocate {
    pub(super) fn run(&self) -> Outcome {
        self.all.run(Mix::AppendVsFallocate, self.no_sync)
    }
}

/// Declares a fragmentation workload without options of its own.
macro_rules! mix {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(clap::Args)]
        pub(super) struct $name {
            #[command(flatten)]
            all: Fragmentation,
        }

        impl $name {
            pub(super) fn run(&self) -> Outcome {
                self.all.run(Mix::$name, false)
            }
        }
    };
}

mix! {
    /// Fragmentation: extents of 128 MiB and of 128 KiB, all short-lived
    CorrelatedLifetimes
}
mix! {
    /// Fragmentation: extents of 2 GiB, 128 MiB and 8 MiB beside appenders of 128 KiB
    FourSizes
}
mix! {
    /// Fragmentation: extents of 129 MiB and 9 MiB beside appenders of 129 KiB
    FunnySizesHigh
}
mix! {
    /// Fragmentation: extents of 127 MiB and 7 MiB beside appenders of 127 KiB
    FunnySizesLow
}
mix! {
    /// Fragmentation: large and small extents, each both short-lived and long-lived
    MixedLifetimes
}

/// Grow many files side by side by 4 KiB at a time: the result that counts is KiB per extent
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hectare-lab bench many-appenders --on engine:a.img --threads 64 --size 1G\n\n\
    The kernel's own figure was measured with 64 threads and --size 1G."
)]
pub(super) struct ManyAppenders {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    threads: Threads,
    /// Bytes of a finished file
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_some)]
    size: u64,
    /// Bytes of an append
    #[arg(long, value_name = "BYTES", default_value = "4K", value_parser = parse_some)]
    piece: u64,
    /// Append by writing instead of by fallocate
    #[arg(long)]
    write: bool,
    /// Maximum duration of a run
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<Duration>,
}

impl ManyAppenders {
    pub(super) fn run(&self) -> Outcome {
        let how = if self.write { How::Write } else { How::Falloc };
        let (piece, size, time) = (self.piece, self.size, self.seconds);
        let options = many_appenders::Options { how, piece, size, time };
        self.common.run(&Workload::ManyAppenders(options), &self.threads.threads)
    }
}

/// Write few large files in chunks of 16 MiB, or every other one at random
///
/// The best-available series was measured with 5 GiB written sequentially, and with 5 GiB of which half is
/// written at random (--mixed --threads 2); its fio jobs were not published.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare-lab bench streams --on engine:disk.img\n  \
    hectare-lab bench streams --mixed --threads 2 --nodelalloc --on engine:disk.img")]
pub(super) struct Streams {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    threads: Threads,
    /// Total bytes
    #[arg(long, value_name = "BYTES", default_value = "5G", value_parser = parse_some)]
    size: u64,
    /// Bytes of a sequential write
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_some)]
    piece: u64,
    /// Have every other thread write its file once over in 4 KiB blocks in random order
    #[arg(long)]
    mixed: bool,
    /// Preallocate each file with one fallocate first, as fio does by default
    #[arg(long)]
    fallocate: bool,
}

impl Streams {
    pub(super) fn run(&self) -> Outcome {
        if self.mixed && self.threads.threads.contains(&1) {
            return Err(Failure::Usage("--mixed needs at least two threads: --threads 2".to_owned()));
        }
        let pattern = if self.mixed { Pattern::Mixed } else { Pattern::Sequential };
        let (total, piece) = (self.size, self.piece);
        let allocate = self.fallocate;
        let options = streams::Options { pattern, total, piece, allocate, ..streams::Options::default() };
        self.common.run(&Workload::Streams(options), &self.threads.threads)
    }
}

/// Read and write random blocks of full files that all threads share: the request path alone, without
/// allocation or logging
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    hectare-lab bench random-overwrite --on engine:/dev/shm/disk.img --on raw:/dev/shm/disk.raw\n  \
    hectare-lab bench random-overwrite --threads 1,16 --reads 70 --on direct:disk.img\n\n\
    hectare-lab bench random-overwrite --ramp 30 --seconds 120 --stats --on direct:disk.img\n\n\
    The last is the published job of the kernel's overwrites without a transaction. Files are written first, \
    which is not measured; blocks are drawn independently (norandommap). handles/op: journal handles that a \
    request took. In a folder the page cache is bypassed where the file system can.")]
pub(super) struct RandomOverwrite {
    #[command(flatten)]
    common: Common,
    /// Number of threads; one run for each of a list
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "16",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Bytes per request
    #[arg(long, value_name = "BYTES", default_value = "4K", value_parser = parse_some)]
    block: u64,
    /// Percentage of reads; the other requests write
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(..=100))]
    reads: u32,
    /// Number of files
    #[arg(long, value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: u32,
    /// Bytes per file; if not given 512M, halved until all files fit into half of the free space
    #[arg(long, value_name = "BYTES", value_parser = parse_some)]
    size: Option<u64>,
    /// Warm-up before the measurement
    #[arg(long, value_name = "S", default_value = "0", value_parser = parse_ramp)]
    ramp: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_seconds)]
    seconds: Duration,
    /// Use the host's page cache, in a directory or a bare file
    #[arg(long)]
    buffered: bool,
}

impl RandomOverwrite {
    pub(super) fn run(&self) -> Outcome {
        let access = if self.buffered { Access::Cached } else { Access::Direct };
        let (block, reads, files, ramp, time) = (self.block, self.reads, self.files, self.ramp, self.seconds);
        let fit = if self.size.is_some() { Fit::Exactly } else { Fit::AtMost };
        let size = self.size.unwrap_or(random_overwrite::Options::default().size);
        let options = random_overwrite::Options { block, reads, files, size, fit, ramp, time, access };
        self.common.run(&Workload::RandomOverwrite(options), &self.threads)
    }
}

/// Append small records, each synced before the next; one file per thread
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    hectare-lab bench fsync-append --on engine:disk.img --threads 1,16 --seconds 5")]
pub(super) struct FsyncAppend {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    threads: Threads,
    /// Bytes per append
    #[arg(long, value_name = "BYTES", default_value = "4K", value_parser = parse_some)]
    append: u64,
    /// Size at which a file is truncated to zero
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_some)]
    size: u64,
    /// Duration of each run
    #[arg(long, value_name = "S", default_value = "5", value_parser = parse_seconds)]
    seconds: Duration,
}

impl FsyncAppend {
    pub(super) fn run(&self) -> Outcome {
        let (append, size, time) = (self.append, self.size, self.seconds);
        let options = fsync_append::Options { append, size, time };
        self.common.run(&Workload::FsyncAppend(options), &self.threads.threads)
    }
}

/// A size that is not zero and not more than memory should hold in one buffer.
fn parse_some(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("it can't be 0".to_owned()),
        size => Ok(size),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is no number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= 1e6 => Ok(time),
        _ => Err(format!("{text} is no number of seconds that can be waited for")),
    }
}

/// Like [`parse_seconds`], or none.
fn parse_ramp(text: &str) -> Result<Duration, String> {
    if text.parse() == Ok(0.0) { Ok(Duration::ZERO) } else { parse_seconds(text) }
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    if scale > 0.0 && scale <= 1.0 { Ok(scale) } else { Err("a scale is above 0 and at most 1".to_owned()) }
}
