//! Fuzz target: any group descriptor, on every base's geometry; what parses renders to what parses the same.

use crate::bases;
use crate::input::Input;
use crate::repair::seal_descriptor;
use hectare_ext4::group::{GroupDesc, raw_of};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{Bytes, GroupNr, usize_of};
use std::cell::OnceCell;

thread_local! {
    static SUPERBLOCKS: OnceCell<Vec<SuperBlock>> = const { OnceCell::new() };
}

pub(super) fn target(bytes: &[u8]) {
    SUPERBLOCKS.with(|cell| {
        let parse = |base: &bases::Base| SuperBlock::parse(&base.image[1024..], Bytes::mib(64)).ok();
        let superblocks = cell.get_or_init(|| bases::all().iter().filter_map(parse).collect());
        run(superblocks, bytes);
    });
}

fn run(superblocks: &[SuperBlock], bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sb = input.pick(superblocks);
    let group = GroupNr::new(u32::from(input.byte()) % sb.geometry().groups());
    let sealed = input.byte() & 1 == 0;
    let mut slot = input.bytes(usize_of(sb.geometry().desc_size)).to_vec();
    if sealed {
        slot.resize(usize_of(sb.geometry().desc_size), 0);
        seal_descriptor(&mut slot, group, sb);
    }
    let _ = raw_of(&slot);
    let Ok(mut desc) = GroupDesc::parse(&slot, group, sb) else { return };
    if !sealed {
        return;
    }
    let bitmap = vec![0x55; sb.geometry().block_size.len()];
    let _ = (desc.verify_block_bitmap(&bitmap, group, sb), desc.verify_inode_bitmap(&bitmap, group, sb));
    desc.seal_block_bitmap(&bitmap, sb);
    desc.seal_inode_bitmap(&bitmap, sb);
    desc.render(&mut slot, group, sb);
    let again = GroupDesc::parse(&slot, group, sb).expect("what is rendered can be parsed");
    again.verify_block_bitmap(&bitmap, group, sb).expect("the bitmap was sealed");
    again.verify_inode_bitmap(&bitmap, group, sb).expect("the bitmap was sealed");
    assert_eq!(
        (again.block_bitmap, again.inode_table, again.flags),
        (desc.block_bitmap, desc.inode_table, desc.flags)
    );
}
