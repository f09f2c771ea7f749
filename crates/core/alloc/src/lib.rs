//! The allocator: tracks free clusters and hands them out.
//!
//! It knows nothing of ext4 and does no I/O. Storage is seen through [`GroupSource`], which loads the bitmap
//! of one group; the way back is [`Allocator::render_dirty`], which hands out the bitmaps to be written. All
//! lengths are in clusters.
//!
//! The one protocol is reserve -> write -> publish. [`Allocator::reserve`] takes a run in memory only and
//! returns it as a value; dropping the [`Reservation`] gives it back. The caller writes its data there, and
//! then [`Reservation::publish`] makes the run used in the *durable* bitmap, inside a transaction. A cluster
//! is in one of four states, and two bitmaps follow from them:
//!
//! | state | in-use bitmap (what may be allocated) | durable bitmap (what is written) |
//! |---|---|---|
//! | free | 0 | 0 |
//! | reserved | 1 | 0 |
//! | used | 1 | 1 |
//! | freed, its transaction not committed | 1 | 0 |
//!
//! Only the in-use bitmap is stored; the durable one is rendered as in use - reserved - freed.
//!
//! Invariants:
//! - a cluster is in exactly one state, and belongs to at most one reservation;
//! - free clusters in memory = available + claimed ([`Counts`]); with reserved and pending they add up to the
//!   free clusters of the durable bitmaps;
//! - a group with reservations, pending frees or unwritten changes stays in memory.
//!
//! Where a request goes is the business of the [`Policy`], which is put together from [mechanisms](Mechanism)
//! and becomes a table of passes over the groups (`criteria`). One driver (`search`) runs the table. It finds
//! candidates in an index of all groups (`index`) and space within a group in a buddy system (`buddy`). Size
//! classes (`size_class`) can set parts of the volume apart.
//!
//! Hazards: bitmaps and descriptor counts come from disk and are not trusted: a bitmap that does not hold as
//! many free clusters as announced is an error that names the group. A group's lock is held while its bitmap
//! is loaded, so a [`GroupSource`] must not call back. Locks: one group at a time (others are only
//! try-locked, to load them with it), then the lists of dirty, rendered and to be discarded groups and the
//! classes', which are leaves; in the program-wide lock order a group comes after an inode's data lock and
//! before a block. The callers check that order, not this crate.
//!
//! What it is not: a page cache, an inode's preallocation (that is reservations kept by the caller), or a
//! transaction manager (which reports transactions to it through [`Transaction`] and
//! [`Allocator::committed`]).

mod allocator;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench_support;
mod bits;
mod buddy;
mod budget;
mod contention;
mod counters;
mod criteria;
mod discard;
mod error;
mod group;
mod group_info;
mod group_table;
mod groups;
mod index;
mod invariants;
mod layout;
mod locked_group;
mod mechanism;
mod normalize;
mod policy;
mod prealloc;
mod ranges;
mod release_epoch;
mod request;
mod reservation;
mod search;
mod share;
mod size_class;
mod source;
mod state;
mod stats;
mod sync;
mod trace;
mod tunables;

pub use allocator::{Allocator, GroupSummary};
pub use counters::Counts;
pub use discard::DiscardRun;
pub use error::AllocError;
pub use layout::{Layout, Run};
pub use mechanism::{About, Mechanism, Mechanisms};
pub use policy::{Policy, UnknownPolicy};
pub use prealloc::{FileRequest, Preallocation, Window};
pub use request::{GoalFrom, Purpose, Request, Transaction};
pub use reservation::{Claim, Reservation};
pub use size_class::{BadClasses, SizeClasses, Stage};
pub use source::{GroupSource, Loaded};
pub use stats::{OrderCounts, Pass as Criterion, PassStats, PassesStats, StatsSnapshot, structs_summary};
pub use trace::{Answer, Asked, Ended, Event, NotMade, Recording, RequestTrace, Trace, What, Why};
pub use tunables::{BadTunable, Config, Tunables};

#[cfg(feature = "virtual")]
pub use sync::virtual_cpus;
