//! Any host: what the standard library knows of a file, the rest by stated defaults.

use super::{Identity, Stat, Time};
use hectare_device::os::{BorrowedFd, Errno, errno_of};
use std::fs::{File, Metadata};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// A regular file.
    RegularFile,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// Something else.
    Unknown,
}

/// The metadata of an open file.
///
/// # Errors
/// The system's error.
pub fn stat_open(file: BorrowedFd<'_>) -> Result<Stat, Errno> {
    let owned = file.try_clone_to_owned().map_err(|error| errno_of(&error))?;
    File::from(owned).metadata().map(|metadata| stat_of(&metadata)).map_err(|error| errno_of(&error))
}

fn time(time: std::io::Result<SystemTime>) -> Option<Time> {
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    Some(match time.ok()?.duration_since(UNIX_EPOCH) {
        Ok(after) => Time { seconds: seconds(after.as_secs()), nanoseconds: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let more = u32::from(before.subsec_nanos() > 0);
            let nanoseconds = (1_000_000_000 * more).saturating_sub(before.subsec_nanos());
            Time { seconds: -seconds(before.as_secs()) - i64::from(more), nanoseconds }
        }
    })
}

/// What the library's metadata say.
#[cfg(unix)]
#[must_use]
pub fn stat_of(metadata: &Metadata) -> Stat {
    use std::os::unix::fs::MetadataExt;
    let at = |seconds: i64, nanoseconds: i64| Time {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    };
    Stat {
        identity: Identity { device: metadata.dev(), inode: metadata.ino() },
        file_type: type_of(metadata.file_type()),
        mode: hectare_units::low16(u64::from(metadata.mode() & 0o7777)),
        links: metadata.nlink(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        sectors: metadata.blocks(),
        device: numbers(metadata.rdev()),
        atime: at(metadata.atime(), metadata.atime_nsec()),
        mtime: at(metadata.mtime(), metadata.mtime_nsec()),
        ctime: at(metadata.ctime(), metadata.ctime_nsec()),
        btime: time(metadata.created()),
    }
}

/// Major and minor number of a device (glibc's `gnu_dev_major`; <sys/types.h> of macOS).
#[cfg(unix)]
fn numbers(device: u64) -> (u32, u32) {
    use hectare_units::low32;
    if cfg!(target_os = "linux") {
        let major = (device >> 8) & 0xfff | (device >> 32) & 0xffff_f000;
        let minor = device & 0xff | (device >> 12) & 0xffff_ff00;
        return (low32(major), low32(minor));
    }
    (low32((device >> 24) & 0xff), low32(device & 0xff_ffff))
}

#[cfg(unix)]
fn type_of(kind: std::fs::FileType) -> FileType {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_file() => FileType::RegularFile,
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_fifo() => FileType::Fifo,
        kind if kind.is_socket() => FileType::Socket,
        kind if kind.is_char_device() => FileType::CharacterDevice,
        kind if kind.is_block_device() => FileType::BlockDevice,
        _ => FileType::Unknown,
    }
}

/// What the library's metadata say. There are no owners and modes: everything is root's, directories are 0755,
/// files 0644, or 0444 if they are marked read-only; a file has one name.
#[cfg(not(unix))]
#[must_use]
pub fn stat_of(metadata: &Metadata) -> Stat {
    let (file_type, mode) = match metadata.file_type() {
        kind if kind.is_symlink() => (FileType::Symlink, 0o777),
        kind if kind.is_dir() => (FileType::Directory, 0o755),
        kind if !kind.is_file() => (FileType::Unknown, 0),
        _ if metadata.permissions().readonly() => (FileType::RegularFile, 0o444),
        _ => (FileType::RegularFile, 0o644),
    };
    let (mtime, btime) = (time(metadata.modified()).unwrap_or_default(), time(metadata.created()));
    let born = btime.unwrap_or_default();
    let born = born.seconds.cast_unsigned().wrapping_mul(1_000_000_000) ^ u64::from(born.nanoseconds);
    Stat {
        identity: Identity { device: 0, inode: born },
        file_type,
        mode,
        links: 1,
        uid: 0,
        gid: 0,
        size: if file_type == FileType::RegularFile { metadata.len() } else { 0 },
        sectors: metadata.len().div_ceil(512),
        device: (0, 0),
        atime: time(metadata.accessed()).unwrap_or(mtime),
        mtime,
        ctime: mtime,
        btime,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn times_before_the_epoch_have_positive_nanoseconds() {
        // Windows counts in 100 ns.
        let at = |before| time(Ok(UNIX_EPOCH - before)).unwrap();
        assert_eq!(at(Duration::new(1, 0)), Time { seconds: -1, nanoseconds: 0 });
        assert_eq!(at(Duration::new(1, 300)), Time { seconds: -2, nanoseconds: 999_999_700 });
        let after = time(Ok(UNIX_EPOCH + Duration::new(3, 700)));
        assert_eq!(after, Some(Time { seconds: 3, nanoseconds: 700 }));
    }

    #[test]
    fn a_file_has_a_type_and_a_size() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "abc").unwrap();
        let of = |name: &str| stat_of(&fs::symlink_metadata(folder.path().join(name)).unwrap());
        let file = of("f");
        assert_eq!((file.file_type, file.size, file.links), (FileType::RegularFile, 3, 1));
        assert_eq!(of(".").file_type, FileType::Directory);
        assert_ne!(of(".").identity, file.identity);
    }

    #[cfg(unix)]
    #[test]
    fn numbers_of_devices_are_taken_apart() {
        assert_eq!(stat_of(&fs::metadata("/dev/null").unwrap()).file_type, FileType::CharacterDevice);
        if cfg!(target_os = "linux") {
            assert_eq!(numbers(0x103), (1, 3));
            assert_eq!(numbers(0x0001_2000_6783_459a), (0x1_2345, 0x6_789a));
        }
    }
}
