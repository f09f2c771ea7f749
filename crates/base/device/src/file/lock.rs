//! Locks regular files, and finds the holders of their locks.
//!
//! The lock is a record lock of the open file description (`F_OFD_SETLK`, fcntl(2)) on one byte far behind
//! what other programs lock ([`BYTE`]): shared for reading, exclusive for writing, advisory, passed on with
//! the descriptor, gone when the last copy of it is closed. An exclusive one needs a writable descriptor, so
//! users with read access only can't keep readers out, which `flock` would allow. They can hold a
//! shared one, which keeps writers from beginning: every advisory lock of Linux is so, and the message
//! names the holder where that can be seen. Beside it stand the locks of [`qemu`], so that an image is not
//! used here and in a virtual machine at once.
//!
//! A taken lock is retried only for a moment. The lock does not see the kernel itself: a loop device on the
//! image takes no lock, yet writing to a mounted image behind the kernel's back destroys it. So a writer also
//! checks for a loop device on the file, and so does who replaces it. Loop devices of our own mounts are
//! ignored: nothing goes through them, and the server of such a mount has the lock.
//!
//! Finding the holder reads `/proc/PID/fdinfo` and `/sys/block`; where those are missing or hidden, as those
//! of other users are, the message is less exact, nothing more.

mod qemu;

