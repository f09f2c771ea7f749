//! Group descriptors, bitmaps and the geometry behind them, as dumpe2fs lists them.

use crate::oracle::volume::Volume;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_oracle::e2fsprogs::{Dump, GroupDump};
use hectare_units::{BlockNr, Blocks, GroupNr};
use std::collections::BTreeSet;

pub(crate) fn check(volume: &Volume, dump: &Dump, name: &str) {
    assert_eq!(volume.groups().count(), dump.groups.len(), "{name}: groups");
    let hosts = hosts(volume);
    for (group, listed) in volume.groups().zip(&dump.groups) {
        let desc = volume.desc(group);
        assert_eq!(listed.heading, heading(volume, group, &desc), "{name}");
        let is_free_list =
            |line: &&String| line.starts_with("Free blocks:") || line.starts_with("Free inodes:");
        let found: Vec<String> = listed.lines.iter().filter(|line| !is_free_list(line)).cloned().collect();
        assert_eq!(found, lines(volume, group, &desc), "{name}: {}", listed.heading);
        check_rendered(volume, group, &desc, name);
        check_bitmaps(volume, group, &desc, name);
        check_free_list(volume, group, listed, &hosts, name);
    }
    check_copies(volume, name);
}

/// The groups in which bitmaps or inode tables lie, their own or another group's.
fn hosts(volume: &Volume) -> BTreeSet<GroupNr> {
    let geometry = volume.sb.geometry();
    let places = |group| {
        let desc = volume.desc(group);
        let table_end = desc.inode_table + Blocks::new(u64::from(geometry.itable_blocks()) - 1);
        [desc.block_bitmap, desc.inode_bitmap, desc.inode_table, table_end]
    };
    volume.groups().flat_map(places).filter_map(|block| geometry.group_of(block)).collect()
}

