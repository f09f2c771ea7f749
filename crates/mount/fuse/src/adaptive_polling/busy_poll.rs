//! Busy polling: one thread polls the kernel for the next request instead of sleeping until it is woken.
//!
//! How: threads read the connection in a loop that retries on `EAGAIN`, so making the connection non-blocking
//! is all it takes ([`crate::event_loop`]). The other threads read through descriptors of their own, which
//! stay blocking: they answer what comes while the polling thread is at work. Where all threads share one
//! descriptor, all would poll, so busy polling is not used there.
//!
//! Hazards:
//! - *Contention for the processor.* A thread that polls looks busy to the scheduler and takes its share. So
//!   it is a burden if this program's threads were ready to run and had to wait for long. With one processor
//!   there is none to spare, and where the kernel doesn't report how long threads waited, polling does not
//!   begin.
//! - *The description is shared.* The flag belongs to the open file description, which is the session's, too;
//!   it must not be set on one that another thread reads.

use super::Aid;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Ticks between two checks of how long threads waited for a processor: one that is woken on the wrong
/// processor may wait through a whole tick.
const TICKS: u32 = 16;
/// Polling is a burden if all threads together waited for longer than this part (1/N) of the time.
const WAIT_PART: u32 = 2;

/// Busy polling of a connection.
pub(crate) struct BusyPoll {
    connection: OwnedFd,
    /// How long all threads had waited at the last check.
    waited: Duration,
    looked: Instant,
    ticks: u32,
}

impl BusyPoll {
    /// For a connection of which one thread reads this description.
    pub(crate) fn new(connection: OwnedFd) -> Self {
        Self { connection, waited: Duration::ZERO, looked: Instant::now(), ticks: 0 }
    }
}

impl Aid for BusyPoll {
    fn begin(&mut self) -> bool {
        let Some(waited) = waited() else { return false };
        (self.waited, self.looked, self.ticks) = (waited, Instant::now(), 0);
        set_blocking(&self.connection, false).is_ok()
    }

    fn is_a_burden(&mut self) -> bool {
        self.ticks += 1;
        if self.ticks < TICKS {
            return false;
        }
        let Some(waited) = waited() else { return true };
        let is_long = waited.saturating_sub(self.waited) > self.looked.elapsed() / WAIT_PART;
        (self.waited, self.looked, self.ticks) = (waited, Instant::now(), 0);
        is_long
    }

    fn end(&mut self) {
        // Should this fail, the connection is gone.
        let _ = set_blocking(&self.connection, true);
    }
}

fn set_blocking(connection: impl AsFd, blocking: bool) -> rustix::io::Result<()> {
    let mut flags = fcntl_getfl(&connection)?;
    flags.set(OFlags::NONBLOCK, !blocking);
    fcntl_setfl(&connection, flags)
}

/// How long the threads of this program were ready to run and did not, all together; `None` if the kernel
/// does not report it.
fn waited() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    // Nanoseconds on a processor, nanoseconds waiting for one, and how often it got one. A thread may end
    // between being listed and being read.
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    let waits = texts.map(|text| text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos));
    let waits: Vec<Duration> = waits.collect::<Option<_>>()?;
    (!waits.is_empty()).then(|| waits.into_iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_oracle::skip;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn the_connection_does_not_block_between_begin_and_end() {
        let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
        let blocks = || !fcntl_getfl(&connection).unwrap().contains(OFlags::NONBLOCK);
        let mut polling = BusyPoll::new(connection.try_clone().unwrap());
        assert!(blocks());
        for _ in 0..2 {
            if !polling.begin() {
                skip!("busy_poll::the_connection_does_not_block", "no /proc/self/task/*/schedstat");
            }
            assert!(!blocks());
            polling.end();
            assert!(blocks());
        }
    }

    #[test]
    fn threads_that_wait_are_seen() {
        let connection = OwnedFd::from(UnixStream::pair().unwrap().0);
        let mut polling = BusyPoll::new(connection);
        if !polling.begin() {
            skip!("busy_poll::threads_that_wait_are_seen", "no /proc/self/task/*/schedstat");
        }
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
            while !polling.is_a_burden() {
                assert!(began.elapsed() < Duration::from_secs(60), "they wait, and it is not seen");
                thread::sleep(Duration::from_millis(2));
            }
            is_seen.store(true, Ordering::Relaxed);
        });
    }
}
