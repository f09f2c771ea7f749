//! The feature table: the features a volume uses, their names, and which of them this program supports.
//!
//! A volume names its features in three words. An unknown `incompat` bit means the volume can't be read, an
//! unknown `ro_compat` bit that it can't be written, an unknown `compat` bit nothing.
//! [`Features::check_read`] and [`Features::check_write`] apply that rule and, beyond it, refuse by name what
//! would be damaged by a write.

use crate::error::Unsupported;
use bitflags::bitflags;
use std::fmt;

bitflags! {
    /// Features that an implementation may ignore (`s_feature_compat`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// AFS server inodes.
        const IMAGIC_INODES = 0x2;
        /// A journal.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Descriptor blocks reserved for growing, held by the resize inode.
        const RESIZE_INODE = 0x10;
        /// Hashed directories.
        const DIR_INDEX = 0x20;
        /// Obsolete predecessor of `uninit_bg`.
        const LAZY_BG = 0x40;
        /// Snapshot exclude inode.
        const EXCLUDE_INODE = 0x80;
        /// Snapshot exclude bitmap.
        const EXCLUDE_BITMAP = 0x100;
        /// At most two backup superblocks, named in `s_backup_bgs`.
        const SPARSE_SUPER2 = 0x200;
        /// Fast-commit area in the journal.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and UUID must not change.
        const STABLE_INODES = 0x800;
        /// A file that lists the orphan inodes.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags! {
    /// Features without which a volume must not be read (`s_feature_incompat`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Incompat: u32 {
        /// Compressed files; never used.
        const COMPRESSION = 0x1;
        /// Directory entries carry the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// The device is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Group descriptors lie in their own meta group.
        const META_BG = 0x10;
        /// Extent-mapped files.
        const EXTENTS = 0x40;
        /// Block numbers beyond 32 bits and 64-byte descriptors.
        const BIT64 = 0x80;
        /// Multiple-mount protection.
        const MMP = 0x100;
        /// Metadata of several groups lies together.
        const FLEX_BG = 0x200;
        /// Large attribute values in inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries.
        const DIRDATA = 0x1000;
        /// The checksum seed is stored in the superblock.
        const CSUM_SEED = 0x2000;
        /// Three-level htrees and directories beyond 2 GiB.
        const LARGEDIR = 0x4000;
        /// Small files inside their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x1_0000;
        /// Case-insensitive directories.
        const CASEFOLD = 0x2_0000;
        const _ = !0;
    }
}

bitflags! {
    /// Features without which a volume must not be written (`s_feature_ro_compat`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RoCompat: u32 {
        /// Backup superblocks only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files beyond 2 GiB.
        const LARGE_FILE = 0x2;
        /// Never used.
        const BTREE_DIR = 0x4;
        /// `i_blocks` beyond 32 bits, possibly in file-system blocks.
        const HUGE_FILE = 0x8;
        /// Descriptor checksums and uninitialised groups (crc16).
        const GDT_CSUM = 0x10;
        /// Directories with more than 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inode fields beyond the first 128 bytes.
        const EXTRA_ISIZE = 0x40;
        /// A snapshot.
        const HAS_SNAPSHOT = 0x80;
        /// Quota files kept as hidden inodes.
        const QUOTA = 0x100;
        /// Allocation in clusters of several blocks.
        const BIGALLOC = 0x200;
        /// A crc32c on every structure.
        const METADATA_CSUM = 0x400;
        /// Replicas.
        const REPLICA = 0x800;
        /// The volume asks not to be written.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Files that share blocks (Android).
        const SHARED_BLOCKS = 0x4000;
        /// fs-verity files.
        const VERITY = 0x8000;
        /// The orphan file is not empty.
        const ORPHAN_PRESENT = 0x1_0000;
        const _ = !0;
    }
}

/// The three feature words of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// What may be ignored.
    pub compat: Compat,
    /// What reading needs.
    pub incompat: Incompat,
    /// What writing needs.
    pub ro_compat: RoCompat,
}

/// One bit of one of the three words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Of `s_feature_compat`.
    Compat(Compat),
    /// Of `s_feature_incompat`.
    Incompat(Incompat),
    /// Of `s_feature_ro_compat`.
    RoCompat(RoCompat),
}

use Feature::{Compat as C, Incompat as I, RoCompat as R};

