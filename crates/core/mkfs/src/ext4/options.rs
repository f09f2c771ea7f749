//! The options of `mke2fs`, typed.
//!
//! [`FormatOptions`] holds only what was given; the rest is `None` and gets its default from the size
//! of the volume in [`super::geometry`]. The defaults are those of mke2fs 1.47 with the configuration that
//! Debian ships. Parsing of the `-O` and `-E` words is in [`super::option_parser`].

use super::mount_defaults::MountDefaults;
use crate::derived;
use crate::error::{Error, Result};
use crate::values::time_of_format;
use hectare_device::Topology;
use hectare_ext4::feature::{Compat, Feature, Features, Incompat, RoCompat};
use hectare_ext4::quota;
use hectare_ext4::superblock::OnError;
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockSize, Blocks, Bytes};
use std::collections::BTreeSet;
use std::fmt;

/// The journal of a volume that lies on another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalDeviceId {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The device's number as the kernel stores it (`s_journal_dev`); 0 for a file.
    pub number: u32,
}

/// The family of features to start from (`-t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsType {
    /// No journal, block maps.
    Ext2,
    /// A journal, block maps.
    Ext3,
    /// Journal, extents, flexible groups, checksums.
    #[default]
    Ext4,
}

/// How the volume will be used (`-T`); chooses block size and inode ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// Below 3 MiB.
    Floppy,
    /// Below 512 MiB.
    Small,
    /// Everything between.
    Default,
    /// From 4 TiB on.
    Big,
    /// From 16 TiB on.
    Huge,
    /// Many small files.
    News,
    /// Files of about a MiB.
    LargeFile,
    /// Files of about 4 MiB.
    LargeFile4,
}

impl Usage {
    const ALL: [Self; 8] = [
        Self::Floppy,
        Self::Small,
        Self::Default,
        Self::Big,
        Self::Huge,
        Self::News,
        Self::LargeFile,
        Self::LargeFile4,
    ];

    /// The usage that a size suggests.
    #[must_use]
    pub fn of_size(size: Bytes) -> Self {
        const TIB: u64 = 1 << 40;
        match size.get() {
            n if n < 3 << 20 => Self::Floppy,
            n if n < 512 << 20 => Self::Small,
            n if n < 4 * TIB => Self::Default,
            n if n < 16 * TIB => Self::Big,
            _ => Self::Huge,
        }
    }

    /// Its block size.
    #[must_use]
    pub fn block_size(self) -> BlockSize {
        match self {
            Self::Floppy | Self::Small => BlockSize::KIB1,
            _ => BlockSize::KIB4,
        }
    }

    /// Bytes of volume for each inode.
    #[must_use]
    pub fn inode_ratio(self) -> u64 {
        match self {
            Self::Floppy => 8192,
            Self::Small | Self::News => 4096,
            Self::Default => 16384,
            Self::Big => 32768,
            Self::Huge => 65536,
            Self::LargeFile => 1 << 20,
            Self::LargeFile4 => 4 << 20,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floppy => "floppy",
            Self::Small => "small",
            Self::Default => "default",
            Self::Big => "big",
            Self::Huge => "huge",
            Self::News => "news",
            Self::LargeFile => "largefile",
            Self::LargeFile4 => "largefile4",
        }
    }

    /// Looks up a name of `-T`.
    ///
    /// # Errors
    /// If there is no such usage.
    pub fn by_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|usage| usage.name() == name).ok_or_else(|| {
            Error::option(
                format!("-T {name}"),
                "no such usage; there are floppy, small, default, big, huge, news, largefile and largefile4",
            )
        })
    }
}

/// How many inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InodeCount {
    /// By the ratio of the usage.
    #[default]
    ByUsage,
    /// One for this many bytes of volume (`-i`).
    Ratio(u64),
    /// This many, rounded up to fill the inode tables (`-N`); 0 is by usage, as with mke2fs.
    Exactly(u64),
}

/// A size up to which a volume is prepared to grow (`-E resize`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeLimit {
    /// A number of blocks.
    Blocks(Blocks),
    /// A number of bytes.
    Bytes(Bytes),
}

impl ResizeLimit {
    /// Whole blocks of this size.
    pub(crate) fn blocks(self, block_size: BlockSize) -> Blocks {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Bytes(bytes) => Blocks::new(bytes.get() >> block_size.shift()),
        }
    }
}

