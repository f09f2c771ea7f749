//! The progress of writing an image, for callers that show it.

use hectare_units::Bytes;

/// Receives the progress of writing.
pub trait Progress: Sync {
    /// Called after this many more bytes of file data were written. All calls of a build that succeeds add up
    /// to [`Totals::data`](crate::Totals::data).
    fn advance(&self, bytes: Bytes);
}

/// A [`Progress`] that ignores all reports.
pub struct Quiet;

impl Progress for Quiet {
    fn advance(&self, _: Bytes) {}
}
