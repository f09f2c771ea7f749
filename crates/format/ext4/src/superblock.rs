//! The superblock: the structure from which everything else is found.
//!
//! [`SuperBlock::parse`] is the only way in: it checks every number that later arithmetic relies on, so that
//! [`Geometry`] needs no checks of its own. The raw record stays inside, so that fields this program has no
//! use for are written back as they were read.
//!
//! Invariant: a parsed superblock's raw record and typed fields agree; changes go through the setters.

mod data_mode;
mod errors;
mod faults;

use crate::checksum::{Seed, crc32c};
use crate::error::{Corrupt, FormatError, Place, Unsupported};
use crate::feature::{Compat, Features, Incompat, RoCompat};
use crate::geometry::Geometry;
use crate::quota::Kind as QuotaKind;
use crate::raw;
use crate::time::Timestamp;
pub use data_mode::DataMode;
pub use errors::{ERRCODE_CHECKSUM, ERRCODE_CORRUPT, ERRCODE_IO, OnError, RecordedError, UnknownBehaviour};
use hectare_units::{BlockSize, Blocks, Bytes, GroupNr, InodeNr, high32, join32, low8, low16, low32};
use zerocopy::{FromBytes, IntoBytes};

/// `s_magic` of every ext2, ext3 and ext4 volume.
pub const MAGIC: u16 = 0xef53;
/// What lies in the place of a superblock while a format is under way, and stays there if it is interrupted.
pub const UNFINISHED: &[u8] = b"unfinished hectare mkfs\n";
/// Bytes of a superblock.
pub const SIZE: usize = 1024;
/// The first inode that is not reserved, on volumes that do not say (revision 0), and the least that others
/// may say.
pub const FIRST_INODE_DEFAULT: u32 = 11;

/// The one type of checksums (`s_checksum_type`).
pub const CRC32C: u8 = 1;
/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 0x1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 0x2;

/// `s_flags`: directory hashes take names as signed characters.
pub const FLAG_SIGNED_HASH: u32 = 0x1;
/// `s_flags`: directory hashes take names as unsigned characters.
pub const FLAG_UNSIGNED_HASH: u32 = 0x2;

/// `s_encoding`: names are UTF-8, folded as Unicode 12.1 says.
pub const ENCODING_UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: in directories without regard to case, names must be valid.
pub const ENCODING_STRICT: u16 = 0x1;

/// Bytes of an inode that every volume has, and of the extra part whose fields are known.
const BASE_SIZE_U32: u32 = 128;
const EXTRA_KNOWN_U32: u32 = 32;

/// What reading a damaged volume tolerates; nothing by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tolerances {
    /// Checksums are not verified, those of the superblock and of all that is parsed with it.
    pub ignore_checksums: bool,
    /// The device may be shorter than the volume claims to be.
    pub allow_truncated: bool,
}

/// A validated superblock.
#[derive(Clone, Debug)]
pub struct SuperBlock {
    raw: raw::SuperBlock,
    geometry: Geometry,
    /// Where checksums that are verified start.
    seed: Option<Seed>,
    ignores_checksums: bool,
}

impl SuperBlock {
    /// Validates the 1024 bytes of a superblock.
    ///
    /// # Errors
    /// [`Corrupt`] names the field; [`Unsupported`] names what this program can't read.
    pub fn parse(bytes: &[u8], device: Bytes) -> Result<Self, FormatError> {
        let raw = read_raw(bytes)?;
        check_checksum(&raw, &features_of(&raw))?;
        Self::of_raw(&raw, device)
    }

