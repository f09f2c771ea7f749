//! File locks that a user's test processes share: several run at once, and some of what they use belongs to the
//! machine.
//!
//! `sync(2)` commits every journal of the machine, and so spoils what a test has the kernel leave in one. Tests that
//! call it take a lock alone ([`sync_all`]), those that it would disturb share it ([`unsynced`]).
//!
//! The files lie in one directory whatever `TMPDIR` says, and are never removed: another process may be about to
//! lock one. A lock ends with its process, however that ends.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The file of a lock, made on first use.
fn file(name: &str) -> io::Result<File> {
    let folder = PathBuf::from(format!("/tmp/hectare-oracle-locks.{}", rustix::process::geteuid().as_raw()));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::options().create(true).write(true).truncate(false).open(folder.join(name)),
    }
}

/// A lock of a name; panics if there is no such file to be had.
#[track_caller]
pub(crate) fn named(name: &str) -> File {
    file(name).unwrap_or_else(|error| panic!("can't open the lock {name}: {error}"))
}

/// Syncs all file systems of the machine: at a moment when no test minds.
///
/// # Panics
/// If the lock can't be had.
pub fn sync_all() {
    let (_turn, lock) = (turn(), named(SYNC));
    lock.lock().unwrap_or_else(|error| panic!("can't lock {SYNC}: {error}"));
    rustix::fs::sync();
}

/// Keeps [`sync_all`] of all tests waiting as long as it lives. A process that has one must not call it.
#[track_caller]
pub(crate) fn unsynced() -> File {
    let (_turn, lock) = (turn(), named(SYNC));
    lock.lock_shared().unwrap_or_else(|error| panic!("can't lock {SYNC}: {error}"));
    lock
}

const SYNC: &str = "sync";

/// Those who wait come first: else a lock that is shared without a break would never be had alone.
fn turn() -> File {
    let turn = named("sync-turn");
    turn.lock().unwrap_or_else(|error| panic!("can't lock sync-turn: {error}"));
    turn
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_sync_waits_for_all_that_it_would_disturb() {
        let held = [unsynced(), unsynced()];
        let sync = thread::spawn(sync_all);
        for lock in held {
            thread::sleep(Duration::from_millis(50));
            assert!(!sync.is_finished());
            drop(lock);
        }
        sync.join().unwrap();
    }
}
