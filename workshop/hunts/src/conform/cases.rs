//! The table of cases: calls that must fail, or barely succeed, on grounds that are prepared for them.

use super::case::{Case, PREPARED, make, mkdir, open, said};
use super::scenes::SCENES;
use super::user::User;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, SeekFrom, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::Path;

/// A volume in a state, and the cases for it.
pub(super) struct Ground {
    pub(super) name: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) size: &'static str,
    pub(super) read_only: bool,
    pub(super) prepare: fn(&Path),
    pub(super) cases: &'static [Case],
    /// Undoes what would keep a walk from comparing.
    pub(super) clear: fn(&Path),
}

/// All grounds.
pub(super) static GROUNDS: [Ground; 9] = [
    Ground {
        name: "names",
        args: &["-t", "ext4"],
        size: "32M",
        read_only: false,
        prepare: tree,
        cases: &NAMES,
        clear: nothing,
    },
    Ground {
        name: "sizes",
        args: &["-t", "ext4", "-b", "4096"],
        size: "32M",
        read_only: false,
        prepare: tree,
        cases: &SIZES,
        clear: nothing,
    },
    Ground {
        name: "full",
        args: &["-t", "ext4", "-b", "4096", "-m", "0"],
        size: "32M",
        read_only: false,
        prepare: fill,
        cases: &FULL,
        clear: drain,
    },
    Ground {
        name: "read-only",
        args: &["-t", "ext4"],
        size: "32M",
        read_only: true,
        prepare: tree,
        cases: &CHANGES,
        clear: nothing,
    },
    Ground {
        name: "immutable",
        args: &["-t", "ext4"],
        size: "32M",
        read_only: false,
        prepare: immutable,
        cases: &CHANGES,
        clear: mutable,
    },
    Ground {
        name: "append-only",
        args: &["-t", "ext4"],
        size: "32M",
        read_only: false,
        prepare: append_only,
        cases: &CHANGES,
        clear: mutable,
    },
    Ground {
        name: "others",
        args: &["-t", "ext4"],
        size: "32M",
        read_only: false,
        prepare: shared,
        cases: &OTHERS,
        clear: nothing,
    },
    Ground {
        name: "scenes",
        args: &["-t", "ext4", "-b", "4096"],
        size: "48M",
        read_only: false,
        prepare: nothing,
        cases: &SCENES,
        clear: nothing,
    },
    Ground {
        name: "scenes, 1 KiB",
        args: &["-t", "ext4", "-b", "1024"],
        size: "48M",
        read_only: false,
        prepare: nothing,
        cases: &SCENES,
        clear: nothing,
    },
];

macro_rules! cases {
    ($($name:literal => $run:expr),* $(,)?) => { [$(Case { name: $name, run: |dir| said($run(dir)) }),*] };
}

fn nothing(_: &Path) {}

/// `f` with two blocks and an attribute, `d` with `d/x`, the link `l` to `f`, and the loop `loop`.
fn tree(dir: &Path) {
    fs::write(dir.join("f"), vec![7; 8192]).expect(PREPARED);
    rustix::fs::setxattr(dir.join("f"), "user.a", b"1", XattrFlags::empty()).expect(PREPARED);
    fs::create_dir(dir.join("d")).expect(PREPARED);
    fs::write(dir.join("d/x"), b"x").expect(PREPARED);
    std::os::unix::fs::symlink("f", dir.join("l")).expect(PREPARED);
    std::os::unix::fs::symlink("loop", dir.join("loop")).expect(PREPARED);
}

/// The tree, and a file that takes all remaining space.
fn fill(dir: &Path) {
    tree(dir);
    let file = File::create(dir.join("fill")).expect(PREPARED);
    let mut at = 0;
    for step in [1 << 20, 64 << 10, 4096] {
        while rustix::fs::fallocate(&file, FallocateFlags::empty(), at, step).is_ok() {
            at += step;
        }
    }
    file.sync_all().expect(PREPARED);
}

fn drain(dir: &Path) {
    fs::remove_file(dir.join("fill")).expect(PREPARED);
}

