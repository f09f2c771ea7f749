//! Parts of a scan, which several threads make, and how they become one.
//!
//! Threads scan the inode tables of a group each, with a [`Scan`] of their own, and then read a directory
//! each. A sound volume gives the same state whoever looked at what. Of a broken one the report would depend
//! on who was first: of two owners of a block the second is named. So whatever several threads find counts
//! only if it is nothing, and otherwise one looks again (`steps`); a sound volume is the common case, and a
//! broken one is not worth a second way to find the same.
//!
//! Hazard: what a thread alone can't see, two of them have to see together. A block that two files of
//! different threads own is in the claims of both; an attribute block may be in those of several, which are
//! no two owners.

use crate::context::Scan;
use crate::context::attributes::Shared;
use crate::report::{Error, Report, What};
use hectare_ext4::error::Place;
use hectare_units::BlockNr;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

impl Scan<'_> {
    /// One that has seen the same groups and orphans, and no inode.
    pub(crate) fn part(&self) -> Result<Self, Error> {
        let mut part = Self::new(self.volume, Report::default(), self.volume.claims()?);
        part.groups = Arc::clone(&self.groups);
        part.shared_tables = Arc::clone(&self.shared_tables);
        part.orphans = Arc::clone(&self.orphans);
        Ok(part)
    }

    /// Takes what a part has seen.
    pub(crate) fn absorb(&mut self, mut part: Self) {
        self.report.absorb(part.report, &self.volume.options);
        let shared = self.absorb_attributes(part.attributes);
        for block in shared {
            part.claims.bits.release(self.volume.geometry().cluster_of(block).get());
        }
        if !self.claims.absorb(part.claims) {
            self.tell(What::SharedBlock, Place::Volume, "two inodes own a block");
        }
        self.inodes.absorb(part.inodes);
        let before = self.runs.len();
        self.runs.extend(part.runs);
        let moved = |runs: &mut Range<usize>| *runs = before + runs.start..before + runs.end;
        part.directories.iter_mut().for_each(|directory| moved(&mut directory.runs));
        part.quotas.files.iter_mut().for_each(|file| moved(&mut file.runs));
        self.directories.extend(part.directories);
        self.quotas.absorb(part.quotas);
    }

    /// Takes the attributes a part has seen, and gives the blocks that were known.
    fn absorb_attributes(&mut self, part: Shared) -> Vec<BlockNr> {
        let mut known = Vec::new();
        for (nr, block) in part.blocks {
            match self.attributes.blocks.entry(nr) {
                Entry::Vacant(place) => drop(place.insert(block)),
                Entry::Occupied(mut place) => {
                    place.get_mut().users = place.get().users.saturating_add(block.users);
                    known.push(BlockNr::new(nr));
                }
            }
        }
        // The values of an attribute block are counted for the inode that was first to have it.
        if known.iter().any(|nr| self.attributes.blocks.get(&nr.get()).is_some_and(|block| block.holders > 0))
        {
            self.tell(What::Attributes, Place::Volume, "the uses of a value are counted by two threads");
        }
        self.attributes.holders.extend(part.holders);
        self.attributes.entries.extend(part.entries);
        known
    }
}
