//! Telling the device what it may forget: space whose freeing has committed.
//!
//! The allocator queues runs only after their transaction is durable, so nothing that a crash could bring
//! back is discarded; and it keeps a run reserved while it is out, so nobody writes into the range meanwhile.
//! On an image file a discard punches a hole; on a device it is handed through.
//!
//! Hazard: space that is out can't be had by others. Who runs out of space therefore waits for it to come
//! back before it says so ([`Discards::wait`]).
//!
//! A device that refuses is not asked again, and nothing is queued for it, which would keep groups in memory:
//! discarding is advice, and its failure fails nothing.

use crate::volume::Shared;
use hectare_alloc::Run;
use hectare_device::Device;
use hectare_units::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs discarded between two looks at the queue.
const BATCH: usize = 64;

/// Discarding, as the threads of a volume share it.
#[derive(Default)]
pub(crate) struct Discards {
    /// Held while runs are out to be discarded: they are free space that can't be had for a moment.
    under_way: Mutex<()>,
    /// Batches that are back.
    pub(crate) done: AtomicU64,
}

impl Discards {
    /// Takes runs out, discards them and gives them back, with nobody else doing so.
    pub(crate) fn with<R>(&self, discard: impl FnOnce() -> R) -> R {
        let _under_way = self.under_way.lock();
        let result = discard();
        self.done.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Waits until what is out now is back.
    pub(crate) fn wait(&self) {
        drop(self.under_way.lock());
    }
}

impl Shared {
    /// Discards what is queued. Called with nothing locked, after a commit.
    pub(crate) fn discard_freed(&self) {
        if !self.options.discard {
            return;
        }
        let _under_way = self.discards.under_way.lock();
        while self.discard_batch() {
            self.discards.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Discards some runs and gives them back; whether there were any.
    fn discard_batch(&self) -> bool {
        let runs = self.allocator.take_discards(BATCH);
        if runs.iter().any(|run| self.discard_clusters(run.run()).is_err()) {
            self.allocator.stop_discards();
        }
        !runs.is_empty()
    }

    pub(crate) fn discard_clusters(&self, run: Run) -> Result<(), hectare_device::Error> {
        let geometry = self.geometry();
        let at = geometry.cluster_start(run.start).offset(geometry.block_size);
        self.device.discard(at, Bytes::new(run.len.get() * geometry.cluster_bytes()))
    }
}
