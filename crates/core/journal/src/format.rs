//! The jbd2 format: what the bytes of a journal mean, and how they are written.
//!
//! A journal is a superblock and a *log*: a ring of blocks. A transaction in the log is a row of *descriptor*
//! blocks, each followed by copies of the blocks its tags name, with *revoke* blocks (copies older than this
//! transaction must not be replayed) anywhere between them, ended by a *commit* block. Every such block
//! starts with the same magic number, its type and the transaction's sequence number
//! ([`TxnId`](hectare_units::TxnId), 32 bits, which wraps). A copy that would itself start with the magic
//! number is *escaped*: its first word is zeroed and its tag says so. At the end of the ring a *fast-commit
//! area* may lie, whose records ([`FastCommit`]) are in ext4's terms rather than blocks.
//!
//! Hazards:
//! - all numbers are big-endian, but those of the fast-commit area are little-endian;
//! - three generations of checksums exclude each other, and change the size of a tag;
//! - a checksum covers a block *as logged*, so after escaping.
//!
//! Invariant: whatever the bytes, reading ends with a value or an error; nothing here panics on them. Not
//! here: I/O, the ring's arithmetic, and which transactions count ([`recovery`](crate::recovery) decides).

mod commit;
mod descriptor;
mod fast_commit;
mod feature;
mod log;
mod revoke;
mod superblock;

pub use commit::CommitBlock;
pub(crate) use commit::TransactionCrc;
pub use descriptor::{Tag, Tags, needs_escape};
pub use fast_commit::{FastCommit, FastCommits, FastEntry, FastRecord};
pub use feature::{JournalCompat, JournalIncompat};
pub use log::{BlockType, Checksum, HEADER_LEN, LogFormat, MAGIC, header};
pub use revoke::Revokes;
pub use superblock::{
    CHECKSUM_CRC32C, FAST_COMMIT_BLOCKS_DEFAULT, JournalSuperblock, RawSuperblock, SUPERBLOCK_LEN, USERS_MAX,
};
