//! Parts of a scan, which several threads make, and how they become one.
//!
//! Threads scan the inode tables of a group each, with a [`Scan`] of their own, and then read a directory
//! each. A sound volume gives the same state whichever thread looked at what. Of a broken one the report would depend
//! on who was first: of two owners of a block the second is named. So whatever several threads find counts
//! only if it is nothing, and otherwise one does all anew (`steps`); a sound volume is the common case, and a
//! broken one is not worth a second way to find the same. What is found before, between and after is found by
//! one thread, in the state that one would have made.
//!
//! Hazard: what a thread alone can't see, two of them have to see together. A block that two files of
//! different threads own is in the claims of both; an attribute block may be in those of several, which are
//! no two owners.

use crate::context::Scan;
use crate::context::attributes::Shared;
use crate::report::{Error, Report};
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

    /// Takes what a part has seen; false if that is not all sound, alone or with what was there.
    pub(crate) fn absorb(&mut self, mut part: Self) -> bool {
        let Some(shared) = self.absorb_attributes(part.attributes) else { return false };
        for block in shared {
            part.claims.bits.release(self.volume.geometry().cluster_of(block).get());
        }
        if part.report != Report::default() || !self.claims.absorb(part.claims) {
            return false;
        }
        self.inodes.absorb(part.inodes);
        let before = self.runs.len();
        self.runs.extend(part.runs);
        let moved = |runs: &mut Range<usize>| *runs = before + runs.start..before + runs.end;
        part.directories.iter_mut().for_each(|directory| moved(&mut directory.runs));
        part.quotas.files.iter_mut().for_each(|file| moved(&mut file.runs));
        self.directories.extend(part.directories);
        self.quotas.absorb(part.quotas);
        self.late_times.absorb(part.late_times);
        true
    }

    /// Takes the attributes a part has seen, and gives the blocks that were known. `None` if one of these has
    /// values in inodes: they are counted for the inode that was first to have it.
    fn absorb_attributes(&mut self, part: Shared) -> Option<Vec<BlockNr>> {
        let mut known = Vec::new();
        for (nr, block) in part.blocks {
            match self.attributes.blocks.entry(nr) {
                Entry::Vacant(place) => drop(place.insert(block)),
                Entry::Occupied(place) if place.get().holders > 0 => return None,
                Entry::Occupied(mut place) => {
                    place.get_mut().users = place.get().users.saturating_add(block.users);
                    known.push(BlockNr::new(nr));
                }
            }
        }
        self.attributes.holders.extend(part.holders);
        self.attributes.entries.extend(part.entries);
        Some(known)
    }
}
