//! Everything that reading a volume can do, done to everything that can be reached.
//!
//! Bounded by constants, so that a damaged volume that repeats itself ends the walk; within one call of the
//! engine there is no bound but the fuzzer's time limit, which is what finds a hang.

use hectare_engine::{Cookie, Error, Kind, Metadata, Volume};
use hectare_units::InodeNr;
use std::collections::{BTreeSet, VecDeque};

const INODES_MAX: usize = 600;
const READ_STEP: usize = 8192;
const READS_MAX: usize = 12;
/// The longest name that is listed: the text that stands for 255 bytes of ciphertext.
const NAME_MAX: usize = 340;
/// Entries of a directory that are looked up again by name.
const LOOKUPS_MAX: usize = 24;

/// What a walk met with.
#[derive(Default, Debug)]
pub struct Met {
    /// Inodes that were looked at.
    pub inodes: usize,
    /// The first finding about the format.
    pub corrupt: Option<String>,
}

impl Met {
    fn note<T>(&mut self, what: &str, nr: InodeNr, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                // Errors are to be one line, and to be had as text.
                let text = error.to_string();
                assert!(!text.contains('\n'), "an error of several lines: {text:?}");
                let _ = error.errno();
                if matches!(error, Error::Corrupt(_) | Error::Aborted(_)) && self.corrupt.is_none() {
                    self.corrupt = Some(format!("{what} of inode {nr}: {text}"));
                }
                None
            }
        }
    }
}

/// Walks a volume from its root.
pub fn walk(volume: &Volume) -> Met {
    let mut met = Met::default();
    // The reserved inodes, which no directory names. What is wrong with them is no matter of the walk.
    for nr in (1..=14).filter(|nr| *nr != InodeNr::ROOT.get()) {
        let mut unreported = Met::default();
        visit(volume, InodeNr::new(nr), &mut unreported, &mut VecDeque::new(), &mut BTreeSet::new());
    }
    let mut seen = BTreeSet::from([InodeNr::ROOT]);
    let mut queue = VecDeque::from([InodeNr::ROOT]);
    while let Some(nr) = queue.pop_front() {
        met.inodes += 1;
        if met.inodes > INODES_MAX {
            break;
        }
        visit(volume, nr, &mut met, &mut queue, &mut seen);
    }
    met.note("statfs", InodeNr::ROOT, volume.statfs());
    for path in
        [&b"/"[..], b"/d/../d/f00", b"/links/fast", b"/links/loop", b"/links/slow", b"//a/./b/", b"/no"]
    {
        if let Some(found) = met.note("path", InodeNr::ROOT, volume.metadata(path)) {
            assert!(found.inode.get() > 0);
        }
    }
    met
}

fn visit(
    volume: &Volume,
    nr: InodeNr,
    met: &mut Met,
    queue: &mut VecDeque<InodeNr>,
    seen: &mut BTreeSet<InodeNr>,
) {
    let Some(data) = met.note("stat", nr, volume.stat(nr)) else { return };
    assert_eq!(data.inode, nr);
    attributes(volume, nr, met);
    match data.kind {
        Kind::Directory => directory(volume, nr, met, queue, seen),
        Kind::File => file(volume, &data, met),
        Kind::Symlink => {
            if let Some(target) = met.note("link", nr, volume.read_link_at(nr)) {
                assert!(target.len() <= 1 << 16, "a target of {} bytes", target.len());
            }
        }
        _ => {}
    }
}

fn attributes(volume: &Volume, nr: InodeNr, met: &mut Met) {
    let Some(names) = met.note("attributes", nr, volume.list_xattrs(nr)) else { return };
    for name in names {
        met.note("attribute", nr, volume.get_xattr(nr, &name));
    }
    met.note("attribute", nr, volume.get_xattr(nr, "user.absent"));
}

fn directory(
    volume: &Volume,
    nr: InodeNr,
    met: &mut Met,
    queue: &mut VecDeque<InodeNr>,
    seen: &mut BTreeSet<InodeNr>,
) {
    let Some(entries) = met.note("listing", nr, volume.list(nr)) else { return };
    for (i, entry) in entries.iter().enumerate() {
        let len = entry.name.len();
        assert!((1..=NAME_MAX).contains(&len) && !entry.name.contains(&b'/') && !entry.name.contains(&0));
        if i < LOOKUPS_MAX {
            met.note("lookup", nr, volume.lookup(nr, &entry.name));
        }
        if i % 7 == 0 {
            met.note("listing from a cookie", nr, volume.read_dir_at(nr, entry.next, 3));
        }
        if seen.insert(entry.inode) {
            queue.push_back(entry.inode);
        }
    }
    met.note("lookup", nr, volume.lookup(nr, b"no such name"));
    for cookie in [1, 2, 3, 1 << 17, 1 << 40, 1 << 62, u64::MAX] {
        met.note("listing from a cookie", nr, volume.read_dir_at(nr, Cookie::new(cookie), 2));
    }
}

fn file(volume: &Volume, data: &Metadata, met: &mut Met) {
    let nr = data.inode;
    let Some(open) = met.note("opening", nr, volume.open_inode(nr)) else { return };
    let ranges = met.note("ranges", nr, open.data_ranges()).unwrap_or_default();
    let mut reached = 0;
    for (at, len) in &ranges {
        assert!(*len > 0 && *at >= reached, "ranges out of order");
        reached = at.checked_add(*len).expect("a range ends inside the file");
    }
    let mut buf = vec![0; READ_STEP];
    let starts = [0, data.size.saturating_sub(100), data.size, data.size / 2, u64::MAX - 1];
    let starts = starts.into_iter().chain(ranges.iter().map(|range| range.0)).take(READS_MAX);
    for at in starts {
        let Some(len) = met.note("reading", nr, open.read_at(at, &mut buf)) else { continue };
        let want = data.size.saturating_sub(at).min(READ_STEP as u64);
        assert_eq!(len as u64, want, "a read from {at} in a file of {} bytes", data.size);
    }
}
