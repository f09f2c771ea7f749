//! The clock that changes are stamped with.

use hectare_ext4::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The current time to the tick of the system (some milliseconds), as the kernel's file systems stamp their
/// files: a fraction of the cost of the exact time, which no small write needs.
pub(crate) fn coarse_now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}
