//! Freed space is given back to the host: holes in an image file.

use hectare_device::FileOptions;
use hectare_engine::{Creation, OpenOptions, Volume};
use hectare_oracle::{assert_clean, skip};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const LEN: u64 = 16 << 20;

fn open(image: &Path, discard: bool) -> Volume {
    let device = FileOptions::new().write(true).open(image).unwrap();
    Volume::open(Arc::new(device), OpenOptions { discard, ..OpenOptions::default() }).unwrap()
}

/// Bytes the host has set aside for the image.
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
        // But for the blocks that directories and tables have come to since.
        assert_eq!(freed >= LEN - (64 << 10), discard, "{freed} bytes were given back");
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
                // Little room, so that freed space is soon another's.
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
