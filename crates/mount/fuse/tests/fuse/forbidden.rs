//! What immutable and append-only files and directories refuse, and with which error: every call that changes
//! one, compared between the kernel's own ext4 and a mount.

use crate::support::{MIB, Mount, mounted, needed};
use hectare_oracle::{KernelMount, mke2fs, skip};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;
use std::fs;
use std::path::Path;

type Result = std::result::Result<(), Errno>;
type Attempt = (&'static str, fn(&Path) -> Result);

fn set_flags(path: &Path, flags: IFlags) {
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let kept = rustix::fs::ioctl_getflags(&file).unwrap() - IFlags::IMMUTABLE - IFlags::APPEND;
    rustix::fs::ioctl_setflags(&file, kept | flags).unwrap();
}

fn times(path: &Path, accessed: Timespec, modified: Timespec) -> Result {
    let times = Timestamps { last_access: accessed, last_modification: modified };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
}

const PAST: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
const OLD: Timespec = Timespec { tv_sec: 900_000_000, tv_nsec: 5 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };

fn open(path: &Path, flags: OFlags) -> std::result::Result<rustix::fd::OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

fn errno(result: std::io::Result<()>) -> Result {
    result.map_err(|error| Errno::from_io_error(&error).unwrap())
}

fn change_flag(path: &Path, change: fn(&mut IFlags)) -> Result {
    let file = open(path, OFlags::RDONLY)?;
    let mut flags = rustix::fs::ioctl_getflags(&file)?;
    change(&mut flags);
    rustix::fs::ioctl_setflags(&file, flags)
}

fn beside(path: &Path, name: &str) -> std::path::PathBuf {
    path.parent().unwrap().join(name)
}

/// Calls that change an inode of any kind.
const OF_ANY: [Attempt; 21] = [
    ("utimensat, the mtime that it has", |path| {
        let found = rustix::fs::lstat(path)?;
        times(path, OMIT, Timespec { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec })
    }),
    ("utimensat, both", |path| times(path, PAST, PAST)),
    ("utimensat, mtime alone", |path| times(path, OMIT, PAST)),
    ("utimensat, atime alone", |path| times(path, PAST, OMIT)),
    ("utimensat, both now", |path| times(path, NOW, NOW)),
    ("utimensat, mtime now alone", |path| times(path, OMIT, NOW)),
    ("utimensat, atime now alone", |path| times(path, NOW, OMIT)),
    ("utimensat, atime now, mtime past", |path| times(path, NOW, PAST)),
    ("utimensat, nothing", |path| times(path, OMIT, OMIT)),
    ("chmod", |path| rustix::fs::chmod(path, Mode::from_raw_mode(0o600))),
    ("chmod, the same", |path| rustix::fs::chmod(path, Mode::from_raw_mode(0o755))),
    ("chown", |path| errno(std::os::unix::fs::chown(path, Some(7), None))),
    ("chgrp", |path| errno(std::os::unix::fs::chown(path, None, Some(7)))),
    ("setxattr user", |path| rustix::fs::setxattr(path, "user.new", b"v", XattrFlags::empty())),
    ("setxattr trusted", |path| rustix::fs::setxattr(path, "trusted.new", b"v", XattrFlags::empty())),
    ("removexattr", |path| rustix::fs::removexattr(path, "user.k")),
    ("rename", |path| rustix::fs::rename(path, beside(path, "elsewhere"))),
    ("rename over", |path| rustix::fs::rename(beside(path, "other"), path)),
    ("exchange", |path| {
        rustix::fs::renameat_with(CWD, path, CWD, beside(path, "other"), RenameFlags::EXCHANGE)
    }),
    ("chattr +d", |path| change_flag(path, |flags| flags.insert(IFlags::NODUMP))),
    ("chattr -ia", |path| change_flag(path, |flags| flags.remove(IFlags::IMMUTABLE | IFlags::APPEND))),
];

/// Calls that change a file.
const OF_FILES: [Attempt; 14] = [
    ("O_WRONLY", |path| open(path, OFlags::WRONLY).map(drop)),
    ("O_RDWR", |path| open(path, OFlags::RDWR).map(drop)),
    ("O_APPEND", |path| open(path, OFlags::WRONLY | OFlags::APPEND).map(drop)),
    ("O_TRUNC", |path| open(path, OFlags::WRONLY | OFlags::TRUNC).map(drop)),
    ("O_TRUNC | O_APPEND", |path| open(path, OFlags::WRONLY | OFlags::TRUNC | OFlags::APPEND).map(drop)),
    ("O_CREAT", |path| open(path, OFlags::WRONLY | OFlags::CREATE).map(drop)),
    ("append", |path| {
        let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
        rustix::io::write(&file, b"more").map(drop)?;
        rustix::fs::fsync(&file)
    }),
    ("ftruncate", |path| rustix::fs::ftruncate(open(path, OFlags::WRONLY | OFlags::APPEND)?, 2)),
    ("ftruncate, larger", |path| {
        rustix::fs::ftruncate(open(path, OFlags::WRONLY | OFlags::APPEND)?, 100_000)
    }),
    ("fallocate", |path| {
        let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 50_000)
    }),
    ("punch", |path| {
        let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
        rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
    }),
    ("link", |path| rustix::fs::link(path, beside(path, "second"))),
    ("unlink", |path| rustix::fs::unlink(path)),
    ("futimens on a descriptor open to append", |path| {
        let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
        rustix::fs::futimens(&file, &Timestamps { last_access: OMIT, last_modification: PAST })
    }),
];

