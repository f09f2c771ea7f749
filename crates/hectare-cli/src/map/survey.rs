//! Surveys a volume into the cells of a picture.
//!
//! A small volume has cells of some blocks, rows of them for each group; a larger one has a cell for each
//! group; one with more groups than a picture has room for has a cell for several. A cell counts what lies in
//! it, wherever the group that owns it is: with `flex_bg` the inode tables of many groups lie in one.

use crate::failure::LeftOut;
use crate::free_extents::FreeSpace;
use crate::image::Image;
use hectare_engine::GroupReport;
use hectare_ext4::geometry::Geometry;
use hectare_units::{BlockNr, GroupNr, index_of, low32, u64_of, usize_of};
use std::ops::Range;

/// Up to this many groups each get a band of cells.
const BANDS_MAX: u32 = 96;
/// Cells in a row of a band.
pub(crate) const BAND_COLUMNS: u32 = 128;
/// Rows that all bands together have at most.
const BAND_ROWS_MAX: u32 = 96;
/// Rows of one band at most.
const ROWS_EACH_MAX: u32 = 16;
/// Cells that a picture has at most, where a cell is one group or several.
const CELLS_MAX: u32 = 6000;

/// How cells stand for blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Each group has this many rows of [`BAND_COLUMNS`] cells of `blocks` blocks each.
    Bands { rows: u32, blocks: u32 },
    /// Each cell stands for this many groups.
    Grid { groups: u32 },
}

/// What lies in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    /// Blocks of the volume; fewer in the last.
    pub(crate) blocks: u64,
    /// Free ones.
    pub(crate) free: u64,
    /// Those of the format: superblocks, descriptors, bitmaps, inode tables.
    pub(crate) metadata: u64,
    /// The longest free run.
    pub(crate) longest: u64,
    /// The last free run so far: where it ends, and its length.
    last: (u64, u64),
    /// Whether a bitmap or descriptor of it could not be read.
    pub(crate) unreadable: bool,
}

impl Cell {
    /// How full of files it is, excluding the format's blocks, 0 to 256.
    pub(crate) fn fill(&self) -> u32 {
        let room = self.blocks.saturating_sub(self.metadata);
        share(room.saturating_sub(self.free), room)
    }

    /// How much of its free space lies outside the longest run, 0 to 256.
    pub(crate) fn fragmentation(&self) -> u32 {
        share(self.free.saturating_sub(self.longest), self.free)
    }

    /// How much of it is the format's, 0 to 256.
    pub(crate) fn metadata_share(&self) -> u32 {
        share(self.metadata.min(self.blocks), self.blocks)
    }
}

/// A share in 256ths; what there is at all is at least 1.
fn share(part: u64, whole: u64) -> u32 {
    if part == 0 || whole == 0 {
        return 0;
    }
    low32((u128::from(part) * 256 / u128::from(whole)).clamp(1, 256).try_into().unwrap_or(256))
}

/// A volume in cells.
pub(crate) struct Survey {
    pub(crate) shape: Shape,
    pub(crate) cells: Vec<Cell>,
    /// Free extents by size.
    pub(crate) space: FreeSpace,
    /// Groups of the volume.
    pub(crate) groups: u32,
}

/// The shape that suits a volume.
fn shape(geometry: &Geometry) -> Shape {
    let groups = geometry.groups();
    if groups > BANDS_MAX {
        return Shape::Grid { groups: groups.div_ceil(CELLS_MAX) };
    }
    // A power of two, so that cells are powers of two as well and fill the rows.
    let rows = 1 << (BAND_ROWS_MAX / groups).clamp(1, ROWS_EACH_MAX).ilog2();
    // A volume of one part of a group has cells for that part only.
    let longest = geometry.blocks_in(GroupNr::new(0));
    let cluster = geometry.cluster_blocks();
    Shape::Bands { rows, blocks: longest.div_ceil(rows * BAND_COLUMNS).next_multiple_of(cluster) }
}

