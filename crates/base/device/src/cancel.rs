//! The wish of a caller that a long call end early.
//!
//! A [`Cancel`] is shared between the thread that runs a call and those that may end it. Long work asks it at
//! *checkpoints*: places where ending does no harm, some thousand operations or a piece of a large copy
//! apart. A [`CancelDevice`](crate::CancelDevice) makes each operation of a device one.
//!
//! Invariant: a wish is never withdrawn. So work whose error was swallowed on its way can ask at the end
//! whether there was one, before it makes anything final.
//!
//! What it is not: a way to end one system call that hangs, or a thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a checkpoint asks besides the wish: true to end the call.
type Poll = dyn Fn() -> bool + Send + Sync;

/// A wish to end a call early; clones share it.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    asked: AtomicBool,
    poll: Option<Box<Poll>>,
}

impl Cancel {
    /// One that nobody has expressed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Likewise; every checkpoint also calls `poll`, from whichever thread it is on, and `true` cancels. It
    /// should be quick: there are many checkpoints.
    pub fn polling(poll: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { asked: AtomicBool::new(false), poll: Some(Box::new(poll)) }))
    }

    /// Expresses it, for all clones and for good.
    pub fn cancel(&self) {
        self.0.asked.store(true, Ordering::Relaxed);
    }

    /// Whether the wish was expressed. Polls nothing, and is no checkpoint.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// A checkpoint: whether the call is to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        if self.0.asked.load(Ordering::Relaxed) {
            return true;
        }
        let wants_end = self.0.poll.as_ref().is_some_and(|poll| poll());
        if wants_end {
            self.cancel();
        }
        wants_end
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.0.asked.load(Ordering::Relaxed)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_wish_is_shared_and_never_taken_back() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let cancel = Cancel::polling(move || counted.fetch_add(1, Ordering::Relaxed) == 1);
        let other = cancel.clone();
        assert!(!cancel.is_cancelled());
        assert!(other.is_cancelled() && cancel.is_cancelled() && other.is_cancelled());
        assert_eq!(calls.load(Ordering::Relaxed), 2, "who knows asks no more");
        let plain = Cancel::new();
        assert!(!plain.is_cancelled());
        let same = plain.clone();
        same.cancel();
        assert!(plain.is_cancelled() && same.is_cancelled());
    }
}
