//! Names and inodes: lifetimes, and listings that survive changes.

use crate::common::{InMemory, assert_clean_bytes, close_clean, format_bytes, in_memory, pattern};
use hectare_engine::{Changes, Cookie, Creation, Error, NewNode, OpenOptions, RenameMode};
use hectare_oracle::skip;
use hectare_units::InodeNr;
use std::collections::BTreeSet;

const ROOT: InodeNr = InodeNr::ROOT;

macro_rules! volume {
    ($test:literal, $size:literal $(, $arg:literal)*) => {
        match format_bytes(&["-t", "ext4" $(, $arg)*], $size) {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!($test, reason),
        }
    };
}

fn free(held: &InMemory) -> (u64, u32) {
    let statfs = held.volume.statfs().unwrap();
    (statfs.free.get(), statfs.free_inodes)
}

#[test]
fn regression_an_inode_is_gone_with_its_last_name_before_any_commit() {
    let held = volume!("namespace::an_inode_is_gone", "8M");
    let v = &held.volume;
    let file = v.create(ROOT, b"file", NewNode::File, Creation::default()).unwrap();
    let dir = v.create(ROOT, b"dir", NewNode::Directory, Creation::default()).unwrap();
    let link = v.create(ROOT, b"link", NewNode::Symlink(&[b't'; 100]), Creation::default()).unwrap();
    v.sync().unwrap(); // the table block now holds them alive
    v.unlink(ROOT, b"file").unwrap();
    v.unlink(ROOT, b"link").unwrap();
    v.rmdir(ROOT, b"dir").unwrap();
    for nr in [file, dir, link] {
        assert!(matches!(v.stat(nr), Err(Error::NotFound)), "{nr}: {:?}", v.stat(nr));
        assert!(matches!(v.list_xattrs(nr), Err(Error::NotFound)));
        let changes = Changes { uid: Some(7), ..Changes::default() };
        assert!(matches!(v.change(nr, &changes), Err(Error::NotFound)));
    }
    assert!(matches!(v.open_inode(file), Err(Error::NotFound)));
    assert!(matches!(v.read_link_at(link), Err(Error::NotFound)));
    assert!(matches!(v.list(dir), Err(Error::NotFound)));
    assert!(matches!(v.lookup(dir, b".."), Err(Error::NotFound)));
    close_clean(&held);
}

#[test]
fn an_open_file_lives_until_it_is_closed() {
    let held = volume!("namespace::an_open_file_lives", "8M");
    let v = &held.volume;
    v.sync().unwrap();
    let before = free(&held);
    let file = v.create_file(b"file", Creation::default()).unwrap();
    let second = v.open_file(b"file").unwrap();
    file.write_all_at(0, &pattern(1, 0, 50_000)).unwrap();
    v.remove_file(b"file").unwrap();
    v.sync().unwrap();
    assert!(matches!(v.metadata(b"file"), Err(Error::NotFound)));
    drop(second);
    file.write_all_at(50_000, &pattern(1, 50_000, 10_000)).unwrap();
    let mut read = vec![0; 60_000];
    assert_eq!(file.read_at(0, &mut read).unwrap(), 60_000);
    assert!(read == pattern(1, 0, 60_000));
    assert_eq!(file.metadata().unwrap().links, 0);
    assert!(matches!(v.link(file.inode(), ROOT, b"back"), Err(Error::NotFound)));
    drop(file);
    v.sync().unwrap();
    assert_eq!(free(&held), before);
    close_clean(&held);
}

#[test]
fn regression_a_volume_closed_while_an_unlinked_file_is_open_is_clean() {
    let held = volume!("namespace::a_volume_closed_while", "8M");
    let file = held.volume.create_file(b"file", Creation::default()).unwrap();
    file.write_all_at(0, &pattern(1, 0, 50_000)).unwrap();
    held.volume.remove_file(b"file").unwrap();
    close_clean(&held);
    drop(file);
    assert_clean_bytes(&held.device.to_vec());
}

#[test]
fn regression_a_whiteout_that_finds_no_inode_changes_nothing() {
    let held = volume!("namespace::a_whiteout", "8M", "-N", "16");
    let v = &held.volume;
    let c = Creation::default();
    v.write_file(b"from", b"source", c).unwrap();
    v.write_file(b"to", b"target", c).unwrap();
    for n in 0.. {
        match v.make(format!("filler-{n}"), NewNode::File, c) {
            Ok(_) => {}
            Err(Error::NoInodes) => break,
            Err(other) => panic!("{other}"),
        }
    }
    let refused = v.rename_path(b"from", b"to", RenameMode::WHITEOUT);
    assert!(matches!(refused, Err(Error::NoInodes)), "{refused:?}");
    assert_eq!(v.read(b"from").unwrap(), b"source");
    assert_eq!(v.read(b"to").unwrap(), b"target");
    v.remove_file(b"filler-0").unwrap();
    v.rename_path(b"from", b"to", RenameMode::WHITEOUT).unwrap();
    assert_eq!(v.read(b"to").unwrap(), b"source");
    let left = v.symlink_metadata(b"from").unwrap();
    assert_eq!((left.kind, left.permissions, left.device.major), (hectare_engine::Kind::CharDevice, 0, 0));
    close_clean(&held);
}