/// Every feature under the name that `mke2fs -O` and `dumpe2fs` give it, in the order in which they print it.
pub const NAMES: &[(&str, Feature)] = &[
    ("dir_prealloc", C(Compat::DIR_PREALLOC)),
    ("imagic_inodes", C(Compat::IMAGIC_INODES)),
    ("has_journal", C(Compat::HAS_JOURNAL)),
    ("ext_attr", C(Compat::EXT_ATTR)),
    ("resize_inode", C(Compat::RESIZE_INODE)),
    ("dir_index", C(Compat::DIR_INDEX)),
    ("lazy_bg", C(Compat::LAZY_BG)),
    ("snapshot_bitmap", C(Compat::EXCLUDE_BITMAP)),
    ("sparse_super2", C(Compat::SPARSE_SUPER2)),
    ("fast_commit", C(Compat::FAST_COMMIT)),
    ("stable_inodes", C(Compat::STABLE_INODES)),
    ("orphan_file", C(Compat::ORPHAN_FILE)),
    ("compression", I(Incompat::COMPRESSION)),
    ("filetype", I(Incompat::FILETYPE)),
    ("needs_recovery", I(Incompat::RECOVER)),
    ("journal_dev", I(Incompat::JOURNAL_DEV)),
    ("meta_bg", I(Incompat::META_BG)),
    ("extent", I(Incompat::EXTENTS)),
    ("64bit", I(Incompat::BIT64)),
    ("mmp", I(Incompat::MMP)),
    ("flex_bg", I(Incompat::FLEX_BG)),
    ("ea_inode", I(Incompat::EA_INODE)),
    ("dirdata", I(Incompat::DIRDATA)),
    ("metadata_csum_seed", I(Incompat::CSUM_SEED)),
    ("large_dir", I(Incompat::LARGEDIR)),
    ("inline_data", I(Incompat::INLINE_DATA)),
    ("encrypt", I(Incompat::ENCRYPT)),
    ("casefold", I(Incompat::CASEFOLD)),
    ("sparse_super", R(RoCompat::SPARSE_SUPER)),
    ("large_file", R(RoCompat::LARGE_FILE)),
    ("huge_file", R(RoCompat::HUGE_FILE)),
    ("uninit_bg", R(RoCompat::GDT_CSUM)),
    ("dir_nlink", R(RoCompat::DIR_NLINK)),
    ("extra_isize", R(RoCompat::EXTRA_ISIZE)),
    ("snapshot", R(RoCompat::HAS_SNAPSHOT)),
    ("quota", R(RoCompat::QUOTA)),
    ("bigalloc", R(RoCompat::BIGALLOC)),
    ("metadata_csum", R(RoCompat::METADATA_CSUM)),
    ("replica", R(RoCompat::REPLICA)),
    ("read-only", R(RoCompat::READONLY)),
    ("project", R(RoCompat::PROJECT)),
    ("shared_blocks", R(RoCompat::SHARED_BLOCKS)),
    ("verity", R(RoCompat::VERITY)),
    ("orphan_present", R(RoCompat::ORPHAN_PRESENT)),
];

/// What can be read.
const READABLE: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
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
    .union(Incompat::CASEFOLD);

/// What of `incompat` forbids writing although it can be read.
const UNWRITABLE_INCOMPAT: Incompat = Incompat::RECOVER;

/// What of `ro_compat` is kept right by a write.
const WRITABLE: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT)
    .union(RoCompat::PROJECT)
    .union(RoCompat::QUOTA);

