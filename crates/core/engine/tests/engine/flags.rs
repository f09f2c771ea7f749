//! Inode flags and projects against the kernel: which can be set, what they forbid, what is inherited.

use crate::common::{assert_clean_bytes, close_clean, in_memory, in_memory_with, open_image, unhurried};
use hectare_engine::{
    Caller, Capabilities, Changes, Creation, Error, FallocateMode, InodeFlags, NewNode, RenameMode,
    Synchronous, Volume, XattrHow, to_xflags,
};
use hectare_oracle::{KernelMount, assert_clean, skip};
use hectare_units::InodeNr;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const ROOT: InodeNr = InodeNr::ROOT;
const ME: Caller<'_> = Caller::ROOT;

/// What this process may do: root in a container may lack some.
fn own_capabilities() -> Capabilities {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    Capabilities::from_bits_truncate(u64::from_str_radix(bits.trim(), 16).unwrap())
}

/// A fresh volume in a file, twice.
fn pair(label: &str, args: &[&str]) -> Result<[PathBuf; 2], hectare_oracle::Skip> {
    let images = ["kernel", "engine"].map(|who| hectare_oracle::scratch::fresh(&format!("{label}-{who}")));
    hectare_oracle::mke2fs(args, &images[0], "32M")?;
    fs::copy(&images[0], &images[1]).unwrap();
    Ok(images)
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap()
}

fn raw(result: Result<(), std::io::Error>) -> Result<(), i32> {
    result.map_err(|error| errno(&error))
}

fn ours(result: Result<(), Error>) -> Result<(), i32> {
    result.map_err(|error| error.errno())
}

fn make(folder: &Path, name: &str, kind: FileType) -> PathBuf {
    let path = folder.join(name);
    rustix::fs::mknodat(CWD, &path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
        .and_then(|()| match kind {
            FileType::RegularFile => Ok(()),
            FileType::Directory => {
                fs::remove_file(&path).unwrap();
                rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755))
            }
            other => {
                fs::remove_file(&path).unwrap();
                rustix::fs::mknodat(CWD, &path, other, Mode::from_raw_mode(0o644), 0)
            }
        })
        .unwrap();
    path
}

fn open_for_flags(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).unwrap()
}

fn kernel_flags(path: &Path) -> u32 {
    rustix::fs::ioctl_getflags(open_for_flags(path)).unwrap().bits()
}

fn kernel_set(path: &Path, flags: u32) -> Result<(), i32> {
    rustix::fs::ioctl_setflags(open_for_flags(path), IFlags::from_bits_retain(flags))
        .map_err(|error| error.raw_os_error())
}

fn node(kind: FileType) -> NewNode<'static> {
    match kind {
        FileType::RegularFile => NewNode::File,
        FileType::Directory => NewNode::Directory,
        _ => NewNode::Fifo,
    }
}

#[test]
fn every_flag_is_taken_or_refused_as_the_kernel_does() {
    let [kernel, engine] = match pair("flags-each", &["-t", "ext4"]) {
        Ok(images) => images,
        Err(reason) => skip!("flags::every_flag", reason),
    };
    let mount = match KernelMount::new(&kernel, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("flags::every_flag", reason),
    };
    let volume = open_image(&engine);
    let me = Caller { capabilities: own_capabilities(), ..ME };
    for kind in [FileType::RegularFile, FileType::Directory] {
        for bit in 0..32 {
            let flag = 1_u32 << bit;
            let name = format!("{kind:?}-{bit}");
            let path = make(mount.path(), &name, kind);
            let nr = volume.create(ROOT, name.as_bytes(), node(kind), Creation::default()).unwrap();
            let before = kernel_flags(&path);
            assert_eq!(volume.inode_flags(nr).unwrap().bits(), before, "{name}");
            let theirs = kernel_set(&path, before | flag);
            let wanted = InodeFlags::from_bits_retain(before | flag);
            assert_eq!(ours(volume.set_inode_flags(nr, wanted, &me)), theirs, "{name}");
            assert_eq!(volume.inode_flags(nr).unwrap().bits(), kernel_flags(&path), "{name}");
            // And back.
            assert_eq!(
                ours(volume.set_inode_flags(nr, wanted - InodeFlags::from_bits_retain(flag & !before), &me)),
                { kernel_set(&path, before) }
            );
            assert_eq!(volume.inode_flags(nr).unwrap().bits(), kernel_flags(&path), "{name}, back");
        }
    }
    mount.unmount();
    volume.close().unwrap();
    assert_clean(&engine).unwrap();
    assert_clean(&kernel).unwrap();
}

