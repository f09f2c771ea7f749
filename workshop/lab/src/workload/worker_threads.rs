//! Threads that start together, stop together, and are timed separately.
//!
//! The clock runs from the first thread that starts to the last that ends. No thread reads a clock between
//! two operations to see whether its time is over: the caller's thread does, and sets a flag. The same holds
//! for a ramp, a time of work before the measurement begins.

use crate::run::{Measure, float};
use hectare_tools::error::Result;
use hectare_units::{u64_of, usize_of};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Signals to threads that they must stop, and that the ramp is over.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    now: AtomicBool,
    ramped: AtomicBool,
}

impl Stop {
    pub(crate) fn now(&self) {
        self.now.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.now.load(Ordering::Relaxed)
    }

    /// Whether what is done now counts: the ramp is over.
    pub(crate) fn counts(&self) -> bool {
        self.ramped.load(Ordering::Relaxed)
    }
}

/// Work before what is measured begins.
pub(crate) struct Ramp<'r> {
    /// How long.
    pub(crate) time: Duration,
    /// Called when it is over, just before anything counts.
    pub(crate) over: &'r (dyn Fn() + Sync),
}

/// What one thread did, and when.
pub(crate) struct Worked<W> {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) work: W,
}

/// What one thread counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
    }
}

/// Runs `work` in this many threads at once, each with its number; signals them to stop after `limit`,
/// counted from when all are there, or when one of them fails. To give a thread that gets no processor
/// meanwhile something to report, work should do one thing at least.
pub(crate) fn together<W: Send>(
    threads: u32,
    limit: Option<Duration>,
    work: impl Fn(u32, &Stop) -> Result<W> + Sync,
) -> Result<Vec<Worked<W>>> {
    ramped(threads, &Ramp { time: Duration::ZERO, over: &|| () }, limit, work)
}

/// The same with a ramp first; the limit is counted from its end.
pub(crate) fn ramped<W: Send>(
    threads: u32,
    ramp: &Ramp<'_>,
    limit: Option<Duration>,
    work: impl Fn(u32, &Stop) -> Result<W> + Sync,
) -> Result<Vec<Worked<W>>> {
    let (stop, done) = (Stop::default(), AtomicUsize::new(0));
    let barrier = Barrier::new(usize_of(threads) + 1);
    let caller = thread::current();
    let one = |nr: u32| {
        barrier.wait();
        let started = Instant::now();
        let worked = work(nr, &stop);
        let ended = Instant::now();
        if worked.is_err() {
            stop.now();
        }
        done.fetch_add(1, Ordering::Release);
        caller.unpark();
        worked.map(|work| Worked { started, ended, work })
    };
    thread::scope(|scope| {
        let one = &one;
        let handles: Vec<_> = (0..threads).map(|nr| scope.spawn(move || one(nr))).collect();
        barrier.wait();
        let pause = |time: Duration| {
            let started = Instant::now();
            loop {
                let left = time.saturating_sub(started.elapsed());
                // A thread that panicked counts nothing, but it has finished.
                let over = handles.iter().all(thread::ScopedJoinHandle::is_finished);
                if left.is_zero() || over || stop.is_set() || done.load(Ordering::Acquire) == handles.len() {
                    break;
                }
                thread::park_timeout(left);
            }
        };
        pause(ramp.time);
        (ramp.over)();
        stop.ramped.store(true, Ordering::Relaxed);
        if let Some(limit) = limit {
            pause(limit);
            stop.now();
        }
        let join = |handle: thread::ScopedJoinHandle<'_, Result<Worked<W>>>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
    })
}

/// Seconds from the first start to the last end.
pub(crate) fn seconds<'w, W: 'w>(worked: impl Iterator<Item = &'w Worked<W>> + Clone) -> f64 {
    let started = worked.clone().map(|worked| worked.started).min();
    let ended = worked.map(|worked| worked.ended).max();
    match (started, ended) {
        (Some(started), Some(ended)) => (ended - started).as_secs_f64(),
        _ => 0.0,
    }
}

