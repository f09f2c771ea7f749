//! A volume to be repaired: the device, the overlay that the repair works on, and between them, where an
//! earlier repair was interrupted, what that had changed, as it was before. And likewise the device of its
//! journal, if that is another.

use crate::stage::overlay::Overlay;
use crate::stage::pages::PageStore;
use crate::stage::undo::{interrupted_by, names_journal};
use crate::stage::undo_file::{self, Of, UndoError};
use hectare_device::Device;
use std::io::{Read, Seek};
use std::sync::Arc;

/// A device, and a repair's changes over it.
pub struct Staged {
    device: Arc<dyn Device>,
    before: Option<Arc<Overlay>>,
    overlay: Arc<Overlay>,
    now: Option<u32>,
    journal: Option<StagedJournal>,
}

/// The journal's own device, and its changes over it.
pub(crate) struct StagedJournal {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) overlay: Arc<Overlay>,
}

impl StagedJournal {
    /// A journal's device with nothing between it and the changes.
    fn new(device: Arc<dyn Device>, store: &Arc<PageStore>) -> Self {
        let below = Arc::clone(&device);
        Self { device, overlay: Arc::new(Overlay::within(below, Arc::clone(store))) }
    }

    /// Likewise, with `before` between.
    fn over(device: Arc<dyn Device>, before: Overlay, store: &Arc<PageStore>) -> Self {
        Self { device, overlay: Arc::new(Overlay::within(Arc::new(before), Arc::clone(store))) }
    }
}

impl Staged {
    /// A device as it is, without a journal on another, and with what is staged in memory.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self::with_journal(device, None, &Arc::new(PageStore::in_memory()))
    }

    /// Likewise, with the device that its journal lies on, and with what is staged in `store`.
    #[must_use]
    pub fn with_journal(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
        store: &Arc<PageStore>,
    ) -> Self {
        let overlay = Arc::new(Overlay::within(Arc::clone(&device), Arc::clone(store)));
        let journal = journal.map(|device| StagedJournal::new(device, store));
        Self { device, before: None, overlay, now: None, journal }
    }

    /// A device, and that of its journal if it is another, as they were before a repair that was interrupted,
    /// if the undo file is of such a repair of them; with what is staged in `store`.
    ///
    /// # Errors
    /// If a device or the store fails; if the file can't be read or is none; if it is of a journal that is
    /// not given.
    pub fn resumed<F: Read + Seek>(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
        file: &mut F,
        store: &Arc<PageStore>,
    ) -> Result<Option<Self>, UndoError> {
        let (header, old) = undo_file::head(file)?;
        if !interrupted_by(&*device, &header, old.as_ref())? {
            return Ok(None);
        }
        undo_file::scan(file, |_, _| Ok(()))?;
        if journal.is_none() && header.with_journal {
            return Err(UndoError::NeedsJournal);
        }
        if let Some(journal) = journal.as_ref().filter(|journal| !names_journal(&*device, &***journal)) {
            return Err(UndoError::ForeignJournal(journal.name().to_owned()));
        }
        let under = |device: &Arc<dyn Device>| Overlay::within(Arc::clone(device), Arc::clone(store));
        let (before, of_journal) = (under(&device), journal.as_ref().map(under));
        if before.len() < header.after {
            before.resize(header.after)?;
        }
        undo_file::scan(file, |of, piece| match (of, &of_journal) {
            (Of::Volume, _) => Ok(before.write_at(piece.at, &piece.old)?),
            (Of::Journal, Some(journal)) => Ok(journal.write_at(piece.at, &piece.old)?),
            (Of::Journal, None) => Err(UndoError::NeedsJournal),
        })?;
        before.resize(header.before)?;
        let before = Arc::new(before);
        let overlay = Overlay::within(Arc::clone(&before) as Arc<dyn Device>, Arc::clone(store));
        let journal =
            journal.zip(of_journal).map(|(device, before)| StagedJournal::over(device, before, store));
        let (overlay, now) = (Arc::new(overlay), Some(header.now));
        Ok(Some(Self { device, before: Some(before), overlay, now, journal }))
    }

    /// Makes what was staged independent of free space: what is not in memory for good is durable in the file
    /// that it spills to. [`crate::write_out`] begins with it.
    ///
    /// # Errors
    /// [`UndoError::Spill`] if the storage of that file is full or fails.
    pub fn settle(&self) -> Result<(), UndoError> {
        let store = self.overlay.store();
        let settled = store.settle().map_err(UndoError::Spill);
        store.failure().map_or(settled, |failure| Err(UndoError::Spill(failure)))
    }

    /// The device below everything.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What an interrupted repair had changed, as it was before.
    #[must_use]
    pub fn before(&self) -> Option<&Arc<Overlay>> {
        self.before.as_ref()
    }

    /// Where the repair works.
    #[must_use]
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// Where the repair works on the journal's own device.
    #[must_use]
    pub fn journal_overlay(&self) -> Option<&Arc<Overlay>> {
        self.journal.as_ref().map(|journal| &journal.overlay)
    }

    pub(crate) fn journal(&self) -> Option<&StagedJournal> {
        self.journal.as_ref()
    }

    /// The time that the interrupted repair stored, in seconds since 1970.
    #[must_use]
    pub fn now(&self) -> Option<u32> {
        self.now
    }
}
