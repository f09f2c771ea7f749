//! An inode in its table, read in place.
//!
//! The typed inode of the format crate copies what it reads and refuses what is out of range; a checker has
//! to read a million of them, unused ones too, and to report faults itself.

use hectare_ext4::checksum::Seed;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{BASE_SIZE, BLOCK_BYTES, InodeFlags, Kind};
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{InodeNr, join32};
use zerocopy::FromBytes;

/// Offsets of the two halves of the checksum.
const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;

/// Offset of the project.
const PROJECT: usize = 0x9c;

/// A slot of an inode table.
#[derive(Clone, Copy)]
pub(crate) struct RawInode<'a> {
    bytes: &'a [u8],
    pub(crate) raw: &'a raw::Inode,
}

impl<'a> RawInode<'a> {
    /// The slot; `None` if it is shorter than an inode.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (raw, _) = raw::Inode::ref_from_prefix(bytes).ok()?;
        Some(Self { bytes, raw })
    }

    /// Whether nothing was ever written to it.
    pub(crate) fn is_blank(&self) -> bool {
        self.bytes.iter().fold(0, |all, byte| all | byte) == 0
    }

    pub(crate) fn links(&self) -> u16 {
        self.raw.i_links_count.get()
    }

    pub(crate) fn mode(&self) -> u16 {
        self.raw.i_mode.get()
    }

    pub(crate) fn dtime(&self) -> u32 {
        self.raw.i_dtime.get()
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.mode())
    }

    pub(crate) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.raw.i_flags.get())
    }

    /// All 64 bits of the size, whatever the kind.
    pub(crate) fn size(&self) -> u64 {
        join32(self.raw.i_size_lo.get(), self.raw.i_size_high.get())
    }

    pub(crate) fn block(&self) -> &'a [u8; BLOCK_BYTES] {
        &self.raw.i_block
    }

    /// The attribute block's number, 0 for none.
    pub(crate) fn file_acl(&self) -> u64 {
        join32(self.raw.i_file_acl_lo.get(), u32::from(self.raw.i_file_acl_high.get()))
    }

    /// `i_blocks` as stored: 48 bits with `huge_file`, else 32.
    pub(crate) fn stored_blocks(&self, sb: &SuperBlock) -> u64 {
        let huge = sb.features().ro_compat.contains(RoCompat::HUGE_FILE);
        join32(self.raw.i_blocks_lo.get(), if huge { u32::from(self.raw.i_blocks_high.get()) } else { 0 })
    }

    /// `i_extra_isize`; 0 in a slot of 128 bytes.
    pub(crate) fn extra_isize(&self) -> u16 {
        self.half(BASE_SIZE)
    }

    /// The owner.
    pub(crate) fn uid(&self) -> u32 {
        u32::from(self.raw.i_uid.get()) | u32::from(self.raw.i_uid_high.get()) << 16
    }

    /// The group.
    pub(crate) fn gid(&self) -> u32 {
        u32::from(self.raw.i_gid.get()) | u32::from(self.raw.i_gid_high.get()) << 16
    }

    /// The project; 0 where the extra fields end before it.
    pub(crate) fn project(&self) -> u32 {
        let end = usize::from(self.extra_isize()) + BASE_SIZE;
        let word = self.bytes.get(PROJECT..PROJECT + 4).filter(|_| end >= PROJECT + 4);
        word.and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// The bytes after the extra fields, where attributes may lie; none where there are no extra fields.
    pub(crate) fn attribute_area(&self) -> &'a [u8] {
        let extra = usize::from(self.extra_isize());
        if extra == 0 { &[] } else { self.bytes.get(BASE_SIZE + extra..).unwrap_or_default() }
    }

    fn half(&self, at: usize) -> u16 {
        match self.bytes.get(at..) {
            Some([lo, hi, ..]) => u16::from_le_bytes([*lo, *hi]),
            _ => 0,
        }
    }

    /// The stored checksum and the right one, if they differ; a blank slot needs none. `seed` is the
    /// volume's.
    pub(crate) fn wrong_checksum(&self, nr: InodeNr, seed: Seed) -> Option<(u32, u32)> {
        let wide = self.bytes.len() > BASE_SIZE && self.extra_isize() >= 4;
        let seed = seed.inode(nr, self.raw.i_generation.get());
        let (before, rest) = self.bytes.split_at_checked(CHECKSUM_LO)?;
        let start = seed.then(before).then(&[0, 0]);
        let rest = rest.get(2..)?;
        let lo = u32::from(self.raw.i_checksum_lo.get());
        let (found, expected) = if wide {
            let (middle, end) = rest.split_at_checked(CHECKSUM_HI - CHECKSUM_LO - 2)?;
            let expected = start.then(middle).then(&[0, 0]).checksum(end.get(2..)?);
            (lo | u32::from(self.half(CHECKSUM_HI)) << 16, expected)
        } else {
            (lo, start.checksum(rest) & 0xffff)
        };
        (found != expected && !self.is_blank()).then_some((found, expected))
    }
}
