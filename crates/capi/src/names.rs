//! Names: making, removing, renaming, linking; and what may be changed of an inode.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{EINVAL, Failure, guard, status};
use crate::memory::{self, buffer, read};
use crate::metadata::hectare_time;
use crate::volume::{hectare_volume, volume};
use hectare::fs::Permissions;
use hectare::inode::{Changes, Timestamp};
use std::ffi::{c_char, c_int};

/// Makes a directory with these permission bits.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkdir(volume: *mut hectare_volume, path: *const c_char, mode: u32) -> c_int {
    status(|| {
        let (volume, path) = (self::volume(volume)?, memory::path(path, "the path")?);
        volume.create_dir(path)?;
        Ok(volume.set_permissions(path, Permissions::from_mode(mode))?)
    })
}

/// Removes a name that is no directory's.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_unlink(volume: *mut hectare_volume, path: *const c_char) -> c_int {
    status(|| Ok(self::volume(volume)?.remove_file(memory::path(path, "the path")?)?))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_rmdir(volume: *mut hectare_volume, path: *const c_char) -> c_int {
    status(|| Ok(self::volume(volume)?.remove_dir(memory::path(path, "the path")?)?))
}

/// Renames in one step; what has the new name is removed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_rename(
    volume: *mut hectare_volume,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    status(|| {
        Ok(self::volume(volume)?
            .rename(memory::path(from, "the path")?, memory::path(to, "the new path")?)?)
    })
}

/// Gives a file a second name.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_link(volume: *mut hectare_volume, from: *const c_char, to: *const c_char) -> c_int {
    status(|| {
        Ok(self::volume(volume)?
            .hard_link(memory::path(from, "the path")?, memory::path(to, "the new path")?)?)
    })
}

/// Makes a symbolic link at `path` that leads to `target`.
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

/// Where a symbolic link leads, into `to`, cut to `len` bytes and without a NUL; returns the whole length.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_readlink(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut u8,
    len: usize,
) -> isize {
    guard(-1, || {
        let (volume, path) = (self::volume(volume)?, memory::path(path, "the path")?);
        let target = volume.engine().read_link(path);
        let target = target.map_err(|error| Failure::new(error.errno(), error.to_string()))?;
        let out = buffer(to, len)?;
        let fits = target.len().min(out.len());
        out[..fits].copy_from_slice(&target[..fits]);
        isize::try_from(target.len()).map_err(|_| Failure::new(EINVAL, "the target is too long"))
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

/// Changes owner and group of what is at a path itself; 4294967295 leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lchown(
    volume: *mut hectare_volume,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let given = |id| (id != u32::MAX).then_some(id);
    status(|| Ok(self::volume(volume)?.lchown(memory::path(path, "the path")?, given(uid), given(gid))?))
}

/// Changes the times of what is at a path itself; NULL leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lutimes(
    volume: *mut hectare_volume,
    path: *const c_char,
    atime: *const hectare_time,
    mtime: *const hectare_time,
) -> c_int {
    status(|| {
        let (volume, path) = (self::volume(volume)?, memory::path(path, "the path")?);
        let changes = Changes { atime: given_time(atime)?, mtime: given_time(mtime)?, ..Changes::default() };
        let engine = volume.engine();
        let done = engine.resolve(path, false).and_then(|nr| engine.change(nr, &changes));
        done.map_err(|error| Failure::new(error.errno(), error.to_string()))
    })
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
