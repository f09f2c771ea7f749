//! The keywords of an mtree line, and the entry they make.
//!
//! Set: `type`, `mode` (octal, or symbolic as in chmod, from no permission at all), `uid`, `gid`, `time`
//! (seconds, a dot, and a *number* of nanoseconds), `tar_time`, `link`, `device` (major and minor, or Linux's
//! number), `content` or `contents` (a file of the host, its path relative to the working directory).
//! Compared: `size` of files, SHA-2 digests. `optional`: the path may be missing. `nochange`: it must exist,
//! no more. Passed over: `ignore`, `nlink`, `inode`, `resdevice`, `tags`, since they say nothing of the image.
//! With a warning: `flags`, other digests. Names of owners beside numbers are ignored; alone, only `root` is
//! known. Any other keyword is an error.

use super::words::{shown, unescape};
use crate::source::modes::ModeChange;
use crate::source::spec::Fault;
use crate::source::spec::digest::{Digest, DigestValue, UNCHECKED};
use crate::source::spec::entry::{Change, Entry, EntryKind, Missing};
use crate::source::spec::lines::number;
use crate::time::Timestamp;
use hectare_units::owner_number;
use std::collections::{BTreeMap, BTreeSet};

/// Keywords that say nothing of an image, with or without a value.
const PASSED: [&[u8]; 6] = [b"ignore", b"nlink", b"inode", b"resdevice", b"tags", b"nochange"];
/// Keywords with a value that [`entry`](Keywords::entry) reads.
const KNOWN: [&[u8]; 15] = [
    b"type",
    b"mode",
    b"uid",
    b"gid",
    b"uname",
    b"gname",
    b"time",
    b"tar_time",
    b"link",
    b"device",
    b"content",
    b"contents",
    b"size",
    b"optional",
    b"flags",
];
const MAJOR_MAX: u64 = (1 << 12) - 1;
const MINOR_MAX: u64 = (1 << 20) - 1;

/// Keywords and their values as written.
#[derive(Clone, Debug, Default)]
pub(super) struct Keywords(BTreeMap<Box<[u8]>, Box<[u8]>>);

impl Keywords {
    /// Sets what a word says.
    pub(super) fn set(
        &mut self,
        word: &[u8],
        warnings: &mut Vec<(u64, String)>,
        line: u64,
        warned: &mut BTreeSet<String>,
    ) -> Result<(), Fault> {
        let (keyword, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], &word[at + 1..]),
            None => (word, &[][..]),
        };
        let mut warn = |text: String| {
            if warned.insert(text.clone()) {
                warnings.push((line, text));
            }
        };
        if UNCHECKED.contains(&keyword) {
            warn(format!("the digest {} is not compared, only SHA-2 is", shown(keyword)));
            return Ok(());
        }
        if keyword == b"flags" && !matches!(value, b"none" | b"" | b"-") {
            warn(format!("flags={} has no effect: flags of files are not set", shown(value)));
        }
        if !PASSED.contains(&keyword) && !KNOWN.contains(&keyword) && Digest::of(keyword).is_none() {
            return Err(Fault::new(line, format!("the keyword {} is not understood", shown(keyword))));
        }
        if value.is_empty() && !PASSED.contains(&keyword) && !matches!(keyword, b"optional" | b"flags") {
            return Err(Fault::new(line, format!("the keyword {} has no value", shown(keyword))));
        }
        self.0.insert(keyword.into(), value.into());
        Ok(())
    }

    /// Takes a keyword back; `all` takes back all of them.
    pub(super) fn unset(&mut self, keyword: &[u8], line: u64) -> Result<(), Fault> {
        if keyword == b"all" {
            self.0.clear();
            return Ok(());
        }
        let is_known = PASSED.contains(&keyword) || KNOWN.contains(&keyword) || UNCHECKED.contains(&keyword);
        if !is_known && Digest::of(keyword).is_none() {
            return Err(Fault::new(line, format!("the keyword {} is not understood", shown(keyword))));
        }
        self.0.remove(keyword);
        Ok(())
    }

    fn get(&self, keyword: &[u8]) -> Option<&[u8]> {
        self.0.get(keyword).map(|value| &**value)
    }

    /// What `type` says, if it is understood.
    pub(super) fn kind(&self) -> Option<EntryKind> {
        Some(match self.get(b"type")? {
            b"dir" => EntryKind::Directory,
            b"file" => EntryKind::File,
            b"link" => EntryKind::Symlink,
            b"char" => EntryKind::CharDevice,
            b"block" => EntryKind::BlockDevice,
            b"fifo" => EntryKind::Fifo,
            b"socket" => EntryKind::Socket,
            _ => return None,
        })
    }

    /// The entry for a path.
    pub(super) fn entry(&self, line: u64, path: &[u8]) -> Result<Entry, String> {
        let mut entry = Entry::new(line, path);
        if let Some(kind) = self.get(b"type") {
            let known = self.kind();
            entry.kind = Some(known.ok_or_else(|| format!("type={} is not understood", shown(kind)))?);
        }
        if self.get(b"optional").is_some() {
            entry.missing = Missing::Skip;
        } else if self.get(b"nochange").is_none() {
            entry.missing = Missing::Make;
        }
        if self.get(b"nochange").is_none() {
            entry.change = self.change(entry.kind)?;
        }
        Ok(entry)
    }

    fn change(&self, kind: Option<EntryKind>) -> Result<Change, String> {
        let is = |wanted: EntryKind| kind == Some(wanted);
        let device = is(EntryKind::CharDevice) || is(EntryKind::BlockDevice);
        let time = self.get(b"time").or_else(|| self.get(b"tar_time"));
        let content = self.get(b"contents").or_else(|| self.get(b"content"));
        let mut change = Change {
            mode: self.get(b"mode").map(|value| mode(value, is(EntryKind::Directory))).transpose()?,
            uid: self.owner(b"uid", b"uname")?,
            gid: self.owner(b"gid", b"gname")?,
            time: time.map(timestamp).transpose()?,
            ..Change::default()
        };
        if is(EntryKind::Symlink) {
            change.target = self.get(b"link").map(|value| unescape(value).map(Into::into)).transpose()?;
        }
        if device {
            change.device = self.get(b"device").map(device_number).transpose()?;
        }
        if is(EntryKind::File) || kind.is_none() {
            change.content = content.map(|value| unescape(value).map(Into::into)).transpose()?;
            let size = self.get(b"size");
            let parse =
                |value| number(value, 10).ok_or_else(|| format!("size={} is no number", shown(value)));
            change.size = size.map(parse).transpose()?;
            change.digests = self.digests()?;
        }
        Ok(change)
    }

    fn owner(&self, id: &[u8], name: &[u8]) -> Result<Option<u32>, String> {
        if let Some(value) = self.get(id) {
            let parsed = owner_number(value).map(Some);
            return parsed.ok_or_else(|| format!("{} is not the number of an owner", shown(value)));
        }
        match self.get(name) {
            None => Ok(None),
            Some(b"root") => Ok(Some(0)),
            Some(other) => {
                let [id, name] = [id, name].map(String::from_utf8_lossy);
                let other = shown(other);
                Err(format!(
                    "{name}={other} without {id}=: names are the image's own, and not looked up here"
                ))
            }
        }
    }

    fn digests(&self) -> Result<Vec<DigestValue>, String> {
        let mut digests = Vec::new();
        for (keyword, value) in &self.0 {
            let Some(digest) = Digest::of(keyword) else { continue };
            if value.len() != digest.digits() || !value.iter().all(u8::is_ascii_hexdigit) {
                let (keyword, digits) = (String::from_utf8_lossy(keyword), digest.digits());
                return Err(format!("{keyword}={} is not {digits} hexadecimal digits", shown(value)));
            }
            digests.push((digest, value.clone()));
        }
        Ok(digests)
    }
}

