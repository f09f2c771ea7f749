//! Telling the device what it may forget: space whose freeing has committed.
//!
//! The allocator queues runs only after their transaction is durable, so nothing that a crash could bring back
//! is discarded; and it keeps a run reserved while it is out, so nobody writes into the range meanwhile. On an
//! image file a discard punches a hole; on a device it is handed through.
//!
//! A device that refuses is not asked again: discarding is advice, and its failure fails nothing.

use crate::volume::Shared;
use hectare_device::Device;
use hectare_units::{Bytes, Clusters};
use std::sync::atomic::Ordering;

/// Runs discarded between two looks at the queue.
const BATCH: usize = 64;

impl Shared {
    /// Discards what is queued. Called with nothing locked, after a commit.
    pub(crate) fn discard_freed(&self) {
        if !self.options.discard || self.discard_refused.load(Ordering::Relaxed) {
            return;
        }
        loop {
            let mut runs = self.allocator.take_discards(BATCH);
            if runs.is_empty() {
                return;
            }
            let refused = runs.iter().position(|run| {
                let run = run.run();
                self.discard_clusters(run.start, run.len).is_err()
            });
            if let Some(first) = refused {
                self.discard_refused.store(true, Ordering::Relaxed);
                self.allocator.return_discards(runs.split_off(first));
                return;
            }
        }
    }

    fn discard_clusters(
        &self,
        start: hectare_units::ClusterNr,
        len: Clusters,
    ) -> Result<(), hectare_device::Error> {
        let geometry = self.geometry();
        let at = geometry.cluster_start(start).offset(geometry.block_size);
        self.device.discard(at, Bytes::new(len.get() * geometry.cluster_bytes()))
    }
}
