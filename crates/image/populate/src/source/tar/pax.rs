//! pax records: `LENGTH KEY=VALUE\n`, where LENGTH counts the whole record in decimal.
//!
//! A value is any bytes, newlines included, so records are cut by length only. An empty value takes a record
//! back (POSIX), except for extended attributes, where it is an empty value. Keys that say nothing about an
//! entry's place, owner, times, attributes or holes are passed over.

use super::encoding;
use super::sparse::SparseRecords;
use crate::time::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// The pax records of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) linkpath: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Timestamp>,
    pub(super) atime: Option<Timestamp>,
    pub(super) ctime: Option<Timestamp>,
    pub(super) crtime: Option<Timestamp>,
    pub(super) xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    pub(super) acl_access: Option<Vec<u8>>,
    pub(super) acl_default: Option<Vec<u8>>,
    pub(super) sparse: SparseRecords,
}

/// The most bytes that a global header may say of every entry after it.
const GLOBAL_MAX: usize = 16 << 10;
/// The longest value of an extended attribute that Linux has (`XATTR_SIZE_MAX`).
const XATTR_VALUE_MAX: usize = 64 << 10;
/// The most bytes of attributes that one entry may have; far more than a volume can store.
const XATTRS_MAX: usize = 16 << 20;

/// What is before the name of an attribute.
const SCHILY: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";

const RECORD: &str = "a pax record is not of the form LENGTH KEY=VALUE";
const NUMBER: &str = "a pax record's value is not a number in range";
const TIME: &str = "a pax record's value is not a time";

impl Pax {
    /// Takes in the records of one extension header.
    pub(super) fn read(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        let mut fields = Vec::new();
        while !records.is_empty() {
            let digits = records.iter().position(|byte| *byte == b' ').ok_or(RECORD)?;
            let len = decimal(&records[..digits]).and_then(|len| usize::try_from(len).ok()).ok_or(RECORD)?;
            let record = records.get(digits + 1..len).ok_or(RECORD)?;
            let record = record.strip_suffix(b"\n").ok_or(RECORD)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(RECORD)?;
            fields.push((&record[..equals], &record[equals + 1..]));
            records = &records[len..];
        }
        // libarchive writes an attribute twice, both times with its name escaped, which SCHILY's is elsewhere not.
        let names: HashSet<&[u8]> =
            fields.iter().filter_map(|(key, _)| key.strip_prefix(LIBARCHIVE)).collect();
        let is_twice = |key: &[u8]| key.strip_prefix(SCHILY).is_some_and(|name| names.contains(name));
        fields.retain(|(key, _)| !is_twice(key));
        fields.into_iter().try_for_each(|(key, value)| self.record(key, value))?;
        if self.xattrs.values().any(|value| value.len() > XATTR_VALUE_MAX) {
            return Err("the value of an extended attribute is longer than 64 KiB");
        }
        if self.xattrs_len() > XATTRS_MAX {
            return Err("the extended attributes of an entry are more than 16 MiB");
        }
        Ok(())
    }