/// Calls that change a directory.
const OF_DIRECTORIES: [Attempt; 9] = [
    ("create in", |path| open(&path.join("new"), OFlags::WRONLY | OFlags::CREATE).map(drop)),
    ("mkdir in", |path| rustix::fs::mkdir(path.join("new"), Mode::from_raw_mode(0o755))),
    ("symlink in", |path| rustix::fs::symlink("x", path.join("new"))),
    ("link into", |path| rustix::fs::link(beside(path, "file"), path.join("new"))),
    ("rename into", |path| rustix::fs::rename(beside(path, "file"), path.join("new"))),
    ("rename within", |path| rustix::fs::rename(path.join("in"), path.join("new"))),
    ("unlink in", |path| rustix::fs::unlink(path.join("in"))),
    ("rmdir in", |path| rustix::fs::rmdir(path.join("sub"))),
    ("rmdir", |path| {
        fs::remove_file(path.join("in")).map_err(|error| Errno::from_io_error(&error).unwrap())?;
        rustix::fs::rmdir(path)
    }),
];

/// The result of an attempt on a fresh inode with these flags, and the state of its times.
fn outcome(dir: &Path, is_file: bool, flags: IFlags, attempt: fn(&Path) -> Result) -> (Result, bool) {
    let work = dir.join("work");
    fs::create_dir(&work).unwrap();
    let path = work.join("it");
    let make = |path: &Path| if is_file { fs::write(path, vec![b'x'; 9000]) } else { fs::create_dir(path) };
    make(&path).unwrap();
    make(&work.join("other")).unwrap();
    fs::write(work.join("file"), "text").unwrap();
    if !is_file {
        fs::write(path.join("in"), "text").unwrap();
        fs::create_dir(path.join("sub")).unwrap();
    }
    rustix::fs::chmod(&path, Mode::from_raw_mode(0o755)).unwrap();
    rustix::fs::setxattr(&path, "user.k", b"v", XattrFlags::empty()).unwrap();
    times(&path, OLD, OLD).unwrap();
    set_flags(&path, flags);
    let found = attempt(&path);
    let is_past =
        fs::metadata(&path).is_ok_and(|found| std::os::unix::fs::MetadataExt::mtime(&found) == PAST.tv_sec);
    for entry in fs::read_dir(&work).unwrap() {
        let path = entry.unwrap().path();
        set_flags(&path, IFlags::empty());
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap();
    }
    fs::remove_dir(&work).unwrap();
    (found, is_past)
}

fn table(dir: &Path) -> Vec<(String, (Result, bool))> {
    let mut table = Vec::new();
    for (flag, flags) in [("none", IFlags::empty()), ("i", IFlags::IMMUTABLE), ("a", IFlags::APPEND)] {
        for (is_file, own) in [(true, &OF_FILES[..]), (false, &OF_DIRECTORIES[..])] {
            for (what, attempt) in OF_ANY.iter().chain(own) {
                let name = format!("+{flag}, {}: {what}", if is_file { "file" } else { "directory" });
                table.push((name, outcome(dir, is_file, flags, *attempt)));
            }
        }
    }
    table
}

/// Times of files that forbid it were set, and were back after unmounting.
#[test]
fn regression_every_call_is_refused_as_the_kernel_refuses_it() {
    const NAME: &str = "forbidden::regression_every_call_is_refused_as_the_kernel_refuses_it";
    let image = hectare_oracle::scratch::fresh("forbidden");
    let kernel = match mke2fs(&["-t", "ext4"], &image, "64M").and_then(|()| KernelMount::new(&image, "")) {
        Ok(kernel) => kernel,
        Err(reason) => skip!(NAME, reason),
    };
    let expected = table(kernel.path());
    kernel.unmount();
    for options in ["", "nowriteback"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        let mut differences = Vec::new();
        for ((what, found), (_, theirs)) in table(&mount.dir).into_iter().zip(&expected) {
            if found != *theirs {
                differences.push(format!("{what}: {found:?}, the kernel {theirs:?}"));
            }
        }
        assert!(differences.is_empty(), "{options}:\n{}", differences.join("\n"));
        mount.judge(NAME);
    }
}

/// The kernel flushes the times with which it has stamped an open file, whatever has become of it.
#[test]
fn times_of_a_writer_arrive_although_the_file_has_become_immutable() {
    const NAME: &str = "forbidden::times_of_a_writer_arrive_although_the_file_has_become_immutable";
    drop(needed!(NAME, "chattr"));
    for flags in [IFlags::IMMUTABLE, IFlags::APPEND] {
        let mut mount: Mount = mounted!(NAME, 64 * MIB, "");
        let path = mount.path("f");
        let writer = open(&path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND).unwrap();
        times(&path, PAST, PAST).unwrap();
        rustix::io::write(&writer, b"text").map(drop).unwrap();
        set_flags(&path, flags);
        rustix::fs::fsync(&writer).unwrap();
        drop(writer);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        mount.detach();
        mount.attach("");
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        set_flags(&path, IFlags::empty());
        mount.judge(NAME);
    }
}
