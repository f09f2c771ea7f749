//! Makes inodes larger: every table is written anew, in another place.
//!
//! With `flex_bg` a table goes to the first place with room from its group on, else into its own group. The
//! old tables are freed one after the other, so that later ones may lie where earlier ones did.
//!
//! Without `flex_bg` a table that has no room elsewhere grows in its place, from which files were moved away.
//!
//! Invariant: a table that is still to be moved is never written over. Clusters are shared between pieces of
//! metadata with `bigalloc`, and freed with the last of them.

use crate::error::{Error, Result};
use crate::volume::{Volume, is_set};
use hectare_ext4::feature::Incompat;
use hectare_ext4::group::GroupFlags;
use hectare_ext4::inode::{BASE_SIZE, Inode};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, GroupNr, low16, u64_of, usize_of};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of the extra part that inodes get which had none: all that are known.
const EXTRA: u16 = 32;

/// Gives all inodes `size` bytes. Returns whether that changed anything.
pub(crate) fn enlarge(volume: &mut Volume<'_>, size: u32) -> Result<bool> {
    let old = volume.geometry().inode_size;
    if size == old {
        return Ok(false);
    }
    let new = superblock(volume, size)?;
    volume.groups()?;
    let mut shared = shared_clusters(volume)?;
    for group in volume.all_groups() {
        move_table(volume, group, &new, &mut shared)?;
    }
    let shift = volume.geometry().cluster_ratio_shift;
    let grown = u64::from(new.geometry().itable_blocks() - volume.geometry().itable_blocks());
    let more = (grown * u64::from(new.geometry().groups())) >> shift;
    volume.set_superblock(new);
    volume.shift_overhead(|overhead| overhead.saturating_add(more))?;
    Ok(true)
}

/// Blocks behind the tables that are to be vacated before, where a group must have its larger table in itself
/// and has no room for it.
pub(crate) fn obstacles(volume: &mut Volume<'_>, size: u32) -> Result<Vec<Range<u64>>> {
    let new = superblock(volume, size)?;
    let behind = behind(volume, size)?;
    let mut has_room = true;
    for group in volume.all_groups().filter(|_| !behind.is_empty()) {
        has_room &= volume.find_run(group, new.geometry().itable_blocks())?.is_some();
    }
    Ok(if has_room { Vec::new() } else { behind })
}

/// Blocks behind the tables into which they may grow.
pub(crate) fn behind(volume: &mut Volume<'_>, size: u32) -> Result<Vec<Range<u64>>> {
    let new = superblock(volume, size)?;
    let (old_len, len) = (volume.geometry().itable_blocks(), new.geometry().itable_blocks());
    if volume.sb().features().incompat.contains(Incompat::FLEX_BG) {
        return Ok(Vec::new());
    }
    let mut behind = Vec::new();
    for group in volume.all_groups() {
        let start = volume.group(group)?.inode_table.get();
        let geometry = volume.geometry();
        let end = geometry.first_block(group).get() + u64::from(geometry.blocks_in(group));
        behind.push(start + u64::from(old_len)..(start + u64::from(len)).min(end));
    }
    behind.retain(|range| range.start < range.end);
    Ok(behind)
}

/// The superblock with inodes of `size` bytes.
fn superblock(volume: &Volume<'_>, size: u32) -> Result<SuperBlock> {
    let (sb, geometry) = (volume.sb(), volume.geometry());
    let refuse = |reason: String| Err(Error::refused(format!("-I {size}: {reason}")));
    if !size.is_power_of_two() {
        return refuse("the size of an inode is a power of two".into());
    }
    if size < geometry.inode_size {
        return refuse(format!("inodes have {} bytes, and can't become smaller", geometry.inode_size));
    }
    if size > geometry.block_size.get() {
        return refuse(format!("an inode has at most the {} bytes of a block", geometry.block_size));
    }
    if sb.raw().s_rev_level.get() == 0 {
        return refuse(
            "a volume of revision 0 has inodes of 128 bytes: run e2fsck -f, which raises it".into(),
        );
    }
    let mut raw = *sb.raw();
    raw.s_inode_size = low16(size.into()).into();
    if usize_of(geometry.inode_size) == BASE_SIZE {
        raw.s_min_extra_isize = EXTRA.into();
        raw.s_want_extra_isize = EXTRA.into();
    }
    Ok(SuperBlock::from_raw(raw)?)
}

/// How many pieces of metadata each cluster holds that has some.
fn shared_clusters(volume: &mut Volume<'_>) -> Result<BTreeMap<u64, u32>> {
    let mut shared = BTreeMap::new();
    for group in volume.all_groups() {
        let first = volume.geometry().first_block(group).get();
        let base = first..first + u64::from(volume.geometry().base_meta_blocks(group));
        let desc = volume.group(group)?.clone();
        let bitmaps = [desc.block_bitmap.get(), desc.inode_bitmap.get()].map(|at| at..at + 1);
        let table = table(desc.inode_table, volume.geometry().itable_blocks());
        for run in bitmaps.into_iter().chain([base, table]).filter(|run| !run.is_empty()) {
            for cluster in clusters(volume, &run) {
                *shared.entry(cluster).or_insert(0) += 1;
            }
        }
    }
    Ok(shared)
}

