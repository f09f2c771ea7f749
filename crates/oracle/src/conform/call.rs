//! Random calls, and what they return as text that two file systems can be expected to share.

use crate::trees::random::Random;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Names that everything is about; few, so that calls meet.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "dir", "a name that is a little longer than the others"];
/// Files that are open at once.
const SLOTS: usize = 4;
/// Beyond this no byte is written, so that volumes of 64 MiB don't fill.
const FILE_MAX: u64 = 2 << 20;
const MODES: [FallocateFlags; 5] = [
    FallocateFlags::empty(),
    FallocateFlags::KEEP_SIZE,
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE),
    FallocateFlags::ZERO_RANGE,
    FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE),
];
/// Values are shorter: then all attributes of a file fit a block of 1 KiB. Where they fit no single way the
/// kernel refuses what the engine finds a place for.
const VALUE_MAX: usize = 180;
const ATTRIBUTES: [&str; 4] = ["user.a", "user.longer-name", "trusted.b", "security.c"];

/// A path of one to three names.
type Name = String;

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Call {
    MakeDirectory(Name, u16),
    MakeNode(Name, u8, u16),
    Symlink(Name, Name),
    Link(Name, Name),
    Rename(Name, Name, u8),
    Unlink(Name),
    RemoveDirectory(Name),
    Open(usize, Name, u8),
    OpenNameless(usize, Name),
    LinkOpen(usize, Name),
    Close(usize),
    Write(usize, u64, usize, u8),
    Append(usize, usize, u8),
    Read(usize, u64, usize),
    Truncate(usize, u64),
    TruncateName(Name, u64),
    Allocate(usize, usize, u64, u64),
    Copy(usize, usize, u64, u64, usize),
    Seek(usize, u64),
    Sync(usize, bool),
    Mode(Name, u16),
    Owner(Name, u32, u32),
    Times(Name, i64),
    SetAttribute(Name, usize, usize, u8),
    GetAttribute(Name, usize),
    RemoveAttribute(Name, usize),
    ListAttributes(Name),
    Stat(Name),
    List(Name),
    ReadLink(Name),
}

fn name(random: &mut Random) -> Name {
    // The first names are mostly directories, the others mostly not.
    let above = random.below(5) / 2;
    let mut path: Vec<&str> = (0..above).map(|_| NAMES[index(random, 2)]).collect();
    path.push(NAMES[index(random, NAMES.len())]);
    path.join("/")
}

fn index(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}

/// An offset; half of them at borders of blocks.
fn offset(random: &mut Random) -> u64 {
    let at = random.below(FILE_MAX);
    if random.below(2) == 0 { at / 1024 * 1024 } else { at }
}

fn len(random: &mut Random) -> usize {
    let most = [16, 1000, 8192, 200_000][index(random, 4)];
    index(random, most)
}

fn mode(random: &mut Random) -> u16 {
    u16::try_from(random.below(0o1000)).unwrap_or(0) | 0o600
}

fn byte(random: &mut Random) -> u8 {
    u8::try_from(random.below(255)).unwrap_or(0) + 1
}

impl Call {
    /// What a sequence begins with, so that calls find something.
    pub(super) fn first() -> Vec<Self> {
        let directories = ["a", "b", "a/b", "b/a"].map(|name| Self::MakeDirectory(name.into(), 0o755));
        let files = ["c", "a/c", "b/d", "a/b/e"].into_iter().enumerate();
        directories.into_iter().chain(files.map(|(slot, name)| Self::Open(slot, name.into(), 0))).collect()
    }

    /// The next call.
    pub(super) fn random(r: &mut Random) -> Self {
        let slot = index(r, SLOTS);
        match r.below(44) {
            0 | 1 => Self::MakeDirectory(name(r), mode(r)),
            2 => Self::MakeNode(name(r), byte(r) % 4, mode(r)),
            3 => Self::Symlink(name(r), name(r)),
            4 => Self::Link(name(r), name(r)),
            5 | 6 => Self::Rename(name(r), name(r), byte(r) % 4),
            7 => Self::Unlink(name(r)),
            8 => Self::RemoveDirectory(name(r)),
            9..=13 => Self::Open(slot, name(r), byte(r) % 6),
            14 => Self::OpenNameless(slot, name(r)),
            15 => Self::LinkOpen(slot, name(r)),
            16 => Self::Close(slot),
            17..=21 => Self::Write(slot, offset(r), len(r), byte(r)),
            22 => Self::Append(slot, len(r), byte(r)),
            23..=26 => Self::Read(slot, offset(r), len(r)),
            27 => Self::Truncate(slot, offset(r)),
            28 => Self::TruncateName(name(r), offset(r)),
            29 | 30 => Self::Allocate(slot, index(r, MODES.len()), offset(r), 1 + offset(r) / 8),
            31 => Self::Copy(slot, index(r, SLOTS), offset(r), offset(r), len(r)),
            32 => Self::Seek(slot, offset(r)),
            33 => Self::Sync(slot, r.below(2) == 0),
            34 => Self::Mode(name(r), mode(r)),
            35 => Self::Owner(name(r), r.below32(3), r.below32(3)),
            36 => Self::Times(name(r), i64::from(r.below32(2_000_000_000))),
            37 => Self::SetAttribute(name(r), index(r, 4), len(r) % VALUE_MAX, byte(r) % 3),
            38 => Self::GetAttribute(name(r), index(r, 4)),
            39 => Self::RemoveAttribute(name(r), index(r, 4)),
            40 => Self::ListAttributes(name(r)),
            41 => Self::Stat(name(r)),
            42 => Self::List(name(r)),
            _ => Self::ReadLink(name(r)),
        }
    }
}