impl Features {
    /// Looks a name of `mke2fs -O` up, its older spellings included, in capitals or not.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Feature> {
        let name = match name.to_ascii_lowercase().as_str() {
            "extents" => "extent",
            "journal" => "has_journal",
            "gdt_csum" => "uninit_bg",
            "64_bit" => "64bit",
            "largedir" => "large_dir",
            _ => name,
        };
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, feature)| *feature)
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        match feature {
            C(bit) => self.compat.contains(bit),
            I(bit) => self.incompat.contains(bit),
            R(bit) => self.ro_compat.contains(bit),
        }
    }

    /// Turns a feature on or off.
    pub fn set(&mut self, feature: Feature, on: bool) {
        match feature {
            C(bit) => self.compat.set(bit, on),
            I(bit) => self.incompat.set(bit, on),
            R(bit) => self.ro_compat.set(bit, on),
        }
    }

    /// The names of the features that are on, unknown bits as `FEATURE_I17` (word and bit), in printing
    /// order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut rest = *self;
        let mut names = Vec::new();
        for word in ['C', 'I', 'R'] {
            for (name, feature) in NAMES.iter().filter(|(_, feature)| feature.word() == word) {
                if self.has(*feature) {
                    names.push((*name).to_owned());
                    rest.set(*feature, false);
                }
            }
            let bits = match word {
                'C' => rest.compat.bits(),
                'I' => rest.incompat.bits(),
                _ => rest.ro_compat.bits(),
            };
            names
                .extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| format!("FEATURE_{word}{bit}")));
        }
        names
    }

    /// Those of which no more is known than a name, or not even that: what belongs to them can be neither judged
    /// nor kept right.
    #[must_use]
    pub fn unknown(&self) -> Self {
        let compat = Compat::all().iter_names().fold(Compat::empty(), |all, (_, bit)| all | bit)
            - Compat::LAZY_BG
            - Compat::EXCLUDE_INODE
            - Compat::EXCLUDE_BITMAP;
        let incompat = Incompat::all().iter_names().fold(Incompat::empty(), |all, (_, bit)| all | bit);
        let ro_compat = RoCompat::all().iter_names().fold(RoCompat::empty(), |all, (_, bit)| all | bit)
            - RoCompat::HAS_SNAPSHOT
            - RoCompat::REPLICA
            - RoCompat::BTREE_DIR;
        Self {
            compat: self.compat.difference(compat),
            incompat: self.incompat.difference(incompat),
            ro_compat: self.ro_compat.difference(ro_compat),
        }
    }

    /// Whether only some groups have copies of the superblock and the descriptors.
    #[must_use]
    pub fn sparse_backups(&self) -> bool {
        self.ro_compat.contains(RoCompat::SPARSE_SUPER) || self.compat.contains(Compat::SPARSE_SUPER2)
    }

    /// Whether every structure carries a crc32c.
    #[must_use]
    pub fn metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors carry a checksum of either kind, and groups may be uninitialised.
    #[must_use]
    pub fn group_checksums(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM.union(RoCompat::GDT_CSUM))
    }

    /// Refuses what can't be read, naming it.
    ///
    /// # Errors
    /// [`Unsupported`] with the features' names.
    pub fn check_read(&self) -> Result<(), Unsupported> {
        let bad = self.incompat.difference(READABLE);
        if bad.contains(Incompat::JOURNAL_DEV) {
            return Err(Unsupported("this is an external journal (journal_dev), not a volume".into()));
        }
        refuse("reading", Self { incompat: bad, ..Self::default() })
    }

    /// Refuses what a write would damage or can't keep right, naming it.
    ///
    /// # Errors
    /// [`Unsupported`] with the features' names.
    pub fn check_write(&self) -> Result<(), Unsupported> {
        self.check_read()?;
        let compat = self.compat.intersection(Compat::EXCLUDE_BITMAP.union(Compat::EXCLUDE_INODE));
        let incompat = self.incompat.intersection(UNWRITABLE_INCOMPAT);
        let ro_compat = self.ro_compat.difference(WRITABLE);
        if incompat.contains(Incompat::RECOVER) {
            return Err(Unsupported(
                "the journal needs recovery (needs_recovery), which writing does not do yet: \
                 let e2fsck -fy or a kernel mount replay it first"
                    .into(),
            ));
        }
        refuse("writing", Self { compat, incompat, ro_compat })
    }
}

fn refuse(what: &str, bad: Features) -> Result<(), Unsupported> {
    if bad == Features::default() {
        return Ok(());
    }
    Err(Unsupported(format!("{what} a volume with {} is not supported", bad.names().join(", "))))
}

impl Feature {
    fn word(self) -> char {
        match self {
            C(_) => 'C',
            I(_) => 'I',
            R(_) => 'R',
        }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_named_and_refused() {
        let mut features =
            Features { incompat: Incompat::from_bits_retain(0x4000_0002), ..Features::default() };
        assert_eq!(features.names(), ["filetype", "FEATURE_I30"]);
        assert!(features.check_read().unwrap_err().0.contains("FEATURE_I30"));
        features.incompat = Incompat::FILETYPE;
        features.ro_compat = RoCompat::SHARED_BLOCKS;
        assert!(features.check_read().is_ok());
        assert!(features.check_write().unwrap_err().0.contains("shared_blocks"));
    }

    #[test]
    fn names_go_both_ways() {
        for (name, feature) in NAMES {
            assert_eq!(Features::by_name(name), Some(*feature));
        }
        assert_eq!(Features::by_name("extents"), Some(I(Incompat::EXTENTS)));
        assert_eq!(Features::by_name("no_such"), None);
    }
}
