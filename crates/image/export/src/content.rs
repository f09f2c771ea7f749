//! Compares the content of two files.

use crate::error::Result;
use crate::tree::Tree;
use hectare_engine::Metadata;
use hectare_units::{index_of, u64_of};

/// Bytes read at a time.
pub(crate) const STEP: u64 = 1 << 20;

/// A file of one of the trees, open.
pub(crate) struct Content<'a> {
    tree: &'a Tree<'a>,
    path: &'a [u8],
    file: hectare_engine::OpenFile,
    size: u64,
}

impl<'a> Content<'a> {
    pub(crate) fn open(tree: &'a Tree<'a>, path: &'a [u8], meta: &Metadata) -> Result<Self> {
        Ok(Self { tree, path, file: tree.open(path, meta.inode)?, size: meta.size })
    }

    /// Where its data is; the rest are holes.
    pub(crate) fn ranges(&self) -> Result<Vec<(u64, u64)>> {
        self.tree.at(self.path, self.file.data_ranges())
    }

    /// Reads all of the buffer.
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.tree.at(self.path, self.file.read_at(at + u64_of(done), &mut buffer[done..]))? {
                0 => return Err(self.tree.refuse(self.path, "it became shorter while it was read")),
                n => done += n,
            }
        }
        Ok(())
    }
}

/// The first byte that differs, if any does up to the end of the shorter one. Where both have a hole, nothing
/// is read.
pub(crate) fn first_difference(old: &Content<'_>, new: &Content<'_>) -> Result<Option<u64>> {
    let end = old.size.min(new.size);
    let mut buffers = (Vec::new(), Vec::new());
    for (start, len) in union(&old.ranges()?, &new.ranges()?) {
        let mut at = start;
        while at < start.saturating_add(len).min(end) {
            let step = index_of((start.saturating_add(len).min(end) - at).min(STEP));
            buffers.0.resize(step, 0);
            buffers.1.resize(step, 0);
            old.read(at, &mut buffers.0)?;
            new.read(at, &mut buffers.1)?;
            if buffers.0 != buffers.1 {
                let same = buffers.0.iter().zip(&buffers.1).take_while(|(old, new)| old == new);
                return Ok(Some(at + u64_of(same.count())));
            }
            at += u64_of(step);
        }
    }
    Ok((old.size != new.size).then_some(end))
}

/// What is in one of two lists of ranges (offset and length, in order), or in both.
fn union(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(all.len());
    for (at, len) in all {
        match joined.last_mut() {
            Some((start, length)) if at <= *start + *length => *length = (*length).max(at + len - *start),
            _ => joined.push((at, len)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_where_they_touch_or_overlap() {
        assert_eq!(
            union(&[(0, 10), (20, 5)], &[(5, 5), (10, 2), (21, 1), (30, 1)]),
            [(0, 12), (20, 5), (30, 1)]
        );
        assert_eq!(union(&[], &[(3, 4)]), [(3, 4)]);
    }
}
