//! What a flush works on and what it comes to, whichever objects it puts.

use super::{StoreDevice, Writer};
use crate::codec::sum;
use crate::manifest::{Manifest, ObjectId, Slot};
use crate::patches::Patches;
use crate::staged::{Sealed, Source, or_below, read_log};
use crate::{Error, Result};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a flush is about.
pub(super) struct Work {
    pub(super) sealed: Arc<Sealed>,
    pub(super) base: Arc<Manifest>,
    /// Those of `base`.
    pub(super) patches: Arc<Patches>,
    /// The length that the volume gets.
    pub(super) len: u64,
    /// The content that the manifest gets.
    pub(super) content: u64,
}

/// A manifest whose objects are put, and what it no longer names.
pub(super) struct Next {
    pub(super) manifest: Manifest,
    pub(super) patches: Patches,
    pub(super) superseded: Vec<ObjectId>,
}

impl Work {
    /// Where the bytes of a range are that the patches or the log have.
    pub(super) fn sources(&self, range: &Range<u64>) -> Vec<(Range<u64>, Source)> {
        let newest = self.sealed.staged.sources(range, &self.sealed.file);
        or_below(newest, |range| self.patches.sources(range))
    }
}

impl StoreDevice {
    /// Puts bytes under a new name.
    pub(super) async fn put_object(&self, writer: &Writer, bytes: Bytes) -> Result<Slot> {
        let number = writer.next_number.fetch_add(1, Ordering::Relaxed);
        let id = ObjectId { session: writer.session, number };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let slot = Slot { id, len, sum: sum(&bytes) };
        self.base.bucket.put(&id.key(), bytes).await?;
        Ok(slot)
    }
}

/// Fills a part from where its bytes are; what lies below stays as it is.
pub(super) fn take(source: Source, part: &mut [u8]) -> Result<()> {
    match source {
        Source::Zero => part.fill(0),
        Source::Log(file, from) => read_log(&file, from, part)
            .map_err(|error| Error::Log(format!("the log of unflushed writes can't be read: {error}")))?,
        Source::Memory(bytes) => part.copy_from_slice(&bytes),
        Source::Below => {}
    }
    Ok(())
}
