//! A log that is not empty, under a superblock that does not ask for it, beside `e2fsck -fy`, which replays
//! it: files that only the log has come out, and none is lost to a log that is old.

use crate::survey::Survey;
use crate::trial::{NOW, Trial, bytes_of, e2fsck};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, OpenOptions, Volume};
use hectare_ext4::superblock::SuperBlock;
use hectare_oracle::{Skip, debugfs, debugfs_write, mke2fs, skip};
use hectare_repair::{Options, Repaired, Staged};
use hectare_units::{Bytes, GroupNr};
use std::path::Path;
use std::sync::Arc;

/// A volume and what it was left as by a crash: `old` is in its place, `new` in the log only.
struct Crashed {
    bytes: Vec<u8>,
    /// The blocks of the log.
    log: Vec<usize>,
}

/// Bytes of a block.
const BLOCK: usize = 4096;

fn options() -> OpenOptions {
    OpenOptions { commit_interval: None, ..OpenOptions::default() }
}

fn write(volume: &Volume, folder: &str, count: u32) {
    volume.create_dir(folder, Creation::default()).unwrap();
    for n in 0..count {
        volume
            .write_file(format!("{folder}/{n}"), format!("{folder} {n}").as_bytes(), Creation::default())
            .unwrap();
    }
}

fn crashed(folder: &Path) -> Result<Crashed, Skip> {
    let image = folder.join("image");
    mke2fs(&["-t", "ext4", "-b", "4096", "-O", "^fast_commit", "-J", "size=4"], &image, "32M")?;
    let blocks = debugfs(&image, &["blocks <8>"])?;
    let numbers: Vec<usize> = blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() >= 1024, "the log has {} blocks", numbers.len());
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
    write(&volume, "old", 20);
    volume.close().unwrap();
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
    write(&volume, "new", 30);
    volume.remove_file("old/7").unwrap();
    volume.sync().unwrap();
    // The volume goes on to live; what the device holds now is what a crash leaves.
    Ok(Crashed { bytes: device.to_vec(), log: numbers })
}

/// Clears the mark, with a right checksum.
fn without_mark(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut sb = SuperBlock::parse(bytes[1024..2048].try_into().unwrap(), Bytes::new(u64::MAX)).unwrap();
    sb.set_needs_recovery(false);
    bytes[1024..2048].copy_from_slice(&sb.render(GroupNr::new(0)));
    bytes
}

fn survey(bytes: &[u8]) -> Survey {
    Survey::of(Arc::new(MemoryDevice::from_bytes(bytes))).unwrap()
}

fn repaired(bytes: &[u8]) -> (Repaired, Vec<u8>) {
    let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(bytes)));
    let repaired = staged.repair(&Options { now: NOW, ..Options::default() }).unwrap();
    (repaired, bytes_of(&**staged.overlay()))
}

fn has(survey: &Survey, path: &str) -> bool {
    survey.paths.iter().any(|(found, _)| found == path.as_bytes())
}

#[test]
fn regression_what_only_a_log_without_its_mark_has_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let crashed = match crashed(folder.path()) {
        Ok(crashed) => crashed,
        Err(reason) => skip!("repair forgotten::what_only_a_log_without_its_mark_has", reason),
    };
    let bytes = without_mark(&crashed.bytes);
    assert!(!has(&survey(&bytes), "/new/29"), "it is in the log only");
    let trial = Trial::run(&bytes, folder.path());
    assert!(trial.is_clean(), "{:?}", trial.repaired);
    assert!(trial.lost.is_empty() && trial.lost_paths == 0, "{:?}: {:?}", trial.lost, trial.repaired);
    let (_, after) = repaired(&bytes);
    let found = survey(&after);
    assert!((0..30).all(|n| has(&found, &format!("/new/{n}"))), "as e2fsck has them");
    assert!(!has(&found, "/old/7"));
}

/// A log that is old was replayed for the sake of wrong link counts, and took the newest files.
#[test]
fn regression_an_old_log_takes_no_file_from_a_volume_with_other_problems() {
    let folder = tempfile::tempdir().unwrap();
    let crashed = match crashed(folder.path()) {
        Ok(crashed) => crashed,
        Err(reason) => skip!("repair forgotten::an_old_log_and_other_problems", reason),
    };
    let device = Arc::new(MemoryDevice::from_bytes(&crashed.bytes));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
    write(&volume, "newest", 30);
    volume.close().unwrap();
    let image = folder.path().join("newest");
    std::fs::write(&image, device.to_vec()).unwrap();
    let wrong: Vec<_> = (0..12).map(|n| format!("set_inode_field /newest/{n} links_count 2")).collect();
    debugfs_write(&image, &wrong.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    for block in &crashed.log {
        let log = block * BLOCK..(block + 1) * BLOCK;
        bytes[log.clone()].copy_from_slice(&crashed.bytes[log]);
    }
    let (repaired, after) = repaired(&bytes);
    let found = survey(&after);
    assert!((0..30).all(|n| has(&found, &format!("/newest/{n}"))), "{:?}", repaired.mends);
    assert!(repaired.loses(), "one of the two is given up");
}

#[test]
fn a_log_that_is_old_takes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let crashed = match crashed(folder.path()) {
        Ok(crashed) => crashed,
        Err(reason) => skip!("repair forgotten::a_log_that_is_old_takes_no_file", reason),
    };
    // The volume is recovered and used, and then has its old log back.
    let device = Arc::new(MemoryDevice::from_bytes(&crashed.bytes));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
    write(&volume, "newest", 200);
    volume.remove_file("new/3").unwrap();
    volume.close().unwrap();
    let mut bytes = device.to_vec();
    for block in &crashed.log {
        let log = block * BLOCK..(block + 1) * BLOCK;
        bytes[log.clone()].copy_from_slice(&crashed.bytes[log]);
    }
    let (repaired, after) = repaired(&bytes);
    let image = folder.path().join("after");
    std::fs::write(&image, &after).unwrap();
    let said = e2fsck("-fn", &image);
    assert_eq!(said.code, Some(0), "{}", said.out);
    let found = survey(&after);
    assert!((0..200).all(|n| has(&found, &format!("/newest/{n}"))), "{:?}", repaired.mends);
    assert!(repaired.loses(), "what the log held is given up, and said so: {:?}", repaired.mends);
}