fn table(at: BlockNr, blocks: u32) -> Range<u64> {
    at.get()..at.get() + u64::from(blocks)
}

fn clusters(volume: &Volume<'_>, run: &Range<u64>) -> Range<u64> {
    let geometry = volume.geometry();
    let first = geometry.cluster_of(BlockNr::new(run.start)).get();
    first..geometry.cluster_of(BlockNr::new(run.end - 1)).get() + 1
}

fn move_table(
    volume: &mut Volume<'_>,
    group: GroupNr,
    new: &SuperBlock,
    shared: &mut BTreeMap<u64, u32>,
) -> Result<()> {
    let desc = volume.group(group)?.clone();
    let lazy = volume.sb().features().group_checksums();
    let all = volume.geometry().inodes_per_group;
    let used = match lazy {
        true if desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
        true => all.saturating_sub(desc.itable_unused),
        false => all,
    };
    let slots = volume.slots(group, used)?;
    let old = table(desc.inode_table, volume.geometry().itable_blocks());
    let blocks = new.geometry().itable_blocks();
    let found = place(volume, group, blocks)?;
    free(volume, &old, shared)?;
    let at = match found {
        Some(at) => at,
        // Its own old place counts as well: the slots are in memory.
        None => place(volume, group, blocks)?.ok_or_else(|| no_room(group, blocks))?,
    };
    for cluster in clusters(volume, &table(at, blocks)) {
        *shared.entry(cluster).or_insert(0) += 1;
    }
    write(volume, group, new, at, &slots, lazy)
}

fn no_room(group: GroupNr, blocks: u32) -> Error {
    Error::refused(format!(
        "-I: the inodes of group {group} need {blocks} free blocks in one piece: free some"
    ))
}

/// Takes a run for the table of a group.
fn place(volume: &mut Volume<'_>, group: GroupNr, blocks: u32) -> Result<Option<BlockNr>> {
    let flexible = volume.sb().features().incompat.contains(Incompat::FLEX_BG);
    let groups = volume.geometry().groups();
    let others = (group.get() + 1..groups).chain(0..group.get()).filter(|_| flexible);
    for nr in std::iter::once(group.get()).chain(others) {
        if let Some(at) = volume.take_run(GroupNr::new(nr), blocks)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Frees the clusters of an old table that hold nothing else.
fn free(volume: &mut Volume<'_>, old: &Range<u64>, shared: &mut BTreeMap<u64, u32>) -> Result<()> {
    for cluster in clusters(volume, old) {
        let holds = shared.entry(cluster).or_insert(1);
        *holds -= 1;
        if *holds == 0 {
            let start = volume.geometry().cluster_start(hectare_units::ClusterNr::new(cluster)).get();
            volume.give_back(std::slice::from_ref(&(start..start + 1)))?;
        }
    }
    Ok(())
}

/// Writes a table in its new place.
fn write(
    volume: &mut Volume<'_>,
    group: GroupNr,
    new: &SuperBlock,
    at: BlockNr,
    slots: &[u8],
    lazy: bool,
) -> Result<()> {
    let (from, to) = (usize_of(volume.geometry().inode_size), usize_of(new.geometry().inode_size));
    let bitmap = volume.inode_bitmap(group)?;
    let mut bytes = Vec::with_capacity(slots.len() / from * to);
    for (index, slot) in (0..).zip(slots.chunks_exact(from)) {
        let nr = volume.geometry().inode_at(group, index);
        let mut larger = Inode::enlarged(slot, to, EXTRA);
        match Inode::parse_unsealed(&larger, nr, new) {
            _ if slot.iter().all(|byte| *byte == 0) => larger.fill(0),
            Ok(inode) => inode.render(&mut larger, nr, new),
            Err(_) if !is_set(&bitmap, index) => larger.fill(0),
            Err(corrupt) => return Err(corrupt.into()),
        }
        bytes.extend(larger);
    }
    let size = new.geometry().block_size;
    bytes.resize(bytes.len().next_multiple_of(size.len()), 0);
    for (nr, block) in (at.get()..).zip(bytes.chunks_exact(size.len())) {
        volume.write(BlockNr::new(nr), block)?;
    }
    let desc = volume.group(group)?;
    desc.inode_table = at;
    if lazy {
        desc.flags.remove(GroupFlags::INODE_ZEROED);
    } else {
        let end = at.get() + u64::from(new.geometry().itable_blocks());
        volume.zero(at.get() + u64_of(bytes.len()) / size.bytes().get()..end)?;
    }
    Ok(())
}
