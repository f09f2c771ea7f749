//! Builds indirect maps whole, from the extents of a file.
//!
//! Tables are taken in the order in which a walk meets them: each right before the first block below it. So a
//! caller that gives out blocks in that order ([`tables_between`], [`run`]) gets a map whose tables lie
//! before what they map, among the data.
//!
//! Invariant: a table exists only where something below it is mapped.
//!
//! Hazard: an entry has 32 bits. Volumes with more blocks have the feature `64bit`, which needs extents.

use super::{Branch, DIRECT, span_shift};
use crate::extent::{Built, Extent, ROOT_LEN};
use hectare_units::{BlockNr, BlockSize, LogicalBlock, index_of, low32, u64_of, usize_of};

/// How many blocks of a file a map reaches, the first one included.
#[must_use]
pub fn reach(size: BlockSize) -> u64 {
    let each = entries(size);
    u64_of(DIRECT) + each + each.pow(2) + each.pow(3)
}

/// File blocks from `at` on that are named by the same table, or by the inode.
#[must_use]
pub fn run(at: LogicalBlock, size: BlockSize) -> u64 {
    let (at, direct) = (u64::from(at.get()), u64_of(DIRECT));
    at.checked_sub(direct).map_or_else(|| direct - at, |beyond| entries(size) - beyond % entries(size))
}

/// Tables on the way to file block `at` that are not on the way to `before`, a block before it. None of them
/// exists before `at` is mapped if `before` was the last one mapped.
#[must_use]
pub fn tables_between(before: Option<LogicalBlock>, at: LogicalBlock, size: BlockSize) -> u32 {
    let holding = |at: LogicalBlock| Branch::holding(u64::from(at.get()), size);
    let Some(branch) = holding(at) else { return 0 };
    let shared = before.filter(|before| holding(*before).is_some_and(|other| other.slot == branch.slot));
    let Some(before) = shared else { return branch.level };
    let table = |at: LogicalBlock, level| (u64::from(at.get()) - branch.first) >> span_shift(level, size);
    low32(u64_of((1..=branch.level).filter(|level| table(at, *level) != table(before, *level)).count()))
}

/// Builds the map of `extents`, which are sorted, do not overlap, and lie within [`reach`]. `next` gives the
/// blocks for tables.
#[must_use]
pub fn build(extents: &[Extent], size: BlockSize, next: &mut dyn FnMut() -> BlockNr) -> Built {
    let mut map =
        Building { size, built: Built { root: [0; ROOT_LEN], nodes: Vec::new() }, path: Vec::new() };
    let mut before = None;
    for extent in extents {
        let (mut at, mut physical, mut left) = (extent.logical, extent.physical.get(), u64::from(extent.len));
        while left > 0 {
            let len = run(at, size).min(left);
            map.enter(at, tables_between(before, at, size), next);
            map.name(at, physical..physical + len);
            let last = at.get() + low32(len - 1);
            before = Some(LogicalBlock::new(last));
            (at, physical, left) = (LogicalBlock::new(last.wrapping_add(1)), physical + len, left - len);
        }
    }
    map.built
}

/// Numbers in a table.
fn entries(size: BlockSize) -> u64 {
    u64::from(size.get() / 4)
}

struct Building {
    size: BlockSize,
    built: Built,
    /// The tables on the way to the block at hand, from the top, as indexes of nodes.
    path: Vec<usize>,
}

impl Building {
    /// Makes the last `new` tables on the way to `at`.
    fn enter(&mut self, at: LogicalBlock, new: u32, next: &mut dyn FnMut() -> BlockNr) {
        let Some(mut branch) = Branch::holding(u64::from(at.get()), self.size) else { return };
        self.path.truncate(usize_of(branch.level - new));
        let made = self.path.len();
        for depth in 0..usize_of(branch.level) {
            if depth >= made {
                let nr = next();
                put(self.table(depth), branch.slot, nr.get());
                self.path.push(self.built.nodes.len());
                self.built.nodes.push((nr, vec![0; self.size.len()]));
            }
            branch = branch.below(u64::from(at.get()), self.size);
        }
    }

