//! Checks that the map of a directory is bounded, before its blocks are read.
//!
//! A block map of a few tables can name one block a billion times, and so can a crafted extent tree. Listing
//! such a directory would never end. So a directory has no more blocks than its volume, and no block twice;
//! then all work on it is bounded by what the volume stores.
//!
//! The walk ends at the first block that breaks the rule, and remembers at most [`RANGES_MAX`] ranges: of a
//! directory with more ranges only the number of blocks is bounded.
//!
//! What it is not: a comparison of directories with each other; that is the checker's.

use crate::error::Result;
use crate::names::directory::DirRef;
use crate::space::map::MapRef;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::Extent;
use hectare_units::LogicalBlock;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Ranges that are remembered: some 64 MiB. A directory of 2 GiB in blocks of 4 KiB has no more.
const RANGES_MAX: usize = 1 << 19;

impl DirRef<'_> {
    /// Walks the map of the directory, which is not inline.
    ///
    /// # Errors
    /// [`Corrupt`] where the map is broken, names a block twice, or more blocks than the volume has.
    pub(crate) fn check_bounds(&self) -> Result<()> {
        let limit = self.state.geometry().blocks_count.get();
        let mut claims = Claims { ranges: BTreeMap::new(), left: limit };
        let mut wrong = None;
        let map = MapRef { state: self.state, nr: self.nr, inode: self.inode };
        map.for_each(LogicalBlock::ZERO, &mut |extent| {
            wrong = claims.add(&extent).map(|what| (extent.logical, what));
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let place = |at| Place::FileBlock(self.nr, at);
        wrong.map_or(Ok(()), |(at, what)| Err(Corrupt::new("directory", place(at), what).into()))
    }
}

struct Claims {
    /// First block and the one after the last; neighbours are one range.
    ranges: BTreeMap<u64, u64>,
    left: u64,
}

impl Claims {
    /// Adds an extent; returns what is wrong with it, if anything.
    fn add(&mut self, extent: &Extent) -> Option<String> {
        let (mut start, len) = (extent.physical.get(), u64::from(extent.len));
        let mut end = start.saturating_add(len);
        let Some(left) = self.left.checked_sub(len) else {
            return Some("it has more blocks than the volume".into());
        };
        self.left = left;
        let before = self.ranges.range(..end).next_back().map(|(start, end)| (*start, *end));
        if let Some((first, after)) = before
            && after > start
        {
            return Some(format!("block {} is in it twice", first.max(start)));
        }
        if let Some((first, _)) = before.filter(|(_, after)| *after == start) {
            start = first;
        }
        if let Some(after) = self.ranges.remove(&end) {
            end = after;
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(start, end);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::BlockNr;

    fn extent(physical: u64, len: u32) -> Extent {
        Extent { logical: LogicalBlock::ZERO, len, physical: BlockNr::new(physical), unwritten: false }
    }

    #[test]
    fn no_block_is_added_twice() {
        let mut claims = Claims { ranges: BTreeMap::new(), left: 100 };
        for (start, len) in [(10, 5), (20, 5), (15, 5), (9, 1), (30, 1)] {
            assert_eq!(claims.add(&extent(start, len)), None, "{start}");
        }
        assert_eq!(claims.ranges, BTreeMap::from([(9, 25), (30, 31)]));
        for (start, len, twice) in [(12, 1, 12), (0, 10, 9), (24, 9, 30), (8, 30, 30)] {
            assert_eq!(claims.add(&extent(start, len)), Some(format!("block {twice} is in it twice")));
        }
        assert_eq!(claims.add(&extent(50, 90)), Some("it has more blocks than the volume".into()));
    }
}