use crate::{Error, Operation, Reason, Result};
use libc::{F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// The byte that is locked; whether the file is so long does not matter. The digits spell "hect".
const BYTE: Range = Range::of(0x6865_6374);

/// How often a lock is tried for, and the first pause between; each other is twice the one before, so that
/// all take a second.
const LOCK_TRIES: u32 = 8;
const LOCK_PAUSE: Duration = Duration::from_millis(8);

/// How often, and how long apart, a loop device is checked again: after an unmount the kernel
/// detaches it a moment later.
const LOOP_TRIES: u32 = 10;
const LOOP_PAUSE: Duration = Duration::from_millis(20);

/// How the name begins that a loop device remembers if it is nothing but the key of a mount of ours.
pub const MOUNT_KEY: &str = "hectare mount of ";

/// An open image and its lock. Made by [`FileDevice::claim`](super::FileDevice::claim).
pub struct Claim(pub(super) File);

impl Claim {
    /// Releases the lock on a regular file, for a caller that is done with it and can't close it yet. Nothing
    /// may be written after that. A block device is released only with its last descriptor.
    pub fn release(&self) {
        // Where there are no locks, there was none.
        let _ = set(&self.0, F_UNLCK, BYTE);
        let _ = qemu::release(&self.0);
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
        Err(Refused::At(bytes)) => {
            // Our own of qemu's locks would be found as well.
            let _ = qemu::release(file);
            return Err(Error::new(
                name,
                operation,
                None,
                Reason::Busy(in_use(holder(file, bytes, Access::Any))),
            ));
        }
        // A file system without locks (some network ones) is used without.
        Err(Refused::Failed(error)) if is_unsupported(&error) => {}
        Err(Refused::Failed(error)) => return Err(Error::io(name, operation, None, &error)),
    }
    if !write {
        return Ok(());
    }
    let meta = file.metadata().map_err(|error| Error::io(name, operation, None, &error))?;
    refuse_loop(&meta, name, operation, Loops::Any)
}

/// Takes the lock of a reader on a file that another one is to replace, which refuses one that somebody writes to:
/// qemu's claims are believed as by a writer, and a loop device counts that writes.
pub(super) fn take_to_replace(file: &File, name: &str) -> Result<()> {
    take(file, name, Operation::Create, false)?;
    if is_claimed_by_writer(file) {
        return Err(Error::new(name, Operation::Create, None, Reason::Busy(in_use(None))));
    }
    let meta = file.metadata().map_err(|error| Error::io(name, Operation::Create, None, &error))?;
    refuse_loop(&meta, name, Operation::Create, Loops::Writing)
}

/// Refuses a file that is to be replaced and can't be opened, if a loop device writes to it.
pub(super) fn refuse_writing_loop(meta: &fs::Metadata, name: &str) -> Result<()> {
    refuse_loop(meta, name, Operation::Create, Loops::Writing)
}

/// That a file is in use, by whom, and what to do.
fn in_use(holder: Option<Holder>) -> String {
    let who = match holder {
        Some(Holder::Own) => {
            return "this program itself is using it; close all handles of it, open files and listings too"
                .to_owned();
        }
        Some(Holder::Other(process)) => process,
        None => "another program".to_owned(),
    };
    format!("{who} is using it; wait until that is done, or stop it")
}

/// Whether a process claims by qemu's locks to write to the file. A reader that was let in may meet one: the
/// claim takes only read permission, and is believed only where the process can be seen.
pub(super) fn is_claimed_by_writer(file: &File) -> bool {
    // Where there are no locks, there is no claim.
    qemu::is_claimed(file).unwrap_or(false)
}

/// Why a lock could not be taken.
enum Refused {
    /// Another open file has one on these bytes.
    At(Range),
    Failed(io::Error),
}

impl Refused {
    fn is_taken(&self) -> bool {
        matches!(self, Refused::At(_))
    }
}

/// Tries for a moment: a program that is just starting another one shares its locks with it until that runs,
/// so a lock may outlive its owner by a few milliseconds, or many on a busy machine.
fn try_lock(file: &File, write: bool) -> std::result::Result<(), Refused> {
    patiently(|| set(file, if write { F_WRLCK } else { F_RDLCK }, BYTE), Refused::is_taken)?;
    patiently(|| qemu::take(file, write), Refused::is_taken)
}

/// Bytes of a file, both ends included.
#[derive(Clone, Copy)]
struct Range {
    first: i64,
    last: i64,
}

impl Range {
    const fn of(byte: i64) -> Range {
        Range { first: byte, last: byte }
    }
}

/// Sets or removes a lock of this open file description.
fn set(file: &File, kind: c_int, range: Range) -> std::result::Result<(), Refused> {
    let mut lock = record(kind, range).map_err(Refused::Failed)?;
    control(file, F_OFD_SETLK, &mut lock).map_err(|error| {
        // fcntl(2) has both numbers for a conflicting lock.
        let is_taken = [Errno::AGAIN, Errno::ACCESS].map(|errno| Some(errno.raw_os_error()));
        if is_taken.contains(&error.raw_os_error()) { Refused::At(range) } else { Refused::Failed(error) }
    })
}

/// What fcntl(2) wants to know of a lock.
fn record(kind: c_int, range: Range) -> io::Result<libc::flock> {
    let short = |value: c_int| c_short::try_from(value).map_err(|_| io::Error::from(Errno::INVAL));
    Ok(libc::flock {
        l_type: short(kind)?,
        l_whence: short(SEEK_SET)?,
        l_start: range.first,
        l_len: range.last - range.first + 1,
        l_pid: 0, // as the kernel wants it
    })
}

/// One of the requests of fcntl(2) for locks.
#[allow(unsafe_code)]
fn control(file: &File, request: c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the requests read a `struct flock` from where the argument points, and at most fill it; it
    // lives until they return.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), request, std::ptr::from_mut(lock)) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tries something for a moment, as long as it is in use: the server of a mount that has just been taken off
/// closes a block device a few milliseconds later.
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
    let known = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOLCK].map(|errno| Some(errno.raw_os_error()));
    known.contains(&error.raw_os_error())
}

/// Which loop devices count.
#[derive(Clone, Copy, PartialEq)]
enum Loops {
    Any,
    /// Those that are not read-only.
    Writing,
}

fn refuse_loop(meta: &fs::Metadata, name: &str, operation: Operation, which: Loops) -> Result<()> {
    for _ in 1..LOOP_TRIES {
        if loop_device(meta, which).is_none() {
            return Ok(());
        }
        std::thread::sleep(LOOP_PAUSE);
    }
    let Some(device) = loop_device(meta, which) else { return Ok(()) };
    let busy = format!(
        "the kernel uses it as /dev/{device}; unmount it, or detach it with losetup -d /dev/{device}"
    );
    Err(Error::new(name, operation, None, Reason::Busy(busy)))
}

