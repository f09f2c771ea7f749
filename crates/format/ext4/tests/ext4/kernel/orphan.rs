//! The orphan file as the reference tool makes it and the kernel fills it.

use crate::kernel::image::{Image, run, tool};
use hectare_ext4::checksum::Seed;
use hectare_ext4::orphan::{OrphanBlock, OrphanBlockMut};
use hectare_units::{BlockNr, InodeNr};
use std::fs;

/// The blocks of the orphan file and the seed of its inode.
fn orphan_file(image: &Image) -> (Vec<BlockNr>, Option<Seed>) {
    let nr = InodeNr::new(image.superblock_word(0x280));
    let blocks = image.debugfs(&format!("blocks <{nr}>"));
    let blocks = blocks.split_whitespace().map(|block| BlockNr::new(block.parse().unwrap())).collect();
    let generation = image.inode(&format!("<{nr}>")).generation();
    (blocks, image.seed().map(|seed| seed.inode(nr, generation)))
}

fn orphans(image: &Image) -> Vec<(BlockNr, usize, InodeNr)> {
    let (blocks, seed) = orphan_file(image);
    assert!(!blocks.is_empty());
    let read = |nr: &BlockNr| {
        let bytes = image.block(*nr);
        let block = OrphanBlock::new(&bytes, *nr, seed).unwrap();
        block.orphans().map(|(slot, inode)| (*nr, slot, inode)).collect::<Vec<_>>()
    };
    blocks.iter().flat_map(read).collect()
}

#[test]
fn a_new_orphan_file_is_empty() {
    for options in [["-O", "orphan_file"], ["-O", "orphan_file,^metadata_csum"]] {
        let Some(image) = Image::make("orphan", &options) else { return };
        assert_eq!(orphans(&image), []);
        let (blocks, seed) = orphan_file(&image);
        let mut ours = vec![0; image.block_size().len()];
        let mut block = OrphanBlockMut::new(&mut ours, blocks[0]);
        block.format();
        if let Some(seed) = seed {
            block.seal(seed);
            assert!(ours == image.block(blocks[0]), "an empty block differs from the tool's");
        }
    }
}

#[test]
fn the_kernels_orphans_are_read_and_ours_are_cleared() {
    let Some(image) = Image::make("orphan-live", &["-O", "orphan_file", "-J", "size=4"]) else { return };
    // Frozen, the journal is empty and everything is in its place.
    let (copy, open) = image.mounted(|mnt| {
        let path = mnt.join("file");
        fs::write(&path, [1; 5000]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let nr = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
        fs::remove_file(&path).unwrap();
        run(tool("fsfreeze").arg("-f").arg(mnt));
        let copy = image.copy();
        run(tool("fsfreeze").arg("-u").arg(mnt));
        (copy, InodeNr::new(nr.try_into().unwrap()))
    });
    assert_eq!(orphans(&image), []);
    let found = orphans(&copy);
    assert_eq!(found.iter().map(|(_, _, inode)| *inode).collect::<Vec<_>>(), [open]);

    // The same orphan in another slot, by us.
    let (nr, slot, _) = found[0];
    let mut bytes = copy.block(nr);
    let mut block = OrphanBlockMut::new(&mut bytes, nr);
    assert!(block.remove(slot, open));
    assert_eq!(block.add(open, slot + 3), Some(slot + 3));
    block.seal(orphan_file(&copy).1.unwrap());
    copy.write_block(nr, &bytes);
    let words = copy.repair();
    assert!(words.contains(&format!("orphaned inode {open}")) && !words.contains("checksum"), "{words}");
    copy.assert_clean();
    assert_eq!(orphans(&copy), []);
}
