//! Busy polling: while many requests come, one thread asks the kernel for the next one again and again
//! instead of sleeping until it is woken.
//!
//! A program that makes or looks at many small files waits for each answer, and most of that wait is waking:
//! the server's thread for the request, on another processor that went idle meanwhile, then the program for
//! the answer. Polling saves the first half. It is worth its processor only while requests come quickly, so a
//! [`Pace`] counts them, and a *governor*, a thread of its own, begins to poll when a few came fast one after
//! another, and ends it when few came for a moment.
//!
//! How: the session library reads the connection in a loop that tries again when it is told to (`EAGAIN`), so
//! making the connection non-blocking is all it takes. The library's other threads read through descriptors
//! of their own, which stay blocking: they answer what comes while the one is at work. Where they all share
//! one, all would poll, so there nothing is done.
//!
//! Hazards:
//! - *A processor that others want.* A thread that polls looks busy to the scheduler and takes its share. So
//!   the governor looks how long this program's threads were ready to run and had to wait, and if that is
//!   much, polling rests for a while. With one processor there is none to spare, and where the kernel doesn't
//!   tell how long threads waited, polling does not begin.
//! - *The description is shared.* The flag belongs to the open file description, which the governor shares
//!   with the session; it must not be set on one that anybody else reads.
//!
//! What it is not: a promise. Whether it polls or not changes nothing but time.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// So many requests are looked at together.
const WINDOW: u64 = 16;
/// Polling begins when a window of them came in so long: 4 a millisecond.
const WINDOW_FAST: Duration = Duration::from_millis(4);
/// How often the governor looks while there is polling, and so about how long it outlasts the last request.
const TICK: Duration = Duration::from_millis(2);
/// Fewer requests in a tick end it: half as many as begin it.
const REQUESTS_MIN: u64 = 4;
/// So many ticks pass between two looks at how long threads waited for a processor: one that is woken on the
/// wrong processor may wait through a whole tick.
const TICKS: u32 = 16;
/// Polling rests if all threads together waited for longer than this part (one in so many) of the time.
const WAIT_PART: u32 = 2;
/// How long polling rests when others wanted the processor.
const REST: Duration = Duration::from_millis(100);

/// Counts requests as they come, and wakes the governor, if there is one, when they come quickly.
#[derive(Default)]
pub(crate) struct Pace {
    requests: AtomicU64,
    /// When the last window of them was full, in nanoseconds since there is a governor.
    window_full: AtomicU64,
    governor: OnceLock<(Thread, Instant)>,
    /// Why the governor was woken: they come quickly.
    is_fast: AtomicBool,
    /// The governor is at work and need not be woken.
    is_polling: AtomicBool,
    has_ended: AtomicBool,
}

