//! Locks on regular files, and who holds them.
//!
//! The lock is `flock`, whole-file and advisory: shared for reading, exclusive for writing, gone when the
//! last descriptor is closed. It is not waited for, but for a moment. What it cannot see is the kernel
//! itself: a loop device on the image takes no lock, yet a mounted image that is written behind the kernel's
//! back is destroyed. So a writer also asks whether a loop device sits on the file. Loop devices of our own
//! mounts are passed over: nothing goes through them, and whoever serves such a mount has the lock.
//!
//! Finding out who is in the way reads `/proc/locks` and `/sys/block`; where those are missing or hidden, the
//! message is less exact, nothing more.

use crate::{Error, Operation, Reason, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
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

/// How the name begins that a loop device remembers if it is nothing but the key of a mount of ours.
pub const MOUNT_KEY: &str = "hectare mount of ";

/// An open image and its lock. Made by [`FileDevice::claim`](super::FileDevice::claim).
pub struct Claim(pub(super) File);

impl Claim {
    /// Lets others have a regular file: for who is done with it and can't close it yet. Nothing may be
    /// written after that. A block device is let go of with its last descriptor only.
    pub fn release(&self) {
        // Where there are no locks, there was none.
        let _ = self.0.unlock();
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

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
    patiently(once, |error| matches!(error, TryLockError::WouldBlock))
}

/// Tries something for a moment, as long as somebody is in the way: whoever serves a mount that has just been
/// taken off lets go of a block device a few milliseconds later.
pub(super) fn patiently<T, E>(
    once: impl Fn() -> std::result::Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    for tries in 1..LOCK_TRIES {
        match once() {
            Err(error) if is_in_use(&error) => std::thread::sleep(LOCK_PAUSE * (1 << (tries - 1))),
            done => return done,
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
        let is_it = theirs.dev() == ours.dev() && theirs.ino() == ours.ino();
        (is_it && !is_own_key(&device)).then_some(device)
    })
}

/// Whether a loop device is the key of a mount that hectare serves, or served until it was killed and that
/// programs have not left yet. Only root can see that.
#[allow(unsafe_code)]
fn is_own_key(device: &str) -> bool {
    /// `LOOP_GET_STATUS64` fills `struct loop_info64`; the name is 56 bytes into it (loop(4)).
    const STATUS: rustix::ioctl::Opcode = 0x4c05;
    const NAME_AT: usize = 56;
    let Ok(device) = File::open(format!("/dev/{device}")) else { return false };
    // SAFETY: the request fills the 232 bytes that the argument points to, and touches nothing else.
    let info = unsafe { rustix::ioctl::ioctl(&device, rustix::ioctl::Getter::<STATUS, [u8; 232]>::new()) };
    info.is_ok_and(|info| info[NAME_AT..].starts_with(MOUNT_KEY.as_bytes()))
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
