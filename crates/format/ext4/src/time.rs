//! Time stamps: 32-bit seconds widened to 34 bits, with nanoseconds.
//!
//! The base word holds the low 32 bits of the seconds, read as signed. The extra word (inodes larger than 128
//! bytes) holds two more bits of seconds below 30 bits of nanoseconds. The range is thus 1901-12-13 to
//! 2446-05-10; without the extra word it ends on 2038-01-19. Hazard: the two epoch bits are *added* to the
//! sign-extended base word, so that a negative base word with epoch 1 is a time after 2038.

use hectare_units::low32;

/// A moment: seconds since 1970-01-01 UTC and nanoseconds (0 to 999,999,999) after them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// The earliest second an inode can hold: -2^31.
pub const SECONDS_MIN: i64 = i32::MIN as i64;
/// The latest second an inode of more than 128 bytes can hold: 2^31 - 1 + 3 * 2^32.
pub const SECONDS_MAX: i64 = i32::MAX as i64 + (3 << 32);
/// The latest second an inode of 128 bytes can hold: 2^31 - 1.
pub const SECONDS_MAX_NARROW: i64 = i32::MAX as i64;
const NANOSECONDS_MAX: u32 = 999_999_999;

impl Timestamp {
    /// A whole second.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanoseconds: 0 }
    }

    /// The present moment by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: since.subsec_nanos(),
            },
            Err(_) => Self::default(),
        }
    }

    /// Reads the two stored words; `extra` is 0 where the inode has none.
    #[must_use]
    pub fn decode(base: u32, extra: u32) -> Self {
        let epoch = i64::from(extra & 3) << 32;
        // A hostile image can store more than 999,999,999 in the 30 bits; carry nothing, clamp.
        let nanoseconds = (extra >> 2).min(NANOSECONDS_MAX);
        Self { seconds: i64::from(base.cast_signed()) + epoch, nanoseconds }
    }

    /// The two words to store; times outside the range are stored as its nearest end.
    #[must_use]
    pub fn encode(self) -> (u32, u32) {
        let clamped = self.clamped(SECONDS_MAX);
        let base = low32(clamped.seconds.cast_unsigned());
        let epoch = (clamped.seconds - i64::from(base.cast_signed())) >> 32;
        (base, low32((epoch & 3).cast_unsigned()) | (clamped.nanoseconds.min(NANOSECONDS_MAX) << 2))
    }

    /// The one word to store in an inode of 128 bytes.
    #[must_use]
    pub fn encode_narrow(self) -> u32 {
        low32(self.clamped(SECONDS_MAX_NARROW).seconds.cast_unsigned())
    }

    /// The date and the time of day in UTC: `2026-11-20 15:16:28 UTC`.
    #[must_use]
    pub fn utc(self) -> String {
        let (days, second) = (self.seconds.div_euclid(DAY), self.seconds.rem_euclid(DAY));
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }

    fn clamped(self, max: i64) -> Self {
        if self.seconds < SECONDS_MIN {
            Self::from_seconds(SECONDS_MIN)
        } else if self.seconds > max {
            Self::from_seconds(max)
        } else {
            self
        }
    }
}

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Year, month and day of the month, `days` days after 1970-01-01. Counts from the first of March, so
/// that the day that only leap years have is the last one of a year.
fn date_of(days: i64) -> (i64, i64, i64) {
    // 400 years have 146,097 days, and begin again with the same day of the week.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Months from March on: 31, 30, 31, 30, 31 days, and again.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_format_documentation_holds() {
        // extra epoch bits, sign of the base word, first second of the range
        for (epoch, base, seconds) in [
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0, 0),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (2, 0, 0x2_0000_0000),
            (3, 0x8000_0000, 0x2_8000_0000),
            (3, 0, 0x3_0000_0000),
        ] {
            let time = Timestamp::decode(base, epoch | 5 << 2);
            assert_eq!(time, Timestamp { seconds, nanoseconds: 5 });
            assert_eq!(time.encode(), (base, epoch | 5 << 2));
        }
    }

    #[test]
    fn moments_have_a_date() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (1_795_187_788, "2026-11-20 15:16:28 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (SECONDS_MIN, "1901-12-13 20:45:52 UTC"),
            (SECONDS_MAX, "2446-05-10 22:38:55 UTC"),
        ] {
            assert_eq!(Timestamp::from_seconds(seconds).utc(), text);
        }
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        assert_eq!(Timestamp::from_seconds(i64::MAX).encode(), (0x7fff_ffff, 3));
        assert_eq!(Timestamp::from_seconds(i64::MIN).encode(), (0x8000_0000, 0));
        assert_eq!(Timestamp::from_seconds(1 << 40).encode_narrow(), 0x7fff_ffff);
    }
}