impl fmt::Display for ResizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(blocks) => write!(f, "{blocks}"),
            Self::Bytes(bytes) => write!(f, "{bytes} (bytes)"),
        }
    }
}

/// One change to the features (`-O`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureEdit {
    /// `none`: start from nothing.
    None,
    /// `name`.
    On(Feature),
    /// `^name`.
    Off(Feature),
}

impl FeatureEdit {
    /// Makes the change.
    pub(super) fn apply(self, features: &mut Features) {
        match self {
            Self::None => *features = Features::default(),
            Self::On(feature) => features.set(feature, true),
            Self::Off(feature) => features.set(feature, false),
        }
    }
}

/// All of `mke2fs`'s options for a volume.
#[derive(Clone, PartialEq, Debug)]
pub struct FormatOptions {
    /// `-t`.
    pub fs_type: FsType,
    /// `-T`; by size if not given.
    pub usage: Option<Usage>,
    /// `-b`.
    pub block_size: Option<BlockSize>,
    /// `-b -BYTES`: a block that is not given has no fewer bytes.
    pub least_block_size: Option<BlockSize>,
    /// What the device is like: blocks are no smaller than its sectors, and stripes are its own unless given.
    pub device: Topology,
    /// `-C`, in bytes; needs `bigalloc`.
    pub cluster_size: Option<u64>,
    /// `-I`, in bytes.
    pub inode_size: Option<u32>,
    /// `-i` or `-N`.
    pub inodes: InodeCount,
    /// `-m`, percent of the blocks only root may take; 0 to 50.
    pub reserved_percent: f64,
    /// `-L`, up to 16 bytes.
    pub label: Vec<u8>,
    /// `-M`: the directory of the last mount, up to 63 bytes.
    pub last_mounted: Vec<u8>,
    /// `-U`; random if not given.
    pub uuid: Option<[u8; 16]>,
    /// `-E hash_seed`; random if not given.
    pub hash_seed: Option<[u8; 16]>,
    /// `-O`, in the order given.
    pub features: Vec<FeatureEdit>,
    /// `-J size`, in MiB.
    pub journal_mib: Option<u64>,
    /// `-J device=`: the journal lies on another device.
    pub journal_device: Option<JournalDeviceId>,
    /// `-E stride`, in blocks; as the device says if not given.
    pub stride: Option<u16>,
    /// `-E stripe_width`, in blocks; as the device says if not given.
    pub stripe_width: Option<u32>,
    /// `-E packed_meta_blocks`: all bitmaps, inode tables and the journal at the start of the volume; without
    /// flex groups only the journal.
    pub packed_meta_blocks: bool,
    /// `-E lazy_itable_init`: leave zeroing of inode tables to the kernel. On if not given.
    pub lazy_itable_init: Option<bool>,
    /// `-E lazy_journal_init`: do not zero the journal.
    pub lazy_journal_init: bool,
    /// `-E root_owner`: user and group of the root directory. If not given they are root's, or those of the tree
    /// that fills the volume.
    pub root_owner: Option<(u32, u32)>,
    /// `-E root_perms`: permissions of the root directory. If not given they are 0755, or those of the tree.
    pub root_permissions: Option<u16>,
    /// `-E num_backup_sb`: superblock copies under `sparse_super2`, 0 to 2.
    pub backup_superblocks: u8,
    /// `-G`: groups whose metadata lies together; a power of two.
    pub flex_groups: Option<u32>,
    /// `-g`: clusters in a group, which are blocks without `bigalloc`.
    pub clusters_per_group: Option<u32>,
    /// `-E resize`: the size up to which online growing is prepared.
    pub resize: Option<ResizeLimit>,
    /// `-E mmp_update_interval`, in seconds; 0 for the default of 5.
    pub mmp_update_interval: u16,
    /// `-E discard`: first discard the content of the device. On by default.
    pub discard: bool,
    /// `-E quotatype`: what quotas are by, where there are any (`quota`). Users and groups if not given, and in
    /// any case projects if the volume has them (`project`).
    pub quota_kinds: Option<Vec<quota::Kind>>,
    /// The ids that quota files have room for beside those of an empty volume: the owners of what the volume
    /// is filled with. By [`quota::Kind::index`].
    pub quota_ids: [BTreeSet<u32>; 3],
    /// `-E encoding_flags=strict`: where case does not matter (`casefold`), names must be UTF-8.
    pub strict_encoding: bool,
    /// `-e`.
    pub on_error: OnError,
    /// The mount options that are on by default.
    pub mount_defaults: MountDefaults,
    /// Check the volume after every half a year, and after 20 to 39 mounts, as the UUID has it.
    pub periodic_checks: bool,
    /// Files of the volume will share blocks: the feature `shared_blocks`, with which it is for reading only.
    pub shared_blocks: bool,
    /// `-E test_fs`: the volume may be used with experimental kernel code.
    pub test_filesystem: bool,
    /// The time of everything that has a time.
    pub now: Timestamp,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            fs_type: FsType::Ext4,
            usage: None,
            block_size: None,
            least_block_size: None,
            device: Topology::default(),
            cluster_size: None,
            inode_size: None,
            inodes: InodeCount::ByUsage,
            reserved_percent: 5.0,
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid: None,
            hash_seed: None,
            features: Vec::new(),
            journal_mib: None,
            journal_device: None,
            stride: None,
            stripe_width: None,
            packed_meta_blocks: false,
            lazy_itable_init: None,
            lazy_journal_init: false,
            root_owner: None,
            root_permissions: None,
            backup_superblocks: 2,
            flex_groups: None,
            clusters_per_group: None,
            resize: None,
            mmp_update_interval: 0,
            discard: true,
            quota_kinds: None,
            quota_ids: [const { BTreeSet::new() }; 3],
            strict_encoding: false,
            on_error: OnError::Continue,
            mount_defaults: MountDefaults::default(),
            periodic_checks: false,
            shared_blocks: false,
            test_filesystem: false,
            now: Timestamp::from_seconds(Timestamp::now().seconds),
        }
    }
}

