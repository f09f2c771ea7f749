//! Checks whether the memory of this process keeps growing.
//!
//! Caches fill, threads settle: only what still grows when they have is a leak. So quarters of the run are
//! compared by their medians: the last must not lie well above the second, unless it stays at the level of
//! the third.

use hectare_units::index_of;

/// The minimum number of samples for a verdict, one per second.
const SAMPLES_MIN: usize = 60;
/// How far a median may lie above an earlier one, in KiB and additionally in percent.
const SLACK_KIB: u64 = 32 << 10;
const SLACK_PERCENT: u64 = 15;

/// KiB of memory in use by this process; `None` where the system does not report it.
pub(super) fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The verdict on the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Too few samples.
    TooShort,
    /// It stays, at medians in KiB of the second and of the last quarter.
    Level(u64, u64),
    /// It grows, likewise.
    Grows(u64, u64),
}

/// Judges samples in KiB, in the order they were taken.
pub(super) fn judge(samples: &[u64]) -> Verdict {
    if samples.len() < SAMPLES_MIN {
        return Verdict::TooShort;
    }
    let quarter = samples.len() / 4;
    let median = |nr: usize| {
        let mut part = samples[nr * quarter..(nr + 1) * quarter].to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    };
    let (second, third, last) = (median(1), median(2), median(3));
    let above =
        |from: u64, share: u64| last > from + SLACK_KIB / share + from * SLACK_PERCENT / (100 * share);
    // Half of the slack for half of the time.
    if above(second, 1) && above(third, 2) {
        Verdict::Grows(second, last)
    } else {
        Verdict::Level(second, last)
    }
}

/// KiB as text in MiB.
pub(super) fn mib(kib: u64) -> String {
    format!("{} MiB", index_of(kib.div_ceil(1 << 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(sample: impl Fn(u64) -> u64) -> Verdict {
        judge(&(0..400).map(sample).collect::<Vec<_>>())
    }

    #[test]
    fn what_keeps_growing_is_told_from_what_fills_up() {
        assert_eq!(judge(&[1; 59]), Verdict::TooShort);
        assert!(matches!(judged(|n| 100_000 + n * 1_000), Verdict::Grows(..)));
        assert!(matches!(judged(|n| 100_000 + n.min(150) * 3_000), Verdict::Level(..)), "it filled up");
        assert!(matches!(judged(|n| 300_000 + n % 40 * 1_000), Verdict::Level(..)), "it swings");
        assert!(matches!(judged(|n| 500_000 - n * 500), Verdict::Level(..)), "it shrinks");
        assert!(resident_kib().is_some_and(|kib| kib > 100));
    }
}
