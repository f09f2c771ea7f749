//! Inodes: what a file is, apart from its name and its data.
//!
//! [`Inode`] holds every field typed and in host form; [`Inode::parse`] and [`Inode::render`] go between it
//! and the slot in the inode table. Bytes this program has no field for are kept and written back. What
//! `block` (the 60 bytes of `i_block`) means depends on the kind and the flags: an extent root, an indirect
//! map, a short symlink's target, a device number, or a small file's first bytes.
//!
//! Hazards: `i_blocks` counts 512-byte sectors, except in inodes with `HUGE_FILE` set, where it counts
//! blocks; [`Inode::sectors`] is always in sectors, and rendering picks the unit. The high half of the size
//! counts for regular files only (and for directories with `large_dir`): elsewhere its field had another
//! meaning once.

use crate::checksum::Seed;
use crate::error::{Corrupt, Place};
use crate::feature::{Incompat, RoCompat};
use crate::raw;
use crate::superblock::SuperBlock;
use crate::time::Timestamp;
use bitflags::bitflags;
use hectare_units::{BlockNr, Bytes, InodeNr, high32, join32, low16, low32, usize_of};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes of an inode that every volume has.
pub const BASE_SIZE: usize = 128;
/// Bytes of the extra part that this program knows.
const EXTRA_KNOWN: usize = size_of::<raw::InodeExtra>();
/// Where the extra words of the times end in the extra part.
const CTIME_EXTRA_END: u16 = 8;
const MTIME_EXTRA_END: u16 = 12;
const ATIME_EXTRA_END: u16 = 16;
/// The largest `i_blocks`, which has 48 bits; a file of more sectors is counted in blocks (`HUGE_FILE`).
const BLOCKS_MAX: u64 = (1 << 48) - 1;
/// Bytes of `i_block`.
pub const BLOCK_BYTES: usize = 60;
/// Files of this size or more need the feature `large_file`: the sign of 32 bits ends below.
pub const LARGE_FILE: Bytes = Bytes::gib(2);

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (never implemented).
        const SECRM = 0x1;
        /// Undelete (never implemented).
        const UNRM = 0x2;
        /// Compressed (never implemented).
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// Can't be changed.
        const IMMUTABLE = 0x10;
        /// Can only be appended to.
        const APPEND = 0x20;
        /// Left out by dump.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// A directory with an htree.
        const INDEX = 0x1000;
        /// AFS.
        const IMAGIC = 0x2000;
        /// File data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Tails are not merged (never implemented).
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// A top directory for the Orlov allocator.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// fs-verity.
        const VERITY = 0x10_0000;
        /// Holds an attribute's value.
        const EA_INODE = 0x20_0000;
        /// Direct access.
        const DAX = 0x200_0000;
        /// Data inside the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Case-insensitive names.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

impl InodeFlags {
    /// What a new file takes over from its directory: what the kernel's `EXT4_FL_INHERITED` lists.
    pub const INHERITED: Self = Self::SECRM
        .union(Self::UNRM)
        .union(Self::COMPR)
        .union(Self::SYNC)
        .union(Self::NODUMP)
        .union(Self::NOATIME)
        .union(Self::JOURNAL_DATA)
        .union(Self::NOTAIL)
        .union(Self::DIRSYNC)
        .union(Self::PROJINHERIT)
        .union(Self::CASEFOLD)
        .union(Self::DAX);
}

/// What an inode is, from the upper four bits of its mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::File,
        Self::Directory,
        Self::Symlink,
        Self::CharDevice,
        Self::BlockDevice,
        Self::Fifo,
        Self::Socket,
    ];

    /// The kind of a mode; `None` for the nine values that mean nothing.
    #[must_use]
    pub const fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::File,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// The mode's upper bits.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        let nibble: u16 = match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::File => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        };
        nibble << 12
    }
}

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// The driver, 12 bits.
    pub major: u32,
    /// The device, 20 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// The largest that an inode has room for: 12 bits for the major, 20 for the minor.
    pub const LARGEST: Self = Self { major: (1 << 12) - 1, minor: (1 << 20) - 1 };

    /// Whether an inode has room for it.
    #[must_use]
    pub const fn fits(self) -> bool {
        self.major <= Self::LARGEST.major && self.minor <= Self::LARGEST.minor
    }
}

