//! Parses the words after the options of `mkfs.xfs`: `-d agcount=4,su=64k,sw=2`.
//!
//! One table lists the words and what each sets. Sizes may end in `b` and `s`, blocks and sectors of the
//! volume, so those two sizes are read first whatever the order. Every error names the word it is
//! about.

use super::geometry::LOG_UNIT_MAX;
use super::options::{FormatOptions, GroupSize, LogSize, StripeOption};
use crate::error::{Error, Result};
use crate::values::{parse_size, parse_uuid};
use hectare_units::{BlockSize, Bytes};

/// What sizes in sectors count in unless a size of sectors is given.
const SECTOR: u32 = 512;

/// Bytes of an inode.
const INODE_MIN: u32 = 512;
const INODE_MAX: u32 = 2048;

/// Why some words have one value only.
const CHECKSUMS_NEED: &str = "checksums need it";

/// A word: its option's letter, its name, and what its value does.
type Word = (char, &'static str, fn(&mut FormatOptions, Value<'_>) -> Result<()>);

const WORDS: &[Word] = &[
    ('b', "size", |options, value| value.power(1024, 65536).map(|n| set_block_size(options, n))),
    ('s', "size", |options, value| value.power(512, 32768).map(|n| options.sector_size = Some(n))),
    ('m', "crc", |_, value| {
        value.switch().and_then(|on| value.must(on, "a volume without checksums can't be made"))
    }),
    ('m', "finobt", |options, value| value.switch().map(|on| options.finobt = on)),
    ('m', "rmapbt", |options, value| value.switch().map(|on| options.rmapbt = on)),
    ('m', "reflink", |options, value| value.switch().map(|on| options.reflink = on)),
    ('m', "bigtime", |options, value| value.switch().map(|on| options.bigtime = on)),
    ('m', "inobtcount", |options, value| value.switch().map(|on| options.inobtcount = Some(on))),
    ('m', "uuid", |options, value| value.uuid().map(|uuid| options.uuid = Some(uuid))),
    ('i', "size", |options, value| value.power(INODE_MIN, INODE_MAX).map(|n| options.inode_size = n)),
    ('i', "perblock", |options, value| {
        let block = options.block_size.get();
        value.power((block / INODE_MAX).max(2), block / INODE_MIN).map(|n| options.inode_size = block / n)
    }),
    ('i', "attr", |_, value| value.only("2", CHECKSUMS_NEED)),
    ('i', "align", |_, value| value.only("1", CHECKSUMS_NEED)),
    ('i', "projid32bit", |_, value| value.only("1", CHECKSUMS_NEED)),
    ('i', "maxpct", |options, value| {
        value.number(0, 100u8).map(|n| options.inode_percent = (n > 0).then_some(n))
    }),
    ('i', "nrext64", |options, value| value.switch().map(|on| options.nrext64 = on)),
    ('i', "sparse", |options, value| value.switch().map(|on| options.sparse = on)),
    ('d', "agcount", |options, value| {
        value.number(1, u32::MAX).map(|n| options.group_size = GroupSize::Count(n))
    }),
    ('d', "agsize", |options, value| value.size(options).map(|n| options.group_size = GroupSize::Bytes(n))),
    ('d', "su", |options, value| value.size(options).map(|n| stripe(options).unit = n.get())),
    ('d', "sw", |options, value| value.number(0, u32::MAX).map(|n| stripe(options).width = n.into())),
    ('d', "sunit", |options, value| value.number(0, u32::MAX).map(|n| stripe(options).unit = sectors(n))),
    ('d', "swidth", |options, value| value.number(0, u32::MAX).map(|n| stripe(options).width = sectors(n))),
    ('d', "noalign", |options, value| {
        value
            .switch()
            .map(|on| options.stripe = if on { Some(StripeOption::default()) } else { options.stripe })
    }),
    ('d', "size", |options, value| value.size(options).map(|n| options.size = Some(n))),
    ('l', "size", |options, value| value.size(options).map(|n| options.log_size = LogSize::Bytes(n))),
    ('l', "su", |options, value| {
        value.log_unit(value.size(options)?.get()).map(|unit| options.log_unit = Some(unit))
    }),
    ('l', "sunit", |options, value| {
        value.log_unit(sectors(value.number(0, u32::MAX)?)).map(|unit| options.log_unit = Some(unit))
    }),
    ('l', "internal", |_, value| value.only("1", "a volume whose log is elsewhere can't be made")),
    ('l', "version", |_, value| value.only("2", CHECKSUMS_NEED)),
    ('l', "lazy-count", |_, value| value.only("1", CHECKSUMS_NEED)),
    ('n', "version", |_, value| value.only("2", "a volume whose names ignore case can't be made")),
    ('n', "size", |options, value| value.power(4096, 65536).map(|n| options.directory_block_size = Some(n))),
    ('n', "ftype", |_, value| value.switch().and_then(|on| value.must(on, "it is always on with checksums"))),
];

