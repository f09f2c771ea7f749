//! Compares two lists of entries, and reports the differences.
//!
//! What two file systems can't be expected to share is left out by rule, not by accident: sizes of
//! directories, inode numbers (only which paths share one), and `lost+found` where one side has none. The
//! link count of a directory depends on the file system (some always say 1), so each side must be right by
//! itself: 1, or 2 plus its subdirectories.

use crate::entry::{Entry, Kind, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// What is compared besides path, type, mode, device number, link target, size, content and hard links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct What {
    /// Owner and group.
    pub owners: bool,
    /// Modification times.
    pub mtimes: Times,
    /// Access times.
    pub atimes: Times,
    /// Extended attributes.
    pub xattrs: bool,
    /// Where data and holes lie, rounded outwards to blocks of this many bytes (the larger block size of the
    /// two); `None` not at all.
    pub holes: Option<u64>,
}

/// How exactly times are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// To the nanosecond.
    Exact,
    /// To the second (128-byte inodes hold no more).
    Seconds,
    /// Not at all.
    Ignored,
}

impl What {
    /// Everything, with holes to 4 KiB, except access times (reading changes them).
    #[must_use]
    pub const fn all() -> Self {
        Self { owners: true, mtimes: Times::Exact, atimes: Times::Ignored, xattrs: true, holes: Some(4096) }
    }

    /// Types, modes, link targets, sizes, content and hard links only.
    #[must_use]
    pub const fn content() -> Self {
        Self { owners: false, mtimes: Times::Ignored, atimes: Times::Ignored, xattrs: false, holes: None }
    }
}

/// Where two lists differ.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{report}")]
pub struct Differences {
    /// How many differences there are.
    pub count: usize,
    /// The first 20 by path, one per line, and the number of others.
    pub report: String,
}

const SHOWN: usize = 20;

/// Compares what was found with what was expected; neither needs to be sorted.
///
/// # Errors
/// The differences.
pub fn compare(found: &[Entry], expected: &[Entry], what: What) -> Result<(), Differences> {
    let (found, expected) = (Side::new(found), Side::new(expected));
    let mut differences = Vec::new();
    found.check_itself("found", &mut differences);
    expected.check_itself("expected", &mut differences);
    let paths: BTreeSet<&[u8]> = found.entries.keys().chain(expected.entries.keys()).copied().collect();
    for path in paths {
        match (found.entries.get(path), expected.entries.get(path)) {
            (Some(a), Some(b)) => compare_entry(a, b, what, &mut differences),
            (Some(_), None) if !is_lost_and_found(path) => differences.push((path, "not expected".into())),
            (None, Some(_)) if !is_lost_and_found(path) => differences.push((path, "missing".into())),
            _ => {}
        }
    }
    compare_hard_links(&found, &expected, &mut differences);
    if differences.is_empty() { Ok(()) } else { Err(report(differences)) }
}

/// Fails the test unless both lists are alike.
///
/// # Panics
/// If they differ, with the first differences.
#[track_caller]
pub fn assert_same(found: &[Entry], expected: &[Entry], what: What) {
    if let Err(differences) = compare(found, expected, what) {
        panic!("{differences}");
    }
}

type PathDifferences<'a> = Vec<(&'a [u8], String)>;

fn is_lost_and_found(path: &[u8]) -> bool {
    path == b"lost+found"
}

struct Side<'a> {
    entries: BTreeMap<&'a [u8], &'a Entry>,
    twice: Vec<&'a [u8]>,
    subfolders: HashMap<&'a [u8], u64>,
}

impl<'a> Side<'a> {
    fn new(list: &'a [Entry]) -> Self {
        let mut side = Self { entries: BTreeMap::new(), twice: Vec::new(), subfolders: HashMap::new() };
        for entry in list {
            if side.entries.insert(&entry.path, entry).is_some() {
                side.twice.push(&entry.path);
            }
            if entry.kind == Kind::Directory && !entry.path.is_empty() {
                let end = entry.path.iter().rposition(|b| *b == b'/').unwrap_or(0);
                *side.subfolders.entry(&entry.path[..end]).or_default() += 1;
            }
        }
        side
    }

    fn check_itself(&self, name: &str, differences: &mut PathDifferences<'a>) {
        differences.extend(self.twice.iter().map(|path| (*path, format!("listed twice in what was {name}"))));
        for (path, entry) in self.entries.iter().filter(|(_, entry)| entry.kind == Kind::Directory) {
            let right = 2 + self.subfolders.get(path).copied().unwrap_or(0);
            if entry.nlink != 1 && entry.nlink != right {
                let nlink = entry.nlink;
                differences
                    .push((path, format!("{name}: {nlink} links, but its subdirectories make {right}")));
            }
        }
    }

