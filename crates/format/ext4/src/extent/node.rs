//! A node as it is read: header checked when it is opened, each entry checked when it is used.
//!
//! Checking all entries of a 4 KiB node takes longer than the rest of a lookup, so [`check_block`] does it
//! once, when the store loads the block, and [`Node::check`] does it on demand. What is checked on every use
//! costs O(1): the header, the first key against the parent, and the entry taken against its neighbour and
//! the volume. The root has four entries at most and is always checked whole.

use super::raw::{self, Header, RawEntry, Tail};
use super::{DEPTH_MAX, Extent, FILE_END, ROOT_LEN, TreeGeometry};
use crate::checksum::Seed;
use crate::error::{Corrupt, Place};
use hectare_units::{BlockNr, LogicalBlock, join32, low32};
use std::borrow::Cow;
use zerocopy::{FromBytes, IntoBytes};

/// Entries that fit in a node of `len` bytes.
pub(super) const fn capacity(len: usize) -> usize {
    len.saturating_sub(size_of::<Header>()) / size_of::<RawEntry>()
}

/// A child as its parent describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// Its block.
    pub nr: BlockNr,
    /// Levels below it; 0 is a leaf.
    pub depth: u16,
    /// Its first key.
    pub first: LogicalBlock,
    /// The file block where its range ends: the next child's first key, or the end of the parent's range.
    pub end: u64,
}

#[derive(Clone, Copy)]
enum Slots<'a> {
    Index(&'a [raw::Index]),
    Leaf(&'a [raw::Leaf]),
}

/// A node of an extent tree whose header has been checked.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    geometry: &'a TreeGeometry,
    place: Place,
    depth: u16,
    max: usize,
    first: u32,
    end: u64,
    slots: Slots<'a>,
}

impl<'a> Node<'a> {
    /// Opens a root, the 60 bytes of an inode's `i_block`, and checks all of it.
    ///
    /// # Errors
    /// When it breaks the format.
    #[inline]
    pub fn root(bytes: &'a [u8; ROOT_LEN], geometry: &'a TreeGeometry) -> Result<Self, Corrupt> {
        let node = Self::open(bytes, Place::Inode(geometry.inode), geometry)?;
        if node.depth > DEPTH_MAX {
            return Err(node.corrupt(format!("its depth is {}, at most {DEPTH_MAX} is allowed", node.depth)));
        }
        node.check()?;
        Ok(node)
    }

    /// Opens the node block that `child` describes, and checks it against that description.
    ///
    /// # Errors
    /// When its header breaks the format, or depth or first key are not what the parent says.
    pub fn block(bytes: &'a [u8], child: &Child, geometry: &'a TreeGeometry) -> Result<Self, Corrupt> {
        let mut node = Self::open(bytes, Place::Block(child.nr), geometry)?;
        node.first = child.first.get();
        node.end = child.end;
        if node.depth != child.depth {
            return Err(node.corrupt(format!(
                "its depth is {}, its place in the tree wants {}",
                node.depth, child.depth
            )));
        }
        match node.key(0) {
            Some(key) if key != node.first => Err(node
                .corrupt(format!("its first key is {key}, its parent's entry says {}", child.first.get()))),
            _ => Ok(node),
        }
    }

    /// Opens a root or a node block for reading a damaged tree: only its header is checked. Its entries are
    /// to be taken with [`Self::extent_alone`] and [`Self::child_alone`].
    ///
    /// # Errors
    /// When the header breaks the format.
    pub fn open_alone(bytes: &'a [u8], place: Place, geometry: &'a TreeGeometry) -> Result<Self, Corrupt> {
        let node = Self::open(bytes, place, geometry)?;
        match node.depth > DEPTH_MAX {
            true => Err(node.corrupt(format!("its depth is {}", node.depth))),
            false => Ok(node),
        }
    }

    /// Extent `i` of a leaf, checked against the volume only: its neighbours may be damaged.
    ///
    /// # Errors
    /// When it has no length or leaves the volume, or there is none.
    pub fn extent_alone(&self, i: usize) -> Result<Extent, Corrupt> {
        let alone = match self.slots {
            Slots::Leaf(entries) => {
                Slots::Leaf(entries.get(i..).unwrap_or_default().get(..1).unwrap_or_default())
            }
            index => index,
        };
        Self { slots: alone, first: 0, end: FILE_END, ..*self }.extent(0)
    }

    /// Child `i` of an index node, checked against the volume only; its range is the whole file.
    ///
    /// # Errors
    /// When it leaves the volume, or there is none.
    pub fn child_alone(&self, i: usize) -> Result<Child, Corrupt> {
        let alone = match self.slots {
            Slots::Index(entries) => {
                Slots::Index(entries.get(i..).unwrap_or_default().get(..1).unwrap_or_default())
            }
            leaf => leaf,
        };
        Self { slots: alone, first: 0, end: FILE_END, ..*self }.child(0)
    }

