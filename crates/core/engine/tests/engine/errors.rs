//! The errno table: every refusal as in the kernel, on an ext4 volume in memory, which is clean afterwards.

use crate::common::{InMemory, close_clean, format_bytes, in_memory, in_memory_with};
use hectare_engine::{Changes, Creation, Error, NewNode, OpenOptions, RenameMode, Result, XattrHow};
use hectare_oracle::skip;
use hectare_units::InodeNr;

const ROOT: InodeNr = InodeNr::ROOT;

fn fresh(test: &str) -> Option<InMemory> {
    match format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "8M") {
        Ok(bytes) => Some(in_memory(&bytes)),
        Err(reason) => {
            skip::record(skip::Extent::Test, test, &reason.to_string());
            None
        }
    }
}

#[track_caller]
fn errno<T>(result: Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.errno(),
    }
}

#[test]
fn names_that_cannot_be_or_are_taken() {
    let Some(held) = fresh("errors::names") else { return };
    let v = &held.volume;
    let c = Creation::default();
    v.make("file", NewNode::File, c).unwrap();
    v.create_dir("dir", c).unwrap();
    v.make("dir/inner", NewNode::File, c).unwrap();
    v.symlink("dangling", "link", c).unwrap();
    let long = [b'n'; 256];
    assert_eq!(errno(v.make(long, NewNode::File, c)), 36);
    assert_eq!(errno(v.lookup(ROOT, &long)), 36);
    assert_eq!(errno(v.make(&long[..255], NewNode::File, c)), 0);
    assert_eq!(errno(v.make("file", NewNode::File, c)), 17);
    assert_eq!(errno(v.create_dir("link", c)), 17);
    assert_eq!(errno(v.create(ROOT, b"a/b", NewNode::File, c)), 22);
    assert_eq!(errno(v.create(ROOT, b"", NewNode::File, c)), 22);
    assert_eq!(errno(v.create(ROOT, b"a\0", NewNode::File, c)), 22);
    assert_eq!(errno(v.create(ROOT, b".", NewNode::File, c)), 17);
    assert_eq!(errno(v.create(ROOT, b"..", NewNode::Directory, c)), 17);
    assert_eq!(errno(v.make("/", NewNode::Directory, c)), 17);
    assert_eq!(errno(v.make("none/x", NewNode::File, c)), 2);
    assert_eq!(errno(v.make("file/x", NewNode::File, c)), 20);
    assert_eq!(errno(v.symlink("", "empty", c)), 2);
    assert_eq!(errno(v.symlink([b't'; 1023], "long-link", c)), 0);
    assert_eq!(errno(v.symlink([b't'; 1024], "too-long-link", c)), 36);
    assert_eq!(errno(v.open_file("dir")), 21);
    assert_eq!(errno(v.open_file("link")), 2);
    assert_eq!(errno(v.read_link("file")), 22);
    assert_eq!(errno(v.read_dir("file")), 20);
    assert_eq!(errno(v.stat(InodeNr::new(1500))), 2);
    v.symlink("loop-b", "loop-a", c).unwrap();
    v.symlink("loop-a", "loop-b", c).unwrap();
    assert_eq!(errno(v.metadata("loop-a")), 40);
    assert_eq!(errno(v.metadata("loop-a/x")), 40);
    assert_eq!(v.metadata("dir/../dir/./inner").unwrap().links, 1);
    assert_eq!(errno(v.metadata("file/")), 20);
    close_clean(&held);
}

