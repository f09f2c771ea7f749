//! Space for what moves.

use super::Evacuation;
use crate::error::{Error, Result};
use hectare_units::{BlockNr, ClusterNr};
use std::ops::Range;

impl Evacuation<'_> {
    /// The first run in a range that is free and may be taken.
    pub(super) fn free_run(&mut self, within: Range<u64>, most: u64) -> Result<Option<Range<u64>>> {
        let mut at = within.start;
        while at < within.end {
            if let Some(barred) = self.barred.get(&at) {
                at = barred.end;
                continue;
            }
            let end = self.barred.overlapping(&(at..within.end)).next().map_or(within.end, |next| next.start);
            if let Some(run) = self.volume.free_run(at..end, most)? {
                return Ok(Some(run));
            }
            at = end;
        }
        Ok(None)
    }

    /// Takes the next free clusters, at most `most`.
    pub(super) fn take(&mut self, most: u64, what: &str) -> Result<Range<u64>> {
        let end = self.volume.geometry().clusters_count().get();
        let run = match self.free_run(self.cursor..end, most)? {
            Some(run) => Some(run),
            None => self.free_run(0..end, most)?,
        };
        let missing = most << self.volume.geometry().cluster_ratio_shift;
        let run = run.ok_or_else(|| Error::NoSpace { what: what.to_owned(), missing })?;
        self.cursor = run.end;
        self.volume.take(run.clone())?;
        self.moved.blocks += (run.end - run.start) << self.volume.geometry().cluster_ratio_shift;
        Ok(run)
    }

    /// Takes a cluster for one block of metadata.
    pub(super) fn take_block(&mut self, what: &str) -> Result<BlockNr> {
        let run = self.take(1, what)?;
        Ok(self.volume.geometry().cluster_start(ClusterNr::new(run.start)))
    }

    /// Frees clusters, which are not taken again in this step.
    pub(super) fn leave(&mut self, clusters: Range<u64>) -> Result<()> {
        self.barred.insert(clusters.clone());
        self.volume.mark(clusters, false)
    }

    /// Whether a block is to be left.
    pub(super) fn is_leaving(&self, block: BlockNr) -> bool {
        self.leaving.contains(&self.volume.geometry().cluster_of(block).get())
    }
}
