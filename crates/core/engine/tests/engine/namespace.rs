//! Names and inodes: lifetimes, and listings that survive changes.

use crate::common::{InMemory, assert_clean_bytes, close_clean, format_bytes, in_memory, pattern};
use hectare_engine::{Caller, Changes, Cookie, Creation, Error, NewNode, OpenOptions, RenameMode, XattrHow};
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
fn regression_what_a_closed_volume_has_freed_is_not_read_as_empty() {
    let held = volume!("namespace::what_a_closed_volume_has_freed", "8M");
    let file = held.volume.create_file(b"file", Creation::default()).unwrap();
    file.write_all_at(0, &pattern(1, 0, 50_000)).unwrap();
    held.volume.remove_file(b"file").unwrap();
    close_clean(&held);
    let stale = |error: Error| matches!(error, Error::Stale(nr) if nr == file.inode());
    assert!(file.read_at(0, &mut [0; 10]).is_err_and(stale));
    assert!(file.metadata().is_err_and(stale));
    assert!(file.data_ranges().is_err_and(stale) && file.seek_data(0).is_err_and(stale));
}

#[test]
fn regression_nothing_belongs_to_what_stands_for_nobody() {
    let held = volume!("namespace::nothing_belongs", "8M");
    let v = &held.volume;
    let file = v.create_file(b"file", Creation::default()).unwrap();
    let nobody = |uid, gid| Changes { uid, gid, size: Some(7), ..Changes::default() };
    for changes in [nobody(Some(u32::MAX), None), nobody(None, Some(u32::MAX))] {
        assert!(matches!(v.change(file.inode(), &changes), Err(Error::Invalid(_))));
        assert!(matches!(v.change_as(file.inode(), &changes, &Caller::ROOT), Err(Error::Invalid(_))));
    }
    let creation = Creation { uid: u32::MAX, ..Creation::default() };
    assert!(matches!(v.create_file(b"other", creation), Err(Error::Invalid(_))));
    let found = file.metadata().unwrap();
    assert_eq!((found.uid, found.gid, found.size), (0, 0, 0));
    drop(file);
    close_clean(&held);
}

#[test]
fn regression_a_link_has_no_acl_and_no_target_that_linux_can_not_take() {
    let held = volume!("namespace::a_link_has_no_acl", "16M", "-b", "65536");
    let (v, c) = (&held.volume, Creation::default());
    let link = v.symlink("to", "/link", c).unwrap();
    // Version 2; the owner may read and write, the group read.
    let acl =
        [&[2, 0, 0, 0][..], &[1, 0, 6, 0], &[255; 4], &[4, 0, 4, 0], &[255; 4], &[32, 0, 0, 0], &[255; 4]];
    let acl = acl.concat();
    let set = v.set_xattr(link, "system.posix_acl_access", &acl, XattrHow::Either);
    assert!(matches!(set, Err(Error::Unsupported(_))), "{set:?}");
    assert_eq!(v.stat(link).unwrap().permissions, 0o777);
    let target = vec![b't'; 4096];
    assert!(matches!(v.symlink(&target, "/long", c), Err(Error::NameTooLong)));
    v.symlink(&target[1..], "/longest", c).unwrap();
    assert_eq!(v.read_link("/longest").unwrap(), &target[1..]);
    close_clean(&held);
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
fn regression_a_link_to_a_name_and_a_slash_leads_to_a_directory() {
    let held = volume!("namespace::a_link_to_a_name_and_a_slash", "8M");
    let (v, c) = (&held.volume, Creation::default());
    v.write_file("/file", b"content", c).unwrap();
    v.create_dir("/dir", c).unwrap();
    v.symlink("file/", "/to-file", c).unwrap();
    v.symlink("dir/", "/to-dir", c).unwrap();
    v.symlink("to-file", "/to-link", c).unwrap();
    for link in ["/to-file", "/to-link"] {
        assert!(matches!(v.read(link), Err(Error::NotADirectory)), "{link}");
        assert!(v.symlink_metadata(link).is_ok());
    }
    assert_eq!(v.resolve("/to-dir", true).unwrap(), v.resolve("/dir", true).unwrap());
    assert!(v.resolve("/to-dir/../file", true).is_ok());
    close_clean(&held);
}

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
