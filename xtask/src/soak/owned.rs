//! A file of a thread, what it should be, and whether it is.
//!
//! Looking compares all there is: size, links, permissions, attributes and every byte. The first difference
//! is told with its place.

use super::content::Content;
use hectare_engine::{OpenFile, Volume};
use hectare_units::u64_of;
use std::collections::{BTreeMap, BTreeSet};

/// What an operation comes to.
pub(super) type Step = Result<(), String>;
/// What the engine says.
pub(super) type Engine<T> = hectare_engine::Result<T>;

/// A file and what it should be.
pub(super) struct Owned {
    /// Where; where it was, if it has no name.
    pub(super) path: String,
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
        verify(&open, &self.content, &self.path, buffer)
    }

    /// What the inode says, attributes included.
    pub(super) fn verify_inode(&self, volume: &Volume) -> Step {
        let path = &self.path;
        let meta = told("stat", path, volume.metadata(path))?;
        let expected = (self.content.len(), 1, self.permissions);
        let found = (meta.size, meta.links, meta.permissions);
        if found != expected {
            return Err(format!("{path}: size, links and permissions are {found:?}, not {expected:?}"));
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

/// Whether a file holds what it should, byte by byte.
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
