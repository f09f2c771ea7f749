//! What a thread needs to read directories: the scan of the inodes, which it shares, and what is its own.

use crate::context::Scan;
use crate::names::Names;
use crate::report::{Problem, Report, What};
use hectare_ext4::error::{Corrupt, Place};
use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

/// What reads directories.
pub(crate) struct Reader<'a> {
    pub(crate) scan: &'a Scan<'a>,
    /// Blocks that are still to be read at most: those of all directories are no more than the volume has.
    pub(crate) blocks: &'a AtomicU64,
    /// What this thread has found.
    pub(crate) report: Report,
    pub(crate) names: Names,
    /// Room for blocks that are read at once.
    pub(crate) some: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// One that has read nothing, and goes on with a report.
    pub(crate) fn new(scan: &'a Scan<'a>, blocks: &'a AtomicU64, report: Report) -> Self {
        Self { scan, blocks, report, names: Names::default(), some: Vec::new() }
    }

    /// Reports a problem.
    pub(crate) fn tell(&mut self, what: What, place: Place, reason: impl Into<Cow<'static, str>>) {
        let problem = Problem { what, place, reason: reason.into() };
        self.report.tell(problem, self.scan.volume.options.problems_max);
    }

    /// Reports the finding of a parser.
    pub(crate) fn tell_corrupt(&mut self, what: What, corrupt: Corrupt) {
        self.report.tell(Problem::of(what, corrupt), self.scan.volume.options.problems_max);
    }

    /// Room for a block.
    pub(crate) fn block(&self) -> Vec<u8> {
        vec![0; self.scan.volume.geometry().block_size.len()]
    }
}
