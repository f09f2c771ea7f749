//! Many names in one directory.

use crate::common::{format_bytes, in_memory, save};
use hectare_device::{Device, FileOptions};
use hectare_engine::{Cookie, Creation, NewNode, OpenOptions, Volume};
use hectare_oracle::hunt::long;
use hectare_oracle::skip;
use hectare_units::InodeNr;
use std::collections::HashSet;
use std::sync::Arc;

fn name(n: u32) -> String {
    format!("file-{n:07}{}", "x".repeat((n % 23) as usize))
}

/// Fills a directory with links, looks every name up, lists it, empties most of it.
fn names(volume: &Volume, count: u32) -> InodeNr {
    let dir = volume.create_dir("dir", Creation::default()).unwrap();
    let mut inode = InodeNr::ROOT;
    for n in 0..count {
        if n % 60_000 == 0 {
            inode = volume.create(dir, name(n).as_bytes(), NewNode::File, Creation::default()).unwrap();
        } else {
            volume.link(inode, dir, name(n).as_bytes()).unwrap();
        }
    }
    for n in (0..count).step_by(7) {
        volume.lookup(dir, name(n).as_bytes()).unwrap();
    }
    assert!(volume.lookup(dir, b"file-none").is_err());
    let (mut at, mut seen) = (Cookie::START, HashSet::new());
    loop {
        let entries = volume.read_dir_at(dir, at, 1000).unwrap();
        let Some(last) = entries.last() else { break };
        at = last.next;
        for entry in entries {
            assert!(seen.insert(entry.name), "listed twice");
        }
    }
    assert_eq!(seen.len(), count as usize + 2);
    dir
}

fn remove_most(volume: &Volume, dir: InodeNr, count: u32) {
    for n in (0..count).filter(|n| n % 10 != 0) {
        volume.unlink(dir, name(n).as_bytes()).unwrap();
    }
    assert_eq!(volume.list(dir).unwrap().len(), count.div_ceil(10) as usize);
}

#[test]
fn a_hundred_thousand_names_in_a_directory() {
    let held = match format_bytes(&["-t", "ext4", "-b", "4096", "-N", "2048", "-O", "^has_journal"], "64M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("large::a_hundred_thousand_names", reason),
    };
    let dir = names(&held.volume, 100_000);
    held.volume.sync().unwrap();
    crate::common::assert_clean_bytes(&{
        held.volume.close().unwrap();
        held.device.to_vec()
    });
    let held = in_memory(&held.device.to_vec());
    remove_most(&held.volume, dir, 100_000);
    crate::common::close_clean(&held);
}

#[test]
fn three_levels_of_index_with_large_dir() {
    let args = ["-t", "ext4", "-b", "1024", "-N", "2048", "-O", "^has_journal,large_dir"];
    let held = match format_bytes(&args, "128M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("large::three_levels_of_index", reason),
    };
    // 1 KiB blocks: about 124 leaves a node, 20 names a leaf: over 300,000 need a third level.
    let count = 400_000;
    let dir = names(&held.volume, count);
    held.volume.close().unwrap();
    crate::common::assert_clean_bytes(&held.device.to_vec());
    let held = in_memory(&held.device.to_vec());
    for n in (0..count).step_by(997) {
        held.volume.lookup(dir, name(n).as_bytes()).unwrap();
    }
}

#[test]
fn a_directory_without_large_dir_says_when_its_index_is_full() {
    let args = ["-t", "ext4", "-b", "1024", "-N", "2048", "-O", "^has_journal"];
    let held = match format_bytes(&args, "64M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("large::a_directory_without_large_dir", reason),
    };
    let dir = held.volume.create_dir("dir", Creation::default()).unwrap();
    let name = |n: u32| format!("{n:07}-{}", "y".repeat(240));
    let mut inode = InodeNr::ROOT;
    let mut made = 0;
    let refusal = loop {
        let result = if made % 60_000 == 0 {
            held.volume
                .create(dir, name(made).as_bytes(), NewNode::File, Creation::default())
                .map(|nr| inode = nr)
        } else {
            held.volume.link(inode, dir, name(made).as_bytes())
        };
        match result {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, hectare_engine::Error::DirectoryFull), "after {made}: {refusal}");
    assert!(made > 15_000, "{made}");
    crate::common::close_clean(&held);
}

#[test]
fn a_million_files_in_a_directory() {
    if !long("large, a million files in a directory") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4", "-N", "1100000"], &image, "4G") {
        skip!("large::a_million_files", reason);
    }
    let device = FileOptions::new().write(true).open(&image).unwrap();
    let volume = Volume::open(Arc::new(device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    let dir = volume.create_dir("dir", Creation::default()).unwrap();
    for n in 0..1_000_000 {
        volume.create(dir, name(n).as_bytes(), NewNode::File, Creation::default()).unwrap();
    }
    assert_eq!(volume.list(dir).unwrap().len(), 1_000_000);
    volume.close().unwrap();
    drop(volume);
    hectare_oracle::assert_clean(&image).unwrap();
}

#[test]
fn saving_keeps_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> =
        (0..300_000u32).map(|n| if n / 70_000 % 2 == 0 { 0 } else { n.to_le_bytes()[0] }).collect();
    save(&bytes, &folder.path().join("file"));
    assert!(std::fs::read(folder.path().join("file")).unwrap() == bytes);
}
