//! Volumes at their limits: full of data, full of names, out of inodes, out of links.

use crate::common::{InMemory, assert_clean_but_wide_bytes, close_clean, format_bytes, in_memory, pattern};
use hectare_engine::{Caller, Creation, Error, FallocateMode, InodeFlags, LINKS_MAX, NewNode, XattrHow};
use hectare_oracle::hunt::long;
use hectare_oracle::skip;
use hectare_units::InodeNr;

const ROOT: InodeNr = InodeNr::ROOT;

fn free(held: &InMemory) -> (u64, u32) {
    let statfs = held.volume.statfs().unwrap();
    (statfs.free.get(), statfs.free_inodes)
}

const KINDS: [(&[&str], &str); 7] = [
    (&["-t", "ext4", "-b", "1024", "-m", "0"], "8M"),
    (&["-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal"], "8M"),
    (
        &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "bigalloc,^has_journal", "-C", "8192", "-N", "256"],
        "16M",
    ),
    (&["-t", "ext4", "-b", "2048", "-m", "0", "-O", "^metadata_csum,uninit_bg", "-g", "2048"], "16M"),
    (&["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal", "-g", "512", "-G", "4"], "8M"),
    (&["-t", "ext2", "-b", "1024", "-m", "0", "-I", "128"], "8M"),
    (&["-t", "ext3", "-b", "4096", "-m", "0"], "16M"),
];

/// The first of them map files by extents.
const EXTENT_KINDS: usize = 5;

/// Writes ever smaller chunks until not one byte more fits; returns how many files it made.
fn fill_with_data(held: &InMemory) -> usize {
    let mut files = 0;
    for len in [1 << 20, 100_000, 9_000, 100] {
        for n in 0.. {
            let name = format!("file-{len}-{n}");
            let file = match held.volume.create_file(&name, Creation::default()) {
                Ok(file) => file,
                Err(Error::NoSpace | Error::NoInodes) => break,
                Err(other) => panic!("{name}: {other}"),
            };
            files += 1;
            let data = pattern(n, 0, len);
            match file.write_at(0, &data) {
                Ok(done) if done == len => {}
                Ok(done) => {
                    assert_eq!(file.metadata().unwrap().size, done as u64);
                    assert!(held.volume.read(&name).unwrap() == data[..done]);
                    break;
                }
                Err(Error::NoSpace) => break,
                Err(other) => panic!("{name}: {other}"),
            }
        }
    }
    files
}

#[test]
fn a_volume_filled_with_data_is_clean_and_empties_to_what_it_was() {
    for (args, size) in KINDS {
        let held = match format_bytes(args, size) {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("full::a_volume_filled_with_data", reason),
        };
        let before = free(&held);
        assert!(fill_with_data(&held) > 8, "{args:?}");
        assert_eq!(held.volume.statfs().unwrap().available.get(), 0, "{args:?}");
        held.volume.sync().unwrap();
        crate::common::assert_clean_bytes(&{
            held.volume.close().unwrap();
            held.device.to_vec()
        });
        let held = in_memory(&held.device.to_vec());
        for entry in held.volume.list(ROOT).unwrap() {
            if entry.name != b"lost+found" {
                held.volume.unlink(ROOT, &entry.name).unwrap();
            }
        }
        // The root directory keeps the blocks it grew to, as the kernel's does.
        let grown = (held.volume.stat(ROOT).unwrap().sectors * 512).saturating_sub(1024);
        let (blocks, inodes) = free(&held);
        let block = u64::from(held.volume.statfs().unwrap().block_size.get());
        assert!(
            blocks + grown / block >= before.0,
            "{args:?}: {blocks} free and {grown} bytes grown of {before:?}"
        );
        assert_eq!(inodes, before.1, "{args:?}");
        close_clean(&held);
    }
}

