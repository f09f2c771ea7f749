//! The clock that changes are stamped with.

use hectare_ext4::time::Timestamp;

/// The current time to the tick of the system (some milliseconds), as the kernel's file systems stamp their
/// files: a fraction of the cost of the exact time, which no small write needs.
pub(crate) fn coarse_now() -> Timestamp {
    let (seconds, nanoseconds) = hectare_device::os::coarse_now();
    Timestamp { seconds, nanoseconds }
}
