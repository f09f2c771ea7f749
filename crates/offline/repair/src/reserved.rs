//! Inodes with a task: bad blocks, journal, the blocks kept for growing, orphan file, quota files.
//!
//! They claim their blocks before all other inodes. One whose map is broken, or lies in what belongs to the
//! volume, claims nothing and is made anew once it is known what is free.

use crate::maps::{Map, numbers};
use crate::report::Error;
use crate::slot::Slot;
use crate::work::Work;
use hectare_check::What;
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::map::MapKind;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::orphan::OrphanBlockMut;
use hectare_ext4::quota::Kind as QuotaKind;
use hectare_units::{BlockNr, ClusterNr, GroupNr, InodeNr, LogicalBlock, index_of, low32, u64_of, usize_of};
use std::collections::BTreeSet;

/// The inode of the bad blocks, and of the blocks kept for growing.
const BAD_BLOCKS: InodeNr = InodeNr::new(1);
const RESIZE: InodeNr = InodeNr::new(7);
/// The slot of an inode's indirect map that names a table of tables.
const DOUBLE: usize = 13;
/// Flags that an inode with a task may have.
const TASK_FLAGS: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA);
/// Blocks of a new orphan file.
const ORPHAN_BLOCKS: usize = 8;

/// An inode with a task, as it was found.
pub(crate) struct Task {
    pub(crate) slot: Slot,
    pub(crate) map: Map,
    /// Whether its map was sound, and its blocks were claimed.
    pub(crate) sound: bool,
}