fn flag(dir: &Path, flag: IFlags) {
    for name in ["f", "d"] {
        let file = File::open(dir.join(name)).expect(PREPARED);
        let flags = (rustix::fs::ioctl_getflags(&file).expect(PREPARED)
            - (IFlags::IMMUTABLE | IFlags::APPEND))
            | flag;
        rustix::fs::ioctl_setflags(&file, flags).expect(PREPARED);
    }
}

/// The tree with a sticky directory and one of a group, and a file of user 1000 in either.
fn shared(dir: &Path) {
    tree(dir);
    for (name, mode) in [("sticky", 0o1777), ("group", 0o2775)] {
        mkdir(dir, name).expect(PREPARED);
        give(dir, name, 0, 2000).expect(PREPARED);
        chmod(dir, name, mode).expect(PREPARED);
        for (file, owner) in [("roots", 0), ("ones", 1000)] {
            let name = format!("{name}/{file}");
            make(dir, &name).expect(PREPARED);
            give(dir, &name, owner, 2000).expect(PREPARED);
        }
    }
}

fn give(dir: &Path, name: &str, uid: u32, gid: u32) -> Result<(), Errno> {
    rustix::fs::chown(dir.join(name), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

fn chmod(dir: &Path, name: &str, mode: u16) -> Result<(), Errno> {
    rustix::fs::chmod(dir.join(name), Mode::from_raw_mode(mode.into()))
}

/// The mode of a file after a call.
fn mode_after(dir: &Path, name: &str, done: Result<(), Errno>) -> Result<u64, Errno> {
    done?;
    Ok(u64::from(rustix::fs::stat(dir.join(name))?.st_mode))
}

fn immutable(dir: &Path) {
    tree(dir);
    flag(dir, IFlags::IMMUTABLE);
}

fn append_only(dir: &Path) {
    tree(dir);
    flag(dir, IFlags::APPEND);
}

fn mutable(dir: &Path) {
    flag(dir, IFlags::empty());
}

fn rename(dir: &Path, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags)
}

fn fallocate(dir: &Path, mode: FallocateFlags, at: u64, len: u64) -> Result<(), Errno> {
    rustix::fs::fallocate(open(dir, "f", OFlags::RDWR)?, mode, at, len)
}

fn write_at(dir: &Path, at: u64) -> Result<usize, Errno> {
    rustix::io::pwrite(open(dir, "f", OFlags::WRONLY)?, b"four", at)
}

fn touch(dir: &Path, name: &str, seconds: i64) -> Result<(), Errno> {
    let time = rustix::fs::Timespec {
        tv_sec: seconds,
        tv_nsec: if seconds == 0 { rustix::fs::UTIME_NOW } else { 0 },
    };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, dir.join(name), &times, AtFlags::empty())
}

fn set(dir: &Path, name: &str, len: usize, flags: XattrFlags) -> Result<(), Errno> {
    rustix::fs::setxattr(dir.join("f"), name, &vec![b'v'; len], flags)
}

const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

