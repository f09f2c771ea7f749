//! Counts the requests that a mount answers: how many of each kind, how long they took, which errors they
//! were answered with, and how many bytes were read and written.
//!
//! **Cost.** Counting is always on, so it must be next to nothing: two reads of the clock and three relaxed
//! additions per request (the time's bucket, the sum of times, and the bytes of a read or write), to a stripe
//! that the thread shares with few others, on cache lines of its own. There is no lock, and nothing is added
//! up until a [snapshot](Operations::snapshot) is taken. Errors are counted without stripes: they are few.
//!
//! **Times** are from the moment a request was read from the kernel's queue to the moment its answer is about
//! to be sent, without what the kernel adds on both sides. A request is counted before its answer is sent: a
//! caller that has its answer finds it counted. Buckets are powers of two nanoseconds, so that finding one is
//! one instruction.
//!
//! What it is not: a trace of single requests. And a lookup of a name that does not exist counts as answered
//! with `ENOENT`, though the kernel gets a negative entry that it may cache.

use crate::errno::{self, Answer, Refusal};
use hectare_units::log_scale::{self, LogScale};
use hectare_units::{thread_number, u64_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Declares the kinds of requests with their names.
macro_rules! operations {
    ($($variant:ident $name:literal)*) => {
        /// The kinds of requests that are counted: those that are passed to the engine.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // each is the request of the FUSE protocol of that name
        pub enum Operation { $($variant,)* }

        impl Operation {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in the FUSE protocol, in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

operations! {
    Lookup "lookup" Forget "forget" Getattr "getattr" Statx "statx" Setattr "setattr" Readlink "readlink"
    Mknod "mknod" Mkdir "mkdir" Unlink "unlink" Rmdir "rmdir" Symlink "symlink" Rename "rename" Link "link"
    Open "open" Create "create" Tmpfile "tmpfile" Read "read" Write "write" Release "release" Fsync "fsync"
    Opendir "opendir" Readdir "readdir" Readdirplus "readdirplus" Fsyncdir "fsyncdir" Syncfs "syncfs"
    Statfs "statfs" Setxattr "setxattr" Getxattr "getxattr" Listxattr "listxattr" Removexattr "removexattr"
    Ioctl "ioctl" Fallocate "fallocate" Lseek "lseek" CopyFileRange "copy_file_range"
}

const KINDS: usize = Operation::ALL.len();
/// Stripes over which counts are spread.
const STRIPES: usize = 16;
/// Buckets of a histogram; the last has no upper end.
const BUCKETS: usize = 26;
/// The first bucket ends at 2^10 nanoseconds, each other at twice the one before it.
const SCALE: LogScale = LogScale::new(9, 0, BUCKETS);

/// A histogram of times.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// The number of times no longer than [`Self::end`] of their bucket and longer than that of the one
    /// before.
    counts: [u64; BUCKETS],
    /// The sum of all times, in nanoseconds.
    nanoseconds: u64,
}

impl Histogram {
    /// The longest time in a bucket; `None` for the last, which has no upper end.
    #[must_use]
    pub fn end(bucket: usize) -> Option<Duration> {
        (bucket + 1 < BUCKETS).then(|| Duration::from_nanos(SCALE.end(bucket)))
    }

    /// The bucket of a time.
    fn bucket(nanoseconds: u64) -> usize {
        // A time that is the end of a bucket belongs to it.
        SCALE.bucket(nanoseconds.saturating_sub(1))
    }

    /// Adds `count` times of one length with the sum `all`.
    pub fn add(&mut self, length: Duration, count: u64, all: Duration) {
        self.counts[Self::bucket(nanoseconds(length))] += count;
        self.nanoseconds = self.nanoseconds.wrapping_add(nanoseconds(all));
    }

    /// Adds all times of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.wrapping_add(count);
        }
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }

    /// The times that were added since an earlier state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            counts: std::array::from_fn(|bucket| self.counts[bucket].saturating_sub(earlier.counts[bucket])),
            nanoseconds: self.nanoseconds.saturating_sub(earlier.nanoseconds),
        }
    }

    /// The number of times by bucket, the shortest first.
    #[must_use]
    pub const fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        // In another program's answer they may add up to anything.
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all times.
    #[must_use]
    pub const fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// The mean time; zero if there are none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.checked_div(self.count()).unwrap_or(0))
    }

    /// A time that `per_mille` of 1000 did not exceed, interpolated inside its bucket as if the times there
    /// were spread evenly; zero if there are none.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Duration {
        let Some((bucket, rank)) = log_scale::quantile(&self.counts, per_mille) else {
            return Duration::ZERO;
        };
        let start = bucket.checked_sub(1).and_then(Self::end).map_or(0, nanoseconds);
        let end = Self::end(bucket).map_or(start, nanoseconds);
        let half_ranks = u128::from(rank) * 2 - 1;
        let part = u128::from(end - start) * half_ranks / (u128::from(self.counts[bucket]) * 2);
        Duration::from_nanos(start + u64::try_from(part).unwrap_or(0))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The counters of one kind of request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// [`Operation::name`].
    pub name: String,
    /// How long they took.
    pub times: Histogram,
    /// The number of errors, by name.
    pub errors: BTreeMap<String, u64>,
}

