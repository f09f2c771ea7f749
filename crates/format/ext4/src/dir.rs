//! Directories: blocks of entries, and the hash tree ("htree") that finds a name in a large one.
//!
//! A directory is a file whose blocks hold *records*: inode number, record length, name. Every block is tiled
//! by its records exactly, so slack and removed entries belong to some record. A directory of one block is a
//! plain list. When it outgrows that block (and the volume has `dir_index`), block 0 becomes the root of an
//! index over the hashes of the names, and the other blocks are leaves (plain record blocks) or further index
//! nodes. Index blocks are dressed up as records that old readers skip, so that every directory can also be
//! read as a list.
//!
//! The parts: [`hash`] (names to hashes), [`leaf`] (one block of records), [`verify_block`] and
//! [`set_checksum`] (one block's checksum), the operations on a whole directory over the traits [`DirRead`]
//! and [`DirWrite`] ([`lookup`], [`search`], [`insert()`], [`remove`], [`replace`], [`is_empty`],
//! [`read_dir`]), and [`build()`] (a whole directory at once).
//!
//! Invariants: every leaf holds exactly the names whose hash lies from its own index entry up to the next
//! one; bit 0 of an index hash says that names of that same hash also lie in the leaf before. Nothing here
//! verifies or sets checksums: the owner of the blocks does so when they are loaded and committed.
//!
//! Hazards: all bytes are untrusted, so every index descent is bounded by the number of levels the format
//! allows and by the size of the directory, and every record is checked before it is used.
//!
//! What this is not: it does no I/O, takes no locks, allocates no blocks and knows no inodes. Inline
//! directories (inside an inode) are the caller's to refuse. The names of an encrypted directory are
//! ciphertext, here and in the hashes: a caller that reads one says so ([`Format::opaque_names`]); likewise of
//! one in which case does not matter ([`Format::folding`]).

pub mod build;
mod checksum;
mod convert;
pub mod hash;
mod index;
mod insert;
pub mod leaf;
mod read;
mod record;
mod renumber;
mod store;
mod surviving;
#[cfg(test)]
mod tests;
mod tree;

pub use build::{BuildError, Built, Fill, blocks_needed, build};
pub use checksum::{mend_leaf, set_checksum, verify_block};
pub use convert::{convert_block, unindex};
pub use hash::{DirHash, HashVersion, Hasher, Signedness};
pub use insert::{INSERT_BLOCKS_MAX, Insert, Search, Spot, insert, insert_at, search};
pub use read::{Cookie, EntryRef, read_dir};
pub use record::{Record, stored_name};
pub use renumber::{renumber, retype};
pub use store::{DirRead, DirWrite};
pub use surviving::{Survivor, surviving};
pub use tree::{EntryPosition, FoundEntry, is_empty, lookup, remove, replace};

use crate::casefold::Folding;
use crate::error::Unsupported;
use crate::feature::{Compat, Incompat};
use crate::inode::Kind;
use crate::superblock::SuperBlock;
use hectare_units::{BlockSize, InodeNr};

/// What a volume's superblock says about the form of its directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// The volume's block size.
    pub block_size: BlockSize,
    /// Records carry the file type (feature `filetype`).
    pub filetype: bool,
    /// Blocks end in a checksum (feature `metadata_csum`).
    pub checksums: bool,
    /// Large directories get an index (feature `dir_index`).
    pub index: bool,
    /// An index may have three levels and a directory more than 2 GiB (feature `large_dir`).
    pub large_dir: bool,
    /// The hash a new index uses (`s_def_hash_version`).
    pub hash_version: HashVersion,
    /// How names' bytes enter the hash (`s_flags`).
    pub hash_signedness: Signedness,
    /// What the hash starts from (`s_hash_seed`).
    pub hash_seed: [u32; 4],
    /// Names are ciphertext, so any bytes: those of the one directory at hand whose inode has the flag
    /// `ENCRYPT`.
    pub opaque_names: bool,
    /// Case does not matter: of the one directory at hand, whose inode has the flag `CASEFOLD`.
    pub folding: Option<Folding>,
}