impl Work<'_> {
    /// Whether an inode has a task.
    pub(crate) fn is_task(&self, nr: InodeNr) -> bool {
        self.task_numbers().contains(&nr.get())
    }

    /// Whether an inode is the journal and none of the reserved ones: a file with a name.
    pub(crate) fn is_visible_journal(&self, nr: InodeNr) -> bool {
        self.sb.journal_inode() == Some(nr) && nr >= self.sb.first_inode()
    }

    pub(crate) fn task_numbers(&self) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::from([BAD_BLOCKS.get()]);
        numbers.extend(self.sb.journal_inode().map(InodeNr::get));
        if self.sb.features().compat.contains(Compat::RESIZE_INODE) {
            numbers.insert(RESIZE.get());
        }
        numbers.extend(self.sb.orphan_file_inode().map(InodeNr::get));
        numbers.extend(
            QuotaKind::ALL.into_iter().filter_map(|kind| self.sb.quota_inode(kind)).map(InodeNr::get),
        );
        numbers
    }

    /// Reads the inodes with a task, and claims what they hold.
    pub(crate) fn note_tasks(&mut self) -> Result<(), Error> {
        for nr in self.task_numbers() {
            let Some(mut slot) = self.slot(InodeNr::new(nr))? else { continue };
            self.bare(&mut slot);
            let mut task = Task { map: self.read_map(&slot)?, slot, sound: false };
            if nr == RESIZE.get() && self.sb.features().compat.contains(Compat::RESIZE_INODE) {
                task.map = Map::default();
                let table = double_of(&task.slot);
                task.sound = self.holds(table) && self.claim_alone(&[table]);
                if task.sound {
                    task.map.nodes.push(BlockNr::new(table));
                }
            } else {
                let blank = nr == BAD_BLOCKS.get() || task.slot.kind() == Some(Kind::File);
                let fits = nr != BAD_BLOCKS.get() || self.is_aligned(&task.map);
                task.sound = blank && fits && task.map.broken.is_none() && self.claim_task(&task.map);
            }
            self.tasks.insert(nr, task);
        }
        Ok(())
    }

    /// Whether each block lies in its cluster where the file has it, as all readers of a volume with clusters
    /// expect it.
    fn is_aligned(&self, map: &Map) -> bool {
        let within = (1u64 << self.geometry().cluster_ratio_shift) - 1;
        map.extents
            .iter()
            .all(|extent| (u64::from(extent.logical.get()) ^ extent.physical.get()) & within == 0)
    }

    /// Takes from an inode with a task the flags and attributes that none has.
    fn bare(&mut self, slot: &mut Slot) {
        if !slot.view().is_blank() {
            self.mend_fields(slot);
        }
        let odd = slot.flags() - TASK_FLAGS;
        if odd.is_empty() && slot.view().file_acl() == 0 {
            return;
        }
        let text = format!("flags {:#x} and attributes that it can't have are cleared", odd.bits());
        self.mended(What::Inode, Place::Inode(slot.nr), text);
        slot.set_flag(odd, false);
        slot.set_acl(0);
    }

    /// Claims everything a map holds if all of it is free.
    fn claim_task(&mut self, map: &Map) -> bool {
        let mut clusters: Vec<u64> =
            map.nodes.iter().map(|node| self.geometry().cluster_of(*node).get()).collect();
        for extent in &map.extents {
            clusters.extend(self.clusters_of(extent).map(ClusterNr::get));
        }
        let count = clusters.len();
        clusters.sort_unstable();
        clusters.dedup();
        let bigalloc = self.geometry().cluster_ratio_shift > 0;
        if (count > clusters.len() && !bigalloc) || clusters.iter().any(|at| self.used.contains(*at)) {
            return false;
        }
        for at in clusters {
            let _ = self.used.claim(at..at + 1);
        }
        true
    }

    fn claim_alone(&mut self, blocks: &[u64]) -> bool {
        blocks.iter().all(|block| {
            let at = self.geometry().cluster_of(BlockNr::new(*block)).get();
            self.used.claim(at..at + 1).is_none()
        })
    }

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

    /// The fields of an inode with a task whose map is sound.
    pub(crate) fn mend_plain_fields(&mut self, slot: &mut Slot, map: &Map) {
        if slot.view().dtime() != 0 {
            self.mended(What::Inode, Place::Inode(slot.nr), "its time of deletion is cleared");
            slot.raw().i_dtime = 0.into();
        }
        if slot.nr != BAD_BLOCKS {
            self.link_task(slot);
        }
        slot.raw().i_obso_faddr = 0.into();
        let clusters = self.map_clusters(map);
        self.set_block_count(slot, clusters);
        if let Some(seed) = self.sb.seed()
            && slot.view().wrong_checksum(slot.nr, seed).is_some()
        {
            self.mended(What::Inode, Place::Inode(slot.nr), "its checksum is made right");
        }
    }

    /// Gives an inode with a task one link: the kernel takes one without for deleted, and does not mount a volume whose
    /// journal or orphan file is. e2fsck accepts a quota file and a resize inode without.
    fn link_task(&mut self, slot: &mut Slot) {
        if slot.view().links() == 0 {
            self.mended(
                What::Inode,
                Place::Inode(slot.nr),
                "the volume itself uses it, but it counted no links: now 1",
            );
            slot.raw().i_links_count = 1.into();
        }
    }

    /// Makes a slot a regular, empty file without anything else.
    pub(crate) fn fresh_task(&mut self, slot: &mut Slot, permissions: u16) {
        slot.clear();
        let now = self.options.now;
        if slot.bytes.len() > 128 {
            slot.set_extra_isize(self.sb.want_extra_isize());
        }
        let extents = self.sb.features().incompat.contains(Incompat::EXTENTS);
        slot.set_flag(InodeFlags::EXTENTS, extents);
        let raw = slot.raw();
        raw.i_mode = (Kind::File.mode_bits() | permissions).into();
        raw.i_links_count = 1.into();
        raw.i_atime = now.into();
        raw.i_ctime = now.into();
        raw.i_mtime = now.into();
        let kind = if extents { MapKind::Extents } else { MapKind::Blocks };
        raw.i_block = kind.empty_root();
    }

    /// Gives a file exactly so many blocks, those it has first; false, and nothing changed, if there is no
    /// space. Sets map, size and count, and does not write the slot.
    pub(crate) fn allot(&mut self, slot: &mut Slot, map: &mut Map, blocks: usize) -> Result<bool, Error> {
        let need = blocks.div_ceil(1 << self.geometry().cluster_ratio_shift);
        let mut clusters = self.data_clusters(map);
        let had = clusters.len();
        while clusters.len() < need {
            let Some(cluster) = self.take_cluster() else {
                clusters.drain(had..).collect::<Vec<_>>().into_iter().for_each(|c| self.release_cluster(c));
                return Ok(false);
            };
            clusters.push(cluster);
        }
        clusters.drain(need..).collect::<Vec<_>>().into_iter().for_each(|c| self.release_cluster(c));
        self.lay_in(&clusters, slot, map, blocks)?;
        Ok(true)
    }

    /// As [`Work::allot`], but elsewhere, so that what is there holds until the slot is written; only where
    /// there is no space for that, in the same place.
    pub(crate) fn allot_anew(
        &mut self,
        slot: &mut Slot,
        map: &mut Map,
        blocks: usize,
    ) -> Result<bool, Error> {
        let need = blocks.div_ceil(1 << self.geometry().cluster_ratio_shift);
        let mut clusters = Vec::new();
        while clusters.len() < need {
            let Some(cluster) = self.take_fresh_cluster() else {
                clusters.into_iter().for_each(|c| self.release_cluster(c));
                return self.allot(slot, map, blocks);
            };
            clusters.push(cluster);
        }
        self.data_clusters(map).into_iter().for_each(|c| self.release_cluster(c));
        self.lay_in(&clusters, slot, map, blocks)?;
        Ok(true)
    }

    /// The clusters that a file's content lies in, once each.
    fn data_clusters(&self, map: &Map) -> Vec<ClusterNr> {
        let mut seen = BTreeSet::new();
        let all = map.extents.iter().flat_map(|extent| self.clusters_of(extent));
        all.filter(|cluster| seen.insert(*cluster)).collect()
    }

    /// Gives a file these clusters, in this order.
    fn lay_in(
        &mut self,
        clusters: &[ClusterNr],
        slot: &mut Slot,
        map: &mut Map,
        blocks: usize,
    ) -> Result<(), Error> {
        let shift = self.geometry().cluster_ratio_shift;
        let ratio = 1u64 << shift;
        map.extents = clusters
            .iter()
            .enumerate()
            .map(|(i, cluster)| {
                let logical = u64_of(i) << shift;
                Extent {
                    logical: LogicalBlock::new(low32(logical)),
                    len: low32(ratio.min(u64_of(blocks) - logical)),
                    physical: self.geometry().cluster_start(*cluster),
                    unwritten: false,
                }
            })
            .collect();
        self.store_map(slot, map)?;
        slot.set_size(u64_of(blocks) << self.geometry().block_size.shift());
        let clusters = self.map_clusters(map);
        self.set_block_count(slot, clusters);
        Ok(())
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

/// The block of the table of tables.
fn double_of(slot: &Slot) -> u64 {
    numbers(&slot.block()).nth(DOUBLE).map_or(0, u64::from)
}

/// The mount protection of a volume that nobody uses; what else the block says stays.
pub(crate) fn clean_mmp(old: &[u8], seed: Option<Seed>) -> Vec<u8> {
    let known = Mmp::parse(old, BlockNr::new(0), None);
    let (time, check_interval) = known.map_or((0, 5), |mmp| (mmp.time, mmp.check_interval));
    Mmp { status: Status::Clean, time, check_interval }.render(seed).to_vec()
}