/// All counters at about one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OperationsSnapshot {
    /// By kind, in the order of [`Operation::ALL`].
    pub kinds: Vec<Counted>,
    /// Bytes that reads were answered with.
    pub bytes_read: u64,
    /// Bytes reported as written.
    pub bytes_written: u64,
}

impl OperationsSnapshot {
    /// The times of all kinds together.
    #[must_use]
    pub fn times(&self) -> Histogram {
        self.kinds.iter().fold(Histogram::default(), |mut sum, kind| {
            sum.merge(&kind.times);
            sum
        })
    }

    /// What was counted of one kind.
    #[must_use]
    pub fn of(&self, operation: Operation) -> Option<&Counted> {
        self.kinds.get(operation as usize)
    }
}

#[derive(Default)]
struct Times {
    counts: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// The counters of some of the threads, away from the cache lines (fetched in pairs) of the others.
#[repr(align(128))]
struct Stripe {
    kinds: [Times; KINDS],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Default for Stripe {
    fn default() -> Self {
        let kinds = std::array::from_fn(|_| Times::default());
        Self { kinds, bytes_read: AtomicU64::default(), bytes_written: AtomicU64::default() }
    }
}

/// The live counters of a mount.
pub struct Operations {
    stripes: Box<[Stripe]>,
    /// By kind and error number.
    errors: Box<[AtomicU64]>,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            stripes: std::iter::repeat_with(Stripe::default).take(STRIPES).collect(),
            errors: std::iter::repeat_with(AtomicU64::default).take(KINDS * errno::COUNT).collect(),
        }
    }
}

impl Operations {
    fn stripe(&self) -> &Stripe {
        &self.stripes[thread_number() % STRIPES]
    }

