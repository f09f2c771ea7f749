//! A file of a thread, its expected state, and the check of it.
//!
//! The check compares everything: size, links, permissions, attributes and every byte. The first difference
//! is reported with its place.

use super::content::Content;
use hectare_engine::{OpenFile, Volume};
use hectare_units::u64_of;
use std::collections::{BTreeMap, BTreeSet};

/// The result of an operation.
pub(super) type Step = Result<(), String>;
/// The engine's result.
pub(super) type Engine<T> = hectare_engine::Result<T>;

/// A file and its expected state.
pub(super) struct Owned {
    /// Its path; its last one, if it has no name.
    pub(super) path: String,
    /// Its other names.
    pub(super) links: Vec<String>,
    /// Kept open from one operation to the next.
    pub(super) open: Option<OpenFile>,
    /// Its bytes.
    pub(super) content: Content,
    /// Its extended attributes.
    pub(super) attributes: BTreeMap<String, Vec<u8>>,
    /// Its permission bits.
    pub(super) permissions: u16,
}

impl Owned {
    /// Content and inode, by the file's name.
    pub(super) fn verify_in(&self, volume: &Volume, buffer: &mut [u8]) -> Step {
        self.verify_inode(volume)?;
        let open = told("open", &self.path, volume.open_file(&self.path))?;
        verify(&open, &self.content, &self.path, buffer)?;
        verify_holes(&open, &self.content, &self.path, 0)
    }

    /// The inode, attributes included.
    pub(super) fn verify_inode(&self, volume: &Volume) -> Step {
        let path = &self.path;
        let meta = told("stat", path, volume.metadata(path))?;
        let names = u32::try_from(1 + self.links.len()).unwrap_or(u32::MAX);
        let expected = (self.content.len(), names, self.permissions);
        let found = (meta.size, meta.links, meta.permissions);
        if found != expected {
            return Err(format!("{path}: size, links and permissions are {found:?}, not {expected:?}"));
        }
        for link in &self.links {
            if told("stat", link, volume.metadata(link))?.inode != meta.inode {
                return Err(format!("{link}: it is not the file that {path} is"));
            }
        }
        let names = told("listxattr", path, volume.list_xattrs(meta.inode))?;
        let found: BTreeSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        if found != self.attributes.keys().map(String::as_bytes).collect() {
            return Err(format!("{path}: it has {} attributes, not {}", found.len(), self.attributes.len()));
        }
        for (name, value) in &self.attributes {
            if told("getxattr", path, volume.get_xattr(meta.inode, name))? != *value {
                return Err(format!("{path}: the value of {name} is another"));
            }
        }
        Ok(())
    }
}

/// A symbolic link of a thread.
pub(super) struct Symlink {
    /// Where.
    pub(super) path: String,
    /// Its target.
    pub(super) target: String,
}

impl Symlink {
    /// Checks its target.
    pub(super) fn verify_in(&self, volume: &Volume) -> Step {
        if told("readlink", &self.path, volume.read_link(&self.path))? == self.target.as_bytes() {
            return Ok(());
        }
        Err(format!("{}: it does not say {}", self.path, self.target))
    }
}

/// Checks that a file has nothing but zeros where the engine reports no data, from a byte on.
pub(super) fn verify_holes(open: &OpenFile, content: &Content, path: &str, mut at: u64) -> Step {
    let size = content.len();
    loop {
        let data = told("seek data in", path, open.seek_data(at))?;
        let end = data.unwrap_or(size);
        if end < at || !content.is_zero(at, end) {
            return Err(format!("{path}: {at} to {end} of {size} is reported as no data, but was written"));
        }
        let Some(data) = data else { return Ok(()) };
        at = match told("seek hole in", path, open.seek_hole(data))? {
            Some(hole) if hole > data && hole <= size => hole,
            other => return Err(format!("{path}: data at {data} of {size} ends at {other:?}")),
        };
    }
}

/// Checks that a file holds the expected content, byte by byte.
pub(super) fn verify(open: &OpenFile, content: &Content, path: &str, buffer: &mut [u8]) -> Step {
    let size = told("stat", path, open.metadata())?.size;
    if size != content.len() {
        return Err(format!("{path}: {size} bytes, not {}", content.len()));
    }
    let half = buffer.len() / 2;
    let (found, expected) = buffer.split_at_mut(half);
    let mut at = 0;
    loop {
        let read = told("read", path, open.read_at(at, found))?;
        let due = (content.len() - at).min(u64_of(found.len()));
        if u64_of(read) != due {
            return Err(format!("{path}: {read} bytes read at {at}, not {due}"));
        }
        let expected = &mut expected[..read];
        content.expect(at, expected);
        if let Some(wrong) = found.iter().zip(&*expected).position(|(found, expected)| found != expected) {
            let (found, expected, at) = (found[wrong], expected[wrong], at + u64_of(wrong));
            return Err(format!("{path}: byte {at} of {size} is {found:#04x}, not {expected:#04x}"));
        }
        if read == 0 {
            return Ok(());
        }
        at += due;
    }
}

/// A failure with the call and the path.
pub(super) fn told<T>(what: &str, path: &str, result: Engine<T>) -> Result<T, String> {
    result.map_err(|error| format!("{what} {path}: {error}"))
}

/// The directory a path lies in.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The last name of a path.
pub(super) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
