//! Linux: `statx` gives the time of birth as well; under a program that emulates root, which may not know
//! `statx`, the older call is used, and there is no time of birth.

use super::{Identity, Stat, Time};
use crate::fakeroot::{Pretence, pretence};
use hectare_units::low16;
use rustix::fd::BorrowedFd;
pub use rustix::fs::FileType;
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp, makedev};
use rustix::io::Errno;
use std::ffi::CStr;

/// The metadata of `name` in `dir`.
///
/// # Errors
/// The system's error.
pub fn stat(dir: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<Stat, Errno> {
    match pretence() {
        Pretence::None => with_birth(dir, name, flags),
        _ => rustix::fs::statat(dir, name, flags).map(|stat| without_birth(&stat)),
    }
}

/// The metadata of an open file.
///
/// # Errors
/// The system's error.
pub fn stat_open(file: BorrowedFd<'_>) -> Result<Stat, Errno> {
    match pretence() {
        Pretence::None => with_birth(file, c"", AtFlags::EMPTY_PATH),
        _ => rustix::fs::fstat(file).map(|stat| without_birth(&stat)),
    }
}

fn with_birth(dir: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<Stat, Errno> {
    let stat = rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let time = |time: StatxTimestamp| Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Stat {
        identity: Identity { device: makedev(stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino },
        file_type: FileType::from_raw_mode(stat.stx_mode.into()),
        mode: stat.stx_mode & 0o7777,
        links: stat.stx_nlink.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        sectors: stat.stx_blocks,
        device: (stat.stx_rdev_major, stat.stx_rdev_minor),
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        btime: has_birth.then(|| time(stat.stx_btime)),
    })
}

fn without_birth(stat: &rustix::fs::Stat) -> Stat {
    let time = |seconds: i64, nanoseconds: i64| Time {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    };
    Stat {
        identity: Identity { device: stat.st_dev, inode: stat.st_ino },
        file_type: FileType::from_raw_mode(stat.st_mode),
        mode: low16(u64::from(stat.st_mode & 0o7777)),
        links: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size.unsigned_abs(),
        sectors: stat.st_blocks.unsigned_abs(),
        device: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        btime: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn both_calls_say_the_same() {
        let file = tempfile::tempfile().unwrap();
        for fd in [file.as_fd(), std::fs::File::open("/dev/null").unwrap().as_fd()] {
            let with = with_birth(fd, c"", AtFlags::EMPTY_PATH).unwrap();
            assert_eq!(Stat { btime: None, ..with }, without_birth(&rustix::fs::fstat(fd).unwrap()));
        }
    }
}