/// An inode in host form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Kind and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group of owners.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Creation; the epoch where the inode is too small to hold it.
    pub crtime: Timestamp,
    /// Time of deletion in seconds, or the next inode of the orphan list; 0 while alive.
    pub dtime: u32,
    /// Hard links; 1 for directories with more than 65,000 (`dir_nlink`).
    pub links: u16,
    /// 512-byte sectors in use, metadata blocks included.
    pub sectors: u64,
    /// What is special about it.
    pub flags: InodeFlags,
    /// Change counter.
    pub version: u64,
    /// Map, target, device number or first bytes.
    pub block: [u8; BLOCK_BYTES],
    /// Distinguishes two files that had the same number.
    pub generation: u32,
    /// The attribute block, if any.
    pub file_acl: Option<BlockNr>,
    /// Bytes of extra fields in use after the first 128.
    pub extra_isize: u16,
    /// Project.
    pub projid: u32,
    obso_faddr: u32,
    reserved: u16,
    /// The slot's bytes after the known extra fields: unknown extra fields, then the attribute area.
    rest: Box<[u8]>,
}

const STRUCTURE: &str = "the inode";

impl Inode {
    /// A new, empty inode of the given mode for a volume, with all times at `now`.
    #[must_use]
    pub fn new(mode: u16, now: Timestamp, generation: u32, sb: &SuperBlock) -> Self {
        let extra_isize = sb.want_extra_isize();
        let rest = usize_of(sb.geometry().inode_size) - BASE_SIZE - usize::from(extra_isize).min(EXTRA_KNOWN);
        Self {
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: now,
            dtime: 0,
            links: 0,
            sectors: 0,
            flags: InodeFlags::empty(),
            version: 0,
            block: [0; BLOCK_BYTES],
            generation,
            file_acl: None,
            extra_isize,
            projid: 0,
            obso_faddr: 0,
            reserved: 0,
            rest: vec![0; rest].into_boxed_slice(),
        }
    }

    /// Validates a slot of the inode table, its checksum included. A slot of zeros is an inode that was never
    /// used; it parses as such (mode 0).
    ///
    /// # Errors
    /// [`Corrupt`] names the inode and the field.
    pub fn parse(slot: &[u8], nr: InodeNr, sb: &SuperBlock) -> Result<Self, Corrupt> {
        let Parts { raw, extra_isize, .. } = parts(slot, nr)?;
        if let Some(seed) = sb.seed() {
            verify_checksum(slot, raw, extra_isize, nr, seed)?;
        }
        Self::parse_unsealed(slot, nr, sb)
    }

    /// Like [`Self::parse`], but ignores the checksum: for a slot that was put together from parts that
    /// something else vouches for.
    ///
    /// # Errors
    /// [`Corrupt`] names the inode and the field.
    pub fn parse_unsealed(slot: &[u8], nr: InodeNr, sb: &SuperBlock) -> Result<Self, Corrupt> {
        let Parts { raw, beyond, extra_isize } = parts(slot, nr)?;
        let known = usize::from(extra_isize).min(EXTRA_KNOWN);
        let mut extra = raw::InodeExtra::new_zeroed();
        extra.as_mut_bytes()[..known].copy_from_slice(&beyond[..known]);
        let mode = raw.i_mode.get();
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let acl = u64::from(raw.i_file_acl_lo.get()) | u64::from(raw.i_file_acl_high.get()) << 32;
        let inode = Self {
            mode,
            uid: u32::from(raw.i_uid.get()) | u32::from(raw.i_uid_high.get()) << 16,
            gid: u32::from(raw.i_gid.get()) | u32::from(raw.i_gid_high.get()) << 16,
            size: size_of_raw(raw, mode, sb),
            atime: Timestamp::decode(raw.i_atime.get(), extra.i_atime_extra.get()),
            ctime: Timestamp::decode(raw.i_ctime.get(), extra.i_ctime_extra.get()),
            mtime: Timestamp::decode(raw.i_mtime.get(), extra.i_mtime_extra.get()),
            crtime: Timestamp::decode(extra.i_crtime.get(), extra.i_crtime_extra.get()),
            dtime: raw.i_dtime.get(),
            links: raw.i_links_count.get(),
            sectors: sectors_of(raw, flags, sb),
            flags,
            version: join32(raw.i_version_lo.get(), extra.i_version_hi.get()),
            block: raw.i_block,
            generation: raw.i_generation.get(),
            file_acl: (acl != 0).then_some(BlockNr::new(acl)),
            extra_isize,
            projid: extra.i_projid.get(),
            obso_faddr: raw.i_obso_faddr.get(),
            reserved: raw.i_reserved.get(),
            rest: beyond[known..].into(),
        };
        inode.check(nr, sb)?;
        Ok(inode)
    }

