//! An inode in its table, read in place.
//!
//! The typed inode of the format crate copies what it reads and refuses what is out of range; a checker has
//! to read a million of them, unused ones too, and to report faults itself.

use hectare_ext4::checksum::Seed;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{BASE_SIZE, BLOCK_BYTES, InodeFlags, Kind};
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockSize, InodeNr, join32, u64_of};
use zerocopy::FromBytes;

/// Offsets of the two halves of the checksum.
const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;
/// Where the second half ends.
const CHECKSUM_END: usize = CHECKSUM_HI + 2;
/// Bytes that the checksum covers before those of the inode: its number and its generation.
const SEEDED: usize = 8;

/// Offsets of the times and of their extra fields: of change, modification, access, creation.
const TIMES: [(usize, usize); 4] = [(0x0c, 0x84), (0x10, 0x88), (0x08, 0x8c), (0x90, 0x94)];

/// The number that is reserved for a boot loader.
const BOOT_LOADER: InodeNr = InodeNr::new(5);

/// The system that has translators, as a superblock names it.
const HURD: u32 = 1;
/// The numbers that are reserved for what a feature adds: quota files, blocks kept for growing, a journal.
const OF_FEATURES: [u32; 4] = [3, 4, 7, 8];
const KEPT_BLOCKS: InodeNr = InodeNr::new(7);

/// Offset of the project.
const PROJECT: usize = 0x9c;

/// A slot of an inode table.
#[derive(Clone, Copy)]
pub struct RawInode<'a> {
    bytes: &'a [u8],
    /// Its first 128 bytes, by field.
    pub raw: &'a raw::Inode,
}