/// The loop device that sits on the file, such as `loop3`.
fn loop_device(ours: &fs::Metadata, which: Loops) -> Option<String> {
    let entries = fs::read_dir("/sys/block").ok()?;
    entries.filter_map(std::result::Result::ok).find_map(|entry| {
        let device = entry.file_name().into_string().ok().filter(|device| device.starts_with("loop"))?;
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let theirs = fs::metadata(PathBuf::from(backing.trim_end_matches('\n'))).ok()?;
        let is_it = theirs.dev() == ours.dev() && theirs.ino() == ours.ino();
        let counts = which == Loops::Any
            || fs::read_to_string(entry.path().join("ro")).is_ok_and(|text| text.trim() == "0");
        (is_it && counts && !is_own_key(&device)).then_some(device)
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

/// How a process must have the file open to be named.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Any,
    Write,
}

/// Who holds a lock.
enum Holder {
    /// This process.
    Own,
    /// Another one, as `process 123 (name)`.
    Other(String),
}

/// The process that holds a lock on bytes of the file. The table of all locks does not
/// name the owner of such a lock, but each process's own list of descriptors shows it.
fn holder(file: &File, bytes: Range, access: Access) -> Option<Holder> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let processes = fs::read_dir("/proc").ok()?.filter_map(std::result::Result::ok);
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = numbers.find(|pid| holds(*pid, &place, bytes, access))?;
    if pid == std::process::id() {
        return Some(Holder::Own);
    }
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder::Other(match command.trim() {
        "" => format!("process {pid}"),
        command => format!("process {pid} ({command})"),
    }))
}

/// Whether a process has a descriptor with a lock on these bytes of the file at this place.
fn holds(pid: u32, place: &str, bytes: Range, access: Access) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    let mut infos = descriptors.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    infos.any(|info| {
        (access == Access::Any || may_write(&info)) && info.lines().any(|line| is_lock(line, place, bytes))
    })
}

/// Whether a descriptor may write: `flags: 0100002`, in octal (proc_pid_fdinfo(5)).
fn may_write(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Whether a line is of such a lock; it reads `lock: 1: OFDLCK ADVISORY WRITE -1 fe:00:5678 0 EOF`: device
/// and inode, first and last byte (proc_pid_fdinfo(5), proc_locks(5)).
fn is_lock(line: &str, place: &str, bytes: Range) -> bool {
    let mut words = line.split_whitespace();
    let is_record = words.next() == Some("lock:") && words.nth(1).is_some_and(|kind| kind != "FLOCK");
    if !is_record || !words.any(|word| word == place) {
        return false;
    }
    let mut byte = || words.next().map(|word| word.parse().unwrap_or(i64::MAX));
    let (first, last) = (byte(), byte());
    first.is_some_and(|first| first <= bytes.last) && last.is_some_and(|last| last >= bytes.first)
}

#[cfg(test)]
mod tests {
    use super::{BYTE, F_RDLCK, Range, is_lock, may_write, set, take_to_replace};
    use std::fs::File;

    /// A machine of another user's is not seen, but its claim is.
    #[test]
    fn regression_a_claim_of_qemu_keeps_a_file_from_being_replaced() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let claim = File::open(&path).unwrap();
        assert!(set(&claim, F_RDLCK, Range::of(101)).is_ok());
        let replaced = || take_to_replace(&File::open(&path).unwrap(), "image");
        assert!(replaced().is_err_and(|error| error.is_busy()));
        drop(claim);
        replaced().unwrap();
    }

    #[test]
    fn a_lock_is_known_by_its_place_and_range() {
        for (line, is_it) in [
            ("lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:12 1751475060 1751475060", true),
            ("lock:\t2: POSIX  ADVISORY  READ 77 fe:00:12 0 EOF", true),
            ("lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:12 100 101", false),
            ("lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:13 0 EOF", false),
            ("lock:\t1: FLOCK  ADVISORY  WRITE 5 fe:00:12 0 EOF", false),
            ("pos:\t0", false),
            ("", false),
        ] {
            assert_eq!(is_lock(line, "fe:00:12", BYTE), is_it, "{line}");
        }
        let qemus = "lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:12 100 101";
        assert!(is_lock(qemus, "fe:00:12", Range::of(101)) && !is_lock(qemus, "fe:00:12", Range::of(103)));
    }

    #[test]
    fn a_descriptor_for_writing_is_known_by_its_flags() {
        for (info, may) in [
            ("pos:\t0\nflags:\t02100002\nmnt_id:\t3", true),
            ("flags:\t0100001", true),
            ("pos:\t2\nflags:\t0100000", false),
            ("flags:\tx", false),
            ("", false),
        ] {
            assert_eq!(may_write(info), may, "{info}");
        }
    }
}
