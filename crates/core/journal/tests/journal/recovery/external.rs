//! External journals, made by mke2fs and written by debugfs.

use crate::recovery::volume::{block_size, superblock};
use hectare_device::{Device, MemoryDevice};
use hectare_journal::recovery::{self, LogMap};
use hectare_oracle::loops::{Access, LoopDevice};
use hectare_oracle::{Skip, debugfs_write, mke2fs, scratch, skip, tool};
use hectare_units::{BlockNr, BlockSize, Blocks};
use std::fs;

fn replay(size: &str) -> Result<(), Skip> {
    let (image, journal) = (scratch::fresh("volume"), scratch::fresh("journal"));
    mke2fs(&["-O", "journal_dev", "-b", size], &journal, if size == "1024" { "2M" } else { "8M" })?;
    {
        // mke2fs takes only block devices for journals.
        let attached = LoopDevice::new(&journal, Access::ReadWrite)?;
        let option = format!("device={}", attached.path().display());
        mke2fs(&["-t", "ext4", "-b", size, "-J", &option], &image, "24M")?;
        let content = scratch::fresh("content");
        let len = size.parse::<usize>().unwrap();
        fs::write(&content, vec![7; 2 * len]).unwrap();
        let end = superblock(&fs::read(&image).unwrap()).s_blocks_count_lo.get();
        let open = format!("jo -c -v 3 -f {}", attached.path().display());
        let write = format!("jw -b {},{} {}", end - 5, end - 9, content.display());
        debugfs_write(&image, &[&open, &write, "jc"])?;
    }
    let (bytes, journal_bytes) = (fs::read(&image).unwrap(), fs::read(&journal).unwrap());
    let mut check = tool::need("e2fsck")?;
    let said = tool::run(check.args(["-fy", "-E", "journal_only", "-j"]).args([&journal, &image]));
    assert!(said.exit.is_some_and(|exit| exit < 4), "{}", said.report());
    let theirs = fs::read(&image).unwrap();
    compare(&bytes, &journal_bytes, &theirs);
    refuses(&bytes, &journal_bytes);
    fs::remove_file(image).unwrap();
    fs::remove_file(journal).unwrap();
    Ok(())
}

fn compare(bytes: &[u8], journal: &[u8], theirs: &[u8]) {
    let (volume, journal) = (MemoryDevice::from_bytes(bytes), MemoryDevice::from_bytes(journal));
    let raw = superblock(bytes);
    let size = block_size(bytes);
    let blocks = Blocks::new(raw.s_blocks_count_lo.get().into());
    let map = LogMap::external(&journal, size, &raw.s_journal_uuid).unwrap();
    let recovery = recovery::read(&journal, &map, blocks).unwrap();
    assert_eq!(recovery.superblock().users(), [raw.s_uuid]);
    let numbers: Vec<u64> = recovery.blocks().keys().map(|nr| nr.get()).collect();
    assert_eq!(numbers, [blocks.get() - 9, blocks.get() - 5]);
    recovery.apply(&journal, &volume).unwrap();
    journal.write_at(recovery.superblock_offset(), &recovery.clean_superblock()).unwrap();
    assert!(!recovery::read(&journal, &map, blocks).unwrap().needed());
    let ours = volume.to_vec();
    for nr in numbers {
        let at = usize::try_from(BlockNr::new(nr).offset(size).get()).unwrap();
        assert!(ours[at..at + size.len()] == theirs[at..at + size.len()] && ours[at] == 7, "block {nr}");
    }
}

fn refuses(bytes: &[u8], journal: &[u8]) {
    let raw = superblock(bytes);
    let size = block_size(bytes);
    let error = |journal: &[u8], size: BlockSize, uuid: &[u8; 16]| {
        LogMap::external(&MemoryDevice::from_bytes(journal), size, uuid).unwrap_err().to_string()
    };
    assert!(error(journal, size, &[1; 16]).contains("that of the volume's journal is 01010101-"));
    assert!(error(journal, BlockSize::KIB64, &raw.s_journal_uuid).contains("block size"));
    assert!(error(&journal[..1 << 20], size, &raw.s_journal_uuid).contains("claims"));
    assert!(error(bytes, size, &raw.s_journal_uuid).contains("it is none"));
}

#[test]
fn external_journals_are_replayed_as_e2fsck_does() {
    for size in ["1024", "4096"] {
        if let Err(reason) = replay(size) {
            skip!("recovery::external::external_journals", reason);
        }
    }
}
