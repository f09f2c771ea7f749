//! Inodes with a task: bad blocks, journal, the blocks kept for growing, orphan file, quota files.
//! Each is made right once it is known what is free.

use crate::error::Error;
use crate::know::map::{Map, numbers};
use crate::know::slot::Slot;
use crate::know::task::{BAD_BLOCKS, RESIZE, Task};
use crate::know::work::Work;
use crate::tasks::inodes::{DOUBLE, double_of};
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::Compat;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::orphan::OrphanBlockMut;
use hectare_units::{BlockNr, GroupNr, InodeNr, index_of, low32, u64_of, usize_of};

/// Blocks of a new orphan file.
const ORPHAN_BLOCKS: usize = 8;

impl Work<'_> {
    /// Makes every inode with a task right.
    pub(crate) fn mend_reserved(&mut self) -> Result<(), Error> {
        self.make_missing_tasks()?;
        for (nr, task) in std::mem::take(&mut self.tasks) {
            let nr = InodeNr::new(nr);
            let has = self.sb.features().compat;
            if nr == RESIZE && has.contains(Compat::RESIZE_INODE) {
                self.mend_resize_inode(task)?;
            } else if nr == BAD_BLOCKS {
                self.mend_bad_blocks(task)?;
            } else if self.sb.journal_inode() == Some(nr) {
                self.mend_journal(task)?;
            } else if self.sb.orphan_file_inode() == Some(nr) {
                self.mend_orphan_file(task)?;
            } else {
                self.mend_quota_inode(task)?;
            }
        }
        Ok(())
    }

    fn mend_bad_blocks(&mut self, task: Task) -> Result<(), Error> {
        let Task { mut slot, map, sound } = task;
        if !sound {
            let text =
                map.broken.unwrap_or_else(|| "it names blocks that can't be in such a list".to_owned());
            self.lost(What::Map, Place::Inode(slot.nr), format!("{text}: the list of bad blocks is cleared"));
            slot.clear();
        } else if !slot.view().is_blank() {
            if slot.view().is_odd_bad_blocks(&self.sb) {
                self.mended(What::Inode, Place::Inode(slot.nr), "fields that it can't have are cleared");
                let raw = slot.raw();
                (raw.i_mode, raw.i_links_count) = (0.into(), 0.into());
                (raw.i_uid, raw.i_gid) = (0.into(), 0.into());
                slot.set_acl(0);
            }
            self.mend_plain_fields(&mut slot, &map);
        }
        self.put_slot(&mut slot)
    }

    fn mend_orphan_file(&mut self, task: Task) -> Result<(), Error> {
        let Task { mut slot, mut map, sound } = task;
        let place = Place::Inode(slot.nr);
        if !self.sb.features().compat.contains(Compat::HAS_JOURNAL) {
            self.mended(What::Orphans, place, "an orphan file without a journal: deleted");
            if sound {
                self.data_clusters(&map).into_iter().for_each(|c| self.release_cluster(c));
                let nodes: Vec<_> = map.nodes.iter().map(|node| self.geometry().cluster_of(*node)).collect();
                nodes.into_iter().for_each(|c| self.release_cluster(c));
            }
            slot.clear();
            self.drop_orphan_file();
            return self.put_slot(&mut slot);
        }
        let blocks = self.blocks_for(slot.view().size());
        let whole = map.blocks() == map.end() && map.end() == u64_of(blocks) && blocks > 0;
        let good = sound && whole && !map.extents.iter().any(|extent| extent.unwritten);
        if good && !self.suspects.has(What::Orphans) {
            self.mend_plain_fields(&mut slot, &map);
            return self.put_slot(&mut slot);
        }
        let blocks = if (1..=512).contains(&blocks) { blocks } else { ORPHAN_BLOCKS };
        if !good {
            if !sound {
                map = Map::default();
            }
            self.fresh_task(&mut slot, 0o600);
            if !self.allot(&mut slot, &mut map, blocks)? {
                self.lost(What::Orphans, place, "no space for an orphan file: the volume goes without");
                slot.clear();
                self.put_slot(&mut slot)?;
                self.drop_orphan_file();
                return Ok(());
            }
        }
        self.mended(What::Orphans, place, "the orphan file is made anew");
        let seed = self.sb.seed().map(|seed| seed.inode(slot.nr, slot.view().raw.i_generation.get()));
        for extent in &map.extents {
            for at in (0..u64::from(extent.len)).map(|i| BlockNr::new(extent.physical.get() + i)) {
                let mut block = vec![0; self.geometry().block_size.len()];
                let mut empty = OrphanBlockMut::new(&mut block, at);
                empty.format();
                if let Some(seed) = seed {
                    empty.seal(seed);
                }
                self.put_block(at, &block)?;
            }
        }
        self.mend_plain_fields(&mut slot, &map);
        self.put_slot(&mut slot)
    }

    /// A quota file's content is written with the quotas.
    fn mend_quota_inode(&mut self, task: Task) -> Result<(), Error> {
        let Task { mut slot, map, sound } = task;
        if sound {
            self.mend_too_large(&mut slot, &map);
            self.mend_plain_fields(&mut slot, &map);
        } else {
            self.mended(What::Quota, Place::Inode(slot.nr), "its inode or map is broken: made anew");
            self.fresh_task(&mut slot, 0o600);
            self.suspects.subjects.push(What::Quota);
        }
        self.put_slot(&mut slot)
    }

    /// The resize inode: its table of tables names the kept blocks in group 0, and each of them its copies.
    fn mend_resize_inode(&mut self, task: Task) -> Result<(), Error> {
        let Task { mut slot, map, sound } = task;
        let place = Place::Inode(slot.nr);
        let kept = self.geometry().reserved_gdt_blocks;
        let others = numbers(&slot.block()).enumerate().any(|(i, number)| i != DOUBLE && number != 0);
        let broken =
            slot.kind() != Some(Kind::File) || others || (!sound && (kept > 0 || double_of(&slot) != 0));
        if broken {
            self.mended(What::ResizeInode, place, "it is made anew");
            self.fresh_task(&mut slot, 0o600);
            slot.raw().i_block = [0; 60];
        } else {
            self.mend_resize_fields(&mut slot);
        }
        slot.set_flag(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA, false);
        let table = match map.nodes.first().copied() {
            Some(table) => Some(table),
            None if kept > 0 => self.take_cluster().map(|cluster| self.geometry().cluster_start(cluster)),
            None => None,
        };
        let mut count = 0;
        if let Some(table) = table {
            slot.raw().i_block[DOUBLE * 4..DOUBLE * 4 + 4].copy_from_slice(&low32(table.get()).to_le_bytes());
            count = 1 + self.write_resize_tables(table, place)?;
        }
        slot.raw().i_dtime = 0.into();
        slot.set_size(self.resize_inode_size());
        self.note_large_file(&slot);
        self.set_block_count(&mut slot, count);
        self.put_slot(&mut slot)
    }

    /// Fields of a resize inode that has its table.
    fn mend_resize_fields(&mut self, slot: &mut Slot) {
        let place = Place::Inode(slot.nr);
        self.note_checksum(slot);
        self.link_task(slot);
        if slot.has(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
            self.mended(
                What::ResizeInode,
                place,
                "it had the flag extents or inline_data, but needs a block map: flag cleared",
            );
            slot.set_flag(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA, false);
        }
        let size = slot.view().size();
        if size != self.resize_inode_size() {
            self.mended(What::ResizeInode, place, format!("its size was {size}: made right"));
        }
        if slot.view().links() == 0 {
            self.mended(What::ResizeInode, place, "it had no links: now one");
            slot.raw().i_links_count = 1.into();
        }
    }

    /// The size of all that a table of tables can name.
    fn resize_inode_size(&self) -> u64 {
        let per = u64::from(self.geometry().block_size.get() / 4);
        (per * per + per + 12) << self.geometry().block_size.shift()
    }

    /// Writes the tables where they differ, and gives how many blocks they name.
    fn write_resize_tables(&mut self, at: BlockNr, place: Place) -> Result<u64, Error> {
        let geometry = self.geometry().clone();
        let per = geometry.block_size.get() / 4;
        let start = geometry.desc_blocks();
        let first = geometry.super_block(GroupNr::new(0)).get() + 1;
        let backups: Vec<u64> = (1..geometry.groups())
            .map(GroupNr::new)
            .filter(|group| geometry.has_super(*group))
            .map(|group| u64::from(group.get()) * u64::from(geometry.blocks_per_group()))
            .collect();
        let mut table = vec![0; geometry.block_size.len()];
        let (mut count, mut differs) = (0, false);
        for index in 0..geometry.reserved_gdt_blocks.min(per) {
            let block = first + u64::from(start + index);
            let slot = usize_of((start + index) % per) * 4;
            table[slot..slot + 4].copy_from_slice(&low32(block).to_le_bytes());
            let mut copies = vec![0; geometry.block_size.len()];
            for (place, backup) in copies.chunks_exact_mut(4).zip(&backups) {
                place.copy_from_slice(&low32(block + backup).to_le_bytes());
            }
            count += 1 + u64_of(backups.len().min(index_of(u64::from(per))));
            differs |= self.block(BlockNr::new(block))? != copies;
            self.put_block(BlockNr::new(block), &copies)?;
        }
        if differs || self.block(at)? != table {
            self.mended(What::ResizeInode, place, "its tables are written anew");
        }
        self.put_block(at, &table)?;
        Ok(count)
    }
}
