//! Delayed allocation: small appends gather in memory, and get their place later, together.
//!
//! A log that is written 100 bytes at a time would take a transaction and a piece of space for each write;
//! and of many logs that grow side by side, each would lie in crumbs. So bytes that are written at the end of
//! a file, a few at a time and into space that is not mapped yet, are kept beside the inode ([`Delayed`]).
//! They are *placed* (written to their final place and mapped, as any write) when the file is synced or
//! closed, when they are much or old, and before anything else looks at or changes the file's map.
//!
//! Space is counted when bytes are taken in: a claim covers the clusters they need, and the blocks by which
//! the tree may grow in the worst case. So a full volume is told to whoever writes, and placing never lacks
//! space. Claims are more than will be needed; who finds no space therefore has everything placed before it
//! says so ([`Volume::place_for_space`](crate::Volume)).
//!
//! Invariants, under the file's operation lock:
//! - the bytes begin at the size that the inode has; the size that a file shows is where they end;
//! - a file with bytes is on the volume's list, and is open: the last one to close it places them.
//!
//! What can't be placed because the device fails is lost, as it is with the kernel; the error is kept beside
//! the inode and told once to each who has the file open, when he syncs or closes it ([`untold`]). The next
//! sync of the volume tells it, too, or closing the volume; that is the only one who can where the last one
//! to close a file loses bytes.
//!
//! Locks: the state of a file ([`Delayed::state`]) is taken after everything else but groups, and the
//! inode's data lock never under it.

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

/// Writes of more bytes are placed at once.
const SMALL_MAX: usize = 64 << 10;
/// A file whose bytes have become so many has them placed.
const FILE_MAX: usize = 1 << 20;
/// Bytes are charged to the budget so many at a time.
const CHARGE: usize = 4096;
/// Shards of the list of files.
const SHARDS: u32 = 16;

/// Bytes appended to a file that have no place yet.
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
    /// When the first came.
    since: Instant,
}

impl Buffer {
    fn end(&self) -> u64 {
        self.start + u64_of(self.bytes.len())
    }

    /// Takes bytes in, which begin inside or at the end.
    fn write(&mut self, at: u64, data: &[u8]) {
        let skip = index_of(at - self.start);
        let over = data.len().min(self.bytes.len() - skip);
        let (inside, after) = data.split_at(over);
        self.bytes[skip..skip + over].copy_from_slice(inside);
        self.bytes.extend_from_slice(after);
    }
}

/// What a file's state is.
#[derive(Default)]
struct State {
    buffer: Option<Buffer>,
    /// What the bytes need, and what the tree may take; until they are placed.
    claim: Option<Claim>,
    /// What could not be placed, and who has heard of it.
    failed: Untold,
}

/// What was appended to one file and has no place yet.
#[derive(Default)]
pub(crate) struct Delayed {
    /// Where the bytes end; 0 if there are none.
    end: AtomicU64,
    state: OnceLock<Box<Mutex<State>>>,
}

impl Delayed {
    /// Where the file ends, if that is not yet in its inode. To be asked before the inode is: of the two, the
    /// larger is the size.
    pub(crate) fn end(&self) -> Option<u64> {
        match self.end.load(Ordering::Acquire) {
            0 => None,
            end => Some(end),
        }
    }

    /// Bytes that have gathered.
    fn len(&self) -> usize {
        self.state().buffer.as_ref().map_or(0, |buffer| buffer.bytes.len())
    }

    /// Clusters that the bytes will take.
    pub(crate) fn clusters(&self) -> Clusters {
        if self.end().is_none() {
            return Clusters::ZERO;
        }
        self.state().buffer.as_ref().map_or(Clusters::ZERO, |buffer| buffer.clusters)
    }

    /// Copies bytes out from byte `at` of the file on, which lies where bytes have gathered or after them;
    /// how many there were. The caller holds the operation lock.
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

    /// What somebody who opens the file is to remember, to be told what goes wrong from now on, and what
    /// nobody has heard of yet.
    pub(crate) fn heard(&self) -> u64 {
        self.state.get().map_or(0, |state| state.lock().failed.heard())
    }

    /// What went wrong that somebody who has the file open was not told yet.
    fn tell(&self, heard: &AtomicU64) -> Option<Error> {
        self.state.get()?.lock().failed.tell(heard)
    }
}

/// A part of the list of files.
type FileShard = Mutex<HashMap<InodeNr, Arc<CachedInode>>>;

/// What the files of a volume have gathered.
pub(crate) struct Delay {
    /// Bytes that may gather in all; none if 0.
    budget: usize,
    /// Bytes charged.
    bytes: AtomicUsize,
    /// Clusters of data that will be taken.
    promised: AtomicU64,
    /// The files with bytes.
    files: Box<[FileShard]>,
    /// Held by whoever brings the bytes back under the budget.
    relieving: Mutex<()>,
    /// Nothing gathers any more.
    closing: AtomicBool,
    /// What could not be placed since the volume was synced last.
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

    /// Bytes that have gathered and have no place yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Clusters of free space that are as good as taken.
    pub(crate) fn promised(&self) -> Clusters {
        Clusters::new(self.promised.load(Ordering::Relaxed))
    }

    fn shard(&self, nr: InodeNr) -> &FileShard {
        &self.files[usize_of(nr.get() % SHARDS)]
    }

    /// Puts a file on the list; `false` if nothing may gather any more.
    fn register(&self, inode: &Arc<CachedInode>) -> bool {
        self.shard(inode.nr()).lock().insert(inode.nr(), Arc::clone(inode));
        // In this order, and the other way round where the volume closes: it sees the file, or this sees it
        // closing.
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
        // Always the same order: what is done alike makes the same image.
        files.sort_unstable_by_key(|inode| inode.nr());
        files
    }

    /// All files on the list.
    fn all_files(&self) -> impl Iterator<Item = Arc<CachedInode>> {
        (0..self.files.len()).flat_map(|shard| self.files(shard))
    }
}