#[test]
fn a_volume_filled_with_names_is_clean_and_empties_to_what_it_was() {
    for (args, size) in KINDS {
        let held = match format_bytes(args, size) {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("full::a_volume_filled_with_names", reason),
        };
        let v = &held.volume;
        // Little space, so that the names fill it.
        let ballast = v.create_file("ballast", Creation::default()).unwrap();
        let spare = 200 * 1024;
        let bytes = v.statfs().unwrap().available.get() * u64::from(v.statfs().unwrap().block_size.get());
        ballast.write_all_at(0, &vec![1; usize::try_from(bytes.saturating_sub(spare)).unwrap()]).unwrap();
        drop(ballast);
        v.sync().unwrap();
        let before = free(&held);
        let dir = v.create_dir("dir", Creation::default()).unwrap();
        let file = v.create(dir, b"file", NewNode::File, Creation::default()).unwrap();
        let mut made = 0;
        let refusal = loop {
            let name = format!("{made:06}-{}", "n".repeat(200));
            let result = match made % 8 {
                0 => v.create(dir, name.as_bytes(), NewNode::Directory, Creation::default()).map(drop),
                1 => v
                    .create(dir, name.as_bytes(), NewNode::Symlink(&[b't'; 300]), Creation::default())
                    .map(drop),
                _ => v.link(file, dir, name.as_bytes()),
            };
            match result {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refusal.errno(), 28, "{args:?} after {made}: {refusal}");
        assert!(made > 20, "{args:?}");
        held.volume.close().unwrap();
        crate::common::assert_clean_bytes(&held.device.to_vec());
        let held = in_memory(&held.device.to_vec());
        assert_eq!(held.volume.list(dir).unwrap().len(), made + 1);
        held.volume.remove_dir_all("dir").unwrap();
        assert_eq!(free(&held), before, "{args:?}");
        close_clean(&held);
    }
}

#[test]
fn a_volume_out_of_inodes_says_so() {
    let held = match format_bytes(&["-t", "ext4", "-b", "1024", "-N", "64"], "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("full::a_volume_out_of_inodes", reason),
    };
    let before = free(&held);
    let mut made = 0;
    let refusal = loop {
        let node = if made % 2 == 0 { NewNode::File } else { NewNode::Directory };
        match held.volume.make(format!("n-{made}"), node, Creation::default()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, Error::NoInodes), "{refusal}");
    assert_eq!(refusal.errno(), 28);
    assert_eq!((made, free(&held).1), (before.1, 0));
    close_clean(&held);
}

#[test]
fn a_file_has_at_most_65000_links() {
    let held = match format_bytes(&["-t", "ext4", "-O", "^has_journal"], "64M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("full::a_file_has_at_most", reason),
    };
    let v = &held.volume;
    let file = v.create(ROOT, b"file", NewNode::File, Creation::default()).unwrap();
    let dir = v.create_dir("dir", Creation::default()).unwrap();
    for n in 1..LINKS_MAX {
        v.link(file, dir, format!("l{n}").as_bytes()).unwrap();
    }
    let refusal = v.link(file, dir, b"one-more").unwrap_err();
    assert_eq!(refusal.errno(), 31, "{refusal}");
    assert_eq!(v.stat(file).unwrap().links, u32::from(LINKS_MAX));
    v.unlink(dir, b"l1").unwrap();
    v.link(file, dir, b"one-more").unwrap();
    close_clean(&held);
}

/// More subdirectories than a link count holds, if the volume may; how many were made.
fn subdirectories(args: &[&str], size: &str) -> Option<(InMemory, InodeNr, Option<Error>)> {
    let held = match format_bytes(args, size) {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => {
            skip::record(skip::Extent::Test, "full::subdirectories", &reason.to_string());
            return None;
        }
    };
    let dir = held.volume.create_dir("dir", Creation::default()).unwrap();
    for n in 0..u32::from(LINKS_MAX) + 10 {
        let name = format!("d{n}");
        if let Err(error) = held.volume.create(dir, name.as_bytes(), NewNode::Directory, Creation::default())
        {
            return Some((held, dir, Some(error)));
        }
    }
    Some((held, dir, None))
}

#[test]
fn a_directory_counts_its_subdirectories_to_65000_and_then_no_more() {
    let size = "320M";
    let small = ["-t", "ext4", "-b", "1024", "-I", "128", "-N", "70000", "-O", "^has_journal"];
    let Some((held, dir, error)) = subdirectories(&small, size) else { return };
    assert!(error.is_none(), "{error:?}");
    assert_eq!(held.volume.stat(dir).unwrap().links, 1);
    held.volume.rmdir(dir, b"d7").unwrap();
    assert_eq!(held.volume.stat(dir).unwrap().links, 1);
    close_clean(&held);
    if !long("full, a directory without dir_nlink has at most 64998 subdirectories") {
        return;
    }
    let counted = ["-t", "ext4", "-b", "1024", "-I", "128", "-N", "70000", "-O", "^has_journal,^dir_nlink"];
    let Some((held, dir, error)) = subdirectories(&counted, size) else { return };
    assert_eq!(error.map(|error| error.errno()), Some(31));
    assert_eq!(held.volume.stat(dir).unwrap().links, u32::from(LINKS_MAX));
    close_clean(&held);
}

#[test]
fn the_reserve_is_for_those_who_may_take_it() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-m", "10", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("full::the_reserve", reason),
    };
    let held = in_memory(&bytes);
    let reserved = held.volume.superblock().reserved_blocks().get();
    fill_with_data(&held);
    let statfs = held.volume.statfs().unwrap();
    let kept = held.volume.superblock().geometry().clusters_count().get() / 50;
    assert_eq!((statfs.available.get(), statfs.free.get()), (0, reserved + kept));
    close_clean(&held);
    let options = hectare_engine::OpenOptions { use_reserved_blocks: true, ..Default::default() };
    let held = crate::common::in_memory_with(&held.device.to_vec(), options).unwrap();
    held.volume.write_file("reserve", &vec![7; 100_000], Creation::default()).unwrap();
    close_clean(&held);
}

