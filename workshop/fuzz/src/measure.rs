//! Limits the cost of an input: heap and processor time in proportion to its length.
//!
//! An input of kilobytes that takes gigabytes or minutes is a fault, even with a correct result: images and
//! archives come from strangers. Targets for whole volumes start from volumes of up to 2 MiB, which the
//! constant parts of the limits allow for.
//!
//! Every target allocates through a counter (crate `peakmem-alloc`). It counts requested bytes, whether
//! touched or not, and whether granted or not. Time is processor time of all threads, so that a busy machine
//! changes nothing. A hang is not noticed here, since the body has to return first: libFuzzer and the tests
//! of this package have clocks for that.

use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAllocTrait};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

#[doc(hidden)]
pub use peakmem_alloc;

/// Heap that any input may take, in bytes.
pub const HEAP_BASE: usize = 32 << 20;
/// Heap that each byte of an input may take besides, in bytes.
pub const HEAP_PER_BYTE: usize = 64;
/// Processor time that any input may take.
pub const TIME_BASE: Duration = Duration::from_secs(1);
/// Processor time that each byte of an input may take besides.
pub const TIME_PER_BYTE: Duration = Duration::from_micros(100);

/// Lets a program count what it allocates, as [`bounded`] needs it.
#[macro_export]
macro_rules! count_heap {
    () => {
        #[global_allocator]
        static HEAP: &$crate::measure::peakmem_alloc::PeakMemAlloc<std::alloc::System> =
            &$crate::measure::peakmem_alloc::INSTRUMENTED_SYSTEM;
    };
}

/// What an input took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The most heap at a time, beyond what there was before, in bytes.
    pub heap: usize,
    /// Processor time of all threads.
    pub time: Duration,
}

impl Cost {
    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { heap: self.heap.max(other.heap), time: self.time.max(other.time) }
    }
}

/// Runs the body of a target on an input of `len` bytes, in a program with [`count_heap!`]. One at a time:
/// what other threads take counts, too.
///
/// # Panics
/// If that takes more heap or time than an input of this length may.
pub fn bounded(len: usize, body: impl FnOnce()) -> Cost {
    INSTRUMENTED_SYSTEM.reset_peak_memory();
    let started = processor_time();
    body();
    let cost =
        Cost { heap: INSTRUMENTED_SYSTEM.get_peak_memory(), time: processor_time().saturating_sub(started) };
    let heap_max = HEAP_BASE + HEAP_PER_BYTE * len;
    let time_max = TIME_BASE + TIME_PER_BYTE * u32::try_from(len).unwrap_or(u32::MAX);
    let Cost { heap, time } = cost;
    assert!(heap <= heap_max, "amplification: {len} bytes took {heap} bytes of heap, more than {heap_max}");
    assert!(time <= time_max, "amplification: {len} bytes took {time:?}, more than {time_max:?}");
    cost
}

/// Processor time of all threads so far.
#[must_use]
pub fn processor_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(tv_sec.cast_unsigned()) + Duration::from_nanos(tv_nsec.cast_unsigned())
}