/// Surveys a volume. Groups that can't be read are reported and marked.
pub(crate) fn survey(image: &Image, left_out: &LeftOut) -> Survey {
    let volume = image.volume();
    let geometry = volume.superblock().geometry();
    let shape = shape(geometry);
    let mut survey =
        Survey { shape, cells: Vec::new(), space: FreeSpace::new(None), groups: geometry.groups() };
    survey.measure(geometry);
    let mut rest = 0..geometry.groups();
    for group in image.groups(left_out) {
        rest.start = group.get() + 1;
        let report = volume.group_report(group);
        let runs = volume.free_runs(group);
        match report {
            Ok(report) => survey.add_metadata(geometry, &report),
            Err(error) => {
                left_out.tell(image.name(), error);
                survey.mark(geometry, group);
                continue; // its bitmap can't be read either
            }
        }
        match runs {
            Ok(runs) => runs.into_iter().for_each(|run| survey.add_free(geometry, run)),
            Err(error) => {
                left_out.tell(image.name(), error);
                survey.mark(geometry, group);
            }
        }
    }
    rest.for_each(|nr| survey.mark(geometry, GroupNr::new(nr)));
    survey.space.finish();
    survey
}

impl Survey {
    /// Cells of a full group, where groups have several.
    pub(crate) fn cells_each(&self) -> u32 {
        match self.shape {
            Shape::Bands { rows, .. } => rows * BAND_COLUMNS,
            Shape::Grid { .. } => 1,
        }
    }

    /// Makes the cells, with the blocks they stand for.
    fn measure(&mut self, geometry: &Geometry) {
        let count = match self.shape {
            Shape::Bands { .. } => usize_of(self.groups) * usize_of(self.cells_each()),
            Shape::Grid { groups } => usize_of(self.groups.div_ceil(groups)),
        };
        self.cells = vec![Cell::default(); count];
        for nr in 0..self.groups {
            let group = GroupNr::new(nr);
            let first = geometry.first_block(group).get();
            self.each(geometry, first..first + u64::from(geometry.blocks_in(group)), |cell, blocks| {
                cell.blocks += blocks;
            });
        }
    }

    fn add_free(&mut self, geometry: &Geometry, run: Range<BlockNr>) {
        let run = run.start.get()..run.end.get();
        self.space.add(run.clone());
        let mut at = run.start;
        self.each(geometry, run, |cell, blocks| {
            cell.free += blocks;
            // Runs continue across group boundaries.
            let joined = if cell.last.0 == at { cell.last.1 } else { 0 } + blocks;
            at += blocks;
            cell.last = (at, joined);
            cell.longest = cell.longest.max(joined);
        });
    }

    fn add_metadata(&mut self, geometry: &Geometry, report: &GroupReport) {
        let first = report.first_block.get();
        let base = u64::from(geometry.base_meta_blocks(report.group));
        let desc = &report.desc;
        let table = desc.inode_table.get();
        for range in [
            first..first + base,
            desc.block_bitmap.get()..desc.block_bitmap.get() + 1,
            desc.inode_bitmap.get()..desc.inode_bitmap.get() + 1,
            table..table + u64::from(report.itable_blocks),
        ] {
            self.each(geometry, range, |cell, blocks| cell.metadata += blocks);
        }
    }

    fn mark(&mut self, geometry: &Geometry, group: GroupNr) {
        let first = geometry.first_block(group).get();
        let end = first + u64::from(geometry.blocks_in(group));
        self.each(geometry, first..end, |cell, _| cell.unreadable = true);
    }

    /// Cuts a range of blocks at the borders of cells.
    fn each(&mut self, geometry: &Geometry, range: Range<u64>, mut visit: impl FnMut(&mut Cell, u64)) {
        let mut at = range.start;
        while at < range.end {
            let Some(group) = geometry.group_of(BlockNr::new(at)) else { return };
            let first = geometry.first_block(group).get();
            let (index, end) = match self.shape {
                Shape::Bands { blocks, .. } => {
                    let within = (at - first) / u64::from(blocks);
                    let index = u64::from(group.get()) * u64::from(self.cells_each()) + within;
                    let end = first + (within + 1) * u64::from(blocks);
                    (index, end.min(first + u64::from(geometry.blocks_per_group())))
                }
                Shape::Grid { groups } => {
                    let next = u64::from(group.get() / groups + 1) * u64::from(groups);
                    let end =
                        u64::from(geometry.first_data_block) + next * u64::from(geometry.blocks_per_group());
                    (u64::from(group.get() / groups), end)
                }
            };
            let end = end.min(range.end);
            if index < u64_of(self.cells.len()) {
                visit(&mut self.cells[index_of(index)], end - at);
            }
            at = end;
        }
    }
}