    /// Like [`Self::parse`], for a superblock of which only some sectors of the last write arrived, so that
    /// its checksum is wrong: good for what never changes, which is enough to find the journal. Nothing else
    /// of it should be relied on.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_torn(bytes: &[u8], device: Bytes) -> Result<Self, FormatError> {
        Self::of_raw(&read_raw(bytes)?, device)
    }

    /// Like [`Self::parse`], with tolerances, which then hold for everything that is parsed with it: for
    /// reading only.
    ///
    /// # Errors
    /// As [`Self::parse`], except for what is tolerated.
    pub fn parse_tolerant(bytes: &[u8], device: Bytes, tolerances: Tolerances) -> Result<Self, FormatError> {
        let device = if tolerances.allow_truncated { Bytes::new(u64::MAX) } else { device };
        if !tolerances.ignore_checksums {
            return Self::parse(bytes, device);
        }
        Ok(Self { seed: None, ignores_checksums: true, ..Self::parse_torn(bytes, device)? })
    }

    /// Whether the checksums of what is parsed with this superblock are not verified.
    #[must_use]
    pub fn ignores_checksums(&self) -> bool {
        self.ignores_checksums
    }

    fn of_raw(raw: &raw::SuperBlock, device: Bytes) -> Result<Self, FormatError> {
        let features = features_of(raw);
        features.check_read()?;
        let geometry = geometry_of(raw, features)?;
        if geometry.bytes() > device {
            return Err(corrupt(format!(
                "it claims {} bytes, but the device has only {device}: is the image truncated?",
                geometry.bytes()
            ))
            .into());
        }
        let seed = features.metadata_csum().then(|| seed_of(raw, &features));
        Ok(Self { raw: *raw, geometry, seed, ignores_checksums: false })
    }

    /// Builds a superblock from a record made by the formatter; the same checks apply.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn from_raw(mut raw: raw::SuperBlock) -> Result<Self, FormatError> {
        seal(&mut raw);
        Self::parse(raw.as_bytes(), Bytes::new(u64::MAX))
    }

    /// The record as it lies on disk.
    #[must_use]
    pub fn raw(&self) -> &raw::SuperBlock {
        &self.raw
    }

    /// Where things lie.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the volume uses.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.geometry.features
    }

    /// Where metadata checksums start; `None` without `metadata_csum`, and where checksums are ignored.
    #[must_use]
    pub fn seed(&self) -> Option<Seed> {
        self.seed
    }

    /// Where the hashes of attribute values in inodes of their own start; also without `metadata_csum`.
    #[must_use]
    pub fn value_seed(&self) -> Seed {
        seed_of(&self.raw, self.features())
    }

    /// The volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// The label, up to 16 bytes, without trailing NULs.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let name = &self.raw.s_volume_name;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        &name[..end]
    }

    /// Sets the label; false, with nothing set, if it is longer than 16 bytes or has a NUL.
    pub fn set_label(&mut self, label: &[u8]) -> bool {
        let mut name = [0; 16];
        let Some(room) = name.get_mut(..label.len()).filter(|_| !label.contains(&0)) else { return false };
        room.copy_from_slice(label);
        self.raw.s_volume_name = name;
        true
    }

    /// The seed of directory hashes.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        std::array::from_fn(|i| {
            let at = 4 * i;
            let s = &self.raw.s_hash_seed;
            u32::from_le_bytes([s[at], s[at + 1], s[at + 2], s[at + 3]])
        })
    }

    /// Free blocks as the superblock counts them (only a summary of the groups' counts).
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        Blocks::new(join32(self.raw.s_free_blocks_count_lo.get(), self.raw.s_free_blocks_count_hi.get()))
    }

    /// Blocks only root may take.
    #[must_use]
    pub fn reserved_blocks(&self) -> Blocks {
        let wide = self.features().incompat.contains(Incompat::BIT64);
        let high = if wide { self.raw.s_r_blocks_count_hi.get() } else { 0 };
        Blocks::new(join32(self.raw.s_r_blocks_count_lo.get(), high))
    }

    /// The first inode that is not reserved.
    #[must_use]
    pub fn first_inode(&self) -> InodeNr {
        InodeNr::new(first_inode(&self.raw))
    }

    /// The journal's inode, if there is an internal journal.
    #[must_use]
    pub fn journal_inode(&self) -> Option<InodeNr> {
        if !self.features().compat.contains(Compat::HAS_JOURNAL) {
            return None;
        }
        InodeNr::from_disk(self.raw.s_journal_inum.get())
    }

    /// The head of the orphan list.
    #[must_use]
    pub fn last_orphan(&self) -> Option<InodeNr> {
        InodeNr::from_disk(self.raw.s_last_orphan.get())
    }

    /// Changes the head of the orphan list.
    pub fn set_last_orphan(&mut self, head: Option<InodeNr>) {
        self.raw.s_last_orphan = head.map_or(0, InodeNr::get).into();
    }

    /// The inode of the orphan file, if the volume has one.
    #[must_use]
    pub fn orphan_file_inode(&self) -> Option<InodeNr> {
        if !self.features().compat.contains(Compat::ORPHAN_FILE) {
            return None;
        }
        InodeNr::from_disk(self.raw.s_orphan_file_inum.get())
    }

    /// The file of the quotas of a kind, if the volume has one.
    #[must_use]
    pub fn quota_inode(&self, kind: QuotaKind) -> Option<InodeNr> {
        if !self.features().ro_compat.contains(RoCompat::QUOTA) {
            return None;
        }
        let nr = match kind {
            QuotaKind::User => self.raw.s_usr_quota_inum,
            QuotaKind::Group => self.raw.s_grp_quota_inum,
            QuotaKind::Project => self.raw.s_prj_quota_inum,
        };
        InodeNr::from_disk(nr.get())
    }

    /// Sets whether the orphan file may hold entries (`orphan_present`).
    pub fn set_orphan_present(&mut self, present: bool) {
        self.geometry.features.ro_compat.set(RoCompat::ORPHAN_PRESENT, present);
        self.raw.s_feature_ro_compat = self.geometry.features.ro_compat.bits().into();
    }

    /// Whether names are hashed as signed characters: the flag, or the signed default of x86.
    #[must_use]
    pub fn signed_hash(&self) -> bool {
        self.raw.s_flags.get() & FLAG_UNSIGNED_HASH == 0
    }

    /// The extra inode bytes a new inode gets: 32, so that every field has its place, or more where the
    /// volume asks for more (`s_want_extra_isize`, `s_min_extra_isize`) and the slot has room for it; 0 in
    /// slots of 128 bytes. A multiple of 4. The kernel decides the same way.
    #[must_use]
    pub fn want_extra_isize(&self) -> u16 {
        let room = self.geometry.inode_size.saturating_sub(BASE_SIZE_U32);
        let asked = u32::from(self.raw.s_want_extra_isize.get().max(self.raw.s_min_extra_isize.get()));
        let asked = asked.next_multiple_of(4);
        let extra = if (EXTRA_KNOWN_U32..=room).contains(&asked) { asked } else { EXTRA_KNOWN_U32 };
        low16(u64::from(extra.min(room)))
    }

    /// Bytes of extra fields that every inode in use has to have (`s_min_extra_isize`), rounded up to whole
    /// fields; at most [`Self::want_extra_isize`].
    #[must_use]
    pub fn min_extra_isize(&self) -> u16 {
        let asked = u32::from(self.raw.s_min_extra_isize.get()).next_multiple_of(4);
        low16(u64::from(asked)).min(self.want_extra_isize())
    }

    /// Sets the summary counts.
    pub fn set_free(&mut self, blocks: Blocks, inodes: u32) {
        self.raw.s_free_blocks_count_lo = low32(blocks.get()).into();
        self.raw.s_free_blocks_count_hi = high32(blocks.get()).into();
        self.raw.s_free_inodes_count = inodes.into();
    }

    /// Sets how many clusters no file can ever have. A count beyond 32 bits can't be stored; 0 then lets the
    /// kernel count for itself.
    pub fn set_overhead_clusters(&mut self, clusters: u64) {
        self.raw.s_overhead_clusters = u32::try_from(clusters).unwrap_or(0).into();
    }

    /// Sets `s_state`.
    pub fn set_state(&mut self, state: u16) {
        self.raw.s_state = state.into();
    }

    /// `s_state`.
    #[must_use]
    pub fn state(&self) -> u16 {
        self.raw.s_state.get()
    }

    /// Sets the time of the last write.
    pub fn set_write_time(&mut self, time: Timestamp) {
        self.raw.s_wtime = low32(time.seconds.cast_unsigned()).into();
        self.raw.s_wtime_hi = low8(time.seconds.cast_unsigned() >> 32);
    }

    /// Adds to the count of KiB ever written.
    pub fn add_kbytes_written(&mut self, kib: u64) {
        self.raw.s_kbytes_written = self.raw.s_kbytes_written.get().saturating_add(kib).into();
    }

    /// Turns a feature on that a first use brings with it (`large_file`, `dir_nlink`). Only features that do
    /// not shape the layout may be added.
    pub fn add_ro_compat(&mut self, feature: RoCompat) {
        self.raise_revision();
        self.geometry.features.ro_compat |= feature;
        self.raw.s_feature_ro_compat = self.geometry.features.ro_compat.bits().into();
    }

    /// Turns a compatible feature on that a first use brings with it (`ext_attr`).
    pub fn add_compat(&mut self, feature: Compat) {
        self.raise_revision();
        self.geometry.features.compat |= feature;
        self.raw.s_feature_compat = self.geometry.features.compat.bits().into();
    }

    /// Makes revision 0 revision 1, with what the older one implies.
    fn raise_revision(&mut self) {
        if self.raw.s_rev_level.get() == 0 {
            self.raw.s_rev_level = 1.into();
            self.raw.s_first_ino = FIRST_INODE_DEFAULT.into();
            self.raw.s_inode_size = low16(u64::from(self.geometry.inode_size)).into();
        }
    }

    /// Sets whether the journal may hold blocks that are not in their final locations yet (`needs_recovery`).
    pub fn set_needs_recovery(&mut self, needed: bool) {
        self.geometry.features.incompat.set(Incompat::RECOVER, needed);
        self.raw.s_feature_incompat = self.geometry.features.incompat.bits().into();
    }

    /// The 1024 bytes to write for a group's copy, checksum included.
    #[must_use]
    pub fn render(&self, group: GroupNr) -> [u8; SIZE] {
        let mut raw = self.raw;
        raw.s_block_group_nr = low16(u64::from(group.get())).into();
        seal(&mut raw);
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

/// Fills in the checksum where the volume has checksums; an external journal has such a superblock, too.
pub fn seal(raw: &mut raw::SuperBlock) {
    if features_of(raw).metadata_csum() {
        raw.s_checksum = checksum_of(raw).into();
    }
}

fn checksum_of(raw: &raw::SuperBlock) -> u32 {
    crc32c(!0, &raw.as_bytes()[..SIZE - 4])
}

fn corrupt(reason: impl Into<std::borrow::Cow<'static, str>>) -> Corrupt {
    Corrupt::new("the superblock", Place::Volume, reason)
}

fn features_of(raw: &raw::SuperBlock) -> Features {
    // Revision 0 has no feature words, but where they are set the kernel and e2fsck go by them.
    Features {
        compat: Compat::from_bits_retain(raw.s_feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.s_feature_incompat.get()),
        ro_compat: RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()),
    }
}

