//! Unmaps a range of an indirect map, in bounded steps from its end to its beginning.
//!
//! A table that names nothing any more is freed, also if it was empty before: other writers leave empty
//! tables. Whatever has been removed so far, the rest is a map of the same file that is a little shorter, or
//! has a larger hole.
//!
//! Hazard: nothing says that a block is a table. A number is checked before its table changes; if one is
//! wrong after others were unmapped, the step ends before it, and the next one finds it with nothing changed.

use super::build::put;
use super::{Branch, DIRECT, LEVELS, Map, entry, numbers, reach};
use crate::error::Corrupt;
use crate::extent::{Progress, TreeGeometry, TreeWrite};
use hectare_units::{BlockNr, LogicalBlock, low32, u64_of};
use std::ops::Range;

/// Unmaps the file blocks from `from` to before `to_exclusive`, but at most `limit` runs of them (at least
/// one), starting at the end; a table that is freed counts like a run. `freed` is called with each run of
/// blocks no longer mapped: its volume block, its length, its file block.
///
/// One call changes at most two tables on each level beside those that it frees.
///
/// # Errors
/// When a table can't be read, or a number is wrong; nothing has changed then. After an error of the store in
/// the middle of changing, the map may be in between.
pub fn remove<T: TreeWrite>(
    tree: &mut T,
    from: LogicalBlock,
    to_exclusive: u64,
    limit: usize,
    freed: &mut dyn FnMut(BlockNr, u32, LogicalBlock),
) -> Result<Progress, T::Error> {
    let geometry = tree.geometry();
    let range = u64::from(from.get())..to_exclusive.min(reach(geometry.block_size));
    let limit = limit.max(1);
    let mut removal = Removal { geometry: &geometry, range, limit, left: limit, stopped: false, freed };
    let mut root: Vec<u32> = numbers(&tree.root()).iter().map(|number| number.get()).collect();
    let mut changed = false;
    for level in (1..=LEVELS).rev() {
        let slot = Branch::of_level(level, geometry.block_size);
        changed |= removal.below(tree, &mut root[slot.slot], slot)?;
    }
    changed |= removal.data::<T>(&mut root[..DIRECT], 0)?;
    if changed {
        tree.edit_root(|bytes| store(bytes, &root));
    }
    Ok(if removal.stopped { Progress::More } else { Progress::Done })
}

fn store(bytes: &mut [u8], numbers: &[u32]) {
    for (slot, number) in numbers.iter().enumerate() {
        if entry(bytes, slot) != *number {
            put(bytes, slot, u64::from(*number));
        }
    }
}

struct Removal<'a> {
    geometry: &'a TreeGeometry,
    range: Range<u64>,
    limit: usize,
    left: usize,
    /// Whether something may be left in the range.
    stopped: bool,
    freed: &'a mut dyn FnMut(BlockNr, u32, LogicalBlock),
}

impl Removal<'_> {
    /// Unmaps what lies below a number of a table, and sets it to 0 if the table is empty then; returns
    /// whether it did.
    fn below<T: TreeWrite>(
        &mut self,
        tree: &mut T,
        number: &mut u32,
        branch: Branch,
    ) -> Result<bool, T::Error> {
        let end = branch.first + branch.span(self.geometry.block_size);
        if *number == 0 || self.stopped || branch.first >= self.range.end || end <= self.range.start {
            return Ok(false);
        }
        if self.left == 0 {
            self.stopped = true;
            return Ok(false);
        }
        let at = LogicalBlock::new(low32(branch.first));
        let map = Map { geometry: self.geometry };
        let Some(nr) = self.unless_begun(map.block(*number, at))?.flatten() else {
            return Ok(false);
        };
        if !self.table(tree, nr, branch)? {
            return Ok(false);
        }
        tree.free(nr)?;
        self.left = self.left.saturating_sub(1);
        *number = 0;
        Ok(true)
    }

    /// Unmaps what lies below a table; returns whether it names nothing any more.
    fn table<T: TreeWrite>(&mut self, tree: &mut T, nr: BlockNr, branch: Branch) -> Result<bool, T::Error> {
        let read = tree.node(nr).map(|held| numbers(&held).iter().map(|number| number.get()).collect());
        let Some(mut named) = self.unless_begun::<Vec<u32>, _>(read)? else { return Ok(false) };
        let first = branch.below(branch.first, self.geometry.block_size);
        let mut changed = false;
        if first.level == 0 {
            changed = self.data::<T>(&mut named, branch.first)?;
        } else {
            let span = first.span(self.geometry.block_size);
            for (slot, number) in named.iter_mut().enumerate().rev() {
                let branch = Branch { slot, first: branch.first + u64_of(slot) * span, ..first };
                changed |= self.below(tree, number, branch)?;
            }
        }
        if named.iter().all(|number| *number == 0) {
            return Ok(true);
        }
        if changed {
            tree.edit(nr, |bytes| store(bytes, &named))?;
        }
        Ok(false)
    }

    /// Unmaps data blocks named by neighbouring numbers, the first of which is that of file block `first`;
    /// returns whether there were any.
    fn data<T: TreeWrite>(&mut self, named: &mut [u32], first: u64) -> Result<bool, T::Error> {
        let slot = |at: u64| hectare_units::index_of(at.saturating_sub(first)).min(named.len());
        let (start, mut end) = (slot(self.range.start), slot(self.range.end));
        let at = |slot: usize| LogicalBlock::new(low32(first + u64_of(slot)));
        let map = Map { geometry: self.geometry };
        let wrong = (start..end).find_map(|slot| map.block(named[slot], at(slot)).err());
        if self.unless_begun(wrong.map_or(Ok(()), |wrong: Corrupt| Err(T::Error::from(wrong))))?.is_none() {
            return Ok(false);
        }
        let mut any = false;
        while let Some(last) = (start..end).rev().find(|slot| named[*slot] != 0) {
            if self.left == 0 {
                self.stopped = true;
                break;
            }
            let joins =
                |slot: &usize| named[slot - 1].checked_add(1).is_some_and(|next| next == named[*slot]);
            let begin = last
                - (start + 1..=last).rev().take_while(joins).take_while(|slot| named[slot - 1] > 0).count();
            (self.freed)(BlockNr::new(named[begin].into()), low32(u64_of(last - begin)) + 1, at(begin));
            named[begin..=last].fill(0);
            (self.left, end, any) = (self.left - 1, begin, true);
        }
        Ok(any)
    }

    /// What was read, or the error of reading it; `None`, and the end of this step, if that comes after
    /// something was unmapped.
    fn unless_begun<R, E>(&mut self, read: Result<R, E>) -> Result<Option<R>, E> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(_) if self.left < self.limit => {
                self.stopped = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
