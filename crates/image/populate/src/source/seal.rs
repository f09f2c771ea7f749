//! Chooses the files that an image seals with fs-verity.

use super::exclude::Excludes;
use crate::tree::{Kind, NodeId, Tree};
use std::collections::BTreeSet;

impl Tree {
    /// Has the image seal, with fs-verity, the regular files that match a pattern under any of their names,
    /// and those in directories that do.
    pub fn seal(&mut self, patterns: &Excludes) {
        let mut chosen = BTreeSet::new();
        let mut directories = vec![(NodeId::ROOT, Vec::new(), false)];
        while let Some((directory, path, all)) = directories.pop() {
            for (name, id) in self.children(directory) {
                let path = if path.is_empty() { name.to_vec() } else { [&path[..], b"/", name].concat() };
                let is_directory = self.node(id).is_directory();
                let matches = all || patterns.matches(&path, is_directory);
                if is_directory {
                    directories.push((id, path, matches));
                } else if matches && matches!(self.kind(id), Kind::File { .. }) {
                    chosen.insert(id.get());
                }
            }
        }
        self.duplicates.part(|id| chosen.contains(&id.get()));
        self.sealed = chosen;
    }
}