fn read_raw(bytes: &[u8]) -> Result<raw::SuperBlock, FormatError> {
    let (raw, _) =
        raw::SuperBlock::read_from_prefix(bytes).map_err(|_| corrupt("it is shorter than 1024 bytes"))?;
    if bytes.starts_with(UNFINISHED) {
        return Err(unfinished().into());
    }
    if raw.s_magic.get() != MAGIC {
        return Err(corrupt(format!(
            "its magic is {:#06x} where ext4 has 0xef53: this is no ext2, ext3 or ext4 volume; \
             hectare identify --search finds one that lies elsewhere",
            raw.s_magic.get()
        ))
        .into());
    }
    if raw.s_rev_level.get() > 1 {
        return Err(Unsupported(format!("revision {} is unknown", raw.s_rev_level.get())).into());
    }
    Ok(raw)
}

/// The error for a volume that an interrupted format left.
#[must_use]
pub fn unfinished() -> Corrupt {
    corrupt("a format was interrupted here, so there is no volume; run mkfs again")
}

fn check_checksum(raw: &raw::SuperBlock, features: &Features) -> Result<(), FormatError> {
    if !features.metadata_csum() {
        return Ok(());
    }
    if raw.s_checksum_type != CRC32C {
        return Err(Unsupported(format!("checksum type {} is unknown", raw.s_checksum_type)).into());
    }
    let expected = checksum_of(raw);
    if raw.s_checksum.get() != expected {
        return Err(Corrupt::checksum("the superblock", Place::Volume, raw.s_checksum.get(), expected).into());
    }
    if features.ro_compat.contains(RoCompat::GDT_CSUM) {
        return Err(corrupt("it has both metadata_csum and uninit_bg, which exclude each other").into());
    }
    Ok(())
}