    /// The slot with the one byte corrected that is wrong, if its checksum of 32 bits shows which one it is.
    #[must_use]
    pub fn mended(slot: &[u8], nr: InodeNr, sb: &SuperBlock) -> Option<Vec<u8>> {
        let seed = sb.seed()?;
        let Parts { raw, extra_isize, .. } = parts(slot, nr).ok()?;
        if !has_checksum_hi(slot, extra_isize) {
            return None;
        }
        let hi = u16::from_le_bytes([slot[CHECKSUM_HI], slot[CHECKSUM_HI + 1]]);
        let found = u32::from(raw.i_checksum_lo.get()) | u32::from(hi) << 16;
        let mut mended = slot.to_vec();
        mended[CHECKSUM_LO..CHECKSUM_LO + 2].fill(0);
        mended[CHECKSUM_HI..CHECKSUM_HI + 2].fill(0);
        crate::checksum::mend(&mut mended, seed.inode(nr, raw.i_generation.get()), found)?;
        for half in [CHECKSUM_LO, CHECKSUM_HI] {
            mended[half..half + 2].copy_from_slice(&slot[half..half + 2]);
        }
        Self::parse(&mended, nr, sb).ok().map(|_| mended)
    }

    /// The slot of a larger inode with the same content. One of 128 bytes gets an extra part of `extra` bytes.
    /// The checksum is that of the old slot.
    #[must_use]
    pub fn enlarged(slot: &[u8], len: usize, extra: u16) -> Vec<u8> {
        let mut larger = slot.to_vec();
        larger.resize(len, 0);
        if slot.len() == BASE_SIZE && len >= BASE_SIZE + 2 {
            larger[BASE_SIZE..BASE_SIZE + 2].copy_from_slice(&extra.to_le_bytes());
        }
        larger
    }

    fn check(&self, nr: InodeNr, sb: &SuperBlock) -> Result<(), Corrupt> {
        let bad = |what: String| Err(Corrupt::new(STRUCTURE, Place::Inode(nr), what));
        if self.mode != 0 && Kind::of_mode(self.mode).is_none() {
            return bad(format!("its mode {:#o} is of no known kind", self.mode));
        }
        if self.size > i64::MAX.cast_unsigned() {
            return bad(format!("its size is {}", self.size));
        }
        if let Some(acl) = self.file_acl
            && !(u64::from(sb.geometry().first_data_block)..sb.geometry().blocks_count.get())
                .contains(&acl.get())
        {
            return bad(format!("its attribute block is {acl}, which is not on the volume"));
        }
        Ok(())
    }

    /// Writes the inode into its slot, checksum included.
    ///
    /// # Panics
    /// If the slot is not of the volume's inode size.
    pub fn render(&self, slot: &mut [u8], nr: InodeNr, sb: &SuperBlock) {
        let known = usize::from(self.extra_isize).min(EXTRA_KNOWN);
        assert_eq!(slot.len(), BASE_SIZE + known + self.rest.len(), "an inode fills its slot");
        let (base, beyond) = slot.split_at_mut(BASE_SIZE);
        let raw = raw::Inode::mut_from_bytes(base).expect("128 bytes are an inode");
        self.fill_base(raw, sb);
        if !beyond.is_empty() {
            beyond[..known].copy_from_slice(&self.extra().as_bytes()[..known]);
            beyond[known..].copy_from_slice(&self.rest);
        }
        if let Some(seed) = sb.seed() {
            seal(slot, self.extra_isize, seed.inode(nr, self.generation));
        }
    }

