//! Linux: system calls, by `rustix`.

use super::BorrowedFd;
pub use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Reads up to a bufferful at offset `at` of an open file; 0 at its end.
///
/// # Errors
/// The system's error.
pub fn read_at(file: BorrowedFd<'_>, buf: &mut [u8], at: u64) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buf, at))
}

/// The magic number of a file system (statfs(2)). The field's type differs between C libraries.
pub(crate) fn magic_of(system: &rustix::fs::StatFs) -> u32 {
    u32::try_from(i128::from(system.f_type) & i128::from(u32::MAX)).unwrap_or_default()
}

/// The current time, in seconds since 1970 and nanoseconds, to the tick of the system (some milliseconds), as
/// the kernel's file systems stamp their files: a fraction of the cost of the exact time.
#[must_use]
pub fn coarse_now() -> (i64, u32) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The time since the machine started, that in which it slept included.
#[must_use]
pub fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    // The clock starts at zero and its fraction is below a second.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
