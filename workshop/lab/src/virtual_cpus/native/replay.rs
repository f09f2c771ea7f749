//! Replays the requests of `fallocate2` directly on the allocator. Compiled twice: over the allocator in real
//! time, and over that in virtual time.
//!
//! Every job has a file of its own, allocates in steps of 8 KiB up to 1 MiB, truncates it to zero, and begins
//! again, as will-it-scale's test of that name does. The goals of all files are in one group, as those of
//! containers are whose directories were made one after the other. A step and a truncate make the engine's
//! calls to the allocator: the file's window, then [`Preallocation::take`], then publishing; on a truncate
//! returning the window and freeing the runs. A transaction commits when it has freed a quarter of what was
//! free at the start; the job that notices it makes the commit.
//!
//! What it is not: a file system. Inodes, extent trees, the journal and its barrier are left out.

use super::alloc::{
    AllocError, Allocator, Config, FileRequest, GroupSource, Layout, Policy, Preallocation, Run,
    StatsSnapshot, Transaction, Window,
};
use crate::virtual_cpus::volume::{BLOCK, Volume};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Clusters of a step, and of a file before it is truncated.
const STEP: u64 = 8 << 10 >> BLOCK.ilog2();
const FILE: u64 = 1 << 20 >> BLOCK.ilog2();

impl GroupSource for Volume {
    type Error = Infallible;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Infallible> {
        Ok(self.bitmap(group))
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.free_in(group)
    }
}

struct Txn(TxnId);

impl Transaction for Txn {
    fn id(&self) -> TxnId {
        self.0
    }
}

/// A volume that the jobs share.
pub(crate) struct Shared {
    allocator: Allocator<Volume>,
    prealloc: Preallocation,
    home: ClusterNr,
    txn: AtomicU32,
    /// Clusters freed in the running transaction, and how many it may free.
    freed: AtomicU64,
    freed_max: u64,
    committing: AtomicBool,
}

/// The space of a job's file.
struct File {
    nr: u32,
    window: Arc<Window>,
    runs: Vec<Run>,
    len: u64,
}

impl Shared {
    /// All groups of the volume are in memory, as they are after a while.
    pub(crate) fn new(volume: Volume, policy: &str) -> Self {
        let policy: Policy = policy.parse().expect("a policy of the experiment");
        let layout = Layout::new(volume.group_len(), volume.clusters()).expect("a volume of the experiment");
        let groups = layout.groups();
        let config = Config { policy, block_bytes: BLOCK, flex_groups: 16, ..Config::default() };
        let allocator = Allocator::new(volume, layout, config);
        for group in (0..groups).map(GroupNr::new) {
            allocator.group_summary(group).expect("the volume gives every group");
        }
        let freed_max = allocator.free_clusters().get() / 4;
        Self {
            prealloc: Preallocation::new(config),
            home: layout.group_start(GroupNr::new(groups / 2)),
            allocator,
            txn: AtomicU32::new(1),
            freed: AtomicU64::new(0),
            freed_max,
            committing: AtomicBool::new(false),
        }
    }

    /// What was counted so far.
    pub(crate) fn stats(&self) -> StatsSnapshot {
        self.allocator.stats()
    }

    /// Makes steps until `enough`, which is called before each with the steps done, returns true.
    pub(crate) fn work(&self, job: u32, mut enough: impl FnMut(u64) -> bool) -> u64 {
        let mut file = File { nr: 12 + job, window: Arc::default(), runs: Vec::with_capacity(8), len: 0 };
        let mut done = 0;
        while !enough(done) {
            self.step(&mut file);
            done += 1;
            if file.len >= FILE {
                self.cut(&mut file);
            }
        }
        self.cut(&mut file);
        done
    }

    fn step(&self, file: &mut File) {
        let end = file.len + STEP;
        while file.len < end {
            let want = Clusters::new(end - file.len);
            let space = match file.window.take(file.len, want) {
                Some(space) => space,
                None => self.take(file, want),
            };
            let run = space.publish(&mut self.running());
            file.len += run.len.get();
            match file.runs.last_mut() {
                Some(last) if last.end() == run.start => *last = Run::new(last.start, last.len + run.len),
                _ => file.runs.push(run),
            }
        }
    }

    fn take(&self, file: &File, want: Clusters) -> super::alloc::Reservation {
        let request = FileRequest {
            file: file.nr,
            logical: file.len,
            len: want,
            size: file.len + want.get(),
            continuation: file.runs.last().map(Run::end),
            right: None,
            home: self.home,
            explicit: true,
            closed: false,
            take_root_reserve: false,
        };
        loop {
            match self.prealloc.take(&self.allocator, &file.window, &request) {
                Ok(space) => return space,
                Err(AllocError::NoSpace) => self.commit(),
                Err(error) => panic!("the volume of the experiment is sound, but: {error}"),
            }
        }
    }

    fn cut(&self, file: &mut File) {
        self.allocator.count_discarded(file.window.discard());
        let mut txn = self.running();
        for run in file.runs.drain(..) {
            self.allocator.free(run, &mut txn).expect("the file has these clusters");
        }
        if self.freed.fetch_add(file.len, Ordering::Relaxed) + file.len > self.freed_max {
            self.commit();
        }
        file.len = 0;
    }

    /// The running transaction.
    fn running(&self) -> Txn {
        Txn(TxnId::new(self.txn.load(Ordering::Relaxed)))
    }

    /// Commits, unless another thread is doing so.
    fn commit(&self) {
        if self.committing.swap(true, Ordering::Acquire) {
            return;
        }
        let nr = self.txn.fetch_add(1, Ordering::Relaxed);
        self.freed.store(0, Ordering::Relaxed);
        let write = |_, _: &[u64], _| Ok::<_, Infallible>(());
        let Ok(()) = self.allocator.render_dirty(TxnId::new(nr), write);
        self.allocator.committed(TxnId::new(nr));
        self.committing.store(false, Ordering::Release);
    }
}
