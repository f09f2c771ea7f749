//! Transactions: begins them, and refuses them once changes have ended.
//!
//! Hazard: never wait for anything while a handle is open; a commit may be waiting for it.

use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::state::{Core, aborted};
use crate::stores::inode_cache::CachedInode;
use hectare_journal::{Credits, Handle};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

impl Core {
    /// Returns an error for an inode that is freed, immutable or of a form that can't be written yet.
    pub(crate) fn check_changeable(&self, inode: &CachedInode) -> Result<()> {
        self.check_takes_changes()?;
        inode.check_alive()?;
        let flags = inode.get().flags;
        Deed::Alter.check(flags, inode.nr())
    }

    /// Ends all changes, like [`crate::Volume::end_changes`].
    pub(crate) fn end_changes(&self, reason: impl Display) {
        if self.state.read_only {
            return;
        }
        // This thread may be unwinding already. The end is known before it is written down.
        let _ = catch_unwind(AssertUnwindSafe(|| self.journal.abort(reason)));
    }

    /// Opens a transaction. Don't wait for anything while it is open.
    #[track_caller]
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        self.check_takes_changes()?;
        let credits = credits.saturating_add(self.state.quota_credits());
        self.journal.start(Credits::new(credits)).map_err(aborted)
    }

    /// Returns an error if the volume is open for reading only, closed, or has failed. File data goes to the
    /// device without a transaction, so writers of it call this first.
    pub(crate) fn check_takes_changes(&self) -> Result<()> {
        if self.state.read_only {
            return Err(Error::ReadOnly);
        }
        if self.state.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.react()?;
        self.journal.check().map_err(aborted)
    }

    /// Ends all changes if corruption was found that requires it.
    pub(crate) fn react(&self) -> Result<()> {
        match self.state.findings.stop() {
            Some(reason) => Err(aborted(self.journal.abort(reason))),
            None => Ok(()),
        }
    }

    /// Stops the volume's thread, for callers that have ended all changes.
    pub(crate) fn stop_background(&self) {
        if let Some(background) = self.background.get() {
            background.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::open::assemble::tests::unformatted;

    #[test]
    fn changes_are_refused_by_the_reason_that_applies() {
        let core = unformatted(OpenOptions::default());
        assert!(core.start(1).is_ok());
        core.end_changes("the test says so");
        let refused = core.start(1).map(drop);
        assert!(matches!(&refused, Err(Error::Aborted(why)) if why == "the test says so"), "{refused:?}");
        core.state.closed.store(true, Ordering::Release);
        assert!(matches!(core.check_takes_changes(), Err(Error::Closed)));
        let core = unformatted(OpenOptions::read_only());
        core.end_changes("nothing to end");
        assert!(matches!(core.check_takes_changes(), Err(Error::ReadOnly)));
    }
}
