//! The life of a transaction, a type for each state, so that no step can be left out or done twice.
//!
//! running -> locked (no handle is open, none can start) -> flushing (frozen; the next one runs) ->
//! committed.

use crate::barrier::{Barrier, Exclusive};
use crate::lock_order::{self, LockRank, Ranked};
use crate::sync::{Arc, AtomicU32, Ordering};
use hectare_units::TxnId;

/// What a volume does when a transaction commits.
pub trait Commit: Send + Sync {
    /// The state of all that was dirty, safe from later changes.
    type Frozen: Send;
    /// Why a commit failed. The first failure is final: the journal aborts.
    type Error: std::fmt::Display;

    /// Does, while handles are open still, what [`freeze`](Self::freeze) would have to do else, to make that
    /// short. It may be of no use: what handles change after it is frozen as it is then.
    fn prepare(&self, _txn: TxnId) {}

    /// Renders and freezes everything dirtied since the last freeze. No handle is open meanwhile, so it must
    /// be short: no I/O, and no lock above [`LockRank::Handle`].
    ///
    /// # Errors
    /// If the dirty state can't be rendered.
    fn freeze(&self, txn: TxnId) -> Result<Self::Frozen, Self::Error>;

    /// Writes the frozen state and returns when it is safe on the device. New handles run meanwhile.
    ///
    /// # Errors
    /// If a write or a flush fails.
    fn write(&self, frozen: Self::Frozen, txn: TxnId) -> Result<(), Self::Error>;

    /// The transaction is durable: what it freed may be used again. Runs before the waiters of the
    /// transaction are woken.
    fn committed(&self, txn: TxnId);

    /// How many blocks the running transaction would write if it were frozen now; never too few, but for
    /// what open handles have yet to dirty. Asked for each handle: cheap.
    fn gathered(&self) -> u32 {
        0
    }

    /// How many blocks one transaction may write; `u32::MAX` if any number.
    fn capacity(&self) -> u32 {
        u32::MAX
    }

    /// The journal was aborted, for that reason; called once.
    fn aborted(&self, _reason: &str) {}
}

impl<C: Commit> Commit for Arc<C> {
    type Frozen = C::Frozen;
    type Error = C::Error;

    fn prepare(&self, txn: TxnId) {
        C::prepare(self, txn);
    }

    fn freeze(&self, txn: TxnId) -> Result<Self::Frozen, Self::Error> {
        C::freeze(self, txn)
    }

    fn write(&self, frozen: Self::Frozen, txn: TxnId) -> Result<(), Self::Error> {
        C::write(self, frozen, txn)
    }

    fn committed(&self, txn: TxnId) {
        C::committed(self, txn);
    }

    fn gathered(&self) -> u32 {
        C::gathered(self)
    }

    fn capacity(&self) -> u32 {
        C::capacity(self)
    }

    fn aborted(&self, reason: &str) {
        C::aborted(self, reason);
    }
}

/// The transaction that handles join. There is one of it, and its owner is the committer.
#[derive(Debug)]
pub(crate) struct Running {
    id: TxnId,
}

/// A transaction whose handles are all closed, while the barrier keeps new ones out.
pub(crate) struct Locked<'a> {
    id: TxnId,
    // In this order: the barrier opens before the rank is left.
    _gate: Exclusive<'a>,
    _ranked: Ranked,
}

/// A frozen transaction on its way to the disk.
pub(crate) struct Flushing<F> {
    id: TxnId,
    frozen: F,
}

/// A transaction that is safe on disk.
pub(crate) struct Committed {
    id: TxnId,
}

impl Running {
    pub(crate) const fn new(id: TxnId) -> Self {
        Self { id }
    }

    pub(crate) const fn id(&self) -> TxnId {
        self.id
    }

    /// Does beforehand what can be done beside open handles.
    pub(crate) fn prepare<C: Commit>(&self, volume: &C) {
        volume.prepare(self.id);
    }

    /// Waits until every handle is closed and keeps new ones out.
    pub(crate) fn lock(self, barrier: &Barrier) -> Locked<'_> {
        let ranked = lock_order::enter(LockRank::Handle);
        Locked { id: self.id, _gate: barrier.exclude(), _ranked: ranked }
    }
}

impl Locked<'_> {
    /// Freezes what is dirty, opens the next transaction and lets handles in. On failure `failed` is called
    /// before any handle is let in.
    pub(crate) fn freeze<C: Commit, E>(
        self,
        volume: &C,
        running: &AtomicU32,
        failed: impl FnOnce(&C::Error) -> E,
    ) -> Result<(Flushing<C::Frozen>, Running), E> {
        let frozen = volume.freeze(self.id).map_err(|error| failed(&error))?;
        let next = Running::new(self.id.next());
        running.store(next.id.get(), Ordering::Release);
        Ok((Flushing { id: self.id, frozen }, next))
    }
}

impl<F: Send> Flushing<F> {
    /// Writes what was frozen.
    pub(crate) fn write<C: Commit<Frozen = F>>(self, volume: &C) -> Result<Committed, C::Error> {
        volume.write(self.frozen, self.id)?;
        Ok(Committed { id: self.id })
    }
}

impl Committed {
    /// Lets the volume release what waited for the transaction.
    pub(crate) fn release<C: Commit>(self, volume: &C) -> TxnId {
        volume.committed(self.id);
        self.id
    }
}