#[test]
fn removals_links_and_renames_that_cannot_be() {
    let Some(held) = fresh("errors::removals") else { return };
    let v = &held.volume;
    let c = Creation::default();
    v.make("file", NewNode::File, c).unwrap();
    v.create_dir_all("dir/sub/deep", c).unwrap();
    v.create_dir("empty", c).unwrap();
    assert_eq!(errno(v.remove_file("none")), 2);
    assert_eq!(errno(v.remove_file("dir")), 21);
    assert_eq!(errno(v.remove_dir("file")), 20);
    assert_eq!(errno(v.remove_dir("dir")), 39);
    assert_eq!(errno(v.rmdir(ROOT, b".")), 22);
    assert_eq!(errno(v.rmdir(ROOT, b"..")), 39);
    assert_eq!(errno(v.remove_dir("/")), 16);
    assert_eq!(errno(v.hard_link("dir", "second")), 1);
    assert_eq!(errno(v.hard_link("file", "empty")), 17);
    assert_eq!(errno(v.hard_link("none", "second")), 2);
    let rename = |from: &str, to: &str, mode| errno(v.rename_path(from, to, mode));
    assert_eq!(rename("none", "x", RenameMode::Replace), 2);
    assert_eq!(rename("file", "empty", RenameMode::Replace), 21);
    assert_eq!(rename("empty", "file", RenameMode::Replace), 20);
    assert_eq!(rename("empty", "dir", RenameMode::Replace), 39);
    assert_eq!(rename("file", "empty", RenameMode::NoReplace), 17);
    assert_eq!(rename("file", "none", RenameMode::Exchange), 2);
    assert_eq!(rename("dir", "dir/sub/deep/under", RenameMode::Replace), 22);
    assert_eq!(rename("dir", "dir/sub", RenameMode::Exchange), 22);
    assert_eq!(rename("dir/sub/deep", "dir", RenameMode::Replace), 39);
    assert_eq!(rename("dir/sub/deep", "dir", RenameMode::Exchange), 22);
    assert_eq!(errno(v.rename(ROOT, b".", ROOT, b"x", RenameMode::Replace)), 16);
    assert_eq!(rename("file", "file", RenameMode::Replace), 0);
    close_clean(&held);
}

#[test]
fn sizes_and_attributes_that_cannot_be() {
    let Some(held) = fresh("errors::sizes") else { return };
    let v = &held.volume;
    let c = Creation::default();
    let file = v.create_file("file", c).unwrap();
    let max = ((1u64 << 32) - 1) * 1024;
    assert_eq!(errno(file.write_at(max, b"x")), 27);
    assert_eq!(errno(file.write_at(u64::MAX, b"x")), 27);
    assert_eq!(errno(file.set_len(max + 1)), 27);
    assert_eq!(errno(file.set_len(u64::MAX)), 27);
    assert_eq!(errno(file.set_len(max)), 0);
    assert_eq!(errno(file.write_at(max - 1, b"x")), 0);
    assert_eq!(errno(file.write_at(max, b"")), 0);
    let mut last = [0; 4];
    assert_eq!(file.read_at(max - 2, &mut last).unwrap(), 2);
    assert_eq!(last, *b"\0x\0\0");
    assert_eq!(file.read_at(max, &mut last).unwrap(), 0);
    assert_eq!(file.read_at(u64::MAX, &mut last).unwrap(), 0);
    file.set_len(0).unwrap();
    let nr = file.inode();
    assert_eq!(errno(v.get_xattr(nr, "user.none")), 61);
    assert_eq!(errno(v.remove_xattr(nr, "user.none")), 61);
    assert_eq!(errno(v.set_xattr(nr, "user.a", b"1", XattrHow::Replace)), 61);
    assert_eq!(errno(v.set_xattr(nr, "user.a", b"1", XattrHow::Create)), 0);
    assert_eq!(errno(v.set_xattr(nr, "user.a", b"1", XattrHow::Create)), 17);
    assert_eq!(errno(v.set_xattr(nr, "user.b", &[1; 4000], XattrHow::Either)), 28);
    assert_eq!(errno(v.set_xattr(nr, "nonsense", b"1", XattrHow::Either)), 95);
    assert_eq!(errno(v.set_xattr(nr, "system.posix_acl_access", b"1", XattrHow::Either)), 22);
    assert_eq!(v.get_xattr(nr, "user.a").unwrap(), b"1");
    let size = |nr, size| errno(v.change(nr, &Changes { size: Some(size), ..Changes::default() }));
    assert_eq!(size(ROOT, 0), 21);
    close_clean(&held);
}

#[test]
fn the_size_of_what_is_no_file_cannot_be_set() {
    let Some(held) = fresh("errors::the_size_of_what_is_no_file") else { return };
    let v = &held.volume;
    let c = Creation::default();
    let link = v.symlink("target", "link", c).unwrap();
    let slow = v.symlink([b't'; 500], "slow", c).unwrap();
    let pipe = v.make("pipe", NewNode::Fifo, c).unwrap();
    for nr in [link, slow, pipe] {
        assert_eq!(errno(v.change(nr, &Changes { size: Some(3), ..Changes::default() })), 22);
    }
    assert_eq!(v.read_link("link").unwrap(), b"target");
    close_clean(&held);
}