impl Pace {
    /// Counts a request: one addition, to a count that all threads share.
    pub(crate) fn request(&self) {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(WINDOW) && !self.is_polling.load(Ordering::Relaxed) {
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

/// The governor of a session, as long as that lasts.
pub(crate) struct BusyPoll {
    pace: Arc<Pace>,
    governor: Option<JoinHandle<()>>,
}

impl BusyPoll {
    /// Begins to watch over a connection whose requests are counted by `pace`.
    ///
    /// # Errors
    /// If there can't be a thread or a descriptor more.
    pub(crate) fn start(connection: &OwnedFd, pace: Arc<Pace>) -> io::Result<Self> {
        let (connection, watched) = (connection.try_clone()?, Arc::clone(&pace));
        let governor = thread::Builder::new()
            .name("hectare-poll".into())
            .spawn(move || govern(&connection, &watched))?;
        let _ = pace.governor.set((governor.thread().clone(), Instant::now())); // it is a new one
        Ok(Self { pace, governor: Some(governor) })
    }
}

impl Drop for BusyPoll {
    fn drop(&mut self) {
        self.pace.has_ended.store(true, Ordering::Relaxed);
        if let Some(governor) = self.governor.take() {
            governor.thread().unpark();
            let _ = governor.join(); // it can't panic
        }
    }
}

fn govern(connection: &OwnedFd, pace: &Pace) {
    while !pace.has_ended.load(Ordering::Relaxed) {
        thread::park();
        // It may have been woken once more for what is over.
        let waited = if pace.is_fast.swap(false, Ordering::Relaxed) { waited() } else { None };
        let Some(waited) = waited else { continue };
        pace.is_polling.store(true, Ordering::Relaxed);
        let is_contended = set_blocking(connection, false).is_ok() && poll(pace, waited);
        // Should this fail, the connection is gone.
        let _ = set_blocking(connection, true);
        if is_contended {
            thread::sleep(REST);
        }
        pace.window_full.store(0, Ordering::Relaxed);
        pace.is_fast.store(false, Ordering::Relaxed);
        pace.is_polling.store(false, Ordering::Relaxed);
    }
}

/// Lets the session poll until few requests come, or others want the processor, and tells whether that is
/// why. All threads have `waited` so long when it begins.
fn poll(pace: &Pace, mut waited_before: Duration) -> bool {
    let (mut seen, mut looked) = (pace.count(), Instant::now());
    for tick in 1_u32.. {
        thread::sleep(TICK);
        let before = std::mem::replace(&mut seen, pace.count());
        if seen.wrapping_sub(before) < REQUESTS_MIN || pace.has_ended.load(Ordering::Relaxed) {
            break;
        }
        if tick.is_multiple_of(TICKS) {
            let Some(waited) = waited() else { break };
            if waited.saturating_sub(waited_before) > looked.elapsed() / WAIT_PART {
                return true;
            }
            (waited_before, looked) = (waited, Instant::now());
        }
    }
    false
}

fn set_blocking(connection: impl AsFd, blocking: bool) -> rustix::io::Result<()> {
    let mut flags = fcntl_getfl(&connection)?;
    flags.set(OFlags::NONBLOCK, !blocking);
    fcntl_setfl(&connection, flags)
}

/// How long the threads that this program has were ready to run and did not, all together; nothing if the
/// kernel does not tell.
fn waited() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    // Nanoseconds on a processor, nanoseconds waiting for one, and how often it got one. A thread may end
    // between being listed and being asked.
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    let waits = texts.map(|text| text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos));
    let waits: Vec<Duration> = waits.collect::<Option<_>>()?;
    (!waits.is_empty()).then(|| waits.into_iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn is_blocking(connection: &OwnedFd) -> bool {
        !fcntl_getfl(connection).unwrap().contains(OFlags::NONBLOCK)
    }

    /// Looks without a pause: what is waited for may be over soon.
    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "waited for in vain: {what}");
        }
    }

    #[test]
    fn many_requests_begin_it_and_few_end_it() {
        let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
        let pace = Arc::new(Pace::default());
        let polling = BusyPoll::start(&connection, Arc::clone(&pace)).unwrap();
        if waited().is_none() {
            eprintln!("the kernel does not tell how long a thread waited");
            return;
        }
        assert!(is_blocking(&connection));
        for _ in 0..3 {
            until("it polls", || {
                pace.request();
                !is_blocking(&connection)
            });
            until("it blocks again", || is_blocking(&connection));
        }
        // One now and then is not many.
        for _ in 0..3 * WINDOW {
            pace.request();
            thread::sleep(WINDOW_FAST / u32::try_from(WINDOW / 2).unwrap());
            assert!(is_blocking(&connection));
        }
        drop(polling);
        assert!(is_blocking(&connection));
    }

    #[test]
    fn threads_that_wait_are_seen() {
        let Some(before) = waited() else { return };
        let threads = 8 * thread::available_parallelism().unwrap().get();
        let (began, is_seen) = (Instant::now(), AtomicBool::new(false));
        let spin = || {
            while !is_seen.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(100) {
                std::hint::spin_loop();
            }
        };
        thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(spin)));
            // Of eight only one can run.
            until("they wait", || {
                waited().is_some_and(|now| now.saturating_sub(before) > Duration::from_millis(150))
            });
            is_seen.store(true, Ordering::Relaxed);
        });
    }
}