    fn fill_base(&self, raw: &mut raw::Inode, sb: &SuperBlock) {
        // A time has its extra word only where the slot's extra part reaches over it.
        let base = |time: Timestamp, extra_end: u16| {
            if self.extra_isize >= extra_end { time.encode().0 } else { time.encode_narrow() }
        };
        raw.i_mode = self.mode.into();
        raw.i_uid = low16(self.uid.into()).into();
        raw.i_uid_high = low16(u64::from(self.uid >> 16)).into();
        raw.i_gid = low16(self.gid.into()).into();
        raw.i_gid_high = low16(u64::from(self.gid >> 16)).into();
        raw.i_size_lo = low32(self.size).into();
        raw.i_size_high = high32(self.size).into();
        raw.i_atime = base(self.atime, ATIME_EXTRA_END).into();
        raw.i_ctime = base(self.ctime, CTIME_EXTRA_END).into();
        raw.i_mtime = base(self.mtime, MTIME_EXTRA_END).into();
        raw.i_dtime = self.dtime.into();
        raw.i_links_count = self.links.into();
        let (count, flags) = self.stored_blocks(sb);
        raw.i_flags = flags.bits().into();
        raw.i_blocks_lo = low32(count).into();
        raw.i_blocks_high = low16(count >> 32).into();
        raw.i_version_lo = low32(self.version).into();
        raw.i_block = self.block;
        raw.i_generation = self.generation.into();
        let acl = self.file_acl.map_or(0, BlockNr::get);
        raw.i_file_acl_lo = low32(acl).into();
        raw.i_file_acl_high = low16(acl >> 32).into();
        raw.i_obso_faddr = self.obso_faddr.into();
        raw.i_checksum_lo = 0.into();
        raw.i_reserved = self.reserved.into();
    }

    fn extra(&self) -> raw::InodeExtra {
        raw::InodeExtra {
            i_extra_isize: self.extra_isize.into(),
            i_checksum_hi: 0.into(),
            i_ctime_extra: self.ctime.encode().1.into(),
            i_mtime_extra: self.mtime.encode().1.into(),
            i_atime_extra: self.atime.encode().1.into(),
            i_crtime: self.crtime.encode().0.into(),
            i_crtime_extra: self.crtime.encode().1.into(),
            i_version_hi: high32(self.version).into(),
            i_projid: self.projid.into(),
        }
    }