#[test]
fn what_is_made_in_a_directory_inherits_what_the_kernel_says() {
    let [kernel, engine] = match pair("flags-inherit", &["-t", "ext4"]) {
        Ok(images) => images,
        Err(reason) => skip!("flags::what_is_made", reason),
    };
    let mount = match KernelMount::new(&kernel, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("flags::what_is_made", reason),
    };
    let volume = open_image(&engine);
    // Append-only, too: names may be added.
    for flags in
        [0x1, 0x2, 0x4, 0x8, 0x20, 0x40, 0x80, 0x8000, 0x1_0000, 0x2_0000, 0x2000_0000, 0x2003_80cf_u32]
    {
        let name = format!("dir-{flags:x}");
        let folder = make(mount.path(), &name, FileType::Directory);
        let dir = volume.create(ROOT, name.as_bytes(), NewNode::Directory, Creation::default()).unwrap();
        let before = kernel_flags(&folder);
        kernel_set(&folder, before | flags).unwrap();
        volume.set_inode_flags(dir, InodeFlags::from_bits_retain(before | flags), &ME).unwrap();
        for kind in [FileType::RegularFile, FileType::Directory, FileType::Fifo] {
            let child = make_at_once(&folder, "child", kind);
            let child_name = format!("child-{kind:?}");
            let nr = volume.create(dir, child_name.as_bytes(), node(kind), Creation::default()).unwrap();
            let theirs = if kind == FileType::Fifo { None } else { Some(kernel_flags(&child)) };
            if let Some(theirs) = theirs {
                assert_eq!(volume.inode_flags(nr).unwrap().bits(), theirs, "{name}, {kind:?}");
            }
        }
    }
    mount.unmount();
    volume.close().unwrap();
    assert_clean(&engine).unwrap();
}

/// Makes a node in a directory from which nothing can be removed.
fn make_at_once(folder: &Path, name: &str, kind: FileType) -> PathBuf {
    let path = folder.join(format!("{name}-{kind:?}"));
    match kind {
        FileType::Directory => rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).unwrap(),
        kind => rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o644), 0).unwrap(),
    }
    path
}

/// An operation on a file or directory that is called "it", in directory "in"; "other" lies beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Overwrite,
    Append,
    Truncate,
    Chmod,
    Times,
    SetAttribute,
    Link,
    Unlink,
    MoveAway,
    Replace,
    Exchange,
    Fallocate,
    Punch,
    NewName,
    TakeName,
    ReplaceName,
    ExchangeNames,
}

const OF_FILES: [Op; 13] = [
    Op::Overwrite,
    Op::Append,
    Op::Truncate,
    Op::Chmod,
    Op::Times,
    Op::SetAttribute,
    Op::Link,
    Op::Unlink,
    Op::MoveAway,
    Op::Replace,
    Op::Exchange,
    Op::Fallocate,
    Op::Punch,
];
const OF_DIRECTORIES: [Op; 7] = [
    Op::Chmod,
    Op::SetAttribute,
    Op::MoveAway,
    Op::NewName,
    Op::TakeName,
    Op::ReplaceName,
    Op::ExchangeNames,
];

