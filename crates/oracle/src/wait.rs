//! Waiting for what others do in their own time: programs, the kernel, threads. Long enough for a machine
//! that is far too busy; what is not so by then is a failure.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest that is waited.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long until it is looked again.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so; the panic of who waits in vain names the caller.
///
/// # Panics
/// If it is not so within a minute.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited for in vain");
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
