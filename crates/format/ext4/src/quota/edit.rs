//! Adds and removes records.
//!
//! The file grows before anything is changed, so that a full volume leaves the tree as it was. Both lists are
//! followed one step at a time, so loops in them can't hold anyone up; a block of the list of leaves is
//! checked to be a leaf with room.

use super::lookup::child;
use super::{
    Block, BlockIndex, DEPTH, FAN_OUT, Info, LEAF_HEADER, LEAF_RECORDS, QuotaWrite, Record, Slot, corrupt,
    lookup, set_u32, slot_of, u32_at,
};
use crate::error::Corrupt;
use hectare_units::low16;

/// Where a block on a list names the next one, and a leaf the one before.
const NEXT: usize = 0;
const PREVIOUS: usize = 4;
/// Where a leaf counts its records, in 16 bits.
const COUNT: usize = 8;

/// Makes room for the record of an id, which is empty, unless it has one; returns where it lies.
///
/// # Errors
/// If the file can't grow, and [`Corrupt`] with the block of the tree that is broken.
pub fn insert<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info, id: u32) -> Result<Slot, F::Error> {
    if let Some((slot, _)) = lookup(file, info, id)? {
        return Ok(slot);
    }
    let mut path = vec![BlockIndex::ROOT];
    while path.len() < DEPTH {
        let at = path[path.len() - 1];
        match child(file, info, at, &file.block(at)?, slot_of(id, path.len() - 1))? {
            Some(next) => path.push(next),
            None => break,
        }
    }
    let missing = u32::try_from(DEPTH - path.len()).expect("at most the depth");
    let needed = info.blocks.checked_add(missing + 1).filter(|blocks| *blocks < u32::MAX);
    let needed = needed.ok_or_else(|| corrupt(file, BlockIndex::HEADER, "it can't have more blocks"))?;
    file.grow(needed)?;
    while path.len() < DEPTH {
        let (level, parent) = (path.len() - 1, path[path.len() - 1]);
        let new = take_block(file, info)?;
        file.edit(parent, |block| set_u32(block, 4 * slot_of(id, level), new.get()))?;
        path.push(new);
    }
    let slot = take_slot(file, info)?;
    file.edit(slot.leaf, |block| Record::default().render(id, &mut block[slot.bytes()]))?;
    let reference = 4 * slot_of(id, DEPTH - 1);
    file.edit(path[DEPTH - 1], |block| set_u32(block, reference, slot.leaf.get()))?;
    info.write(file)?;
    Ok(slot)
}

/// Removes the record of an id; returns whether it had one. Nodes that lead to nothing are freed.
///
/// # Errors
/// [`Corrupt`] with the block of the tree that is broken.
pub fn remove<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info, id: u32) -> Result<bool, F::Error> {
    let Some((slot, _)) = lookup(file, info, id)? else { return Ok(false) };
    let mut path = vec![BlockIndex::ROOT];
    while path.len() < DEPTH {
        let at = path[path.len() - 1];
        let next = child(file, info, at, &file.block(at)?, slot_of(id, path.len() - 1))?;
        path.push(next.ok_or_else(|| corrupt(file, at, "it has lost a reference"))?);
    }
    give_slot(file, info, slot)?;
    for (level, at) in path.into_iter().enumerate().rev() {
        let emptied = file.edit(at, |block| {
            set_u32(block, 4 * slot_of(id, level), 0);
            (0..FAN_OUT).all(|slot| u32_at(block, 4 * slot) == 0)
        })?;
        if !emptied || at == BlockIndex::ROOT {
            break;
        }
        give_block(file, info, at)?;
    }
    info.write(file)?;
    Ok(true)
}

/// A block of zeros: from the list, or after all others.
fn take_block<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info) -> Result<BlockIndex, F::Error> {
    let taken = BlockIndex(if info.free_block == 0 { info.blocks } else { info.free_block });
    if info.free_block == 0 {
        info.blocks += 1;
    } else {
        info.free_block = next_of(file, info, taken, &file.block(taken)?)?;
    }
    file.edit(taken, |block| block.fill(0))?;
    Ok(taken)
}

