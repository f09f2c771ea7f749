//! The index blocks of a directory: the root in block 0 and the nodes below it.
//!
//! Both hold a sorted table of (hash, block) entries of 8 bytes. The hash field of the first entry is not a
//! hash (the first child starts where the block itself starts) but holds the table's limit and count. The
//! root's table starts at byte 32, after the records of `.` and `..` (the latter reaching to the end of the
//! block, so that a plain reader sees nothing else) and 8 bytes that say how the index is made. A node's
//! starts at byte 8, after an unused record that spans the block. With checksums, 8 bytes after the table's
//! last slot hold one.
//!
//! Hazard: the low bit of a hash is no part of it. Set, it says that the names of that hash began in the
//! child before; such names must be looked for in both.
//!
//! What this is not: it sees one block at a time; descending is [`tree`](super::tree)'s.

use super::leaf::{self, Leaf};
use super::record::{self, HEADER_LEN, RECORD_MIN, Records, get16, get32, put16, put32};
use super::{Format, Name};
use crate::{Corrupt, Place};
use hectare_units::{InodeNr, LogicalBlock, low16, u64_of};

/// Bytes of one entry of the table.
pub(super) const ENTRY_LEN: usize = 8;
/// Bytes of the checksum's tail.
pub(super) const TAIL_LEN: usize = 8;
/// Where the root's table starts.
pub(super) const ROOT_BASE: usize = 32;
/// Where a node's table starts.
pub(super) const NODE_BASE: usize = HEADER_LEN;

const INFO: usize = 24;
const INFO_LEN: u8 = 8;
const BLOCK_MASK: u32 = 0x0fff_ffff;
const ROOT: &str = "directory index root";
const NODE: &str = "directory index node";

/// What a block of a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// A block of records.
    Leaf,
    /// The root of an index.
    Root,
    /// An index node below the root.
    Node,
}

impl Shape {
    /// What block `at` of a directory looks like; `indexed` is the inode's flag. The block is long enough.
    pub(super) fn of(block: &[u8], at: LogicalBlock, indexed: bool) -> Self {
        if !indexed {
            Self::Leaf
        } else if at == LogicalBlock::ZERO {
            Self::Root
        } else if get32(block, 0) == 0 && record::get_len(block, 0) == block.len() {
            // An empty leaf of a volume without checksums looks the same; neither holds a name.
            Self::Node
        } else {
            Self::Leaf
        }
    }
}

/// All records of a block, whatever it is: of the root `.` and `..`, of a node an unused one.
pub(super) fn records<'a>(
    block: &'a [u8],
    format: &Format,
    at: LogicalBlock,
    indexed: bool,
    place: Place,
) -> Result<Records<'a>, Corrupt> {
    let whole = Records::new(block, block.len(), format, place)?;
    match Shape::of(block, at, indexed) {
        Shape::Root | Shape::Node => Ok(whole),
        Shape::Leaf => {
            Leaf::parse(block, format, place)?;
            Records::new(block, format.leaf_end(), format, place)
        }
    }
}

/// What the root says about the whole index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Root {
    /// The code of the hash function; may be one we don't know.
    pub(super) hash_code: u8,
    /// Levels of nodes between the root and the leaves, 0 to 2.
    pub(super) node_levels: usize,
}

impl Root {
    /// Checks the root's fixed part.
    pub(super) fn parse(block: &[u8], format: &Format, place: Place) -> Result<Self, Corrupt> {
        let corrupt = |reason: String| Err(Corrupt::new(ROOT, place, reason));
        root_base(block, format, place)?;
        if block[INFO + 7] & 1 != 0 {
            return corrupt(format!("its flags are {:#04x}", block[INFO + 7]));
        }
        let node_levels = usize::from(block[INFO + 6]);
        if node_levels >= format.levels_max() {
            return corrupt(format!("it has {node_levels} levels of nodes below it"));
        }
        Ok(Self { hash_code: block[INFO + 4], node_levels })
    }
}

/// Where the root's table starts, after checking that everything before it has the one form there is.
pub(super) fn root_base(block: &[u8], format: &Format, place: Place) -> Result<usize, Corrupt> {
    let mut records = Records::new(block, block.len(), format, place)?;
    let shape = [(Name::DOT, 0, RECORD_MIN), (Name::DOT_DOT, RECORD_MIN, block.len() - RECORD_MIN)];
    for (name, offset, len) in shape {
        let record = records.next().transpose()?;
        let right = record
            .is_some_and(|record| (record.offset, record.len, record.name) == (offset, len, name.bytes()));
        if !right {
            return Err(Corrupt::new(ROOT, place, "it does not start with . and .. in their places"));
        }
    }
    if get32(block, INFO) != 0 || block[INFO + 5] != INFO_LEN {
        return Err(Corrupt::new(ROOT, place, format!("its info has {} bytes", block[INFO + 5])));
    }
    Ok(ROOT_BASE)
}

