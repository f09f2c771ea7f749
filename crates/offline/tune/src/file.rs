//! Makes and frees the files that belong to the volume itself: the journal, quota files, the orphan file.

use crate::error::Result;
use crate::tree::FileMap;
use crate::volume::Volume;
use hectare_ext4::checksum::Seed;
use hectare_ext4::extent::{self, Extent, WRITTEN_MAX};
use hectare_ext4::feature::Incompat;
use hectare_ext4::indirect;
use hectare_ext4::inode::{BLOCK_BYTES, Inode, InodeFlags};
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock, low32, u64_of};
use std::ops::Range;

/// What a new file is to be.
pub(crate) struct NewFile {
    pub(crate) nr: InodeNr,
    /// Blocks of content, at least one.
    pub(crate) blocks: u32,
    /// The block from which on space is looked for.
    pub(crate) goal: BlockNr,
    pub(crate) now: Timestamp,
}

impl NewFile {
    /// Takes space for the file, writes its map, and returns its inode, which is not written yet, with the
    /// runs of its content, which reads as zeros.
    pub(crate) fn make(&self, volume: &mut Volume<'_>) -> Result<(Inode, Vec<Range<u64>>)> {
        let runs = volume.take(self.blocks.into(), self.goal)?;
        for run in &runs {
            volume.zero(run.clone())?;
        }
        let extents = extents(&runs);
        let size = volume.geometry().block_size;
        let has_extents = volume.sb().features().incompat.contains(Incompat::EXTENTS);
        let seed = volume.sb().seed().map(|seed| seed.inode(self.nr, 0));
        let (root, nodes) = write_map(volume, &extents, has_extents.then_some(seed), self.goal)?;
        let mut inode = Inode::new(0o100_600, self.now, 0, volume.sb());
        inode.links = 1;
        inode.size = Blocks::new(self.blocks.into()).bytes(size).get();
        inode.block = root;
        if has_extents {
            inode.flags |= InodeFlags::EXTENTS;
        }
        let ratio = u64::from(volume.geometry().cluster_blocks());
        let data: u64 = runs.iter().map(|run| (run.end - run.start).next_multiple_of(ratio)).sum();
        inode.sectors = (data + nodes * ratio) << (size.shift() - 9);
        Ok((inode, runs))
    }
}

/// Writes the nodes of a map in space that is taken for them; returns its root and how many nodes there are.
/// `extents` is the seed of the nodes' checksums if the map is one of extents.
pub(crate) fn write_map(
    volume: &mut Volume<'_>,
    content: &[Extent],
    extents: Option<Option<Seed>>,
    goal: BlockNr,
) -> Result<([u8; BLOCK_BYTES], u64)> {
    let size = volume.geometry().block_size;
    let nodes = match extents {
        Some(_) => extent::tree_blocks(content.len(), size).get(),
        None => tables(content, size),
    };
    let ratio = u64::from(volume.geometry().cluster_blocks());
    // A cluster for each.
    let taken = if nodes > 0 { volume.take(nodes * ratio, goal)? } else { Vec::new() };
    let starts = taken.iter().flat_map(|run| run.clone().step_by(hectare_units::index_of(ratio)));
    let mut free = starts.map(BlockNr::new);
    let mut next = || free.next().expect("as many blocks as nodes were taken");
    let built = match extents {
        Some(seed) => extent::build(content, size, seed, &mut next),
        None => indirect::build(content, size, &mut next),
    };
    for (block, bytes) in &built.nodes {
        volume.write(*block, bytes)?;
    }
    Ok((built.root, nodes))
}

/// Tables that a map of blocks takes.
fn tables(content: &[Extent], size: BlockSize) -> u64 {
    let mut before = None;
    let mut tables = 0;
    for block in content.iter().flat_map(|extent| {
        let first = extent.logical.get();
        first..first + extent.len
    }) {
        let block = LogicalBlock::new(block);
        tables += u64::from(indirect::tables_between(before, block, size));
        before = Some(block);
    }
    tables
}

/// Runs as extents, cut to the longest there is.
pub(crate) fn extents(runs: &[Range<u64>]) -> Vec<Extent> {
    let (mut extents, mut logical) = (Vec::new(), 0);
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            let len = low32((run.end - at).min(WRITTEN_MAX.into()));
            let (first, physical) = (LogicalBlock::new(logical), BlockNr::new(at));
            extents.push(Extent { logical: first, len, physical, unwritten: false });
            logical += len;
            at += u64::from(len);
        }
    }
    extents
}

/// Frees a file of the volume's own with its inode, and returns how many clusters its content had.
pub(crate) fn remove(volume: &mut Volume<'_>, nr: InodeNr) -> Result<u64> {
    let inode = volume.inode(nr)?;
    let map = FileMap::of(volume, nr, &inode)?;
    let before = volume.free_blocks()?;
    volume.give_back(&map.runs())?;
    let nodes = u64_of(map.nodes.len());
    let clusters = (volume.free_blocks()? - before) >> volume.geometry().cluster_ratio_shift;
    volume.give_back_inode(nr)?;
    Ok(clusters.saturating_sub(nodes))
}
