//! Locks on regular files, and who holds them.
//!
//! The lock is `flock`, whole-file and advisory: shared for reading, exclusive for writing, gone when the
//! last descriptor is closed. It is not waited for, but for a moment. What it cannot see is the kernel
//! itself: a loop device on the image takes no lock, yet a mounted image that is written behind the kernel's
//! back is destroyed. So a writer also asks whether a loop device sits on the file.
//!
//! Finding out who is in the way reads `/proc/locks` and `/sys/block`; where those are missing or hidden, the
//! message is less exact, nothing more.

use crate::{Error, Operation, Reason, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// How often a lock is tried for, and the first pause between; each other is twice the one before, so that
/// all take a second.
const LOCK_TRIES: u32 = 8;
const LOCK_PAUSE: Duration = Duration::from_millis(8);

/// How often, and how long apart, a loop device is given time to let go: after an unmount the kernel detaches
/// it a moment later.
const LOOP_TRIES: u32 = 10;
const LOOP_PAUSE: Duration = Duration::from_millis(20);

/// Takes the lock on a regular file, exclusive for a writer.
pub(super) fn take(file: &File, name: &str, operation: Operation, write: bool) -> Result<()> {
    match try_lock(file, write) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let who = holder(file).unwrap_or_else(|| "another program".to_owned());
            let busy = format!("{who} is using it; wait until that is done, or stop it");
            return Err(Error::new(name, operation, None, Reason::Busy(busy)));
        }
        // A file system without locks (some network ones) is used without.
        Err(TryLockError::Error(e)) if is_unsupported(&e) => {}
        Err(TryLockError::Error(e)) => return Err(Error::io(name, operation, None, &e)),
    }
    if write { refuse_loop(file, name, operation) } else { Ok(()) }
}

/// Tries for a moment: a program that is just starting another one shares its locks with it until that runs,
/// so a lock may outlive its owner by a few milliseconds, or many on a busy machine.
fn try_lock(file: &File, write: bool) -> std::result::Result<(), TryLockError> {
    let once = || if write { file.try_lock() } else { file.try_lock_shared() };
    for tries in 1..LOCK_TRIES {
        match once() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE * (1 << (tries - 1))),
            taken => return taken,
        }
    }
    once()
}

fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOLCK].map(|errno| Some(errno.raw_os_error()));
    known.contains(&error.raw_os_error())
}

fn refuse_loop(file: &File, name: &str, operation: Operation) -> Result<()> {
    for _ in 1..LOOP_TRIES {
        if loop_device(file).is_none() {
            return Ok(());
        }
        std::thread::sleep(LOOP_PAUSE);
    }
    let Some(device) = loop_device(file) else { return Ok(()) };
    let busy = format!(
        "the kernel uses it as /dev/{device}; unmount it, or detach it with losetup -d /dev/{device}"
    );
    Err(Error::new(name, operation, None, Reason::Busy(busy)))
}

/// The loop device that sits on the file, such as `loop3`.
fn loop_device(file: &File) -> Option<String> {
    let ours = file.metadata().ok()?;
    let entries = fs::read_dir("/sys/block").ok()?;
    entries.filter_map(std::result::Result::ok).find_map(|entry| {
        let device = entry.file_name().into_string().ok().filter(|device| device.starts_with("loop"))?;
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let theirs = fs::metadata(PathBuf::from(backing.trim_end_matches('\n'))).ok()?;
        (theirs.dev() == ours.dev() && theirs.ino() == ours.ino()).then_some(device)
    })
}

/// The process that holds a lock on the file, as `process 123 (name)`.
fn holder(file: &File) -> Option<String> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    // A line reads: 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF (see proc_locks(5)).
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| line.split_whitespace().any(|word| word == place))?;
    let pid: u32 = line.split_whitespace().nth(4)?.parse().ok()?;
    if pid == std::process::id() {
        return Some("this program itself".to_owned());
    }
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match command.trim() {
        "" => Some(format!("process {pid}")),
        command => Some(format!("process {pid} ({command})")),
    }
}
