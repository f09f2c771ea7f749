//! Any host: the standard library alone.

use super::BorrowedFd;
use super::FileExt;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The host's number of an error: `errno` on Unix, that of `GetLastError` on Windows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $linux:literal, $bsd:literal, $windows:literal;)+) => {
        impl Errno {
            $(
                $(#[$doc])*
                pub const $name: Self = Self(if cfg!(windows) {
                    $windows
                } else if cfg!(target_os = "linux") {
                    $linux
                } else {
                    $bsd
                });
            )+
        }

        /// All of them, with Linux's number.
        #[cfg(not(target_os = "linux"))]
        const KNOWN: &[(Errno, i32)] = &[$((Errno::$name, $linux)),+];
    };
}

// Linux: include/uapi/asm-generic/errno*.h; BSD and macOS: <sys/errno.h>; Windows: the list of system error
// codes of its documentation.
errnos! {
    /// Not permitted.
    PERM = 1, 1, 1314;
    /// No such file or directory.
    NOENT = 2, 2, 2;
    /// Interrupted.
    INTR = 4, 4, 995;
    /// Nothing that can be opened so.
    NXIO = 6, 6, 433;
    /// The device failed.
    IO = 5, 5, 1117;
    /// Not open for that.
    BADF = 9, 9, 6;
    /// No memory.
    NOMEM = 12, 12, 8;
    /// Permission denied.
    ACCESS = 13, 13, 5;
    /// Not a block device.
    NOTBLK = 15, 15, 1200;
    /// In use.
    BUSY = 16, 16, 170;
    /// Exists already.
    EXIST = 17, 17, 183;
    /// Leads to another device.
    XDEV = 18, 18, 17;
    /// Not a directory.
    NOTDIR = 20, 20, 267;
    /// An invalid argument.
    INVAL = 22, 22, 87;
    /// Too many open files.
    MFILE = 24, 24, 4;
    /// Too large a file.
    FBIG = 27, 27, 223;
    /// No space left.
    NOSPC = 28, 28, 112;
    /// Read-only.
    ROFS = 30, 30, 19;
    /// A symbolic link where none may be.
    LOOP = 40, 62, 1921;
    /// Too large a value.
    OVERFLOW = 75, 84, 534;
    /// Cancelled.
    CANCELED = 125, 89, 1223;
    /// Not a valid name here.
    ILSEQ = 84, 92, 1113;
    /// The connection is shut down.
    SHUTDOWN = 108, 58, 10058;
    /// Not supported.
    OPNOTSUPP = 95, 102, 50;
    /// A quota is reached.
    DQUOT = 122, 69, 1295;
}

impl Errno {
    /// Not supported, by the name that files have for it.
    pub const NOTSUP: Self = Self::OPNOTSUPP;

    /// As a number.
    #[must_use]
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }

    /// The error of this number.
    #[must_use]
    pub const fn from_raw_os_error(number: i32) -> Self {
        Self(number)
    }

    /// The kind that the standard library has for it.
    #[must_use]
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from(self).kind()
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}

impl std::error::Error for Errno {}

#[cfg(not(target_os = "linux"))]
pub(super) fn linux_number(errno: i32) -> i32 {
    if let Some((_, number)) = KNOWN.iter().find(|(known, _)| known.0 == errno) {
        return *number;
    }
    super::number_of(io::Error::from_raw_os_error(errno).kind())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn native_number(linux: i32) -> i32 {
    KNOWN.iter().find(|(_, number)| *number == linux).map_or(Errno::IO, |(known, _)| *known).raw_os_error()
}

/// Reads up to a bufferful at offset `at` of an open file; 0 at its end.
///
/// # Errors
/// The system's error.
pub fn read_at(file: BorrowedFd<'_>, buf: &mut [u8], at: u64) -> Result<usize, Errno> {
    // The standard library reads from what owns its descriptor only.
    let file = File::from(file.try_clone_to_owned().map_err(|error| super::errno_of(&error))?);
    loop {
        match file.read_at(buf, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map_err(|error| super::errno_of(&error)),
        }
    }
}

/// The current time, in seconds since 1970 and nanoseconds.
#[must_use]
pub fn coarse_now() -> (i64, u32) {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(error) => match error.duration() {
            before if before.subsec_nanos() == 0 => (-seconds(before), 0),
            before => (-seconds(before) - 1, 1_000_000_000 - before.subsec_nanos()),
        },
    }
}

/// A time that goes forward, also while the machine sleeps. Whether the library's monotonic clock counts
/// sleep depends on the host, so the wall clock is watched, too, and the one that went further counts: what
/// waits for a time to run out then waits too short rather than too long, if the wall clock is set forward.
#[must_use]
pub fn boot_time() -> Duration {
    static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let (instant, system) = &*START;
    let wall = SystemTime::now().duration_since(*system).unwrap_or_default();
    let now = u64::try_from(instant.elapsed().max(wall).as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(now.max(LATEST.fetch_max(now, Ordering::Relaxed)))
}