/// Words of one option that say the same in two ways, or need each other.
const PAIRS_EXCLUDED: &[(char, &str, &str)] = &[
    ('d', "agcount", "agsize"),
    ('d', "su", "sunit"),
    ('d', "su", "swidth"),
    ('d', "sw", "sunit"),
    ('d', "sw", "swidth"),
    ('d', "noalign", "su"),
    ('d', "noalign", "sw"),
    ('d', "noalign", "sunit"),
    ('d', "noalign", "swidth"),
    ('l', "su", "sunit"),
    ('i', "size", "perblock"),
];
const PAIRS_NEEDED: &[(char, &str, &str)] =
    &[('d', "su", "sw"), ('d', "sw", "su"), ('d', "sunit", "swidth"), ('d', "swidth", "sunit")];

/// Applies options, each its letter and the list of words after it, to `options`.
///
/// # Errors
/// For a word that is not known, is given twice, excludes another, or has a wrong value.
pub fn parse(options: &mut FormatOptions, lists: &[(char, &str)]) -> Result<()> {
    let mut given: Vec<(char, &str, Value<'_>)> = Vec::new();
    for (letter, list) in lists {
        for text in list.split(',').filter(|text| !text.is_empty()) {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text, None),
            };
            let value = Value { letter: *letter, text, value };
            if given.iter().any(|(other, known, _)| (other, *known) == (letter, name)) {
                return value.refuse("it is given twice");
            }
            given.push((*letter, name, value));
        }
    }
    // The sizes that others may be counted in come first.
    given.sort_by_key(|(letter, ..)| !matches!(letter, 'b' | 's'));
    check_pairs(&given)?;
    for (letter, name, value) in &given {
        let word = WORDS.iter().find(|(other, known, _)| (other, known) == (letter, name));
        let Some((.., set)) = word else {
            return value.refuse(&format!("no such word; there are {}", names(*letter)));
        };
        set(options, *value)?;
    }
    if given.iter().any(|(letter, name, _)| (*letter, *name) == ('d', "sw")) {
        // It counts disks, not bytes.
        let stripe = stripe(options);
        stripe.width = stripe.width.saturating_mul(stripe.unit);
    }
    Ok(())
}