/// An entry of an index table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexEntry {
    /// The lowest hash of the child, with the continuation bit. Without meaning in a table's first entry.
    pub(super) hash: u32,
    /// The child.
    pub(super) child: LogicalBlock,
}

/// A checked index table, to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    block: &'a [u8],
    base: usize,
    count: usize,
    limit: usize,
}

impl<'a> Table<'a> {
    /// The table that starts at `base` ([`ROOT_BASE`] or [`NODE_BASE`]).
    pub(super) fn parse(
        block: &'a [u8],
        base: usize,
        format: &Format,
        place: Place,
    ) -> Result<Self, Corrupt> {
        let structure = if base == ROOT_BASE { ROOT } else { NODE };
        if block.len() != format.block_size.len() {
            return Err(Corrupt::new(structure, place, format!("it has {} bytes", block.len())));
        }
        if base == NODE_BASE && Shape::of(block, LogicalBlock::new(1), true) != Shape::Node {
            return Err(Corrupt::new(structure, place, "it does not start with a record that spans it"));
        }
        let (limit, count) = (usize::from(get16(block, base)), usize::from(get16(block, base + 2)));
        let expected = format.index_limit(base);
        if limit != expected || count == 0 || count > limit {
            let reason = format!("it has {count} entries of at most {limit}, where {expected} fit");
            return Err(Corrupt::new(structure, place, reason));
        }
        Ok(Self { block, base, count, limit })
    }

    /// Entries it holds, at least one.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether no entry fits any more.
    pub(super) const fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// The hash from which child `i` starts, with its continuation bit; 0 for the first.
    pub(super) fn hash(&self, i: usize) -> u32 {
        if i == 0 { 0 } else { get32(self.block, self.base + i * ENTRY_LEN) }
    }

    /// Child `i`. The upper four bits of the field are reserved.
    pub(super) fn child(&self, i: usize) -> LogicalBlock {
        LogicalBlock::new(get32(self.block, self.base + i * ENTRY_LEN + 4) & BLOCK_MASK)
    }

    /// The first child that can hold names of `hash`: the last one that starts at or before it.
    pub(super) fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.hash(middle) <= hash { low = middle } else { high = middle }
        }
        low
    }

    /// All entries.
    pub(super) fn entries(&self) -> Vec<IndexEntry> {
        (0..self.count).map(|i| IndexEntry { hash: self.hash(i), child: self.child(i) }).collect()
    }
}

/// Replaces the whole table, zeroing the slots left free.
///
/// # Panics
/// If there are none, or more than fit; the caller has measured before.
pub(super) fn put_entries(block: &mut [u8], base: usize, format: &Format, entries: &[IndexEntry]) {
    let limit = format.index_limit(base);
    assert!((1..=limit).contains(&entries.len()), "as many entries as the table was measured for");
    block[base..base + limit * ENTRY_LEN].fill(0);
    for (i, entry) in entries.iter().enumerate() {
        put32(block, base + i * ENTRY_LEN, entry.hash);
        put32(block, base + i * ENTRY_LEN + 4, entry.child.get() & BLOCK_MASK);
    }
    put16(block, base, low16(u64_of(limit)));
    put16(block, base + 2, low16(u64_of(entries.len())));
}

/// Makes `block` an index root.
pub(super) fn init_root(
    block: &mut [u8],
    format: &Format,
    (own, parent): (InodeNr, InodeNr),
    root: Root,
    entries: &[IndexEntry],
) {
    block.fill(0);
    let [dot, dot_dot] = leaf::dots(own, parent);
    record::put(block, 0, RECORD_MIN, &dot, format);
    record::put(block, RECORD_MIN, format.block_size.len() - RECORD_MIN, &dot_dot, format);
    block[INFO + 4] = root.hash_code;
    block[INFO + 5] = INFO_LEN;
    set_node_levels(block, root.node_levels);
    put_entries(block, ROOT_BASE, format, entries);
}

/// Sets in the root how many levels of nodes lie below it.
pub(super) fn set_node_levels(block: &mut [u8], node_levels: usize) {
    block[INFO + 6] = hectare_units::low8(u64_of(node_levels));
}

/// Makes `block` an index node.
pub(super) fn init_node(block: &mut [u8], format: &Format, entries: &[IndexEntry]) {
    block.fill(0);
    record::put_len(block, 0, format.block_size.len());
    put_entries(block, NODE_BASE, format, entries);
}
