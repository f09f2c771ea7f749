//! Finds records: one by its id, or all.

use super::{
    Block, BlockIndex, DEPTH, FAN_OUT, Info, LEAF_HEADER, LEAF_RECORDS, QuotaRead, Record, corrupt, slot_of,
    u32_at,
};
use std::collections::HashSet;
use std::ops::Range;

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    /// The leaf.
    pub leaf: BlockIndex,
    /// The record in it.
    pub(super) index: usize,
}

impl Slot {
    /// The bytes of the record in its leaf.
    #[must_use]
    pub const fn bytes(self) -> Range<usize> {
        let start = LEAF_HEADER + self.index * Record::BYTES;
        start..start + Record::BYTES
    }
}

/// The record of an id; `None` if it has none.
///
/// # Errors
/// [`Corrupt`](crate::Corrupt) names the block of the tree that is broken.
pub fn lookup<F: QuotaRead + ?Sized>(
    file: &F,
    info: &Info,
    id: u32,
) -> Result<Option<(Slot, Record)>, F::Error> {
    let mut at = BlockIndex::ROOT;
    for level in 0..DEPTH {
        match child(file, info, at, &file.block(at)?, slot_of(id, level))? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    record_in(file, at, id).map(Some)
}

/// Visits the record of every id, in ascending order.
///
/// # Errors
/// Those of `visit`, and [`Corrupt`](crate::Corrupt) with the block of the tree that is broken.
pub fn for_each<F: QuotaRead + ?Sized>(
    file: &F,
    info: &Info,
    visit: &mut dyn FnMut(u32, Slot, Record) -> Result<(), F::Error>,
) -> Result<(), F::Error> {
    let mut walk = Walk { file, info, seen: HashSet::from([BlockIndex::ROOT]), visit };
    walk.node(BlockIndex::ROOT, 0, 0)
}

/// Refuses leaves with a record to which nothing leads; `slots` has all to which something does. e2fsck
/// counts what is in a leaf.
///
/// # Errors
/// [`Corrupt`](crate::Corrupt) with the leaf; those of the file.
pub fn check_leaves<F: QuotaRead + ?Sized>(file: &F, slots: &HashSet<Slot>) -> Result<(), F::Error> {
    let leaves: HashSet<BlockIndex> = slots.iter().map(|slot| slot.leaf).collect();
    for leaf in leaves {
        let block = file.block(leaf)?;
        let stray = |slot: &Slot| !slots.contains(slot) && block[slot.bytes()].iter().any(|byte| *byte != 0);
        if let Some(slot) = (0..LEAF_RECORDS).map(|index| Slot { leaf, index }).find(stray) {
            let what = format!("nothing leads to its record {}, which is taken", slot.index);
            return Err(corrupt(file, leaf, what).into());
        }
    }
    Ok(())
}

struct Walk<'a, F: QuotaRead + ?Sized> {
    file: &'a F,
    info: &'a Info,
    /// The nodes found so far.
    seen: HashSet<BlockIndex>,
    visit: &'a mut dyn FnMut(u32, Slot, Record) -> Result<(), F::Error>,
}

impl<F: QuotaRead + ?Sized> Walk<'_, F> {
    /// A node of a level, whose ids begin with the bytes of `prefix`.
    fn node(&mut self, at: BlockIndex, level: usize, prefix: u32) -> Result<(), F::Error> {
        let block = self.file.block(at)?;
        for slot in 0..FAN_OUT {
            let Some(next) = child(self.file, self.info, at, &block, slot)? else { continue };
            let id = prefix << 8 | hectare_units::low32(hectare_units::u64_of(slot));
            if level + 1 == DEPTH {
                let (slot, record) = record_in(self.file, next, id)?;
                (self.visit)(id, slot, record)?;
            } else if self.seen.insert(next) {
                self.node(next, level + 1, id)?;
            } else {
                let what = format!("it leads to block {} of it, which is in the tree twice", next.get());
                return Err(corrupt(self.file, at, what).into());
            }
        }
        Ok(())
    }
}

/// What a slot of a node leads to.
pub(super) fn child<F: QuotaRead + ?Sized>(
    file: &F,
    info: &Info,
    at: BlockIndex,
    node: &Block,
    slot: usize,
) -> Result<Option<BlockIndex>, F::Error> {
    match u32_at(node, 4 * slot) {
        0 => Ok(None),
        nr if info.has_node(nr) => Ok(Some(BlockIndex(nr))),
        nr => Err(corrupt(file, at, format!("it leads to block {nr} of {}", info.blocks)).into()),
    }
}

/// The record of an id in its leaf.
fn record_in<F: QuotaRead + ?Sized>(file: &F, leaf: BlockIndex, id: u32) -> Result<(Slot, Record), F::Error> {
    let block = file.block(leaf)?;
    let slots = (0..LEAF_RECORDS).map(|index| Slot { leaf, index });
    let mut records = slots.filter_map(|slot| Record::parse(&block[slot.bytes()]).map(|found| (slot, found)));
    let found = records.find(|(_, (found, _))| *found == id).map(|(slot, (_, record))| (slot, record));
    found.ok_or_else(|| corrupt(file, leaf, format!("it has no record of id {id}, which leads to it")).into())
}