fn by_kernel(op: Op, folder: &Path) -> Result<(), i32> {
    let (it, other) = (folder.join("it"), folder.join("other"));
    let write = || OpenOptions::new().write(true).open(&it);
    let append = || OpenOptions::new().append(true).open(&it);
    let errno = |error: rustix::io::Errno| error.raw_os_error();
    match op {
        Op::Overwrite => raw(write().and_then(|file| file.write_all_at(b"over", 0))),
        Op::Append => raw(append().and_then(|mut file| file.write_all(b"more"))),
        Op::Truncate => raw(write().and_then(|file| file.set_len(1))),
        Op::Chmod => raw(fs::set_permissions(&it, fs::Permissions::from_mode(0o700))),
        Op::Times => {
            raw(append().and_then(|file| file.set_modified(std::time::UNIX_EPOCH))).or_else(|error| {
                // A file that can't be opened still has a name.
                let time = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
                let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
                let by_name = rustix::fs::utimensat(CWD, &it, &times, AtFlags::empty()).map_err(errno);
                if by_name.is_ok() { by_name } else { Err(error) }
            })
        }
        Op::SetAttribute => rustix::fs::setxattr(&it, "user.a", b"value", XattrFlags::empty()).map_err(errno),
        Op::Link => raw(fs::hard_link(&it, folder.join("second"))),
        Op::Unlink => raw(fs::remove_file(&it)),
        Op::MoveAway => raw(fs::rename(&it, folder.join("moved"))),
        Op::Replace => raw(fs::rename(&other, &it)),
        Op::Exchange => {
            rustix::fs::renameat_with(CWD, &other, CWD, &it, RenameFlags::EXCHANGE).map_err(errno)
        }
        Op::Fallocate => append()
            .map_err(|error| self::errno(&error))
            .and_then(|file| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 9000).map_err(errno)),
        Op::Punch => append().map_err(|error| self::errno(&error)).and_then(|file| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, 0, 4096).map_err(errno)
        }),
        Op::NewName => raw(File::create(it.join("new")).map(drop)),
        Op::TakeName => raw(fs::remove_file(it.join("a"))),
        Op::ReplaceName => raw(fs::rename(&other, it.join("a"))),
        Op::ExchangeNames => {
            rustix::fs::renameat_with(CWD, it.join("a"), CWD, it.join("b"), RenameFlags::EXCHANGE)
                .map_err(errno)
        }
    }
}

fn by_engine(op: Op, volume: &Volume, dir: InodeNr) -> Result<(), i32> {
    let it = volume.lookup(dir, b"it").unwrap();
    let file = || volume.open_inode(it);
    let rename = |from, to: InodeNr, name: &[u8], mode| volume.rename(dir, from, to, name, mode);
    let changes = Changes::default();
    ours(match op {
        Op::Overwrite => file().and_then(|file| file.write_all_at(0, b"over")),
        Op::Append => file().and_then(|file| file.write_all_at(5, b"more")),
        Op::Truncate => file().and_then(|file| file.set_len(1)),
        Op::Chmod => volume.change(it, &Changes { permissions: Some(0o700), ..changes }),
        Op::Times => {
            let mtime = Some(hectare_engine::Timestamp::from_seconds(0));
            volume.change(it, &Changes { mtime, ..changes })
        }
        Op::SetAttribute => volume.set_xattr(it, "user.a", b"value", XattrHow::Either),
        Op::Link => volume.link(it, dir, b"second"),
        Op::Unlink => volume.unlink(dir, b"it"),
        Op::MoveAway => rename(b"it", dir, b"moved", RenameMode::Replace),
        Op::Replace => rename(b"other", dir, b"it", RenameMode::Replace),
        Op::Exchange => rename(b"other", dir, b"it", RenameMode::Exchange),
        Op::Fallocate => file().and_then(|file| file.allocate(0, 9000, false)),
        Op::Punch => file().and_then(|file| file.fallocate(FallocateMode::PunchHole, 0, 4096)),
        Op::NewName => volume.create(it, b"new", NewNode::File, Creation::default()).map(drop),
        Op::TakeName => volume.unlink(it, b"a"),
        Op::ReplaceName => rename(b"other", it, b"a", RenameMode::Replace),
        Op::ExchangeNames => volume.rename(it, b"a", it, b"b", RenameMode::Exchange),
    })
}

