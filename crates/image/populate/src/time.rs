//! Times of files, and their packed form.
//!
//! ext4 stores a time as 34 bits of seconds (from -2^31, so 1901 to 2446) and 30 bits of nanoseconds. A tree
//! keeps exactly that in 64 bits, four times for every node. A time outside that range is moved to its
//! nearest end, as the kernel does when it stores one.

use hectare_units::low32;

/// A moment: seconds since 1970-01-01T00:00:00Z (negative before it) and nanoseconds after that second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded down.
    pub seconds: i64,
    /// Nanoseconds after that second, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The start of a second.
    #[must_use]
    pub const fn at(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }
}

const NANOSECOND_BITS: u32 = 30;
const BIAS: i64 = 1 << 31;
const SECONDS_MAX: i64 = (1 << 34) - 1 - BIAS;

/// A [`Timestamp`] in 64 bits, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PackedTime(u64);

impl PackedTime {
    /// No time; its nanoseconds are out of range, so no moment packs to it.
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) fn new(time: Timestamp) -> Self {
        let seconds = time.seconds.clamp(-BIAS, SECONDS_MAX);
        let nanoseconds = time.nanoseconds.min(999_999_999);
        Self(((seconds + BIAS).cast_unsigned() << NANOSECOND_BITS) | u64::from(nanoseconds))
    }

    pub(crate) fn get(self) -> Option<Timestamp> {
        if self == Self::NONE {
            return None;
        }
        let seconds = (self.0 >> NANOSECOND_BITS).cast_signed() - BIAS;
        let nanoseconds = low32(self.0 & ((1 << NANOSECOND_BITS) - 1));
        Some(Timestamp { seconds, nanoseconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_packing_and_extremes_are_clamped() {
        for time in [
            Timestamp { seconds: -BIAS, nanoseconds: 0 },
            Timestamp { seconds: -1, nanoseconds: 999_999_999 },
            Timestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 },
            Timestamp { seconds: SECONDS_MAX, nanoseconds: 1 },
        ] {
            assert_eq!(PackedTime::new(time).get(), Some(time));
        }
        assert_eq!(PackedTime::new(Timestamp::at(i64::MAX)).get(), Some(Timestamp::at(SECONDS_MAX)));
        assert_eq!(PackedTime::new(Timestamp::at(i64::MIN)).get(), Some(Timestamp::at(-BIAS)));
        assert_eq!(PackedTime::NONE.get(), None);
    }
}
