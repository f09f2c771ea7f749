//! A record of a quota file: what an id uses, and its limits.
//!
//! Hazards: limits of space are stored in KiB, and used space in bytes; here both are bytes. The soft limit's
//! time is when the grace period ends, in seconds since 1970, and 0 while the limit is kept.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

hectare_units::record::disk_record! {
    /// A record as it lies on disk (version 1 of the format).
    RawRecord, 72 bytes {
        0x00 dqb_id: U32,
        0x04 dqb_pad: U32,
        0x08 dqb_ihardlimit: U64,
        0x10 dqb_isoftlimit: U64,
        0x18 dqb_curinodes: U64,
        0x20 dqb_bhardlimit: U64,
        0x28 dqb_bsoftlimit: U64,
        0x30 dqb_curspace: U64,
        0x38 dqb_btime: U64,
        0x40 dqb_itime: U64,
    }
}

/// The unit of limits of space: 1 KiB.
const LIMIT_SHIFT: u32 = 10;

/// What an id uses of one resource, and how much it may: bytes of space, or inodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Resource {
    /// In use.
    pub used: u64,
    /// What may be exceeded for a time; 0 for no limit.
    pub soft: u64,
    /// What can't be exceeded; 0 for no limit.
    pub hard: u64,
    /// When the soft limit becomes a hard one, in seconds since 1970; 0 while it is kept.
    pub expires: u64,
}

/// What an id uses and may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// In bytes.
    pub space: Resource,
    /// In inodes.
    pub inodes: Resource,
}

impl Record {
    /// Bytes of a record.
    pub const BYTES: usize = 72;

    /// Whether it says no more than no record does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads a record; `None` for a free slot.
    ///
    /// # Panics
    /// If `bytes` is not [`Self::BYTES`] long.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(u32, Self)> {
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let raw = RawRecord::read_from_bytes(bytes).expect("a record's length");
        let limit = |limit: U64| limit.get().min(u64::MAX >> LIMIT_SHIFT) << LIMIT_SHIFT;
        let mut record = Self {
            space: Resource {
                used: raw.dqb_curspace.get(),
                soft: limit(raw.dqb_bsoftlimit),
                hard: limit(raw.dqb_bhardlimit),
                expires: raw.dqb_btime.get(),
            },
            inodes: Resource {
                used: raw.dqb_curinodes.get(),
                soft: raw.dqb_isoftlimit.get(),
                hard: raw.dqb_ihardlimit.get(),
                expires: raw.dqb_itime.get(),
            },
        };
        if record == USED_BUT_EMPTY {
            record.inodes.expires = 0;
        }
        Some((raw.dqb_id.get(), record))
    }

    /// Writes a record; one that is empty, so that the slot is taken.
    ///
    /// # Panics
    /// If `bytes` is not [`Self::BYTES`] long.
    pub fn render(&self, id: u32, bytes: &mut [u8]) {
        let record = if self.is_empty() { USED_BUT_EMPTY } else { *self };
        let limit = |bytes: u64| U64::new(bytes.div_ceil(1 << LIMIT_SHIFT));
        let raw = RawRecord {
            dqb_id: id.into(),
            dqb_pad: 0.into(),
            dqb_ihardlimit: record.inodes.hard.into(),
            dqb_isoftlimit: record.inodes.soft.into(),
            dqb_curinodes: record.inodes.used.into(),
            dqb_bhardlimit: limit(record.space.hard),
            dqb_bsoftlimit: limit(record.space.soft),
            dqb_curspace: record.space.used.into(),
            dqb_btime: record.space.expires.into(),
            dqb_itime: record.inodes.expires.into(),
        };
        bytes.copy_from_slice(raw.as_bytes());
    }
}

/// How an empty record is stored.
const USED_BUT_EMPTY: Record = Record {
    space: Resource { used: 0, soft: 0, hard: 0, expires: 0 },
    inodes: Resource { used: 0, soft: 0, hard: 0, expires: 1 },
};
