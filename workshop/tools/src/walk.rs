//! Walks a directory or a mounted volume and returns its entries.
//!
//! Hazards: paths may be longer than the kernel takes in one call, and names need not be UTF-8; so the walk
//! holds a descriptor per level and names are bytes. Reading a file may change its access time, so status is
//! read first and files are opened without access-time updates where that is allowed. Content is read in
//! parallel, and only where `SEEK_DATA` reports some.

use crate::entry::{Content, Entry, Kind, Time};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All files below and including a directory, sorted by path. Mounts below it are entered.
///
/// # Panics
/// If anything can't be read: a walk that leaves something out would prove nothing.
#[must_use]
#[track_caller]
pub fn walk(folder: &Path) -> Vec<Entry> {
    try_walk(folder).unwrap_or_else(|error| panic!("can't walk {}: {error}", folder.display()))
}

/// Like [`walk`], for directories that may not be readable as a whole.
///
/// # Errors
/// The first failure, with its path.
pub fn try_walk(folder: &Path) -> io::Result<Vec<Entry>> {
    let root = rustix::fs::openat(CWD, folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut entries = Vec::new();
    let stat = rustix::fs::fstat(&root)?;
    entries.push(entry_of(Vec::new(), &stat)?);
    collect(root.as_fd(), b"", &mut entries)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    fill_in(root.as_fd(), &mut entries)?;
    Ok(entries)
}

fn at(path: &[u8], error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.escape_ascii()))
}

fn collect(folder: BorrowedFd<'_>, prefix: &[u8], entries: &mut Vec<Entry>) -> io::Result<()> {
    for found in rustix::fs::Dir::read_from(folder).map_err(|e| at(prefix, e))? {
        let found = found.map_err(|e| at(prefix, e))?;
        let name = found.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let path = if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() };
        let stat = rustix::fs::statat(folder, found.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| at(&path, e))?;
        let entry = entry_of(path.clone(), &stat)?;
        let is_folder = entry.kind == Kind::Directory;
        entries.push(entry);
        if is_folder {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = rustix::fs::openat(folder, found.file_name(), flags, Mode::empty());
            collect(inner.map_err(|e| at(&path, e))?.as_fd(), &path, entries)?;
        }
    }
    Ok(())
}

fn entry_of(path: Vec<u8>, stat: &Stat) -> io::Result<Entry> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::Char,
        FileType::BlockDevice => Kind::Block,
        FileType::Unknown => return Err(at(&path, io::Error::other("an unknown file type"))),
    };
    let mut entry = Entry::new(path, kind);
    entry.mode = u16::try_from(stat.st_mode & 0o7777).unwrap_or(0);
    (entry.uid, entry.gid) = (stat.st_uid, stat.st_gid);
    entry.nlink = wide(stat.st_nlink);
    entry.size = u64::try_from(stat.st_size).unwrap_or(0);
    entry.inode = wide(stat.st_ino);
    if matches!(kind, Kind::Char | Kind::Block) {
        entry.device = (rustix::fs::major(wide(stat.st_rdev)), rustix::fs::minor(wide(stat.st_rdev)));
    }
    entry.mtime = time_of(wide_signed(stat.st_mtime), wide(stat.st_mtime_nsec));
    entry.atime = time_of(wide_signed(stat.st_atime), wide(stat.st_atime_nsec));
    Ok(entry)
}

/// The fields of `stat` differ in width from target to target.
fn wide<T: TryInto<u64>>(n: T) -> u64 {
    n.try_into().unwrap_or(u64::MAX)
}

fn wide_signed<T: TryInto<i64>>(n: T) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

fn time_of(secs: i64, nanos: u64) -> Time {
    Time { secs, nanos: u32::try_from(nanos).unwrap_or(u32::MAX) }
}

