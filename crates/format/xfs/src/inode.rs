//! Inodes of version 3: the three that a fresh volume has, and free ones.
//!
//! Free inodes of a chunk are written too: a reader trusts that every inode of a chunk in the trees has its
//! magic number, its own number and a checksum.

use crate::checksum::seal;
use crate::feature::Incompat;
use crate::raw;
use crate::volume::Volume;
use hectare_units::low32;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// `di_magic`: "IN".
const MAGIC: u16 = 0x494e;
const VERSION: u8 = 3;
/// `di_mode` of a directory rwxr-xr-x.
const MODE_DIRECTORY: u16 = 0o040_755;
/// `di_mode` of a regular file without permissions.
const MODE_FILE: u16 = 0o100_000;
/// `di_format`: the fork's content lies in the inode.
const FORMAT_LOCAL: u8 = 1;
/// `di_format`, `di_aformat`: the fork's extents lie in the inode.
const FORMAT_EXTENTS: u8 = 2;
/// `di_flags`: the bitmap of the realtime section has its newer form.
const FLAG_NEW_REALTIME_BITMAP: u16 = 1 << 2;
/// `di_flags2`: times are in the wide form.
const FLAG2_BIGTIME: u64 = 1 << 3;
/// `di_flags2`: extent counts are in the wide form.
const FLAG2_NREXT64: u64 = 1 << 4;
/// Seconds from the start of wide times to 1970: 2^31.
const BIGTIME_EPOCH: i64 = 1 << 31;
/// Changes that making an inode counts as.
const CHANGES: u64 = 2;

/// A moment as XFS stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds after them, below 10^9.
    pub nanoseconds: u32,
}

impl Moment {
    /// The start of 1970.
    const EPOCH: Self = Self { seconds: 0, nanoseconds: 0 };

    /// The stored form: nanoseconds since 1901 (`bigtime`, until 2486), or 32 bits each of seconds and
    /// nanoseconds (1901 to 2038). What lies outside becomes the nearest end.
    #[must_use]
    pub fn encode(self, bigtime: bool) -> u64 {
        if bigtime {
            let seconds = self.seconds.saturating_add(BIGTIME_EPOCH).max(0).cast_unsigned();
            return seconds.saturating_mul(1_000_000_000).saturating_add(self.nanoseconds.into());
        }
        let seconds = self.seconds.clamp(i32::MIN.into(), i32::MAX.into()).cast_unsigned();
        u64::from(low32(seconds)) << 32 | u64::from(self.nanoseconds)
    }
}

/// What an inode of a fresh volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstInode {
    /// The root directory, empty.
    Root,
    /// The bitmap of the realtime section, empty.
    RealtimeBitmap,
    /// The summary of the realtime section, empty.
    RealtimeSummary,
    /// Not in use.
    Free,
}

/// Renders the inode `number` into its bytes, each of which must be zero.
pub fn render(volume: &Volume, number: u64, kind: FirstInode, now: Moment, bytes: &mut [u8]) {
    let Ok((raw, fork)) = raw::Dinode::mut_from_prefix(bytes) else { return };
    raw.di_magic.set(MAGIC);
    raw.di_version = VERSION;
    raw.di_next_unlinked.set(u32::MAX);
    raw.di_ino.set(number);
    raw.di_uuid = volume.uuid;
    match kind {
        FirstInode::Free => {}
        FirstInode::Root => {
            raw.di_mode.set(MODE_DIRECTORY);
            raw.di_format = FORMAT_LOCAL;
            raw.di_nlink.set(2);
            // No entries, no long inode numbers, then the parent: itself.
            let entries = [&[0, 0][..], &low32(number).to_be_bytes()].concat();
            raw.di_size.set(6);
            fork[..entries.len()].copy_from_slice(&entries);
        }
        FirstInode::RealtimeBitmap | FirstInode::RealtimeSummary => {
            raw.di_mode.set(MODE_FILE);
            raw.di_format = FORMAT_EXTENTS;
            raw.di_nlink.set(1);
        }
    }
    if kind == FirstInode::RealtimeBitmap {
        raw.di_flags.set(FLAG_NEW_REALTIME_BITMAP);
    }
    if kind != FirstInode::Free {
        set_times(volume, now, raw);
        raw.di_aformat = FORMAT_EXTENTS;
        raw.di_changecount.set(CHANGES);
    }
    seal(bytes, offset_of!(raw::Dinode, di_crc));
}

/// Sets times, and the flags that say which formats are used.
fn set_times(volume: &Volume, now: Moment, raw: &mut raw::Dinode) {
    let bigtime = volume.incompat.contains(Incompat::BIGTIME);
    let stamp = now.encode(bigtime);
    raw.di_mtime.set(stamp);
    raw.di_ctime.set(stamp);
    raw.di_crtime.set(stamp);
    raw.di_atime.set(Moment::EPOCH.encode(bigtime));
    let nrext64 = volume.incompat.contains(Incompat::NREXT64);
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    raw.di_flags2.set(flag(bigtime, FLAG2_BIGTIME) | flag(nrext64, FLAG2_NREXT64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_stored_in_both_forms() {
        let moment = Moment { seconds: 1, nanoseconds: 5 };
        assert_eq!(moment.encode(true), ((1 << 31) + 1) * 1_000_000_000 + 5);
        assert_eq!(moment.encode(false), 1 << 32 | 5);
        let early = Moment { seconds: i64::MIN, nanoseconds: 0 };
        assert_eq!((early.encode(true), early.encode(false)), (0, 0x8000_0000 << 32));
        let late = Moment { seconds: i64::MAX, nanoseconds: 0 };
        assert_eq!((late.encode(true), late.encode(false)), (u64::MAX, 0x7fff_ffff << 32));
    }
}
