//! Builds a whole directory at once, for filling a fresh volume.
//!
//! Entries that fit one block become a list. More become an index, made directly in hash order: every leaf is
//! written once and filled to a given part, so that the first insertions after the image is in use don't
//! split every leaf. Blocks come in the order root, nodes level by level, leaves by hash, so that listing the
//! directory reads it front to back. Without `dir_index` they become a list of packed blocks.
//!
//! The result depends on the set of entries only, not on their order: lists are sorted by name, leaves by
//! hash and then name. [`blocks_needed`] and [`build()`] share the one plan, so their sizes agree.

use super::hash::DirHash;
use super::index::{self, IndexEntry, NODE_BASE, ROOT_BASE, Root};
use super::leaf::{Packer, dots};
use super::{Entry, Format, Name, record, set_checksum};
use crate::checksum::Seed;
use crate::{Corrupt, Place};
use hectare_units::{Blocks, InodeNr, LogicalBlock, low32, u64_of};
use std::cmp::Ordering;
use std::ops::Range;

/// How full the leaves and nodes of a built index are, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill(u8);

impl Fill {
    /// Nine tenths: about 15 names of usual length fit a leaf of 4 KiB before it splits, for a tenth more
    /// space.
    pub const DEFAULT: Self = Self(90);
    /// No slack, for a directory that will not change.
    pub const FULL: Self = Self(100);

    /// The part of `percent` in a hundred; `None` outside 50 to 100.
    #[must_use]
    pub const fn percent(percent: u8) -> Option<Self> {
        if percent >= 50 && percent <= 100 { Some(Self(percent)) } else { None }
    }

    fn of(self, capacity: usize) -> usize {
        capacity * usize::from(self.0) / 100
    }
}

impl Default for Fill {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A directory's blocks, ready to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Built {
    /// The blocks one after another, checksums set.
    pub blocks: Vec<u8>,
    /// Whether the inode must say that the directory is indexed (`EXT4_INDEX_FL`).
    pub indexed: bool,
}

/// Why a directory can't be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// More than the format holds.
    #[error("a directory of {entries} entries is larger than this volume's features allow")]
    TooLarge {
        /// How many entries there are.
        entries: usize,
    },
    /// One name twice, or one of the dots, which [`build()`] adds itself.
    #[error("the name {0:?} occurs more than once in one directory")]
    Duplicate(String),
}

/// How many blocks [`build()`] makes of entries with these names (without `.` and `..`).
///
/// # Errors
/// [`BuildError::TooLarge`] as `build` would give; duplicates are not looked for.
pub fn blocks_needed<'a>(
    names: impl IntoIterator<Item = Name<'a>>,
    format: &Format,
    fill: Fill,
) -> Result<Blocks, BuildError> {
    let mut keys: Vec<Key<'a>> =
        names.into_iter().map(|name| Key { hash: NO_HASH, name, entry: 0 }).collect();
    let plan = Plan::new(&mut keys, format, fill)?;
    Ok(Blocks::new(u64_of(plan.blocks())))
}

/// Makes the directory `own`, a child of `parent`, that holds `entries` (without `.` and `..`). `seed` is the
/// checksum seed of the directory's inode, on a volume that has checksums.
///
/// # Errors
/// [`BuildError`] if it gets too large or a name is there twice.
pub fn build(
    entries: &[Entry<'_>],
    own: InodeNr,
    parent: InodeNr,
    format: &Format,
    seed: Option<Seed>,
    fill: Fill,
) -> Result<Built, BuildError> {
    let mut keys: Vec<Key<'_>> = entries
        .iter()
        .enumerate()
        .map(|(i, entry)| Key { hash: NO_HASH, name: entry.name, entry: i })
        .collect();
    let plan = Plan::new(&mut keys, format, fill)?;
    refuse_duplicates(&keys)?;
    let writer = Writer { plan: &plan, keys: &keys, entries, dots: (own, parent), format };
    let mut blocks = vec![0; plan.blocks() * format.block_size.len()];
    for (at, block) in blocks.chunks_exact_mut(format.block_size.len()).enumerate() {
        writer.write(at, block);
        set_checksum(block, format, seed, logical(at), plan.indexed, Place::Inode(own))
            .unwrap_or_else(|Corrupt { reason, .. }| unreachable!("a block just made is sound: {reason}"));
    }
    Ok(Built { blocks, indexed: plan.indexed })
}

/// An entry to be put in order.
struct Key<'a> {
    hash: DirHash,
    name: Name<'a>,
    entry: usize,
}

impl Key<'_> {
    fn space(&self) -> usize {
        record::space(self.name.bytes().len())
    }

    fn order(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash).then_with(|| self.name.cmp(&other.name))
    }
}

/// Lists are not hashed: all hashes are alike, and the names decide.
const NO_HASH: DirHash = DirHash { major: 0, minor: 0 };
/// What `.` and `..` take.
const DOTS_SPACE: usize = 24;

