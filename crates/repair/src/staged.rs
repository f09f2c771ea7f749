//! A volume to be repaired: the device, the overlay that the repair works on, and between them, where an
//! earlier repair was interrupted, what that had changed, as it was before. And likewise the device of its
//! journal, if that is another.

use crate::report::{Error, Options, Repaired};
use crate::undo::{UndoError, interrupted_by, names_journal};
use crate::undo_file::{self, Content, Piece};
use crate::work::Overlay;
use hectare_device::Device;
use std::io::Read;
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
    fn new(device: Arc<dyn Device>, before: &[Piece]) -> Result<Self, UndoError> {
        let below = if before.is_empty() {
            Arc::clone(&device)
        } else {
            let below = Overlay::new(Arc::clone(&device));
            for piece in before {
                below.write_at(piece.at, &piece.old)?;
            }
            Arc::new(below) as Arc<dyn Device>
        };
        Ok(Self { device, overlay: Arc::new(Overlay::new(below)) })
    }
}

impl Staged {
    /// A device as it is, without a journal on another.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        let overlay = Arc::new(Overlay::new(Arc::clone(&device)));
        Self { device, before: None, overlay, now: None, journal: None }
    }

    /// Likewise, with the device that its journal lies on.
    #[must_use]
    pub fn with_journal(device: Arc<dyn Device>, journal: Option<Arc<dyn Device>>) -> Self {
        let journal = journal
            .map(|device| StagedJournal { overlay: Arc::new(Overlay::new(Arc::clone(&device))), device });
        Self { journal, ..Self::new(device) }
    }

    /// A device, and that of its journal if it is another, as they were before a repair that was interrupted,
    /// if the undo file is of such a repair of them.
    ///
    /// # Errors
    /// If a device fails; if the file can't be read or is none; if it is of a journal that is not given.
    pub fn resumed(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
        file: &mut dyn Read,
    ) -> Result<Option<Self>, UndoError> {
        let Content { header, pieces, journal: of_journal } = undo_file::read(file)?;
        if !interrupted_by(&*device, &header, &pieces)? {
            return Ok(None);
        }
        if journal.is_none() && !of_journal.is_empty() {
            return Err(UndoError::NeedsJournal);
        }
        if let Some(journal) = journal.as_ref().filter(|journal| !names_journal(&*device, &***journal)) {
            return Err(UndoError::ForeignJournal(journal.name().to_owned()));
        }
        let journal = journal.map(|device| StagedJournal::new(device, &of_journal)).transpose()?;
        let before = Overlay::new(Arc::clone(&device));
        if before.len() < header.after {
            before.resize(header.after)?;
        }
        for piece in &pieces {
            before.write_at(piece.at, &piece.old)?;
        }
        before.resize(header.before)?;
        let before = Arc::new(before);
        let overlay = Arc::new(Overlay::new(Arc::clone(&before) as Arc<dyn Device>));
        Ok(Some(Self { device, before: Some(before), overlay, now: Some(header.now), journal }))
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

    /// Repairs the volume, in memory.
    ///
    /// # Errors
    /// As [`crate::repair`] and [`crate::repair_with_journal`].
    pub fn repair(&self, options: &Options) -> Result<Repaired, Error> {
        crate::round::repair(&self.overlay, self.journal_overlay(), options)
    }

    /// The time that the interrupted repair stored, in seconds since 1970.
    #[must_use]
    pub fn now(&self) -> Option<u32> {
        self.now
    }
}
