//! Waits for asynchronous events: programs, the kernel, threads. Long enough for a machine that is far too
//! busy; what has not happened by then is a failure.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The timeout.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two checks.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Waits until a condition holds; the panic of a timeout names the caller.
///
/// # Panics
/// If it does not hold within a minute.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "the wait timed out");
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_until_it_is_so() {
        let mut looks = 0;
        until(|| {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }
}
