//! The plan of an XFS volume: everything a format will write, as values, before anything is written.
//!
//! A plan is pure, and small: groups are rendered on demand, each by itself, so any number of threads can
//! take ranges of them. A group is one write, but for the middle one, which holds the log, and the first,
//! which holds the first inodes and whose superblock comes last.
//!
//! Invariants: every byte that must have a value is in exactly one [`Write`]; bytes of no write may hold
//! anything.

use super::geometry::{Note, shape};
use super::group::{FreeLists, Group};
use super::options::FormatOptions;
use crate::error::Result;
use crate::write::{Payload, Write};
use hectare_units::{Bytes, GroupNr, u64_of, usize_of};
use hectare_xfs::inode::{self, FirstInode, Moment};
use hectare_xfs::log::unmount_record;
use hectare_xfs::superblock::{self, Role};
use hectare_xfs::{Run, Volume};
use std::ops::Range;

/// Everything a format will write.
#[derive(Clone, Debug)]
pub struct Plan {
    volume: Volume,
    free_lists: FreeLists,
    notes: Vec<Note>,
    now: Moment,
    zeroed: bool,
    discard: bool,
}

impl Plan {
    /// Plans a volume of the size that the options say, or of all of a device of `device_len` bytes.
    /// `zeroed` says that the device reads as zeros where nothing is written.
    ///
    /// # Errors
    /// If options are impossible, alone or together or for the size.
    pub fn new(options: &FormatOptions, device_len: Bytes, zeroed: bool) -> Result<Self> {
        let (volume, notes) = shape(options, device_len)?;
        let free_lists = FreeLists::new(&volume)?;
        let now = Moment { seconds: options.now.seconds, nanoseconds: options.now.nanoseconds };
        Ok(Self { volume, free_lists, notes, now, zeroed, discard: options.discard })
    }

    /// What the superblock will say.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The notes on the choices made.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether the device was said to read as zeros.
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Whether what the device holds is to be given up first.
    pub(super) fn discards(&self) -> bool {
        self.discard && !self.zeroed
    }

    /// The same plan for a device that turned out to read as zeros.
    pub(super) fn on_zeros(&self) -> Self {
        Self { zeroed: true, ..self.clone() }
    }

    /// All that is written to these groups but the primary superblock, in ascending order.
    pub fn writes(&self, groups: Range<u32>) -> impl Iterator<Item = Write> + '_ {
        groups.map(GroupNr::new).flat_map(|group| self.group_writes(group))
    }

    /// The primary superblock, which makes it a volume.
    #[must_use]
    pub fn primary_superblock(&self) -> Write {
        let mut sector = vec![0; usize_of(self.volume.sector_size)];
        superblock::render(&self.volume, Role::Primary, &mut sector);
        Write { at: Bytes::ZERO, payload: Payload::Bytes(sector) }
    }

    fn group_writes(&self, group: GroupNr) -> impl Iterator<Item = Write> {
        let mut start = Group::new(&self.volume, group, &self.free_lists).render(&self.volume);
        let mut at = self.volume.offset(group, 0);
        let first = group.get() == 0;
        if first {
            let sector = usize_of(self.volume.sector_size);
            start.drain(..sector);
            at += Bytes::of(sector);
        }
        let start = Write { at, payload: Payload::Bytes(start) };
        let inodes = first.then(|| self.inodes());
        let log = (group == self.volume.log.group).then(|| self.log());
        std::iter::once(start).chain(inodes).chain(log.into_iter().flatten())
    }

    /// The first inodes, of which three are in use.
    fn inodes(&self) -> Write {
        let volume = &self.volume;
        let size = usize_of(volume.inode_size);
        let mut bytes = vec![0; usize_of(volume.chunk_inodes()) * size];
        let kinds = [FirstInode::Root, FirstInode::RealtimeBitmap, FirstInode::RealtimeSummary];
        let kinds = kinds.into_iter().chain(std::iter::repeat(FirstInode::Free));
        for ((number, bytes), kind) in (volume.root_inode()..).zip(bytes.chunks_exact_mut(size)).zip(kinds) {
            inode::render(volume, number, kind, self.now, bytes);
        }
        Write { at: volume.offset(GroupNr::new(0), volume.root_block()), payload: Payload::Bytes(bytes) }
    }

    /// The log: its one record, then zeros.
    fn log(&self) -> [Write; 2] {
        let Run { start, len } = self.volume.log.run;
        let at = self.volume.offset(self.volume.log.group, start);
        let record = unmount_record(&self.volume);
        let written = Bytes::new(u64_of(record.len()));
        let rest = Bytes::new(u64::from(len) << self.volume.block_size.shift()) - written;
        [
            Write { at, payload: Payload::Bytes(record) },
            Write { at: at + written, payload: Payload::Zeros(rest) },
        ]
    }
}
