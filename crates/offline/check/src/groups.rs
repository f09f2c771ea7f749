//! The group descriptors, and the blocks of each group's own metadata.

use crate::context::Scan;
use crate::report::{Error, Problem, What};
use hectare_ext4::error::Place;
use hectare_ext4::feature::Incompat;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_units::{BlockNr, GroupNr, memory, usize_of};
use std::sync::Arc;

/// A run of metadata: first block, blocks, owner.
type Stretch = (u64, u64, Option<GroupNr>);

impl Scan<'_> {
    /// Reads all descriptors, and says whether all are sound.
    pub(crate) fn read_groups(&mut self) -> Result<bool, Error> {
        let volume = self.volume;
        let geometry = volume.geometry();
        let (groups, per) = (geometry.groups(), geometry.descs_per_block());
        self.report.counts.groups = groups;
        let mut block = self.buffer();
        let (mut sound, mut found, mut unused) = (true, Vec::new(), 0);
        for index in 0..geometry.desc_blocks() {
            let at = geometry.desc_block(index);
            if at >= BlockNr::new(geometry.blocks_count.get()) {
                self.tell(What::GroupDescriptor, Place::Block(at), "it lies outside the volume");
                return Ok(false);
            }
            volume.read(at, &mut block)?;
            let numbers = index * per..groups.min((index + 1) * per);
            for (nr, slot) in numbers.zip(block.chunks_exact(usize_of(geometry.desc_size))) {
                match GroupDesc::parse(slot, GroupNr::new(nr), &volume.sb) {
                    Ok(desc) => {
                        self.check_marks(GroupNr::new(nr), &desc);
                        unused += u32::from(desc.itable_unused > 0);
                        memory::reserve(&mut found, 1)?;
                        found.push(desc);
                    }
                    Err(corrupt) => {
                        self.tell_corrupt(What::GroupDescriptor, corrupt);
                        sound = false;
                    }
                }
            }
            let told = usize::try_from(self.report.problem_count).unwrap_or(usize::MAX);
            if !sound && told >= volume.options.problems_max {
                self.report.leave("the group descriptors after those that are named");
                break;
            }
        }
        if unused > 0 && !volume.sb.features().group_checksums() {
            self.note_unused_counts(unused);
        }
        self.give_back(block);
        self.groups = Arc::new(found);
        Ok(sound)
    }

    /// Marks of what is not initialised need checksums of descriptors, and the bitmap of the last group, which
    /// may be shorter, is always there.
    fn check_marks(&mut self, nr: GroupNr, desc: &GroupDesc) {
        let (uninit, volume) = (GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT, self.volume);
        if !volume.sb.features().group_checksums() && desc.flags.intersects(uninit) {
            let text = "it is marked as not initialised, which needs checksums of descriptors";
            self.tell(What::GroupDescriptor, Place::Group(nr), text);
        }
        let is_last = nr.get() + 1 == volume.geometry().groups();
        if is_last && self.group_flag(desc, GroupFlags::BLOCK_UNINIT) {
            let text = "the block bitmap of the last group is marked as not initialised";
            self.tell(What::GroupDescriptor, Place::Group(nr), text);
        }
    }

    /// Counts of unused inodes without checksums, which no reader uses. The scan of the inodes reports those among
    /// them that are in use.
    fn note_unused_counts(&mut self, groups: u32) {
        let reason = match groups {
            1 => "1 group counts unused inodes, without checksums".to_owned(),
            groups => format!("{groups} groups count unused inodes, without checksums"),
        };
        let (what, place) = (What::GroupDescriptor, Place::Volume);
        self.report.notes.push(Problem { what, place, reason: reason.into() });
    }

    /// Claims superblocks, descriptors, bitmaps, inode tables and the mount protection.
    pub(crate) fn claim_group_metadata(&mut self) -> Result<(), Error> {
        let mut stretches = self.group_stretches()?;
        if let Some(block) = self.check_mmp()? {
            stretches.push((block.get(), 1, None));
        }
        stretches.sort_unstable();
        for pair in stretches.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                let place = pair[1].2.map_or(Place::Block(BlockNr::new(pair[1].0)), Place::Group);
                let reason = format!("its metadata at block {} overlaps other metadata", pair[1].0);
                self.tell(What::GroupDescriptor, place, reason);
            }
        }
        self.note_shared_tables(&stretches);
        for (first, len, _) in stretches {
            let geometry = self.volume.geometry();
            let cluster = |block: u64| geometry.cluster_of(BlockNr::new(block)).get();
            // Metadata may share clusters with other metadata; overlaps were already reported.
            let _ = self.claims.bits.claim(cluster(first)..cluster(first + len - 1) + 1);
        }
        Ok(())
    }

    /// Notes the groups whose inode table lies in that of another group: each table is read once.
    fn note_shared_tables(&mut self, sorted: &[Stretch]) {
        let (mut end, mut shared) = (0, Vec::new());
        for (first, len, owner) in sorted {
            let Some(nr) = owner.filter(|nr| self.is_table(*nr, *first)) else { continue };
            if *first < end {
                shared.push(nr);
            }
            end = end.max(first + len);
        }
        shared.sort_unstable();
        self.shared_tables = Arc::new(shared);
        if !self.shared_tables.is_empty() {
            self.report.leave("the inodes of groups whose inode table overlaps that of another group");
        }
    }

    fn is_table(&self, nr: GroupNr, first: u64) -> bool {
        self.groups.get(nr.index()).is_some_and(|desc| desc.inode_table.get() == first)
    }

    fn group_stretches(&mut self) -> Result<Vec<Stretch>, Error> {
        let geometry = self.volume.geometry();
        let itable = u64::from(geometry.itable_blocks());
        let flex = geometry.features.incompat.contains(Incompat::FLEX_BG);
        let mut stretches = Vec::new();
        memory::reserve(&mut stretches, self.groups.len() * 4)?;
        let mut astray = Vec::new();
        for (nr, desc) in (0..geometry.groups()).map(GroupNr::new).zip(&*self.groups) {
            let base = u64::from(geometry.base_meta_blocks(nr));
            let first = geometry.first_block(nr).get();
            if base > 0 {
                stretches.push((first, base, Some(nr)));
            }
            let own = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)];
            for (start, len) in own {
                stretches.push((start.get(), len, Some(nr)));
                let end = first + u64::from(geometry.blocks_in(nr));
                if !flex && (start.get() < first || start.get() + len > end) {
                    astray.push((nr, start));
                }
            }
        }
        for (nr, start) in astray {
            let reason = format!("its metadata at block {start} lies outside the group");
            self.tell(What::GroupDescriptor, Place::Group(nr), reason);
        }
        Ok(stretches)
    }

    /// Checks the block of the mount protection, and gives its number.
    fn check_mmp(&mut self) -> Result<Option<BlockNr>, Error> {
        let volume = self.volume;
        if !volume.sb.features().incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let nr = BlockNr::new(volume.sb.raw().s_mmp_block.get());
        if !volume.holds(nr.get()) {
            self.tell(What::MountProtection, Place::Block(nr), "it can't lie there");
            return Ok(None);
        }
        let mut block = self.buffer();
        volume.read(nr, &mut block)?;
        match Mmp::parse(&block, nr, volume.sb.seed()) {
            Ok(Mmp { status: Status::Clean, .. }) => {}
            Ok(_) => self.tell(
                What::MountProtection,
                Place::Block(nr),
                "the volume is in use, or was when it crashed",
            ),
            Err(corrupt) => self.tell_corrupt(What::MountProtection, corrupt),
        }
        self.give_back(block);
        Ok(Some(nr))
    }

    /// Whether a group's flag counts: only volumes with group checksums have them.
    pub(crate) fn group_flag(&self, group: &GroupDesc, flag: GroupFlags) -> bool {
        self.volume.sb.features().group_checksums() && group.flags.contains(flag)
    }
}
