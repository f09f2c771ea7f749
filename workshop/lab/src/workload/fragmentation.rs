//! The six mixes that show whether an allocator keeps files of different sizes and lifetimes apart.
//!
//! In each, jobs that allocate and free large extents run beside jobs that append to small files. What counts
//! is the fragmentation of the free space afterwards, not only the speed. The parameters are those of the
//! fragmentation tests of fsperf, with which btrfs's size classes were judged.

use crate::target::Target;
use crate::workload::jobs::{self, Job};
use crate::workload::{Ran, size};
use hectare_tools::error::Result;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// How often a large file is made and removed.
const LOOPS: u64 = 100;

/// One of the six.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// 32 appenders of 64 KiB beside four jobs that allocate and free 256 MiB.
    AppendVsFallocate,
    /// Short-lived large extents beside short-lived small ones.
    CorrelatedLifetimes,
    /// Extents of 2 GiB, 128 MiB and 8 MiB beside appenders of 128 KiB.
    FourSizes,
    /// Extents just above the bounds of btrfs's size classes.
    FunnySizesHigh,
    /// Extents just below them.
    FunnySizesLow,
    /// Large and small extents, each both short-lived and long-lived.
    MixedLifetimes,
}

/// A mix and how it is run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Which.
    pub mix: Mix,
    /// Scale, 1 being as in fsperf: sizes, loops and times shrink with it.
    pub scale: f64,
    /// For `append-vs-fallocate`: appends of 128 KiB, none made durable by itself.
    pub no_sync: bool,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::AppendVsFallocate,
        Self::CorrelatedLifetimes,
        Self::FourSizes,
        Self::FunnySizesHigh,
        Self::FunnySizesLow,
        Self::MixedLifetimes,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AppendVsFallocate => "append-vs-fallocate",
            Self::CorrelatedLifetimes => "correlated-lifetimes",
            Self::FourSizes => "four-sizes",
            Self::FunnySizesHigh => "funny-sizes-high",
            Self::FunnySizesLow => "funny-sizes-low",
            Self::MixedLifetimes => "mixed-lifetimes",
        }
    }

    /// Its jobs at full scale.
    #[must_use]
    pub fn jobs(self) -> Vec<Job> {
        let measured = |job: Job| Job { measured: true, ..job };
        match self {
            Self::AppendVsFallocate => vec![
                Job {
                    threads: 4,
                    think: Duration::from_millis(500),
                    runtime: Some(Duration::from_secs(20)),
                    ..Job::churn("fallocate", 256 * MIB, 256 * MIB, 400)
                },
                Job::append("append", 64 * KIB, 128 * MIB),
            ],
            Self::CorrelatedLifetimes => vec![
                measured(Job::churn("large-short", 128 * MIB, GIB, LOOPS)),
                measured(Job::churn("small-short", 128 * KIB, 128 * MIB, 1000)),
            ],
            Self::FourSizes => vec![
                Job::churn("huge", 2 * GIB, 2 * GIB, LOOPS),
                Job::churn("large", 128 * MIB, GIB, LOOPS),
                Job::churn("medium", 8 * MIB, GIB, LOOPS),
                Job::append("small", 128 * KIB, 128 * MIB),
            ],
            Self::FunnySizesHigh => funny(129, 9, 129),
            Self::FunnySizesLow => funny(127, 7, 127),
            Self::MixedLifetimes => vec![
                Job { think: Duration::from_millis(10), ..Job::churn("large-long", 128 * MIB, GIB, LOOPS) },
                Job::churn("large-short", 128 * MIB, GIB, LOOPS),
                Job::churn("small-short", 128 * KIB, 128 * MIB, 1000),
                Job::append("small-long", 128 * KIB, 128 * MIB),
            ],
        }
    }
}

fn funny(large: u64, medium: u64, small: u64) -> Vec<Job> {
    vec![
        Job::churn("large", large * MIB, GIB, LOOPS),
        Job::churn("medium", medium * MIB, GIB, LOOPS),
        Job::append("small", small * KIB, 128 * MIB),
    ]
}

impl Options {
    /// The mix with fsperf's parameters.
    #[must_use]
    pub const fn new(mix: Mix) -> Self {
        Self { mix, scale: 1.0, no_sync: false }
    }

    /// The jobs as they will be run.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = self.mix.jobs();
        for job in &mut jobs {
            if self.no_sync && job.measured && job.fdatasync {
                *job = Job { fdatasync: false, block: 128 * KIB, ..*job };
            }
            *job = job.scaled(self.scale);
        }
        jobs
    }

    pub(super) fn threads(&self) -> u32 {
        self.mix.jobs().iter().map(|job| job.threads).sum()
    }

    pub(super) fn variant(&self) -> String {
        let jobs = self.jobs();
        let mut words: Vec<String> = jobs
            .iter()
            .filter(|job| job.measured)
            .map(|job| format!("{}{}", size(job.block), if job.fdatasync { " + fdatasync" } else { "" }))
            .collect();
        if self.scale < 1.0 {
            words.push(format!("scale {}", self.scale));
        }
        words.join(", ")
    }
}

pub(super) fn run(options: &Options, target: &dyn Target, folder: &str) -> Result<Ran> {
    jobs::run(&options.jobs(), target, folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_appenders_of_every_mix_write_what_fsperfs_do() {
        for mix in Mix::ALL {
            let written: u64 = mix.jobs().iter().filter(|job| !job.unlink).map(bytes).sum();
            let expected = match mix {
                Mix::CorrelatedLifetimes => 0,
                Mix::FunnySizesHigh => 32 * (128 * MIB / (129 * KIB)) * 129 * KIB,
                Mix::FunnySizesLow => 32 * (128 * MIB / (127 * KIB)) * 127 * KIB,
                _ => 4 * GIB,
            };
            assert_eq!(written, expected, "{}", mix.name());
        }
    }

    fn bytes(job: &Job) -> u64 {
        u64::from(job.threads) * (job.file / job.block) * job.block
    }

    #[test]
    fn the_variant_without_syncs_changes_the_appenders_only() {
        let mut options = Options::new(Mix::AppendVsFallocate);
        assert_eq!(options.variant(), "64 KiB + fdatasync");
        options.no_sync = true;
        assert_eq!(options.variant(), "128 KiB");
        assert_eq!(options.jobs()[0], Mix::AppendVsFallocate.jobs()[0]);
        assert_eq!(options.jobs()[1].think, Duration::from_millis(1));
    }
}
