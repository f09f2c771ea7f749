//! What is remembered for quotas: what each owner's inodes use, and where the quota files lie.

use hectare_ext4::quota::Kind;
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