    /// `i_blocks` as stored, and the flags that say in which unit: blocks where the sectors exceed 48 bits or
    /// the inode counted blocks already, else sectors. A count beyond the field is stored as its largest
    /// value. Without the feature `huge_file` the field has 32 bits, and the flag means nothing and is left
    /// alone.
    fn stored_blocks(&self, sb: &SuperBlock) -> (u64, InodeFlags) {
        if !sb.features().ro_compat.contains(RoCompat::HUGE_FILE) {
            return (self.sectors.min(u32::MAX.into()), self.flags);
        }
        let shift = sb.geometry().block_size.shift() - 9;
        let whole_blocks = self.sectors.trailing_zeros() >= shift;
        let in_blocks =
            self.sectors > BLOCKS_MAX || (self.flags.contains(InodeFlags::HUGE_FILE) && whole_blocks);
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, in_blocks);
        let count = if in_blocks { self.sectors >> shift } else { self.sectors };
        (count.min(BLOCKS_MAX), flags)
    }

    /// What the inode is; `None` for one that was never used.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.mode)
    }

    /// Permissions and the set-id and sticky bits.
    #[must_use]
    pub fn permissions(&self) -> u16 {
        self.mode & 0o7777
    }

    /// Whether its `i_block` is the root of a map: of files, directories and long symbolic links, unless
    /// their content is in the inode (`INLINE_DATA`).
    #[must_use]
    pub fn has_map(&self) -> bool {
        match self.kind() {
            Some(Kind::File | Kind::Directory) => true,
            Some(Kind::Symlink) => !self.is_fast_symlink(),
            _ => false,
        }
    }

    /// Whether its content lies in the inode (`inline_data`).
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Whether it has content in blocks, of which `block` has the root of the map.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.has_map() && !self.is_inline()
    }

    /// Whether the target of a symlink is kept in `block`.
    #[must_use]
    pub fn is_fast_symlink(&self) -> bool {
        self.kind() == Some(Kind::Symlink)
            && self.size < hectare_units::u64_of(BLOCK_BYTES)
            && !self.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
    }

    /// The device number of a device inode: the old form in the first word, the new one in the second.
    #[must_use]
    pub fn device_number(&self) -> DeviceNumber {
        let word = |at: usize| {
            u32::from_le_bytes([self.block[at], self.block[at + 1], self.block[at + 2], self.block[at + 3]])
        };
        match word(0) {
            0 => {
                let new = word(4);
                DeviceNumber { major: (new >> 8) & 0xfff, minor: (new & 0xff) | ((new >> 12) & 0xf_ff00) }
            }
            old => DeviceNumber { major: (old >> 8) & 0xff, minor: old & 0xff },
        }
    }

    /// Stores a device number, in the old form where it fits; of one that does not fit at all
    /// ([`DeviceNumber::fits`]) the lower bits.
    pub fn set_device_number(&mut self, number: DeviceNumber) {
        let DeviceNumber { major, minor } = number;
        self.block = [0; BLOCK_BYTES];
        let (at, word) = if major < 256 && minor < 256 {
            (0, major << 8 | minor)
        } else {
            (4, (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12)
        };
        self.block[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// The area for attributes inside the inode's slot; empty where the slot has no room.
    #[must_use]
    pub fn xattr_area(&self) -> &[u8] {
        if usize::from(self.extra_isize) == 0 {
            return &[];
        }
        self.rest.get(self.unknown_extra()..).unwrap_or_default()
    }

    /// The area for attributes, to be filled. Empty where the slot has no room.
    pub fn xattr_area_mut(&mut self) -> &mut [u8] {
        if usize::from(self.extra_isize) == 0 {
            return &mut [];
        }
        let skip = self.unknown_extra();
        self.rest.get_mut(skip..).unwrap_or_default()
    }

    /// Makes room for more extra fields, up to `to` bytes of them; what is new is zero. The attribute area
    /// becomes smaller and is left empty: the caller lays the attributes out anew. Does nothing if there is
    /// as much room already, or if the slot does not have so much.
    ///
    /// Source: the kernel's documentation of ext4, "Inode Size" (`i_extra_isize`).
    pub fn grow_extra(&mut self, to: u16) {
        let beyond = usize::from(self.extra_isize).min(EXTRA_KNOWN) + self.rest.len();
        if to <= self.extra_isize || usize::from(to) > beyond || !to.is_multiple_of(4) {
            return;
        }
        let unknown = self.unknown_extra();
        let mut rest = vec![0; beyond - usize::from(to).min(EXTRA_KNOWN)];
        rest[..unknown].copy_from_slice(&self.rest[..unknown]);
        self.rest = rest.into_boxed_slice();
        self.extra_isize = to;
    }

    /// Bytes of extra fields this program does not know.
    fn unknown_extra(&self) -> usize {
        usize::from(self.extra_isize).saturating_sub(EXTRA_KNOWN)
    }

    /// The seed of the checksums of what belongs to this inode; `None` without `metadata_csum`.
    #[must_use]
    pub fn seed(&self, nr: InodeNr, sb: &SuperBlock) -> Option<Seed> {
        sb.seed().map(|seed| seed.inode(nr, self.generation))
    }

    /// Whether the inode can store a creation time.
    #[must_use]
    pub fn has_crtime(&self) -> bool {
        self.extra_isize >= 24
    }

    /// Whether the inode can store a project.
    #[must_use]
    pub fn has_project(&self) -> bool {
        self.extra_isize >= 32
    }

    /// The size as a byte count.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.size)
    }
}

fn extra_isize_of(beyond: &[u8]) -> u16 {
    match beyond {
        [lo, hi, ..] => u16::from_le_bytes([*lo, *hi]),
        _ => 0,
    }
}

fn size_of_raw(raw: &raw::Inode, mode: u16, sb: &SuperBlock) -> u64 {
    let has_high = match Kind::of_mode(mode) {
        Some(Kind::File) => true,
        Some(Kind::Directory) => sb.features().incompat.contains(Incompat::LARGEDIR),
        _ => false,
    };
    join32(raw.i_size_lo.get(), if has_high { raw.i_size_high.get() } else { 0 })
}

fn sectors_of(raw: &raw::Inode, flags: InodeFlags, sb: &SuperBlock) -> u64 {
    if !sb.features().ro_compat.contains(RoCompat::HUGE_FILE) {
        return raw.i_blocks_lo.get().into();
    }
    let count = u64::from(raw.i_blocks_lo.get()) | u64::from(raw.i_blocks_high.get()) << 32;
    if flags.contains(InodeFlags::HUGE_FILE) {
        count << (sb.geometry().block_size.shift() - 9)
    } else {
        count
    }
}

/// Whether the slot has room for the high half of the checksum.
fn has_checksum_hi(slot: &[u8], extra_isize: u16) -> bool {
    slot.len() > BASE_SIZE && extra_isize >= 4
}

/// Offsets of the two halves of the checksum in a slot.
const CHECKSUM_LO: usize = 0x7c;
const CHECKSUM_HI: usize = 0x82;

/// The checksum of a slot with both halves taken as zero.
fn checksum_of(slot: &[u8], extra_isize: u16, seed: Seed) -> u32 {
    let seed = seed.then(&slot[..CHECKSUM_LO]).then(&[0, 0]);
    if !has_checksum_hi(slot, extra_isize) {
        return seed.checksum(&slot[CHECKSUM_LO + 2..]);
    }
    seed.then(&slot[CHECKSUM_LO + 2..CHECKSUM_HI]).then(&[0, 0]).checksum(&slot[CHECKSUM_HI + 2..])
}

/// A slot of the inode table: the first 128 bytes, and what comes after them.
struct Parts<'a> {
    raw: &'a raw::Inode,
    beyond: &'a [u8],
    extra_isize: u16,
}

