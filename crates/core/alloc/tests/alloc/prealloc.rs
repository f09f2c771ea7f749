//! Space kept for files: where pieces end up, that nothing is given twice, and that all of it comes back.

use crate::common::{Disk, Txn};
use hectare_alloc::{
    AllocError, Allocator, Config, FileRequest, Layout, Mechanism, Policy, Preallocation, Request, Run,
    Window,
};
use hectare_units::{ClusterNr, Clusters, TxnId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const GROUP: u32 = 32768;

struct Volume {
    allocator: Allocator<Disk>,
    prealloc: Preallocation,
}

impl Volume {
    fn new(policy: Policy, groups: u32, per_group: u32) -> Self {
        let layout = Layout::new(per_group, Clusters::new(u64::from(groups) * u64::from(per_group))).unwrap();
        let config = Config { policy, flex_groups: 16, ..Config::default() };
        Self {
            allocator: Allocator::new(Disk::empty(layout), layout, config),
            prealloc: Preallocation::new(config),
        }
    }
}

/// A file: which of its clusters lie where.
struct File {
    nr: u32,
    window: Arc<Window>,
    map: BTreeMap<u64, u64>,
    explicit: bool,
    closed: bool,
}

impl File {
    fn new(nr: u32) -> Self {
        Self { nr, window: Arc::default(), map: BTreeMap::new(), explicit: false, closed: false }
    }

    fn end(&self) -> u64 {
        self.map.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    /// One call of `take` for the hole at `logical`; how many clusters it gave.
    fn take(&mut self, volume: &Volume, logical: u64, len: u64) -> Result<u64, bool> {
        let before = logical.checked_sub(1).and_then(|before| self.map.get(&before));
        let right = self.map.range(logical..).next().map(|(at, _)| *at);
        let len = len.min(right.map_or(u64::MAX, |right| right - logical));
        let request = FileRequest {
            file: self.nr,
            logical,
            len: Clusters::new(len),
            size: self.end().max(logical + len),
            continuation: before.map(|at| ClusterNr::new(at + 1)),
            right,
            home: ClusterNr::new(0),
            explicit: self.explicit,
            closed: self.closed,
            take_root_reserve: false,
        };
        let kept = self.window.take(logical, request.len);
        let space = kept.map_or_else(|| volume.prealloc.take(&volume.allocator, &self.window, &request), Ok);
        let run =
            space.map_err(|error| matches!(error, AllocError::NoSpace))?.publish(&mut Txn(TxnId::new(1)));
        assert!((1..=len).contains(&run.len.get()), "{run:?} for {len}");
        for n in 0..run.len.get() {
            assert!(self.map.insert(logical + n, run.start.get() + n).is_none());
        }
        Ok(run.len.get())
    }

    fn append(&mut self, volume: &Volume, len: u64) -> Result<(), bool> {
        let end = self.end() + len;
        while self.end() < end {
            self.take(volume, self.end(), end - self.end())?;
        }
        Ok(())
    }

    /// Runs of the file that lie next to each other on the volume.
    fn extents(&self) -> usize {
        let pairs = self.map.iter().zip(self.map.iter().skip(1));
        1 + pairs.filter(|((l1, p1), (l2, p2))| *l1 + 1 != **l2 || *p1 + 1 != **p2).count()
    }
}

/// All free runs of the volume, those that meet at a group's end as one.
fn free_runs(volume: &Volume) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for group in (0..volume.allocator.layout().groups()).map(hectare_units::GroupNr::new) {
        for run in volume.allocator.free_runs(group).unwrap() {
            match runs.last_mut() {
                Some(last) if last.end() == run.start => last.len += run.len,
                _ => runs.push(run),
            }
        }
    }
    runs
}

#[test]
fn files_that_grow_side_by_side_are_whole_and_leave_no_gaps() {
    for policy in [Policy::SIZE_CLASS, Policy::FIRST_FIT, Policy::MBALLOC, Policy::HYBRID] {
        let policy = policy.with(Mechanism::Room);
        for step in [16, 32] {
            let volume = Volume::new(policy, 256, GROUP);
            // A thread a file: what small files share is a thread's.
            let files: Vec<File> = std::thread::scope(|scope| {
                let work = |nr| {
                    let volume = &volume;
                    move || {
                        let mut file = File::new(nr);
                        for _ in 0..u64::from(GROUP) / step {
                            file.append(volume, step).unwrap();
                        }
                        file
                    }
                };
                let threads: Vec<_> = (0..32).map(|nr| scope.spawn(work(nr))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            volume.prealloc.discard_all();
            let extents: Vec<_> = files.iter().map(File::extents).collect();
            assert!(extents.iter().all(|n| *n <= 2), "{policy}, {step}: extents {extents:?}");
            assert_eq!(free_runs(&volume).len(), 1, "{policy}, {step}: the files lie one after the other");
        }
    }
}

/// Each window is laid behind the last one, at its goal: none is searched for.
#[test]
fn a_window_begins_where_the_last_one_ended() {
    let volume = Volume::new(Policy::HYBRID, 256, GROUP);
    for nr in 0..8 {
        File::new(nr).append(&volume, 100).unwrap();
    }
    assert_eq!(volume.allocator.stats().passes.first_fit.hits, 0);
}

#[test]
fn the_kernels_windows_grow_with_the_file() {
    let volume = Volume::new(Policy::MBALLOC, 64, GROUP);
    let mut files: Vec<_> = (0..4).map(File::new).collect();
    for _ in 0..4096 {
        for file in &mut files {
            file.append(&volume, 1).unwrap();
        }
    }
    for file in &files {
        // To 64 KiB from shared space; then 128, 256, 512 KiB and 1 MiB; 2 MiB; 4 MiB; 8 MiB: a window each.
        assert!((8..=30).contains(&file.extents()), "{} extents", file.extents());
    }
}

#[test]
fn a_threads_small_files_lie_side_by_side() {
    for policy in Policy::ALL {
        let volume = Volume::new(policy, 64, GROUP);
        let mut all = BTreeSet::new();
        for nr in 0..32 {
            let mut file = File::new(nr);
            file.append(&volume, 16).unwrap();
            assert_eq!(file.extents(), 1, "{policy}");
            all.extend(file.map.into_values());
        }
        let (first, last) = (all.first().unwrap(), all.last().unwrap());
        assert_eq!(last - first + 1, 32 * 16, "{policy}: no gap between them");
    }
}

#[test]
fn explicit_space_is_no_more_than_asked_for_in_the_kernels_way() {
    let volume = Volume::new(Policy::MBALLOC, 64, GROUP);
    let mut file = File { explicit: true, ..File::new(1) };
    for _ in 0..128 {
        file.append(&volume, 2).unwrap();
        assert_eq!(volume.allocator.counts().reserved, Clusters::ZERO, "nothing is kept");
    }
    assert_eq!(file.extents(), 1);
}

#[test]
fn what_is_kept_comes_back_when_it_is_needed() {
    for policy in Policy::ALL {
        let volume = Volume::new(policy, 4, 1024);
        let mut files: Vec<_> = (0..8).map(File::new).collect();
        for file in &mut files {
            file.append(&volume, 20).unwrap();
        }
        let mut last = File::new(100);
        while last.append(&volume, 1).is_ok() {}
        assert_eq!(last.map.len() + 8 * 20, 4 * 1024, "{policy}: exact to the last cluster");
        assert!(matches!(
            volume.prealloc.reserve(&volume.allocator, &Request::new(ClusterNr::new(0), Clusters::ONE)),
            Err(AllocError::NoSpace)
        ));
        assert_eq!(volume.allocator.counts().durable_free(), Clusters::ZERO, "{policy}");
    }
}

#[test]
fn a_window_of_which_the_first_piece_is_used_whole_can_be_given_back() {
    for policy in [Policy::SIZE_CLASS, Policy::HYBRID] {
        let volume = Volume::new(policy, 64, 4096);
        let window = Arc::default();
        // The file's last cluster lies 20 before the end of its group, so the window continues in the next.
        let request = FileRequest {
            file: 7,
            logical: 100,
            len: Clusters::new(20),
            size: 120,
            continuation: Some(ClusterNr::new(4096 - 20)),
            right: None,
            home: ClusterNr::new(0),
            explicit: false,
            closed: false,
            take_root_reserve: false,
        };
        let space = volume.prealloc.take(&volume.allocator, &window, &request).unwrap();
        assert_eq!(space.len().get(), 20, "{policy}");
        let kept = volume.allocator.counts().reserved.get() - 20;
        assert!(kept > 0, "{policy}: nothing is kept");
        assert_eq!(volume.prealloc.discard_all().get(), kept, "{policy}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_given_twice_wherever_a_file_is_written(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        steps in prop::collection::vec((0_u32..3, 0_u64..3000, 1_u64..300, any::<bool>()), 1..120),
    ) {
        let volume = Volume::new(policy, 8, 2048);
        let mut files: Vec<_> = (0..3).map(File::new).collect();
        for (nr, logical, len, explicit) in steps {
            let file = &mut files[nr as usize];
            if file.map.contains_key(&logical) {
                continue;
            }
            file.explicit = explicit;
            file.take(&volume, logical, len).unwrap();
            let all: Vec<u64> = files.iter().flat_map(|file| file.map.values().copied()).collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            prop_assert_eq!(distinct.len(), all.len(), "a cluster was given twice");
            for file in &files {
                let stale = file.map.keys().find(|at| file.window.take(**at, Clusters::ONE).is_some());
                prop_assert_eq!(stale, None, "space is kept for a cluster that has space");
            }
        }
        let used: usize = files.iter().map(|file| file.map.len()).sum();
        drop(files);
        volume.prealloc.discard_all();
        let counts = volume.allocator.counts();
        prop_assert_eq!(counts.reserved, Clusters::ZERO);
        prop_assert_eq!(counts.available.get(), 8 * 2048 - used as u64);
    }
}
