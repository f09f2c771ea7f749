//! Names: making, removing, renaming, linking; and what may be changed of an inode.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{EINVAL, Failure, guard, status};
use crate::memory::{self, buffer, give, read};
use crate::metadata::hectare_time;
use crate::volume::{At, about, hectare_volume, volume};
use hectare::fs::Permissions;
use hectare::inode::{Changes, Creation, DeviceNumber, NewNode, RenameMode, Timestamp};
use std::ffi::{c_char, c_int};

/// For hectare_rename_with: the new name must not exist (EEXIST).
pub const HECTARE_RENAME_NOREPLACE: u32 = 1;
/// For hectare_rename_with: both names must exist, and change places.
pub const HECTARE_RENAME_EXCHANGE: u32 = 2;

/// Makes a directory with these permission bits. The one above it must exist (ENOENT).
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkdir(volume: *mut hectare_volume, path: *const c_char, mode: u32) -> c_int {
    status(|| {
        let (volume, path) = (self::volume(volume)?, memory::path(path, "the path")?);
        let made = volume.engine().create_dir(path, creation(mode));
        about(&volume, path, made).map(drop)
    })
}

/// What is made belongs to root, or to the group of a directory that passes that on.
fn creation(mode: u32) -> Creation {
    let permissions = u16::try_from(mode & 0o7777).unwrap_or_default();
    Creation { permissions, umask: 0, uid: 0, gid: 0 }
}

/// Makes a pipe, a socket, a device with these numbers, or an empty file: `mode` is that of mknod(2),
/// permission bits and S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK or S_IFREG. Majors are below 4096, minors below
/// 1048576; those of what is no device are left out.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mknod(
    volume: *mut hectare_volume,
    path: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
) -> c_int {
    status(|| {
        let (volume, path) = (self::volume(volume)?, memory::path(path, "the path")?);
        let made = volume.engine().make(path, node(mode, major, minor)?, creation(mode));
        about(&volume, path, made).map(drop)
    })
}

fn node(mode: u32, major: u32, minor: u32) -> Result<NewNode<'static>, Failure> {
    let device = DeviceNumber { major, minor };
    match mode >> 12 {
        0o1 => Ok(NewNode::Fifo),
        0o2 => Ok(NewNode::CharDevice(device)),
        0o6 => Ok(NewNode::BlockDevice(device)),
        // As specified by mknod(2).
        0 | 0o10 => Ok(NewNode::File),
        0o14 => Ok(NewNode::Socket),
        _ => Err(Failure::new(EINVAL, "mode has no file type that mknod makes")),
    }
}

/// Removes a name; a directory's is refused (EISDIR). A file that is open stays, without a name, until it is
/// closed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_unlink(volume: *mut hectare_volume, path: *const c_char) -> c_int {
    status(|| Ok(self::volume(volume)?.remove_file(memory::path(path, "the path")?)?))
}

/// Removes an empty directory (else ENOTEMPTY); other names are refused (ENOTDIR).
#[unsafe(no_mangle)]
pub extern "C" fn hectare_rmdir(volume: *mut hectare_volume, path: *const c_char) -> c_int {
    status(|| Ok(self::volume(volume)?.remove_dir(memory::path(path, "the path")?)?))
}

/// Renames in one step; what has the new name is removed: a directory replaces an empty directory only (else
/// ENOTDIR, ENOTEMPTY), anything else replaces no directory (EISDIR). A link at the end of either path is
/// renamed itself.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_rename(
    volume: *mut hectare_volume,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    hectare_rename_with(volume, from, to, 0)
}

/// hectare_rename() with a flag: 0, HECTARE_RENAME_NOREPLACE or HECTARE_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_rename_with(
    volume: *mut hectare_volume,
    from: *const c_char,
    to: *const c_char,
    flag: u32,
) -> c_int {
    status(|| {
        let volume = self::volume(volume)?;
        let (from, to) = (memory::path(from, "the path")?, memory::path(to, "the new path")?);
        let mode = match flag {
            0 => RenameMode::Replace,
            HECTARE_RENAME_NOREPLACE => RenameMode::NoReplace,
            HECTARE_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Failure::new(EINVAL, "the flag is 0 or one of HECTARE_RENAME_...")),
        };
        about(&volume, from, volume.engine().rename_path(from, to, mode))
    })
}