#[test]
fn statfs_says_what_the_kernel_says() {
    for (args, size) in [
        (&["-t", "ext4"][..], "64M"),
        (&["-t", "ext4", "-b", "1024", "-m", "10"], "64M"),
        // A fiftieth of the blocks is one more with the block before the first group.
        (&["-t", "ext4", "-b", "1024"], "100M"),
        (&["-t", "ext4", "-O", "bigalloc"], "64M"),
    ] {
        let image = hectare_oracle::scratch::fresh("statfs");
        if let Err(reason) = hectare_oracle::mke2fs(args, &image, size) {
            skip!("full::statfs", reason);
        }
        let mount = match hectare_oracle::KernelMount::new(&image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!("full::statfs", reason),
        };
        std::fs::write(mount.path().join("file"), vec![7; 3 << 20]).unwrap();
        rustix::fs::syncfs(std::fs::File::open(mount.path()).unwrap()).unwrap();
        let theirs = rustix::fs::statvfs(mount.path()).unwrap();
        mount.unmount();
        let volume = crate::common::open_read_only(&image);
        let ours = volume.statfs().unwrap();
        assert_eq!((ours.blocks.get(), ours.free.get()), (theirs.f_blocks, theirs.f_bfree), "{args:?}");
        assert_eq!((u64::from(ours.inodes), u64::from(ours.free_inodes)), (theirs.f_files, theirs.f_ffree));
        assert_eq!(ours.available.get(), theirs.f_bavail, "{args:?}");
    }
}

