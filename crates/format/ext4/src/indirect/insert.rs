//! Maps one run of a file's blocks in an indirect map that exists.
//!
//! The tables that are missing on the way are taken before the first byte changes, and filled before anything
//! names them.
//!
//! Invariant: a table that is made here names something.

use super::build::put;
use super::{Branch, Map, entry, run};
use crate::error::Corrupt;
use crate::extent::{Extent, TreeGeometry, TreeWrite};
use hectare_units::{BlockNr, LogicalBlock};

/// Maps the blocks of `new`, a hole so far, which all are named by one table or by the inode ([`run`]).
/// Tables are allocated near the blocks.
///
/// # Errors
/// When a table can't be read or had, in which case nothing has changed; when one of the blocks is mapped;
/// and for what no block map can hold: unwritten extents, blocks that one table does not name, numbers of
/// more than 32 bits. After an error of the store in the middle of changing, the map may be in between.
pub fn insert<T: TreeWrite>(tree: &mut T, new: Extent) -> Result<(), T::Error> {
    let geometry = tree.geometry();
    check_fits(&geometry, &new)?;
    let seat = Seat::descend(tree, &geometry, new.logical)?;
    let numbers = |count: u32| (0..count).map(|step| new.physical.get() + u64::from(step));
    if seat.branch.level == 0 {
        seat.check_free(tree, &geometry, new.len)?;
        return seat.put(tree, numbers(new.len));
    }
    let tables = take(tree, seat.branch.level, new.physical)?;
    let mut branch = seat.branch;
    for (depth, table) in tables.iter().enumerate() {
        branch = branch.below(new.logical.get().into(), geometry.block_size);
        let below = Seat { table: Some(*table), branch };
        match tables.get(depth + 1) {
            Some(next) => below.put(tree, std::iter::once(next.get()))?,
            None => below.put(tree, numbers(new.len))?,
        }
    }
    seat.put(tree, tables.first().map(|first| first.get()).into_iter())
}

/// Gives the blocks of `old` another place, if one table or the inode names them all as they are; returns
/// whether that is so. No table comes or goes.
///
/// # Errors
/// When a table can't be read, or the new place lies where no block map reaches; nothing has changed then.
pub fn repoint<T: TreeWrite>(tree: &mut T, old: Extent, to: BlockNr) -> Result<bool, T::Error> {
    let geometry = tree.geometry();
    if old.unwritten || old.len == 0 || u64::from(old.len) > run(old.logical, geometry.block_size) {
        return Ok(false);
    }
    check_fits(&geometry, &Extent { physical: to, ..old })?;
    let seat = Seat::descend(tree, &geometry, old.logical)?;
    if seat.branch.level > 0 {
        return Ok(false);
    }
    let from = |start: BlockNr| (0..old.len).map(move |step| start.get() + u64::from(step));
    if !seat.numbers(tree, old.len)?.into_iter().map(u64::from).eq(from(old.physical)) {
        return Ok(false);
    }
    seat.put(tree, from(to))?;
    Ok(true)
}

fn check_fits(geometry: &TreeGeometry, new: &Extent) -> Result<(), Corrupt> {
    let last = new.physical.get().saturating_add(u64::from(new.len).saturating_sub(1));
    let wrong = if new.unwritten {
        "a block map has no unwritten blocks"
    } else if new.len == 0 || u64::from(new.len) > run(new.logical, geometry.block_size) {
        "the blocks to map are not those of one table"
    } else if last > u64::from(u32::MAX) || !geometry.holds(new.physical, new.len) {
        "the blocks lie where no block map reaches"
    } else {
        return Ok(());
    };
    Err(super::corrupt(geometry, new.logical, wrong))
}

/// Takes blocks for tables: all, or none.
fn take<T: TreeWrite>(tree: &mut T, count: u32, goal: BlockNr) -> Result<Vec<BlockNr>, T::Error> {
    let mut taken = Vec::new();
    for _ in 0..count {
        match tree.allocate(goal) {
            Ok(nr) if nr.get() <= u64::from(u32::MAX) => taken.push(nr),
            allocated => {
                let geometry = tree.geometry();
                taken.extend(allocated.as_ref().ok());
                for nr in taken {
                    tree.free(nr)?;
                }
                let high = || super::corrupt(&geometry, LogicalBlock::ZERO, "no table lies so high").into();
                return Err(allocated.err().unwrap_or_else(high));
            }
        }
    }
    Ok(taken)
}

/// Where a number stands.
#[derive(Clone, Copy)]
struct Seat {
    /// Its table; `None` for the inode.
    table: Option<BlockNr>,
    branch: Branch,
}

impl Seat {
    /// The lowest number above file block `at`: the one that names it or would, or the 0 in place of a table.
    fn descend<T: TreeWrite>(tree: &T, geometry: &TreeGeometry, at: LogicalBlock) -> Result<Self, T::Error> {
        let (map, size) = (Map { geometry }, geometry.block_size);
        let branch = Branch::holding(at.get().into(), size)
            .ok_or_else(|| super::corrupt(geometry, at, "no block map reaches so far"))?;
        let mut seat = Self { table: None, branch };
        while seat.branch.level > 0 {
            let number = seat.numbers(tree, 1)?.first().copied().unwrap_or(0);
            let Some(table) = map.block(number, at)? else { break };
            seat = Self { table: Some(table), branch: seat.branch.below(at.get().into(), size) };
        }
        Ok(seat)
    }

    /// The numbers from this one on.
    fn numbers<T: TreeWrite>(self, tree: &T, count: u32) -> Result<Vec<u32>, T::Error> {
        let slots = self.branch.slot..self.branch.slot + hectare_units::usize_of(count);
        let of = |bytes: &[u8]| slots.map(|slot| entry(bytes, slot)).collect();
        Ok(match self.table {
            None => of(&tree.root()),
            Some(nr) => of(&tree.node(nr)?),
        })
    }

    fn check_free<T: TreeWrite>(self, tree: &T, geometry: &TreeGeometry, len: u32) -> Result<(), T::Error> {
        if self.numbers(tree, len)?.iter().all(|number| *number == 0) {
            return Ok(());
        }
        let at = LogicalBlock::new(hectare_units::low32(self.branch.first));
        Err(super::corrupt(geometry, at, "a block to map is mapped already").into())
    }

    fn put<T: TreeWrite>(self, tree: &mut T, numbers: impl Iterator<Item = u64>) -> Result<(), T::Error> {
        let fill = |bytes: &mut [u8]| {
            for (slot, number) in (self.branch.slot..).zip(numbers) {
                put(bytes, slot, number);
            }
        };
        match self.table {
            None => {
                tree.edit_root(fill);
                Ok(())
            }
            Some(nr) => tree.edit(nr, fill),
        }
    }
}
