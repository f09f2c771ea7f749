//! Options of the kernel's ext4 without effect here, so that an `fstab` line for the kernel works unchanged.
//!
//! An option is accepted, with a line in the log, if its behaviour is the default here, or if ignoring it
//! gives guarantees that are at least as strong. It is refused where ignoring it would be wrong: limits that
//! would not be enforced, files that would become stale, data that would not be encrypted.
//!
//! The names are those of the kernel's documentation (`Documentation/admin-guide/ext4.rst`) and of mount(8).
//! Not here: options with an effect ([`super::table`]).

use super::table::{OptionRow, accepted, refused};

const ALWAYS: &str = "this is always the case";
const FLUSHES: &str = "a commit always waits for the device";
const VALIDATED: &str = "block validity is always checked";
const BATCHES: &str = "commit batching sets its own delay";
const STALE_QUOTA: &str = "only hidden quota files (-O quota) are kept up to date";
const ROOT_ONLY: &str = "reserved blocks are for root, on mounts that only root can access";
const GONE: &str = "the kernel has removed this option, too";
const OWN_SEARCH: &str = "allocation is controlled by policy=";
const NO_DAX: &str = "files can't be mapped past the page cache through FUSE";
const NO_KEYS: &str = "encryption is not supported";
const BY_NUMBER: &str = "devices are not found by their number; name the journal's with journal_path=FILE";

/// Sorted by name.
pub(super) static OPTIONS: &[OptionRow] = &[
    refused("abort", "a journal can't be aborted at mount; mount with ro"),
    accepted("auto_da_alloc", ALWAYS),
    accepted("barrier", FLUSHES),
    accepted("bh", GONE),
    accepted("block_validity", VALIDATED),
    accepted("check", GONE),
    refused("dax", NO_DAX),
    accepted("dioread_lock", "unwritten blocks are never exposed, with or without it"),
    accepted("dioread_nolock", "unwritten blocks are never exposed, with or without it"),
    refused("grpjquota", STALE_QUOTA),
    accepted("i_version", ALWAYS),
    accepted("init_itable", "inode tables are written as they are used"),
    refused("inlinecrypt", NO_KEYS),
    accepted("inode_readahead_blks", "inode tables are read as they are used"),
    accepted("iversion", ALWAYS),
    accepted("journal_async_commit", FLUSHES),
    accepted("journal_checksum", "the journal has the checksums that its superblock asks for"),
    refused("journal_dev", BY_NUMBER),
    accepted("journal_ioprio", "the log is written with the server's I/O priority"),
    refused("jqfmt", STALE_QUOTA),
    accepted("mand", GONE),
    accepted("max_batch_time", BATCHES),
    refused("max_dir_size_kb", "directory sizes can't be limited"),
    accepted("mblk_io_submit", GONE),
    accepted("min_batch_time", BATCHES),
    accepted("no_mbcache", "attribute blocks are not shared anyway"),
    accepted("no_prefetch_block_bitmaps", "bitmaps are read as they are used"),
    accepted("noauto_da_alloc", "the content of a file that replaces another is always written first"),
    accepted("nobarrier", FLUSHES),
    accepted("nobh", GONE),
    accepted("noblock_validity", VALIDATED),
    accepted("nocheck", GONE),
    accepted("noi_version", "the inode version is always counted"),
    accepted("noinit_itable", "inode tables are written as they are used"),
    accepted("nojournal_checksum", "the journal has the checksums that its superblock asks for"),
    accepted("nomand", ALWAYS),
    accepted("nombcache", "attribute blocks are not shared anyway"),
    accepted("nomblk_io_submit", GONE),
    accepted("noorlov", GONE),
    accepted("noreservation", OWN_SEARCH),
    accepted("nouser_xattr", GONE),
    accepted("nowarn_on_error", ALWAYS),
    accepted("oldalloc", GONE),
    accepted("orlov", ALWAYS),
    accepted("prefetch_block_bitmaps", "bitmaps are read as they are used"),
    accepted("reservation", OWN_SEARCH),
    accepted("resgid", ROOT_ONLY),
    accepted("resuid", ROOT_ONLY),
    refused("sb", "only the first superblock is used; `e2fsck -b` repairs it from a copy"),
    refused("test_dummy_encryption", NO_KEYS),
    accepted("user_xattr", ALWAYS),
    refused("usrjquota", STALE_QUOTA),
    accepted("warn_on_error", "metadata corruption is always logged"),
];