impl Format {
    /// The form of the directories of a volume.
    ///
    /// # Errors
    /// [`Unsupported`] names a hash function that is not known.
    pub fn of(sb: &SuperBlock) -> Result<Self, Unsupported> {
        let features = sb.features();
        Ok(Self {
            block_size: sb.geometry().block_size,
            filetype: features.incompat.contains(Incompat::FILETYPE),
            checksums: features.metadata_csum(),
            index: features.compat.contains(Compat::DIR_INDEX),
            large_dir: features.incompat.contains(Incompat::LARGEDIR),
            hash_version: HashVersion::from_code(sb.raw().s_def_hash_version)?,
            hash_signedness: if sb.signed_hash() { Signedness::Signed } else { Signedness::Unsigned },
            hash_seed: sb.hash_seed(),
            opaque_names: false,
            folding: None,
        })
    }

    /// The hash function of a directory indexed with `version` on this volume.
    #[must_use]
    pub const fn hasher(&self, version: HashVersion) -> Hasher {
        Hasher::new(version, self.hash_signedness, self.hash_seed).with_folding(self.folding.is_some())
    }

    /// The most blocks a directory may have: 2 GiB of them without `large_dir`, and never more than the 28
    /// bits of an index entry can name.
    #[must_use]
    pub const fn blocks_max(&self) -> u32 {
        if self.large_dir { 1 << 28 } else { 1 << (31 - self.block_size.shift()) }
    }

    /// Where the records of a leaf end: at the checksum's tail, or the end of the block.
    const fn leaf_end(&self) -> usize {
        self.block_size.len() - if self.checksums { record::TAIL_LEN } else { 0 }
    }

    /// Levels of index blocks a directory may have, the root included.
    const fn levels_max(&self) -> usize {
        if self.large_dir { 3 } else { 2 }
    }

    /// How many entries an index block holds when they start at byte `base`.
    const fn index_limit(&self, base: usize) -> usize {
        let tail = if self.checksums { index::TAIL_LEN } else { 0 };
        (self.block_size.len() - base - tail) / index::ENTRY_LEN
    }
}

/// A name a directory can hold: 1 to 255 bytes, none of them `/` or NUL unless it is ciphertext
/// ([`Name::opaque`]). The bytes need not be UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = 255;
    /// The name by which a directory lists itself.
    pub const DOT: Name<'static> = Name(b".");
    /// The name by which a directory lists its parent.
    pub const DOT_DOT: Name<'static> = Name(b"..");

    /// The name, or `None` if no directory can hold it.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let length = (1..=Self::LEN_MAX).contains(&bytes.len());
        (length && !bytes.iter().any(|b| matches!(b, 0 | b'/'))).then_some(Self(bytes))
    }

    /// The stored name of an entry of an encrypted directory, which may hold any bytes, also `/` and NUL; or
    /// `None` if its length is not 1 to 255.
    #[must_use]
    pub fn opaque(bytes: &'a [u8]) -> Option<Self> {
        (1..=Self::LEN_MAX).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether it is `.` or `..`, the two names that lie in block 0 and are never hashed.
    #[must_use]
    pub fn is_dot(self) -> bool {
        self == Name::DOT || self == Name::DOT_DOT
    }
}

/// A file's type as a directory record stores it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// Not recorded (the volume lacks `filetype`), or a code the format doesn't define.
    Unknown,
    /// A regular file, code 1.
    Regular,
    /// A directory, code 2.
    Directory,
    /// A character device, code 3.
    CharDevice,
    /// A block device, code 4.
    BlockDevice,
    /// A named pipe, code 5.
    Fifo,
    /// A socket, code 6.
    Socket,
    /// A symbolic link, code 7.
    Symlink,
}

impl FileType {
    /// The type a stored code stands for. Codes the format doesn't define are [`FileType::Unknown`].
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => Self::Unknown,
        }
    }

    /// The type of an inode of this kind.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::File => Self::Regular,
            Kind::Directory => Self::Directory,
            Kind::CharDevice => Self::CharDevice,
            Kind::BlockDevice => Self::BlockDevice,
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::Symlink => Self::Symlink,
        }
    }

    /// The stored code, 0 to 7.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }
}

/// A name and what it names, to be put into a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: Name<'a>,
    /// The inode it leads to; never 0, which marks an unused record.
    pub inode: InodeNr,
    /// That inode's type; not stored on a volume without `filetype`.
    pub file_type: FileType,
}
