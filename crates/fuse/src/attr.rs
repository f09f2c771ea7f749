//! The engine's view of an inode in FUSE's terms, and back: kinds, device numbers, times.
//!
//! Hazard: `fuser` turns a time before 1970 that the kernel sends as whole seconds and nanoseconds after them
//! into the epoch *less* both, where the nanoseconds were to be added; [`timestamp`] undoes that, so that the
//! two words arrive as they were sent.

use crate::nodes::node_id;
use fuser::{FileAttr, FileType, Generation, INodeNo, TimeOrNow};
use hectare_engine::{DeviceNumber, Kind, Metadata, NewNode, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

/// An inode's attributes, under the number the volume has for it (what `stat` shows).
pub(crate) fn attributes(found: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.inode.get().into()),
        size: found.size,
        blocks: found.sectors,
        atime: system_time(found.atime),
        mtime: system_time(found.mtime),
        ctime: system_time(found.ctime),
        crtime: system_time(found.crtime.unwrap_or_default()),
        kind: file_type(found.kind),
        perm: found.permissions,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: device_word(found.device),
        blksize: found.block_size,
        flags: 0,
    }
}

/// The same under the number FUSE has for it, as an answer that names the inode needs it.
pub(crate) fn entry(found: &Metadata) -> FileAttr {
    FileAttr { ino: node_id(found.inode), ..attributes(found) }
}

/// Attributes of nothing but a number and a kind: of number 0, no inode at all.
pub(crate) fn bare(number: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// What tells this inode from others of its number.
pub(crate) fn generation(found: &Metadata) -> Generation {
    Generation(found.generation.into())
}

/// A kind in FUSE's terms.
pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// What `mknod` asks for; `None` for what it can't make.
pub(crate) fn new_node(mode: u32, device: u32) -> Option<NewNode<'static>> {
    const KIND: u32 = 0o170_000;
    const DEFAULT: u32 = 0;
    Some(match mode & KIND {
        DEFAULT | 0o100_000 => NewNode::File,
        0o010_000 => NewNode::Fifo,
        0o020_000 => NewNode::CharDevice(device_number(device)),
        0o060_000 => NewNode::BlockDevice(device_number(device)),
        0o140_000 => NewNode::Socket,
        _ => return None,
    })
}

/// The permissions of a mode.
pub(crate) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & PERMISSIONS).unwrap_or(0)
}

/// A device number in the kernel's 32 bits: minor 0-7, major 8-19, minor 8-19 in bits 20-31.
fn device_word(device: DeviceNumber) -> u32 {
    let (major, minor) = (device.major & 0xfff, device.minor & 0xf_ffff);
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

fn device_number(word: u32) -> DeviceNumber {
    DeviceNumber { major: (word >> 8) & 0xfff, minor: (word & 0xff) | ((word >> 12) & 0xf_ff00) }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// A time as the kernel sent it.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: signed(since.as_secs()), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let until = before.duration();
            Timestamp { seconds: -signed(until.as_secs()), nanoseconds: until.subsec_nanos() }
        }
    }
}

/// A time to set.
pub(crate) fn time_or_now(time: TimeOrNow) -> Timestamp {
    match time {
        TimeOrNow::SpecificTime(time) => timestamp(time),
        TimeOrNow::Now => Timestamp::now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_go_there_and_back() {
        for (major, minor) in [(0, 0), (1, 3), (8, 1), (259, 0x1_2345), (0xfff, 0xf_ffff)] {
            let device = DeviceNumber { major, minor };
            assert_eq!(device_number(device_word(device)), device);
        }
        assert_eq!(device_word(DeviceNumber { major: 8, minor: 1 }), 0x801);
    }

    #[test]
    fn times_before_1970_and_after_2038_are_told_as_they_are() {
        for (seconds, nanoseconds) in
            [(0, 0), (-1, 700_000_000), (-0x8000_0000, 1), (0x3_7fff_ffff, 999_999_999)]
        {
            let told = system_time(Timestamp { seconds, nanoseconds });
            let since = match told.duration_since(UNIX_EPOCH) {
                Ok(since) => i128::try_from(since.as_nanos()).unwrap(),
                Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap(),
            };
            assert_eq!(since, i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds));
        }
    }

    #[test]
    fn regression_a_time_before_1970_that_fuser_misreads() {
        // What fuser makes of seconds -2 and nanoseconds 700,000,000.
        let misread = UNIX_EPOCH - Duration::new(2, 700_000_000);
        assert_eq!(timestamp(misread), Timestamp { seconds: -2, nanoseconds: 700_000_000 });
    }
}
