//! Changes what a volume is set to, without touching the content of its files: label, UUID, reserved blocks,
//! intervals of checks, features, journal, quotas, size of inodes; what tune2fs does.
//!
//! [`tune`] first does everything on a copy in memory (an overlay), so that a change that fails half-way
//! leaves the volume as it is. Where more than the superblock changes, the checker must find the volume sound
//! before and after. Then it is done in earnest, in rounds of which each leaves a sound volume ([`rounds`]),
//! and each is written so that a crash can be survived ([`commit`]).
//!
//! - [`Changes`] is what to do; `fields` sets what only the superblock has; `features` turns features on and
//!   off, with `quotas`, `hidden`, `shape` and `reseal` for what those bring with them.
//! - `volume` is the volume on the overlay: groups, bitmaps, inodes, free space; `file` makes and frees the
//!   files that belong to the volume itself; `journal` and `external` are about journals.
//! - `reseal` goes over everything that has a checksum or another form: directories (`directories`), maps
//!   (`block_maps`). `slots` makes inodes larger.
//!
//! Hazards: the device must not be in use by anyone else; opening it with a lock is the caller's part. A
//! volume whose journal must be replayed is refused, since the log would write old blocks over the changes.
//!
//! What it is not: a repair, or a way to a volume of another size.

mod block_maps;
mod change;
mod commit;
mod directories;
mod error;
mod external;
mod features;
mod fields;
mod file;
mod hidden;
mod journal;
mod quotas;
mod reseal;
mod rounds;
mod run;
mod shape;
mod slots;
mod tree;
mod usage;
mod volume;

pub use change::{Changes, ExternalJournal, FeatureEdit, QuotaEdit, Reserved};
pub use error::{Error, Result};
pub use run::{Outcome, tune};
