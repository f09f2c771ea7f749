//! Times in FAT: a date since 1980, and steps of two seconds, in no time zone; UTC here.

/// A time as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Time {
    pub(super) date: u16,
    pub(super) of_day: u16,
    /// Hundredths of a second beyond `of_day`, up to 199.
    pub(super) hundredths: u8,
}

/// The first and the last second that can be stored.
const FIRST: i64 = 315_532_800;
const LAST: i64 = 4_354_819_199;

/// Stores a time in seconds since 1970; what can't be becomes the nearest that can.
pub(super) fn encode(seconds: i64, nanoseconds: u32) -> Time {
    let is_inside = (FIRST..=LAST).contains(&seconds);
    let seconds = seconds.clamp(FIRST, LAST);
    let (days, of_day) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    // Days since 1970 to a date, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    // Every part is in its range, as the second is.
    let small = |n: i64| u16::try_from(n).unwrap_or_default();
    let hundredths = of_day % 2 * 100 + if is_inside { i64::from(nanoseconds / 10_000_000) } else { 0 };
    Time {
        date: small((year - 1980) << 9 | month << 5 | day),
        of_day: small((of_day / 3600) << 11 | (of_day / 60 % 60) << 5 | (of_day % 60 / 2)),
        hundredths: u8::try_from(hundredths).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let of = |seconds| {
            let Time { date, of_day, hundredths } = encode(seconds, 0);
            let second = of_day % 32 * 2 + u16::from(hundredths) / 100;
            (date / 512 + 1980, date / 32 % 16, date % 32, of_day / 2048, of_day / 32 % 64, second)
        };
        assert_eq!(of(1_700_000_000), (2023, 11, 14, 22, 13, 20));
        assert_eq!(of(951_782_401), (2000, 2, 29, 0, 0, 1));
        assert_eq!(of(0), (1980, 1, 1, 0, 0, 0));
        assert_eq!(of(i64::MAX), (2107, 12, 31, 23, 59, 59));
    }
}