/// Fills in link targets, attributes and content, in parallel.
fn fill_in(root: BorrowedFd<'_>, entries: &mut [Entry]) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let slots: Vec<Mutex<&mut Entry>> = entries.iter_mut().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Poisoned only by a panic, which ends the walk.
            let Ok(mut entry) = slot.lock() else { continue };
            details(root, &mut entry, &mut buffer).map_err(|e| at(&entry.path, e))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles.into_iter().try_for_each(|handle| match handle.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn details(root: BorrowedFd<'_>, entry: &mut Entry, buffer: &mut [u8]) -> io::Result<()> {
    let parent = parent_of(root, &entry.path)?;
    let folder = parent.as_ref().map_or(root, OwnedFd::as_fd);
    let name = std::ffi::OsStr::from_bytes(entry.path.rsplit(|b| *b == b'/').next().unwrap_or_default());
    // A path through the descriptor stays short whatever the depth.
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    path.push(if name.is_empty() { ".".as_ref() } else { name });
    entry.xattrs = xattrs(&path)?;
    match entry.kind {
        Kind::Symlink => entry.target = std::fs::read_link(&path)?.as_os_str().as_bytes().to_vec(),
        Kind::File => {
            let file = File::from(open_unread(&path)?);
            entry.data = segments(&file, entry.size)?;
            entry.digest = digest(&file, entry.size, &entry.data, buffer)?;
        }
        _ => {}
    }
    Ok(())
}

/// The parent directory of a path that is too long for one call, reached step by step; `None` for one that
/// `root` reaches.
fn parent_of(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<Option<OwnedFd>> {
    let Some(end) = path.iter().rposition(|b| *b == b'/') else { return Ok(None) };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::PATH;
    let open = |from: BorrowedFd<'_>, name: &[u8]| rustix::fs::openat(from, name, flags, Mode::empty());
    let folder = &path[..end];
    if folder.len() < 4000 {
        return Ok(Some(open(root, folder)?));
    }
    let mut current = None;
    for name in folder.split(|b| *b == b'/') {
        let from = current.as_ref().map_or(root, OwnedFd::as_fd);
        current = Some(open(from, name)?);
    }
    Ok(current)
}

fn open_unread(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        result => result,
    }
}

fn segments(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    let mut from = 0;
    while from < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            // The kernel may return an offset beyond the end, where there is nothing of the file.
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        match data.last_mut() {
            Some((offset, length)) if *offset + *length == start => *length += end - start,
            _ => data.push((start, end - start)),
        }
        from = end;
    }
    Ok(data)
}

/// The digest of a file's content.
pub fn content(file: &Path) -> io::Result<[u8; 32]> {
    let file = File::open(file)?;
    let size = file.metadata()?.len();
    digest(&file, size, &segments(&file, size)?, &mut vec![0; 1 << 20])
}

fn digest(file: &File, size: u64, data: &[(u64, u64)], buffer: &mut [u8]) -> io::Result<[u8; 32]> {
    let mut content = Content::new();
    for (offset, length) in data {
        let (mut offset, end) = (*offset, offset + length);
        while offset < end {
            let want = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let n = file.read_at(&mut buffer[..want], offset)?;
            if n == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
            }
            content.add(offset, &buffer[..n]);
            offset += n as u64;
        }
    }
    Ok(content.finish(size))
}

/// The extended attributes of a path, links not followed. SELinux labels belong to the host and are left out.
fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let list = match whole(|buffer| rustix::fs::llistxattr(path, buffer)) {
        Err(Errno::NOTSUP) => return Ok(BTreeMap::new()),
        list => list?,
    };
    let names = list.split(|b| *b == 0).filter(|name| !name.is_empty() && *name != b"security.selinux");
    let value = |name: &[u8]| whole(|buffer| rustix::fs::lgetxattr(path, name, buffer));
    names.map(|name| Ok((name.to_vec(), value(name)?))).collect()
}

fn whole(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    loop {
        match get(&mut buffer) {
            Ok(n) => {
                buffer.truncate(n);
                return Ok(buffer);
            }
            // 64 KiB is the kernel's limit for lists and values.
            Err(Errno::RANGE) if buffer.len() < 65_536 => buffer.resize(65_536, 0),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn find<'a>(entries: &'a [Entry], path: &[u8]) -> &'a Entry {
        entries.iter().find(|entry| entry.path == path).unwrap()
    }

    #[test]
    fn a_walk_sees_types_links_sizes_holes_and_content() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/file"), "content").unwrap();
        fs::hard_link(root.join("d/file"), root.join("again")).unwrap();
        std::os::unix::fs::symlink("d/file", root.join("link")).unwrap();
        let sparse = File::create(root.join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        sparse.write_all_at(&[9; 65_536], 1 << 20).unwrap();

        let entries = walk(root);
        let paths: Vec<&[u8]> = entries.iter().map(|e| e.path.as_slice()).collect();
        assert_eq!(paths, [&b""[..], b"again", b"d", b"d/file", b"link", b"sparse"]);
        let file = find(&entries, b"d/file");
        assert_eq!((file.kind, file.size, file.nlink), (Kind::File, 7, 2));
        assert_eq!(file.digest, Content::of(b"content"));
        assert_eq!(file.inode, find(&entries, b"again").inode);
        assert_eq!(find(&entries, b"link").target, b"d/file");
        let sparse = find(&entries, b"sparse");
        assert_eq!((sparse.size, sparse.data.as_slice()), (1 << 30, &[(1 << 20, 65_536)][..]));
    }

    #[test]
    fn a_walk_goes_deeper_than_a_path_can() {
        let folder = tempfile::tempdir().unwrap();
        let mut dir = File::open(folder.path()).unwrap();
        let name = "n".repeat(250);
        for _ in 0..20 {
            rustix::fs::mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            dir = rustix::fs::openat(&dir, name.as_str(), flags, Mode::empty()).unwrap().into();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, "leaf", flags, Mode::RUSR | Mode::WUSR).unwrap();
        File::from(file).write_all_at(b"deep", 0).unwrap();
        let entries = walk(folder.path());
        let leaf = entries.last().unwrap();
        assert!(leaf.path.len() > 5000);
        assert_eq!(leaf.digest, Content::of(b"deep"));
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        assert!(try_walk(Path::new("/no/such/folder")).is_err());
    }
}