    /// The table at a depth: above all tables is the root.
    fn table(&mut self, depth: usize) -> &mut [u8] {
        match depth.checked_sub(1).and_then(|above| self.path.get(above)) {
            Some(node) => &mut self.built.nodes[*node].1,
            None => &mut self.built.root,
        }
    }

    /// Names the blocks from file block `at` on, which one table has.
    fn name(&mut self, at: LogicalBlock, blocks: std::ops::Range<u64>) {
        let direct = u64_of(DIRECT);
        let file_block = u64::from(at.get());
        let slot = file_block.checked_sub(direct).map_or(file_block, |beyond| beyond % entries(self.size));
        let table = self.table(self.path.len());
        for (slot, nr) in (index_of(slot)..).zip(blocks) {
            put(table, slot, nr);
        }
    }
}

/// Writes the number in a slot of a table, or of the inode.
pub(super) fn put(table: &mut [u8], slot: usize, nr: u64) {
    table[4 * slot..4 * slot + 4].copy_from_slice(&low32(nr).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::TreeGeometry;
    use hectare_units::{Blocks, InodeNr};
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    fn extent(logical: u32, len: u32, physical: u64) -> Extent {
        Extent {
            logical: LogicalBlock::new(logical),
            len,
            physical: BlockNr::new(physical),
            unwritten: false,
        }
    }

    /// Builds, checks the count of tables, and reads the map again.
    fn survives(extents: &[Extent], size: BlockSize) {
        let mut given = 5_000_000;
        let built = build(extents, size, &mut || {
            given += 1;
            BlockNr::new(given)
        });
        let (mut before, mut counted) = (None, 0);
        for at in extents.iter().flat_map(|extent| u64::from(extent.logical.get())..extent.end()) {
            let at = LogicalBlock::new(low32(at));
            counted += tables_between(before, at, size);
            before = Some(at);
        }
        assert_eq!(u64_of(built.nodes.len()), u64::from(counted));
        let numbers: Vec<u64> = built.nodes.iter().map(|(nr, _)| nr.get()).collect();
        assert!(numbers.is_sorted(), "each is taken before those below it");
        let nodes: BTreeMap<BlockNr, Vec<u8>> = built.nodes.into_iter().collect();
        let geometry = TreeGeometry {
            inode: InodeNr::new(12),
            block_size: size,
            first_data_block: BlockNr::new(0),
            blocks_count: Blocks::new(10_000_000),
        };
        let mut read = Vec::new();
        let table = |nr| Ok::<_, crate::Corrupt>(nodes[&nr].as_slice());
        super::super::for_each(&built.root, &geometry, LogicalBlock::ZERO, table, &mut |extent| {
            read.push(extent);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(read, extents);
    }

    #[test]
    fn what_is_built_is_what_is_read() {
        for size in [BlockSize::KIB1, BlockSize::KIB4] {
            let each = low32(entries(size));
            for edge in [1, 12, 13, 12 + each, 12 + each + 1, 12 + each + each * each, 30_000] {
                survives(&[extent(0, edge.min(32_768), 1000)], size);
                survives(
                    &[extent(edge - 1, 1, 77), extent(edge, 2, 5), extent(edge + 5 * each, 1, 99)],
                    size,
                );
            }
            survives(&[extent(3, 1, 1), extent(12 + each + each * each + 7, 3, 40)], size);
            survives(&[extent(low32(reach(size).min(1 << 32) - 1), 1, 9)], size);
            survives(&[], size);
        }
    }

    #[test]
    fn a_run_ends_with_its_table() {
        let size = BlockSize::KIB1;
        for (at, expected) in [(0, 12), (11, 1), (12, 256), (267, 1), (268, 256), (300, 224)] {
            assert_eq!(run(LogicalBlock::new(at), size), expected, "{at}");
        }
        assert_eq!(reach(size), 12 + 256 + 65_536 + 16_777_216);
    }
}
