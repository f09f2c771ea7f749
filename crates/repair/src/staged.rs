//! A volume to be repaired: the device, the overlay that the repair works on, and between them, where an
//! earlier repair was interrupted, what that had changed, as it was before.

use crate::undo::{UndoError, interrupted_by};
use crate::undo_file;
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
}

impl Staged {
    /// A device as it is.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        let overlay = Arc::new(Overlay::new(Arc::clone(&device)));
        Self { device, before: None, overlay, now: None }
    }

    /// A device as it was before a repair that was interrupted, if the undo file is of such a repair of it.
    ///
    /// # Errors
    /// If the device fails; if the file can't be read or is none.
    pub fn resumed(device: Arc<dyn Device>, file: &mut dyn Read) -> Result<Option<Self>, UndoError> {
        let (header, pieces) = undo_file::read(file)?;
        if !interrupted_by(&*device, &header, &pieces)? {
            return Ok(None);
        }
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
        Ok(Some(Self { device, before: Some(before), overlay, now: Some(header.now) }))
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

    /// The time that the interrupted repair stored, in seconds since 1970.
    #[must_use]
    pub fn now(&self) -> Option<u32> {
        self.now
    }
}
