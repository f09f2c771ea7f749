//! Grows and shrinks ext4 volumes that are not mounted.
//!
//! A resize is a chain of states, each of which is a sound volume:
//!
//! 1. *evacuated*: nothing is in use any more where groups go away, or where descriptors need room;
//! 2. *reshaped*: more groups or fewer, and their descriptors.
//!
//! The steps between them are staged in an overlay, the last state is checked by `hectare-check`, and only
//! then they are written, one by one, each as a transaction of the volume's journal (`commit` says how a
//! crash is survived). Data of files that move is copied before, to blocks that are free (`copies`).
//!
//! Invariants:
//! - what is in use is never overwritten by data;
//! - memory holds the changed old metadata and the descriptors; not bitmaps, tables or data of new groups.
//!
//! Hazards: the volume must not be mounted or written meanwhile; the caller holds a lock on the device.
//!
//! What it is not: a repair. A volume that is not clean or not sound is refused.

mod admit;
mod bitmap;
mod commit;
mod convert;
mod copies;
mod error;
mod evacuate;
mod inodes;
mod journal;
mod loan;
mod metadata;
mod minimum;
mod places;
mod reserve;
mod reshape;
mod resize;
mod run;
mod staging;
mod target;
mod tree;
mod volume;

pub use convert::{CONVERTED, convert, is_journal_in, make_room, room};
pub use error::{Error, Result};
pub use journal::Journal;
pub use resize::{Target, estimate, resize};
pub use run::{Options, Outcome};
pub use target::Width;
