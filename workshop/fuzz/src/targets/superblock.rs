//! Fuzz target: any superblock, and all arithmetic over the geometry that it gives.

use crate::bases;
use crate::input::Input;
use crate::repair::seal_superblock;
use hectare_ext4::dir::Format;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr, InodeNr};

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    // Either 1024 bytes as they are, or fields of a good superblock overwritten.
    let mut raw = if flags & 1 == 0 {
        input.array::<1024>().to_vec()
    } else {
        let mut raw = input.pick(bases::all()).image[1024..2048].to_vec();
        while !input.is_empty() {
            let at = usize::from(input.word() & 0x3fc);
            raw[at..at + 4].copy_from_slice(&input.array::<4>());
        }
        raw
    };
    if flags & 2 == 0 {
        seal_superblock(&mut raw);
    }
    let device = if flags & 4 == 0 { Bytes::new(u64::MAX) } else { Bytes::mib(64) };
    match SuperBlock::parse(&raw, device) {
        Ok(sb) => exercise(&sb),
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

fn exercise(sb: &SuperBlock) {
    let geometry = sb.geometry();
    let groups = geometry.groups();
    assert!(groups > 0);
    let _ = (sb.features().check_write(), sb.features().names(), Format::of(sb), sb.label().len());
    let _ = (sb.free_blocks(), sb.reserved_blocks(), sb.first_inode(), sb.journal_inode(), sb.last_orphan());
    let _ = (sb.want_extra_isize(), sb.signed_hash(), sb.hash_seed(), sb.state(), geometry.bytes());
    let _ = (geometry.clusters_count(), geometry.flex_groups(), geometry.itable_blocks());
    let _ = (geometry.block_bitmap_bytes(), geometry.inode_bitmap_bytes(), geometry.old_desc_blocks());
    let some = [0, 1, 2, 3, groups / 2, groups.saturating_sub(2), groups - 1];
    for nr in some.into_iter().filter(|nr| *nr < groups) {
        let group = GroupNr::new(nr);
        let first = geometry.first_block(group);
        assert!(geometry.blocks_in(group) > 0 && geometry.clusters_in(group) <= geometry.clusters_per_group);
        let last = first + Blocks::new(u64::from(geometry.blocks_in(group)) - 1);
        assert_eq!(geometry.group_of(first), Some(group));
        assert_eq!(geometry.group_of(last), Some(group));
        let start = geometry.cluster_start(geometry.cluster_of(last));
        assert!(start <= last);
        let _ = (geometry.has_super(group), geometry.super_block(group), geometry.base_meta_blocks(group));
        let inode = geometry.inode_at(group, geometry.inodes_per_group - 1);
        assert_eq!(geometry.inode_slot(inode), Some((group, geometry.inodes_per_group - 1)));
    }
    let blocks = geometry.desc_blocks();
    for index in [0, 1, blocks / 2, blocks - 1].into_iter().filter(|index| *index < blocks) {
        assert!(geometry.desc_block(index).get() > 0);
        let _ = geometry.desc_block_backups(index);
    }
    assert_eq!(geometry.group_of(BlockNr::new(geometry.blocks_count.get())), None);
    let _ = (geometry.inode_slot(InodeNr::new(0)), geometry.inode_slot(InodeNr::new(u32::MAX)));
    let rendered = sb.render(GroupNr::new(0));
    let again = SuperBlock::parse(&rendered, Bytes::new(u64::MAX)).expect("what is rendered can be parsed");
    assert_eq!(again.geometry(), geometry);
}
