//! Journalled transactions: changes of metadata that become durable together.
//!
//! An operation that changes metadata opens a [`Handle`] with [`Journal::start`], makes its changes in
//! memory and closes the handle. All handles between two commits belong to one transaction.
//! [`Journal::commit`] ends the running transaction: for a moment it keeps every handle out (the barrier),
//! has the volume freeze what is dirty, opens the next transaction, lets handles in again, and writes the
//! frozen state beside the new work. What to freeze and how to write it is the business of the volume's
//! [`Commit`]; this crate only decides which thread waits for which.
//!
//! Frozen blocks go to the [`Log`], in the format of jbd2 ([`mod@format`]), and when they are durable there,
//! to the checkpoint ([`Pending`]). After a crash [`recovery`] finds the logged blocks that were not
//! checkpointed. A volume without a journal writes the frozen blocks to their places itself; a crash in the
//! middle of that is not covered.
//!
//! Invariants:
//! - no handle is open while [`Commit::freeze`] runs, so no operation is seen half done;
//! - a handle's [`txn`](Handle::txn) is the transaction that the next freeze after its start freezes;
//! - transactions are committed one after another, in the order of their ids;
//! - after the first failure nothing is committed any more, and every call returns that error ([`Aborted`]);
//!   a panic with a handle open is such a failure.
//!
//! Hazards: a handle must be short and must not wait for a commit, or for a lock whose owner waits for one; a
//! second handle on the same thread would wait for a commit that waits for the first. [`lock_order`] catches
//! both in debug builds. Failed operations are not undone: what was changed in memory before an error is
//! committed with the rest, so an operation checks first and changes last, or [aborts](Journal::abort).
//!
//! What it is not: a cache (the volume keeps the dirty state), or a timer (the volume decides when to
//! commit).

mod barrier;
mod checkpoint;
mod commit_batching;
mod commit_latency;
mod credits;
pub mod format;
mod handle;
mod journal;
pub mod lock_order;
mod log;
pub mod recovery;
mod sync;
mod transaction;

pub use checkpoint::{MetadataView, Pending, lay_over, write_sorted};
pub use commit_latency::JournalStats;
pub use credits::Owed;
pub use handle::{Credits, Handle};
pub use journal::{Aborted, Journal};
pub use log::{Log, LogError, Logged, LoggedBlock};
pub use transaction::Commit;