fn heading(volume: &Volume, group: GroupNr, desc: &GroupDesc) -> String {
    let geometry = volume.sb.geometry();
    let first = geometry.first_block(group);
    let last = first.get() + u64::from(geometry.blocks_in(group)) - 1;
    let mut text = format!("Group {group}: (Blocks {first}-{last})");
    if !volume.sb.features().group_checksums() {
        return text;
    }
    let slot = volume.desc_slot(group);
    text += &format!(" csum {:#06x}", u16::from_le_bytes([slot[0x1e], slot[0x1f]]));
    let names = [
        (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
        (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
        (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
    ];
    let set: Vec<&str> =
        names.iter().filter(|(flag, _)| desc.flags.contains(*flag)).map(|(_, n)| *n).collect();
    if !set.is_empty() {
        text += &format!(" [{}]", set.join(", "));
    }
    text
}

fn lines(volume: &Volume, group: GroupNr, desc: &GroupDesc) -> Vec<String> {
    let geometry = volume.sb.geometry();
    let mut lines = Vec::new();
    lines.extend(copies(volume, group));
    let has_super = geometry.has_super(group);
    let descriptors = descriptors_in(volume, group);
    if geometry.reserved_gdt_blocks > 0 && has_super && matches!(descriptors, Descriptors::All) {
        let base = geometry.first_block(group).get() + u64::from(geometry.base_meta_blocks(group));
        lines.push(format!(
            "Reserved GDT blocks at {}-{}",
            base - u64::from(geometry.reserved_gdt_blocks),
            base - 1
        ));
    }
    let bitmap_csum = |csum: u32| {
        if volume.sb.features().metadata_csum() { format!(", csum {csum:#010x}") } else { String::new() }
    };
    let place = |block| relative(volume, group, block);
    let (block_csum, inode_csum) = (bitmap_csum(desc.block_bitmap_csum), bitmap_csum(desc.inode_bitmap_csum));
    lines.push(format!("Block bitmap at {}{}{block_csum}", desc.block_bitmap, place(desc.block_bitmap)));
    lines.push(format!("Inode bitmap at {}{}{inode_csum}", desc.inode_bitmap, place(desc.inode_bitmap)));
    let table_end = desc.inode_table.get() + u64::from(geometry.itable_blocks()) - 1;
    lines.push(format!("Inode table at {}-{table_end}{}", desc.inode_table, place(desc.inode_table)));
    lines.push(counts(volume, desc));
    lines
}

fn counts(volume: &Volume, desc: &GroupDesc) -> String {
    let bigalloc = volume.sb.features().ro_compat.contains(RoCompat::BIGALLOC);
    let units = if bigalloc { "clusters" } else { "blocks" };
    let mut text = format!(
        "{} free {units}, {} free inodes, {} directories",
        desc.free_clusters, desc.free_inodes, desc.used_dirs
    );
    if desc.itable_unused > 0 {
        text += &format!(", {} unused inodes", desc.itable_unused);
    }
    text
}

/// " (+3)" for a block of the group itself, " (bg #0 + 3)" for one of another.
fn relative(volume: &Volume, group: GroupNr, block: BlockNr) -> String {
    let geometry = volume.sb.geometry();
    let home = geometry.group_of(block).unwrap();
    let within = block.get() - geometry.first_block(home).get();
    if home == group { format!(" (+{within})") } else { format!(" (bg #{home} + {within})") }
}

enum Descriptors {
    /// Those of all groups, or of all before the meta groups.
    All,
    /// One block with those of the group's meta group.
    Block(BlockNr),
    None,
}

fn descriptors_in(volume: &Volume, group: GroupNr) -> Descriptors {
    let geometry = volume.sb.geometry();
    let index = group.get() / geometry.descs_per_block();
    let in_meta_group =
        geometry.features.incompat.contains(Incompat::META_BG) && index >= geometry.first_meta_bg;
    if !in_meta_group {
        return if geometry.has_super(group) { Descriptors::All } else { Descriptors::None };
    }
    let places = std::iter::once(geometry.desc_block(index)).chain(geometry.desc_block_backups(index));
    let mut own = places.filter(|place| geometry.group_of(*place) == Some(group));
    own.next().map_or(Descriptors::None, Descriptors::Block)
}

/// The line about the copies of superblock and descriptors.
fn copies(volume: &Volume, group: GroupNr) -> Option<String> {
    let geometry = volume.sb.geometry();
    let which = if group.get() == 0 { "Primary" } else { "Backup" };
    let superblock = format!("{which} superblock at {}", geometry.super_block(group));
    match (geometry.has_super(group), descriptors_in(volume, group)) {
        (true, Descriptors::All) => {
            let first = geometry.super_block(group).get() + 1;
            let last = first + u64::from(geometry.old_desc_blocks()) - 1;
            Some(format!("{superblock}, Group descriptors at {first}-{last}"))
        }
        (true, Descriptors::Block(at)) => Some(format!("{superblock}, Group descriptor at {at}")),
        (true, Descriptors::None) => Some(superblock),
        (false, Descriptors::Block(at)) => Some(format!("Group descriptor at {at}")),
        (false, _) => None,
    }
}

/// Rendered over zeros and over its own bytes, a descriptor is what it was.
fn check_rendered(volume: &Volume, group: GroupNr, desc: &GroupDesc, name: &str) {
    let slot = volume.desc_slot(group);
    for mut ours in [slot.clone(), vec![0; slot.len()]] {
        desc.render(&mut ours, group, &volume.sb);
        assert!(ours == slot, "{name}: the descriptor of group {group} renders differently");
    }
}

fn check_bitmaps(volume: &Volume, group: GroupNr, desc: &GroupDesc, name: &str) {
    let sb = &volume.sb;
    let (blocks, inodes) = (volume.block(desc.block_bitmap), volume.block(desc.inode_bitmap));
    let mut resealed = desc.clone();
    if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        desc.verify_block_bitmap(&blocks, group, sb).unwrap_or_else(|error| panic!("{name}: {error}"));
        resealed.seal_block_bitmap(&blocks, sb);
    }
    if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
        desc.verify_inode_bitmap(&inodes, group, sb).unwrap_or_else(|error| panic!("{name}: {error}"));
        resealed.seal_inode_bitmap(&inodes, sb);
    }
    let mask = if sb.geometry().desc_size >= 64 { !0 } else { 0xffff };
    resealed.block_bitmap_csum &= mask;
    resealed.inode_bitmap_csum &= mask;
    assert_eq!(&resealed, desc, "{name}: the bitmaps of group {group} seal differently");
}

/// Nothing of the base metadata is free; and in a group that was never used and hosts no bitmaps or tables,
/// what is free begins right behind it.
fn check_free_list(
    volume: &Volume,
    group: GroupNr,
    listed: &GroupDump,
    hosts: &BTreeSet<GroupNr>,
    name: &str,
) {
    let geometry = volume.sb.geometry();
    let Some(free) = listed.lines.iter().find_map(|line| line.strip_prefix("Free blocks: ")) else { return };
    let Some(first) = free.split(['-', ',']).next().and_then(|word| word.trim().parse::<u64>().ok()) else {
        return; // all in use
    };
    let meta = geometry.base_meta_blocks(group).next_multiple_of(geometry.cluster_blocks());
    let end = geometry.first_block(group).get() + u64::from(meta);
    assert!(first >= end, "{name}: group {group} has the free block {first} below {end}");
    if listed.heading.contains("BLOCK_UNINIT") && !hosts.contains(&group) {
        assert_eq!(first, end, "{name}: the first free block of group {group}");
    }
}

/// Every copy of every descriptor block has the same descriptors, in all that a mount does not change.
fn check_copies(volume: &Volume, name: &str) {
    let geometry = volume.sb.geometry();
    for index in 0..geometry.desc_blocks() {
        let primary = volume.block(geometry.desc_block(index));
        let mut copies = geometry.desc_block_backups(index);
        if index < geometry.old_desc_blocks() {
            let supers = volume.groups().filter(|group| group.get() > 0 && geometry.has_super(*group));
            copies.extend(
                supers.map(|group| BlockNr::new(geometry.super_block(group).get() + 1 + u64::from(index))),
            );
        }
        for copy in copies {
            let bytes = volume.block(copy);
            let size = hectare_units::usize_of(geometry.desc_size);
            let pairs = primary.chunks_exact(size).zip(bytes.chunks_exact(size));
            for (i, (ours, theirs)) in pairs.enumerate() {
                // The places of bitmaps and table; counts, flags and checksums move on in the primary alone.
                assert_eq!(
                    ours[..12],
                    theirs[..12],
                    "{name}: descriptor {i} of block {index}, copy at {copy}"
                );
            }
        }
    }
}
