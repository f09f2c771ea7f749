//! Formats times in the host's time zone (`TZ`, else `/etc/localtime`, else UTC).

use hectare_engine::Timestamp;
use jiff::tz::TimeZone;

/// As ext4 tools print it: `Fri Nov 20 15:16:28 2026`.
pub(crate) fn long(time: Timestamp) -> String {
    format(time, "%a %b %e %H:%M:%S %Y")
}

/// To the minute, for lists: `2026-11-20 15:16`.
pub(crate) fn short(time: Timestamp) -> String {
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
    fn json_times_are_rfc_3339_and_absurd_ones_plain() {
        let time = Timestamp { seconds: 1_795_187_788, nanoseconds: 5 };
        assert_eq!(json(time), "2026-11-20T15:16:28.000000005Z");
        assert_eq!(json(Timestamp::from_seconds(1 << 39)), "@549755813888");
    }
}
