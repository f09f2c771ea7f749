//! Values of options that both formats take: sizes, UUIDs, the time of the format.

use crate::error::{Error, Result};
use hectare_ext4::time::Timestamp;

/// Reads a UUID: 32 hexadecimal digits, dashes anywhere.
///
/// # Errors
/// If it is anything else; `option` says where it was given.
pub fn parse_uuid(option: &str, text: &str) -> Result<[u8; 16]> {
    uuid::Uuid::parse_str(text)
        .map(uuid::Uuid::into_bytes)
        .map_err(|_| Error::option(format!("{option} {text}"), "it is not a UUID (32 hexadecimal digits)"))
}

/// Reads a size: a number, and after it `s` (512 bytes), `k`, `m`, `g`, `t`, `p` or `e`, which are powers of
/// 1024 and may be written `KiB`, `MiB` and so on; without a suffix it counts units of `plain` bytes. `KB`
/// and `MB` are refused, since some mean powers of 1000. Where a volume's block and sector are given in
/// `units`, `b` counts blocks and `s` sectors.
///
/// # Errors
/// If it is anything else, or more than 64 bits hold; the text says so.
pub fn parse_size(text: &str, plain: u64, units: Option<(u64, u64)>) -> std::result::Result<u64, String> {
    let text = binary_suffix(text)?;
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, suffix)) if !suffix.is_ascii_digit() => (
            &text[..at],
            match (suffix.to_ascii_lowercase(), units) {
                ('s', None) => 512,
                ('s', Some((_, sector))) => sector,
                ('b', Some((block, _))) => block,
                ('k', _) => 1 << 10,
                ('m', _) => 1 << 20,
                ('g', _) => 1 << 30,
                ('t', _) => 1 << 40,
                ('p', _) => 1 << 50,
                ('e', _) => 1 << 60,
                _ => return Err(format!("{text} is no size: a number, and s, K, M, G, T, P or E after it")),
            },
        ),
        _ => (text, plain),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no size"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is more than 64 bits hold"))
}

/// The size without `iB`, where that follows one of the letters for powers of 1024.
fn binary_suffix(text: &str) -> std::result::Result<&str, String> {
    let is_power = |text: &str| text.ends_with(|last: char| "kmgtpe".contains(last.to_ascii_lowercase()));
    if let Some(short) = text.strip_suffix("iB").filter(|short| is_power(short)) {
        return Ok(short);
    }
    match text.strip_suffix(['b', 'B']).filter(|short| is_power(short)) {
        Some(short) => Err(format!(
            "{text} means different sizes to different people: write {short}iB or {short} (powers of 1024)"
        )),
        None => Ok(text),
    }
}

/// The time that a new volume says it was made at: `SOURCE_DATE_EPOCH` if that is set, else now, in whole
/// seconds.
///
/// # Errors
/// If it is set to something else than a number.
pub(crate) fn time_of_format() -> Result<Timestamp> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(Timestamp::from_seconds(Timestamp::now().seconds));
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds
        .ok_or_else(|| Error::option("SOURCE_DATE_EPOCH", "it is not a number of seconds since 1970"))?;
    Ok(Timestamp::from_seconds(seconds))
}
