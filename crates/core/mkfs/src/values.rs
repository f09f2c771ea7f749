//! Values of options that both formats take: sizes, UUIDs, the time of the format.

use crate::error::{Error, Result};
use hectare_ext4::time::{SECONDS_MAX, Timestamp};

/// Reads a UUID: 32 hexadecimal digits, dashes anywhere.
///
/// # Errors
/// If it is anything else; `option` says where it was given.
pub fn parse_uuid(option: &str, text: &str) -> Result<[u8; 16]> {
    uuid::Uuid::parse_str(text)
        .map(uuid::Uuid::into_bytes)
        .map_err(|_| Error::option(format!("{option} {text}"), "it is not a UUID (32 hexadecimal digits)"))
}

/// Reads a size: a number, perhaps with a fraction (`1.5G`), and after it a unit. `s` is 512 bytes; `k`, `m`,
/// `g`, `t`, `p` and `e` are powers of 1024, which may be written `KiB`, `MiB` and so on; `kB`, `MB` and so
/// on are powers of 1000. Without a unit it counts `plain` bytes. Where a volume's block and sector are given in
/// `units`, `b` counts blocks and `s` sectors. What a fraction leaves of a byte is dropped.
///
/// # Errors
/// If it is anything else, or more than 64 bits hold; the text says so.
pub fn parse_size(text: &str, plain: u64, units: Option<(u64, u64)>) -> std::result::Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match (unit, units) {
        ("", _) => plain,
        ("s" | "S", None) => 512,
        ("s" | "S", Some((_, sector))) => sector,
        ("b" | "B", Some((block, _))) => block,
        (unit, _) => power(unit)
            .ok_or_else(|| format!("{text} is no size: a number, and s, K, M, G, T, P or E after it"))?,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (Ok(whole), Some(fraction)) = (whole.parse::<u64>(), fraction_of(fraction, unit)) else {
        return Err(format!("{text} is no size"));
    };
    let bytes = whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(fraction));
    bytes.ok_or_else(|| format!("{text} is more than 64 bits hold"))
}

/// What a unit of bytes stands for: `M` and `MiB` for 1024 * 1024, `MB` for 1,000,000.
fn power(unit: &str) -> Option<u64> {
    let (letter, base) = match unit.split_at_checked(1)? {
        (letter, "" | "iB") => (letter, 1024u64),
        (letter, "B") => (letter, 1000),
        _ => return None,
    };
    let power = "kmgtpe".find(&letter.to_ascii_lowercase())?;
    base.checked_pow(u32::try_from(power).ok()? + 1)
}

/// Whole bytes of the decimal digits after the point of a number of units.
fn fraction_of(digits: &str, unit: u64) -> Option<u64> {
    let scale = 10u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let bytes = digits.parse::<u128>().ok()?.checked_mul(unit.into())? / scale;
    u64::try_from(bytes).ok()
}

/// `SOURCE_DATE_EPOCH`, in seconds since 1970, if it is set: the time to use instead of the clock's.
///
/// # Errors
/// If it is set to something else than a number of seconds that a volume can store.
pub fn source_date_epoch() -> Result<Option<i64>> {
    std::env::var_os("SOURCE_DATE_EPOCH").map(|text| seconds(text.as_encoded_bytes())).transpose()
}

fn seconds(text: &[u8]) -> Result<i64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let seconds = digits.and_then(|text| text.parse().ok()).filter(|seconds| *seconds <= SECONDS_MAX);
    seconds.ok_or_else(|| {
        let reason = format!(
            "{} is no number of seconds since 1970 up to {SECONDS_MAX} (2446); correct or unset it",
            text.escape_ascii()
        );
        Error::option("SOURCE_DATE_EPOCH", reason)
    })
}

/// The time that a new volume says it was made at: `SOURCE_DATE_EPOCH` if that is set, else now, in whole
/// seconds.
///
/// # Errors
/// If it is set to something else than a time.
pub(crate) fn time_of_format() -> Result<Timestamp> {
    let epoch = source_date_epoch()?;
    Ok(Timestamp::from_seconds(epoch.unwrap_or_else(|| Timestamp::now().seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_a_number_that_a_volume_can_store() {
        assert_eq!(seconds(b"0").ok(), Some(0));
        assert_eq!(seconds(b"15032385535").ok(), Some(SECONDS_MAX));
        for wrong in [
            &b""[..],
            b"-1",
            b"+1",
            b" 1",
            b"1.5",
            b"yesterday",
            b"15032385536",
            b"9\xff",
            b"99999999999999999999",
        ] {
            let error = seconds(wrong).expect_err("it is no time").to_string();
            assert!(error.starts_with("SOURCE_DATE_EPOCH: "), "{error}");
        }
    }
}
