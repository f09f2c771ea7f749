//! Files that are mapped by blocks (ext2, ext3): maps of every height, written and freed by us and by the
//! kernel, and maps that lie.

use crate::common::{
    InMemory, assert_clean_bytes, close_clean, format_bytes, in_memory, open_image, open_read_only, pattern,
    save,
};
use hectare_engine::{Caller, Creation, Error, FallocateMode, InodeFlags, OpenFile};
use hectare_oracle::{KernelMount, assert_clean, debugfs_write, mke2fs, skip, skip_part};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes at places of every level: direct, behind one, two and three tables of 256 numbers.
const PLACES: [u64; 9] = [
    0,
    11 << 10,
    12 << 10,
    (12 + 255) << 10,
    (12 + 256) << 10,
    (12 + 256 + 40_000) << 10,
    (12 + 256 + 65_535) << 10,
    (12 + 256 + 65_536) << 10,
    (12 + 256 + 65_536 + 9_000_000) << 10,
];

fn ext3() -> Option<InMemory> {
    match format_bytes(&["-t", "ext3", "-b", "1024", "-J", "size=1"], "32M") {
        Ok(bytes) => Some(in_memory(&bytes)),
        Err(reason) => {
            skip_part!("block_maps", reason);
            None
        }
    }
}

fn make(held: &InMemory, name: &str) -> OpenFile {
    held.volume.create_file(name, Creation::default()).unwrap()
}

#[test]
fn maps_of_every_height_grow_and_shrink_by_any_end() {
    let Some(held) = ext3() else { return };
    let free = held.volume.statfs().unwrap().free;
    for forward in [true, false] {
        let file = make(&held, "sparse");
        let order: Vec<u64> = if forward { PLACES.to_vec() } else { PLACES.iter().rev().copied().collect() };
        for at in &order {
            file.write_all_at(*at, &pattern(*at, *at, 1000)).unwrap();
        }
        let mut read = [0; 1000];
        for at in &order {
            assert_eq!(file.read_at(*at, &mut read).unwrap(), 1000);
            assert!(read.to_vec() == pattern(*at, *at, 1000), "{at}");
        }
        // Each time the part behind is freed, tables and all.
        for (n, at) in PLACES.iter().enumerate().rev() {
            file.set_len(at + 700).unwrap();
            assert_eq!(file.metadata().unwrap().size, at + 700);
            if n % 3 == 0 {
                held.volume.sync().unwrap();
                assert_clean_bytes(&held.device.to_vec());
            }
        }
        file.set_len(0).unwrap();
        assert_eq!(file.metadata().unwrap().sectors, 0);
        drop(file);
        held.volume.remove_file("sparse").unwrap();
        held.volume.sync().unwrap();
        assert_eq!(held.volume.statfs().unwrap().free, free);
    }
    close_clean(&held);
}

#[test]
fn ranges_are_punched_out_of_every_level() {
    let Some(held) = ext3() else { return };
    let file = make(&held, "file");
    let data = pattern(3, 0, 9 << 20);
    file.write_all_at(0, &data).unwrap();
    for at in &PLACES[7..] {
        file.write_all_at(*at, &pattern(*at, *at, 4096)).unwrap();
    }
    let size = file.metadata().unwrap().size;
    let mut expected = data;
    for (at, len) in [(5000, 9000), (12 << 10, 256 << 10), (300 << 10, 5 << 20), (8 << 20, 1 << 20)] {
        file.fallocate(FallocateMode::PunchHole, at, len).unwrap();
        let (from, to) = (at as usize, (at + len) as usize);
        expected[from..to].fill(0);
        held.volume.sync().unwrap();
        assert_clean_bytes(&held.device.to_vec());
    }
    file.fallocate(FallocateMode::PunchHole, 9 << 20, size).unwrap();
    let mut read = vec![1; 9 << 20];
    assert_eq!(file.read_at(0, &mut read).unwrap(), 9 << 20);
    assert!(read == expected);
    assert_eq!(file.metadata().unwrap().size, size, "the size stays");
    for mode in [
        FallocateMode::Allocate { keep_size: true },
        FallocateMode::ZeroRange { keep_size: true },
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
    ] {
        let refused = file.fallocate(mode, 4096, 4096);
        assert!(matches!(&refused, Err(Error::Unsupported(what)) if what.contains("blocks")), "{refused:?}");
    }
    drop(file);
    close_clean(&held);
}

