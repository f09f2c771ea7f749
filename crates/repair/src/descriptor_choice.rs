//! Which descriptors count, the primary ones or their backups, where both could be.
//!
//! A descriptor whose checksum is right, or which has none, may still lead elsewhere: to where other metadata
//! lies, out of its group, or to what is no table of this group. Then the backup counts, if it leads to
//! something better.
//!
//! Hazard: e2fsck moves tables and leaves the backups of their descriptors as they are. A table that looks
//! right is never given up for one that looks better.
//!
//! What it is not: descriptors that can't be at all, which `groups` mends, as it does overlaps that backups
//! do not explain.

use crate::groups::{GROUPS_MAX, same_places};
use crate::report::Error;
use crate::work::Work;
use hectare_check::{RawInode, What};
use hectare_device::Device;
use hectare_ext4::error::Place;
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::GroupDesc;
use hectare_ext4::inode::Kind;
use hectare_units::{BlockNr, GroupNr, InodeNr, usize_of};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a table that are looked at.
const LOOKED_AT: usize = 1 << 18;
/// What the root counts for among the inodes of a table.
const ROOT: i64 = 1 << 20;

impl Work<'_> {
    /// Takes the places of backups where those of the primary descriptors contradict each other, or where the
    /// tables of the backups are better.
    pub(crate) fn prefer_backups(&mut self) -> Result<(), Error> {
        if self.geometry().groups() > GROUPS_MAX {
            return Ok(());
        }
        let mut backups = BTreeMap::new();
        for group in (0..self.geometry().groups()).map(GroupNr::new) {
            let Some(desc) = self.groups.get(group.index()).cloned() else { break };
            if let Some(backup) = self.backup_of(group)?.filter(|backup| !same_places(backup, &desc)) {
                backups.insert(group, with_places(&desc, &backup));
            }
        }
        if backups.is_empty() {
            return Ok(());
        }
        let contested = contested(self.geometry(), &self.groups);
        let (mut chosen, mut by_table) = (Vec::new(), true);
        for (group, backup) in &backups {
            let table = self.has_better_table(*group, backup)?;
            if contested.contains(group) || table {
                chosen.push(*group);
                by_table &= table;
            }
        }
        let (mut groups, mut left) = self.with_backups(&backups, &chosen);
        let all: Vec<GroupNr> = backups.keys().copied().collect();
        let (groups_of_all, left_of_all) = self.with_backups(&backups, &all);
        if left_of_all < left {
            (chosen, groups, left) = (all, groups_of_all, left_of_all);
        }
        let better = left < contested.len() || by_table && left == contested.len();
        if chosen.is_empty() || !better {
            return Ok(());
        }
        for group in chosen {
            let place = Place::Group(group);
            let text = "it gave wrong locations of bitmaps or inode table: restored from a backup";
            // What lies in metadata of others is theirs.
            let own = match self.groups.get(group.index()).filter(|_| !contested.contains(&group)) {
                Some(desc) if groups.get(group.index()).is_some_and(|new| !same_table(new, desc)) => {
                    self.value_of(group, desc.inode_table)?.good
                }
                _ => 0,
            };
            if own > 0 {
                self.lost(What::GroupDescriptor, place, format!("{text}; {own} inodes lay there"));
            } else {
                self.mended(What::GroupDescriptor, place, text);
            }
        }
        self.groups = groups;
        Ok(())
    }

    /// Whether the table of a group is none, and that of its backup is better. A backup may be older than a
    /// table that was moved: one that looks right counts.
    fn has_better_table(&self, group: GroupNr, backup: &GroupDesc) -> Result<bool, Error> {
        let Some(desc) = self.groups.get(group.index()).filter(|desc| !same_table(desc, backup)) else {
            return Ok(false);
        };
        let own = self.value_of(group, desc.inode_table)?;
        Ok(own.is_poor() && self.value_of(group, backup.inode_table)?.score() > own.score())
    }

    /// The descriptors with the backups of some groups, and how many contradict each other then.
    fn with_backups(
        &self,
        backups: &BTreeMap<GroupNr, GroupDesc>,
        chosen: &[GroupNr],
    ) -> (Vec<GroupDesc>, usize) {
        let mut groups = self.groups.clone();
        for group in chosen {
            if let (Some(place), Some(backup)) = (groups.get_mut(group.index()), backups.get(group)) {
                *place = backup.clone();
            }
        }
        let left = contested(self.geometry(), &groups).len();
        (groups, left)
    }

    /// How much a table looks like that of a group.
    fn value_of(&self, group: GroupNr, table: BlockNr) -> Result<Value, Error> {
        let geometry = self.geometry();
        let size = usize_of(geometry.inode_size);
        let count = usize_of(geometry.inodes_per_group).min(LOOKED_AT / size);
        let mut bytes = vec![0; count * size];
        self.device.read_at(table.offset(geometry.block_size), &mut bytes)?;
        let mut value = Value::default();
        for (index, slot) in (0..).zip(bytes.chunks_exact(size)) {
            let Some(slot) = RawInode::new(slot).filter(|slot| !slot.is_blank()) else { continue };
            let nr = geometry.inode_at(group, index);
            let sealed = self.sb.seed().is_none_or(|seed| slot.wrong_checksum(nr, seed).is_none());
            let known = slot.kind().is_some() || slot.mode() == 0 && slot.links() == 0;
            let count = if sealed && known { &mut value.good } else { &mut value.bad };
            *count += 1;
            value.has_root |= nr == InodeNr::ROOT && slot.kind() == Some(Kind::Directory) && sealed;
        }
        Ok(value)
    }
}

