//! Discards what the allocator has queued: freed space whose freeing has committed.
//!
//! Hazard: called with nothing locked, since it waits for the device ([`crate::stores::discards`]).

use crate::state::State;
use hectare_alloc::Run;
use hectare_device::Device;
use hectare_units::Bytes;

/// Runs discarded per read of the queue.
const BATCH: usize = 64;

impl State {
    /// Discards the queued runs. Called with nothing locked, after a commit.
    pub(crate) fn discard_freed(&self) {
        if !self.options.discard {
            return;
        }
        self.discards.drain(|| self.discard_batch());
    }

    /// Discards some runs and returns them; reports whether there were any.
    pub(crate) fn discard_batch(&self) -> bool {
        let runs = self.allocator.take_discards(BATCH);
        if runs.iter().any(|run| self.discard_clusters(run.run()).is_err()) {
            self.allocator.stop_discards();
        }
        !runs.is_empty()
    }

    /// Discards one run of clusters.
    pub(crate) fn discard_clusters(&self, run: Run) -> Result<(), hectare_device::Error> {
        let geometry = self.geometry();
        let at = geometry.cluster_start(run.start).offset(geometry.block_size);
        self.device.discard(at, Bytes::new(run.len.get() * geometry.cluster_bytes()))
    }
}