    /// For each path, the first path of the same object.
    fn first_names(&self) -> HashMap<&'a [u8], &'a [u8]> {
        let mut first: HashMap<u64, &[u8]> = HashMap::new();
        let files = self.entries.iter().filter(|(_, e)| e.kind != Kind::Directory && e.nlink > 1);
        files.map(|(path, entry)| (*path, *first.entry(entry.inode).or_insert(path))).collect()
    }
}

fn compare_entry<'a>(a: &'a Entry, b: &'a Entry, what: What, differences: &mut PathDifferences<'a>) {
    let mut differ = |text: String| differences.push((&a.path, text));
    if a.kind != b.kind {
        return differ(format!("type {:?}, expected {:?}", a.kind, b.kind));
    }
    if a.mode != b.mode {
        differ(format!("mode {:04o}, expected {:04o}", a.mode, b.mode));
    }
    if what.owners && (a.uid, a.gid) != (b.uid, b.gid) {
        differ(format!("owner {}:{}, expected {}:{}", a.uid, a.gid, b.uid, b.gid));
    }
    if a.kind != Kind::Directory && a.nlink != b.nlink {
        differ(format!("{} links, expected {}", a.nlink, b.nlink));
    }
    if a.device != b.device {
        differ(format!("device {:?}, expected {:?}", a.device, b.device));
    }
    if a.target != b.target {
        differ(format!("points to {}, expected {}", a.target.escape_ascii(), b.target.escape_ascii()));
    }
    for (name, a, b, how) in
        [("mtime", a.mtime, b.mtime, what.mtimes), ("atime", a.atime, b.atime, what.atimes)]
    {
        if !same_time(a, b, how) {
            differ(format!("{name} {}.{:09}, expected {}.{:09}", a.secs, a.nanos, b.secs, b.nanos));
        }
    }
    if a.kind == Kind::File {
        compare_file(a, b, what, &mut differ);
    }
    if what.xattrs && a.xattrs != b.xattrs {
        differ(xattr_difference(a, b));
    }
}

fn compare_file(a: &Entry, b: &Entry, what: What, differ: &mut impl FnMut(String)) {
    if a.size != b.size {
        differ(format!("{} bytes, expected {}", a.size, b.size));
    } else if a.digest != b.digest {
        differ(format!("content differs ({} bytes)", a.size));
    }
    let Some(granule) = what.holes else { return };
    let (ours, theirs) = (rounded(a, granule), rounded(b, granule));
    if ours != theirs {
        let at = ours.iter().zip(&theirs).take_while(|(x, y)| x == y).count();
        let show = |list: &[(u64, u64)]| match list.get(at) {
            Some((from, to)) => format!("{from}..{to}"),
            None => "nothing".into(),
        };
        let (n, m) = (ours.len(), theirs.len());
        differ(format!("data in {n} parts, expected {m}: {} where {} is", show(&ours), show(&theirs)));
    }
}

