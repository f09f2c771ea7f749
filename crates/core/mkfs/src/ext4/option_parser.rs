//! Parses the words after `-O` and `-E`, as `mke2fs` takes them.
//!
//! Both are lists separated by commas. Every error names the word it is about.

use super::options::{FeatureEdit, FormatOptions, ResizeLimit};
use crate::error::{Error, Result};
use crate::values::{parse_size, parse_uuid};
use hectare_ext4::feature::{Feature, Features, Incompat};
use hectare_ext4::quota;
use hectare_units::{Blocks, Bytes, owner_number};
use std::str::FromStr;

/// Reads a list of features: `name`, `^name` (or `-name`) and `none`.
///
/// # Errors
/// If a feature is not known.
pub fn parse_features(list: &str) -> Result<Vec<FeatureEdit>> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    words
        .map(|word| {
            if word.eq_ignore_ascii_case("none") {
                return Ok(FeatureEdit::None);
            }
            let (name, off) = match word.strip_prefix(['^', '-']) {
                Some(name) => (name, true),
                None => (word.strip_prefix('+').unwrap_or(word), false),
            };
            let feature = Features::by_name(name)
                .ok_or_else(|| Error::option(format!("-O {word}"), "no such feature"))?;
            Ok(if off { FeatureEdit::Off(feature) } else { FeatureEdit::On(feature) })
        })
        .collect()
}

/// Applies a list of extended options.
///
/// # Errors
/// If a word is not known, or its value is wrong.
pub fn apply_extended(options: &mut FormatOptions, list: &str) -> Result<()> {
    list.split(',').filter(|word| !word.is_empty()).try_for_each(|word| apply_word(options, word))
}

fn apply_word(options: &mut FormatOptions, word: &str) -> Result<()> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let refuse = |reason: &str| Err(Error::option(format!("-E {word}"), reason));
    match name {
        "stride" => options.stride = Some(number(word, value)?),
        "stripe_width" | "stripe-width" => options.stripe_width = Some(number(word, value)?),
        "packed_meta_blocks" => options.packed_meta_blocks = switch(word, value)?,
        "lazy_itable_init" => options.lazy_itable_init = Some(switch(word, value)?),
        "lazy_journal_init" => options.lazy_journal_init = switch(word, value)?,
        "num_backup_sb" => options.backup_superblocks = number(word, value)?,
        "resize" => options.resize = Some(resize_limit(word, value)?),
        "mmp_update_interval" => options.mmp_update_interval = number(word, value)?,
        "hash_seed" => match value {
            Some(seed) => options.hash_seed = Some(parse_uuid("-E hash_seed", seed)?),
            None => return refuse("it needs a UUID: hash_seed=UUID"),
        },
        "root_owner" => match value.and_then(|value| value.split_once(':')) {
            Some((uid, gid)) => match owner_number(uid.as_bytes()).zip(owner_number(gid.as_bytes())) {
                Some(owner) => options.root_owner = Some(owner),
                None => return refuse("its value is not two numbers of a user and a group"),
            },
            None => return refuse("it needs both numbers: root_owner=UID:GID"),
        },
        "root_perms" => match value.map(|value| u16::from_str_radix(value, 8)) {
            Some(Ok(mode)) if mode <= 0o7777 => options.root_permissions = Some(mode),
            _ => return refuse("it needs an octal mode: root_perms=0755"),
        },
        "quotatype" => options.quota_kinds = Some(quota_kinds(word, value)?),
        "encoding" => match value {
            Some("utf8" | "utf8-12.1") => {
                options.features.push(FeatureEdit::On(Feature::Incompat(Incompat::CASEFOLD)));
            }
            _ => return refuse("the encodings are utf8 and utf8-12.1, which are one"),
        },
        "encoding_flags" => match value {
            Some("strict") => options.strict_encoding = true,
            Some("nostrict") => options.strict_encoding = false,
            _ => return refuse("it is strict or nostrict"),
        },
        "discard" => options.discard = true,
        "nodiscard" => options.discard = false,
        "test_fs" => options.test_filesystem = true,
        _ => return refuse("no such extended option"),
    }
    Ok(())
}

