//! Inodes that wait for their end: those without links are deleted, the others cut to their size.
//!
//! Nothing else is to be done: what a deleted inode held is free because nobody claims it any more.

use crate::error::Error;
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, RoCompat};
use hectare_ext4::orphan::{OrphanBlock, OrphanBlockMut};
use hectare_units::{BlockNr, InodeNr};
use std::collections::BTreeSet;

impl Work<'_> {
    /// Ends every orphan, and empties list and file.
    pub(crate) fn end_orphans(&mut self) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        let mut next = self.sb.last_orphan();
        while let Some(nr) = next {
            let known = nr >= self.sb.first_inode() && seen.insert(nr.get());
            let Some(slot) = self.slot(nr)?.filter(|_| known) else {
                self.mended(
                    What::Orphans,
                    Place::Volume,
                    format!("the list names inode {nr}: cut off there"),
                );
                break;
            };
            next = InodeNr::from_disk(slot.view().dtime());
            self.end_orphan(nr)?;
        }
        self.empty_orphan_file(&mut seen)?;
        let present = self.sb.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if present && !self.sb.features().compat.contains(Compat::ORPHAN_FILE) {
            let text = "orphan_present was set, but there is no orphan file: cleared";
            self.mended(What::Orphans, Place::Volume, text);
        }
        if self.sb.last_orphan().is_some() || present {
            self.sb.set_last_orphan(None);
            self.sb.set_orphan_present(false);
        }
        Ok(())
    }

    fn end_orphan(&mut self, nr: InodeNr) -> Result<(), Error> {
        let Some(mut slot) = self.slot(nr)? else { return Ok(()) };
        if slot.view().links() == 0 && slot.view().mode() == 0 {
            self.mended(What::Orphans, Place::Inode(nr), "it is no orphan, as it is not in use: left out");
            return Ok(());
        }
        if slot.view().links() == 0 {
            self.mended(What::Orphans, Place::Inode(nr), "an orphan without a name: deleted");
            slot.raw().i_dtime = self.options.now.into();
            let values = self.values_in(&slot)?;
            self.ended_values.extend(values.into_iter().map(InodeNr::get));
        } else {
            self.mended(What::Orphans, Place::Inode(nr), "an orphan with a name: cut to its size");
            slot.raw().i_dtime = 0.into();
            self.truncated.insert(nr.get());
        }
        self.put_slot(&mut slot)
    }

    fn empty_orphan_file(&mut self, seen: &mut BTreeSet<u32>) -> Result<(), Error> {
        let nr = InodeNr::from_disk(self.sb.raw().s_orphan_file_inum.get());
        let Some(nr) = nr.filter(|_| self.sb.features().compat.contains(Compat::ORPHAN_FILE)) else {
            return Ok(());
        };
        let Some(slot) = self.slot(nr)? else { return Ok(()) };
        let map = self.read_map(&slot)?;
        let seed = self.sb.seed().map(|seed| seed.inode(nr, slot.view().raw.i_generation.get()));
        for extent in map.extents.iter().filter(|_| map.broken.is_none()) {
            for at in (0..u64::from(extent.len)).map(|i| BlockNr::new(extent.physical.get() + i)) {
                let mut block = self.block(at)?;
                // A file that is none must not be written over.
                let Ok(orphans) = OrphanBlock::new(&block, at, None) else { continue };
                let listed: Vec<InodeNr> = orphans.orphans().map(|(_, nr)| nr).collect();
                let (first, last) = (self.sb.first_inode(), self.geometry().inodes_count());
                for nr in listed {
                    if nr >= first && nr.get() <= last && seen.insert(nr.get()) {
                        self.end_orphan(nr)?;
                    }
                }
                let mut empty = OrphanBlockMut::new(&mut block, at);
                empty.format();
                if let Some(seed) = seed {
                    empty.seal(seed);
                }
                self.put_block(at, &block)?;
            }
        }
        Ok(())
    }
}