/// The figures of threads that only counted.
pub(crate) fn measure(what: &str, worked: &[Worked<Count>]) -> Measure {
    let counts = || worked.iter().map(|worked| worked.work);
    Measure {
        what: what.to_owned(),
        operations: counts().map(|count| count.operations).sum(),
        bytes: counts().map(|count| count.bytes).sum(),
        seconds: seconds(worked.iter()),
        per_thread: counts().map(|count| count.operations).collect(),
        ..Measure::default()
    }
}

/// The `nr`-th of `parts` shares of `total`; they differ by one at most.
pub(crate) fn share(total: u64, parts: u32, nr: u32) -> u64 {
    let parts = u64::from(parts);
    total / parts + u64::from(u64::from(nr) < total % parts)
}

/// A number scaled, at least 1.
pub(crate) fn scaled(n: u64, scale: f64) -> u64 {
    let product = (float(n) * scale).round().max(1.0);
    // Scales are at most 1, so the product is at most n.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let product = product as u64;
    product.min(n.max(1))
}

/// The width of the largest of this many numbers, so that names sort.
pub(crate) fn digits(n: u64) -> usize {
    u64_of(n.saturating_sub(1).to_string().len()).try_into().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_before_the_ramp_is_over() {
        let over = AtomicUsize::new(0);
        let note = || {
            over.fetch_add(1, Ordering::Relaxed);
        };
        let ramp = Ramp { time: Duration::from_millis(20), over: &note };
        let work = |_, stop: &Stop| {
            let before = stop.counts();
            while !stop.counts() {
                assert!(!stop.is_set(), "the limit counts from the end of the ramp");
                thread::yield_now();
            }
            Ok((before, over.load(Ordering::Relaxed)))
        };
        let worked = ramped(2, &ramp, Some(Duration::from_millis(1)), work).unwrap();
        assert!(worked.iter().all(|one| one.work == (false, 1)));
        // One that fails in the ramp ends it for all.
        let ramp = Ramp { time: Duration::from_secs(3600), over: &|| () };
        let work = |nr, stop: &Stop| match nr {
            0 => Err(Error::Invalid("no".to_owned())),
            _ => {
                while !stop.is_set() || !stop.counts() {
                    thread::yield_now();
                }
                Ok(())
            }
        };
        assert!(ramped(2, &ramp, Some(Duration::from_secs(3600)), work).is_err());
    }
    use hectare_tools::error::Error;

    #[test]
    fn shares_add_up() {
        assert_eq!((0..3).map(|nr| share(10, 3, nr)).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!((0..7).map(|nr| share(5, 7, nr)).sum::<u64>(), 5);
        assert_eq!((scaled(400, 0.5), scaled(4, 0.01), scaled(7, 1.0)), (200, 1, 7));
        assert_eq!((digits(1), digits(10), digits(11)), (1, 1, 2));
    }

    #[test]
    fn a_limit_stops_all_and_a_failure_stops_the_others() {
        let spin = |_: u32, stop: &Stop| {
            while !stop.is_set() {
                thread::yield_now();
            }
            Ok(())
        };
        let began = Instant::now();
        let worked = together(3, Some(Duration::from_millis(20)), spin).ok().unwrap();
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(seconds(worked.iter()) > 0.0 && seconds(worked.iter()) <= began.elapsed().as_secs_f64());
        let failing = |nr: u32, stop: &Stop| {
            if nr == 1 { Err(Error::Invalid("one".into())) } else { spin(nr, stop) }
        };
        let failed = together(3, None, failing).err().unwrap();
        assert_eq!(failed.to_string(), "one");
    }

    #[test]
    fn work_that_is_done_is_not_waited_for() {
        let started = Instant::now();
        let worked = together(2, Some(Duration::from_secs(60)), |nr, _| Ok(nr)).ok().unwrap();
        assert_eq!(worked.iter().map(|worked| worked.work).collect::<Vec<_>>(), [0, 1]);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