#[test]
fn a_listing_shows_each_name_once_whatever_changes_meanwhile() {
    let held = volume!("namespace::a_listing", "16M", "-b", "1024");
    let v = &held.volume;
    let dir = v.create_dir(b"dir", Creation::default()).unwrap();
    let stable: BTreeSet<Vec<u8>> = (0..800).map(|n| format!("stable-{n:04}").into_bytes()).collect();
    for name in &stable {
        v.create(dir, name, NewNode::File, Creation::default()).unwrap();
    }
    let (mut at, mut seen, mut step) = (Cookie::START, Vec::new(), 0);
    loop {
        let entries = v.read_dir_at(dir, at, 7).unwrap();
        let Some(last) = entries.last() else { break };
        at = last.next;
        seen.extend(entries.into_iter().map(|entry| entry.name).filter(|name| stable.contains(name)));
        for n in 0..5 {
            v.create(
                dir,
                format!("new-{step}-{n}-{}", "x".repeat(60)).as_bytes(),
                NewNode::File,
                Creation::default(),
            )
            .unwrap();
        }
        if step % 2 == 1 {
            v.unlink(dir, format!("new-{}-1-{}", step - 1, "x".repeat(60)).as_bytes()).unwrap();
        }
        step += 1;
    }
    assert_eq!(seen.len(), stable.len(), "{step} steps");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), stable);
    close_clean(&held);
}

#[test]
fn regression_a_directory_that_becomes_an_index_without_a_split_is_sealed_as_one() {
    let held = volume!("namespace::a_directory_that_becomes_an_index", "8M", "-b", "1024");
    let dir = held.volume.create_dir(b"dir", Creation::default()).unwrap();
    // Records of 20 bytes: 49 fit beside the dots, and the 50th into a leaf without them.
    for n in 0..50 {
        let name = format!("name-{n:07}");
        held.volume.create(dir, name.as_bytes(), NewNode::File, Creation::default()).unwrap();
    }
    let metadata = held.volume.stat(dir).unwrap();
    assert!(metadata.flags.contains(hectare_engine::InodeFlags::INDEX));
    assert_eq!(metadata.size, 2048);
    close_clean(&held);
}

#[test]
fn a_tree_is_removed_whole() {
    let held = volume!("namespace::a_tree_is_removed", "16M", "-b", "1024");
    let v = &held.volume;
    v.sync().unwrap();
    let before = free(&held);
    let c = Creation::default();
    v.create_dir_all(format!("top{}", "/deep".repeat(50)), c).unwrap();
    for dir in ["top", "top/deep", "top/deep/deep"] {
        for n in 0..60 {
            v.create_dir(format!("{dir}/dir-{n}"), c).unwrap();
            v.write_file(format!("{dir}/dir-{n}/file"), &pattern(n, 0, 3000), c).unwrap();
        }
        v.symlink("/", format!("{dir}/link"), c).unwrap();
    }
    v.remove_dir_all("top").unwrap();
    assert!(v.read_dir("/").unwrap().iter().all(|entry| entry.name == b"lost+found"));
    v.sync().unwrap();
    assert_eq!(free(&held), before);
    close_clean(&held);
}

#[test]
fn fixed_times_and_seeds_make_equal_volumes() {
    let bytes = match format_bytes(&["-t", "ext4"], "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("namespace::fixed_times_and_seeds", reason),
    };
    let make = || {
        let fixed_time = Some(hectare_engine::Timestamp::from_seconds(1_700_000_000));
        let options = OpenOptions { fixed_time, seed: Some(9), ..OpenOptions::default() };
        let held = crate::common::in_memory_with(&bytes, options).unwrap();
        for n in 0..50 {
            held.volume.create_dir(format!("dir-{n}"), Creation::default()).unwrap();
            held.volume
                .write_file(format!("dir-{n}/file"), &pattern(n, 0, 5000), Creation::default())
                .unwrap();
        }
        held.volume.close().unwrap();
        held.device.to_vec()
    };
    assert!(make() == make());
}

/// A slash at the end means a directory, for both names of an exchange: the second was taken as it was.
#[test]
fn regression_what_is_exchanged_with_a_name_and_a_slash_is_a_directory() {
    let held = volume!("namespace::what_is_exchanged_with_a_name_and_a_slash", "8M");
    let volume = &held.volume;
    for name in ["a", "b"] {
        volume.write_file(name, b"x", Creation::default()).unwrap();
    }
    volume.create_dir("d", Creation::default()).unwrap();
    for (from, to) in [("a", "b/"), ("a/", "b")] {
        let refused = volume.rename_path(from, to, RenameMode::Exchange);
        assert!(matches!(refused, Err(Error::NotADirectory)), "{from} {to}: {refused:?}");
    }
    volume.rename_path("a", "d/", RenameMode::Exchange).unwrap();
    assert!(volume.read_dir("a").is_ok());
}