#[test]
fn a_file_in_thousands_of_pieces_is_freed_in_small_transactions() {
    let Some(held) = ext3() else { return };
    let (one, two) = (make(&held, "one"), make(&held, "two"));
    for n in 0..6000u64 {
        one.write_all_at(n << 10, &[1; 1024]).unwrap();
        two.write_all_at((6000 - n) << 10, &[2; 1024]).unwrap();
    }
    drop((one, two));
    held.volume.remove_file("one").unwrap();
    held.volume.sync().unwrap();
    assert_clean_bytes(&held.device.to_vec());
    held.volume.open_file("two").unwrap().set_len(5000).unwrap();
    close_clean(&held);
}

#[test]
fn a_full_volume_lacks_space_for_a_table_and_loses_nothing() {
    let bytes = match format_bytes(&["-t", "ext2", "-b", "1024", "-m", "0", "-O", "^resize_inode"], "400K") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("block_maps::a_full_volume_lacks_space_for_a_table", reason),
    };
    let held = in_memory(&bytes);
    let file = make(&held, "file");
    let mut at = 0;
    while file.write_at(at << 10, &[7; 1024]).is_ok_and(|done| done == 1024) {
        at = if at < 12 { at + 1 } else { at + 300 };
    }
    assert!(at > 12, "{at}");
    drop(file);
    close_clean(&held);
}

/// The kernel writes what we wrote, and we what it wrote, in turn.
#[test]
fn the_kernel_and_we_write_one_file_in_turn() {
    for (name, args) in [
        ("ext2", &["-t", "ext2", "-b", "1024", "-I", "128"][..]),
        ("ext3", &["-t", "ext3", "-b", "4096"]),
        ("ext4 without extents", &["-t", "ext4", "-b", "2048", "-O", "^extents,^64bit"]),
    ] {
        let temporary = tempfile::tempdir().unwrap();
        let image = temporary.path().join("image");
        if let Err(reason) = mke2fs(args, &image, "64M") {
            skip_part!(format!("block_maps, in turn, {name}"), reason);
            continue;
        }
        let mut expected = vec![0; 20 << 20];
        for round in 0..6u64 {
            let (at, len) = ((round * 7_654_321) % (18 << 20), 1_500_000);
            let data = pattern(round, at, len as usize);
            expected[at as usize..(at + len) as usize].copy_from_slice(&data);
            if round % 2 == 0 {
                let volume = open_image(&image);
                let file = match volume.open_file("file") {
                    Ok(file) => file,
                    Err(_) => volume.create_file("file", Creation::default()).unwrap(),
                };
                file.write_all_at(at, &data).unwrap();
                file.set_len(20 << 20).unwrap();
                drop(file);
                volume.close().unwrap();
            } else {
                let mount = match KernelMount::new(&image, "") {
                    Ok(mount) => mount,
                    Err(reason) => {
                        skip_part!(format!("block_maps, in turn, {name}, mounted"), reason);
                        continue;
                    }
                };
                let file = File::options().write(true).open(mount.path().join("file")).unwrap();
                file.write_all_at(&data, at).unwrap();
                file.set_len(19 << 20).unwrap();
                file.set_len(20 << 20).unwrap();
                expected[19 << 20..].fill(0);
            }
            assert_clean(&image).unwrap();
            let read = open_read_only(&image).read("file").unwrap();
            let wrong = read.iter().zip(&expected).position(|(read, wrote)| read != wrote);
            assert_eq!((read.len(), wrong), (20 << 20, None), "{name}, round {round}");
        }
    }
}

/// A number in a map that lies: the error names the inode, and no block of another is freed.
#[test]
fn maps_that_lie_are_refused_with_nothing_freed() {
    let Some(held) = ext3() else { return };
    make(&held, "other").write_all_at(0, &pattern(1, 0, 50_000)).unwrap();
    make(&held, "file").write_all_at(0, &pattern(2, 0, 400_000)).unwrap();
    held.volume.close().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    for (number, word) in [("4294967295", "outside"), ("1", "indirect map"), ("400", "metadata")] {
        save(&held.device.to_vec(), &image);
        let set = format!("sif file block[IND] {number}");
        debugfs_write(&image, &[&set, "sif file block[DIND] 0"]).unwrap();
        refuse_lie(&image, number, word);
    }
}

fn refuse_lie(image: &Path, number: &str, word: &str) {
    let volume = open_image(image);
    let removed = volume.remove_file("file");
    let error = removed.map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|text| text.contains(word)), "{number}: {error:?}");
    let other = volume.read("other").unwrap();
    assert!(other == pattern(1, 0, 50_000), "{number}");
}

