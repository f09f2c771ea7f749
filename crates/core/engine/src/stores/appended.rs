//! Bytes appended to a file that are buffered in memory and not allocated yet.
//!
//! The buffer lies beside the inode, with the claim on the space that it will need and the errors of writing
//! it back. What may be buffered, and when it is placed, is decided by [`crate::data::append`].
//!
//! Lock order: the state of a file is locked after everything else but groups; never take the inode's data
//! lock under it.

use crate::error::Error;
use crate::stores::quotas::Claim as QuotaClaim;
use crate::stores::wb_error::Untold;
use hectare_alloc::Claim;
use hectare_units::{Clusters, index_of, u64_of};
use parking_lot::{Mutex, MutexGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes appended to a file that are not allocated yet.
pub(crate) struct Buffer {
    /// Where they begin: the size of the inode.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// The file's first cluster that they need.
    pub(crate) first_cluster: u64,
    /// Clusters of data they need.
    pub(crate) clusters: Clusters,
    /// Bytes charged to the budget.
    pub(crate) charged: usize,
    /// When the first arrived.
    pub(crate) since: Instant,
}

impl Buffer {
    /// The byte after the last.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64_of(self.bytes.len())
    }

    /// Adds bytes, which begin inside or at the end.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        let skip = index_of(at - self.start);
        let over = data.len().min(self.bytes.len() - skip);
        let (inside, after) = data.split_at(over);
        self.bytes[skip..skip + over].copy_from_slice(inside);
        self.bytes.extend_from_slice(after);
    }
}

/// The state of a file.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) buffer: Option<Buffer>,
    /// Covers the clusters of the bytes and the worst growth of the tree, until the bytes are placed.
    pub(crate) claim: Option<Claim>,
    /// The same of the owners' quotas, for the clusters of the bytes.
    pub(crate) quota: Option<QuotaClaim>,
    /// Writeback errors, and which of them were reported.
    pub(crate) failed: Untold,
}

/// What was appended to one file and is not allocated yet.
#[derive(Default)]
pub(crate) struct Delayed {
    /// Where the bytes end; 0 if there are none.
    end: AtomicU64,
    state: OnceLock<Box<Mutex<State>>>,
}

impl Delayed {
    /// Where the file ends, if its inode does not have that yet. Read it before the inode: the larger of the
    /// two is the size.
    pub(crate) fn end(&self) -> Option<u64> {
        match self.end.load(Ordering::Acquire) {
            0 => None,
            end => Some(end),
        }
    }

    /// Sets where the file ends by its buffered bytes; 0 if there are none.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// The number of buffered bytes.
    pub(crate) fn len(&self) -> usize {
        self.state().buffer.as_ref().map_or(0, |buffer| buffer.bytes.len())
    }

    /// The clusters that the bytes will take.
    pub(crate) fn clusters(&self) -> Clusters {
        if self.end().is_none() {
            return Clusters::ZERO;
        }
        self.state().buffer.as_ref().map_or(Clusters::ZERO, |buffer| buffer.clusters)
    }

    /// Copies bytes out from byte `at` of the file on, which lies in the buffered bytes or after them;
    /// returns how many. The caller holds the operation lock.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> usize {
        let state = self.state();
        let Some(buffer) = &state.buffer else { return 0 };
        let skip = usize::try_from(at.saturating_sub(buffer.start)).unwrap_or(usize::MAX);
        let bytes = buffer.bytes.get(skip..).unwrap_or_default();
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        len
    }

    /// The bytes, the claim and the errors, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.get_or_init(Box::default).lock()
    }

    /// When the oldest buffered byte arrived.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.end()?;
        self.state().buffer.as_ref().map(|buffer| buffer.since)
    }

    /// The number that a new open file records, so that it gets later errors and one not yet reported to any.
    pub(crate) fn heard(&self) -> u64 {
        self.state.get().map_or(0, |state| state.lock().failed.heard())
    }

    /// The writeback error not yet reported to this open file, if any.
    pub(crate) fn tell(&self, heard: &AtomicU64) -> Option<Error> {
        self.state.get()?.lock().failed.tell(heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(start: u64, bytes: &[u8]) -> Buffer {
        let (first_cluster, clusters) = (0, Clusters::ONE);
        Buffer { start, bytes: bytes.to_vec(), first_cluster, clusters, charged: 4096, since: Instant::now() }
    }

    #[test]
    fn writes_inside_and_at_the_end_of_a_buffer_are_joined() {
        let mut buffer = buffer(100, b"abcd");
        buffer.write(104, b"ef");
        buffer.write(102, b"CDEFGH");
        buffer.write(100, b"A");
        assert_eq!((&buffer.bytes[..], buffer.end()), (&b"AbCDEFGH"[..], 108));
    }

    #[test]
    fn what_is_buffered_is_read_back_up_to_its_end() {
        let delayed = Delayed::default();
        assert_eq!((delayed.end(), delayed.clusters()), (None, Clusters::ZERO));
        delayed.state().buffer = Some(buffer(100, b"abcd"));
        delayed.set_end(104);
        let mut out = [0; 8];
        assert_eq!((delayed.read(102, &mut out), &out[..2]), (2, &b"cd"[..]));
        assert_eq!(delayed.read(104, &mut out), 0);
        assert_eq!(delayed.read(100, &mut out[..3]), 3);
        assert_eq!((delayed.end(), delayed.len(), delayed.clusters()), (Some(104), 4, Clusters::ONE));
        assert!(delayed.since().is_some());
    }
}