/// The data segments as ranges, rounded outwards to whole granules, adjacent ones merged, truncated at the
/// size.
fn rounded(entry: &Entry, granule: u64) -> Vec<(u64, u64)> {
    let granule = granule.max(1);
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (offset, length) in &entry.data {
        let start = offset / granule * granule;
        let end = (offset + length).div_ceil(granule).saturating_mul(granule).min(entry.size);
        match ranges.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

fn same_time(a: Time, b: Time, how: Times) -> bool {
    match how {
        Times::Exact => a == b,
        Times::Seconds => a.secs == b.secs,
        Times::Ignored => true,
    }
}

fn xattr_difference(a: &Entry, b: &Entry) -> String {
    let names: BTreeSet<_> = a.xattrs.keys().chain(b.xattrs.keys()).collect();
    let differing = names.into_iter().find(|name| a.xattrs.get(*name) != b.xattrs.get(*name));
    let name = differing.map(|name| name.escape_ascii().to_string()).unwrap_or_default();
    let show = |value: Option<&Vec<u8>>| match value {
        None => "none".into(),
        Some(bytes) if bytes.len() > 40 => format!("{} bytes {}...", bytes.len(), bytes[..40].escape_ascii()),
        Some(bytes) => format!("{}", bytes.escape_ascii()),
    };
    let value = |entry: &Entry| show(entry.xattrs.get(name.as_bytes()));
    format!("xattr {name} is {}, expected {}", value(a), value(b))
}

fn compare_hard_links<'a>(found: &Side<'a>, expected: &Side<'a>, differences: &mut PathDifferences<'a>) {
    let (ours, theirs) = (found.first_names(), expected.first_names());
    for (path, first) in &ours {
        if let Some(other) = theirs.get(path).filter(|other| *other != first) {
            let (first, other) = (first.escape_ascii(), other.escape_ascii());
            differences.push((path, format!("a link to {first}, expected one to {other}")));
        }
    }
}

fn report(mut differences: PathDifferences<'_>) -> Differences {
    differences.sort();
    let count = differences.len();
    let mut report = format!("{count} differences:");
    for (path, text) in differences.iter().take(SHOWN) {
        let path = if path.is_empty() { ".".into() } else { path.escape_ascii().to_string() };
        let _ = write!(report, "\n  {path}: {text}"); // writing to a string can't fail
    }
    if count > SHOWN {
        let _ = write!(report, "\n  and {} more", count - SHOWN);
    }
    Differences { count, report }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Entry> {
        let mut root = Entry::new("", Kind::Directory);
        root.nlink = 3;
        let mut folder = Entry::new("d", Kind::Directory);
        folder.nlink = 2;
        let mut file = Entry::new("d/f", Kind::File);
        file.size = 10_000;
        file.data = vec![(0, 4096), (8192, 1808)];
        file.xattrs.insert(b"user.a".to_vec(), b"1".to_vec());
        let mut first = Entry::new("x", Kind::File);
        (first.inode, first.nlink) = (7, 2);
        let mut second = Entry::new("y", Kind::File);
        (second.inode, second.nlink) = (7, 2);
        vec![root, folder, file, first, second]
    }

    fn difference(change: impl Fn(&mut Vec<Entry>)) -> String {
        let mut changed = sample();
        change(&mut changed);
        compare(&changed, &sample(), What::all()).map_or_else(|d| d.report, |()| "none".into())
    }

    #[test]
    fn every_aspect_is_seen() {
        type Change = fn(&mut Vec<Entry>);
        let changes: [(Change, &str); 17] = [
            (|e| e[2].kind = Kind::Fifo, "type Fifo, expected File"),
            (|e| e[2].mode = 0o644, "mode 0644"),
            (|e| e[2].uid = 1, "owner 1:0"),
            (|e| e[2].gid = 1, "owner 0:1"),
            (|e| e[2].nlink = 9, "9 links"),
            (|e| e[1].nlink = 9, "make 2"),
            (|e| e[2].size = 9_999, "9999 bytes"),
            (|e| e[2].digest = [1; 32], "content differs"),
            (|e| e[2].device = (1, 2), "device (1, 2)"),
            (|e| e[2].mtime.nanos = 1, "mtime 0.000000001"),
            (|e| e[2].target = b"t".to_vec(), "points to t"),
            (|e| e[2].data = vec![(0, 10_000)], "data in 1 parts, expected 2"),
            (|e| e[2].xattrs.clear(), "xattr user.a is none, expected 1"),
            (|e| drop(e.remove(2)), "missing"),
            (|e| e.push(Entry::new("z", Kind::File)), "not expected"),
            (|e| e.push(Entry::new("x", Kind::File)), "listed twice"),
            (|e| e[4].inode = 8, "a link to y, expected one to x"),
        ];
        for (change, text) in changes {
            let report = difference(change);
            assert!(report.contains(text), "{text}: {report}");
        }
        assert_eq!(difference(|_| {}), "none");
    }

    #[test]
    fn what_file_systems_do_not_share_is_no_difference() {
        assert_eq!(difference(|e| e[0].nlink = 1), "none");
        assert_eq!(difference(|e| e[1].size = 4096), "none");
        assert_eq!(difference(|e| e[2].atime.secs = 5), "none");
        assert_eq!(difference(|e| e[2].data[0] = (100, 3000)), "none");
        let lost = |e: &mut Vec<Entry>| {
            let mut entry = Entry::new("lost+found", Kind::Directory);
            entry.nlink = 2;
            e.push(entry);
            e[0].nlink = 4;
        };
        assert_eq!(difference(lost), "none");
    }

    #[test]
    fn a_long_report_is_cut() {
        let many: Vec<Entry> = (0..50).map(|i| Entry::new(format!("f{i:02}"), Kind::File)).collect();
        let differences = compare(&many, &[], What::all()).unwrap_err();
        assert_eq!(differences.count, 50);
        assert_eq!(differences.report.lines().count(), 22);
        assert!(differences.report.ends_with("and 30 more"));
    }
}
