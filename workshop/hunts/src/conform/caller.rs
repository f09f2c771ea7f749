//! Makes calls below a directory, and formats their results as text that two file systems can be expected to
//! share.

use super::call::{ATTRIBUTES, Call, FILE_MAX, MODES, SLOTS};
use super::choose::Ground;
use super::user::{User, acl};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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

    /// The files that calls can find.
    pub(super) fn ground(&self) -> Ground {
        Ground::look(&self.root, &self.open)
    }

    /// Makes a call as a user; returns its result.
    pub(super) fn make(&mut self, who: User, call: &Call) -> String {
        match who.call(|| self.answer(call)) {
            Ok(said) => said,
            Err(errno) => format!("error {} ({errno})", errno.raw_os_error()),
        }
    }

    /// Drops what the kernel has cached of the file that a call names, where it is one.
    pub(super) fn drop_cached(&self, call: &Call) {
        let drop = |file: &OwnedFd| rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        let _ = match call {
            Call::Truncate(slot, _) | Call::Allocate(slot, ..) => self.slot(*slot).and_then(drop),
            Call::TruncateName(name, _) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                rustix::fs::open(self.at(name), flags, Mode::empty()).and_then(|file| drop(&file))
            }
            _ => Ok(()),
        };
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
            | Call::Umask(_)
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
                // Not one that blocks until another process opens it.
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
                // The placement of holes is up to the file system; that there is an end is not.
                let file = self.slot(*slot)?;
                let mut found = rustix::fs::seek(file, SeekFrom::Hole(*at));
                if found == Err(Errno::NOENT) {
                    // The kernel (6.18) while a file grows out of its inode in the page cache; no program
                    // expects that error of lseek.
                    rustix::fs::fsync(file)?;
                    found = rustix::fs::seek(file, SeekFrom::Hole(*at));
                }
                match found {
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
            Call::Umask(mask) => {
                rustix::process::umask(Mode::from_raw_mode((*mask).into()));
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
                let attribute = ATTRIBUTES[*attribute];
                let value = if attribute.starts_with("system.") { acl(*len) } else { content(*len, 7) };
                rustix::fs::lsetxattr(self.at(name), attribute, &value, how)?;
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