/// Names of kinds of quotas, with colons between them.
fn quota_kinds(word: &str, value: Option<&str>) -> Result<Vec<quota::Kind>> {
    let kind = |name| {
        let reason = "there are usrquota, grpquota and prjquota, with ':' between";
        quota::Kind::by_name(name).ok_or_else(|| Error::option(format!("-E {word}"), reason))
    };
    value.unwrap_or_default().split(':').map(kind).collect()
}

/// A number of blocks, or a size with a suffix.
fn resize_limit(word: &str, value: Option<&str>) -> Result<ResizeLimit> {
    match value {
        Some(text) if text.ends_with(|last: char| !last.is_ascii_digit()) => parse_size(text, 1, None)
            .map(|bytes| ResizeLimit::Bytes(Bytes::new(bytes)))
            .map_err(|reason| Error::option(format!("-E {word}"), reason)),
        value => Ok(ResizeLimit::Blocks(Blocks::new(number(word, value)?))),
    }
}

fn number<T: FromStr>(word: &str, value: Option<&str>) -> Result<T> {
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| Error::option(format!("-E {word}"), "it needs a number in range"))
}

fn switch(word: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err(Error::option(format!("-E {word}"), "its value is 0 or 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_ext4::feature::RoCompat;

    #[test]
    fn features_are_switched_on_and_off_by_name() {
        let edits = parse_features("none,extents,^uninit_bg").unwrap();
        assert_eq!(
            edits,
            [
                FeatureEdit::None,
                FeatureEdit::On(Feature::Incompat(Incompat::EXTENTS)),
                FeatureEdit::Off(Feature::RoCompat(RoCompat::GDT_CSUM)),
            ]
        );
        let error = parse_features("extent,bogus").unwrap_err().to_string();
        assert_eq!(error, "-O bogus: no such feature");
    }

    #[test]
    fn extended_words_are_applied_or_named() {
        let mut options = FormatOptions::default();
        apply_extended(&mut options, "stride=4,stripe-width=16,lazy_itable_init=0,root_owner=5:6").unwrap();
        assert_eq!((options.stride, options.stripe_width), (Some(4), Some(16)));
        assert_eq!((options.lazy_itable_init, options.root_owner), (Some(false), Some((5, 6))));
        apply_extended(&mut options, "resize=5000").unwrap();
        assert_eq!(options.resize, Some(ResizeLimit::Blocks(Blocks::new(5000))));
        apply_extended(&mut options, "resize=3G").unwrap();
        assert_eq!(options.resize, Some(ResizeLimit::Bytes(Bytes::new(3 << 30))));
        apply_extended(&mut options, "quotatype=grpquota:prjquota,encoding=utf8,encoding_flags=strict")
            .unwrap();
        assert_eq!(options.quota_kinds, Some(vec![quota::Kind::Group, quota::Kind::Project]));
        assert!(options.strict_encoding);
        assert!(options.resolve_features().unwrap().incompat.contains(Incompat::CASEFOLD));
        for bad in [
            "quotatype",
            "quotatype=usrquota:grpq",
            "encoding=latin1",
            "encoding_flags=loose",
            "stride",
            "stride=x",
            "resize=",
            "resize=3Q",
            "foo=1",
            "root_owner=5",
            "root_owner=5:4294967295",
            "root_owner=+5:6",
            "packed_meta_blocks=2",
            "hash_seed=1",
        ] {
            let error = apply_extended(&mut options, bad).unwrap_err().to_string();
            assert!(error.starts_with("-E ") && error.contains(bad.split('=').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn what_excludes_each_other_is_refused_by_name() {
        for (list, name) in [
            ("^extent", "64bit"),
            ("meta_bg", "meta_bg"),
            ("orphan_file,^has_journal", "orphan_file"),
            ("^metadata_csum,metadata_csum_seed", "metadata_csum_seed"),
            ("^sparse_super", "sparse_super"),
            ("shared_blocks", "shared_blocks"),
        ] {
            let options = FormatOptions { features: parse_features(list).unwrap(), ..Default::default() };
            let error = options.resolve_features().unwrap_err().to_string();
            assert!(error.contains(name), "{list}: {error}");
        }
    }

    #[test]
    fn regression_names_of_features_may_have_capitals() {
        let same = |a: &str, b: &str| assert_eq!(parse_features(a).unwrap(), parse_features(b).unwrap());
        same("METADATA_CSUM,^Extents,NONE", "metadata_csum,^extent,none");
        same("64BIT,Large_Dir", "64bit,large_dir");
    }
}