fn parts(slot: &[u8], nr: InodeNr) -> Result<Parts<'_>, Corrupt> {
    let bad = |what: &'static str| Corrupt::new(STRUCTURE, Place::Inode(nr), what);
    let (raw, beyond) = raw::Inode::ref_from_prefix(slot).map_err(|_| bad("its slot is truncated"))?;
    let extra_isize = extra_isize_of(beyond);
    if usize::from(extra_isize) > beyond.len() || !extra_isize.is_multiple_of(4) {
        return Err(bad("its extra size exceeds its slot"));
    }
    Ok(Parts { raw, beyond, extra_isize })
}

fn verify_checksum(
    slot: &[u8],
    raw: &raw::Inode,
    extra_isize: u16,
    nr: InodeNr,
    seed: Seed,
) -> Result<(), Corrupt> {
    let expected = checksum_of(slot, extra_isize, seed.inode(nr, raw.i_generation.get()));
    let (found, mask) = if has_checksum_hi(slot, extra_isize) {
        let hi = u16::from_le_bytes([slot[CHECKSUM_HI], slot[CHECKSUM_HI + 1]]);
        (u32::from(raw.i_checksum_lo.get()) | u32::from(hi) << 16, !0)
    } else {
        (u32::from(raw.i_checksum_lo.get()), 0xffff)
    };
    if found == expected & mask || slot.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(Corrupt::checksum(STRUCTURE, Place::Inode(nr), found, expected & mask))
}

fn seal(slot: &mut [u8], extra_isize: u16, seed: Seed) {
    let checksum = checksum_of(slot, extra_isize, seed);
    slot[CHECKSUM_LO..CHECKSUM_LO + 2].copy_from_slice(&low16(checksum.into()).to_le_bytes());
    if has_checksum_hi(slot, extra_isize) {
        slot[CHECKSUM_HI..CHECKSUM_HI + 2].copy_from_slice(&low16(u64::from(checksum >> 16)).to_le_bytes());
    }
}