fn seed_of(raw: &raw::SuperBlock, features: &Features) -> Seed {
    if features.incompat.contains(Incompat::CSUM_SEED) {
        Seed::stored(raw.s_checksum_seed.get())
    } else {
        Seed::of_uuid(&raw.s_uuid)
    }
}

fn geometry_of(raw: &raw::SuperBlock, features: Features) -> Result<Geometry, FormatError> {
    let block_size = raw
        .s_log_block_size
        .get()
        .checked_add(10)
        .and_then(BlockSize::from_shift)
        .ok_or_else(|| corrupt("its block size is not 1 to 64 KiB"))?;
    let ratio = cluster_ratio_shift(raw, &features, block_size)?;
    let bits = 8 * block_size.get();
    let clusters_per_group = if features.ro_compat.contains(RoCompat::BIGALLOC) {
        raw.s_clusters_per_group.get()
    } else {
        raw.s_blocks_per_group.get()
    };
    if clusters_per_group == 0 || clusters_per_group > bits || clusters_per_group % 8 != 0 {
        return Err(corrupt(format!("clusters per group are {clusters_per_group}")).into());
    }
    if clusters_per_group.checked_shl(ratio) != Some(raw.s_blocks_per_group.get())
        || clusters_per_group.leading_zeros() < ratio
    {
        return Err(corrupt("blocks per group are not clusters per group times the cluster ratio").into());
    }
    let (inode_size, desc_size) = (inode_size(raw, block_size)?, desc_size(raw, &features, block_size)?);
    let geometry = Geometry {
        block_size,
        cluster_ratio_shift: ratio,
        first_data_block: raw.s_first_data_block.get(),
        blocks_count: Blocks::new(join32(
            raw.s_blocks_count_lo.get(),
            if features.incompat.contains(Incompat::BIT64) { raw.s_blocks_count_hi.get() } else { 0 },
        )),
        clusters_per_group,
        inodes_per_group: raw.s_inodes_per_group.get(),
        inode_size,
        desc_size,
        reserved_gdt_blocks: u32::from(raw.s_reserved_gdt_blocks.get()),
        first_meta_bg: raw.s_first_meta_bg.get(),
        flex_shift: flex_shift(raw, &features),
        backup_groups: raw.s_backup_bgs.map(zerocopy::little_endian::U32::get),
        features,
    };
    check_geometry(raw, &geometry)?;
    Ok(geometry)
}

