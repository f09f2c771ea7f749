//! Surveys the free space of a volume: a map of how full its parts are, and its free extents by length.
//!
//! Counting free extents means reading bitmaps, so it is bounded: to at most [`GROUPS_MAX`] groups, evenly
//! spread over a larger volume, each of which is locked for a moment; and [`Surveyor`] rests between two
//! surveys at least [`REST`] times as long as the last one took, however often it is asked. A group that
//! can't be read counts as full.
//!
//! Hazard: a bitmap that was not needed yet is read; if it is corrupt, that is found here as it would be
//! found by the first allocation there, with all its consequences.
//!
//! The map has [`CELLS`] parts of equal size, or fewer on a small volume: exact where every group was read,
//! and from the groups' free counts elsewhere.

use hectare_engine::{FreeExtents, RunJoiner, Volume};
use hectare_units::{GroupNr, index_of, u64_of, usize_of};
use parking_lot::Mutex;
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts of the map.
const CELLS: u64 = 1024;
/// Groups whose bitmaps are read: 64 GiB of a volume with blocks of 4 KiB.
const GROUPS_MAX: u32 = 512;
/// The rest after a survey, as a multiple of its duration.
const REST: u32 = 20;
/// The least age of a survey before it is replaced.
const AGE_MIN: Duration = Duration::from_millis(1500);

/// The distribution of a volume's free space.
#[derive(Serialize)]
pub(crate) struct Survey {
    /// Groups of the volume.
    pub(crate) groups: u32,
    /// Those whose free extents were counted.
    pub(crate) groups_counted: u32,
    /// The free extents in them.
    pub(crate) free: FreeExtents,
    /// Bytes that a part of the map stands for; the last may be shorter.
    pub(crate) cell_bytes: u64,
    /// How full each part is, of 1000.
    pub(crate) cells: Vec<u16>,
}

impl Survey {
    /// Surveys a volume.
    pub(crate) fn of(volume: &Volume) -> Self {
        let groups = volume.group_count();
        let step = groups.div_ceil(GROUPS_MAX).max(1);
        let geometry = volume.superblock().geometry();
        let block = geometry.block_size.bytes().get();
        let mut map = Map::new(geometry.blocks_count.get());
        let (mut joiner, mut free) = (RunJoiner::default(), FreeExtents::default());
        for group in (0..groups).step_by(usize_of(step)).map(GroupNr::new) {
            for run in volume.free_runs_now(group).unwrap_or_default() {
                let run = run.start.get()..run.end.get();
                if step == 1 {
                    map.free(run.clone());
                }
                free_extent(&mut free, joiner.push(run), block);
            }
        }
        free_extent(&mut free, joiner.finish(), block);
        if step > 1 {
            volume.for_each_free(|group, free| {
                let start = geometry.first_block(group).get();
                map.free(start..start + (free.get() / block).min(geometry.blocks_in(group).into()));
            });
        }
        Self {
            groups,
            groups_counted: groups.div_ceil(step),
            free,
            cell_bytes: map.cell * block,
            cells: map.finish(),
        }
    }
}

/// Counts a free extent that is complete.
fn free_extent(free: &mut FreeExtents, extent: Option<Range<u64>>, block: u64) {
    if let Some(extent) = extent {
        free.add(extent.end - extent.start, block);
    }
}

/// Free blocks by part of the volume.
struct Map {
    /// Blocks of a part.
    cell: u64,
    blocks: u64,
    free: Vec<u64>,
}

impl Map {
    fn new(blocks: u64) -> Self {
        let cell = blocks.div_ceil(CELLS).max(1);
        Self { cell, blocks, free: vec![0; index_of(blocks.div_ceil(cell))] }
    }

    fn free(&mut self, mut run: Range<u64>) {
        while run.start < run.end {
            let cell = run.start / self.cell;
            let end = ((cell + 1) * self.cell).min(run.end);
            if let Some(free) = self.free.get_mut(index_of(cell)) {
                *free += end - run.start;
            }
            run.start = end;
        }
    }

    fn finish(self) -> Vec<u16> {
        let len = |cell: u64| self.cell.min(self.blocks - cell * self.cell);
        let used = |(cell, free): (usize, &u64)| {
            let len = len(u64_of(cell));
            u16::try_from(len.saturating_sub(*free) * 1000 / len.max(1)).unwrap_or(1000)
        };
        self.free.iter().enumerate().map(used).collect()
    }
}

/// The last survey, and when the next may be.
pub(crate) struct Surveyor(Mutex<Option<(Arc<Survey>, Instant)>>);

impl Surveyor {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The last survey, or a new one if it is time.
    pub(crate) fn survey(&self, volume: &Volume) -> Arc<Survey> {
        let mut last = self.0.lock();
        if let Some((survey, _)) = last.as_ref().filter(|(_, next)| Instant::now() < *next) {
            return Arc::clone(survey);
        }
        let began = Instant::now();
        let survey = Arc::new(Survey::of(volume));
        let next = Instant::now() + (began.elapsed() * REST).max(AGE_MIN);
        *last = Some((Arc::clone(&survey), next));
        survey
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_says_how_full_each_part_is() {
        let mut map = Map::new(2 * CELLS + 1);
        assert_eq!(map.cell, 3);
        map.free(1..4);
        map.free(2046..2049);
        map.free(2046..9999);
        let cells = map.finish();
        assert_eq!(cells.len(), 683);
        assert_eq!((cells[0], cells[1], cells[2], cells[682]), (333, 666, 1000, 0));
        assert_eq!(Map::new(10).finish(), [1000; 10]);
    }
}