#[test]
fn flags_forbid_what_they_forbid_in_the_kernel() {
    let [kernel, engine] = match pair("flags-forbid", &["-t", "ext4"]) {
        Ok(images) => images,
        Err(reason) => skip!("flags::flags_forbid", reason),
    };
    let mount = match KernelMount::new(&kernel, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("flags::flags_forbid", reason),
    };
    let volume = open_image(&engine);
    let mut refused = 0;
    for flag in [InodeFlags::empty(), InodeFlags::IMMUTABLE, InodeFlags::APPEND, InodeFlags::SYNC] {
        let (files, directories) = (OF_FILES.map(|op| (op, false)), OF_DIRECTORIES.map(|op| (op, true)));
        for (op, directory) in files.into_iter().chain(directories) {
            let name = format!("{op:?}-{directory}-{:x}", flag.bits());
            let folder = mount.path().join(&name);
            fs::create_dir(&folder).unwrap();
            let dir = volume.create_dir(&name, Creation::default()).unwrap();
            fs::write(folder.join("other"), b"other").unwrap();
            volume.write_file(format!("{name}/other"), b"other", Creation::default()).unwrap();
            let (it, path) = (folder.join("it"), format!("{name}/it"));
            if directory {
                fs::create_dir(&it).unwrap();
                volume.create_dir(&path, Creation::default()).unwrap();
                for inside in ["a", "b"] {
                    fs::write(it.join(inside), inside).unwrap();
                    volume.write_file(format!("{path}/{inside}"), b"", Creation::default()).unwrap();
                }
            } else {
                fs::write(&it, b"12345").unwrap();
                volume.write_file(&path, b"12345", Creation::default()).unwrap();
            }
            kernel_set(&it, kernel_flags(&it) | flag.bits()).unwrap();
            let nr = volume.lookup(dir, b"it").unwrap();
            volume.set_inode_flags(nr, volume.inode_flags(nr).unwrap() | flag, &ME).unwrap();
            let theirs = by_kernel(op, &folder);
            refused += usize::from(theirs.is_err());
            assert_eq!(by_engine(op, &volume, dir), theirs, "{name}");
        }
    }
    assert!(refused >= 25, "only {refused}");
    mount.unmount();
    volume.close().unwrap();
    assert_clean(&engine).unwrap();
}

#[test]
fn bytes_that_gathered_before_a_file_was_protected_can_not_be_written_over() {
    let bytes = match crate::common::format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("flags::bytes_that_gathered", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let file = v.create_file("log", Creation::default()).unwrap();
    file.write_all_at(0, b"first line\n").unwrap();
    let flags = v.inode_flags(file.inode()).unwrap();
    v.set_inode_flags(file.inode(), flags | InodeFlags::APPEND, &ME).unwrap();
    for round in 0..3 {
        let end = file.metadata().unwrap().size;
        assert!(matches!(file.write_at(0, b"F"), Err(Error::AppendOnly(_))), "{round}");
        assert!(matches!(file.write_at(end - 1, b"F"), Err(Error::AppendOnly(_))), "{round}");
        assert!(matches!(file.set_len(0), Err(Error::AppendOnly(_))), "{round}");
        file.write_all_at(end, b"another line\n").unwrap();
    }
    assert_eq!(v.read("log").unwrap(), b"first line\nanother line\nanother line\nanother line\n");
    v.set_inode_flags(file.inode(), flags | InodeFlags::IMMUTABLE, &ME).unwrap();
    assert!(matches!(file.write_at(50, b"F"), Err(Error::Immutable(_))));
    v.set_inode_flags(file.inode(), flags, &ME).unwrap();
    file.write_all_at(0, b"F").unwrap();
    drop(file);
    close_clean(&held);
}

/// The kernel's cache writes a program's append back with the rest of the page.
#[test]
fn regression_a_cache_brings_what_it_took_before_a_file_was_protected() {
    let bytes = match crate::common::format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("flags::regression_a_cache_brings", reason),
    };
    for flag in [InodeFlags::APPEND, InodeFlags::IMMUTABLE] {
        let held = in_memory(&bytes);
        let file = held.volume.create_file("f", Creation::default()).unwrap();
        let flags = held.volume.inode_flags(file.inode()).unwrap();
        for (len, is_placed) in [(10, false), (9_000, true), (70_000, true)] {
            held.volume.set_inode_flags(file.inode(), flags, &ME).unwrap();
            file.write_all_at(0, &vec![1; len]).unwrap();
            if is_placed {
                file.sync().unwrap();
            }
            held.volume.set_inode_flags(file.inode(), flags | flag, &ME).unwrap();
            assert_eq!(ours(file.write_all_at(0, b"x")), Err(1));
            assert_eq!(file.write_from_cache(0, &vec![2; len + 5]).unwrap(), len + 5);
            assert_eq!(held.volume.read("f").unwrap()[..len + 5], vec![2; len + 5]);
        }
        held.volume.set_inode_flags(file.inode(), flags, &ME).unwrap();
        drop(file);
        close_clean(&held);
    }
}