#[test]
fn a_read_only_volume_takes_nothing() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("errors::a_read_only_volume", reason),
    };
    let first = in_memory(&bytes);
    let c = Creation::default();
    first.volume.write_file("file", b"content", c).unwrap();
    first.volume.close().unwrap();
    let before = first.device.to_vec();
    let held = in_memory_with(&before, OpenOptions::read_only()).unwrap();
    let v = &held.volume;
    let file = v.open_file("file").unwrap();
    assert_eq!(errno(file.write_at(0, b"x")), 30);
    assert_eq!(errno(file.set_len(0)), 30);
    assert_eq!(errno(v.make("new", NewNode::File, c)), 30);
    assert_eq!(errno(v.create_dir("new", c)), 30);
    assert_eq!(errno(v.remove_file("file")), 30);
    assert_eq!(errno(v.remove_dir("lost+found")), 30);
    assert_eq!(errno(v.hard_link("file", "new")), 30);
    assert_eq!(errno(v.rename_path("file", "new", RenameMode::Replace)), 30);
    assert_eq!(errno(v.change(file.inode(), &Changes { uid: Some(1), ..Changes::default() })), 30);
    assert_eq!(errno(v.set_xattr(file.inode(), "user.a", b"1", XattrHow::Either)), 30);
    assert_eq!(v.read("file").unwrap(), b"content");
    v.sync().unwrap();
    v.close().unwrap();
    drop(file);
    assert!(held.device.to_vec() == before, "bytes changed");
}

#[test]
fn a_closed_volume_takes_nothing_more() {
    let Some(held) = fresh("errors::a_closed_volume") else { return };
    let v = &held.volume;
    let file = v.create_file("file", Creation::default()).unwrap();
    close_clean(&held);
    let before = held.device.to_vec();
    assert!(matches!(v.make("late", NewNode::File, Creation::default()), Err(Error::Closed)));
    assert!(matches!(file.write_at(0, b"late"), Err(Error::Closed)));
    v.close().unwrap();
    drop(file);
    assert!(held.device.to_vec() == before, "bytes changed");
}

#[test]
fn immutable_and_append_only_files_are_kept() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("errors::immutable_and_append_only_files", reason),
    };
    let first = in_memory(&bytes);
    let c = Creation::default();
    let fixed = first.volume.create_file("fixed", c).unwrap();
    let log = first.volume.create_file("log", c).unwrap();
    log.write_all_at(0, b"one").unwrap();
    let (fixed, log) = (fixed.inode(), log.inode());
    first.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    crate::common::save(&first.device.to_vec(), &image);
    let flags = [
        format!("set_inode_field <{fixed}> flags 0x80010"),
        format!("set_inode_field <{log}> flags 0x80020"),
    ];
    hectare_oracle::debugfs_write(&image, &[&flags[0], &flags[1]]).unwrap();
    let held = in_memory(&std::fs::read(&image).unwrap());
    let v = &held.volume;
    let (fixed, log) = (v.open_inode(fixed).unwrap(), v.open_inode(log).unwrap());
    assert_eq!(errno(fixed.write_at(0, b"x")), 1);
    assert_eq!(errno(fixed.set_len(9)), 1);
    assert_eq!(errno(v.remove_file("fixed")), 1);
    assert_eq!(errno(v.rename_path("fixed", "moved", RenameMode::Replace)), 1);
    assert_eq!(errno(v.hard_link("fixed", "second")), 1);
    assert_eq!(errno(v.change(fixed.inode(), &Changes { uid: Some(1), ..Changes::default() })), 1);
    assert_eq!(errno(log.write_at(1, b"x")), 1);
    assert_eq!(errno(log.set_len(1)), 1);
    assert_eq!(errno(v.remove_file("log")), 1);
    assert_eq!(errno(log.write_at(3, b"two")), 0);
    assert_eq!(v.read("log").unwrap(), b"onetwo");
    drop((fixed, log));
    close_clean(&held);
}
