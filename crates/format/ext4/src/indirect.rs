//! Indirect maps: how ext2 and ext3 map the blocks of a file; read, changed, and built whole ([`build()`]).
//!
//! The inode's `i_block` holds 15 block numbers: 12 of data, then one each of a table of data blocks, a table
//! of such tables, and one more level. A table is a block full of 32-bit numbers, and 0 anywhere is a hole of
//! all that would lie below.
//!
//! Hazards: there is no magic, no checksum, and nothing that says a block is a table, so any bytes at all are
//! a map. Numbers are checked against the volume. A hostile map can name one table a million times;
//! [`for_each`] gives up once it has read more tables than the volume has blocks, and a caller stops at the
//! file's size.
//!
//! It is not: an allocator or a store: what implements [`TreeRead`] keeps the tables, which need no checksum.
//!
//! Source of the format: the ext4 disk layout documentation of the Linux kernel, "Direct/Indirect Block
//! Addressing".

mod build;
mod insert;
mod remove;
#[cfg(test)]
mod tests;

pub use build::{build, reach, run, tables_between};
pub use insert::{insert, repoint};
pub use remove::remove;

use crate::error::{Corrupt, Place};
use crate::extent::{Extent, Mapping, ROOT_LEN, TreeGeometry, TreeRead, WRITTEN_MAX};
use hectare_units::{BlockNr, BlockSize, LogicalBlock, low32, u64_of};
use std::ops::{ControlFlow, Deref};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Numbers of data blocks in `i_block`.
const DIRECT: usize = 12;
/// Levels of tables.
const LEVELS: u32 = 3;
/// One more than the last file block.
const FILE_END: u64 = 1 << 32;

/// What file block `at` is mapped to: the run of blocks that begins at `at` as far as its table shows it, or
/// how far the hole is known to go. `table` reads a table; at most three are read.
///
/// # Errors
/// When a table can't be read, or a block number lies outside the volume.
pub fn lookup<N: Deref<Target = [u8]>, E: From<Corrupt>>(
    i_block: &[u8; ROOT_LEN],
    geometry: &TreeGeometry,
    at: LogicalBlock,
    mut table: impl FnMut(BlockNr) -> Result<N, E>,
) -> Result<Mapping, E> {
    let map = Map { geometry };
    let Some(mut branch) = Branch::holding(u64::from(at.get()), geometry.block_size) else {
        return Ok(Mapping::Hole { next: None });
    };
    let root = numbers(i_block);
    if branch.level == 0 {
        return Ok(map.run(root.get(..DIRECT).unwrap_or_default(), branch, at)?);
    }
    let mut number = root.get(branch.slot).map_or(0, |number| number.get());
    while let Some(nr) = map.block(number, at)? {
        let held = table(nr)?;
        let entries = numbers(&held);
        branch = branch.below(u64::from(at.get()), geometry.block_size);
        if branch.level == 0 {
            return Ok(map.run(entries, branch, at)?);
        }
        number = entries.get(branch.slot).map_or(0, |number| number.get());
    }
    Ok(Mapping::Hole { next: logical(branch.first.saturating_add(branch.span(geometry.block_size))) })
}