impl<'a> RawInode<'a> {
    /// The slot; `None` if it is shorter than an inode.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (raw, _) = raw::Inode::ref_from_prefix(bytes).ok()?;
        Some(Self { bytes, raw })
    }

    /// Whether nothing was ever written to it.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.bytes.iter().fold(0, |all, byte| all | byte) == 0
    }

    /// How many links it counts.
    #[must_use]
    pub fn links(&self) -> u16 {
        self.raw.i_links_count.get()
    }

    /// Kind and permissions.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.raw.i_mode.get()
    }

    /// The time of deletion, or the next inode of the orphan list.
    #[must_use]
    pub fn dtime(&self) -> u32 {
        self.raw.i_dtime.get()
    }

    /// What it is, if its mode says.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.mode())
    }

    /// What is special about it.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.raw.i_flags.get())
    }

    /// All 64 bits of the size, whatever the kind.
    #[must_use]
    pub fn size(&self) -> u64 {
        join32(self.raw.i_size_lo.get(), self.raw.i_size_high.get())
    }

    /// The largest size that e2fsck accepts for its kind of map.
    #[must_use]
    pub fn size_max(&self, block_size: BlockSize) -> u64 {
        let bits = block_size.shift();
        if self.flags().contains(InodeFlags::EXTENTS) {
            return (1 << (32 + bits)) - 1;
        }
        let per = 1u64 << (bits - 2);
        (12 + per + per * per + per.saturating_mul(per * per)).saturating_mul(1 << bits)
    }

    /// Whether a symbolic link in a block has more of a map than the entry that leads to it: e2fsck takes
    /// such a
    /// link for none.
    #[must_use]
    pub fn has_more_than_one_entry(&self) -> bool {
        let root = self.block();
        if self.flags().contains(InodeFlags::EXTENTS) {
            return root[6..8] != [0, 0];
        }
        root[4..].iter().any(|byte| *byte != 0)
    }

    /// The root of its map, or what is there instead.
    #[must_use]
    pub fn block(&self) -> &'a [u8; BLOCK_BYTES] {
        &self.raw.i_block
    }

    /// The block of the translator that an inode of the Hurd may have, beside its map; 0 for none.
    #[must_use]
    pub fn translator(&self, sb: &SuperBlock) -> u64 {
        let mapped = match self.kind() {
            Some(Kind::File | Kind::Directory) => true,
            Some(Kind::Symlink) => self.size() >= u64_of(BLOCK_BYTES),
            _ => false,
        };
        let by_blocks = !self.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        let has = sb.raw().s_creator_os.get() == HURD && mapped && by_blocks;
        if has { u64::from(self.raw.i_version_lo.get()) } else { 0 }
    }

    /// The attribute block's number, 0 for none.
    #[must_use]
    pub fn file_acl(&self) -> u64 {
        join32(self.raw.i_file_acl_lo.get(), u32::from(self.raw.i_file_acl_high.get()))
    }

    /// `i_blocks` as stored: 48 bits with `huge_file`, else 32.
    #[must_use]
    pub fn stored_blocks(&self, sb: &SuperBlock) -> u64 {
        let huge = sb.features().ro_compat.contains(RoCompat::HUGE_FILE);
        join32(self.raw.i_blocks_lo.get(), if huge { u32::from(self.raw.i_blocks_high.get()) } else { 0 })
    }

    /// `i_extra_isize`; 0 in a slot of 128 bytes.
    #[must_use]
    pub fn extra_isize(&self) -> u16 {
        self.half(BASE_SIZE)
    }

    /// Whether a time is in 2310 or later, which old kernels stored for one before 1970.
    pub(crate) fn has_late_time(&self) -> bool {
        let (bytes, end) = (self.bytes, BASE_SIZE + usize::from(self.extra_isize()));
        let is_late = move |(time, extra): &(usize, usize)| {
            let negative = bytes.get(time + 3).is_some_and(|byte| byte & 0x80 != 0);
            negative && extra + 4 <= end && bytes.get(*extra).is_some_and(|byte| byte & 3 == 3)
        };
        TIMES.iter().any(is_late)
    }

    /// Whether it is in use, for a number that has no use. Without a mode, its other fields are not read;
    /// e2fsck reports it where it counts blocks or has attributes, and links or a map in one that a feature could
    /// use; also that it folds names, which only a directory can.
    #[must_use]
    pub fn is_in_use(&self, nr: InodeNr, sb: &SuperBlock) -> bool {
        let holds = self.mode() != 0 || self.stored_blocks(sb) != 0 || self.file_acl() != 0;
        let has_map = self.block().iter().any(|byte| *byte != 0) || self.links() != 0 && nr != KEPT_BLOCKS;
        let of_kinds = InodeFlags::INLINE_DATA | InodeFlags::INDEX | InodeFlags::CASEFOLD;
        let mapped = self.flags().intersects(of_kinds);
        let too_large = self.size() > self.size_max(sb.geometry().block_size);
        holds || mapped || too_large || has_map && OF_FEATURES.contains(&nr.get())
    }

    /// Whether a reserved inode without a task is as it may be: not in use, or, for the one of a boot loader
    /// and for a journal that the volume no longer uses, a file.
    #[must_use]
    pub fn is_fit_for_nothing(&self, nr: InodeNr, sb: &SuperBlock) -> bool {
        let may_be_file = nr == BOOT_LOADER || nr.get() == sb.raw().s_journal_inum.get();
        let is_file = self.kind() == Some(Kind::File) && self.links() > 0;
        !self.is_in_use(nr, sb) || is_file && may_be_file
    }

    /// Whether the list of bad blocks has a field that it can't have.
    #[must_use]
    pub fn is_odd_bad_blocks(&self, sb: &SuperBlock) -> bool {
        let owned = self.raw.i_uid.get() != 0 || self.raw.i_gid.get() != 0 || self.file_acl() != 0;
        owned || self.mode() != 0 || self.links() != 0 || self.stored_blocks(sb) & 1 != 0
    }

    /// The owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        u32::from(self.raw.i_uid.get()) | u32::from(self.raw.i_uid_high.get()) << 16
    }

    /// The group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        u32::from(self.raw.i_gid.get()) | u32::from(self.raw.i_gid_high.get()) << 16
    }

    /// The project; 0 where the extra fields end before it.
    #[must_use]
    pub fn project(&self) -> u32 {
        let end = usize::from(self.extra_isize()) + BASE_SIZE;
        let word = self.bytes.get(PROJECT..PROJECT + 4).filter(|_| end >= PROJECT + 4);
        word.and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// The bytes after the extra fields, where attributes may lie; none where there are no extra fields.
    #[must_use]
    pub fn attribute_area(&self) -> &'a [u8] {
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
    #[must_use]
    pub fn wrong_checksum(&self, nr: InodeNr, seed: Seed) -> Option<(u32, u32)> {
        let wide = self.bytes.len() >= CHECKSUM_END && self.extra_isize() >= 4;
        // All up to the checksum's second half in one piece, with zeros in place of both: a call for each
        // piece would take longer than the bytes.
        let mut head = [0; SEEDED + CHECKSUM_END];
        let (copied, rest) = self.bytes.split_at(self.bytes.len().min(CHECKSUM_END));
        head[..4].copy_from_slice(&nr.get().to_le_bytes());
        head[4..SEEDED].copy_from_slice(&self.raw.i_generation.get().to_le_bytes());
        let head = &mut head[..SEEDED + copied.len()];
        head[SEEDED..].copy_from_slice(copied);
        head[SEEDED + CHECKSUM_LO..][..2].fill(0);
        let lo = u32::from(self.raw.i_checksum_lo.get());
        let (found, expected) = if wide {
            head[SEEDED + CHECKSUM_HI..].fill(0);
            (lo | u32::from(self.half(CHECKSUM_HI)) << 16, seed.then(head).checksum(rest))
        } else {
            (lo, seed.then(head).checksum(rest) & 0xffff)
        };
        (found != expected && !self.is_blank()).then_some((found, expected))
    }
}
