//! Locks of files between processes, tried for a moment.
//!
//! A program that another thread is just starting has the locks of this one until it runs: so a lock that is taken
//! may be free a moment later.

use std::fs::{File, TryLockError};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(20);

/// Locks a file for this process alone, in at most `patience`.
///
/// # Errors
/// [`TryLockError::WouldBlock`] if another holds it all that time, or what the system says.
pub(crate) fn lock(file: &File, patience: Duration) -> Result<(), TryLockError> {
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if waited < patience => std::thread::sleep(PAUSE),
            ended => return ended,
        }
        waited += PAUSE;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_lock_that_is_free_in_a_moment_is_taken_and_another_is_not() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(path.path()).unwrap();
        let (first, second) = (open(), open());
        lock(&first, Duration::ZERO).unwrap();
        assert!(matches!(lock(&second, 2 * PAUSE), Err(TryLockError::WouldBlock)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(2 * PAUSE);
                first.unlock().unwrap();
            });
            lock(&second, Duration::from_secs(60)).unwrap();
        });
    }
}
