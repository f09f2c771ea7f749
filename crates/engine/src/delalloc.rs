//! Delayed allocation: buffers small appends in memory and allocates their blocks later, together.
//!
//! Without it, a log written 100 bytes at a time would take a transaction and an allocation for each write;
//! and many logs growing side by side would be fragmented. So bytes written at the end of a file, a few at a
//! time and into space that is not mapped yet, are kept beside the inode ([`Delayed`]). They are *placed*
//! (written to newly mapped blocks, as by any write) when the file is synced or closed, when they are many or
//! old, and before anything else reads or changes the file's map.
//!
//! Space is counted when bytes are buffered: a claim covers the clusters they need, and the blocks by which
//! the tree may grow in the worst case. So the write itself reports a full volume, and writeback never lacks
//! space. Claims exceed what will be needed; an allocation that finds no space therefore has everything
//! placed before it fails ([`Volume::place_for_space`](crate::Volume)).
//!
//! Invariants, under the file's operation lock:
//! - the bytes begin at the size in the inode; the size that a file reports is where they end;
//! - a file with buffered bytes is on the volume's list and is open: its last close places them.
//!
//! Bytes that can't be written because the device fails are lost, as with the kernel. The error is kept
//! beside the inode and reported once per open file, at fsync or close ([`wb_error`]). The next sync of the
//! volume, or closing it, reports it as well; nothing else can where the last close of a file loses bytes.
//!
//! Locks: a file's state ([`Delayed::state`]) is locked after everything else but groups; never take the
//! inode's data lock under it.

mod buffer;
mod wb_error;
mod writeback;

use crate::cache::inode::CachedInode;
use crate::error::Error;
use hectare_alloc::Claim;
use hectare_units::{Clusters, InodeNr, index_of, u64_of, usize_of};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use wb_error::Untold;

/// Larger writes are placed at once.
const SMALL_MAX: usize = 64 << 10;
/// A file with more buffered bytes than this is placed.
const FILE_MAX: usize = 1 << 20;
/// Bytes are charged to the budget in units of this size.
const CHARGE: usize = 4096;
/// Shards of the list of files.
const SHARDS: u32 = 16;

/// Bytes appended to a file that are not allocated yet.
struct Buffer {
    /// Where they begin: the size of the inode.
    start: u64,
    bytes: Vec<u8>,
    /// The file's first cluster that they need.
    first_cluster: u64,
    /// Clusters of data they need.
    clusters: Clusters,
    /// Bytes charged to the budget.
    charged: usize,
    /// When the first arrived.
    since: Instant,
}

impl Buffer {
    fn end(&self) -> u64 {
        self.start + u64_of(self.bytes.len())
    }

    /// Adds bytes, which begin inside or at the end.
    fn write(&mut self, at: u64, data: &[u8]) {
        let skip = index_of(at - self.start);
        let over = data.len().min(self.bytes.len() - skip);
        let (inside, after) = data.split_at(over);
        self.bytes[skip..skip + over].copy_from_slice(inside);
        self.bytes.extend_from_slice(after);
    }
}

/// The state of a file.
#[derive(Default)]
struct State {
    buffer: Option<Buffer>,
    /// Covers the clusters of the bytes and the worst growth of the tree, until the bytes are placed.
    claim: Option<Claim>,
    /// Writeback errors, and which of them were reported.
    failed: Untold,
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

    /// The number of buffered bytes.
    fn len(&self) -> usize {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.get_or_init(Box::default).lock()
    }

    fn since(&self) -> Option<Instant> {
        self.end()?;
        self.state().buffer.as_ref().map(|buffer| buffer.since)
    }

    /// The number that a new open file records, so that it gets later errors and one not yet reported to any.
    pub(crate) fn heard(&self) -> u64 {
        self.state.get().map_or(0, |state| state.lock().failed.heard())
    }

    /// The writeback error not yet reported to this open file, if any.
    fn tell(&self, heard: &AtomicU64) -> Option<Error> {
        self.state.get()?.lock().failed.tell(heard)
    }
}

/// A part of the list of files.
type FileShard = Mutex<HashMap<InodeNr, Arc<CachedInode>>>;

/// The buffered appends of a volume's files.
pub(crate) struct Delay {
    /// Bytes that may be buffered in all; none if 0.
    budget: usize,
    /// Bytes charged.
    bytes: AtomicUsize,
    /// Clusters that the data will take.
    promised: AtomicU64,
    /// The files with buffered bytes.
    files: Box<[FileShard]>,
    /// Held by the thread that brings the bytes back under the budget.
    relieving: Mutex<()>,
    /// No more bytes are buffered.
    closing: AtomicBool,
    /// The first writeback error since the volume was synced last.
    failed: Mutex<Option<Error>>,
}

impl Delay {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            budget,
            bytes: AtomicUsize::new(0),
            promised: AtomicU64::new(0),
            files: (0..SHARDS).map(|_| Mutex::default()).collect(),
            relieving: Mutex::default(),
            closing: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    /// Buffered bytes that are not allocated yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Free clusters that buffered data will take.
    pub(crate) fn promised(&self) -> Clusters {
        Clusters::new(self.promised.load(Ordering::Relaxed))
    }

    fn shard(&self, nr: InodeNr) -> &FileShard {
        &self.files[usize_of(nr.get() % SHARDS)]
    }

    /// Puts a file on the list; returns `false` if no more bytes may be buffered.
    fn register(&self, inode: &Arc<CachedInode>) -> bool {
        self.shard(inode.nr()).lock().insert(inode.nr(), Arc::clone(inode));
        // In this order, and in the opposite one where the volume closes: either it sees the file, or this
        // sees it closing.
        if !self.closing.load(Ordering::SeqCst) {
            return true;
        }
        self.unregister(inode);
        false
    }

    fn unregister(&self, inode: &Arc<CachedInode>) {
        let mut shard = self.shard(inode.nr()).lock();
        if shard.get(&inode.nr()).is_some_and(|listed| Arc::ptr_eq(listed, inode)) {
            shard.remove(&inode.nr());
        }
    }

    /// The files of one shard of the list.
    fn files(&self, shard: usize) -> Vec<Arc<CachedInode>> {
        let mut files: Vec<_> = self.files[shard % self.files.len()].lock().values().cloned().collect();
        // Always in the same order: the same operations make the same image.
        files.sort_unstable_by_key(|inode| inode.nr());
        files
    }

    /// All files on the list.
    fn all_files(&self) -> impl Iterator<Item = Arc<CachedInode>> {
        (0..self.files.len()).flat_map(|shard| self.files(shard))
    }
}