fn mode(value: &[u8], is_directory: bool) -> Result<u16, String> {
    let wrong = || format!("mode={} is not understood", shown(value));
    if let Some(mode) = crate::source::spec::lines::mode(value) {
        return Ok(mode);
    }
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let change = ModeChange::parse(text).map_err(|_| wrong())?;
    Ok(change.apply(0, is_directory))
}

/// `SECONDS[.NANOSECONDS]`; the latter is a number, not a fraction.
fn timestamp(value: &[u8]) -> Result<Timestamp, String> {
    let wrong = || format!("time={} is not SECONDS.NANOSECONDS", shown(value));
    let (seconds, nanoseconds) = match value.iter().position(|byte| *byte == b'.') {
        Some(at) => (&value[..at], number(&value[at + 1..], 10).ok_or_else(wrong)?),
        None => (value, 0),
    };
    let (negative, digits) = match seconds.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, seconds),
    };
    let seconds = number(digits, 10).and_then(|n| i64::try_from(n).ok()).ok_or_else(wrong)?;
    let nanoseconds = u32::try_from(nanoseconds).ok().filter(|n| *n < 1_000_000_000).ok_or_else(wrong)?;
    Ok(Timestamp { seconds: if negative { -seconds } else { seconds }, nanoseconds })
}

/// `[FORMAT,]MAJOR,MINOR`, or a number as Linux has it.
fn device_number(value: &[u8]) -> Result<(u32, u32), String> {
    let wrong = || format!("device={} is not native,MAJOR,MINOR", shown(value));
    let parts: Vec<&[u8]> = value.split(|byte| *byte == b',').collect();
    let (major, minor) = match parts.as_slice() {
        [whole] => {
            let whole = match whole.strip_prefix(b"0x") {
                Some(digits) => number(digits, 16),
                None => number(whole, 10),
            };
            let whole = whole.filter(|whole| *whole <= u64::from(u32::MAX)).ok_or_else(wrong)?;
            // makedev(3): 12 bits of major above 8 of minor, and 12 more of minor above them.
            ((whole >> 8) & 0xfff, (whole & 0xff) | (whole >> 12) & 0xfff00)
        }
        [major, minor] => (number(major, 10).ok_or_else(wrong)?, number(minor, 10).ok_or_else(wrong)?),
        [format, major, minor] if !format.is_empty() && format.iter().all(u8::is_ascii_alphanumeric) => {
            (number(major, 10).ok_or_else(wrong)?, number(minor, 10).ok_or_else(wrong)?)
        }
        _ => return Err(wrong()),
    };
    if major > MAJOR_MAX || minor > MINOR_MAX {
        return Err(format!(
            "device={}: Linux has majors up to {MAJOR_MAX}, minors up to {MINOR_MAX}",
            shown(value)
        ));
    }
    Ok((hectare_units::low32(major), hectare_units::low32(minor)))
}
