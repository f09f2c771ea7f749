//! What the kernel's ext4 takes and has no use here: so that a line of `fstab` that mounts there mounts here.
//!
//! An option is accepted, with a line in the log, if what it asks for is so anyway, or if going on without it
//! keeps at least what it would. It is refused where that would be wrong: limits that nobody would enforce,
//! files that would get stale, bytes that nobody would encrypt.
//!
//! The names are those of the kernel's documentation (`Documentation/admin-guide/ext4.rst`) and of mount(8).
//! Not here: options that do something ([`super::table`]).

use super::table::{OptionRow, accepted, refused};

const ALWAYS: &str = "it is so always";
const FLUSHES: &str = "a commit always waits for the device";
const VALIDATED: &str = "blocks are always checked for being free to use";
const BATCHES: &str = "commits are not put off for others to join";
const ENFORCED_NOWHERE: &str = "the volume keeps no quota, and none is enforced";
const STALE_QUOTA: &str = "the quota file would not be kept up to date";
const ROOT_ONLY: &str = "reserved blocks are for root, where only root can come to the mount";
const GONE: &str = "the kernel has no such option any more either";
const OWN_SEARCH: &str = "space is found by policy=";
const NO_DAX: &str = "files can't be mapped past the page cache through FUSE";
const NO_KEYS: &str = "there is no encryption here";
const NO_JOURNAL: &str = "a volume with its journal on another device can't be mounted";

/// In the order of their names.
pub(super) static OPTIONS: &[OptionRow] = &[
    refused("abort", "nothing can be aborted before it is mounted; mount with ro"),
    accepted("auto_da_alloc", ALWAYS),
    accepted("barrier", FLUSHES),
    accepted("bh", GONE),
    accepted("block_validity", VALIDATED),
    accepted("check", GONE),
    refused("dax", NO_DAX),
    accepted("dioread_lock", "unwritten blocks never show, with or without"),
    accepted("dioread_nolock", "unwritten blocks never show, with or without"),
    accepted("grpquota", ENFORCED_NOWHERE),
    refused("grpjquota", STALE_QUOTA),
    accepted("i_version", ALWAYS),
    accepted("init_itable", "inode tables are written as they are used"),
    refused("inlinecrypt", NO_KEYS),
    accepted("inode_readahead_blks", "inode tables are read as they are used"),
    accepted("iversion", ALWAYS),
    accepted("journal_async_commit", FLUSHES),
    accepted("journal_checksum", "the journal has the checksums that its superblock asks for"),
    refused("journal_dev", NO_JOURNAL),
    accepted("journal_ioprio", "the log is written with the server's priority"),
    refused("journal_path", NO_JOURNAL),
    refused("jqfmt", STALE_QUOTA),
    accepted("mand", GONE),
    accepted("max_batch_time", BATCHES),
    refused("max_dir_size_kb", "directories can't be limited"),
    accepted("mblk_io_submit", GONE),
    accepted("min_batch_time", BATCHES),
    accepted("no_mbcache", "attribute blocks are not shared anyway"),
    accepted("no_prefetch_block_bitmaps", "bitmaps are read as they are used"),
    accepted("noauto_da_alloc", "a file that replaces another has its content first, always"),
    accepted("nobarrier", FLUSHES),
    accepted("nobh", GONE),
    accepted("noblock_validity", VALIDATED),
    accepted("nocheck", GONE),
    accepted("noi_version", "the version is counted always"),
    accepted("noinit_itable", "inode tables are written as they are used"),
    accepted("nojournal_checksum", "the journal has the checksums that its superblock asks for"),
    accepted("nomand", ALWAYS),
    accepted("nombcache", "attribute blocks are not shared anyway"),
    accepted("nomblk_io_submit", GONE),
    accepted("noorlov", GONE),
    accepted("noquota", ALWAYS),
    accepted("noreservation", OWN_SEARCH),
    accepted("nouser_xattr", GONE),
    accepted("nowarn_on_error", ALWAYS),
    accepted("oldalloc", GONE),
    accepted("orlov", ALWAYS),
    accepted("prefetch_block_bitmaps", "bitmaps are read as they are used"),
    accepted("prjquota", ENFORCED_NOWHERE),
    accepted("quota", ENFORCED_NOWHERE),
    accepted("reservation", OWN_SEARCH),
    accepted("resgid", ROOT_ONLY),
    accepted("resuid", ROOT_ONLY),
    refused("sb", "only the first superblock is used; `e2fsck -b` repairs it from a copy"),
    refused("test_dummy_encryption", NO_KEYS),
    accepted("user_xattr", ALWAYS),
    accepted("usrquota", ENFORCED_NOWHERE),
    refused("usrjquota", STALE_QUOTA),
    accepted("warn_on_error", "broken metadata is always logged"),
];