static NAMES: [Case; 38] = cases! {
    "a name of 255 bytes" => |d: &Path| make(d, &"n".repeat(255)),
    "a name of 256 bytes" => |d: &Path| make(d, &"n".repeat(256)),
    "a long path" => |d: &Path| make(d, &format!("{}x", "d/../".repeat(780))),
    "a path too long" => |d: &Path| make(d, &"d/../".repeat(900)),
    "a directory of 256 bytes" => |d: &Path| mkdir(d, &"n".repeat(256)),
    "a loop of links" => |d: &Path| open(d, "loop", OFlags::RDONLY).map(drop),
    "through a loop" => |d: &Path| make(d, "loop/x"),
    "below a file" => |d: &Path| make(d, "f/x"),
    "below nothing" => |d: &Path| make(d, "none/x"),
    "make what is there" => |d: &Path| make(d, "f"),
    "make a directory that is there" => |d: &Path| mkdir(d, "d"),
    "make a directory over a file" => |d: &Path| mkdir(d, "f"),
    "open nothing" => |d: &Path| open(d, "none", OFlags::RDONLY).map(drop),
    "open a directory for writing" => |d: &Path| open(d, "d", OFlags::WRONLY).map(drop),
    "open a file as a directory" => |d: &Path| open(d, "f", OFlags::DIRECTORY).map(drop),
    "open a link itself" => |d: &Path| open(d, "l", OFlags::NOFOLLOW).map(drop),
    "read a directory" => |d: &Path| rustix::io::pread(open(d, "d", OFlags::RDONLY)?, &mut [0; 8], 0),
    "unlink a directory" => |d: &Path| rustix::fs::unlink(d.join("d")),
    "rmdir a file" => |d: &Path| rustix::fs::rmdir(d.join("f")),
    "rmdir of a full directory" => |d: &Path| rustix::fs::rmdir(d.join("d")),
    "rmdir of ." => |d: &Path| rustix::fs::rmdir(d.join("d/.")),
    "rmdir of .." => |d: &Path| rustix::fs::rmdir(d.join("d/..")),
    "rename a file over a directory" => |d: &Path| rename(d, "f", "d", RenameFlags::empty()),
    "rename a directory over a file" => |d: &Path| rename(d, "d", "f", RenameFlags::empty()),
    "rename into itself" => |d: &Path| rename(d, "d", "d/e", RenameFlags::empty()),
    "rename not over" => |d: &Path| rename(d, "f", "d/x", RenameFlags::NOREPLACE),
    "exchange with nothing" => |d: &Path| rename(d, "f", "none", RenameFlags::EXCHANGE),
    "rename to 256 bytes" => |d: &Path| rename(d, "f", &"n".repeat(256), RenameFlags::empty()),
    "link a directory" => |d: &Path| rustix::fs::link(d.join("d"), d.join("e")),
    "link over a file" => |d: &Path| rustix::fs::link(d.join("f"), d.join("d/x")),
    "an empty link" => |d: &Path| rustix::fs::symlink("", d.join("e")),
    "a link of 4095 bytes" => |d: &Path| rustix::fs::symlink("t".repeat(4095), d.join("long")),
    "read a link that is none" => |d: &Path| rustix::fs::readlink(d.join("f"), Vec::new()).map(drop),
    "an attribute that is there" => |d: &Path| set(d, "user.a", 1, XattrFlags::CREATE),
    "an attribute that is not" => |d: &Path| set(d, "user.b", 1, XattrFlags::REPLACE),
    "an attribute of no kind" => |d: &Path| set(d, "strange.a", 1, XattrFlags::empty()),
    "get no attribute" => |d: &Path| rustix::fs::getxattr(d.join("f"), "user.none", &mut [0; 8]),
    "remove no attribute" => |d: &Path| rustix::fs::removexattr(d.join("f"), "user.none"),
};

static SIZES: [Case; 17] = cases! {
    "write to the last byte" => |d: &Path| write_at(d, (1 << 44) - 4096 - 4),
    "the size then" => |d: &Path| Ok::<_, Errno>(fs::metadata(d.join("f")).expect(PREPARED).len()),
    "truncate back" => |d: &Path| rustix::fs::ftruncate(open(d, "f", OFlags::WRONLY)?, 8192),
    "truncate to the largest" => |d: &Path|
        rustix::fs::ftruncate(open(d, "f", OFlags::WRONLY)?, (1 << 44) - 4096),
    "truncate beyond the largest" => |d: &Path| rustix::fs::ftruncate(open(d, "f", OFlags::WRONLY)?, 1 << 44),
    "truncate back again" => |d: &Path| rustix::fs::ftruncate(open(d, "f", OFlags::WRONLY)?, 8192),
    "write beyond the largest" => |d: &Path| write_at(d, 1 << 45),
    "the size stays" => |d: &Path| Ok::<_, Errno>(fs::metadata(d.join("f")).expect(PREPARED).len()),
    "fallocate nothing" => |d: &Path| fallocate(d, FallocateFlags::empty(), 0, 0),
    "fallocate beyond the largest" => |d: &Path| fallocate(d, FallocateFlags::empty(), 1 << 44, 4096),
    "punch without keeping the size" => |d: &Path| fallocate(d, FallocateFlags::PUNCH_HOLE, 0, 4096),
    "fallocate a file opened to read" => |d: &Path|
        rustix::fs::fallocate(open(d, "f", OFlags::RDONLY)?, FallocateFlags::empty(), 0, 1),
    "seek for data beyond the end" => |d: &Path|
        rustix::fs::seek(open(d, "f", OFlags::RDONLY)?, SeekFrom::Data(1 << 30)),
    "seek for a hole at the end" => |d: &Path|
        rustix::fs::seek(open(d, "f", OFlags::RDONLY)?, SeekFrom::Hole(8191)),
    "an attribute too large" => |d: &Path| set(d, "user.large", 65_537, XattrFlags::empty()),
    "an attribute of 5000 bytes" => |d: &Path| set(d, "user.large", 5000, XattrFlags::empty()),
    "get with too little room" => |d: &Path| rustix::fs::getxattr(d.join("f"), "user.a", &mut [0; 0])
        .and(Ok(())),
};