    fn open(bytes: &'a [u8], place: Place, geometry: &'a TreeGeometry) -> Result<Self, Corrupt> {
        let corrupt = |reason: Cow<'static, str>| Corrupt::new("extent node", place, reason);
        let Ok((header, rest)) = Header::ref_from_prefix(bytes) else {
            return Err(corrupt("it is shorter than its header".into()));
        };
        let (magic, depth) = (header.eh_magic.get(), header.eh_depth.get());
        let (entries, max) = (usize::from(header.eh_entries.get()), usize::from(header.eh_max.get()));
        let room = capacity(bytes.len());
        if magic != raw::MAGIC {
            return Err(corrupt(format!("its magic is {magic:#06x}, not {:#06x}", raw::MAGIC).into()));
        }
        if max == 0 || max > room {
            return Err(corrupt(format!("it claims room for {max} entries, but has room for {room}").into()));
        }
        if entries > max {
            return Err(corrupt(format!("it claims {entries} entries and room for {max}").into()));
        }
        if entries == 0 && (depth > 0 || !matches!(place, Place::Inode(_))) {
            return Err(corrupt("it has no entries, which only the root of an empty file may have".into()));
        }
        let slots = if depth == 0 {
            <[raw::Leaf]>::ref_from_prefix_with_elems(rest, entries).ok().map(|(slots, _)| Slots::Leaf(slots))
        } else {
            <[raw::Index]>::ref_from_prefix_with_elems(rest, entries)
                .ok()
                .map(|(slots, _)| Slots::Index(slots))
        };
        let slots = slots.ok_or_else(|| corrupt("it is shorter than its entries".into()))?;
        Ok(Self { geometry, place, depth, max, first: 0, end: FILE_END, slots })
    }

    /// Levels below this node; 0 is a leaf.
    #[inline]
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Entries in use.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self.slots {
            Slots::Index(entries) => entries.len(),
            Slots::Leaf(entries) => entries.len(),
        }
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries there is room for.
    #[inline]
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The file block where the node's range begins.
    #[must_use]
    pub fn first(&self) -> LogicalBlock {
        LogicalBlock::new(self.first)
    }

    /// The file block where the node's range ends; up to 2^32.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    fn key(&self, i: usize) -> Option<u32> {
        match self.slots {
            Slots::Index(entries) => entries.get(i).map(|entry| entry.ei_block.get()),
            Slots::Leaf(entries) => entries.get(i).map(|entry| entry.ee_block.get()),
        }
    }

    /// How many entries have a key of at most `at`: the last of these is the one that covers `at`, if any
    /// does.
    #[must_use]
    pub fn count_to(&self, at: LogicalBlock) -> usize {
        match self.slots {
            Slots::Index(entries) => entries.partition_point(|entry| entry.ei_block.get() <= at.get()),
            Slots::Leaf(entries) => entries.partition_point(|entry| entry.ee_block.get() <= at.get()),
        }
    }

    /// Where entry `i` begins, or, past the last entry, where the node's range ends; `None` at the end of the
    /// file.
    #[must_use]
    pub fn start_of(&self, i: usize) -> Option<LogicalBlock> {
        let start = self.key(i).map_or(self.end, u64::from);
        u32::try_from(start).ok().map(LogicalBlock::new)
    }

    fn bound(&self, i: usize) -> u64 {
        self.key(i.saturating_add(1)).map_or(self.end, u64::from)
    }

    /// Extent `i` of a leaf, checked against the node's range, its neighbour and the volume.
    ///
    /// # Errors
    /// When it breaks the format, or there is none.
    #[inline]
    pub fn extent(&self, i: usize) -> Result<Extent, Corrupt> {
        let Slots::Leaf(entries) = self.slots else {
            return Err(self.corrupt("an extent was looked for in an index node"));
        };
        let entry = entries.get(i).ok_or_else(|| self.corrupt(format!("it has no entry {i}")))?;
        let extent = Extent::decode(entry);
        let (logical, end, bound) = (extent.logical, extent.end(), self.bound(i));
        if extent.len == 0 {
            return Err(self.corrupt(format!("the extent at file block {logical} has no length")));
        }
        if logical.get() < self.first || end > bound {
            let first = self.first;
            return Err(self.corrupt(format!(
                "the extent of file blocks {logical} to {end} leaves its range of {first} to {bound}"
            )));
        }
        if !self.geometry.holds(extent.physical, extent.len) {
            return Err(self.corrupt(format!(
                "the extent at file block {logical} lies in {} blocks from {}, outside the volume's {}",
                extent.len, extent.physical, self.geometry.blocks_count
            )));
        }
        Ok(extent)
    }

    /// Child `i` of an index node, checked against the node's range, its neighbour and the volume.
    ///
    /// # Errors
    /// When it breaks the format, or there is none.
    pub fn child(&self, i: usize) -> Result<Child, Corrupt> {
        let Slots::Index(entries) = self.slots else {
            return Err(self.corrupt("a child was looked for in a leaf"));
        };
        let entry = entries.get(i).ok_or_else(|| self.corrupt(format!("it has no entry {i}")))?;
        let (key, end) = (entry.ei_block.get(), self.bound(i));
        if key < self.first || u64::from(key) >= end || end > self.end {
            let first = self.first;
            return Err(
                self.corrupt(format!("the index key {key} is out of order in its range of {first} to {end}"))
            );
        }
        let nr = BlockNr::new(join32(entry.ei_leaf_lo.get(), u32::from(entry.ei_leaf_hi.get())));
        if !self.geometry.holds(nr, 1) {
            let blocks = self.geometry.blocks_count;
            return Err(
                self.corrupt(format!("the child at key {key} is block {nr}, outside the volume's {blocks}"))
            );
        }
        Ok(Child { nr, depth: self.depth.saturating_sub(1), first: LogicalBlock::new(key), end })
    }

    /// A copy of the entries.
    pub(super) fn to_slots(self) -> Vec<RawEntry> {
        match self.slots {
            Slots::Index(entries) => entries.iter().map(|entry| zerocopy::transmute!(*entry)).collect(),
            Slots::Leaf(entries) => entries.iter().map(|entry| zerocopy::transmute!(*entry)).collect(),
        }
    }

    /// Checks every entry.
    ///
    /// # Errors
    /// When one breaks the format.
    pub fn check(&self) -> Result<(), Corrupt> {
        for i in 0..self.len() {
            match self.slots {
                Slots::Index(_) => drop(self.child(i)?),
                Slots::Leaf(_) => drop(self.extent(i)?),
            }
        }
        Ok(())
    }

    /// A finding about this node.
    pub(super) fn corrupt(&self, reason: impl Into<Cow<'static, str>>) -> Corrupt {
        Corrupt::new("extent node", self.place, reason)
    }
}

