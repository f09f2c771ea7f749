//! The values of tune2fs's options.

use crate::command::mkfs::journal_device::{by_name, number_of};
use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, file_device};
use crate::os;
use crate::output::reason;
use hectare_ext4::dir::HashVersion;
use hectare_ext4::quota::Kind;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::{MountDefaults, parse_uuid};
use hectare_tune::{Changes, ExternalJournal, QuotaEdit};
use hectare_units::BlockNr;
use std::path::Path;
use std::sync::Arc;

const DAY: u32 = 24 * 60 * 60;

/// Bits of default mount options to clear and to set.
#[derive(Clone, Debug)]
pub(super) struct MountEdits(pub(super) Vec<(u32, u32)>);

/// The words of a list, each with whether it has no `^`.
fn words(list: &str) -> impl Iterator<Item = (&str, bool)> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| word.strip_prefix('^').map_or((word, true), |word| (word, false)))
}

/// Default mount options.
pub(super) fn mount_defaults(list: &str) -> Result<MountEdits, String> {
    MountDefaults::edits(list).map(MountEdits).map_err(|error| error.to_string())
}

/// Quotas by kind.
pub(super) fn quotas(list: &str) -> Result<Vec<QuotaEdit>, String> {
    let edit = |(word, on): (&str, bool)| match Kind::by_name(word) {
        Some(kind) => Ok(QuotaEdit { kind, on }),
        None => Err(format!("-Q {word}: say usrquota, grpquota or prjquota")),
    };
    words(list).map(edit).collect()
}

/// A UUID, or how to get one.
pub(super) fn uuid(text: &str) -> Outcome<[u8; 16]> {
    match text {
        "clear" | "null" => Ok([0; 16]),
        "random" | "time" => os::random_uuid().map_err(|error| Failure::of(os::RANDOM, reason(&error))),
        text => parse_uuid("-U", text).map_err(|error| Failure::Usage(error.to_string())),
    }
}

/// A decimal fraction in thousandths.
pub(super) fn thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(part)
}

/// A time between two checks, in seconds.
pub(super) fn interval(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix(['s', 'd', 'w', 'm']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b'd'),
    };
    let seconds = match unit {
        b's' => 1,
        b'w' => 7 * DAY,
        b'm' => 30 * DAY,
        _ => DAY,
    };
    let product = number.parse::<u32>().ok().and_then(|number| number.checked_mul(seconds));
    product.ok_or_else(|| format!("'{text}' is not a number of days, or one with d, w, m or s"))
}

/// A time in seconds since 1970.
pub(super) fn time(text: &str, now: Timestamp) -> Result<u64, String> {
    let wrong = || format!("-T {text} is not YYYYMMDD[HH[MM[SS]]], now or @SECONDS");
    if text == "now" {
        return Ok(now.seconds.max(0).cast_unsigned());
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map_err(|_| wrong());
    }
    if !(8..=14).contains(&text.len()) || text.len() % 2 == 1 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let part = |range: std::ops::Range<usize>| text.get(range).map_or(Ok(0), |part| part.parse::<i8>());
    let year = text[..4].parse::<i16>().map_err(|_| wrong())?;
    let parts = [part(4..6), part(6..8), part(8..10), part(10..12), part(12..14)];
    let [month, day, hour, minute, second] = parts.map(|part| part.unwrap_or(-1));
    let moment = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0);
    let zoned = moment.and_then(|moment| moment.to_zoned(jiff::tz::TimeZone::UTC)).map_err(|_| wrong())?;
    u64::try_from(zoned.timestamp().as_second()).map_err(|_| wrong())
}

/// A number after a word.
fn number<N: std::str::FromStr>(option: &str, word: &str, value: Option<&str>) -> Result<N, String> {
    value.and_then(|value| value.parse().ok()).ok_or_else(|| format!("{option} {word}: it needs a number"))
}

