//! Group descriptors: read from a backup where they are broken, and laid out anew where that fails.

mod bitmaps;
mod descriptor_choice;

use crate::error::Error;
use crate::know::places::{GROUPS_MAX, same_places};
use crate::know::work::Work;
use crate::mends::Mends;
use hectare_check::What;
use hectare_device::Device;
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::Place;
use hectare_ext4::feature::Incompat;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_units::{BlockNr, GroupNr, low16, low32, usize_of};

/// Groups with a superblock that are looked at.
const SUPERS_MAX: usize = 16;

impl Work<'_> {
    /// Reads all descriptors; afterwards each is sound.
    pub(crate) fn read_groups(&mut self) -> Result<(), Error> {
        let geometry = self.geometry().clone();
        let per = geometry.descs_per_block();
        let size = usize_of(geometry.desc_size);
        let mut unused = 0u32;
        for index in 0..geometry.desc_blocks() {
            let block = self.block(geometry.desc_block(index))?;
            let numbers = index * per..geometry.groups().min((index + 1) * per);
            for (nr, slot) in numbers.zip(block.chunks_exact(size)) {
                let group = GroupNr::new(nr);
                let mut desc = match GroupDesc::parse(slot, group, &self.sb) {
                    Ok(desc) => self.mend_marks(group, desc),
                    Err(corrupt) => self.mend_group(group, slot, &corrupt.reason)?,
                };
                if desc.itable_unused > 0 && !geometry.features.group_checksums() {
                    desc.itable_unused = 0;
                    unused += 1;
                }
                self.groups.push(desc);
            }
        }
        self.report_unused_counts(unused);
        self.prefer_backups()?;
        self.fit_kept_blocks();
        self.part_overlaps();
        Ok(())
    }

    /// Reads all descriptors as they will be, for a log that is found through them. What is mended in them, and
    /// in the superblock for their sake, is mended and reported after the log is replayed.
    pub(crate) fn preview_groups(&mut self) -> Result<(), Error> {
        let mends = std::mem::replace(&mut self.mends, Mends::new(self.device.store()));
        let (sb, refresh) = (self.sb.clone(), self.refresh_backups);
        let read = self.read_groups();
        (self.mends, self.sb, self.refresh_backups) = (mends, sb, refresh);
        read
    }

    /// Marks of what is not initialised that can't be; the bitmaps are written later, if they differ.
    fn mend_marks(&mut self, group: GroupNr, mut desc: GroupDesc) -> GroupDesc {
        let is_last = group.get() + 1 == self.geometry().groups();
        let wrong = match self.sb.features().group_checksums() {
            true if is_last => GroupFlags::BLOCK_UNINIT,
            true => GroupFlags::empty(),
            false => GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT,
        };
        if desc.flags.intersects(wrong) {
            desc.flags.remove(wrong);
            let text = "it is marked as not initialised, which it can't be: the mark is cleared";
            self.mended(What::GroupDescriptor, Place::Group(group), text);
        }
        desc
    }

    /// Clears the marks of a group by which inodes in use were not read.
    pub(crate) fn read_all_inodes(&mut self, group: GroupNr) -> Result<(), Error> {
        if self.clear_unused(group)? {
            let text = "its count of unused inodes covers inodes in use: its whole table is read";
            self.mended(What::GroupDescriptor, Place::Group(group), text);
        }
        Ok(())
    }

    /// Clears those marks of all groups.
    pub(crate) fn read_all_tables(&mut self) -> Result<(), Error> {
        for group in 0..self.geometry().groups() {
            self.clear_unused(GroupNr::new(group))?;
        }
        let text = "counts of unused inodes cover inodes in use, which lead to more: all tables are read";
        self.mended(What::GroupDescriptor, Place::Volume, text);
        Ok(())
    }

    /// Lets the whole table of a group count; whether it did not.
    fn clear_unused(&mut self, group: GroupNr) -> Result<bool, Error> {
        let (at, within) = self.descriptor_place(group);
        let block = self.block(at)?;
        let slot = &block[within..within + usize_of(self.geometry().desc_size)];
        let Ok(desc) = GroupDesc::parse(slot, group, &self.sb) else { return Ok(false) };
        if desc.itable_unused == 0 && !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(false);
        }
        let flags = desc.flags - GroupFlags::INODE_UNINIT;
        self.write_descriptor(group, &GroupDesc { flags, itable_unused: 0, ..desc })?;
        Ok(true)
    }

    /// The block that has the descriptor of a group, and where in it.
    fn descriptor_place(&self, nr: GroupNr) -> (BlockNr, usize) {
        let (geometry, per) = (self.geometry(), self.geometry().descs_per_block());
        (geometry.desc_block(nr.get() / per), usize_of(nr.get() % per * geometry.desc_size))
    }

    /// Writes a descriptor with its checksum.
    pub(crate) fn write_descriptor(&mut self, nr: GroupNr, desc: &GroupDesc) -> Result<(), Error> {
        let (at, within) = self.descriptor_place(nr);
        let mut block = self.block(at)?;
        let slot = &mut block[within..within + usize_of(self.geometry().desc_size)];
        desc.render(slot, nr, &self.sb);
        self.put_block(at, &block)
    }

    /// Blocks kept for growing that reach over bitmaps and tables are too many: those stay where they are. Of
    /// one such structure not the count is wrong, but its place.
    fn fit_kept_blocks(&mut self) {
        let geometry = self.geometry().clone();
        let kept = geometry.reserved_gdt_blocks;
        if kept == 0 || geometry.groups() > GROUPS_MAX {
            return;
        }
        let starts: Vec<u64> = self
            .groups
            .iter()
            .flat_map(|desc| [desc.block_bitmap, desc.inode_bitmap, desc.inode_table].map(BlockNr::get))
            .collect();
        let supers = (0..geometry.groups()).map(GroupNr::new).filter(|nr| geometry.has_super(*nr));
        let fits = supers.take(SUPERS_MAX).filter_map(|nr| {
            let end = geometry.first_block(nr).get() + u64::from(geometry.base_meta_blocks(nr));
            let first = end.checked_sub(u64::from(kept))?;
            let within = || starts.iter().filter(|start| (first..end).contains(start));
            (within().count() > 1).then_some(low32(within().min()? - first))
        });
        let Some(fits) = fits.min() else { return };
        let text = format!(
            "s_reserved_gdt_blocks was {kept}, which reaches over bitmaps or inode tables: now {fits}"
        );
        self.mended(What::Superblock, Place::Volume, text);
        self.edit_superblock(|raw| raw.s_reserved_gdt_blocks = low16(u64::from(fits)).into());
    }

    /// Without checksums of groups no inodes are counted as unused.
    fn report_unused_counts(&mut self, groups: u32) {
        if groups > 0 {
            let text = format!("groups that counted unused inodes, without checksums: {groups}, now none");
            self.mended(What::GroupDescriptor, Place::Volume, text);
        }
    }

    /// A descriptor that is broken.
    fn mend_group(&mut self, group: GroupNr, slot: &[u8], reason: &str) -> Result<GroupDesc, Error> {
        let place = Place::Group(group);
        let backup = self.backup_of(group)?;
        let own = self.unsealed(slot, group);
        let (desc, text) = match (own, backup) {
            (Some(own), Some(backup)) if same_places(&own, &backup) => (own, "made right"),
            (_, Some(backup)) => (backup, "restored from a backup"),
            (Some(own), None) => (own, "made right"),
            (None, None) => (self.usual(group), "laid out as mkfs does"),
        };
        self.mended(What::GroupDescriptor, place, format!("{reason}: {text}"));
        self.refresh_backups = true;
        let flags = GroupFlags::INODE_ZEROED;
        Ok(GroupDesc { flags, itable_unused: 0, free_clusters: 0, free_inodes: 0, ..desc })
    }

    /// Where mkfs puts the bitmaps and the table of a group.
    fn usual(&self, group: GroupNr) -> GroupDesc {
        let geometry = self.geometry();
        let per_flex = 1u32 << geometry.flex_shift.min(16);
        let flex = geometry.features.incompat.contains(Incompat::FLEX_BG) && per_flex > 1;
        let lead = if flex { GroupNr::new(group.get() / per_flex * per_flex) } else { group };
        let start = geometry.first_block(lead).get() + u64::from(geometry.base_meta_blocks(lead));
        let (of, index) =
            if flex { (u64::from(per_flex), u64::from(group.get() - lead.get())) } else { (1, 0) };
        let table = start + 2 * of + index * u64::from(geometry.itable_blocks());
        GroupDesc {
            block_bitmap: BlockNr::new(start + index),
            inode_bitmap: BlockNr::new(start + of + index),
            inode_table: BlockNr::new(table),
            free_clusters: 0,
            free_inodes: 0,
            used_dirs: 0,
            itable_unused: 0,
            flags: GroupFlags::INODE_ZEROED,
            block_bitmap_csum: 0,
            inode_bitmap_csum: 0,
        }
    }

    /// Bitmaps that lie in other metadata are put elsewhere; of an inode table that does, the place in the
    /// backup counts.
    fn part_overlaps(&mut self) {
        let geometry = self.geometry().clone();
        let itable = u64::from(geometry.itable_blocks());
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let overlaps = |taken: &[(u64, u64)], at: u64, len: u64| {
            taken.iter().any(|(start, end)| at < *end && *start < at + len)
        };
        if geometry.groups() > GROUPS_MAX {
            return; // the check names overlaps of larger volumes
        }
        for nr in 0..geometry.groups() {
            let group = GroupNr::new(nr);
            let base = u64::from(geometry.base_meta_blocks(group));
            let first = geometry.first_block(group).get();
            // A range without blocks would overlap a table that crosses the border of groups.
            if base > 0 {
                taken.push((first, first + base));
            }
        }
        for nr in 0..geometry.groups() {
            let group = GroupNr::new(nr);
            let Some(desc) = self.groups.get(group.index()).cloned() else { continue };
            let mut new = desc.clone();
            if overlaps(&taken, desc.inode_table.get(), itable) {
                new.inode_table =
                    self.backup_of(group).ok().flatten().unwrap_or_else(|| self.usual(group)).inode_table;
            }
            taken.push((new.inode_table.get(), new.inode_table.get() + itable));
            if new != desc {
                self.moved(group, new);
            }
        }
        for nr in 0..geometry.groups() {
            let group = GroupNr::new(nr);
            let Some(desc) = self.groups.get(group.index()).cloned() else { continue };
            let mut new = desc.clone();
            for inode in [false, true] {
                let at = if inode { desc.inode_bitmap } else { desc.block_bitmap };
                let mut place = at.get();
                if overlaps(&taken, place, 1) {
                    let usual = self.backup_of(group).ok().flatten().unwrap_or_else(|| self.usual(group));
                    place = if inode { usual.inode_bitmap } else { usual.block_bitmap }.get();
                    let start = geometry.first_block(group).get();
                    let mut others = start..geometry.blocks_count.get();
                    while overlaps(&taken, place, 1) {
                        let Some(next) = others.next() else { break };
                        place = next;
                    }
                }
                taken.push((place, place + 1));
                if inode {
                    new.inode_bitmap = BlockNr::new(place);
                } else {
                    new.block_bitmap = BlockNr::new(place);
                }
            }
            if new != desc {
                self.moved(group, new);
            }
        }
    }

    fn moved(&mut self, group: GroupNr, mut desc: GroupDesc) {
        let text = "its bitmaps or inode table lay in other metadata: put elsewhere";
        self.mended(What::GroupDescriptor, Place::Group(group), text);
        desc.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        self.refresh_backups = true;
        if let Some(place) = self.groups.get_mut(group.index()) {
            *place = desc;
        }
    }

    /// Claims superblocks, descriptors, bitmaps, inode tables and the mount protection.
    pub(crate) fn claim_group_metadata(&mut self) -> Result<(), Error> {
        let geometry = self.geometry().clone();
        let itable = u64::from(geometry.itable_blocks());
        let mut stretches = Vec::new();
        for (nr, desc) in (0..geometry.groups()).map(GroupNr::new).zip(&self.groups) {
            let base = u64::from(geometry.base_meta_blocks(nr));
            stretches.push((geometry.first_block(nr).get(), base));
            let own = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)];
            stretches.extend(own.map(|(start, len)| (start.get(), len)));
        }
        let protection = self.mend_mmp(&stretches)?;
        stretches.extend(protection.map(|block| (block.get(), 1)));
        for (first, len) in stretches.into_iter().filter(|(_, len)| *len > 0) {
            let cluster = |block: u64| geometry.cluster_of(BlockNr::new(block)).get();
            let _ = self.used.claim(cluster(first)..cluster(first + len - 1) + 1);
        }
        Ok(())
    }

    /// The block of the mount protection, which says afterwards that nobody uses the volume. It can't lie
    /// in the
    /// volume's other metadata.
    fn mend_mmp(&mut self, stretches: &[(u64, u64)]) -> Result<Option<BlockNr>, Error> {
        if !self.sb.features().incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let nr = BlockNr::new(self.sb.raw().s_mmp_block.get());
        let is_taken = stretches.iter().any(|(start, len)| (*start..start + len).contains(&nr.get()));
        if !self.holds(nr.get()) || is_taken {
            self.lost(What::MountProtection, Place::Block(nr), "its block can't be: switched off");
            self.edit_superblock(|raw| {
                raw.s_feature_incompat = (raw.s_feature_incompat.get() & !Incompat::MMP.bits()).into();
                raw.s_mmp_block = 0.into();
            });
            return Ok(None);
        }
        let bytes = self.block(nr)?;
        let parsed = Mmp::parse(&bytes, nr, self.sb.seed());
        if !matches!(parsed, Ok(Mmp { status: Status::Clean, .. })) {
            self.mended(What::MountProtection, Place::Block(nr), "it says now that nobody uses the volume");
            let fresh = clean_mmp(&bytes, self.sb.seed());
            self.device.write_at(nr.offset(self.geometry().block_size), &fresh)?;
        }
        Ok(Some(nr))
    }
}

/// The mount protection of a volume that nobody uses; what else the block says stays.
fn clean_mmp(old: &[u8], seed: Option<Seed>) -> Vec<u8> {
    let known = Mmp::parse(old, BlockNr::new(0), None);
    let (time, check_interval) = known.map_or((0, 5), |mmp| (mmp.time, mmp.check_interval));
    Mmp { status: Status::Clean, time, check_interval }.render(seed).to_vec()
}
