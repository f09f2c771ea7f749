//! An image that was never written: its metadata lies in memory, file data is read from the sources on
//! request.
//!
//! Metadata is written to it as to any device, and only what is not zero is stored. Of each run of file data
//! it keeps where it lies in the image and in its source (32 bytes), so it takes memory as the metadata and
//! the number of files do, not as their sizes.
//!
//! Invariants: what is read is what [`Image::write`](crate::Image::write) would have written. A file that is
//! not what was scanned (another inode, size or time of change) is an error of every read that needs it,
//! never other bytes.
//!
//! Hazard: a change that leaves size and time of the last change as they were is not seen.

use crate::tree::{NodeId, Tree};
use hectare_device::{
    Device, Error, Extent, Operation, Reason, Result, Span, SparseDevice, check_change, check_range,
};
use hectare_units::{Bytes, index_of};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = "the planned image";

/// A run of file data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    at: Bytes,
    len: Bytes,
    source: Bytes,
    node: NodeId,
}

// A million files are to fit beside everything else.
const _: () = assert!(size_of::<Run>() == 32);

impl Run {
    pub(crate) const fn new(at: Bytes, len: Bytes, source: Bytes, node: NodeId) -> Self {
        Self { at, len, source, node }
    }

    fn end(&self) -> Bytes {
        self.at + self.len
    }
}

/// An image whose files are read on request, for reading only. Made by
/// [`Image::on_demand`](crate::Image::on_demand).
pub struct OnDemand {
    tree: Arc<Tree>,
    metadata: SparseDevice,
    /// Sorted by place, once everything is known.
    runs: RwLock<Vec<Run>>,
    is_finished: AtomicBool,
    report: Box<dyn Fn(&str) + Send + Sync>,
    /// The files that were reported.
    named: Mutex<BTreeSet<NodeId>>,
}

impl OnDemand {
    pub(crate) fn new(tree: Arc<Tree>, len: Bytes, report: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        Self {
            tree,
            metadata: SparseDevice::new(len),
            runs: RwLock::default(),
            is_finished: AtomicBool::new(false),
            report,
            named: Mutex::default(),
        }
    }

    /// Adds runs, in any order.
    pub(crate) fn add(&self, runs: Vec<Run>) {
        self.runs.write().extend(runs);
    }

    /// Sorts what was added; from then on file data can be read.
    pub(crate) fn sort(&self) {
        let mut runs = self.runs.write();
        runs.sort_unstable_by_key(|run| run.at);
        runs.shrink_to_fit();
    }

    /// From now on nothing is written.
    pub(crate) fn finish(&self) {
        self.is_finished.store(true, Ordering::Release);
    }

    /// Bytes of memory that metadata and runs take, about.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        self.metadata.stored() + Bytes::of(self.runs.read().len() * size_of::<Run>())
    }

    /// Reads the part of runs that lies in a range.
    fn read_runs(&self, at: Bytes, buf: &mut [u8]) -> std::result::Result<(), (NodeId, crate::Error)> {
        let end = at + Bytes::of(buf.len());
        let runs = self.runs.read();
        let first = runs.partition_point(|run| run.end() <= at);
        let mut opener = self.tree.opener();
        for run in runs[first..].iter().take_while(|run| run.at < end) {
            let failed = |error| (run.node, error);
            let (from, to) = (run.at.max(at), run.end().min(end));
            let content = opener.open(run.node).map_err(failed)?;
            let target = &mut buf[index_of((from - at).get())..index_of((to - at).get())];
            content.read_exact_at(target, run.source + (from - run.at)).map_err(failed)?;
            content.verify().map_err(failed)?;
        }
        Ok(())
    }
}

impl Device for OnDemand {
    fn name(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> Bytes {
        self.metadata.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.metadata.read_at(at, buf)?;
        self.read_runs(at, buf).map_err(|(node, error)| {
            let text = error.to_string();
            if self.named.lock().insert(node) {
                (self.report)(&text);
            }
            // Nothing of it is to be taken for the image.
            buf.fill(0);
            Error::new(NAME, Operation::Read, Some(Span::new(at, Bytes::of(buf.len()))), Reason::Origin(text))
        })
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, Bytes::of(data.len())))?;
        self.metadata.write_at(at, data)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Zero, Span::new(at, len))?;
        self.metadata.zero(at, len)
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Discard, Span::new(at, len))?;
        self.metadata.discard(at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let reason = Reason::Unsupported("a planned image has the size that was planned");
        Err(Error::new(NAME, Operation::Resize, Some(Span::new(Bytes::ZERO, len)), reason))
    }

    fn is_zeroed(&self) -> bool {
        true
    }

    fn discards_to_zeros(&self) -> bool {
        true
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        check_range(self, Operation::Read, Span::new(at, len))?;
        let runs = self.runs.read();
        let next = runs.get(runs.partition_point(|run| run.end() <= at));
        match next {
            Some(run) if run.at <= at => return Ok(Extent::data((run.end() - at).min(len))),
            _ => {}
        }
        let known = self.metadata.extent_at(at, len)?;
        let to_next = next.map_or(len, |run| run.at - at);
        Ok(Extent { len: if known.is_zero { known.len.min(to_next) } else { known.len }, ..known })
    }

    fn is_read_only(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }
}