fn refuse_duplicates(sorted: &[Key<'_>]) -> Result<(), BuildError> {
    let twice = sorted.windows(2).find(|pair| pair[0].name == pair[1].name).map(|pair| &pair[0]);
    match twice.or_else(|| sorted.iter().find(|key| key.name.is_dot())) {
        Some(key) => Err(BuildError::Duplicate(String::from_utf8_lossy(key.name.bytes()).into_owned())),
        None => Ok(()),
    }
}

fn logical(at: usize) -> LogicalBlock {
    LogicalBlock::new(low32(u64_of(at)))
}

/// Which entries go into which block.
struct Plan {
    indexed: bool,
    /// Blocks of each level of nodes, from the root's children down; empty for a list.
    nodes: Vec<usize>,
    /// The entries of each block of records.
    leaves: Vec<Range<usize>>,
}

impl Plan {
    /// Sorts the keys, too, hashing them where there is an index.
    fn new(keys: &mut [Key<'_>], format: &Format, fill: Fill) -> Result<Self, BuildError> {
        let too_large = BuildError::TooLarge { entries: keys.len() };
        let total = keys.iter().map(Key::space).fold(DOTS_SPACE, usize::saturating_add);
        let indexed = total > format.leaf_end() && format.index;
        let plan = if indexed {
            let hasher = format.hasher(format.hash_version);
            for key in &mut *keys {
                key.hash = hasher.hash(key.name.bytes());
            }
            keys.sort_unstable_by(Key::order);
            let leaves = pack(keys, 0, format.leaf_end(), fill);
            node_levels(leaves.len(), format, fill).map(|nodes| Self { indexed, nodes, leaves })
        } else {
            keys.sort_unstable_by(Key::order);
            let leaves = pack(keys, DOTS_SPACE, format.leaf_end(), Fill::FULL);
            Some(Self { indexed, nodes: Vec::new(), leaves })
        };
        plan.filter(|plan| u64_of(plan.blocks()) <= u64::from(format.blocks_max())).ok_or(too_large)
    }

    fn blocks(&self) -> usize {
        usize::from(self.indexed) + self.nodes.iter().sum::<usize>() + self.leaves.len()
    }
}

/// Distributes the entries over blocks of `capacity` bytes, `reserved` of which are taken in the first. A
/// block is filled to its part, and beyond that while the next names have the same hash.
fn pack(keys: &[Key<'_>], reserved: usize, capacity: usize, fill: Fill) -> Vec<Range<usize>> {
    let target = fill.of(capacity);
    let mut leaves = Vec::new();
    let (mut start, mut used) = (0, reserved);
    for (i, key) in keys.iter().enumerate() {
        let end = used + key.space();
        // In a list, which has no hashes, the two limits are the same.
        let limit = if i > start && keys[i - 1].hash.major == key.hash.major { capacity } else { target };
        if end > limit && used > 0 {
            leaves.push(start..i);
            (start, used) = (i, 0);
        }
        used += key.space();
    }
    leaves.push(start..keys.len());
    leaves
}

/// How many nodes each level below the root needs for `leaves` leaves; `None` if the levels don't suffice.
fn node_levels(leaves: usize, format: &Format, fill: Fill) -> Option<Vec<usize>> {
    let limit = format.index_limit(NODE_BASE);
    [fill, Fill::FULL].into_iter().find_map(|fill| {
        (0..format.levels_max()).find_map(|levels| {
            let mut children = leaves;
            let mut nodes = vec![0; levels];
            for level in nodes.iter_mut().rev() {
                children = children.div_ceil(fill.of(limit));
                *level = children;
            }
            (children <= format.index_limit(ROOT_BASE)).then_some(nodes)
        })
    })
}

struct Writer<'a> {
    plan: &'a Plan,
    keys: &'a [Key<'a>],
    entries: &'a [Entry<'a>],
    dots: (InodeNr, InodeNr),
    format: &'a Format,
}

impl Writer<'_> {
    /// Writes block `at` of the directory.
    fn write(&self, at: usize, block: &mut [u8]) {
        if !self.plan.indexed {
            return self.write_records(at, block);
        }
        let Some(mut below_root) = at.checked_sub(1) else { return self.write_root(block) };
        for (level, count) in self.plan.nodes.iter().enumerate() {
            if below_root < *count {
                return index::init_node(block, self.format, &self.children(level + 1, below_root, *count));
            }
            below_root -= count;
        }
        self.write_records(below_root, block);
    }

    fn write_root(&self, block: &mut [u8]) {
        let info = Root { hash_code: self.format.hash_version.code(), node_levels: self.plan.nodes.len() };
        index::init_root(block, self.format, self.dots, info, &self.children(0, 0, 1));
    }

    fn write_records(&self, leaf: usize, block: &mut [u8]) {
        let mut packer = Packer::new(block, self.format);
        if !self.plan.indexed && leaf == 0 {
            for entry in dots(self.dots.0, self.dots.1) {
                packer.push(&entry);
            }
        }
        for key in &self.keys[self.plan.leaves[leaf].clone()] {
            packer.push(&self.entries[key.entry]);
        }
        packer.finish();
    }

    /// The table of index block `i` of the `count` on its level; level 0 is the root, and the level after the
    /// last one of nodes is the leaves. A level's blocks are shared out evenly among those above.
    fn children(&self, level: usize, i: usize, count: usize) -> Vec<IndexEntry> {
        let first = 1 + self.plan.nodes[..level].iter().sum::<usize>();
        self.share(level, i, count)
            .map(|child| IndexEntry { hash: self.low(level, child), child: logical(first + child) })
            .collect()
    }

    /// The children, numbered on their own level, of index block `i` of `count` on `level`.
    fn share(&self, level: usize, i: usize, count: usize) -> Range<usize> {
        let children = self.plan.nodes.get(level).copied().unwrap_or(self.plan.leaves.len());
        children * i / count..children * (i + 1) / count
    }

    /// The hash from which child `i` below `level` starts, with its continuation bit.
    fn low(&self, level: usize, i: usize) -> u32 {
        match self.plan.nodes.get(level) {
            Some(count) => self.low(level + 1, self.share(level + 1, i, *count).start),
            None => {
                let start = self.plan.leaves[i].start;
                let hash = self.keys.get(start).map_or(0, |key| key.hash.major);
                let before = start.checked_sub(1).map(|before| self.keys[before].hash.major);
                hash | u32::from(before == Some(hash))
            }
        }
    }
}
