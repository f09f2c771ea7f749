//! The checker: reports whether a volume is sound, without changing it.
//!
//! [`check`] walks everything the format holds, once: superblock and group descriptors, every inode with its
//! map and attributes, every directory with its index, then the connections between them, and last the
//! bitmaps and counts, which must agree with the findings of the walk. It judges as `e2fsck -fn` does, so
//! that a crash test can get the tool's verdict a million times in-process. It is stricter where the kernel
//! is: checksums of group descriptors, depths of extent nodes, and metadata of uninitialised groups that a
//! bitmap leaves free; and where one name is in two blocks of a directory. A journal on another device is
//! checked if it is given ([`check_with_journal`]).
//!
//! Rules:
//! - *Nothing is trusted.* Any bytes give a report or an error: no panic, no loop, no read outside the
//!   device. A block that is claimed a second time is reported and not descended into, which bounds every
//!   walk by the size of the volume.
//! - *Everything is read once*, and file data not at all; the only content read is that of directories,
//!   symbolic links, quota files, the journal's superblock and the orphan file. Where several threads find
//!   something in inodes or directories, one reads all anew, so that the report has one order (`parts`).
//! - *What can't be judged is named* in [`Report::unchecked`]. It is no problem, so that a report that is
//!   clean may have some: a volume is known to be sound if it is clean and nothing was left unchecked.
//! - Findings are data ([`Problem`]): printing and exit codes are the caller's.
//!
//! Memory: a bit for each cluster of those parts of the volume whose use is more than one run, and a byte for
//! each inode in use and its neighbours, more for those with several links or some other thing to say; of
//! directories, for each thread some blocks and a hash of each name of one directory.
//!
//! What this is not: it repairs nothing, replays no journal (a volume that needs it is judged as it is on
//! disk, and needing it is a problem).

mod attributes;
mod bitmaps;
mod bits;
mod blocks;
mod content;
mod context;
mod directory;
mod external_journal;
mod groups;
mod htree;
mod inodes;
mod late_times;
mod links;
mod map;
mod names;
mod parts;
mod progress;
mod quotas;
mod raw_inode;
mod records;
mod report;
mod reserved_inodes;
mod steps;
mod symlink;
mod threads;
mod unread;

pub use bitmaps::own_metadata;
pub use bits::{Bits, count_ones};
pub use hectare_ext4::error::Place;
pub use progress::{Step, Watch};
pub use raw_inode::RawInode;
pub use records::{Record, records};
pub use report::{Counts, Digest, Error, Options, Problem, Report, What};
pub use symlink::encrypted_len;

use hectare_device::Device;

/// Checks the volume on `device`.
///
/// # Errors
/// If the device can't be read, or the volume is one that can't be checked at all: [`Error`] names why. A
/// broken volume is no error but a report with problems.
pub fn check(device: &dyn Device, options: &Options) -> Result<Report, Error> {
    steps::run(device, None, options, &|_, _, _| ())
}

/// Likewise, of a volume whose journal is the device `journal`: that it is this volume's, and has nothing to
/// be replayed that the volume does not say. A volume with its journal inside is checked as by [`check`].
///
/// # Errors
/// As [`check`]; if the journal's device can't be read.
pub fn check_with_journal(
    device: &dyn Device,
    journal: &dyn Device,
    options: &Options,
) -> Result<Report, Error> {
    steps::run(device, Some(journal), options, &|_, _, _| ())
}

/// As [`check`], or [`check_with_journal`] if there is one, and reports how far it is.
///
/// # Errors
/// As these.
pub fn check_watched(
    device: &dyn Device,
    journal: Option<&dyn Device>,
    options: &Options,
    watch: &Watch<'_>,
) -> Result<Report, Error> {
    steps::run(device, journal, options, watch)
}
