//! Which parts of a file are holes, as its file system says. It may take a hole for data, never data for one.
//!
//! Hazard: to find where data ends, some file systems look at every page up to there (tmpfs: 14 ms for each
//! GiB). Many short questions about one long run of data must not cost that each time, so the last run is kept.

use crate::{Extent, Span};
use hectare_units::Bytes;
use parking_lot::Mutex;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;

/// The last run of data that was found. What became a hole since is still taken for data, which it may be.
#[derive(Default)]
pub(super) struct LastData(Mutex<Range<u64>>);

impl LastData {
    /// Forgets it: there may be a new hole.
    pub(super) fn forget(&self) {
        *self.0.lock() = 0..0;
    }

    /// The extent at the start of a range; data where the file system can't say.
    pub(super) fn extent_at(&self, file: &File, span: Span) -> Extent {
        let at = span.at.get();
        let until = |place: u64| Bytes::new(place).saturating_sub(span.at).min(span.len);
        let last = self.0.lock().clone();
        if last.contains(&at) {
            return Extent::data(until(last.end));
        }
        // Moves the file's own offset, which nothing here uses.
        match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data > at => Extent::zeros(until(data)),
            Ok(_) => match seek(file, SeekFrom::Hole(at)) {
                Ok(hole) if hole > at => {
                    *self.0.lock() = at..hole;
                    Extent::data(until(hole))
                }
                // A hole was punched meanwhile, or the file system can't say.
                _ => Extent::data(span.len),
            },
            // There is no data from here to the end.
            Err(Errno::NXIO) => Extent::zeros(span.len),
            Err(_) => Extent::data(span.len),
        }
    }
}