/// What lies where the table of a group should be.
#[derive(Clone, Copy, Default)]
struct Value {
    /// Slots in use that can be inodes of the group.
    good: i64,
    /// Slots in use that can't be.
    bad: i64,
    has_root: bool,
}

impl Value {
    /// Whether this is no table, rather than a damaged one.
    fn is_poor(self) -> bool {
        self.good == 0 || self.bad > self.good
    }

    /// What is compared.
    fn score(self) -> i64 {
        self.good - self.bad + if self.has_root { ROOT } else { 0 }
    }
}

fn same_table(a: &GroupDesc, b: &GroupDesc) -> bool {
    a.inode_table == b.inode_table
}

/// The groups whose metadata lies in other metadata, or out of the group where it must not.
pub(crate) fn contested(geometry: &Geometry, groups: &[GroupDesc]) -> BTreeSet<GroupNr> {
    let itable = u64::from(geometry.itable_blocks());
    let flex = geometry.features.incompat.contains(Incompat::FLEX_BG);
    let (mut contested, mut stretches) = (BTreeSet::new(), Vec::new());
    for (nr, desc) in (0..geometry.groups()).map(GroupNr::new).zip(groups) {
        let first = geometry.first_block(nr).get();
        let end = first + u64::from(geometry.blocks_in(nr));
        let base = u64::from(geometry.base_meta_blocks(nr));
        if base > 0 {
            stretches.push((first, first + base, None));
        }
        let own = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)];
        for (start, len) in own.map(|(start, len)| (start.get(), len)) {
            stretches.push((start, start + len, Some(nr)));
            if !flex && (start < first || start + len > end) {
                contested.insert(nr);
            }
        }
    }
    stretches.sort_unstable();
    let mut last = (0, None);
    for (start, end, owner) in stretches {
        if start < last.0 {
            contested.extend(owner);
            contested.extend(last.1);
        }
        if end > last.0 {
            last = (end, owner);
        }
    }
    contested
}

/// A descriptor that leads to where another does.
fn with_places(desc: &GroupDesc, places: &GroupDesc) -> GroupDesc {
    GroupDesc {
        block_bitmap: places.block_bitmap,
        inode_bitmap: places.inode_bitmap,
        inode_table: places.inode_table,
        ..desc.clone()
    }
}