static FULL: [Case; 10] = cases! {
    "write over" => |d: &Path| write_at(d, 0),
    "write and sync" => |d: &Path| {
        let file = open(d, "new", OFlags::WRONLY | OFlags::CREATE)?;
        rustix::io::write(&file, &[1; 65_536])?;
        rustix::fs::fsync(&file)
    },
    "write directly" => |d: &Path| fallocate(d, FallocateFlags::empty(), 8192, 65_536),
    "zero in place" => |d: &Path| fallocate(d, FallocateFlags::ZERO_RANGE, 0, 4096),
    "punch" => |d: &Path| fallocate(d, HOLE, 0, 4096),
    "write where it was punched" => |d: &Path| {
        let file = open(d, "f", OFlags::WRONLY)?;
        rustix::io::pwrite(&file, &[2; 4096], 0)?;
        rustix::fs::fsync(&file)
    },
    "a large attribute" => |d: &Path| set(d, "user.large", 3000, XattrFlags::empty()),
    "truncate" => |d: &Path| rustix::fs::ftruncate(open(d, "f", OFlags::WRONLY)?, 10),
    "chmod" => |d: &Path| rustix::fs::chmod(d.join("f"), Mode::from_raw_mode(0o600)),
    "unlink" => |d: &Path| rustix::fs::unlink(d.join("new")).or(Ok(())),
};

/// For volumes and files that allow few changes, or none.
static CHANGES: [Case; 27] = cases! {
    "open to write" => |d: &Path| open(d, "f", OFlags::WRONLY).map(drop),
    "open to append" => |d: &Path| open(d, "f", OFlags::WRONLY | OFlags::APPEND).map(drop),
    "open and truncate" => |d: &Path| open(d, "f", OFlags::RDONLY | OFlags::TRUNC).map(drop),
    "open to read" => |d: &Path| open(d, "f", OFlags::RDONLY).map(drop),
    "create" => |d: &Path| make(d, "new"),
    "create below" => |d: &Path| make(d, "d/new"),
    "create nameless" => |d: &Path| open(d, "d", OFlags::WRONLY | OFlags::TMPFILE).map(drop),
    "mkdir below" => |d: &Path| mkdir(d, "d/e"),
    "mknod below" => |d: &Path|
        rustix::fs::mknodat(CWD, d.join("d/p"), FileType::Fifo, Mode::from_raw_mode(0o644), 0),
    "symlink below" => |d: &Path| rustix::fs::symlink("x", d.join("d/s")),
    "link" => |d: &Path| rustix::fs::link(d.join("f"), d.join("h")),
    "link into" => |d: &Path| rustix::fs::link(d.join("l"), d.join("d/h")),
    "unlink" => |d: &Path| rustix::fs::unlink(d.join("f")),
    "unlink below" => |d: &Path| rustix::fs::unlink(d.join("d/x")),
    "rename" => |d: &Path| rename(d, "f", "g", RenameFlags::empty()),
    "rename over" => |d: &Path| rename(d, "l", "f", RenameFlags::empty()),
    "rename out" => |d: &Path| rename(d, "d/x", "x", RenameFlags::empty()),
    "rename the directory" => |d: &Path| rename(d, "d", "e", RenameFlags::empty()),
    "chmod" => |d: &Path| rustix::fs::chmod(d.join("f"), Mode::from_raw_mode(0o600)),
    "chown" => |d: &Path| rustix::fs::chown(d.join("f"), Some(Uid::from_raw(5)), None),
    "set times" => |d: &Path| touch(d, "f", 12_345),
    "touch" => |d: &Path| touch(d, "f", 0),
    "set times of the directory" => |d: &Path| touch(d, "d", 12_345),
    "set an attribute" => |d: &Path| set(d, "user.b", 5, XattrFlags::empty()),
    "remove an attribute" => |d: &Path| rustix::fs::removexattr(d.join("f"), "user.a"),
    "truncate by name" => |d: &Path| open(d, "f", OFlags::WRONLY).and_then(|f| rustix::fs::ftruncate(f, 1)),
    "rmdir" => |d: &Path| rustix::fs::rmdir(d.join("d")),
};