/// The journal to add.
pub(super) fn journal(list: &str, changes: &mut Changes) -> Outcome {
    let number = |word: &str, value: Option<&str>| number("-J", word, value).map_err(Failure::Usage);
    for (word, _) in words(list) {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match name {
            "size" => changes.journal_mib = Some(number(word, value.map(|v| v.trim_end_matches('M')))?),
            "fast_commit_size" => changes.fast_commit_kib = Some(number(word, value)?),
            "location" => changes.journal_location = Some(BlockNr::new(number(word, value)?.into())),
            "device" => {
                let path = value.ok_or_else(|| Failure::Usage("-J device: it needs a path".to_owned()))?;
                changes.journal_device = Some(journal_device(Path::new(path))?);
            }
            _ => {
                let known = "size=MIB, location=BLOCK, fast_commit_size=KIB or device=PATH";
                return Err(Failure::Usage(format!("-J {word}: say {known}")));
            }
        }
    }
    Ok(())
}

/// The device of an external journal.
fn journal_device(path: &Path) -> Outcome<ExternalJournal> {
    let path = &*by_name(path)?;
    let device = file_device(path, Hold::Everybody)?;
    let number = number_of(path)?;
    Ok(ExternalJournal { device: Arc::new(device), number })
}

/// Extended options.
pub(super) fn extended(list: &str, changes: &mut Changes) -> Result<(), String> {
    // Its value may hold commas, so it is the last.
    let (list, options) = match list.split_once("mount_opts=") {
        Some((list, options)) => (list, Some(options)),
        None => (list, None),
    };
    changes.mount_options = options.map(|options| options.as_bytes().to_vec());
    for (word, on) in words(list) {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match (name.replace('-', "_").as_str(), on) {
            ("stride", true) => changes.stride = Some(number("-E", word, value)?),
            ("stripe_width", true) => changes.stripe_width = Some(number("-E", word, value)?),
            ("mmp_update_interval", true) => changes.mmp_interval = Some(number("-E", word, value)?),
            ("hash_alg", true) => changes.hash = Some(hash(value)?),
            ("clear_mmp", true) => changes.clear_mmp = true,
            ("force_fsck", true) => changes.force_check = true,
            ("test_fs", on) => changes.test_volume = Some(on),
            _ => return Err(format!("-E {word} is not known")),
        }
    }
    Ok(())
}

fn hash(name: Option<&str>) -> Result<HashVersion, String> {
    match name {
        Some("legacy") => Ok(HashVersion::Legacy),
        Some("half_md4") => Ok(HashVersion::HalfMd4),
        Some("tea") => Ok(HashVersion::Tea),
        _ => Err("-E hash_alg: say legacy, half_md4 or tea".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_tune2fs() {
        assert_eq!(interval("2w"), Ok(1_209_600));
        assert_eq!((interval("3"), interval("0"), interval("90s")), (Ok(259_200), Ok(0), Ok(90)));
        assert!(interval("x").is_err() && interval("").is_err() && interval("99999999m").is_err());
        assert_eq!((thousandths("1.5"), thousandths("5")), (Some(1500), Some(5000)));
        assert!(["", ".", "1.2345", "-1", "1e3"].iter().all(|text| thousandths(text).is_none()));
        assert_eq!(time("20200101", Timestamp::default()), Ok(1_577_836_800));
        assert_eq!(time("20200101123456", Timestamp::default()), Ok(1_577_882_096));
        assert!(
            time("20201301", Timestamp::default()).is_err() && time("2020", Timestamp::default()).is_err()
        );
        assert_eq!(mount_defaults("^acl,journal_data").unwrap().0, [(0x8, 0), (0x60, 0x20)]);
    }

    #[test]
    fn the_value_of_mount_opts_may_hold_commas() {
        let mut changes = Changes::default();
        extended("stride=4,mount_opts=a,b", &mut changes).unwrap();
        assert_eq!((changes.stride, changes.mount_options), (Some(4), Some(b"a,b".to_vec())));
    }

    #[test]
    fn regression_quotas_may_be_named_by_three_letters() {
        let edit = |kind, on| QuotaEdit { kind, on };
        let expected = [edit(Kind::User, true), edit(Kind::Group, false), edit(Kind::Project, true)];
        assert_eq!(quotas("usr,^grp,prj").unwrap(), expected);
        assert_eq!(quotas("usrquota,^grpquota,prjquota").unwrap(), expected);
        assert!(quotas("user").unwrap_err().contains("-Q user"));
    }

    #[test]
    fn regression_two_carets_were_none() {
        assert!(mount_defaults("^^acl").is_err());
        assert_eq!(mount_defaults("^acl").unwrap().0, [(8, 0)]);
    }
}