#[test]
fn a_file_that_asks_for_it_is_durable_when_the_write_returns() {
    let bytes = match crate::common::format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("flags::a_file_that_asks", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let dir = v.create_dir("dir", Creation::default()).unwrap();
    let file = v.create_file("dir/file", Creation::default()).unwrap();
    v.set_inode_flags(file.inode(), v.inode_flags(file.inode()).unwrap() | InodeFlags::SYNC, &ME).unwrap();
    v.set_inode_flags(dir, v.inode_flags(dir).unwrap() | InodeFlags::DIRSYNC, &ME).unwrap();
    v.sync().unwrap();
    file.write_all_at(0, b"kept").unwrap();
    v.create(dir, b"new", NewNode::File, Creation::default()).unwrap();
    v.rename(dir, b"new", ROOT, b"moved", RenameMode::Replace).unwrap();
    // What a crash now would leave: the log is replayed when the copy is opened.
    let after = in_memory(&held.device.to_vec());
    assert_eq!(after.volume.read("dir/file").unwrap(), b"kept");
    assert!(after.volume.metadata("moved").is_ok());
    close_clean(&after);
    drop(file);
    close_clean(&held);
}

#[test]
fn a_volume_that_is_opened_so_makes_every_change_durable() {
    let bytes = match crate::common::format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("flags::a_volume_that_is_opened_so", reason),
    };
    for synchronous in [Synchronous::Flagged, Synchronous::Names, Synchronous::All] {
        let held =
            in_memory_with(&bytes, hectare_engine::OpenOptions { synchronous, ..unhurried() }).unwrap();
        let v = &held.volume;
        // What a crash now would leave: the log is replayed when the copy is opened.
        let after_a_crash = || in_memory(&held.device.to_vec());
        let all = synchronous == Synchronous::All;
        let file = v.create_file("file", Creation::default()).unwrap();
        assert_eq!(after_a_crash().volume.metadata("file").is_ok(), synchronous >= Synchronous::Names);
        v.sync().unwrap();
        file.write_all_at(0, b"kept").unwrap();
        assert_eq!(after_a_crash().volume.read("file").unwrap() == b"kept", all);
        v.sync().unwrap();
        v.change(file.inode(), &Changes { permissions: Some(0o601), ..Changes::default() }).unwrap();
        assert_eq!(after_a_crash().volume.metadata("file").unwrap().permissions == 0o601, all);
        v.sync().unwrap();
        let owner = Changes { uid: Some(7), ..Changes::default() };
        v.change_as(file.inode(), &owner, &ME).unwrap();
        assert_eq!(after_a_crash().volume.metadata("file").unwrap().uid == 7, all);
        v.sync().unwrap();
        file.set_len(1000).unwrap();
        assert_eq!(after_a_crash().volume.metadata("file").unwrap().size == 1000, all);
        v.sync().unwrap();
        v.set_xattr(file.inode(), "user.a", b"b", XattrHow::Either).unwrap();
        assert_eq!(after_a_crash().volume.get_xattr(file.inode(), "user.a").is_ok(), all);
        v.set_inode_flags(file.inode(), v.inode_flags(file.inode()).unwrap() | InodeFlags::NODUMP, &ME)
            .unwrap();
        let flags = after_a_crash().volume.inode_flags(file.inode()).unwrap();
        assert_eq!(flags.contains(InodeFlags::NODUMP), all);
        v.sync().unwrap();
        v.remove_xattr(file.inode(), "user.a").unwrap();
        assert_eq!(after_a_crash().volume.get_xattr(file.inode(), "user.a").is_err(), all);
        drop(file);
        v.unlink(ROOT, b"file").unwrap();
        assert_eq!(after_a_crash().volume.metadata("file").is_err(), synchronous >= Synchronous::Names);
        close_clean(&held);
    }
}