fn cluster_ratio_shift(
    raw: &raw::SuperBlock,
    features: &Features,
    block_size: BlockSize,
) -> Result<u32, Corrupt> {
    if !features.ro_compat.contains(RoCompat::BIGALLOC) {
        return Ok(0);
    }
    let log = raw.s_log_cluster_size.get();
    // The format allows clusters up to 512 MiB (log 19).
    match log.checked_add(10).and_then(|shift| shift.checked_sub(block_size.shift())) {
        Some(ratio) if log <= 19 => Ok(ratio),
        _ => Err(corrupt(format!("its cluster size 2^({log} + 10) is impossible"))),
    }
}

fn inode_size(raw: &raw::SuperBlock, block_size: BlockSize) -> Result<u32, Corrupt> {
    if raw.s_rev_level.get() == 0 {
        return Ok(128);
    }
    let size = u32::from(raw.s_inode_size.get());
    if size < 128 || !size.is_power_of_two() || size > block_size.get() {
        return Err(corrupt(format!("its inode size is {size}")));
    }
    Ok(size)
}

fn desc_size(raw: &raw::SuperBlock, features: &Features, block_size: BlockSize) -> Result<u32, Corrupt> {
    if !features.incompat.contains(Incompat::BIT64) {
        return Ok(32);
    }
    let size = u32::from(raw.s_desc_size.get());
    if size < 64 || size > 1024.min(block_size.get()) || !size.is_power_of_two() {
        return Err(corrupt(format!("its descriptor size is {size}")));
    }
    Ok(size)
}

