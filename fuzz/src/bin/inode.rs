//! Fuzz target: any inode slot, on every base's superblock; what parses renders to what parses the same.
#![no_main]

use hectare_ext4::error::Place;
use hectare_ext4::inode::Inode;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::xattr::Area;
use hectare_fuzz::bases;
use hectare_fuzz::input::Input;
use hectare_fuzz::repair::seal_inode_slot;
use hectare_units::{Bytes, InodeNr, usize_of};
use libfuzzer_sys::fuzz_target;
use std::cell::OnceCell;

thread_local! {
    static SUPERBLOCKS: OnceCell<Vec<SuperBlock>> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| {
    SUPERBLOCKS.with(|cell| {
        let parse = |base: &bases::Base| SuperBlock::parse(&base.image[1024..], Bytes::mib(64)).ok();
        let superblocks = cell.get_or_init(|| bases::all().iter().filter_map(parse).collect());
        run(superblocks, bytes);
    });
});

fn run(superblocks: &[SuperBlock], bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let sb = input.pick(superblocks);
    let nr = InodeNr::new(u32::from(input.byte()));
    let whole = input.byte() & 1 == 0;
    let mut slot = input.bytes(usize_of(sb.geometry().inode_size)).to_vec();
    if whole {
        slot.resize(usize_of(sb.geometry().inode_size), 0);
        if let Some(seed) = sb.seed() {
            seal_inode_slot(&mut slot, nr, seed);
        }
    }
    let Ok(mut inode) = Inode::parse(&slot, nr, sb) else { return };
    let _ = (inode.kind(), inode.permissions(), inode.is_fast_symlink(), inode.device_number(), inode.bytes());
    let _ = (inode.seed(nr, sb), inode.has_crtime(), inode.xattr_area_mut().len());
    if let Ok(Some(area)) = Area::in_inode(inode.xattr_area(), Place::Inode(nr)) {
        let _ = (area.entries().count(), area.check_hashes());
    }
    if whole {
        inode.render(&mut slot, nr, sb);
        let again = Inode::parse(&slot, nr, sb).expect("what is rendered can be parsed");
        let mut second = slot.clone();
        again.render(&mut second, nr, sb);
        assert_eq!(slot, second, "rendering is stable");
    }
}