/// Regression: attributes on a volume that had not said that it has any were cleared by e2fsck.
#[test]
fn regression_a_first_attribute_brings_its_feature() {
    let kinds: [&[&str]; 3] = [
        &["-t", "ext2", "-b", "1024", "-r", "0", "-O", "none"],
        &["-t", "ext2", "-b", "1024", "-O", "none"],
        &["-t", "ext4", "-O", "^ext_attr"],
    ];
    for args in kinds {
        let held = match format_bytes(args, "16M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("block_maps::a_first_attribute_brings_its_feature", reason),
        };
        let nr = make(&held, "file").inode();
        held.volume.set_xattr(nr, b"user.name", &[7; 300], hectare_engine::XattrHow::Either).unwrap();
        close_clean(&held);
    }
}

/// `chattr -e` and `+e`, on a volume that has both.
#[test]
fn maps_are_exchanged_both_ways() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("block_maps::maps_are_exchanged", reason),
    };
    let held = in_memory(&bytes);
    let (file, dir) = (make(&held, "file"), held.volume.create_dir("dir", Creation::default()).unwrap());
    let data = pattern(1, 0, 9 << 20);
    for step in 0..40 {
        file.write_all_at(step * (300 << 10), &data[..100 << 10]).unwrap();
    }
    for n in 0..300 {
        make(&held, &format!("dir/a name that fills blocks {n}"));
    }
    let before = held.volume.read("file").unwrap();
    for round in 0..4 {
        for nr in [file.inode(), dir] {
            let flags = held.volume.stat(nr).unwrap().flags ^ InodeFlags::EXTENTS;
            held.volume.set_inode_flags(nr, flags & SETTABLE, &Caller::ROOT).unwrap();
            assert_eq!(held.volume.stat(nr).unwrap().flags.contains(InodeFlags::EXTENTS), round % 2 == 1);
        }
        held.volume.sync().unwrap();
        assert_clean_bytes(&held.device.to_vec());
        assert!(held.volume.read("file").unwrap() == before, "{round}");
        assert_eq!(held.volume.read_dir("dir").unwrap().len(), 300);
    }
    file.fallocate(FallocateMode::Allocate { keep_size: false }, 20 << 20, 1 << 20).unwrap();
    let refused = held.volume.set_inode_flags(file.inode(), InodeFlags::empty(), &Caller::ROOT);
    assert!(matches!(&refused, Err(Error::Unsupported(what)) if what.contains("unwritten")), "{refused:?}");
    drop(file);
    close_clean(&held);
}

/// What programs may set, of the flags here.
const SETTABLE: InodeFlags = InodeFlags::EXTENTS;

/// A handle dirties at most half the log, so that others find room beside it.
#[test]
fn a_map_of_more_nodes_than_half_the_log_is_not_exchanged() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("block_maps::a_map_of_more_nodes_than_half_the_log", reason),
    };
    let held = in_memory(&bytes);
    let file = make(&held, "file");
    for n in 0..180 {
        file.write_all_at(n * (300 << 10), b"data").unwrap();
    }
    let refused = held.volume.set_inode_flags(file.inode(), InodeFlags::empty(), &Caller::ROOT);
    assert!(
        matches!(&refused, Err(Error::Unsupported(what)) if what.contains("one transaction")),
        "{refused:?}"
    );
    file.set_len(10 * (300 << 10)).unwrap();
    held.volume.set_inode_flags(file.inode(), InodeFlags::empty(), &Caller::ROOT).unwrap();
    drop(file);
    close_clean(&held);
}

/// Such a map has room for more tables than an inode can count blocks, so that no file could have a byte.
#[test]
fn regression_files_of_large_blocks_have_room_for_content() {
    for features in ["^extent,^64bit", "^extent,^64bit,inline_data"] {
        let args = ["-t", "ext4", "-b", "65536", "-O", features];
        let bytes = match format_bytes(&args, "64M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("block_maps::regression_files_of_large_blocks", reason),
        };
        let held = in_memory(&bytes);
        let (v, c) = (&held.volume, Creation::default());
        v.write_file("file", b"short", c).unwrap();
        v.write_file("file", &pattern(1, 0, 3_000_000), c).unwrap();
        assert!(v.read("file").unwrap() == pattern(1, 0, 3_000_000), "{features}");
        let file = make(&held, "sparse");
        let end = v.file_size_max();
        file.write_all_at(end - 3, b"far").unwrap();
        assert_eq!(file.write_at(end - 2, b"for").unwrap(), 2, "{features}: as much as fits");
        assert!(matches!(file.write_all_at(end - 1, b"me"), Err(Error::FileTooLarge)), "{features}");
        let mut last = [0; 4];
        assert_eq!(file.read_at(end - 3, &mut last).unwrap(), 3);
        assert_eq!(&last[..3], b"ffm", "{features}");
        drop(file);
        close_clean(&held);
    }
}
