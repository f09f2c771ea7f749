//! Fuzz target: any inode slot, on every base's superblock; what parses renders to what parses the same.

use crate::bases;
use crate::input::Input;
use crate::patch;
use crate::repair::seal_inode_slot;
use hectare_ext4::error::Place;
use hectare_ext4::inode::Inode;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::xattr::Area;
use hectare_units::{Bytes, InodeNr, usize_of};
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
    let which = usize::from(input.byte()) % superblocks.len();
    let sb = &superblocks[which];
    let nr = InodeNr::new(u32::from(input.byte()));
    let flags = input.byte();
    let whole = flags & 1 == 0;
    let len = usize_of(sb.geometry().inode_size);
    let mut slot = if flags & 2 == 0 {
        // Whatever of the base lies where an inode might.
        let base = &bases::all()[which];
        let start = base.units[usize::from(input.byte()) % base.units.len()] * bases::UNIT;
        let mut slot = base.image[start..start + bases::UNIT]
            .chunks(len)
            .nth(usize::from(flags >> 4))
            .map(<[u8]>::to_vec);
        let slot = slot.get_or_insert_with(|| vec![0; len]);
        patch::scatter(slot, &mut input);
        std::mem::take(slot)
    } else {
        input.bytes(len).to_vec()
    };
    if whole {
        slot.resize(len, 0);
        if let Some(seed) = sb.seed() {
            seal_inode_slot(&mut slot, nr, seed);
        }
    }
    let Ok(mut inode) = Inode::parse(&slot, nr, sb) else { return };
    let _ =
        (inode.kind(), inode.permissions(), inode.is_fast_symlink(), inode.device_number(), inode.bytes());
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
