//! The fragmentation of a volume: of its free space, region by region, and of its files.
//!
//! All of it is read from a closed volume, opened read-only: block bitmaps, descriptors, the maps of files.
//!
//! **Regions.** The measure is the one of btrfs's comparisons of size classes, with a region of 1 GiB where
//! btrfs has a block group: a region counts if it holds at least one data block of a regular file; its
//! fragmentation is `100 * (1 - longest free run / free bytes)` percent, 0 if nothing is free; it is
//! *fragmented* if that is not 0. A summary ([`Summary`]) is over the fragmented regions only.
//!
//! **What the format fixes.** ext4 lays superblock copies, descriptor tables and their reserve, bitmaps,
//! inode tables and the journal into the volume when it is made. They lie between free blocks, and no policy
//! can move them; btrfs keeps such things in block groups of their own. So two free runs with nothing but
//! fixed metadata between them count as one run, whose length is that of its free blocks. The numbers with
//! such a split are reported beside it (`strict`).
//!
//! **Free extents** are counted as e2freefrag counts them: across the boundaries of groups and regions, split
//! by any used block.

mod files;
mod regions;

pub use files::FileExtents;
pub use regions::{REGION, Region, Summary};

use hectare_engine::{Bucket, Error, FreeExtents, Result, RunJoiner, Volume};
use hectare_ext4::inode::Kind;
use hectare_units::{BlockNr, Blocks, GroupNr, InodeNr, index_of, u64_of};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The free-space fragmentation of a volume.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Fragmentation {
    /// The regions of [`REGION`] bytes in order, those without data too; the last may be shorter.
    pub regions: Vec<Region>,
    /// The free extents of the volume by length, the shortest first.
    pub histogram: Vec<Bucket>,
    /// How many there are.
    pub free_extents: u64,
    /// Their mean length in bytes; 0 if there is none.
    pub mean_free_extent: f64,
}

impl Fragmentation {
    /// Reads it from a volume.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Device`] from descriptors, bitmaps, inodes and their maps.
    pub fn of(volume: &Volume) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let size = geometry.block_size;
        let free = free_runs(volume)?;
        let counted = count(&free, size.bytes().get());
        let mut regions =
            regions::Regions::new(geometry.blocks_count.get(), REGION >> size.shift(), size.bytes().get());
        regions.add_free(&free, &fixed(volume)?);
        each_file(volume, &mut |nr| {
            for extent in volume.open_inode(nr)?.extents()? {
                let start = extent.physical.get();
                regions.add_data(start..start + u64::from(extent.len));
            }
            Ok(())
        })?;
        Ok(Self {
            regions: regions.finish(),
            free_extents: counted.extents,
            mean_free_extent: counted.mean(),
            histogram: counted.histogram,
        })
    }

    /// Over the regions that count and are fragmented.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary::of(&self.regions, Region::percent)
    }

    /// The same, with free runs split by fixed metadata.
    #[must_use]
    pub fn strict_summary(&self) -> Summary {
        Summary::of(&self.regions, Region::strict_percent)
    }
}

/// Counts the free extents of a volume.
///
/// # Errors
/// Those of reading descriptors and bitmaps.
pub fn free_extents(volume: &Volume) -> Result<FreeExtents> {
    Ok(count(&free_runs(volume)?, volume.superblock().geometry().block_size.bytes().get()))
}

fn count(runs: &[Range<u64>], block: u64) -> FreeExtents {
    let mut counted = FreeExtents::default();
    runs.iter().for_each(|run| counted.add(run.end - run.start, block));
    counted
}

/// The free runs of a volume in blocks, joined over the borders of groups.
pub(crate) fn free_runs(volume: &Volume) -> Result<Vec<Range<u64>>> {
    let (mut joiner, mut runs) = (RunJoiner::default(), Vec::new());
    for group in 0..volume.group_count() {
        for run in volume.free_runs(GroupNr::new(group))? {
            runs.extend(joiner.push(run.start.get()..run.end.get()));
        }
    }
    runs.extend(joiner.finish());
    Ok(runs)
}

/// Adds a range that starts where the last one ends, or after it.
fn push_joined(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

/// Where fixed metadata lies, in order.
fn fixed(volume: &Volume) -> Result<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut add =
        |start: BlockNr, len: u32| ranges.push(start.get()..(start + Blocks::new(len.into())).get());
    for group in 0..volume.group_count() {
        let report = volume.group_report(GroupNr::new(group))?;
        if let Some(block) = report.superblock {
            add(block, 1);
        }
        for table in [report.descriptors, report.reserved_descriptors].into_iter().flatten() {
            add(table.start, u32::try_from((table.end - table.start).get()).unwrap_or(0));
        }
        add(report.desc.block_bitmap, 1);
        add(report.desc.inode_bitmap, 1);
        add(report.desc.inode_table, report.itable_blocks);
    }
    if let Some(journal) = volume.superblock().journal_inode() {
        for extent in volume.open_inode(journal)?.extents()? {
            add(extent.physical, extent.len);
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined = Vec::new();
    ranges.into_iter().for_each(|range| push_joined(&mut joined, range));
    Ok(joined)
}

/// Calls `visit` with every regular file of the volume, by the inode bitmaps; reserved inodes are none.
fn each_file(volume: &Volume, visit: &mut dyn FnMut(InodeNr) -> Result<()>) -> Result<()> {
    let geometry = volume.superblock().geometry();
    for group in (0..volume.group_count()).map(GroupNr::new) {
        if volume.group_report(group)?.desc.free_inodes == geometry.inodes_per_group {
            continue;
        }
        for (index, word) in volume.inode_bitmap(group)?.into_iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let slot = u64_of(index) * 64 + u64::from(bit);
                let slot = u32::try_from(slot).unwrap_or(u32::MAX);
                let nr = geometry.inode_at(group, slot.min(geometry.inodes_per_group - 1));
                let known = slot < geometry.inodes_per_group && nr >= volume.superblock().first_inode();
                if known && is_file(volume, nr)? {
                    visit(nr)?;
                }
            }
        }
    }
    Ok(())
}

fn is_file(volume: &Volume, nr: InodeNr) -> Result<bool> {
    match volume.stat(nr) {
        Ok(found) => Ok(found.kind == Kind::File),
        // Set in the bitmap but without a link: an orphan, which belongs to no directory.
        Err(Error::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The share of a sorted list below which `percent` of it lies (nearest rank); 0 of none.
fn percentile(sorted: &[f64], percent: u64) -> f64 {
    let rank = (u64_of(sorted.len()) * percent).div_ceil(100).max(1);
    sorted.get(index_of(rank - 1)).copied().unwrap_or(0.0)
}