    /// Answers a request, and counts its time and its error.
    pub(crate) fn timed<T>(&self, operation: Operation, answer: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let began = Instant::now();
        let answer = answer();
        let took = nanoseconds(began.elapsed());
        let times = &self.stripe().kinds[operation as usize];
        times.counts[Histogram::bucket(took)].fetch_add(1, Ordering::Relaxed);
        times.nanoseconds.fetch_add(took, Ordering::Relaxed);
        if let Err(Refusal(errno)) = &answer {
            self.errors[operation as usize * errno::COUNT + errno::index(*errno)]
                .fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Counts the bytes returned by a read.
    pub(crate) fn add_read(&self, bytes: usize) {
        self.stripe().bytes_read.fetch_add(u64_of(bytes), Ordering::Relaxed);
    }

    /// Counts the bytes written.
    pub(crate) fn add_written(&self, bytes: u64) {
        self.stripe().bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counters as they are now. It may contain parts of requests in progress.
    #[must_use]
    pub fn snapshot(&self) -> OperationsSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum = |of: fn(&Stripe) -> &AtomicU64| {
            self.stripes.iter().fold(0, |sum: u64, stripe| sum.wrapping_add(load(of(stripe))))
        };
        OperationsSnapshot {
            kinds: Operation::ALL.into_iter().map(|operation| self.counted(operation)).collect(),
            bytes_read: sum(|stripe| &stripe.bytes_read),
            bytes_written: sum(|stripe| &stripe.bytes_written),
        }
    }

    fn counted(&self, operation: Operation) -> Counted {
        let kind = operation as usize;
        let mut times = Histogram::default();
        for stripe in &self.stripes {
            let live = &stripe.kinds[kind];
            times.merge(&Histogram {
                counts: std::array::from_fn(|bucket| live.counts[bucket].load(Ordering::Relaxed)),
                nanoseconds: live.nanoseconds.load(Ordering::Relaxed),
            });
        }
        let errors = &self.errors[kind * errno::COUNT..][..errno::COUNT];
        let seen = errors.iter().enumerate().map(|(index, count)| (index, count.load(Ordering::Relaxed)));
        let named = |(index, count): (usize, u64)| (count > 0).then(|| (errno::name(index), count));
        Counted { name: operation.name().into(), times, errors: seen.filter_map(named).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn every_time_lies_between_the_ends_of_its_bucket() {
        for ns in (0..63).map(|power| 1_u64 << power).flat_map(|ns| [ns - 1, ns, ns + 1]) {
            let bucket = Histogram::bucket(ns);
            let time = Duration::from_nanos(ns);
            assert!(Histogram::end(bucket).is_none_or(|end| time <= end), "{ns}");
            assert!(bucket == 0 || Histogram::end(bucket - 1).unwrap() < time, "{ns}");
        }
        assert_eq!(Histogram::end(BUCKETS - 1), None);
        assert_eq!(Histogram::end(BUCKETS - 2), Some(Duration::from_nanos(1 << 34)));
    }

    #[test]
    fn quantiles_lie_in_their_bucket() {
        let mut times = Histogram::default();
        assert_eq!((times.quantile(500), times.mean()), (Duration::ZERO, Duration::ZERO));
        for (micros, count) in [(3, 90), (100, 10)] {
            let length = Duration::from_micros(micros);
            times.add(length, count, length * u32::try_from(count).unwrap());
        }
        assert_eq!(times.mean(), Duration::from_nanos(12_700));
        let within = |per_mille, from, to| {
            let found = times.quantile(per_mille).as_nanos();
            assert!(found > from && found <= to, "{per_mille}: {found}");
        };
        within(500, 2048, 4096);
        within(900, 2048, 4096);
        within(901, 65_536, 131_072);
        within(1000, 65_536, 131_072);
        let later = times.clone();
        assert_eq!(later.since(&times), Histogram::default());
    }

    #[test]
    fn regression_counts_that_a_server_made_up_are_no_panic() {
        let mut times = Histogram { counts: [u64::MAX; BUCKETS], nanoseconds: u64::MAX };
        assert_eq!(times.count(), u64::MAX);
        for per_mille in [0, 1, 500, 1000] {
            assert!(times.quantile(per_mille) <= Duration::from_secs(20));
        }
        times.counts = [0; BUCKETS];
        times.counts[BUCKETS - 1] = u64::MAX;
        assert!(times.quantile(500) > Duration::ZERO && times.mean() > Duration::ZERO);
    }

    #[test]
    fn what_threads_count_adds_up() {
        let operations = Operations::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert!(operations.timed(Operation::Read, || Ok(())).is_ok());
                        operations.add_read(10);
                    }
                    let failed: Answer = operations.timed(Operation::Mkdir, || Err(Errno::EXIST.into()));
                    assert!(failed.is_err());
                });
            }
        });
        let counted = operations.snapshot();
        assert_eq!(counted.of(Operation::Read).unwrap().times.count(), 2000);
        assert_eq!((counted.bytes_read, counted.bytes_written), (20_000, 0));
        let made = counted.of(Operation::Mkdir).unwrap();
        assert_eq!((made.name.as_str(), made.times.count(), made.errors["EEXIST"]), ("mkdir", 40, 40));
        assert_eq!(counted.times().count(), 2040);
    }
}
