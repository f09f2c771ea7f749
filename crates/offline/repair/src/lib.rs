//! Mends broken volumes: what e2fsck does in its passes 0 to 5, without writing before the end.
//!
//! [`repair`] works on an overlay and never on the device. A round goes through the volume once, subject by
//! subject, and makes each structure sound from what is left of it; then `hectare-check` judges the overlay,
//! and its findings decide what the next round looks at more closely. Only a volume that the check finds
//! sound is handed back, and the caller writes it with [`write_out`], which keeps what was there in an undo
//! file; one that was interrupted begins again from that ([`Staged::resumed`]). There is a bound on rounds;
//! beyond it the volume stays as it was and the first problem is named.
//!
//! A round ([`round`]), in order: superblock and journal ([`superblock`], [`log`]), group descriptors
//! ([`groups`]), orphans ([`orphans`]), inodes with attributes and maps ([`inodes`]), blocks with two owners
//! ([`blocks`]), inodes with a task ([`tasks`]), directories and the tree ([`directories`]), link counts
//! ([`links`]), quotas ([`quotas`]), bitmaps and counts ([`groups`]). All work on what is in [`know`], and
//! nothing is written below what is in [`stage`].
//!
//! Rules:
//! - *What can be kept is kept.* A broken node loses its broken entries and not the others; a block with two
//!   owners is copied for the second; what has no name gets one in `lost+found`.
//! - *Bitmaps are never believed.* What is in use follows from the inodes; the allocator of a round takes
//!   only what no inode claims, so it starts after all inodes were read.
//! - *A map, a directory or an attribute area that must change is made anew* from its sound parts, by the
//!   builders of the format crate: one way to write each.
//! - Every change is a [`Mend`] that says whether it loses something.
//!
//! Hazards: a map is read in the same way whenever it is read, so that what was claimed is what is written.
//!
//! Memory: what grows with changes (the overlay and the list of mends) and with the inodes in use (16 bytes
//! for each) is in pages of a [`PageStore`], which spills to a file beyond a limit. In memory alone are a bit
//! or three for each cluster, the entries of one directory, up to 60 bytes for each attribute block and some
//! for each inode with a conflict, and what the check takes.
//!
//! What this is not: it reads no content of files and does not find out whether it is damaged; it does not
//! look for inodes outside of inode tables.

mod blocks;
mod directories;
mod error;
mod groups;
mod inode_fields;
mod inodes;
mod know;
mod links;
mod log;
mod mends;
mod orphans;
mod quotas;
mod report;
mod round;
mod stage;
mod superblock;
mod tasks;

pub use error::Error;
pub use mends::{Mend, Mends};
pub use report::{Duplicates, Options, Repaired};
pub use stage::order::Order;
pub use stage::overlay::Overlay;
pub use stage::pages::PageStore;
pub use stage::staged::Staged;
pub use stage::undo::undo;
pub use stage::undo_file::UndoError;
pub use stage::write_out::write_out;

use std::sync::Arc;

/// Makes the volume on an overlay sound, without touching the device below.
///
/// # Errors
/// [`Error`] names what can't be mended; what the overlay holds is of no use then.
pub fn repair(device: &Arc<Overlay>, options: &Options) -> Result<Repaired, Error> {
    round::repair(device, None, options)
}

/// Likewise, of a volume whose journal lies on another device, with an overlay of that. A volume with its
/// journal inside is repaired as by [`repair`].
///
/// # Errors
/// As [`repair`]; if the device is not the volume's journal.
pub fn repair_with_journal(
    device: &Arc<Overlay>,
    journal: &Arc<Overlay>,
    options: &Options,
) -> Result<Repaired, Error> {
    round::repair(device, Some(journal), options)
}
