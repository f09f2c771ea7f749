//! What an adapter prints: an entry a line, in the form that `workshop/hunts/peers/listing.py` describes.

use hectare_oracle::{Entry, Kind};
use std::collections::BTreeMap;

/// An entry. `None` is what the program can't say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) kind: String,
    pub(super) mode: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) gid: Option<String>,
    pub(super) size: Option<String>,
    pub(super) links: Option<String>,
    /// Nanoseconds since 1970.
    pub(super) mtime: Option<i128>,
    /// The digest of the content or the target of the link, hexadecimal.
    pub(super) held: String,
    /// Those of users, the system's security and trusted ones: names and values, hexadecimal.
    pub(super) attributes: Option<Vec<String>>,
}

/// All that a program printed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Listing {
    /// By path, without a slash in front.
    pub(super) entries: BTreeMap<Vec<u8>, Line>,
    /// Paths, and what is wrong there.
    pub(super) errors: Vec<(Vec<u8>, String)>,
    /// How often the library panicked.
    pub(super) panics: usize,
    /// Names that came twice.
    pub(super) twice: usize,
    /// Whether the program came to its end.
    pub(super) whole: bool,
}

impl Listing {
    pub(super) fn parse(printed: &[u8]) -> Self {
        let mut listing = Self::default();
        for line in String::from_utf8_lossy(printed).lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["."] => listing.whole = true,
                ["!!", ..] => listing.panics += 1,
                ["!", path, reason] => listing.errors.push((bytes(path), reason.to_owned())),
                [path, kind, mode, uid, gid, size, links, mtime, held, attributes] => {
                    let said = |text: &str| (text != "?").then(|| text.to_owned());
                    let line = Line {
                        kind: kind.to_owned(),
                        mode: said(mode),
                        uid: said(uid),
                        gid: said(gid),
                        size: said(size),
                        links: said(links),
                        mtime: mtime.parse().ok(),
                        held: held.to_owned(),
                        attributes: said(attributes).map(|text| compared(&text)),
                    };
                    listing.twice += usize::from(listing.entries.insert(bytes(path), line).is_some());
                }
                _ => listing.errors.push((Vec::new(), format!("a line without meaning: {line}"))),
            }
        }
        listing
    }
}

/// Attributes in order, without those of `system.`: what is stored there has another form than what is seen.
fn compared(text: &str) -> Vec<String> {
    let system = hex(b"system.");
    let mut all: Vec<String> = text.split(',').filter(|one| one.contains('=')).map(str::to_owned).collect();
    all.retain(|one| !one.starts_with(&system));
    all.sort();
    all
}

/// What should be found.
pub(super) fn expected(entry: &Entry) -> Line {
    let kind = match entry.kind {
        Kind::File => "f",
        Kind::Directory => "d",
        Kind::Symlink => "l",
        Kind::Fifo => "p",
        Kind::Socket => "s",
        Kind::Char => "c",
        Kind::Block => "b",
    };
    let held = match entry.kind {
        Kind::File => hex(&entry.digest),
        Kind::Symlink => hex(&entry.target),
        _ => "-".to_owned(),
    };
    let attributes = entry.xattrs.iter().map(|(name, value)| format!("{}={}", hex(name), hex(value)));
    Line {
        kind: kind.to_owned(),
        mode: Some(format!("{:o}", entry.mode)),
        uid: Some(entry.uid.to_string()),
        gid: Some(entry.gid.to_string()),
        size: Some(entry.size.to_string()),
        links: Some(entry.nlink.to_string()),
        mtime: Some(i128::from(entry.mtime.secs) * 1_000_000_000 + i128::from(entry.mtime.nanos)),
        held,
        attributes: Some(compared(&attributes.collect::<Vec<_>>().join(","))),
    }
}

/// One line, as adapters print it.
pub(super) fn printed(entry: &Entry) -> String {
    let line = expected(entry);
    let named = entry.xattrs.iter().map(|(name, value)| format!("{}={}", hex(name), hex(value)));
    let named = named.collect::<Vec<_>>().join(",");
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (mode, uid, gid) = (text(&line.mode), text(&line.uid), text(&line.gid));
    let (size, links, mtime) = (text(&line.size), text(&line.links), line.mtime.unwrap_or_default());
    let named = if named.is_empty() { "-" } else { &named };
    let (path, kind, held) = (hex(&entry.path), line.kind, line.held);
    format!("{path}\t{kind}\t{mode}\t{uid}\t{gid}\t{size}\t{links}\t{mtime}\t{held}\t{named}")
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // never fails
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len() / 2).filter_map(|at| digit(at * 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let mut entry = Entry::new(b"d/\xff".to_vec(), Kind::File);
        entry.xattrs.insert(b"user.a".to_vec(), b"1".to_vec());
        entry.xattrs.insert(b"system.data".to_vec(), b"2".to_vec());
        let text = format!("{}\n!\t61\tdamaged\n!!\t62\tpanic\n.\n", printed(&entry));
        let listing = Listing::parse(text.as_bytes());
        assert_eq!(listing.entries[&b"d/\xff"[..]], expected(&entry));
        assert_eq!(listing.errors, [(b"a".to_vec(), "damaged".to_owned())]);
        assert!(listing.whole && listing.panics == 1);
        assert!(!Listing::parse(b"nonsense").whole);
    }
}