    fn xattrs_len(&self) -> usize {
        self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Refuses a global header that would weigh on every entry after it.
    pub(super) fn check_global(&self) -> Result<(), &'static str> {
        let texts = [&self.path, &self.linkpath, &self.acl_access, &self.acl_default];
        let len: usize = texts.into_iter().flatten().map(Vec::len).sum();
        match len + self.xattrs_len() + self.sparse.len() > GLOBAL_MAX {
            true => Err("a global header says more than 16 KiB of every entry after it"),
            false => Ok(()),
        }
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let text = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.linkpath = text(),
            b"size" => self.size = optional(value, decimal, NUMBER)?,
            b"uid" => self.uid = optional(value, decimal32, NUMBER)?,
            b"gid" => self.gid = optional(value, decimal32, NUMBER)?,
            b"mtime" => self.mtime = optional(value, time, TIME)?,
            b"atime" => self.atime = optional(value, time, TIME)?,
            b"ctime" => self.ctime = optional(value, time, TIME)?,
            b"LIBARCHIVE.creationtime" => self.crtime = optional(value, time, TIME)?,
            b"SCHILY.acl.access" => self.acl_access = text(),
            b"SCHILY.acl.default" => self.acl_default = text(),
            b"RHT.security.selinux" => {
                // The kernel's value ends with a NUL, the record's does not.
                self.xattrs.insert(b"security.selinux".as_slice().into(), [value, b"\0"].concat().into());
            }
            _ => return self.prefixed_record(key, value),
        }
        Ok(())
    }

    fn prefixed_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if let Some(name) = key.strip_prefix(SCHILY) {
            self.xattrs.insert(encoding::keyword(name).into(), value.into());
        } else if let Some(name) = key.strip_prefix(LIBARCHIVE) {
            let value = encoding::base64(value).ok_or("the value of an extended attribute is not base64")?;
            self.xattrs.insert(encoding::percent(name).into(), value.into());
        } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
            self.sparse.record(key, value)?;
        }
        Ok(())
    }
}

fn optional<T>(
    value: &[u8],
    parse: impl Fn(&[u8]) -> Option<T>,
    fault: &'static str,
) -> Result<Option<T>, &'static str> {
    if value.is_empty() { Ok(None) } else { parse(value).map(Some).ok_or(fault) }
}

/// Decimal digits and nothing else.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn decimal32(text: &[u8]) -> Option<u32> {
    decimal(text).and_then(|value| u32::try_from(value).ok())
}

/// Seconds with an optional sign and fraction; digits beyond nanoseconds are dropped.
fn time(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let mut nanoseconds = 0;
    if let Some(fraction) = parts.next() {
        decimal(if fraction.is_empty() { b"0" } else { &fraction[..fraction.len().min(9)] })?;
        for place in 0..9 {
            let digit = fraction.get(place).map_or(0, |digit| digit - b'0');
            nanoseconds = nanoseconds * 10 + u32::from(digit);
        }
    }
    Some(match (negative, nanoseconds) {
        (false, nanoseconds) => Timestamp { seconds, nanoseconds },
        (true, 0) => Timestamp { seconds: -seconds, nanoseconds: 0 },
        (true, part) => Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - part },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_newlines_and_equals_signs() {
        let mut pax = Pax::default();
        pax.read(b"26 SCHILY.xattr.user.a=\n=\n18 path=a=b\nc/d.e\n18 mtime=-1.25000\n").unwrap();
        assert_eq!(&*pax.xattrs[&b"user.a"[..]], b"\n=");
        assert_eq!(pax.path.unwrap(), b"a=b\nc/d.e");
        assert_eq!(pax.mtime, Some(Timestamp { seconds: -2, nanoseconds: 750_000_000 }));
    }

    #[test]
    fn broken_records_are_refused() {
        for records in [
            "x",
            "5 a=b",
            "99 a=b\n",
            "0 a=b\n",
            "3 \n",
            "6 abc\n",
            "12 size=-12\n",
            "2 a=b\n",
            "11 mtime=x\n",
        ] {
            assert!(Pax::default().read(records.as_bytes()).is_err(), "{records:?}");
        }
    }

    #[test]
    fn times_are_read_to_the_nanosecond() {
        let at = |seconds, nanoseconds| Some(Timestamp { seconds, nanoseconds });
        assert_eq!(time(b"1.5"), at(1, 500_000_000));
        assert_eq!(time(b"1.0000000019"), at(1, 1));
        assert_eq!(time(b"7."), at(7, 0));
        assert_eq!(time(b"-3"), at(-3, 0));
        assert_eq!(time(b"-0.000000001"), at(-1, 999_999_999));
        assert_eq!(time(b"1.x"), None);
        assert_eq!(time(b""), None);
    }
}