/// Copies the content and the permissions of a regular file to another, which is made or replaced; returns
/// the bytes. Links at the end of either path are followed, holes stay holes. A copy that failed leaves what
/// was written.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_copy(volume: *mut hectare_volume, from: *const c_char, to: *const c_char) -> i64 {
    guard(-1, || {
        let volume = self::volume(volume)?;
        let copied = volume.copy(memory::path(from, "the path")?, memory::path(to, "the new path")?)?;
        i64::try_from(copied).map_err(|_| Failure::new(EINVAL, "the file is too long"))
    })
}

/// Gives a file a second name, which must not exist (EEXIST). A link at the end of `from` is not followed: it
/// gets the second name itself. Directories are refused (EPERM).
#[unsafe(no_mangle)]
pub extern "C" fn hectare_link(volume: *mut hectare_volume, from: *const c_char, to: *const c_char) -> c_int {
    status(|| {
        Ok(self::volume(volume)?
            .hard_link(memory::path(from, "the path")?, memory::path(to, "the new path")?)?)
    })
}

/// Makes a symbolic link at `path` that leads to `target`, which need not exist.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_symlink(
    volume: *mut hectare_volume,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    status(|| {
        Ok(self::volume(volume)?
            .symlink(memory::path(target, "the target")?, memory::path(path, "the path")?)?)
    })
}

/// Where a symbolic link leads, into `to`, cut to `len` bytes and without a NUL; returns the whole length,
/// also if `len` is 0, when `to` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_readlink(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        let (volume, path) = (self::volume(volume)?, memory::path(path, "the path")?);
        let target = about(&volume, path, volume.engine().read_link(path))?;
        let out = buffer(to, len)?;
        let fits = target.len().min(out.len());
        out[..fits].copy_from_slice(&target[..fits]);
        isize::try_from(target.len()).map_err(|_| Failure::new(EINVAL, "the target is too long"))
    })
}

/// The path from the root without links, `.` and `..` of what is at a path, with a NUL behind it, into `to`;
/// returns its length with the NUL, also if `len` is 0, when `to` may be NULL. ERANGE if the buffer is too
/// small.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_realpath(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        let found = self::volume(volume)?.canonicalize(memory::path(path, "the path")?)?;
        give(&[found.as_os_str().as_encoded_bytes(), &[0]].concat(), to, len)
    })
}

/// Changes the permission bits; links are followed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_chmod(volume: *mut hectare_volume, path: *const c_char, mode: u32) -> c_int {
    status(|| {
        let permissions = Permissions::from_mode(mode);
        Ok(self::volume(volume)?.set_permissions(memory::path(path, "the path")?, permissions)?)
    })
}

/// Changes owner and group; a link at the end is followed. 4294967295 leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_chown(
    volume: *mut hectare_volume,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    status(|| At::of(volume, path, true)?.change(&owners(uid, gid)))
}

/// Changes owner and group of what is at a path itself; 4294967295 leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lchown(
    volume: *mut hectare_volume,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    status(|| At::of(volume, path, false)?.change(&owners(uid, gid)))
}

fn owners(uid: u32, gid: u32) -> Changes {
    let given = |id| (id != u32::MAX).then_some(id);
    Changes { uid: given(uid), gid: given(gid), ..Changes::default() }
}

/// Changes the times; a link at the end is followed. NULL leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_utimes(
    volume: *mut hectare_volume,
    path: *const c_char,
    atime: *const hectare_time,
    mtime: *const hectare_time,
) -> c_int {
    status(|| At::of(volume, path, true)?.change(&times(atime, mtime)?))
}

/// Changes the times of what is at a path itself; NULL leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lutimes(
    volume: *mut hectare_volume,
    path: *const c_char,
    atime: *const hectare_time,
    mtime: *const hectare_time,
) -> c_int {
    status(|| At::of(volume, path, false)?.change(&times(atime, mtime)?))
}

fn times(atime: *const hectare_time, mtime: *const hectare_time) -> Result<Changes, Failure> {
    Ok(Changes { atime: given_time(atime)?, mtime: given_time(mtime)?, ..Changes::default() })
}

fn given_time(at: *const hectare_time) -> Result<Option<Timestamp>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    let hectare_time { seconds, nanoseconds, .. } = read(at, "the time")?;
    if nanoseconds >= 1_000_000_000 {
        return Err(Failure::new(EINVAL, "a second has fewer nanoseconds"));
    }
    Ok(Some(Timestamp { seconds, nanoseconds }))
}
