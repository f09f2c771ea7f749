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

use crate::error::Error;
use crate::know::places::{GROUPS_MAX, contested, is_astray, same_places};
use crate::know::work::Work;
use hectare_check::{RawInode, What};
use hectare_device::Device;
use hectare_ext4::error::Place;
use hectare_ext4::group::{GroupDesc, GroupFlags, raw_of};
use hectare_ext4::inode::Kind;
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, join32, low32, u64_of, usize_of};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a table that are looked at, from the first slot on that was ever used.
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
        let chosen = self.choice(&backups, &contested)?;
        if chosen.is_empty() {
            return Ok(());
        }
        let (groups, _) = self.with_backups(&backups, &chosen);
        let itable = u64::from(self.geometry().itable_blocks());
        let tables: BTreeSet<u64> = groups.iter().map(|desc| desc.inode_table.get()).collect();
        for group in chosen {
            let place = Place::Group(group);
            let text = "it gave wrong locations of bitmaps or inode table: restored from a backup";
            let Some(desc) = self.groups.get(group.index()) else { continue };
            let table = desc.inode_table;
            // What lies in the tables of others, or in their other metadata, is theirs.
            let (from, to) = ((table.get() + 1).saturating_sub(itable), table.get() + itable);
            let own = match tables.range(from..to).next() {
                Some(_) => Value::default(),
                None => self.value_of(group, table)?,
            };
            if own.good > 0 && !(contested.contains(&group) && own.is_poor()) {
                let text = format!("{text}; inodes that lay there: {}", own.good);
                self.lost(What::GroupDescriptor, place, text);
            } else {
                self.mended(What::GroupDescriptor, place, text);
            }
        }
        self.groups = groups;
        Ok(())
    }

    /// The groups whose backups are to count; none if that is no better. The fewest that help are taken: of
    /// two groups that contradict each other one may be right, and newer than its backup.
    fn choice(
        &self,
        backups: &BTreeMap<GroupNr, GroupDesc>,
        contested: &BTreeSet<GroupNr>,
    ) -> Result<Vec<GroupNr>, Error> {
        let (mut by_table, mut wrong, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        for (group, backup) in backups {
            let (table, contested) = (self.has_better_table(*group, backup)?, contested.contains(group));
            by_table.extend(table.then_some(*group));
            wrong.extend((table || contested && self.is_wrong(*group, backup)?).then_some(*group));
            doubtful.extend((table || contested).then_some(*group));
        }
        let all = backups.keys().copied().collect();
        let choices = [by_table.clone(), wrong, doubtful, all]
            .map(|chosen| (self.with_backups(backups, &chosen).1, chosen));
        // Of several that are as good, the first.
        let best = choices.into_iter().min_by_key(|(left, _)| *left);
        let best = best.filter(|(left, chosen)| {
            *left < contested.len() || *left == contested.len() && *chosen == by_table
        });
        Ok(best.map(|(_, chosen)| chosen).unwrap_or_default())
    }

    /// Whether the descriptor of a group is wrong by itself: it leads out of the group, or to a table that
    /// agrees less with the bitmap of inodes than that of the backup.
    fn is_wrong(&self, group: GroupNr, backup: &GroupDesc) -> Result<bool, Error> {
        let Some(desc) = self.groups.get(group.index()) else { return Ok(false) };
        if is_astray(self.geometry(), group, desc) {
            return Ok(true);
        }
        if same_table(desc, backup) {
            return Ok(false);
        }
        let bitmap = match self.group_flag(desc, GroupFlags::INODE_UNINIT) {
            true => vec![0; self.geometry().block_size.len()],
            false => self.block(desc.inode_bitmap)?,
        };
        Ok(self.misses(desc, &bitmap)? > self.misses(backup, &bitmap)?)
    }

    /// How many slots of a table are in use where a bitmap says that they are not, or the other way round.
    fn misses(&self, desc: &GroupDesc, bitmap: &[u8]) -> Result<usize, Error> {
        let geometry = self.geometry();
        let size = usize_of(geometry.inode_size);
        let mut bytes = vec![0; usize_of(geometry.inodes_per_group).min(LOOKED_AT / size) * size];
        self.device.read_at(desc.inode_table.offset(geometry.block_size), &mut bytes)?;
        let in_use =
            bytes.chunks_exact(size).map(|slot| RawInode::new(slot).is_some_and(|slot| slot.links() > 0));
        let marked = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        Ok(in_use.zip(marked).filter(|(in_use, marked)| in_use != marked).count())
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

    /// The descriptor of a group in the first backup where it is sound.
    pub(crate) fn backup_of(&self, group: GroupNr) -> Result<Option<GroupDesc>, Error> {
        let geometry = self.geometry();
        let per = geometry.descs_per_block();
        let (index, within) = (group.get() / per, usize_of(group.get() % per * geometry.desc_size));
        let mut places = geometry.desc_block_backups(index);
        if index < geometry.old_desc_blocks() {
            let groups =
                (1..geometry.groups()).map(GroupNr::new).filter(|nr| geometry.has_super(*nr)).take(8);
            places
                .extend(groups.map(|nr| BlockNr::new(geometry.super_block(nr).get() + 1 + u64::from(index))));
        }
        for at in places {
            if at.get() >= geometry.blocks_count.get() {
                continue;
            }
            let block = self.block(at)?;
            let slot = &block[within..within + usize_of(geometry.desc_size)];
            let sealed = self.sb.features().group_checksums();
            let zero = slot.iter().all(|byte| *byte == 0);
            let desc = if sealed {
                GroupDesc::parse(slot, group, &self.sb).ok()
            } else {
                self.unsealed(slot, group)
            };
            if let Some(desc) = desc.filter(|_| !zero) {
                return Ok(Some(desc));
            }
        }
        Ok(None)
    }

    /// A descriptor with its checksum and its counts left aside; `None` if its places can't be.
    pub(crate) fn unsealed(&self, slot: &[u8], group: GroupNr) -> Option<GroupDesc> {
        let raw = raw_of(slot);
        let places = GroupDesc {
            block_bitmap: BlockNr::new(join32(raw.bg_block_bitmap_lo.get(), raw.bg_block_bitmap_hi.get())),
            inode_bitmap: BlockNr::new(join32(raw.bg_inode_bitmap_lo.get(), raw.bg_inode_bitmap_hi.get())),
            inode_table: BlockNr::new(join32(raw.bg_inode_table_lo.get(), raw.bg_inode_table_hi.get())),
            free_clusters: 0,
            free_inodes: 0,
            used_dirs: 0,
            itable_unused: 0,
            flags: GroupFlags::empty(),
            block_bitmap_csum: 0,
            inode_bitmap_csum: 0,
        };
        let mut bytes = vec![0; usize_of(self.geometry().desc_size)];
        places.render(&mut bytes, group, &self.sb);
        GroupDesc::parse(&bytes, group, &self.sb).ok()
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
        let (mut first, per_group) = (0, usize_of(geometry.inodes_per_group));
        let mut value = Value::default();
        // Slots that were never used say nothing: the first others do.
        while first < per_group && value.good + value.bad == 0 {
            let mut bytes = vec![0; (per_group - first).min(LOOKED_AT / size) * size];
            let at = table.offset(geometry.block_size) + Bytes::new(u64_of(first * size));
            self.device.read_at(at, &mut bytes)?;
            for (index, slot) in (first..).zip(bytes.chunks_exact(size)) {
                let Some(slot) = RawInode::new(slot).filter(|slot| !slot.is_blank()) else { continue };
                let nr = geometry.inode_at(group, low32(u64_of(index)));
                let sealed = self.sb.seed().is_none_or(|seed| slot.wrong_checksum(nr, seed).is_none());
                let known = slot.kind().is_some() || slot.mode() == 0 && slot.links() == 0;
                let count = if sealed && known { &mut value.good } else { &mut value.bad };
                *count += 1;
                value.has_root |= nr == InodeNr::ROOT && slot.kind() == Some(Kind::Directory) && sealed;
            }
            first += LOOKED_AT / size;
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

/// A descriptor that leads to where another does.
fn with_places(desc: &GroupDesc, places: &GroupDesc) -> GroupDesc {
    GroupDesc {
        block_bitmap: places.block_bitmap,
        inode_bitmap: places.inode_bitmap,
        inode_table: places.inode_table,
        ..desc.clone()
    }
}