fn check_pairs(given: &[(char, &str, Value<'_>)]) -> Result<()> {
    let find = |wanted: char, word: &str| {
        given.iter().find(|(letter, name, _)| *letter == wanted && *name == word).map(|(.., value)| value)
    };
    for (letter, first, second) in PAIRS_EXCLUDED {
        if let (Some(value), Some(_)) = (find(*letter, first), find(*letter, second)) {
            return value.refuse(&format!("it excludes {second}"));
        }
    }
    for (letter, first, second) in PAIRS_NEEDED {
        if let (Some(value), None) = (find(*letter, first), find(*letter, second)) {
            return value.refuse(&format!("it needs {second}"));
        }
    }
    Ok(())
}

fn names(letter: char) -> String {
    let names: Vec<&str> =
        WORDS.iter().filter(|(other, ..)| *other == letter).map(|(_, name, _)| *name).collect();
    names.join(", ")
}

fn set_block_size(options: &mut FormatOptions, bytes: u32) {
    options.block_size = BlockSize::from_bytes(bytes.into()).unwrap_or(options.block_size);
}

/// The stripe that is given, to be changed.
fn stripe(options: &mut FormatOptions) -> &mut StripeOption {
    options.stripe.get_or_insert_default()
}

/// Units of 512 bytes, whatever the sector size.
fn sectors(n: u32) -> u64 {
    u64::from(n) << 9
}

/// The value of a word, with what an error says.
#[derive(Clone, Copy)]
struct Value<'a> {
    letter: char,
    text: &'a str,
    value: Option<&'a str>,
}

impl Value<'_> {
    fn refuse<T>(&self, reason: &str) -> Result<T> {
        Err(Error::option(format!("-{} {}", self.letter, self.text), reason))
    }

    fn must(&self, holds: bool, reason: &str) -> Result<()> {
        if holds { Ok(()) } else { self.refuse(reason) }
    }

    /// Nothing else than `only`, which a word without a value stands for, too.
    fn only(&self, only: &str, reason: &str) -> Result<()> {
        self.must(self.value.is_none_or(|value| value == only), &format!("it can only be {only}: {reason}"))
    }

    /// Bytes that log writes are rounded up to.
    fn log_unit(&self, bytes: u64) -> Result<u32> {
        match u32::try_from(bytes) {
            Ok(unit) if (1..=LOG_UNIT_MAX).contains(&bytes) => Ok(unit),
            _ => self.refuse(&format!("it must be 1 to {LOG_UNIT_MAX} bytes")),
        }
    }

    fn switch(&self) -> Result<bool> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => self.refuse("its value is 0 or 1"),
        }
    }

    fn number<T: TryFrom<u64> + Into<u64> + Copy>(&self, min: T, max: T) -> Result<T> {
        let number = self.value.and_then(|value| value.parse().ok());
        match number.filter(|n| (min.into()..=max.into()).contains(n)).map(T::try_from) {
            Some(Ok(n)) => Ok(n),
            _ => self.refuse(&format!("its value is a number from {} to {}", min.into(), max.into())),
        }
    }

    fn power(&self, min: u32, max: u32) -> Result<u32> {
        let reason = format!("its value is a power of two from {min} to {max}");
        match self.value.map(|value| parse_size(value, 1, None)) {
            Some(Ok(n)) if n.is_power_of_two() && (min.into()..=max.into()).contains(&n) => {
                u32::try_from(n).or_else(|_| self.refuse(&reason))
            }
            _ => self.refuse(&reason),
        }
    }

    fn size(&self, options: &FormatOptions) -> Result<Bytes> {
        let units = (options.block_size.bytes().get(), options.sector_size.unwrap_or(SECTOR).into());
        match self.value.map(|value| parse_size(value, 1, Some(units))) {
            Some(Ok(n)) => Ok(Bytes::new(n)),
            Some(Err(reason)) => self.refuse(&reason),
            None => self.refuse("it needs a size"),
        }
    }

    fn uuid(&self) -> Result<[u8; 16]> {
        match self.value {
            Some(text) => parse_uuid(&format!("-{} uuid", self.letter), text),
            None => self.refuse("it needs a UUID"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lists: &[(char, &str)]) -> Result<FormatOptions> {
        let mut options = FormatOptions::default();
        parse(&mut options, lists).map(|()| options)
    }

    #[test]
    fn words_are_applied_in_the_units_of_the_volume() {
        let options = parsed(&[
            ('d', "size=300000b,agsize=20000s,su=64k,sw=3"),
            ('b', "size=8k"),
            ('s', "size=4096"),
            ('m', "rmapbt,reflink=0,crc=1"),
            ('i', "maxpct=7,size=1024"),
        ])
        .unwrap();
        assert_eq!(options.size, Some(Bytes::new(300_000 << 13)));
        assert_eq!(options.group_size, GroupSize::Bytes(Bytes::new(20_000 << 12)));
        assert_eq!(options.stripe, Some(StripeOption { unit: 65536, width: 3 * 65536 }));
        assert_eq!((options.rmapbt, options.reflink, options.inode_percent), (true, false, Some(7)));
        let options = parsed(&[('d', "sunit=128,swidth=512"), ('n', "size=8192,ftype=1")]).unwrap();
        assert_eq!(options.stripe, Some(StripeOption { unit: 65536, width: 4 * 65536 }));
        assert_eq!(options.directory_block_size, Some(8192));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (letter, list, word) in [
            ('b', "size=4000", "power of two"),
            ('b', "size", "power of two"),
            ('s', "size=65536", "512 to 32768"),
            ('i', "size=256", "512 to 2048"),
            ('i', "maxpct=101", "0 to 100"),
            ('m', "crc=0", "checksums"),
            ('m', "rmapbt=2", "0 or 1"),
            ('m', "foo=1", "no such word; there are crc, finobt"),
            ('m', "uuid=x", "not a UUID"),
            ('n', "ftype=0", "always on"),
            ('d', "agcount=4,agsize=64m", "excludes agsize"),
            ('d', "su=64k", "needs sw"),
            ('d', "swidth=8", "needs sunit"),
            ('d', "agcount=2,agcount=3", "twice"),
            ('d', "agsize=12q", "no size"),
            ('d', "noalign,su=64k,sw=2", "excludes su"),
            ('d', "noalign,sw=2", "excludes sw"),
            ('d', "noalign,swidth=8", "excludes swidth"),
            ('i', "attr=1", "checksums need it"),
            ('l', "su=4k,sunit=8", "excludes sunit"),
            ('l', "su=512k", "1 to 262144"),
            ('l', "version=1", "only be 2"),
            ('l', "internal=0", "elsewhere"),
            ('i', "perblock=3", "power of two from 2 to 8"),
            ('i', "perblock=16", "power of two from 2 to 8"),
            ('i', "align=0", "only be 1"),
            ('n', "version=ci", "ignore case"),
            ('q', "size=1", "no such word"),
        ] {
            let error = parsed(&[(letter, list)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("-{letter} ")) && error.contains(word), "{list}: {error}");
        }
    }
}