/// Checks all of a node block that can be checked without its parent: header, checksum (if there is a seed:
/// the volume has `metadata_csum`), every entry. For the store, when it loads the block.
///
/// # Errors
/// When the block breaks the format.
pub fn check_block(
    bytes: &[u8],
    nr: BlockNr,
    geometry: &TreeGeometry,
    seed: Option<Seed>,
) -> Result<(), Corrupt> {
    let node = Node::open(bytes, Place::Block(nr), geometry)?;
    if node.depth >= DEPTH_MAX {
        return Err(node.corrupt(format!("its depth is {}, too much for a node below the root", node.depth)));
    }
    if let Some(seed) = seed {
        verify_checksum(bytes, nr, seed)?;
    }
    node.check()
}

/// Verifies the checksum of a node block on a volume with `metadata_csum`; `seed` is the inode's.
///
/// # Errors
/// When it does not match, or the header is too broken to find it.
pub fn verify_checksum(bytes: &[u8], nr: BlockNr, seed: Seed) -> Result<(), Corrupt> {
    let place = Place::Block(nr);
    let tail = tail_offset(bytes).and_then(|at| bytes.split_at_checked(at));
    let Some((content, Ok((tail, _)))) = tail.map(|(content, rest)| (content, Tail::read_from_prefix(rest)))
    else {
        return Err(Corrupt::new("extent node", place, "it has no room for its checksum"));
    };
    let (found, expected) = (tail.et_checksum.get(), seed.checksum(content));
    if found == expected { Ok(()) } else { Err(Corrupt::checksum("extent node", place, found, expected)) }
}

/// Corrects the one byte of a node block that is wrong, if its checksum shows which one it is.
pub fn mend(bytes: &mut [u8], nr: BlockNr, seed: Seed) -> bool {
    // Where the checksum lies follows from the size, should the header be what is wrong.
    let at = size_of::<Header>() + capacity(bytes.len()) * size_of::<RawEntry>();
    let Some((content, rest)) = bytes.split_at_mut_checked(at) else { return false };
    let Ok((tail, _)) = Tail::read_from_prefix(rest) else { return false };
    let mended = crate::checksum::mend(content, seed, tail.et_checksum.get()).is_some();
    mended && verify_checksum(bytes, nr, seed).is_ok()
}

/// Renews the checksum of a node block on a volume with `metadata_csum`; `seed` is the inode's. Bytes that
/// are no node, and have no place for a checksum, stay as they are.
pub fn set_checksum(bytes: &mut [u8], seed: Seed) {
    let Some((content, rest)) = tail_offset(bytes).and_then(|at| bytes.split_at_mut_checked(at)) else {
        return;
    };
    let tail = Tail { et_checksum: seed.checksum(content).into() };
    if let Some(space) = rest.get_mut(..size_of::<Tail>()) {
        space.copy_from_slice(tail.as_bytes());
    }
}

fn tail_offset(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    let max = usize::from(header.eh_max.get());
    (max <= capacity(bytes.len())).then(|| size_of::<Header>() + max * size_of::<RawEntry>())
}

/// An index entry.
pub(super) fn index_slot(first: LogicalBlock, nr: BlockNr) -> RawEntry {
    zerocopy::transmute!(raw::Index {
        ei_block: first.get().into(),
        ei_leaf_lo: low32(nr.get()).into(),
        ei_leaf_hi: hectare_units::low16(nr.get() >> 32).into(),
        ei_unused: 0.into(),
    })
}
