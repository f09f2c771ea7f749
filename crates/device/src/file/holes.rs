//! Which parts of a file are holes, as its file system says. It may take a hole for data, never data for one.

use crate::{Extent, Span};
use hectare_units::Bytes;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;

/// The extent at the start of a range; data where the file system can't say.
pub(super) fn extent_at(file: &File, span: Span) -> Extent {
    let at = span.at.get();
    let until = |place: u64| Bytes::new(place).saturating_sub(span.at).min(span.len);
    // Moves the file's own offset, which nothing here uses.
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) if data > at => Extent::zeros(until(data)),
        Ok(_) => match seek(file, SeekFrom::Hole(at)) {
            Ok(hole) if hole > at => Extent::data(until(hole)),
            // A hole was punched meanwhile, or the file system can't say.
            _ => Extent::data(span.len),
        },
        // There is no data from here to the end.
        Err(Errno::NXIO) => Extent::zeros(span.len),
        Err(_) => Extent::data(span.len),
    }
}