/// Whole blocks of a size of requests; none where a block is as large.
fn blocks_of(io: u64, block: BlockSize) -> u64 {
    if io > block.bytes().get() { io / block.bytes().get() } else { 0 }
}

impl FormatOptions {
    /// The defaults, with `SOURCE_DATE_EPOCH` as the time if it is in the environment.
    ///
    /// # Errors
    /// If the variable is set to something that is no number of seconds.
    pub fn from_environment() -> Result<Self> {
        Ok(Self { now: time_of_format()?, ..Self::default() })
    }

    /// Makes a volume of `size` depend on nothing but the options and the time of the format: a UUID and a hash
    /// seed that were not given are derived from them, instead of drawn.
    pub fn derive_identity(&mut self, size: Bytes) {
        let kind = self.fs_type.name();
        let (uuid, hash_seed) = derived::of_empty(kind, &self.label, self.now.seconds, size.get());
        self.uuid.get_or_insert(uuid);
        self.hash_seed.get_or_insert(hash_seed);
    }

    /// Blocks on one disk of a stripe, 0 if it is not known or beyond what a superblock can hold.
    pub(crate) fn stride(&self, block: BlockSize) -> u16 {
        let of_device = || u16::try_from(blocks_of(self.device.minimum_io, block)).unwrap_or(0);
        self.stride.unwrap_or_else(of_device)
    }

    /// Blocks of a whole stripe, 0 if not known: where the device reports no best size, its least is used.
    pub(crate) fn stripe_width(&self, block: BlockSize) -> u32 {
        let Topology { minimum_io, optimal_io, .. } = self.device;
        let best = if optimal_io == 0 { minimum_io } else { optimal_io };
        let of_device = || u32::try_from(blocks_of(best, block)).unwrap_or(0);
        self.stripe_width.unwrap_or_else(of_device)
    }

    /// The kinds of quotas of a volume with these features.
    pub(crate) fn quotas(&self, features: &Features) -> Vec<quota::Kind> {
        if !features.ro_compat.contains(RoCompat::QUOTA) {
            return Vec::new();
        }
        let usual = [quota::Kind::User, quota::Kind::Group];
        let chosen = self.quota_kinds.as_deref().unwrap_or(&usual);
        let has_projects = features.ro_compat.contains(RoCompat::PROJECT);
        let has =
            |kind: &quota::Kind| chosen.contains(kind) || (*kind == quota::Kind::Project && has_projects);
        quota::Kind::ALL.into_iter().filter(has).collect()
    }

    /// Whether `-O` sets a feature on or off, instead of leaving it open.
    pub(crate) fn decides(&self, feature: Feature) -> bool {
        self.features.iter().any(|edit| match edit {
            FeatureEdit::None => true,
            FeatureEdit::On(other) | FeatureEdit::Off(other) => *other == feature,
        })
    }

