//! The regular files of an archive and where their bytes lie: an archive as a container of other files.
//!
//! Links among them are followed, as archives of container images have them in place of equal layers.
//!
//! What it is not: a tree of files; owners, directories and everything else are passed over.

use super::cursor::Cursor;
use super::entries::Entries;
use super::header::BLOCK_LEN;
use super::{clean, split};
use crate::error::Error;
use std::collections::HashMap;
use std::ops::Range;

/// Links that are followed from one name.
const LINKS_MAX: usize = 8;
/// More members than any image of 127 layers has; each takes memory.
const MEMBERS_MAX: usize = 100_000;

enum Member {
    File(Range<u64>),
    /// To another name of the archive.
    Link(Vec<u8>),
}

/// The members of an archive by their names; of several of one name the last.
pub(crate) struct Members(HashMap<Vec<u8>, Member>);

impl Members {
    pub(super) fn list(cursor: Cursor) -> Result<Self, Error> {
        let mut entries = Entries::new(cursor);
        let mut members = HashMap::new();
        while let Some(entry) = entries.next()? {
            let Ok(name) = clean(&entry.name) else { continue };
            let (start, len) = (entry.header_at + BLOCK_LEN, entries.stored(&entry)?);
            let end = start.saturating_add(len);
            entries.skip_to(end)?;
            let member = match entry.header.type_flag() {
                0 | b'0' | b'7' => Member::File(start..end),
                b'1' => Member::Link(entry.target),
                b'2' => Member::Link(beside(&name, &entry.target)),
                _ => continue,
            };
            members.insert(name, member);
            if members.len() > MEMBERS_MAX {
                return Err(entries.fault("it has more than 100,000 members, too many for container images"));
            }
        }
        Ok(Self(members))
    }

    /// Where the bytes of a member lie.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Range<u64>> {
        let mut name = clean(name).ok()?;
        for _ in 0..=LINKS_MAX {
            match self.0.get(&name)? {
                Member::File(range) => return Some(range.clone()),
                Member::Link(target) => name = clean(target).ok()?,
            }
        }
        None
    }
}

/// The path that a symbolic link at `name` leads to: relative to its directory, and never above the top.
fn beside(name: &[u8], target: &[u8]) -> Vec<u8> {
    let mut path: Vec<&[u8]> = match target.starts_with(b"/") {
        true => Vec::new(),
        false => super::names(split(name).0).collect(),
    };
    for part in super::names(target) {
        match part {
            b"." => {}
            b".." => drop(path.pop()),
            _ => path.push(part),
        }
    }
    path.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_taken_from_their_own_directory() {
        assert_eq!(beside(b"b/layer.tar", b"../a/layer.tar"), b"a/layer.tar");
        assert_eq!(beside(b"layer.tar", b"../../a"), b"a");
        assert_eq!(beside(b"x/y", b"/z"), b"z");
    }
}
