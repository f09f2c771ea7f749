//! Freed space is returned to the host: holes in an image file.

use crate::common::unhurried;
use hectare_device::FileOptions;
use hectare_engine::{Creation, OpenOptions, Volume};
use hectare_oracle::{IS_LINUX, assert_clean, skip};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const LEN: u64 = 16 << 20;

fn open(image: &Path, discard: bool) -> Volume {
    let device = FileOptions::new().write(true).open(image).unwrap();
    Volume::open(Arc::new(device), OpenOptions { discard, ..unhurried() }).unwrap()
}

/// Bytes that the host has allocated for the image.
fn stored(image: &Path) -> u64 {
    std::fs::metadata(image).unwrap().blocks() * 512
}

#[test]
fn freed_space_becomes_a_hole_once_it_is_committed() {
    let image = hectare_oracle::scratch::fresh("discard");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4"], &image, "256M") {
        skip!("discard::freed_space_becomes_a_hole", reason);
    }
    for discard in [false, true] {
        let volume = open(&image, discard);
        let file = volume.create_file("file", Creation::default()).unwrap();
        file.write_all_at(0, &vec![7; usize::try_from(LEN).unwrap()]).unwrap();
        volume.sync().unwrap();
        let full = stored(&image);
        drop(file);
        volume.remove_file("file").unwrap();
        assert!(stored(&image) + (LEN / 2) > full, "nothing goes before the commit");
        volume.sync().unwrap();
        let freed = full.saturating_sub(stored(&image));
        // All but the blocks that directories and tables have gained since; on other hosts than Linux none.
        assert_eq!(freed >= LEN - (64 << 10), discard && IS_LINUX, "{freed} bytes were given back");
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
    }
    std::fs::remove_file(&image).unwrap();
}

#[test]
fn what_is_written_again_is_not_discarded() {
    let image = hectare_oracle::scratch::fresh("discard-again");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4", "-m", "0"], &image, "24M") {
        skip!("discard::what_is_written_again", reason);
    }
    let volume = open(&image, true);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let volume = &volume;
            scope.spawn(move || {
                // Little room, so that freed space is soon reused.
                for round in 0..40_u8 {
                    let name = format!("file-{thread}");
                    let file = volume.create_file(&name, Creation::default()).unwrap();
                    let content = vec![1 + thread * 50 + round; 2 << 20];
                    file.write_all_at(0, &content).unwrap();
                    if round % 4 == 0 {
                        volume.sync().unwrap();
                    }
                    let mut read = vec![0; content.len()];
                    assert_eq!(file.read_at(0, &mut read).unwrap(), content.len());
                    assert!(read == content, "thread {thread}, round {round}");
                    drop(file);
                    volume.remove_file(&name).unwrap();
                }
            });
        }
    });
    volume.close().unwrap();
    drop(volume);
    assert_clean(&image).unwrap();
    std::fs::remove_file(&image).unwrap();
}

#[test]
fn trimming_gives_back_what_is_free_and_nothing_else() {
    for args in
        [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024"], &["-t", "ext4", "-O", "bigalloc", "-C", "16384"]]
    {
        let image = hectare_oracle::scratch::fresh("trim");
        if let Err(reason) = hectare_oracle::mke2fs(args, &image, "64M") {
            skip!("discard::trimming", reason);
        }
        // Nothing of it is a hole.
        let bytes = std::fs::read(&image).unwrap();
        std::fs::write(&image, &bytes).unwrap();
        let volume = open(&image, false);
        let content = vec![7; usize::try_from(LEN).unwrap()];
        for name in ["kept", "removed"] {
            let file = volume.create_file(name, Creation::default()).unwrap();
            file.write_all_at(0, &content).unwrap();
        }
        volume.remove_file("removed").unwrap();
        volume.sync().unwrap();
        let statfs = volume.statfs().unwrap();
        let (free, block) =
            (statfs.free.get() << statfs.block_size.shift(), u64::from(statfs.block_size.get()));
        let before = stored(&image);
        // The range, and runs of too little.
        assert_eq!(volume.trim(0..block, 0).unwrap(), 0, "the first block is in use");
        let some = volume.trim(0..LEN, 0).unwrap();
        assert!(some < free && some <= LEN, "{some} of {free}");
        let long: u64 = (0..volume.group_count())
            .flat_map(|nr| volume.free_runs(hectare_units::GroupNr::new(nr)).unwrap())
            .map(|run| (run.end.get() - run.start.get()) * block)
            .filter(|len| *len >= 4 << 20)
            .sum();
        assert_eq!(volume.trim(0..u64::MAX, 4 << 20).unwrap(), long);
        assert_eq!(volume.trim(0..u64::MAX, 0).unwrap(), free);
        let given = before - stored(&image);
        assert!(given + (64 << 10) >= free || !IS_LINUX, "{given} of {free} bytes were given back");
        for refused in
            [volume.trim(0..block - 1, 0), volume.trim(64 << 20..u64::MAX, 0), volume.trim(0..LEN, LEN << 20)]
        {
            assert!(matches!(refused, Err(hectare_engine::Error::Invalid(_))), "{refused:?}");
        }
        assert!(volume.read("kept").unwrap() == content);
        volume.check_space().unwrap();
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_volume_is_trimmed_while_it_is_filled() {
    let image = hectare_oracle::scratch::fresh("trim-filled");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4", "-m", "0"], &image, "24M") {
        skip!("discard::a_volume_is_trimmed", reason);
    }
    let volume = open(&image, false);
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..40_u8 {
                    let name = format!("file-{thread}");
                    let content = vec![1 + thread * 50 + round; 4 << 20];
                    let file = volume.create_file(&name, Creation::default()).unwrap();
                    file.write_all_at(0, &content).unwrap(); // there is room, even during a discard
                    let mut read = vec![0; content.len()];
                    assert_eq!(file.read_at(0, &mut read).unwrap(), content.len());
                    assert!(read == content, "thread {thread}, round {round}");
                    drop(file);
                    volume.remove_file(&name).unwrap();
                }
            });
        }
        for _ in 0..200 {
            volume.trim(0..u64::MAX, 0).unwrap();
        }
    });
    volume.check_space().unwrap();
    volume.close().unwrap();
    drop(volume);
    assert_clean(&image).unwrap();
    std::fs::remove_file(&image).unwrap();
}
