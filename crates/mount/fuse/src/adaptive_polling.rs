//! Speeds up wakeups during bursts of requests.
//!
//! A program that creates or reads many small files waits for each answer, and most of that wait is wakeup
//! latency: first of the server's thread, on another processor that went idle meanwhile, then of the program.
//! An [`Aid`] reduces that, at a cost that is not worth it while little happens. So a [`Pace`] counts the
//! requests, and a *governor*, a thread of its own, starts the aid when a few requests came in quick
//! succession, and stops it when few came for a moment, or when other programs suffer from it.
//!
//! There are two aids: idle processors of a virtual machine that don't halt ([`idle_poll`]), which root may
//! ask for, and a thread that doesn't sleep ([`busy_poll`]), which takes a processor for itself and saves
//! only the first half of the wait. Both together are hardly quicker than the first alone
//! (docs/benchmarks/mount.md).
//!
//! What it is not: a promise. An aid affects latency only.

pub(crate) mod busy_poll;
pub(crate) mod idle_poll;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Requests per window.
const WINDOW: u64 = 16;
/// A burst begins when a window fills within this time: 4 requests a millisecond.
const WINDOW_FAST: Duration = Duration::from_millis(4);
/// The period of the governor during a burst, and so about how long the aid outlasts the last request.
const TICK: Duration = Duration::from_millis(2);
/// Fewer requests in a tick end a burst: half as many as begin it.
const REQUESTS_MIN: u64 = 4;
/// How long an aid rests after other programs suffered from it.
const REST: Duration = Duration::from_millis(100);

/// Reduces wakeup latency during a burst.
pub(crate) trait Aid: Send {
    /// Begins; returns whether that was possible.
    fn begin(&mut self) -> bool;

    /// Whether other programs suffer from it. Called once a tick.
    fn is_a_burden(&mut self) -> bool;

    /// Ends it.
    fn end(&mut self);
}

/// Counts requests, and wakes the governor, if there is one, when they come quickly.
#[derive(Default)]
pub(crate) struct Pace {
    requests: AtomicU64,
    /// When the last window was full, in nanoseconds since the governor started.
    window_full: AtomicU64,
    governor: OnceLock<(Thread, Instant)>,
    /// Why the governor was woken: requests come quickly.
    is_fast: AtomicBool,
    /// The governor is at work and need not be woken.
    is_burst: AtomicBool,
    has_ended: AtomicBool,
}

impl Pace {
    /// Counts a request: one addition, to a counter shared by all threads.
    pub(crate) fn request(&self) {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(WINDOW) && !self.is_burst.load(Ordering::Relaxed) {
            self.end_window();
        }
    }

    #[cold]
    fn end_window(&self) {
        let Some((governor, began)) = self.governor.get() else { return };
        let now = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = self.window_full.swap(now, Ordering::Relaxed);
        if before > 0 && Duration::from_nanos(now.saturating_sub(before)) < WINDOW_FAST {
            self.is_fast.store(true, Ordering::Relaxed);
            governor.unpark();
        }
    }

    fn count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// The governor of a session, for the lifetime of the session.
pub(crate) struct Governor {
    pace: Arc<Pace>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    /// Starts the thread that watches the requests counted by `pace`.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub(crate) fn start(aid: Box<dyn Aid>, pace: Arc<Pace>) -> io::Result<Self> {
        let watched = Arc::clone(&pace);
        let thread =
            thread::Builder::new().name("hectare-burst".into()).spawn(move || govern(aid, &watched))?;
        let _ = pace.governor.set((thread.thread().clone(), Instant::now())); // it is a new one
        Ok(Self { pace, thread: Some(thread) })
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.pace.has_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // it can't panic
        }
    }
}

fn govern(mut aid: Box<dyn Aid>, pace: &Pace) {
    while !pace.has_ended.load(Ordering::Relaxed) {
        thread::park();
        // It may have been woken once more for a burst that is over.
        if !pace.is_fast.swap(false, Ordering::Relaxed) {
            continue;
        }
        pace.is_burst.store(true, Ordering::Relaxed);
        let is_over = !aid.begin() || outlast(pace, &mut *aid);
        aid.end();
        if !is_over {
            thread::sleep(REST);
        }
        pace.window_full.store(0, Ordering::Relaxed);
        pace.is_fast.store(false, Ordering::Relaxed);
        pace.is_burst.store(false, Ordering::Relaxed);
    }
}

/// Returns when few requests come, or other programs suffer from the aid; whether the burst is over.
fn outlast(pace: &Pace, aid: &mut dyn Aid) -> bool {
    let mut seen = pace.count();
    loop {
        thread::sleep(TICK);
        let before = std::mem::replace(&mut seen, pace.count());
        if seen.wrapping_sub(before) < REQUESTS_MIN || pace.has_ended.load(Ordering::Relaxed) {
            return true;
        }
        if aid.is_a_burden() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls of an aid, and what it is to return.
    #[derive(Default)]
    struct AidCalls {
        helps: AtomicBool,
        begun: AtomicU64,
        burden: AtomicBool,
    }

    struct Watched(Arc<AidCalls>);

    impl Aid for Watched {
        fn begin(&mut self) -> bool {
            self.0.begun.fetch_add(1, Ordering::SeqCst);
            assert!(!self.0.helps.swap(true, Ordering::SeqCst));
            true
        }

        fn is_a_burden(&mut self) -> bool {
            self.0.burden.load(Ordering::SeqCst)
        }

        fn end(&mut self) {
            assert!(self.0.helps.swap(false, Ordering::SeqCst));
        }
    }

    /// Polls without a pause: the condition may hold for a short time only.
    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "timed out waiting: {what}");
        }
    }

    fn governed() -> (Arc<AidCalls>, Arc<Pace>, Governor) {
        let (told, pace) = (Arc::<AidCalls>::default(), Arc::<Pace>::default());
        let governor = Governor::start(Box::new(Watched(Arc::clone(&told))), Arc::clone(&pace)).unwrap();
        (told, pace, governor)
    }

    #[test]
    fn many_requests_begin_it_and_few_end_it() {
        let (told, pace, governor) = governed();
        let helps = || told.helps.load(Ordering::SeqCst);
        assert!(!helps());
        for _ in 0..3 {
            until("it helps", || {
                pace.request();
                helps()
            });
            until("it ends", || !helps());
        }
        // One now and then is not a burst.
        let begun = told.begun.load(Ordering::SeqCst);
        for _ in 0..3 * WINDOW {
            pace.request();
            thread::sleep(WINDOW_FAST / u32::try_from(WINDOW / 2).unwrap());
        }
        drop(governor);
        assert!(!helps());
        assert_eq!(told.begun.load(Ordering::SeqCst), begun);
    }

    #[test]
    fn a_burden_ends_it_while_requests_come() {
        let (told, pace, _governor) = governed();
        let helps = || {
            pace.request();
            told.helps.load(Ordering::SeqCst)
        };
        until("it helps", helps);
        told.burden.store(true, Ordering::SeqCst);
        until("it rests", || !helps());
        let rests = Instant::now();
        told.burden.store(false, Ordering::SeqCst);
        until("it helps again", helps);
        assert!(rests.elapsed() > REST / 2, "{:?}", rests.elapsed());
    }
}