#[test]
fn only_who_may_changes_flags() {
    let bytes = match crate::common::format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("flags::only_who_may", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let nr = v.make("file", NewNode::File, Creation { uid: 7, ..Creation::default() }).unwrap();
    let flags = v.inode_flags(nr).unwrap();
    let (owner, other) = (Caller::user(7, 7, &[]), Caller::user(8, 7, &[7]));
    let refused = v.set_inode_flags(nr, flags | InodeFlags::NODUMP, &other);
    assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
    v.set_inode_flags(nr, flags | InodeFlags::NODUMP, &owner).unwrap();
    let refused = v.set_inode_flags(nr, flags | InodeFlags::APPEND, &owner);
    assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
    let guardian = Caller { capabilities: Capabilities::LINUX_IMMUTABLE, ..owner };
    v.set_inode_flags(nr, flags | InodeFlags::IMMUTABLE, &guardian).unwrap();
    let refused = v.set_inode_flags(nr, flags | InodeFlags::IMMUTABLE | InodeFlags::NOATIME, &ME);
    assert!(matches!(refused, Err(Error::Immutable(_))), "{refused:?}");
    let dir = v.create_dir("dir", Creation::default()).unwrap();
    let refused =
        v.set_inode_flags(dir, v.inode_flags(dir).unwrap() | InodeFlags::CASEFOLD, &ME).unwrap_err();
    assert!(refused.errno() == 95 && refused.to_string().contains("casefold"), "{refused}");
    let refused = v.set_inode_flags(nr, flags | InodeFlags::JOURNAL_DATA, &guardian);
    assert!(matches!(refused, Err(Error::NotPermitted(_))), "{refused:?}");
    v.set_inode_flags(nr, flags, &guardian).unwrap();
    close_clean(&held);
}

#[test]
fn projects_keep_to_themselves() {
    let bytes = match crate::common::format_bytes(&["-t", "ext4", "-O", "project"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("flags::projects", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let c = Creation::default();
    let (one, two) = (v.create_dir("one", c).unwrap(), v.create_dir("two", c).unwrap());
    for (dir, project) in [(one, 1), (two, 2)] {
        let flags = v.inode_flags(dir).unwrap() | InodeFlags::PROJINHERIT;
        assert_eq!(to_xflags(flags), 0x200);
        v.set_flags_and_project(dir, flags, project, &ME).unwrap();
    }
    let file = v.make("one/file", NewNode::File, c).unwrap();
    let sub = v.create_dir("one/sub", c).unwrap();
    assert_eq!((v.project(file).unwrap(), v.project(sub).unwrap(), v.project(ROOT).unwrap()), (1, 1, 0));
    assert!(v.inode_flags(sub).unwrap().contains(InodeFlags::PROJINHERIT));
    v.write_file("two/file", b"2", c).unwrap();
    let exdev = |result: Result<(), Error>| assert_eq!(result.unwrap_err().errno(), 18);
    exdev(v.link(file, two, b"link"));
    exdev(v.rename(one, b"file", two, b"moved", RenameMode::Replace));
    exdev(v.rename(one, b"file", two, b"file", RenameMode::Exchange));
    exdev(v.rename(one, b"sub", two, b"sub", RenameMode::Replace));
    v.link(file, sub, b"link").unwrap();
    v.rename(one, b"file", ROOT, b"out", RenameMode::Replace).unwrap(); // the root accepts any project
    exdev(v.rename(ROOT, b"out", two, b"in", RenameMode::Replace));
    v.set_project(file, 2, &ME).unwrap();
    v.rename(ROOT, b"out", two, b"in", RenameMode::Replace).unwrap();
    assert_eq!(v.project(file).unwrap(), 2);
    v.close().unwrap();
    assert_clean_bytes(&held.device.to_vec());

    let plain = match crate::common::format_bytes(&["-t", "ext4"], "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("flags::projects", reason),
    };
    plain.volume.set_project(ROOT, 0, &ME).unwrap();
    assert_eq!(plain.volume.set_project(ROOT, 3, &ME).unwrap_err().errno(), 95);
}
