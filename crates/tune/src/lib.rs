//! Changes what a volume is set to, without touching its files: label, UUID, reserved blocks, intervals of
//! checks, features, journal, quotas; what tune2fs does.
//!
//! [`tune`] does everything on a copy in memory (an overlay), so that a change that fails half-way leaves the
//! volume as it is. Where more than the superblock changes, the checker must find the volume sound before and
//! after. Then the copy is written ([`commit`]): everything but the superblock, and the superblock last.
//!
//! - [`Changes`] is what to do; `fields` sets what only the superblock has; `features` turns features on and
//!   off, with `journal`, `quotas`, `hidden` and `reseal` for what those bring with them.
//! - `volume` is the volume on the overlay: groups, bitmaps, inodes, free space; `file` makes and frees the
//!   files that belong to the volume itself.
//! - `reseal` writes every checksum anew: where they are turned on or off, or start from another UUID.
//!
//! Hazards: the device must not be in use by anyone else; opening it with a lock is the caller's part. A
//! volume whose journal must be replayed is refused, since the log would write old blocks over the changes.
//!
//! What it is not: it moves no inode tables (larger inodes) and no blocks (64bit), and it rebuilds no
//! directories; those are refused by name.

mod change;
mod commit;
mod error;
mod features;
mod fields;
mod file;
mod hidden;
mod journal;
mod quotas;
mod reseal;
mod run;
mod tree;
mod volume;

pub use change::{Changes, FeatureEdit, QuotaEdit, Reserved};
pub use error::{Error, Result};
pub use run::{Outcome, tune};