/// Revision 0 has no field for it.
fn first_inode(raw: &raw::SuperBlock) -> u32 {
    if raw.s_rev_level.get() == 0 { FIRST_INODE_DEFAULT } else { raw.s_first_ino.get() }
}

fn flex_shift(raw: &raw::SuperBlock, features: &Features) -> u32 {
    let shift = u32::from(raw.s_log_groups_per_flex);
    if features.incompat.contains(Incompat::FLEX_BG) && shift < 32 { shift } else { 0 }
}

fn check_geometry(raw: &raw::SuperBlock, geometry: &Geometry) -> Result<(), Corrupt> {
    let (blocks, first) = (geometry.blocks_count.get(), geometry.first_data_block);
    let size = geometry.block_size;
    if blocks >= 1 << 48 {
        return Err(corrupt(format!("it claims {blocks} blocks, more than 48 bits hold")));
    }
    let first_wanted = u32::from(size == BlockSize::KIB1 && geometry.cluster_ratio_shift == 0);
    // The kernel takes both where clusters have several blocks.
    let either = size == BlockSize::KIB1 && geometry.cluster_ratio_shift > 0 && first <= 1;
    if first != first_wanted && !either {
        return Err(corrupt(format!("its first data block is {first}")));
    }
    if blocks <= u64::from(first) {
        return Err(corrupt(format!("it claims {blocks} blocks")));
    }
    if (blocks - u64::from(first)).div_ceil(u64::from(geometry.blocks_per_group())) >= u64::from(u32::MAX) {
        return Err(corrupt("it has more than 2^32 - 2 groups"));
    }
    let inodes = geometry.inodes_per_group;
    if inodes == 0 || inodes > 8 * size.get() || !inodes.is_multiple_of(8) {
        return Err(corrupt(format!("inodes per group are {inodes}")));
    }
    let total = u64::from(inodes) * u64::from(geometry.groups());
    if total != u64::from(raw.s_inodes_count.get()) {
        return Err(corrupt(format!(
            "its inode count is {}, but {} groups of {inodes} hold {total}",
            raw.s_inodes_count.get(),
            geometry.groups()
        )));
    }
    let first_inode = first_inode(raw);
    if !(FIRST_INODE_DEFAULT..=raw.s_inodes_count.get()).contains(&first_inode) {
        return Err(corrupt(format!("its first inode is {first_inode} of {total}")));
    }
    if u64::from(geometry.reserved_gdt_blocks) > u64::from(size.get() / 4) {
        return Err(corrupt(format!("it reserves {} descriptor blocks", geometry.reserved_gdt_blocks)));
    }
    check_base_metadata(geometry)
}

/// No group has more base metadata than group 0, and only the last can have fewer blocks than the others.
fn check_base_metadata(geometry: &Geometry) -> Result<(), Corrupt> {
    for group in [GroupNr::new(0), GroupNr::new(geometry.groups() - 1)] {
        let (meta, room) = (geometry.base_meta_blocks(group), geometry.blocks_in(group));
        if meta > room {
            return Err(corrupt(format!(
                "group {group} needs {meta} blocks for superblock and group descriptors, but has {room}"
            )));
        }
    }
    Ok(())
}
