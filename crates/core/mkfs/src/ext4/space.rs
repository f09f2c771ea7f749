//! The free space of a freshly formatted volume, in ascending order.
//!
//! An image builder fills it: ranges between metadata and the formatter's own files, whole clusters only.
//! The iterator needs memory for one flex group.

use super::layout::{Cursor, Layout, group_range};
use super::ranges::{insert, inside};
use crate::error::Result;
use hectare_units::{BlockNr, Blocks, GroupNr};
use rangemap::RangeSet;
use std::ops::Range;

/// A run of free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeRange {
    /// Its first block; at the start of a cluster.
    pub start: BlockNr,
    /// Its length: whole clusters.
    pub len: Blocks,
}

/// Iterates over the free ranges of an empty volume, from a group on. Ranges of neighbouring groups that
/// touch are joined.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    layout: &'a Layout,
    cursor: Cursor<'a>,
    own: &'a RangeSet<u64>,
    group: u32,
    /// Free ranges of groups visited and not yet returned, in reverse order.
    ready: Vec<Range<u64>>,
}

impl<'a> Space<'a> {
    pub(crate) fn new(layout: &'a Layout, own: &'a RangeSet<u64>, from: GroupNr) -> Self {
        Self { layout, cursor: layout.cursor(), own, group: from.get(), ready: Vec::new() }
    }

    /// The free ranges of the next group that has any; `None` at the end.
    fn load(&mut self) -> Option<Result<Vec<Range<u64>>>> {
        while self.group < self.layout.geometry().groups() {
            let group = GroupNr::new(self.group);
            self.group += 1;
            match free_in(self.layout, &mut self.cursor, self.own, group) {
                Ok(free) if free.is_empty() => {}
                other => return Some(other),
            }
        }
        None
    }
}

/// The free ranges of one group, rounded inwards to whole clusters.
pub(crate) fn free_in(
    layout: &Layout,
    cursor: &mut Cursor<'_>,
    own: &RangeSet<u64>,
    group: GroupNr,
) -> Result<Vec<Range<u64>>> {
    let whole = group_range(layout.geometry(), group);
    let mut used = RangeSet::default();
    cursor.used_ranges(group)?.into_iter().for_each(|range| insert(&mut used, range));
    inside(own, whole.clone()).for_each(|range| insert(&mut used, range));
    let mut free = Vec::with_capacity(used.len() + 1);
    let mut at = whole.start;
    for range in used.iter() {
        free.push(at..range.start);
        at = range.end;
    }
    free.push(at..whole.end);
    Ok(free.into_iter().filter_map(|range| whole_clusters(layout, &range)).collect())
}

/// The whole clusters inside a range; the last cluster of the volume may be truncated, and is then left out.
fn whole_clusters(layout: &Layout, range: &Range<u64>) -> Option<Range<u64>> {
    let geometry = layout.geometry();
    let (first, ratio) = (u64::from(geometry.first_data_block), u64::from(geometry.cluster_blocks()));
    let start = (range.start - first).next_multiple_of(ratio) + first;
    let end = (range.end - first) / ratio * ratio + first;
    (start < end).then_some(start..end)
}

impl Iterator for Space<'_> {
    type Item = Result<FreeRange>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut run: Option<Range<u64>> = None;
        loop {
            while let Some(range) = self.ready.pop() {
                match &mut run {
                    None => run = Some(range),
                    Some(run) if run.end == range.start => run.end = range.end,
                    Some(_) => {
                        self.ready.push(range);
                        return run.map(give);
                    }
                }
            }
            match self.load() {
                None => return run.map(give),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(free)) => self.ready.extend(free.into_iter().rev()),
            }
        }
    }
}

fn give(run: Range<u64>) -> Result<FreeRange> {
    Ok(FreeRange { start: BlockNr::new(run.start), len: Blocks::new(run.end - run.start) })
}
