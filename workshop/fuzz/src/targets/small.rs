//! Fuzz target: the structures that are one block each: orphan blocks and multiple mount protection; and the
//! probe for what lies on a device.

use crate::input::Input;
use hectare_device::MemoryDevice;
use hectare_ext4::checksum::Seed;
use hectare_ext4::mmp::Mmp;
use hectare_ext4::orphan::{MAGIC, OrphanBlock, OrphanBlockMut};
use hectare_mkfs::probe;
use hectare_units::{BlockNr, InodeNr};

const NR: BlockNr = BlockNr::new(77);

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let seed = (flags & 4 != 0).then(|| Seed::stored(5));
    match flags & 3 {
        0 => orphans(input.rest(), seed, flags & 8 != 0),
        1 => {
            if let Ok(mmp) = Mmp::parse(input.rest(), NR, seed) {
                let again = Mmp::parse(&mmp.render(seed), NR, seed).expect("what is rendered can be parsed");
                assert_eq!((again.time, again.check_interval), (mmp.time, mmp.check_interval));
            }
        }
        _ => {
            let mut image = vec![0; 300_000];
            while !input.is_empty() {
                let at = (usize::from(input.word()) | usize::from(input.byte()) << 16) % image.len();
                let len = usize::from(input.byte());
                let bytes = input.bytes(len.min(image.len() - at));
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
            if let Ok(Some(found)) = probe(&MemoryDevice::from_bytes(&image)) {
                assert!(!found.to_string().contains('\n'), "{found}");
            }
        }
    }
}

fn orphans(bytes: &[u8], seed: Option<Seed>, whole: bool) {
    let _ = OrphanBlock::new(bytes, NR, seed).map(|block| block.orphans().count());
    if !whole {
        return;
    }
    let mut block = bytes.to_vec();
    block.resize(1024, 0);
    block[1016..1020].copy_from_slice(&MAGIC.to_le_bytes());
    let mut change = OrphanBlockMut::new(&mut block, NR);
    let slot = change.add(InodeNr::new(12), usize::from(bytes.first().copied().unwrap_or(0)) * 3);
    if let Some(seed) = seed {
        change.seal(seed);
    }
    let read = OrphanBlock::new(&block, NR, seed).expect("it was just sealed");
    if let Some(slot) = slot {
        assert!(read.orphans().any(|found| found == (slot, InodeNr::new(12))));
        assert!(OrphanBlockMut::new(&mut block, NR).remove(slot, InodeNr::new(12)));
    }
}
