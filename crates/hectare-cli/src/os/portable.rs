//! Any host: the standard library alone.
//!
//! The umask and the user, which the standard library does not return, are taken from a directory that is made
//! in the temporary directory, once, by the first command that needs it; on hosts without owners everything
//! is root's. If none can be made, new files are root's, and the umask is 022.

use hectare_engine::{Explanation, Timestamp};
use hectare_host::{Identity, stat_of};
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The version of FUSE that is spoken: there are no mounts.
pub(crate) const FUSE_PROTOCOL: Option<(u32, u32)> = None;
/// Where random bytes come from.
pub(crate) const RANDOM: &str = "random bytes";

/// What the host gives a new directory.
struct New {
    owner: (u32, u32),
    umask: u16,
}

/// `None` if that can't be found out.
static NEW: LazyLock<Option<New>> = LazyLock::new(|| made().ok());

fn made() -> io::Result<New> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("new");
    fs::create_dir(&path)?;
    let stat = stat_of(&fs::metadata(&path)?);
    Ok(New { owner: (stat.uid, stat.gid), umask: !stat.mode & 0o777 })
}

/// There is nothing to do before threads are started.
pub(crate) const fn note_umask() {}

/// The process's umask.
pub(crate) fn umask() -> u16 {
    NEW.as_ref().map_or(0o022, |new| new.umask)
}

/// The owner and group of what this process makes.
pub(crate) fn owner() -> (u32, u32) {
    NEW.as_ref().map_or((0, 0), |new| new.owner)
}

/// The user and group who called it.
pub(crate) fn caller() -> (u32, u32) {
    owner()
}

/// The signals that end a server.
#[cfg(unix)]
pub(crate) const fn ending_signals() -> [i32; 3] {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    [SIGTERM, SIGINT, SIGHUP]
}

/// Whether it may do anything on the host, as far as that has owners. Where the user can't be found out it may
/// not: an image's files would keep set-ID bits.
pub(crate) fn is_root() -> bool {
    cfg!(unix) && NEW.as_ref().is_some_and(|new| new.owner.0 == 0)
}

/// There is none.
pub(crate) const fn memory_limit() -> Option<u64> {
    None
}

/// Refused.
pub(crate) fn limit_memory(_: u64) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "memory limits are not supported on this host"))
}

/// Whether it is a block device, which is then refused by name.
#[cfg(unix)]
pub(crate) fn is_block_device(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
}

/// There are none among files.
#[cfg(not(unix))]
pub(crate) fn is_block_device(_: &Metadata) -> bool {
    false
}

/// Major and minor number of a device.
pub(crate) fn device_number(metadata: &Metadata) -> (u32, u32) {
    stat_of(metadata).device
}

/// Whether two paths lead to one file. Where files have no numbers, two names of one (hard links) are not
/// recognised; the lock on the image is then what refuses the second use.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    if cfg!(unix)
        && let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b))
    {
        return stat_of(&a).identity == stat_of(&b).identity;
    }
    super::resolved(a) == super::resolved(b)
}

/// Which file a path leads to, where files have numbers.
pub(crate) fn identity_of(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().filter(|_| cfg!(unix)).map(|meta| stat_of(&meta).identity)
}

/// Whether this process has a file open, which this host does not say.
pub(crate) const fn is_open(_: &Path) -> bool {
    false
}

/// Whether it is written to and never replaced: what is neither a file nor a directory.
pub(crate) fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir() && !is_block_device(&meta))
}

/// The bytes that a file takes, where the host says it.
pub(crate) fn allocated(metadata: &Metadata) -> Option<u64> {
    cfg!(unix).then(|| stat_of(metadata).sectors.saturating_mul(512))
}

/// The times of access and of change.
pub(crate) fn times(metadata: &Metadata) -> (Timestamp, Timestamp) {
    let stat = stat_of(metadata);
    let at = |time: hectare_host::Time| Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
    (at(stat.atime), at(stat.mtime))
}

/// Makes the names in a directory durable, where directories can be opened.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

/// A UUID of version 4.
#[allow(clippy::unnecessary_wraps)] // as on Linux
pub(crate) fn random_uuid() -> io::Result<[u8; 16]> {
    Ok(uuid::Uuid::new_v4().into_bytes())
}

/// None are looked at.
pub(crate) fn block_devices() -> impl Iterator<Item = (PathBuf, File)> {
    std::iter::empty()
}

/// There are none.
pub(crate) const fn is_mount(_: &Path) -> bool {
    false
}

/// There are none.
pub(crate) fn explanation_of_mount(_: &Path) -> Result<Option<Explanation>, String> {
    Err("it is a directory: mounts are not supported on this host, give an image".to_owned())
}

/// Makes a new file, for which no link is followed, with this mode where the host has modes.
pub(crate) fn new_file(path: &Path, mode: u16) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode.into());
    #[cfg(not(unix))]
    let _ = mode;
    options.open(path)
}

#[cfg(unix)]
mod attributes {
    use super::{File, Path, fs, io};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, lchown};

    /// Sets the owner and group of what is at a path, of a link its own.
    pub(crate) fn set_owner(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
        lchown(path, Some(uid), Some(gid))
    }

    /// Sets a mode, not of a link; returns whether the host has all of it.
    pub(crate) fn set_mode(path: &Path, mode: u16) -> io::Result<bool> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode.into())).map(|()| true)
    }

    /// Opens a directory to set its times.
    pub(crate) fn open_to_set_times(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(target: &[u8], path: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), path)
    }
}

#[cfg(windows)]
mod attributes {
    use super::{File, Path, fs, io};
    use std::os::windows::fs::OpenOptionsExt;

    /// `FILE_WRITE_ATTRIBUTES` and `FILE_FLAG_BACKUP_SEMANTICS`, without which directories are not opened.
    const WRITE_ATTRIBUTES: u32 = 0x100;
    const BACKUP_SEMANTICS: u32 = 0x0200_0000;

    /// There are no owners by number.
    pub(crate) fn set_owner(_: &Path, _: u32, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Marks a file as read-only if nobody may write to it; returns whether that says all of the mode.
    pub(crate) fn set_mode(path: &Path, mode: u16) -> io::Result<bool> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Ok(mode == 0o755);
        }
        let mut permissions = metadata.permissions();
        permissions.set_readonly(mode & 0o222 == 0);
        fs::set_permissions(path, permissions)?;
        Ok(matches!(mode, 0o644 | 0o444))
    }

    /// Opens a directory to set its times.
    pub(crate) fn open_to_set_times(path: &Path) -> io::Result<File> {
        File::options().access_mode(WRITE_ATTRIBUTES).custom_flags(BACKUP_SEMANTICS).open(path)
    }

    /// Not made: it would need a right of its own, and to know what it will lead to.
    pub(crate) fn symlink(_: &[u8], _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) use attributes::{open_to_set_times, set_mode, set_owner, symlink};
