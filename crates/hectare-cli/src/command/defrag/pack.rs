//! Plans which extents to move towards the front of a volume, so that free space becomes whole at its end.
//!
//! The extents that lie last move first, each into the first free run that holds it and lies before it. What
//! a move frees is not filled again: it becomes part of the free space that grows.
//!
//! Invariants: no extent is cut, and none that another of its file continues is moved, so that no file comes
//! to lie in more places than before. Every place is free before the first move, and taken once.
//!
//! What it is not: it is no best packing, for which everything would have to move. A run is searched for
//! among those of the size classes that hold the extent, and the first [`LOOKED_AT`] of its own class.

use hectare_ext4::extent::Extent;
use hectare_units::{BlockNr, InodeNr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Runs of an extent's own size class that are looked at.
const LOOKED_AT: usize = 64;

/// One extent and the place it is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) nr: InodeNr,
    pub(super) extent: Extent,
    pub(super) to: BlockNr,
}

/// Those extents of a file that may move: the ones that no neighbour in the file continues on the volume.
pub(super) fn movable(extents: &[Extent]) -> impl Iterator<Item = Extent> + '_ {
    let joined = |a: &Extent, b: &Extent| {
        a.end() == u64::from(b.logical.get()) && a.physical.get() + u64::from(a.len) == b.physical.get()
    };
    let is_alone = move |at: usize| {
        let (before, after) = (at.checked_sub(1).and_then(|at| extents.get(at)), extents.get(at + 1));
        !before.is_some_and(|before| joined(before, &extents[at]))
            && !after.is_some_and(|after| joined(&extents[at], after))
    };
    (0..extents.len()).filter(move |at| is_alone(*at)).map(|at| extents[at])
}

/// Free runs by their start, and by the power of two that their length reaches.
#[derive(Default)]
struct Runs {
    lengths: BTreeMap<u64, u64>,
    classes: BTreeMap<u32, BTreeSet<u64>>,
}

impl Runs {
    fn add(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.lengths.insert(start, len);
            self.classes.entry(len.ilog2()).or_default().insert(start);
        }
    }

    fn remove(&mut self, start: u64) -> u64 {
        let len = self.lengths.remove(&start).unwrap_or(0);
        if let Some(class) = len.checked_ilog2().and_then(|class| self.classes.get_mut(&class)) {
            class.remove(&start);
        }
        len
    }

    /// Takes `len` blocks from the first run that holds them and begins before `end`.
    fn take(&mut self, len: u64, end: u64) -> Option<u64> {
        let own = len.checked_ilog2()?;
        let larger = self.classes.range(own + 1..).filter_map(|(_, class)| class.first().copied());
        let same = self.classes.get(&own).into_iter().flatten().take(LOOKED_AT).copied();
        let same = same.filter(|start| self.lengths.get(start).is_some_and(|room| *room >= len));
        let start = larger.chain(same).min().filter(|start| *start + len <= end)?;
        let room = self.remove(start);
        self.add(start + len, room - len);
        Some(start)
    }
}

/// The moves, in order, for free runs and extents in any order.
pub(super) fn plan(free: &[Range<u64>], mut extents: Vec<(InodeNr, Extent)>) -> Vec<Move> {
    let mut runs = Runs::default();
    free.iter().for_each(|run| runs.add(run.start, run.end - run.start));
    extents.sort_by_key(|(_, extent)| std::cmp::Reverse(extent.physical));
    let taken = |(nr, extent): (InodeNr, Extent)| {
        let to = runs.take(extent.len.into(), extent.physical.get())?;
        Some(Move { nr, extent, to: BlockNr::new(to) })
    };
    extents.into_iter().filter_map(taken).collect()
}

/// Of free runs the number, and the length of the longest, once some moves are made. Runs that touch count as
/// one.
pub(super) fn after(free: &[Range<u64>], moves: &[Move]) -> (u64, u64) {
    // Where free space begins and ends, as steps.
    let mut steps: BTreeMap<u64, i64> = BTreeMap::new();
    let mut step = |run: Range<u64>, by: i64| {
        *steps.entry(run.start).or_default() += by;
        *steps.entry(run.end).or_default() -= by;
    };
    free.iter().for_each(|run| step(run.clone(), 1));
    for Move { extent, to, .. } in moves {
        let len = u64::from(extent.len);
        step(to.get()..to.get() + len, -1);
        step(extent.physical.get()..extent.physical.get() + len, 1);
    }
    let (mut count, mut longest, mut depth, mut start) = (0, 0, 0, 0);
    for (at, by) in steps.into_iter().filter(|(_, by)| *by != 0) {
        if depth == 0 {
            (start, count) = (at, count + 1);
        }
        depth += by;
        if depth == 0 {
            longest = longest.max(at - start);
        }
    }
    (count, longest)
}

/// Blocks that moves copy.
pub(super) fn blocks(moves: &[Move]) -> u64 {
    moves.iter().map(|Move { extent, .. }| u64::from(extent.len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::LogicalBlock;

    fn extent(logical: u32, physical: u64, len: u32) -> Extent {
        Extent {
            logical: LogicalBlock::new(logical),
            len,
            physical: BlockNr::new(physical),
            unwritten: false,
        }
    }

    #[test]
    fn the_last_extents_move_to_the_first_places_that_hold_them() {
        let nr = InodeNr::new(12);
        let free = [10..14, 20..22, 50..60];
        let all = vec![(nr, extent(0, 30, 3)), (nr, extent(9, 70, 2)), (nr, extent(20, 40, 9))];
        let moves = plan(&free, all);
        let places: Vec<_> = moves.iter().map(|m| (m.extent.physical.get(), m.to.get())).collect();
        // The one at 40 fits nowhere before it, and the one at 30 no more: two of four blocks are left.
        assert_eq!(places, [(70, 10)]);
        assert_eq!(after(&free, &[]), (3, 10));
        assert_eq!(after(&free, &moves), (4, 10));
        assert_eq!(blocks(&moves), 2);
    }

    #[test]
    fn what_is_freed_joins_what_is_free() {
        let free = [10..14, 74..80];
        let moves = plan(&free, vec![(InodeNr::new(12), extent(0, 70, 4))]);
        assert_eq!(moves.len(), 1);
        assert_eq!(after(&free, &moves), (1, 10));
    }

    #[test]
    fn extents_that_continue_each_other_stay() {
        let extents = [extent(0, 100, 4), extent(4, 104, 4), extent(8, 200, 4), extent(20, 204, 1)];
        let found: Vec<_> = movable(&extents).map(|extent| extent.physical.get()).collect();
        // The last two touch on the volume, but there is a hole between them in the file.
        assert_eq!(found, [200, 204]);
    }
}
