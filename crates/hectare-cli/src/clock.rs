//! Formats times in the host's time zone (`TZ`, else `/etc/localtime`, else UTC).

use hectare_engine::Timestamp;
use jiff::tz::TimeZone;

/// As ext4 tools print it: `Fri Nov 20 15:16:28 2026`.
pub(crate) fn long(time: Timestamp) -> String {
    format(time, "%a %b %e %H:%M:%S %Y")
}

/// To the minute, for lists: `2026-11-20 15:16`.
pub fn short(time: Timestamp) -> String {
    format(time, "%Y-%m-%d %H:%M")
}

/// To the nanosecond with the zone's offset: `2026-11-20 15:16:28.123456789 +0000`.
pub(crate) fn full(time: Timestamp) -> String {
    format(time, "%Y-%m-%d %H:%M:%S.%9f %z")
}

/// RFC 3339 in UTC, for JSON.
pub(crate) fn json(time: Timestamp) -> String {
    moment(time).map_or_else(|| plain(time), |moment| moment.to_string())
}

/// Parses a time, for clap: a date, a date with a time (in the host's time zone unless it has one of its own), or
/// `@` and seconds since 1970.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    let wrong = || "not a time: give 2026-11-26, 2026-11-26T08:00:00Z or @SECONDS".to_owned();
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map(Timestamp::from_seconds).map_err(|_| wrong());
    }
    let moment = text.parse::<jiff::Timestamp>().or_else(|_| {
        let local: jiff::civil::DateTime = text.parse()?;
        local.to_zoned(TimeZone::system()).map(|zoned| zoned.timestamp())
    });
    let nanoseconds = moment.map_err(|_| wrong())?.as_nanosecond();
    let second = 1_000_000_000;
    Ok(Timestamp {
        seconds: i64::try_from(nanoseconds.div_euclid(second)).map_err(|_| wrong())?,
        nanoseconds: u32::try_from(nanoseconds.rem_euclid(second)).map_err(|_| wrong())?,
    })
}

fn format(time: Timestamp, how: &str) -> String {
    moment(time)
        .map_or_else(|| plain(time), |moment| moment.to_zoned(TimeZone::system()).strftime(how).to_string())
}

fn moment(time: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::new(time.seconds, i32::try_from(time.nanoseconds).ok()?).ok()
}

/// For times beyond the calendar's range (the year 9999).
fn plain(time: Timestamp) -> String {
    format!("@{}", time.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let at = |text: &str| parse(text).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(at("@-5"), Ok((-5, 0)));
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Ok((1, 500_000_000)));
        assert_eq!(at("1969-12-31T23:59:59.25Z"), Ok((-1, 250_000_000)));
        assert_eq!(at("2026-11-20T17:16:28+02:00"), Ok((1_795_187_788, 0)));
        assert!(at("2026-11-20").is_ok() && at("2026-11-20 15:16").is_ok());
        for wrong in ["", "@", "@1.5", "today", "2026-13-01", "99999999999"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_times_are_rfc_3339_and_absurd_ones_plain() {
        let time = Timestamp { seconds: 1_795_187_788, nanoseconds: 5 };
        assert_eq!(json(time), "2026-11-20T15:16:28.000000005Z");
        assert_eq!(json(Timestamp::from_seconds(1 << 39)), "@549755813888");
    }
}
