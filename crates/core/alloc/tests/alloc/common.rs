//! What the allocator's tests share: a source in memory, transactions, random numbers.

use hectare_alloc::{GroupSource, Layout, Run, Transaction};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, usize_of};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The durable bitmaps, as a volume would hold them.
pub(crate) struct Disk {
    layout: Layout,
    groups: Mutex<Vec<Vec<u64>>>,
    /// Groups whose bitmap was never written: they can be made without reading.
    pub(crate) unread: Vec<GroupNr>,
    /// Clusters at the start of each group that are the volume's own.
    pub(crate) own: u32,
    pub(crate) loads: AtomicUsize,
}

/// A bitmap that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("group {0} can't be read")]
pub(crate) struct Unreadable(pub(crate) GroupNr);

impl Disk {
    /// All clusters free.
    pub(crate) fn empty(layout: Layout) -> Self {
        let words = |nr| vec![0; usize_of(layout.group_len(GroupNr::new(nr)).div_ceil(64))];
        let groups = (0..layout.groups()).map(words).collect();
        Self { layout, groups: Mutex::new(groups), unread: Vec::new(), own: 0, loads: AtomicUsize::new(0) }
    }

    /// The same, with `own` clusters of metadata at the start of each group.
    pub(crate) fn with_metadata(layout: Layout, own: u32) -> Self {
        let mut disk = Self { own, ..Self::empty(layout) };
        disk.unread = (0..layout.groups()).map(GroupNr::new).collect();
        for group in (0..layout.groups()).map(GroupNr::new) {
            let start = layout.group_start(group);
            disk.set_used(Run::new(start, Clusters::new(u64::from(own.min(layout.group_len(group))))));
        }
        disk
    }

    /// All free but the clusters that a pattern names, by their position in the group.
    pub(crate) fn patterned(layout: Layout, used: impl Fn(GroupNr, u32) -> bool) -> Self {
        let disk = Self::empty(layout);
        for group in (0..layout.groups()).map(GroupNr::new) {
            for at in (0..layout.group_len(group)).filter(|at| used(group, *at)) {
                let start = layout.group_start(group) + Clusters::new(u64::from(at));
                disk.set_used(Run::new(start, Clusters::ONE));
            }
        }
        disk
    }

    fn set_used(&self, run: Run) {
        let mut groups = self.groups.lock().unwrap();
        for nr in run.start.get()..run.start.get() + run.len.get() {
            let (group, at) = self.layout.locate(ClusterNr::new(nr)).unwrap();
            groups[group.index()][usize_of(at / 64)] |= 1 << (at % 64);
        }
    }

    pub(crate) fn store(&self, group: GroupNr, words: &[u64]) {
        self.groups.lock().unwrap()[group.index()] = words.to_vec();
    }

    pub(crate) fn is_used(&self, group: GroupNr, at: u32) -> bool {
        self.groups.lock().unwrap()[group.index()][usize_of(at / 64)] >> (at % 64) & 1 == 1
    }

    /// Free clusters of a group, counted bit by bit.
    pub(crate) fn count_free(&self, group: GroupNr) -> u32 {
        let free = (0..self.layout.group_len(group)).filter(|at| !self.is_used(group, *at));
        u32::try_from(free.count()).unwrap()
    }
}

impl GroupSource for Disk {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Unreadable> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.groups.lock().unwrap().get(group.index()).cloned().ok_or(Unreadable(group))
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.count_free(group)
    }

    fn free_total(&self) -> Option<Clusters> {
        let groups = (0..self.layout.groups()).map(GroupNr::new);
        Some(Clusters::new(groups.map(|group| u64::from(self.count_free(group))).sum()))
    }

    fn together(&self) -> u32 {
        2
    }

    fn own_metadata(&self, _: GroupNr) -> u32 {
        self.own
    }

    fn needs_io(&self, group: GroupNr) -> bool {
        !self.unread.contains(&group)
    }
}

/// A transaction with nothing but an id.
pub(crate) struct Txn(pub(crate) TxnId);

impl Transaction for Txn {
    fn id(&self) -> TxnId {
        self.0
    }
}