/// Visits the runs of blocks that end after file block `from`, in order, until `visit` breaks. Runs are as
/// long as they can be (up to 32768 blocks), but the first may begin in the middle of one, at `from`. `table`
/// reads a table.
///
/// # Errors
/// When a table can't be read, a block number lies outside the volume, or the map has more tables than the
/// volume has blocks; runs before it have been visited.
pub fn for_each<N: Deref<Target = [u8]>, E: From<Corrupt>>(
    i_block: &[u8; ROOT_LEN],
    geometry: &TreeGeometry,
    from: LogicalBlock,
    mut table: impl FnMut(BlockNr) -> Result<N, E>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> Result<(), E> {
    let mut walk = Walk {
        map: Map { geometry },
        from: u64::from(from.get()),
        budget: geometry.blocks_count.get(),
        pending: None,
        table: &mut table,
        visit,
    };
    let mut first = 0;
    for (slot, number) in numbers(i_block).iter().enumerate() {
        let level = u32::try_from(slot.saturating_sub(DIRECT - 1)).unwrap_or(LEVELS);
        let branch = Branch { slot, level, first };
        if walk.branch(number.get(), branch)?.is_break() {
            return Ok(());
        }
        first += branch.span(geometry.block_size);
    }
    // The last run; nothing is left to break off from.
    let _ = walk.flush();
    Ok(())
}

/// Visits every table with how many tables lie between it and data, a table before those it names, until
/// `visit` breaks.
///
/// # Errors
/// As [`for_each`]; tables before have been visited.
pub fn for_each_table<T: TreeRead>(
    tree: &T,
    visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>,
) -> Result<(), T::Error> {
    let geometry = tree.geometry();
    let mut budget = geometry.blocks_count.get();
    let root = tree.root();
    for level in 1..=LEVELS {
        let branch = Branch::of_level(level, geometry.block_size);
        if visit_tables(tree, entry(&root, branch.slot), branch, &mut budget, visit)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Recursion is bounded by [`LEVELS`].
fn visit_tables<T: TreeRead>(
    tree: &T,
    number: u32,
    branch: Branch,
    budget: &mut u64,
    visit: &mut dyn FnMut(BlockNr, u16) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, T::Error> {
    let geometry = tree.geometry();
    let Some(at) = logical(branch.first) else { return Ok(ControlFlow::Continue(())) };
    let Some(nr) = (Map { geometry: &geometry }).block(number, at)? else {
        return Ok(ControlFlow::Continue(()));
    };
    *budget = spent(&geometry, *budget, at)?;
    let above = hectare_units::low16(u64::from(branch.level - 1));
    if visit(nr, above).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    if above > 0 {
        let held = tree.node(nr)?;
        let mut below = branch.below(branch.first, geometry.block_size);
        for number in numbers(&held) {
            if visit_tables(tree, number.get(), below, budget, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            below = Branch { first: below.first + below.span(geometry.block_size), ..below };
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The run that ends last, as far as its table shows it; `None` if nothing is mapped.
///
/// # Errors
/// As [`for_each`].
pub fn last<T: TreeRead>(tree: &T) -> Result<Option<Extent>, T::Error> {
    let geometry = tree.geometry();
    let mut budget = geometry.blocks_count.get();
    let root = tree.root();
    for level in (1..=LEVELS).rev() {
        let branch = Branch::of_level(level, geometry.block_size);
        let found = last_below(tree, entry(&root, branch.slot), branch, &mut budget)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    let direct = numbers(&root).get(..DIRECT).unwrap_or_default();
    Ok((Map { geometry: &geometry }).last_run(direct, 0)?)
}

/// Recursion is bounded by [`LEVELS`].
fn last_below<T: TreeRead>(
    tree: &T,
    number: u32,
    branch: Branch,
    budget: &mut u64,
) -> Result<Option<Extent>, T::Error> {
    let geometry = tree.geometry();
    let map = Map { geometry: &geometry };
    let Some(at) = logical(branch.first) else { return Ok(None) };
    let Some(nr) = map.block(number, at)? else { return Ok(None) };
    *budget = spent(&geometry, *budget, at)?;
    let held = tree.node(nr)?;
    let first = branch.below(branch.first, geometry.block_size);
    if first.level == 0 {
        return Ok(map.last_run(numbers(&held), first.first)?);
    }
    let span = first.span(geometry.block_size);
    for (slot, number) in numbers(&held).iter().enumerate().rev() {
        let below = Branch { first: first.first + u64_of(slot) * span, ..first };
        let found = last_below(tree, number.get(), below, budget)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Levels of tables that a map has, from its root.
#[must_use]
pub fn height(i_block: &[u8; ROOT_LEN]) -> u32 {
    let has = |level: &u32| entry(i_block, DIRECT - 1 + hectare_units::usize_of(*level)) != 0;
    (1..=LEVELS).rev().find(has).unwrap_or(0)
}

/// Bytes of the longest file with such a map: as far as it reaches, and no more than an inode can count in
/// 512-byte sectors, tables included (as ext4 without `huge_file`).
#[must_use]
pub fn size_max(size: BlockSize) -> u64 {
    let (reach, counted) = (reach(size), u64::from(u32::MAX) >> (size.shift() - 9));
    let all = reach + tables_of(reach, size);
    let blocks = if all <= counted { reach } else { counted - tables_of(counted.min(reach), size) };
    blocks.min(FILE_END - 1) << size.shift()
}

/// Tables above the first `blocks` blocks of a file, at least 12 and no more than a map reaches, without holes.
fn tables_of(blocks: u64, size: BlockSize) -> u64 {
    let mut left = blocks.saturating_sub(u64_of(DIRECT));
    (1..=LEVELS)
        .map(|level| {
            let here = left.min(1 << span_shift(level, size));
            left -= here;
            (1..=level).map(|above| here.div_ceil(1 << span_shift(above, size))).sum::<u64>()
        })
        .sum()
}

/// What is left of a budget of tables after one more.
fn spent(geometry: &TreeGeometry, budget: u64, at: LogicalBlock) -> Result<u64, Corrupt> {
    budget
        .checked_sub(1)
        .ok_or_else(|| corrupt(geometry, at, "it has more tables than the volume has blocks"))
}

/// A finding about the map at one file block.
fn corrupt(geometry: &TreeGeometry, at: LogicalBlock, reason: &'static str) -> Corrupt {
    Corrupt::new("indirect map", Place::FileBlock(geometry.inode, at), reason)
}

/// The number in a slot; 0 outside.
fn entry(bytes: &[u8], slot: usize) -> u32 {
    numbers(bytes).get(slot).map_or(0, |number| number.get())
}

/// The numbers in a table, or in `i_block`; all slices here are whole blocks or 60 bytes.
fn numbers(bytes: &[u8]) -> &[U32] {
    let whole = bytes.len() / size_of::<U32>();
    <[U32]>::ref_from_prefix_with_elems(bytes, whole).map_or(&[], |(numbers, _)| numbers)
}

fn logical(at: u64) -> Option<LogicalBlock> {
    u32::try_from(at).ok().map(LogicalBlock::new)
}

/// The logarithm of how many file blocks lie below `level` tables.
const fn span_shift(level: u32, size: BlockSize) -> u32 {
    level * (size.shift() - 2)
}

/// One number of a map: where it stands, and which file blocks lie below it.
#[derive(Clone, Copy)]
struct Branch {
    /// Its position in its table.
    slot: usize,
    /// How many tables lie between it and data: 0 for the number of a data block.
    level: u32,
    /// The first file block below it.
    first: u64,
}

impl Branch {
    fn span(self, size: BlockSize) -> u64 {
        1 << span_shift(self.level, size)
    }

    /// The number in `i_block` above everything with `level` tables (1 to 3) between it and the inode.
    fn of_level(level: u32, size: BlockSize) -> Self {
        let first = (1..level).map(|below| 1 << span_shift(below, size)).sum::<u64>();
        let slot = DIRECT - 1 + hectare_units::usize_of(level);
        Self { slot, level, first: u64_of(DIRECT) + first }
    }

    /// The number in `i_block` that file block `at` lies below; `None` beyond the third level.
    fn holding(at: u64, size: BlockSize) -> Option<Self> {
        let direct = u64_of(DIRECT);
        if at < direct {
            return Some(Self { slot: hectare_units::index_of(at), level: 0, first: at });
        }
        let mut branch = Self { slot: DIRECT, level: 1, first: direct };
        while at - branch.first >= branch.span(size) {
            branch = Self {
                slot: branch.slot + 1,
                level: branch.level + 1,
                first: branch.first + branch.span(size),
            };
            if branch.level > LEVELS {
                return None;
            }
        }
        Some(branch)
    }

    /// The number in this number's table that file block `at` lies below.
    fn below(self, at: u64, size: BlockSize) -> Self {
        let level = self.level.saturating_sub(1);
        let slot = (at - self.first) >> span_shift(level, size);
        Self {
            slot: hectare_units::index_of(slot),
            level,
            first: self.first + (slot << span_shift(level, size)),
        }
    }
}

#[derive(Clone, Copy)]
struct Map<'a> {
    geometry: &'a TreeGeometry,
}

impl Map<'_> {
    /// The block a number names, checked; `None` for a hole.
    fn block(self, number: u32, at: LogicalBlock) -> Result<Option<BlockNr>, Corrupt> {
        let nr = BlockNr::new(u64::from(number));
        if number == 0 {
            return Ok(None);
        }
        if !self.geometry.holds(nr, 1) {
            let blocks = self.geometry.blocks_count;
            let place = Place::FileBlock(self.geometry.inode, at);
            let reason = format!("it names block {nr}, outside the volume's {blocks}");
            return Err(Corrupt::new("indirect map", place, reason));
        }
        Ok(Some(nr))
    }

    /// The run, or hole, at `at` among the data blocks that `table` names; `branch` is where `at` stands in
    /// it.
    fn run(self, table: &[U32], branch: Branch, at: LogicalBlock) -> Result<Mapping, Corrupt> {
        let rest = table.get(branch.slot..).unwrap_or_default();
        let start = rest.first().map_or(0, |number| number.get());
        let same = |(i, number): (u32, &U32)| {
            if start == 0 { number.get() == 0 } else { start.checked_add(i) == Some(number.get()) }
        };
        let room = FILE_END - u64::from(at.get());
        let len = (0u32..).zip(rest).take_while(|entry| same(*entry)).count();
        let len = low32(u64_of(len).min(room).min(u64::from(WRITTEN_MAX)));
        let Some(physical) = self.block(start, at)? else {
            return Ok(Mapping::Hole { next: logical(u64::from(at.get()) + u64::from(len)) });
        };
        // The run may leave the volume although its first block does not.
        self.block(start.saturating_add(len.saturating_sub(1)), at)?;
        Ok(Mapping::Mapped(Extent { logical: at, len, physical, unwritten: false }))
    }
}

impl Map<'_> {
    /// The last run among the data blocks that `table` names, the first of which is file block `first`.
    fn last_run(self, table: &[U32], first: u64) -> Result<Option<Extent>, Corrupt> {
        let Some(last) = table.iter().rposition(|number| number.get() != 0) else { return Ok(None) };
        let ends = |(slot, number): &(usize, &U32)| {
            number.get() != 0 && u64::from(number.get()) + u64_of(last - slot) == u64::from(table[last].get())
        };
        let len = table[..=last]
            .iter()
            .enumerate()
            .rev()
            .take_while(ends)
            .count()
            .min(hectare_units::usize_of(WRITTEN_MAX));
        let begin = last + 1 - len;
        let Some(logical) = logical(first + u64_of(begin)) else { return Ok(None) };
        self.block(table[last].get(), logical)?;
        let physical = BlockNr::new(table[begin].get().into());
        let len = low32(u64_of(len));
        Ok(Some(Extent { logical, len, physical, unwritten: false }))
    }
}

/// A walk over a map in order.
struct Walk<'a, T> {
    map: Map<'a>,
    from: u64,
    /// Tables that may still be read.
    budget: u64,
    /// The run that may still grow.
    pending: Option<Extent>,
    table: &'a mut T,
    visit: &'a mut dyn FnMut(Extent) -> ControlFlow<()>,
}

impl<T> Walk<'_, T> {
    /// Recursion is bounded by [`LEVELS`].
    fn branch<N: Deref<Target = [u8]>, E: From<Corrupt>>(
        &mut self,
        number: u32,
        branch: Branch,
    ) -> Result<ControlFlow<()>, E>
    where
        T: FnMut(BlockNr) -> Result<N, E>,
    {
        let size = self.map.geometry.block_size;
        let Some(at) = logical(branch.first) else { return Ok(ControlFlow::Continue(())) };
        if number == 0 || branch.first + branch.span(size) <= self.from {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(nr) = self.map.block(number, at)? else { return Ok(ControlFlow::Continue(())) };
        if branch.level == 0 {
            return Ok(self.data(at, nr));
        }
        self.budget = spent(self.map.geometry, self.budget, at)?;
        let held = (self.table)(nr)?;
        let mut below = branch.below(branch.first, size);
        for number in numbers(&held) {
            if self.branch(number.get(), below)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            below = Branch { first: below.first + below.span(size), ..below };
        }
        Ok(ControlFlow::Continue(()))
    }

    fn data(&mut self, at: LogicalBlock, physical: BlockNr) -> ControlFlow<()> {
        let next = Extent { logical: at, len: 1, physical, unwritten: false };
        match &mut self.pending {
            Some(run) if run.joins(&next) => run.len += 1,
            _ => {
                let done = self.flush();
                self.pending = Some(next);
                return done;
            }
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self) -> ControlFlow<()> {
        self.pending.take().map_or(ControlFlow::Continue(()), |run| (self.visit)(run))
    }
}
