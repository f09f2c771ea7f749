//! The list of files with buffered appends, and the budget that they share.
//!
//! Invariant: a file with buffered bytes is on the list. Once the volume closes, no file gets on it.

use crate::stores::inode_cache::CachedInode;
use crate::stores::wb_error::Untold;
use hectare_units::{Clusters, InodeNr, usize_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shards of the list of files.
const SHARDS: u32 = 16;

/// A part of the list of files.
type FileShard = Mutex<HashMap<InodeNr, Arc<CachedInode>>>;

/// The buffered appends of a volume's files.
pub(crate) struct Delay {
    /// Bytes that may be buffered in all; none if 0.
    pub(crate) budget: usize,
    /// Bytes charged.
    pub(crate) bytes: AtomicUsize,
    /// Clusters that the data will take.
    pub(crate) promised: AtomicU64,
    /// The files with buffered bytes.
    files: Box<[FileShard]>,
    /// Held by the thread that brings the bytes back under the budget.
    pub(crate) relieving: Mutex<()>,
    /// No more bytes are buffered.
    pub(crate) closing: AtomicBool,
    /// The writeback error of any file, and who was told.
    pub(crate) failed: Mutex<Untold>,
}

impl Delay {
    /// An empty list; `budget` bytes may be buffered in all.
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
    pub(crate) fn register(&self, inode: &Arc<CachedInode>) -> bool {
        self.shard(inode.nr()).lock().insert(inode.nr(), Arc::clone(inode));
        // In this order, and in the opposite one where the volume closes: either it sees the file, or this
        // sees it closing.
        if !self.closing.load(Ordering::SeqCst) {
            return true;
        }
        self.unregister(inode);
        false
    }

    /// Takes a file off the list.
    pub(crate) fn unregister(&self, inode: &Arc<CachedInode>) {
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
    pub(crate) fn all_files(&self) -> impl Iterator<Item = Arc<CachedInode>> {
        (0..self.files.len()).flat_map(|shard| self.files(shard))
    }
}
