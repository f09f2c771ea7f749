//! A node as it is changed: a header and an array of 12-byte slots, index or leaf alike.
//!
//! Positions come from a path that was read a moment ago, so they fit; a store that hands out one block twice
//! could still break that, which gives an error and no panic.

use super::node::capacity;
use super::raw::{self, Header, RawEntry};
use super::{TreeGeometry, TreeWrite};
use crate::error::{Corrupt, Place};
use hectare_units::{BlockNr, LogicalBlock, low16, u64_of};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Where a node lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seat {
    Root,
    Block(BlockNr),
}

impl Seat {
    pub(super) fn place(self, geometry: &TreeGeometry) -> Place {
        match self {
            Self::Root => Place::Inode(geometry.inode),
            Self::Block(nr) => Place::Block(nr),
        }
    }
}

/// Makes `bytes` an empty node of `depth`, with as many entries as fit.
///
/// # Panics
/// If it is shorter than a header.
pub(super) fn format(bytes: &mut [u8], depth: u16) {
    let header = Header {
        eh_magic: raw::MAGIC.into(),
        eh_entries: 0.into(),
        eh_max: low16(u64_of(capacity(bytes.len()))).into(),
        eh_depth: depth.into(),
        eh_generation: 0.into(),
    };
    bytes.fill(0);
    bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
}

/// A node under change.
pub(super) struct NodeMut<'a> {
    header: &'a mut Header,
    slots: &'a mut [RawEntry],
    place: Place,
}

impl<'a> NodeMut<'a> {
    fn open(bytes: &'a mut [u8], place: Place) -> Result<Self, Corrupt> {
        let mismatch = || Corrupt::new("extent node", place, "its header and its size do not match");
        let (header, rest) = Header::mut_from_prefix(bytes).map_err(|_| mismatch())?;
        let max = usize::from(header.eh_max.get());
        let (slots, _) = <[RawEntry]>::mut_from_prefix_with_elems(rest, max).map_err(|_| mismatch())?;
        Ok(Self { header, slots, place })
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.header.eh_entries.get())
    }

    fn set_len(&mut self, len: usize) {
        self.header.eh_entries = low16(u64_of(len)).into();
    }

    pub(super) fn set_depth(&mut self, depth: u16) {
        self.header.eh_depth = depth.into();
    }

    /// The key of the first entry.
    pub(super) fn first_key(&self) -> Option<LogicalBlock> {
        let [a, b, c, d, ..] = *self.slots.get(..self.len())?.first()?;
        Some(LogicalBlock::new(u32::from_le_bytes([a, b, c, d])))
    }

    fn mismatch(&self) -> Corrupt {
        Corrupt::new("extent node", self.place, "it changed while its tree was being changed")
    }

    /// Puts an entry at position `at`, moving those behind it.
    pub(super) fn insert(&mut self, at: usize, slot: RawEntry) -> Result<(), Corrupt> {
        let len = self.len();
        if at > len || len >= self.slots.len() {
            return Err(self.mismatch());
        }
        self.slots.copy_within(at..len, at + 1);
        self.slots[at] = slot;
        self.set_len(len + 1);
        Ok(())
    }

    /// Replaces the entry at position `at`.
    pub(super) fn set(&mut self, at: usize, slot: RawEntry) -> Result<(), Corrupt> {
        if at >= self.len().min(self.slots.len()) {
            return Err(self.mismatch());
        }
        self.slots[at] = slot;
        Ok(())
    }

    /// Replaces the key of the entry at position `at`.
    pub(super) fn set_key(&mut self, at: usize, key: LogicalBlock) -> Result<(), Corrupt> {
        if at >= self.len().min(self.slots.len()) {
            return Err(self.mismatch());
        }
        self.slots[at][..4].copy_from_slice(&key.get().to_le_bytes());
        Ok(())
    }

    /// Replaces the keys of entries by what `change` makes of them, in ascending order.
    pub(super) fn change_keys(
        &mut self,
        at: Range<usize>,
        change: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), Corrupt> {
        let mismatch = self.mismatch();
        let len = self.len();
        let slots = self.slots.get_mut(..len).and_then(|slots| slots.get_mut(at));
        let Some(slots) = slots else { return Err(mismatch) };
        for slot in slots {
            let [a, b, c, d, ..] = *slot;
            let Some(key) = change(u32::from_le_bytes([a, b, c, d])) else { return Err(mismatch) };
            slot[..4].copy_from_slice(&key.to_le_bytes());
        }
        Ok(())
    }

    /// Takes entries out, closing the gap. What is left behind the last entry is zeros, so that a tree's
    /// bytes reveal nothing of what it once held.
    pub(super) fn remove(&mut self, gone: Range<usize>) -> Result<(), Corrupt> {
        let len = self.len();
        if gone.start > gone.end || gone.end > len || len > self.slots.len() {
            return Err(self.mismatch());
        }
        self.slots.copy_within(gone.end..len, gone.start);
        self.slots[len - gone.len()..len].fill([0; 12]);
        self.set_len(len - gone.len());
        Ok(())
    }

    /// The entries from position `from` on.
    pub(super) fn tail(&self, from: usize) -> Result<&[RawEntry], Corrupt> {
        self.slots.get(from..self.len()).ok_or_else(|| self.mismatch())
    }

    /// Replaces all entries.
    pub(super) fn fill(&mut self, entries: &[RawEntry]) -> Result<(), Corrupt> {
        let mismatch = self.mismatch();
        let (used, unused) = self.slots.split_at_mut_checked(entries.len()).ok_or(mismatch)?;
        used.copy_from_slice(entries);
        unused.fill([0; 12]);
        self.set_len(entries.len());
        Ok(())
    }
}

/// Changes the node in `seat`.
pub(super) fn edit<T: TreeWrite, R>(
    tree: &mut T,
    seat: Seat,
    geometry: &TreeGeometry,
    change: impl FnOnce(&mut NodeMut<'_>) -> Result<R, Corrupt>,
) -> Result<R, T::Error> {
    let place = seat.place(geometry);
    let change = |bytes: &mut [u8]| change(&mut NodeMut::open(bytes, place)?);
    Ok(match seat {
        Seat::Root => tree.edit_root(change),
        Seat::Block(nr) => tree.edit(nr, change)?,
    }?)
}

/// Makes a new block a node of `depth` with `entries`, and returns how many there is room for.
pub(super) fn create<T: TreeWrite>(
    tree: &mut T,
    nr: BlockNr,
    depth: u16,
    entries: &[RawEntry],
) -> Result<usize, T::Error> {
    Ok(tree.edit(nr, |bytes| {
        let room = capacity(bytes.len());
        if room < entries.len() {
            return Err(Corrupt::new("extent node", Place::Block(nr), "its block is too small"));
        }
        format(bytes, depth);
        NodeMut::open(bytes, Place::Block(nr))?.fill(entries)?;
        Ok(room)
    })??)
}
