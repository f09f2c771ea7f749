//! What inodes say of their files.

#![allow(unsafe_code)] // names that C calls

use crate::failure::status;
use crate::memory::{self, put};
use crate::volume::{hectare_volume, volume};
use hectare::fs::Metadata;
use hectare::inode::Timestamp;
use std::ffi::{c_char, c_int};

/// A time: seconds since 1970, and nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hectare_time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
    /// 0.
    pub reserved: u32,
}

/// What an inode says of its file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hectare_stat {
    /// The number of the inode.
    pub ino: u64,
    /// Bytes of content.
    pub size: u64,
    /// 512-byte sectors in use.
    pub blocks: u64,
    /// Hard links.
    pub nlink: u64,
    /// Kind and permissions, as st_mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The volume's block size in bytes.
    pub blksize: u32,
    /// Major number of a device.
    pub rdev_major: u32,
    /// Minor number of a device.
    pub rdev_minor: u32,
    /// Last access.
    pub atime: hectare_time,
    /// Last change of the content.
    pub mtime: hectare_time,
    /// Last change of the inode.
    pub ctime: hectare_time,
    /// Creation; 0 if inodes have no room for it.
    pub btime: hectare_time,
}

fn time(at: Timestamp) -> hectare_time {
    hectare_time { seconds: at.seconds, nanoseconds: at.nanoseconds, reserved: 0 }
}

pub(crate) fn fill(found: &Metadata) -> hectare_stat {
    let inode = found.as_engine();
    hectare_stat {
        ino: found.ino(),
        size: found.len(),
        blocks: found.blocks(),
        nlink: found.nlink(),
        mode: u32::from(inode.kind.mode_bits()) | found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        blksize: inode.block_size,
        rdev_major: inode.device.major,
        rdev_minor: inode.device.minor,
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        btime: inode.crtime.map(time).unwrap_or_default(),
    }
}

/// What the inode at a path says; a symbolic link at the end is followed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_stat_path(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut hectare_stat,
) -> c_int {
    status(|| put(to, fill(&self::volume(volume)?.metadata(memory::path(path, "the path")?)?)))
}

/// What the inode at a path says; a symbolic link at the end is not followed.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_lstat_path(
    volume: *mut hectare_volume,
    path: *const c_char,
    to: *mut hectare_stat,
) -> c_int {
    status(|| put(to, fill(&self::volume(volume)?.symlink_metadata(memory::path(path, "the path")?)?)))
}
