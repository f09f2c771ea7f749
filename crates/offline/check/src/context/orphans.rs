//! The inodes that recovery has to free or truncate.

use hectare_units::InodeNr;
use std::collections::BTreeSet;

/// The inodes that wait for their end.
#[derive(Clone, Default)]
pub(crate) struct Orphans {
    pub(crate) set: BTreeSet<u32>,
    /// Clusters of the orphan file, once it was read.
    pub(crate) file: Option<u64>,
}

impl Orphans {
    /// Whether an inode is one.
    pub(crate) fn contains(&self, nr: InodeNr) -> bool {
        !self.set.is_empty() && self.set.contains(&nr.get())
    }

    /// All of them.
    pub(crate) fn listed(&self) -> Vec<InodeNr> {
        self.set.iter().map(|nr| InodeNr::new(*nr)).collect()
    }
}