/// Makes calls below one directory.
pub(super) struct Caller {
    root: PathBuf,
    open: [Option<OwnedFd>; SLOTS],
}

type Said = Result<String, Errno>;

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn content(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).unwrap_or(0) ^ salt).collect()
}

fn io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Caller {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into(), open: [const { None }; SLOTS] }
    }

    /// Makes a call; what it returned.
    pub(super) fn make(&mut self, call: &Call) -> String {
        match self.answer(call) {
            Ok(said) => said,
            Err(errno) => format!("error {} ({errno})", errno.raw_os_error()),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.open[slot].as_ref().ok_or(Errno::BADF)
    }

    fn answer(&mut self, call: &Call) -> Said {
        match call {
            Call::MakeDirectory(..)
            | Call::MakeNode(..)
            | Call::Symlink(..)
            | Call::Link(..)
            | Call::Rename(..)
            | Call::Unlink(_)
            | Call::RemoveDirectory(_) => self.names(call),
            Call::Open(..) | Call::OpenNameless(..) | Call::LinkOpen(..) | Call::Close(_) => self.slots(call),
            Call::Mode(..)
            | Call::Owner(..)
            | Call::Times(..)
            | Call::Stat(_)
            | Call::List(_)
            | Call::ReadLink(_)
            | Call::TruncateName(..) => self.inodes(call),
            Call::SetAttribute(..)
            | Call::GetAttribute(..)
            | Call::RemoveAttribute(..)
            | Call::ListAttributes(_) => self.attributes(call),
            _ => self.bytes(call),
        }
    }

    fn names(&self, call: &Call) -> Said {
        match call {
            Call::MakeDirectory(name, mode) => {
                rustix::fs::mkdir(self.at(name), Mode::from_raw_mode((*mode).into()))?;
            }
            Call::MakeNode(name, kind, mode) => {
                let kinds =
                    [FileType::RegularFile, FileType::Fifo, FileType::CharacterDevice, FileType::Socket];
                let device = rustix::fs::makedev(1, 3);
                let mode = Mode::from_raw_mode((*mode).into());
                rustix::fs::mknodat(CWD, self.at(name), kinds[usize::from(*kind)], mode, device)?;
            }
            Call::Symlink(target, name) => rustix::fs::symlink(target, self.at(name))?,
            Call::Link(from, to) => rustix::fs::link(self.at(from), self.at(to))?,
            Call::Rename(from, to, how) => {
                let how = [
                    RenameFlags::empty(),
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                ][usize::from(*how)];
                rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), how)?;
            }
            Call::Unlink(name) => rustix::fs::unlink(self.at(name))?,
            Call::RemoveDirectory(name) => rustix::fs::rmdir(self.at(name))?,
            _ => {}
        }
        Ok("done".into())
    }

    fn slots(&mut self, call: &Call) -> Said {
        let mode = Mode::from_raw_mode(0o644);
        match call {
            Call::Open(slot, name, how) => {
                let how = [
                    OFlags::RDWR | OFlags::CREATE,
                    OFlags::RDWR,
                    OFlags::RDONLY,
                    OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
                    OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
                    OFlags::WRONLY | OFlags::NOFOLLOW,
                ][usize::from(*how)];
                // Not one that others are waited for at.
                let flags = how | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                self.open[*slot] = None;
                let opened = rustix::fs::open(self.at(name), flags, mode)?;
                let is_file =
                    FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode) == FileType::RegularFile;
                self.open[*slot] = is_file.then_some(opened);
            }
            Call::OpenNameless(slot, name) => {
                let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
                self.open[*slot] = Some(rustix::fs::open(self.at(name), flags, mode)?);
            }
            Call::LinkOpen(slot, name) => {
                use std::os::fd::AsRawFd;
                let from = format!("/proc/self/fd/{}", self.slot(*slot)?.as_raw_fd());
                rustix::fs::linkat(CWD, from, CWD, self.at(name), AtFlags::SYMLINK_FOLLOW)?;
            }
            Call::Close(slot) => self.open[*slot] = None,
            _ => {}
        }
        Ok("done".into())
    }

    fn bytes(&self, call: &Call) -> Said {
        Ok(match call {
            Call::Write(slot, at, len, salt) => {
                rustix::io::pwrite(self.slot(*slot)?, &content(*len, *salt), *at)?.to_string()
            }
            Call::Append(slot, len, salt) => {
                let file = self.slot(*slot)?;
                let end = rustix::fs::seek(file, SeekFrom::End(0))?;
                format!("{} at {end}", rustix::io::pwrite(file, &content(*len, *salt), end.min(FILE_MAX))?)
            }
            Call::Read(slot, at, len) => {
                let mut buffer = vec![0; *len];
                let read = rustix::io::pread(self.slot(*slot)?, &mut buffer, *at)?;
                format!("{read} bytes, {:x}", hash(&buffer[..read]))
            }
            Call::Truncate(slot, len) => {
                rustix::fs::ftruncate(self.slot(*slot)?, *len)?;
                "done".into()
            }
            Call::Allocate(slot, mode, at, len) => {
                rustix::fs::fallocate(self.slot(*slot)?, MODES[*mode], *at, *len)?;
                format!("{} bytes", rustix::fs::fstat(self.slot(*slot)?)?.st_size)
            }
            Call::Copy(from, to, from_at, to_at, len) => {
                let (mut from_at, mut to_at) = (*from_at, *to_at);
                let (from, to) = (self.slot(*from)?, self.slot(*to)?);
                rustix::fs::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), *len)?.to_string()
            }
            Call::Seek(slot, at) => {
                // Where holes begin is the file system's affair; that there is an end is not.
                let file = self.slot(*slot)?;
                match rustix::fs::seek(file, SeekFrom::Hole(*at)) {
                    Ok(hole) if hole <= u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0) => {
                        "inside".into()
                    }
                    Ok(hole) => format!("a hole at {hole}, beyond the end"),
                    Err(errno) => return Err(errno),
                }
            }
            Call::Sync(slot, data) => {
                let file = self.slot(*slot)?;
                if *data {
                    rustix::fs::fdatasync(file)?;
                } else {
                    rustix::fs::fsync(file)?;
                }
                "done".into()
            }
            _ => String::new(),
        })
    }

    fn inodes(&self, call: &Call) -> Said {
        Ok(match call {
            Call::Mode(name, mode) => {
                rustix::fs::chmod(self.at(name), Mode::from_raw_mode((*mode).into()))?;
                "done".into()
            }
            Call::Owner(name, uid, gid) => {
                let (uid, gid) = (rustix::fs::Uid::from_raw(*uid), rustix::fs::Gid::from_raw(*gid));
                rustix::fs::chownat(CWD, self.at(name), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                "done".into()
            }
            Call::Times(name, seconds) => {
                let time = Timespec { tv_sec: *seconds, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, self.at(name), &times, AtFlags::SYMLINK_NOFOLLOW)?;
                let stat = rustix::fs::lstat(self.at(name))?;
                format!("{} {}", stat.st_mtime, stat.st_mtime_nsec)
            }
            Call::TruncateName(name, len) => {
                let file = rustix::fs::open(self.at(name), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
                rustix::fs::ftruncate(&file, *len)?;
                "done".into()
            }
            Call::Stat(name) => {
                let stat = rustix::fs::lstat(self.at(name))?;
                let kind = FileType::from_raw_mode(stat.st_mode);
                let size = if kind == FileType::Directory { 0 } else { stat.st_size };
                let links = if kind == FileType::Directory { 0 } else { stat.st_nlink };
                format!(
                    "{:o} {links} {} {} {size} {:x}",
                    stat.st_mode, stat.st_uid, stat.st_gid, stat.st_rdev
                )
            }
            Call::List(name) => {
                let entries = fs::read_dir(self.at(name)).map_err(|error| io(&error))?;
                let names: Result<Vec<_>, _> =
                    entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
                let mut names = names.map_err(|error| io(&error))?;
                names.sort();
                format!("{names:?}")
            }
            Call::ReadLink(name) => format!("{:?}", rustix::fs::readlink(self.at(name), Vec::new())?),
            _ => String::new(),
        })
    }

    fn attributes(&self, call: &Call) -> Said {
        Ok(match call {
            Call::SetAttribute(name, attribute, len, how) => {
                let how = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][usize::from(*how)];
                let value = content(*len, 7);
                rustix::fs::lsetxattr(self.at(name), ATTRIBUTES[*attribute], &value, how)?;
                "done".into()
            }
            Call::GetAttribute(name, attribute) => {
                let mut value = vec![0; 4096];
                let len = rustix::fs::lgetxattr(self.at(name), ATTRIBUTES[*attribute], &mut value)?;
                format!("{len} bytes, {:x}", hash(&value[..len]))
            }
            Call::RemoveAttribute(name, attribute) => {
                rustix::fs::lremovexattr(self.at(name), ATTRIBUTES[*attribute])?;
                "done".into()
            }
            Call::ListAttributes(name) => {
                let mut list = vec![0; 4096];
                let len = rustix::fs::llistxattr(self.at(name), &mut list)?;
                let mut names: Vec<&[u8]> = list[..len].split(|byte| *byte == 0).collect();
                names.sort_unstable();
                format!("{:x} of {}", hash(&names), names.len())
            }
            _ => String::new(),
        })
    }
}