/// Fills a volume with data, and takes what becomes free with each step that frees: only the reserved
/// clusters are there for the trees.
#[test]
fn regression_freeing_needs_no_free_space() {
    for (args, size) in &KINDS[..EXTENT_KINDS] {
        let held = match format_bytes(args, size) {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("full::freeing_needs_no_free_space", reason),
        };
        let volume = &held.volume;
        let unit = volume.superblock().geometry().cluster_bytes();
        let made = |name| volume.create_file(name, Creation::default()).unwrap();
        let (punched, prepared, cut) = (made("punched"), made("prepared"), made("cut"));
        let len = 300 * unit;
        punched.write_all_at(0, &pattern(1, 0, usize::try_from(len).unwrap())).unwrap();
        prepared.fallocate(FallocateMode::Allocate { keep_size: false }, 0, len).unwrap();
        cut.write_all_at(0, &pattern(2, 0, usize::try_from(len).unwrap())).unwrap();
        let refill = made("refill");
        let mut at = 0;
        let mut fill = || {
            while let Ok(done) = refill.write_at(at, &[5; 4096]) {
                at += done as u64;
            }
            assert_eq!(volume.statfs().unwrap().available.get(), 0, "{args:?}");
        };
        fill_with_data(&held);
        fill();
        for step in 0..100 {
            let place = (3 * step + 1) * unit;
            punched.fallocate(FallocateMode::PunchHole, place, unit).unwrap_or_else(|error| {
                panic!("{args:?}: punch {step}: {error}");
            });
            fill();
            prepared.write_all_at(place, b"written").unwrap_or_else(|error| {
                panic!("{args:?}: write {step}: {error}");
            });
            if step % 10 == 0 {
                cut.fallocate(FallocateMode::CollapseRange, (step % 7 + 1) * unit, unit).unwrap();
                fill();
                cut.fallocate(FallocateMode::PunchHole, 40 * unit + 5, 3 * unit).unwrap();
                fill();
            }
        }
        let (free, nr) = (volume.statfs().unwrap().free.get(), prepared.inode());
        assert!(free > 0, "{args:?}: some of what is kept is left");
        volume.set_inode_flags(nr, InodeFlags::EXTENTS | InodeFlags::NOATIME, &Caller::ROOT).unwrap();
        let mut expected = pattern(1, 0, usize::try_from(len).unwrap());
        for step in 0..100 {
            let place = usize::try_from((3 * step + 1) * unit).unwrap();
            expected[place..place + usize::try_from(unit).unwrap()].fill(0);
        }
        assert!(volume.read("punched").unwrap() == expected, "{args:?}");
        drop((punched, prepared, cut, refill));
        volume.remove_file("cut").unwrap();
        assert_eq!(volume.found_errors(), None);
        volume.close().unwrap();
        assert_clean_but_wide_bytes(&held.device.to_vec());
    }
}

/// Two files share their attributes in one block: the one that loses an attribute needs a block of its own.
#[test]
fn regression_removing_an_attribute_needs_no_free_space() {
    let Ok(bytes) = format_bytes(&["-t", "ext4", "-b", "1024", "-I", "128", "-m", "0"], "8M") else {
        skip!("full::removing_an_attribute", "there is no mke2fs");
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    crate::common::save(&bytes, &image);
    match hectare_oracle::KernelMount::new(&image, "") {
        Ok(mount) => {
            for name in ["one", "two"] {
                let path = mount.path().join(name);
                std::fs::write(&path, b"").unwrap();
                for attribute in ["user.first", "user.second"] {
                    rustix::fs::setxattr(&path, attribute, b"value", rustix::fs::XattrFlags::empty())
                        .unwrap();
                }
            }
        }
        Err(reason) => skip!("full::removing_an_attribute", reason),
    }
    let held = in_memory(&std::fs::read(&image).unwrap());
    fill_with_data(&held);
    let one = held.volume.resolve("one", true).unwrap();
    let error = held.volume.set_xattr(one, "user.third", &[7; 50], XattrHow::Either).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    held.volume.remove_xattr(one, "user.first").unwrap();
    close_clean(&held);
}
