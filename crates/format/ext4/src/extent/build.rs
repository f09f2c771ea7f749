//! Builds a tree in one go from extents that are all known, for populate: every node is full but the last of
//! its level.

use super::node::{capacity, index_slot, set_checksum};
use super::raw::RawEntry;
use super::{Extent, ROOT_LEN, edit};
use crate::checksum::Seed;
use hectare_units::{BlockNr, BlockSize, Blocks, LogicalBlock, low16, u64_of};

/// A finished tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Built {
    /// The root, the inode's `i_block`.
    pub root: [u8; ROOT_LEN],
    /// The node blocks and where they go: leaves first, in the order of the file.
    pub nodes: Vec<(BlockNr, Vec<u8>)>,
}

/// How many node blocks [`build`] takes for `extents` extents. The same with and without checksums: there is
/// always room for one behind the entries.
#[must_use]
pub fn tree_blocks(extents: usize, block_size: BlockSize) -> Blocks {
    let (mut entries, mut blocks) = (extents, 0);
    while entries > capacity(ROOT_LEN) {
        entries = entries.div_ceil(capacity(block_size.len()));
        blocks += u64_of(entries);
    }
    Blocks::new(blocks)
}

/// Builds the tree of `extents`, which are sorted, do not overlap and keep the format's limits. `next` gives
/// the blocks for nodes, [`tree_blocks`] of them; with a seed (the inode's, on a volume with `metadata_csum`)
/// the nodes carry their checksums.
///
/// 2^32 file blocks make fewer than 52 million full leaves of 1 KiB, so that five levels always suffice.
#[must_use]
pub fn build(
    extents: &[Extent],
    block_size: BlockSize,
    seed: Option<Seed>,
    next: &mut dyn FnMut() -> BlockNr,
) -> Built {
    debug_assert!(
        extents.windows(2).all(|pair| pair[0].end() <= u64::from(pair[1].logical.get())),
        "extents come sorted"
    );
    let mut level: Vec<(LogicalBlock, RawEntry)> = extents.iter().map(|e| (e.logical, e.encode())).collect();
    let (mut nodes, mut depth) = (Vec::new(), 0);
    while level.len() > capacity(ROOT_LEN) {
        let mut above = Vec::with_capacity(level.len().div_ceil(capacity(block_size.len())));
        for entries in level.chunks(capacity(block_size.len())) {
            let mut bytes = vec![0; block_size.len()];
            fill(&mut bytes, depth, entries);
            if let Some(seed) = seed {
                set_checksum(&mut bytes, seed);
            }
            let nr = next();
            above.extend(entries.first().map(|(first, _)| (*first, index_slot(*first, nr))));
            nodes.push((nr, bytes));
        }
        level = above;
        depth += 1;
    }
    let mut root = [0; ROOT_LEN];
    fill(&mut root, depth, &level);
    Built { root, nodes }
}

/// Makes `bytes` a node with `entries`, which fit.
fn fill(bytes: &mut [u8], depth: u16, entries: &[(LogicalBlock, RawEntry)]) {
    edit::format(bytes, depth);
    let (header, space) = bytes.split_at_mut(size_of::<super::raw::Header>());
    for (space, (_, slot)) in space.chunks_exact_mut(slot_len()).zip(entries) {
        space.copy_from_slice(slot);
    }
    header[2..4].copy_from_slice(&low16(u64_of(entries.len())).to_le_bytes());
}

const fn slot_len() -> usize {
    size_of::<RawEntry>()
}
