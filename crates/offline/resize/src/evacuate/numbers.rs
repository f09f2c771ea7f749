//! New numbers for inodes of groups that go away.

use super::{Evacuation, is_directory};
use crate::error::{Error, Result};
use crate::inodes;
use crate::metadata;
use crate::volume::Volume;
use hectare_ext4::inode::Inode;
use hectare_ext4::quota::Kind;
use hectare_units::{GroupNr, InodeNr};
use std::collections::{HashMap, HashSet};

/// Which inodes have which other numbers.
#[derive(Default)]
pub(super) struct Numbers {
    by_old: HashMap<InodeNr, InodeNr>,
    new: HashSet<InodeNr>,
}

impl Numbers {
    /// Gives all inodes in use beyond the first `kept` groups free numbers in those, in order.
    pub(super) fn assign(volume: &mut Volume, kept: u32) -> Result<Self> {
        let (count, per) = (metadata::count(&volume.groups), volume.geometry().inodes_per_group);
        let mut numbers = Self::default();
        let mut next = (GroupNr::new(0), 0);
        for group in (kept..count).map(GroupNr::new) {
            if volume.groups[group.index()].free_inodes == per {
                continue;
            }
            for index in 0..per {
                if volume.inode_bitmap(group)?.get(index) {
                    let old = volume.geometry().inode_at(group, index);
                    let new = free_inode(volume, &mut next, kept)?;
                    numbers.by_old.insert(old, new);
                    numbers.new.insert(new);
                }
            }
        }
        Ok(numbers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_old.is_empty()
    }

    pub(super) fn len(&self) -> u32 {
        hectare_units::low32(hectare_units::u64_of(self.by_old.len()))
    }

    /// The number an inode will have.
    pub(super) fn of(&self, nr: InodeNr) -> InodeNr {
        self.by_old.get(&nr).copied().unwrap_or(nr)
    }

    /// Whether a number was free and is given to an inode.
    pub(super) fn is_new(&self, nr: InodeNr) -> bool {
        self.new.contains(&nr)
    }
}

/// Takes the first free inode from `next` on.
fn free_inode(volume: &mut Volume, next: &mut (GroupNr, u32), kept: u32) -> Result<InodeNr> {
    let per = volume.geometry().inodes_per_group;
    while next.0.get() < kept {
        let group = next.0;
        let has_free = volume.groups[group.index()].free_inodes > 0;
        if has_free && let Some(run) = volume.inode_bitmap(group)?.free_run(next.1..per, 1) {
            let nr = volume.geometry().inode_at(group, run.start);
            *next = (group, run.end);
            if nr < volume.sb.first_inode() {
                continue;
            }
            volume.inode_bitmap(group)?.put(run.clone(), true);
            // A group in use has its block bitmap written, too.
            volume.block_bitmap(group)?.is_dirty = true;
            let lazy = volume.sb.features().group_checksums();
            let desc = volume.desc_mut(group);
            if lazy {
                desc.itable_unused = desc.itable_unused.min(per - run.end);
            }
            return Ok(nr);
        }
        *next = (group.next(), 0);
    }
    let reason = format!("its inodes in use are more than the {} that {kept} groups have", kept * per);
    Err(Error::Size(reason))
}

impl Evacuation<'_> {
    /// Frees the old number of an inode that has another one.
    pub(super) fn leave_number(&mut self, old: InodeNr, new: InodeNr, inode: &Inode) -> Result<()> {
        inodes::clear(self.volume, old)?;
        let slot =
            |nr| self.volume.geometry().inode_slot(nr).ok_or_else(|| super::corrupt(nr, "it has no slot"));
        let ((old_group, index), (new_group, _)) = (slot(old)?, slot(new)?);
        self.volume.inode_bitmap(old_group)?.put(index..index + 1, false);
        if is_directory(inode) {
            let desc = self.volume.desc_mut(old_group);
            desc.used_dirs = desc.used_dirs.saturating_sub(1);
            self.volume.desc_mut(new_group).used_dirs += 1;
        }
        Ok(())
    }

    /// Changes the numbers that the superblock names.
    pub(super) fn special_numbers(&mut self) -> Result<()> {
        let number = |nr: u32| InodeNr::from_disk(nr).map_or(0, |nr| self.numbers.of(nr).get());
        let mut raw = *self.volume.sb.raw();
        for kind in Kind::ALL {
            let field = match kind {
                Kind::User => &mut raw.s_usr_quota_inum,
                Kind::Group => &mut raw.s_grp_quota_inum,
                Kind::Project => &mut raw.s_prj_quota_inum,
            };
            *field = number(field.get()).into();
        }
        for field in [&mut raw.s_orphan_file_inum, &mut raw.s_journal_inum, &mut raw.s_lpf_ino] {
            *field = number(field.get()).into();
        }
        self.edit_superblock(|old| *old = raw)
    }
}
