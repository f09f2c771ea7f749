//! Which names of two trees belong to one file, so that hard links can be compared.
//!
//! A file is known by its first path that is in both trees, and a directory in neither. Two trees have the
//! same hard links if every such path has the same first path in both. Other names are a difference of their
//! own.

use crate::walk::Pair;
use hectare_engine::Metadata;
use hectare_units::InodeNr;
use std::collections::HashMap;

/// The first common path of every file with several names.
#[derive(Default)]
pub(crate) struct Links(Pair<HashMap<InodeNr, Vec<u8>>>);

impl Links {
    /// Takes note of a path that is in both trees. Returns the first paths of its files, if they differ; a
    /// file that has none but this one has none to return.
    pub(crate) fn compare(
        &mut self,
        path: &[u8],
        old: &Metadata,
        new: &Metadata,
    ) -> Option<Pair<Option<Vec<u8>>>> {
        if old.is_dir() || new.is_dir() {
            return None;
        }
        let old = first(&mut self.0.old, path, old);
        let new = first(&mut self.0.new, path, new);
        (old != new).then_some(Pair { old, new })
    }
}

fn first(known: &mut HashMap<InodeNr, Vec<u8>>, path: &[u8], meta: &Metadata) -> Option<Vec<u8>> {
    if meta.links < 2 {
        return None;
    }
    let first = known.entry(meta.inode).or_insert_with(|| path.to_vec());
    (*first != path).then(|| first.clone())
}
