//! Converts inode metadata to and from the protocol's form: kinds, device numbers, times.

use crate::node_table::node_id;
use crate::protocol::reply::entry;
use crate::protocol::wire::{Attr, AttrOut, EntryOut, Statx, StatxOut, SxTime};
use hectare_engine::{DeviceNumber, Metadata, NewNode, Timestamp};
use std::time::Duration;
use zerocopy::FromZeros;

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;
/// What `statx` reports: everything that `stat` does, and the creation time where there is one (`STATX_`
/// `BASIC_STATS` and `BTIME` of `include/uapi/linux/stat.h`).
const BASIC_STATS: u32 = 0x7ff;
const BTIME: u32 = 0x800;

/// An inode's attributes.
pub(crate) fn attributes(found: &Metadata) -> Attr {
    let mut attr = Attr::new_zeroed();
    attr.ino.set(found.inode.get().into());
    attr.size.set(found.size);
    attr.blocks.set(found.sectors);
    attr.atime.set(found.atime.seconds);
    attr.mtime.set(found.mtime.seconds);
    attr.ctime.set(found.ctime.seconds);
    attr.atimensec.set(found.atime.nanoseconds);
    attr.mtimensec.set(found.mtime.nanoseconds);
    attr.ctimensec.set(found.ctime.nanoseconds);
    attr.mode.set(mode(found).into());
    attr.nlink.set(found.links);
    attr.uid.set(found.uid);
    attr.gid.set(found.gid);
    attr.rdev.set(device_word(found.device));
    attr.blksize.set(found.block_size);
    attr
}

/// The answer with an inode's attributes.
pub(crate) fn attr_out(kept: Duration, attr: Attr) -> AttrOut {
    let mut out = AttrOut::new_zeroed();
    out.attr_valid.set(kept.as_secs());
    out.attr_valid_nsec.set(kept.subsec_nanos());
    out.attr = attr;
    out
}

/// The answer that names an inode.
pub(crate) fn entry_out(kept: Duration, found: &Metadata) -> EntryOut {
    entry(node_id(found.inode), found.generation, kept, attributes(found))
}

/// The answer to `statx`, with all that it has for an inode.
pub(crate) fn statx_out(kept: Duration, found: &Metadata) -> StatxOut {
    let mut stat = Statx::new_zeroed();
    stat.mask.set(if found.crtime.is_some() { BASIC_STATS | BTIME } else { BASIC_STATS });
    stat.blksize.set(found.block_size);
    stat.nlink.set(found.links);
    stat.uid.set(found.uid);
    stat.gid.set(found.gid);
    stat.mode.set(mode(found));
    stat.ino.set(found.inode.get().into());
    stat.size.set(found.size);
    stat.blocks.set(found.sectors);
    stat.atime = sx_time(found.atime);
    stat.btime = sx_time(found.crtime.unwrap_or_default());
    stat.ctime = sx_time(found.ctime);
    stat.mtime = sx_time(found.mtime);
    stat.rdev_major.set(found.device.major);
    stat.rdev_minor.set(found.device.minor);
    let mut out = StatxOut::new_zeroed();
    out.attr_valid.set(kept.as_secs());
    out.attr_valid_nsec.set(kept.subsec_nanos());
    out.stat = stat;
    out
}

fn sx_time(time: Timestamp) -> SxTime {
    let mut told = SxTime::new_zeroed();
    told.tv_sec.set(time.seconds);
    told.tv_nsec.set(time.nanoseconds);
    told
}

fn mode(found: &Metadata) -> u16 {
    found.kind.mode_bits() | found.permissions
}

/// The inode that `mknod` asks for; `None` for kinds that it can't make.
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
}