/// Puts a block on the list of those without a use.
fn give_block<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info, at: BlockIndex) -> Result<(), F::Error> {
    let next = std::mem::replace(&mut info.free_block, at.get());
    file.edit(at, |block| {
        block.fill(0);
        set_u32(block, NEXT, next);
    })
}

/// A free slot of a leaf, counted as used.
fn take_slot<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info) -> Result<Slot, F::Error> {
    let leaf = match info.free_leaf {
        0 => {
            let leaf = take_block(file, info)?;
            info.free_leaf = leaf.get();
            leaf
        }
        nr => BlockIndex(nr),
    };
    let block = file.block(leaf)?;
    let free = (0..LEAF_RECORDS).map(|index| Slot { leaf, index });
    let mut free = free.filter(|slot| Record::parse(&block[slot.bytes()]).is_none());
    let (Some(slot), count) = (free.next(), records_of(&block)) else {
        return Err(corrupt(file, leaf, "it is on the list of leaves with room, and has none").into());
    };
    if count >= LEAF_RECORDS {
        return Err(wrong_count(file, leaf, count).into());
    }
    file.edit(leaf, |block| set_records(block, count + 1))?;
    if count + 1 == LEAF_RECORDS {
        unlink(file, info, leaf)?;
    }
    Ok(slot)
}

/// Frees a slot, and its leaf with the last record.
fn give_slot<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info, slot: Slot) -> Result<(), F::Error> {
    let count = records_of(&file.block(slot.leaf)?);
    if !(1..=LEAF_RECORDS).contains(&count) {
        return Err(wrong_count(file, slot.leaf, count).into());
    }
    file.edit(slot.leaf, |block| {
        block[slot.bytes()].fill(0);
        set_records(block, count - 1);
    })?;
    if count == 1 {
        unlink(file, info, slot.leaf)?;
        return give_block(file, info, slot.leaf);
    }
    if count < LEAF_RECORDS {
        return Ok(());
    }
    let next = std::mem::replace(&mut info.free_leaf, slot.leaf.get());
    file.edit(slot.leaf, |block| {
        set_u32(block, NEXT, next);
        set_u32(block, PREVIOUS, 0);
    })?;
    if next != 0 {
        file.edit(BlockIndex(next), |block| set_u32(block, PREVIOUS, slot.leaf.get()))?;
    }
    Ok(())
}

/// Takes a leaf off the list of those with room.
fn unlink<F: QuotaWrite + ?Sized>(file: &mut F, info: &mut Info, leaf: BlockIndex) -> Result<(), F::Error> {
    let block = file.block(leaf)?;
    let next = next_of(file, info, leaf, &block)?;
    let previous = match u32_at(&block, PREVIOUS) {
        nr if nr == 0 || info.has_node(nr) => nr,
        nr => return Err(corrupt(file, leaf, format!("before it is block {nr} of {}", info.blocks)).into()),
    };
    if next != 0 {
        file.edit(BlockIndex(next), |block| set_u32(block, PREVIOUS, previous))?;
    }
    if previous != 0 {
        file.edit(BlockIndex(previous), |block| set_u32(block, NEXT, next))?;
    } else {
        info.free_leaf = next;
    }
    file.edit(leaf, |block| block[..LEAF_HEADER / 2].fill(0))
}

/// The block after one on a list; 0 for none.
fn next_of<F: QuotaWrite + ?Sized>(
    file: &F,
    info: &Info,
    at: BlockIndex,
    block: &Block,
) -> Result<u32, F::Error> {
    match u32_at(block, NEXT) {
        nr if nr == 0 || (info.has_node(nr) && nr != at.get()) => Ok(nr),
        nr => Err(corrupt(file, at, format!("after it is block {nr} of {}", info.blocks)).into()),
    }
}

fn wrong_count<F: QuotaWrite + ?Sized>(file: &F, leaf: BlockIndex, count: usize) -> Corrupt {
    corrupt(file, leaf, format!("it counts {count} records"))
}

fn records_of(block: &Block) -> usize {
    usize::from(u16::from_le_bytes([block[COUNT], block[COUNT + 1]]))
}

fn set_records(block: &mut Block, count: usize) {
    let count = low16(hectare_units::u64_of(count));
    block[COUNT..COUNT + 2].copy_from_slice(&count.to_le_bytes());
}
