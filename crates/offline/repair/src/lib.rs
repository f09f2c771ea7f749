//! Mends broken volumes: what e2fsck does in its passes 0 to 5, without writing before the end.
//!
//! [`repair`] works on an overlay and never on the device. A round goes through the volume once, subject by
//! subject, and makes each structure sound from what is left of it; then `hectare-check` judges the overlay,
//! and its findings decide what the next round looks at more closely. Only a volume that the check finds
//! sound is handed back, and the caller writes it with [`write_out`], which keeps what was there in an undo
//! file; one that was interrupted begins again from that ([`Staged::resumed`]). There is a bound on rounds;
//! beyond it the volume stays as it was and the first problem is named.
//!
//! A round, in order: superblock and journal ([`superblock`], [`journal`], [`forgotten`]), group descriptors
//! ([`groups`], [`descriptor_choice`]), orphans ([`orphans`]), inodes with attributes and maps ([`inodes`],
//! [`attributes`], [`maps`]), blocks with two owners ([`claims`]), inodes with a task ([`reserved`]),
//! directories ([`directories`]), the tree ([`connectivity`]), link counts ([`links`]), quotas ([`quotas`]),
//! bitmaps and counts ([`bitmaps`]).
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

mod allot;
mod attributes;
mod bitmaps;
mod claims;
mod connectivity;
mod descriptor_choice;
mod directories;
mod directory_content;
mod error;
mod features;
mod forgotten;
mod groups;
mod hashed_directory;
mod inode_fields;
mod inodes;
mod journal;
mod known;
mod links;
mod log_age;
mod log_place;
mod map;
mod maps;
mod mends;
mod names;
mod noted;
mod order;
mod orphans;
mod overlay;
mod pages;
mod places;
mod quotas;
mod replay;
mod report;
mod reserved;
mod round;
mod slot;
mod staged;
mod store_map;
mod stored;
mod superblock;
mod superblock_search;
mod symlinks;
mod task_inodes;
mod task_numbers;
mod tasks;
mod undo;
mod undo_file;
mod work;
mod write_out;

pub use error::Error;
pub use mends::{Mend, Mends};
pub use order::Order;
pub use overlay::Overlay;
pub use pages::PageStore;
pub use report::{Duplicates, Options, Repaired};
pub use staged::Staged;
pub use undo::undo;
pub use undo_file::UndoError;
pub use write_out::write_out;

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
