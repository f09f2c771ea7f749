//! Volumes whose mark is held while they are changed, with the kernel, e2fsprogs and ourselves as other
//! hosts.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use hectare_device::{Device, FileOptions, MemoryDevice};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_mmp::{Error, Options, hold};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, dumpe2fs_superblock, mke2fs, scratch, skip};
use hectare_units::{BlockNr, Bytes, GroupNr};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A volume that has the protection, with blocks of 1 KiB.
fn protected() -> Result<Arc<MemoryDevice>, Skip> {
    let image = scratch::fresh("mmp");
    mke2fs(&["-t", "ext4", "-b", "1024", "-O", "mmp", "-E", "mmp_update_interval=1"], &image, "16M")?;
    let bytes = fs::read(&image).unwrap();
    fs::remove_file(image).unwrap();
    Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
}

fn superblock(device: &dyn Device) -> SuperBlock {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    SuperBlock::parse(&bytes, device.len()).unwrap()
}

fn mark(device: &dyn Device, sb: &SuperBlock, block: BlockNr) -> Mmp {
    let mut bytes = [0; 1024];
    device.read_at(block.offset(sb.geometry().block_size), &mut bytes).unwrap();
    Mmp::parse(&bytes, block, sb.seed()).unwrap()
}

/// The superblock with its protection in another block.
fn moved(sb: &SuperBlock, to: BlockNr) -> SuperBlock {
    let mut raw = *sb.raw();
    raw.s_mmp_block = to.get().into();
    SuperBlock::from_raw(raw).unwrap()
}

fn is_in_use(mmp: &Mmp) -> bool {
    matches!(mmp.status, Status::InUse { .. })
}

#[test]
fn the_program_finds_it_clean_and_others_find_it_in_use() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("the_program_finds_it_clean_and_others_find_it_in_use", reason),
    };
    let inner: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&disk);
    let sb = superblock(&*disk);
    let (old, new) = (BlockNr::new(sb.raw().s_mmp_block.get()), BlockNr::new(12_000));
    let (held, hold_) = hold(&inner, &Options::default()).unwrap();
    assert_eq!(mark(&*held, &sb, old).status, Status::Clean);
    let first = mark(&*disk, &sb, old);
    assert!(is_in_use(&first));
    std::thread::sleep(Duration::from_millis(2500));
    assert_ne!(mark(&*disk, &sb, old).status, first.status, "the mark is renewed");
    assert_eq!(mark(&*held, &sb, old).status, Status::Clean);

    // The program moves the block, as a resize does, and uses the old one otherwise.
    let mut block = [0; 1024];
    held.read_at(old.offset(sb.geometry().block_size), &mut block).unwrap();
    held.write_at(new.offset(sb.geometry().block_size), &block).unwrap();
    held.write_at(SUPERBLOCK_OFFSET, &moved(&sb, new).render(GroupNr::new(0))).unwrap();
    held.write_at(old.offset(sb.geometry().block_size), &[7; 1024]).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(is_in_use(&mark(&*disk, &sb, new)));
    assert_eq!(mark(&*held, &sb, new).status, Status::Clean);
    disk.read_at(old.offset(sb.geometry().block_size), &mut block).unwrap();
    assert!(block == [7; 1024], "the old block is left alone");
    drop(held);
    hold_.release().unwrap();
    assert_eq!(mark(&*disk, &sb, new).status, Status::Clean);
}

#[test]
fn another_hosts_mark_ends_all_changes() {
    let disk = match protected() {
        Ok(disk) => disk,
        Err(reason) => skip!("another_hosts_mark_ends_all_changes", reason),
    };
    let inner: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&disk);
    let sb = superblock(&*disk);
    let block = BlockNr::new(sb.raw().s_mmp_block.get());
    let (held, hold_) = hold(&inner, &Options::default()).unwrap();
    let status = Status::InUse { node: "elsewhere".into(), device: "sdz".into(), sequence: 5 };
    let other = Mmp { status, time: 1_800_000_000, check_interval: 5 };
    disk.write_at(block.offset(sb.geometry().block_size), &other.render(sb.seed())).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let refusal = held.write_at(Bytes::new(4096), b"x").unwrap_err().to_string();
    assert!(refusal.contains("another host"), "{refusal}");
    let Err(Error::InUse(text)) = hold_.release() else { panic!("it is the other host's") };
    assert!(text.contains("host elsewhere"), "{text}");
    assert_eq!(mark(&*disk, &sb, block), other);
}

#[test]
fn e2fsprogs_see_that_a_volume_is_held() {
    const NAME: &str = "e2fsprogs_see_that_a_volume_is_held";
    let (disk, mut tune2fs) = match (protected(), need("tune2fs")) {
        (Ok(disk), Ok(tune2fs)) => (disk, tune2fs),
        (Err(reason), _) | (_, Err(reason)) => skip!(NAME, reason),
    };
    let image = scratch::fresh("held");
    fs::write(&image, disk.to_vec()).unwrap();
    let file: Arc<dyn Device> =
        Arc::new(FileOptions::new().write(true).exclusive(false).open(&image).unwrap());
    let (held, hold_) = hold(&file, &Options::default()).unwrap();
    let said = run(tune2fs.args(["-L", "x"]).arg(&image));
    assert!(!said.succeeded() && said.report().contains("MMP"), "{}", said.report());
    drop(held);
    hold_.release().unwrap();
    hectare_oracle::assert_clean(&image).unwrap();
    let after = dumpe2fs_superblock(&image).unwrap();
    assert_eq!(after.field("Filesystem volume name"), "<none>");
    fs::remove_file(image).unwrap();
}