    /// The features asked for, before those that the size forces.
    ///
    /// # Errors
    /// For a feature that can't be made, or that lacks another one it needs.
    pub fn resolve_features(&self) -> Result<Features> {
        let mut features = self.fs_type.features();
        self.features.iter().for_each(|edit| edit.apply(&mut features));
        if self.journal_mib.is_some() || self.journal_device.is_some() {
            features.compat |= Compat::HAS_JOURNAL;
        }
        if self.quota_kinds.as_ref().is_some_and(|kinds| kinds.contains(&quota::Kind::Project))
            && features.ro_compat.contains(RoCompat::QUOTA)
        {
            features.ro_compat |= RoCompat::PROJECT;
        }
        if features.metadata_csum() {
            features.ro_compat -= RoCompat::GDT_CSUM; // the newer checksum replaces the older
        }
        check_supported(&features)?;
        check_needs(&features)?;
        features.ro_compat.set(RoCompat::SHARED_BLOCKS, self.shared_blocks);
        Ok(features)
    }
}

impl FsType {
    /// Its name, as `-t` takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
        }
    }

    /// The features the type starts from.
    #[must_use]
    pub fn features(self) -> Features {
        let mut features = Features {
            compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
        };
        if self != Self::Ext2 {
            features.compat |= Compat::HAS_JOURNAL;
        }
        if self == Self::Ext4 {
            features.incompat |= Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::BIT64;
            features.ro_compat |=
                RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM | RoCompat::DIR_NLINK | RoCompat::EXTRA_ISIZE;
        }
        features
    }

    /// Looks up a name of `-t`.
    ///
    /// # Errors
    /// If there is no such type.
    pub fn by_name(name: &str) -> Result<Self> {
        [Self::Ext2, Self::Ext3, Self::Ext4].into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Error::option(
                format!("-t {name}"),
                "no such type; there are ext2, ext3, ext4 and, as `hectare mkfs.xfs`, xfs",
            )
        })
    }
}

/// What a fresh volume can have.
const CAN_MAKE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT)
        .union(RoCompat::QUOTA)
        .union(RoCompat::VERITY),
};

fn check_supported(features: &Features) -> Result<()> {
    let bad = Features {
        compat: features.compat - CAN_MAKE.compat,
        incompat: features.incompat - CAN_MAKE.incompat,
        ro_compat: features.ro_compat - CAN_MAKE.ro_compat,
    };
    match bad.names().first() {
        None => Ok(()),
        Some(name) if *name == "shared_blocks" => Err(Error::option(
            format!("-O {name}"),
            "it is for files that share blocks, as `hectare build --dedupe` makes them",
        )),
        Some(name) => {
            Err(Error::option(format!("-O {name}"), "a volume with this feature can't be made; leave it out"))
        }
    }
}

fn check_needs(features: &Features) -> Result<()> {
    let refuse = |option: &str, reason: &str| Err(Error::option(format!("-O {option}"), reason));
    let (compat, incompat, ro_compat) = (features.compat, features.incompat, features.ro_compat);
    let extents = incompat.contains(Incompat::EXTENTS);
    if incompat.contains(Incompat::BIT64) && !extents {
        return refuse("64bit", "it needs extents; add -O extent or -O ^64bit");
    }
    if ro_compat.contains(RoCompat::BIGALLOC) && !extents {
        return refuse("bigalloc", "it needs extents; add -O extent");
    }
    if incompat.contains(Incompat::META_BG) && compat.contains(Compat::RESIZE_INODE) {
        return refuse("meta_bg", "it excludes resize_inode; add -O ^resize_inode");
    }
    if incompat.contains(Incompat::CSUM_SEED) && !features.metadata_csum() {
        return refuse("metadata_csum_seed", "it needs metadata_csum; add -O metadata_csum");
    }
    let journal = compat.contains(Compat::HAS_JOURNAL);
    if compat.contains(Compat::ORPHAN_FILE) && !journal {
        return refuse("orphan_file", "it needs a journal; add -O has_journal");
    }
    if compat.contains(Compat::FAST_COMMIT) && !journal {
        return refuse("fast_commit", "it needs a journal; add -O has_journal");
    }
    if compat.contains(Compat::RESIZE_INODE) && !features.sparse_backups() {
        return refuse("^sparse_super", "resize_inode needs sparse_super; add -O ^resize_inode");
    }
    Ok(())
}