/// Calls by user 1000, a member of groups 2000 and 1000, and by user 1001.
static OTHERS: [Case; 22] = cases! {
    "create where only root may" => |d: &Path| User::One.call(|| make(d, "new")),
    "chmod of root's" => |d: &Path| User::One.call(|| chmod(d, "f", 0o666)),
    "chown of root's" => |d: &Path| User::One.call(|| give(d, "f", 1000, 1000)),
    "write root's" => |d: &Path| User::One.call(|| write_at(d, 0)),
    "set times of root's" => |d: &Path| User::One.call(|| touch(d, "f", 12_345)),
    "touch root's" => |d: &Path| User::One.call(|| touch(d, "f", 0)),
    "attribute of root's" => |d: &Path| User::One.call(|| set(d, "user.b", 5, XattrFlags::empty())),
    "trusted attribute" => |d: &Path| User::One.call(|| set(d, "trusted.b", 5, XattrFlags::empty())),
    "unlink root's in sticky" => |d: &Path| User::One.call(|| rustix::fs::unlink(d.join("sticky/roots"))),
    "rename root's in sticky" => |d: &Path|
        User::One.call(|| rename(d, "sticky/roots", "sticky/mine", RenameFlags::empty())),
    "rename over root's in sticky" => |d: &Path|
        User::One.call(|| rename(d, "sticky/ones", "sticky/roots", RenameFlags::empty())),
    "exchange with root's in sticky" => |d: &Path|
        User::One.call(|| rename(d, "sticky/ones", "sticky/roots", RenameFlags::EXCHANGE)),
    "unlink another's in sticky" => |d: &Path| User::Other.call(|| rustix::fs::unlink(d.join("sticky/ones"))),
    "give away" => |d: &Path| User::One.call(|| give(d, "sticky/ones", 1001, 2000)),
    "pass to a group of his" => |d: &Path| User::One.call(|| give(d, "sticky/ones", 1000, 1000)),
    "pass to a group of others" => |d: &Path| User::One.call(|| give(d, "sticky/ones", 1000, 1001)),
    "set-group-ID of his group" => |d: &Path|
        mode_after(d, "group/ones", User::One.call(|| chmod(d, "group/ones", 0o2755))),
    "set-group-ID of a group of others" => |d: &Path| {
        give(d, "sticky/ones", 1000, 1001)?;
        mode_after(d, "sticky/ones", User::One.call(|| chmod(d, "sticky/ones", 0o2755)))
    },
    "a directory of the group's" => |d: &Path|
        mode_after(d, "group/below", User::One.call(|| mkdir(d, "group/below"))),
    "by whom is not of the group" => |d: &Path| User::Other.call(|| make(d, "group/new")),
    "unlink in the group's" => |d: &Path| User::One.call(|| rustix::fs::unlink(d.join("group/roots"))),
    "a device" => |d: &Path| User::One.call(|| rustix::fs::mknodat(
        CWD, d.join("sticky/null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3))),
};
