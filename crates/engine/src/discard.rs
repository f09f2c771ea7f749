//! Discards freed space on the device, once its freeing has committed.
//!
//! The allocator queues runs only after their transaction is durable, so nothing that a crash could bring
//! back is discarded; and it keeps a run reserved while it is being discarded, so the range is not written
//! meanwhile. On an image file a discard punches a hole; on a device it is passed through.
//!
//! Hazard: space being discarded is not available to others. An allocation that runs out of space therefore
//! waits for it before it fails ([`Discards::wait`]).
//!
//! After a device has refused once, it gets no more discards, and nothing is queued for it, which would keep
//! groups in memory: a discard is a hint, and its failure fails nothing.

use crate::volume::Shared;
use hectare_alloc::Run;
use hectare_device::Device;
use hectare_units::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs discarded per read of the queue.
const BATCH: usize = 64;

/// The state of discarding that the threads of a volume share.
#[derive(Default)]
pub(crate) struct Discards {
    /// Held while runs are being discarded: they are free space that is unavailable for a moment.
    under_way: Mutex<()>,
    /// Batches that were returned.
    pub(crate) done: AtomicU64,
}

impl Discards {
    /// Runs `discard`, which takes runs, discards them and returns them, while no other thread does.
    pub(crate) fn with<R>(&self, discard: impl FnOnce() -> R) -> R {
        let _under_way = self.under_way.lock();
        let result = discard();
        self.done.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Waits until the runs being discarded now are returned.
    pub(crate) fn wait(&self) {
        drop(self.under_way.lock());
    }
}

impl Shared {
    /// Discards the queued runs. Called with nothing locked, after a commit.
    pub(crate) fn discard_freed(&self) {
        if !self.options.discard {
            return;
        }
        let _under_way = self.discards.under_way.lock();
        while self.discard_batch() {
            self.discards.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Discards some runs and returns them; reports whether there were any.
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
