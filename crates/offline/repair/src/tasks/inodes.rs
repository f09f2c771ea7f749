//! Inodes with a task: what they hold, and the fields that all of them have.
//!
//! They claim their blocks before all other inodes. One whose map is broken, or lies in what belongs to the
//! volume, claims nothing and is made anew once it is known what is free ([`crate::tasks::reserved`]).

use crate::error::Error;
use crate::know::map::{Map, numbers};
use crate::know::slot::Slot;
use crate::know::task::{self, BAD_BLOCKS, RESIZE, Task};
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, ClusterNr, InodeNr};

/// The slot of an inode's indirect map that names a table of tables.
pub(crate) const DOUBLE: usize = 13;
/// Flags that an inode with a task may have.
const TASK_FLAGS: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA);

impl Work<'_> {
    /// Whether an inode has a task.
    pub(crate) fn is_task(&self, nr: InodeNr) -> bool {
        task::numbers(&self.sb).contains(&nr.get())
    }

    /// Whether an inode is the journal and none of the reserved ones: a file with a name.
    pub(crate) fn is_visible_journal(&self, nr: InodeNr) -> bool {
        self.sb.journal_inode() == Some(nr) && nr >= self.sb.first_inode()
    }

    /// Reads the inodes with a task, and claims what they hold.
    pub(crate) fn note_tasks(&mut self) -> Result<(), Error> {
        for nr in task::numbers(&self.sb) {
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
    pub(crate) fn link_task(&mut self, slot: &mut Slot) {
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
}

/// The block of the table of tables.
pub(crate) fn double_of(slot: &Slot) -> u64 {
    numbers(&slot.block()).nth(DOUBLE).map_or(0, u64::from)
}
