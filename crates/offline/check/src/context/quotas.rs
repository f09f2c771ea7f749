//! What is remembered for quotas: what each owner's inodes use, and where the quota files lie.

use crate::context::Scan;
use crate::raw_inode::RawInode;
use hectare_ext4::quota::{Kind, counts};
use hectare_units::InodeNr;
use std::collections::BTreeMap;
use std::ops::Range;

/// What the inodes of an owner use.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Used {
    pub(crate) space: u64,
    pub(crate) inodes: u64,
}

/// A quota file.
pub(crate) struct QuotaFile {
    pub(crate) kind: Kind,
    pub(crate) nr: InodeNr,
    pub(crate) size: u64,
    /// Its extents.
    pub(crate) runs: Range<usize>,
}

/// What is known for quotas.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) files: Vec<QuotaFile>,
    /// By [`Kind::index`].
    pub(crate) used: [BTreeMap<u32, Used>; 3],
}

impl Quotas {
    /// Adds what another has counted.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.files.extend(other.files);
        for (all, more) in self.used.iter_mut().zip(other.used) {
            for (owner, used) in more {
                let all = all.entry(owner).or_default();
                all.space = all.space.saturating_add(used.space);
                all.inodes += used.inodes;
            }
        }
    }
}

impl Scan<'_> {
    /// Counts an inode for its owners: of `blocks` blocks, and so many inodes that hold values of its
    /// attributes.
    pub(crate) fn count_for_quotas(&mut self, nr: InodeNr, slot: RawInode<'_>, blocks: u64, values: u64) {
        let sb = &self.volume.sb;
        if !counts(sb, nr, slot.flags()) {
            return;
        }
        let quotas = Kind::ALL.map(|kind| sb.quota_inode(kind));
        let space = blocks << self.volume.geometry().block_size.shift();
        let owners = [slot.uid(), slot.gid(), slot.project()];
        for kind in Kind::ALL.into_iter().filter(|kind| quotas[kind.index()].is_some()) {
            let used = self.quotas.used[kind.index()].entry(owners[kind.index()]).or_default();
            used.space = used.space.saturating_add(space);
            used.inodes += 1 + values;
        }
    }
}
