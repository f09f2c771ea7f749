//! Handles: the right to change metadata as part of the running transaction.

use crate::barrier;
use crate::credits::Leases;
use crate::lock_order::Ranked;
use hectare_alloc::Transaction;
use hectare_units::TxnId;
use std::panic::Location;
use std::thread;

/// How many metadata blocks an operation may dirty at most; what a log must have room for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Credits(u32);

impl Credits {
    /// No block at all.
    pub const ZERO: Self = Self(0);

    /// `n` blocks.
    #[must_use]
    pub const fn new(n: u32) -> Self {
        Self(n)
    }

    /// The number of blocks.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// What two parts of an operation need together.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

/// Room in the transaction, given back at the end of the handle.
pub(crate) struct Lease<'a> {
    pub(crate) leases: &'a Leases,
    pub(crate) blocks: u32,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.leases.give(self.blocks);
        }
    }
}

impl std::fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "room for {} blocks", self.blocks)
    }
}

/// Is notified when a handle ended with its operation half done.
pub(crate) trait Ends {
    /// A panic left the operation that began at `place` where it was. Nothing may be committed any more.
    fn unwound(&self, txn: TxnId, place: &'static Location<'static>);
}

/// Reports a handle that ends by unwinding: its changes are then half done.
pub(crate) struct Whole<'a> {
    journal: &'a dyn Ends,
    txn: TxnId,
    place: &'static Location<'static>,
    /// Whether the handle was opened while its thread was unwinding already, for another reason.
    unwinding: bool,
}

impl<'a> Whole<'a> {
    pub(crate) fn new(journal: &'a dyn Ends, txn: TxnId, place: &'static Location<'static>) -> Self {
        Self { journal, txn, place, unwinding: thread::panicking() }
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.unwinding {
            self.journal.unwound(self.txn, self.place);
        }
    }
}

impl std::fmt::Debug for Whole<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "begun at {}", self.place)
    }
}

/// An open handle. While one is open its transaction can't be frozen, so everything done under it is
/// committed together or not at all.
///
/// [`stop`](Self::stop) closes it; so does dropping it, as `?` does on an error path. Both do the same: what
/// was changed stays changed and will be committed. An operation that fails halfway and leaves metadata that
/// must not be committed calls [`Journal::abort`](crate::Journal::abort). A panic leaves metadata so wherever
/// it strikes: a handle that is dropped while its thread unwinds aborts the journal before anyone commits.
#[must_use = "a handle that is dropped at once covers nothing"]
#[derive(Debug)]
pub struct Handle<'a> {
    // In this order: half a change is reported while the share still keeps commits out, and the lease and the
    // share are returned before the rank is left.
    whole: Whole<'a>,
    _lease: Lease<'a>,
    _share: barrier::Shared<'a>,
    _ranked: Ranked,
    credits: Credits,
    dirtied: Credits,
}

impl<'a> Handle<'a> {
    pub(crate) const fn new(
        whole: Whole<'a>,
        lease: Lease<'a>,
        share: barrier::Shared<'a>,
        ranked: Ranked,
        credits: Credits,
    ) -> Self {
        Self { whole, _lease: lease, _share: share, _ranked: ranked, credits, dirtied: Credits::ZERO }
    }

    /// The transaction it belongs to. To wait for what was done under the handle, close it and call
    /// [`commit_through`](crate::Journal::commit_through) with this.
    #[must_use]
    pub const fn txn(&self) -> TxnId {
        self.whole.txn
    }

    /// Counts one more block that this handle has dirtied; `what` names it should the credits be exceeded.
    ///
    /// # Panics
    /// In debug builds, if more blocks are dirtied than the handle was started for.
    #[track_caller]
    pub fn dirtied(&mut self, what: &str) {
        self.dirtied = self.dirtied.and(Credits::new(1));
        debug_assert!(
            self.dirtied <= self.credits,
            "{what} is block {} that a handle with credits for {} dirties",
            self.dirtied.get(),
            self.credits.get(),
        );
    }

    /// Blocks that may still be dirtied.
    #[must_use]
    pub const fn credits_left(&self) -> Credits {
        Credits(self.credits.0.saturating_sub(self.dirtied.0))
    }

    /// Closes the handle.
    pub fn stop(self) {}
}

impl Transaction for Handle<'_> {
    fn id(&self) -> TxnId {
        self.txn()
    }
}
