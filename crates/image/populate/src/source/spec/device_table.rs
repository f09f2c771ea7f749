//! Device tables: `name type mode uid gid major minor start inc count`.
//!
//! genext2fs began it; Buildroot's makedevs has the form that is used most, and is followed here. `-` stands
//! for a field that does not apply. Types: `d` a directory, made with those above it if missing; `f` a
//! regular file that must exist, `F` one that need not; `r` a directory with all that is in it; `c`, `b`,
//! `p`, `s` devices, pipes and sockets, made if missing. A mode of -1 leaves the mode as it is. A line
//! `|xattr CAPABILITIES` gives the file of the line before it these capabilities, in setcap's form.
//!
//! A device line with a count stands for `count` devices, `name` followed by a number from `start` on, with
//! minor numbers from `minor` on in steps of `inc`.
//!
//! Hazard: genext2fs takes `count` for the number to stop before. Both agree where `start` is 0, as it nearly
//! always is; elsewhere a warning says which devices were made.

use super::entry::{Entry, EntryKind, Missing, Series};
use super::lines::{clean, mode, number, numbered, owner, shown, words};
use super::{Fault, Found, capability};

/// The limits of device numbers in Linux: 12 and 20 bits.
const MAJOR_MAX: u64 = (1 << 12) - 1;
const MINOR_MAX: u64 = (1 << 20) - 1;
/// The most devices one line may make.
const COUNT_MAX: u64 = 1 << 16;

/// Reads a device table.
pub(super) fn read(text: &[u8]) -> Result<Found, Fault> {
    let mut found = Found::default();
    for (line, bytes) in numbered(text) {
        let words = words(bytes);
        match words.first() {
            None => {}
            Some(first) if first.starts_with(b"#") => {}
            Some(first) if first.starts_with(b"|") => attribute(&mut found, line, bytes)?,
            Some(_) => entry(&mut found, line, &words)?,
        }
    }
    Ok(found)
}

/// `|xattr CAPABILITIES`, for the line before.
fn attribute(found: &mut Found, line: u64, bytes: &[u8]) -> Result<(), Fault> {
    let text = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().strip_prefix("|xattr"));
    let text = text.filter(|text| text.starts_with([' ', '\t']) && !text.trim().is_empty());
    let text = text.ok_or_else(|| Fault::new(line, "a line with `|` is `|xattr CAPABILITIES`"))?;
    let xattr = capability::from_text(text).map_err(|reason| Fault::new(line, reason))?;
    let last = found.entries.last_mut().filter(|last| last.kind == Some(EntryKind::File));
    let last =
        last.ok_or_else(|| Fault::new(line, "no line of type `f` comes before, whose file it means"))?;
    last.change.xattrs = vec![xattr];
    Ok(())
}

fn entry(found: &mut Found, line: u64, words: &[&[u8]]) -> Result<(), Fault> {
    let fault = |reason: String| Fault::new(line, reason);
    let [name, kind, mode_word, uid, gid, rest @ ..] = words else {
        return Err(fault("a line is NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT".to_owned()));
    };
    if rest.len() > 5 {
        return Err(fault(format!("{} is one field too many", shown(rest[5]))));
    }
    let path = clean(name).ok_or_else(|| fault("a name with `..`".to_owned()))?;
    let (kind, missing) = match *kind {
        b"d" => (EntryKind::Directory, Missing::MakeWithParents),
        b"r" => (EntryKind::Directory, Missing::Refuse),
        b"f" => (EntryKind::File, Missing::Refuse),
        b"F" => (EntryKind::File, Missing::Skip),
        b"c" => (EntryKind::CharDevice, Missing::Make),
        b"b" => (EntryKind::BlockDevice, Missing::Make),
        b"p" => (EntryKind::Fifo, Missing::Make),
        b"s" => (EntryKind::Socket, Missing::Make),
        other => return Err(fault(format!("a type is one of d f F r c b p s, not {}", shown(other)))),
    };
    let mut entry = Entry::new(line, &path);
    entry.recursive = words[1] == b"r";
    (entry.kind, entry.missing) = (Some(kind), missing);
    if *mode_word != b"-1" {
        let set = mode(mode_word);
        entry.change.mode =
            Some(set.ok_or_else(|| fault(format!("a mode is octal, not {}", shown(mode_word))))?);
    }
    let id = |word: &[u8]| {
        let number = owner(word);
        number.ok_or_else(|| {
            fault(format!(
                "an owner is a number or `root`, not {}: the image's users are its own",
                shown(word)
            ))
        })
    };
    (entry.change.uid, entry.change.gid) = (Some(id(uid)?), Some(id(gid)?));
    let field = |at: usize, limit: u64| match rest.get(at) {
        None | Some(&b"-") => Ok(None),
        Some(word) => number(word, 10).filter(|n| *n <= limit).map(Some).ok_or_else(|| {
            fault(format!("field {} is a number up to {limit} or `-`, not {}", at + 6, shown(word)))
        }),
    };
    let major = field(0, MAJOR_MAX)?;
    let minor = field(1, MINOR_MAX)?;
    let [start, increment, count] = [field(2, MINOR_MAX)?, field(3, MINOR_MAX)?, field(4, COUNT_MAX)?];
    if !matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice) {
        found.entries.push(entry);
        return Ok(());
    }
    let (Some(major), Some(minor)) = (major, minor) else {
        return Err(fault("a device has a major and a minor number".to_owned()));
    };
    let (start, increment, count) = (start.unwrap_or(0), increment.unwrap_or(0), count.unwrap_or(0));
    if count > 0 {
        let last = (count - 1) * increment + minor;
        if last > MINOR_MAX {
            return Err(fault(format!("the last minor number would be {last}, more than {MINOR_MAX}")));
        }
        if start > 0 {
            let (first, last) =
                (shown(&numbered_name(name, start)), shown(&numbered_name(name, start + count - 1)));
            let text = format!(
                "it stands for {first} to {last}, {count} of them, as for Buildroot; genext2fs would \
                 take COUNT for the number to stop before"
            );
            found.warnings.push((line, text));
        }
        let [start, increment, count] = [start, increment, count].map(hectare_units::low32);
        entry.series = Some(Series { start, increment, count });
    }
    entry.change.device = Some((hectare_units::low32(major), hectare_units::low32(minor)));
    found.entries.push(entry);
    Ok(())
}

fn numbered_name(name: &[u8], number: u64) -> Vec<u8> {
    [name, number.to_string().as_bytes()].concat()
}
