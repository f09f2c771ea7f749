//! The groups and counters that an allocator, its reservations and its claims share.
//!
//! Every change of a group goes through [`LockedGroup`], which keeps the group info's numbers, the
//! index, the volume's counters and the list of dirty groups in step with the bitmap. Nothing here loads a
//! bitmap: the groups that a reservation or a commit touches are in memory and stay there until it is done.
//!
//! A group is in one of two indexes: loaded ones by the state of their free space, untouched ones by the
//! best it could be, all their free clusters as one run. A search asks both; what it finds in the second is
//! loaded, and so moves to the first. Or it is in neither, but on an unread page of group infos
//! (`group_table`): then it may be anything, and has to be read first.

use crate::contention::Contention;
use crate::counters::Counters;
use crate::criteria::Tables;
use crate::group_info::GroupInfo;
use crate::group_table::GroupTable;
use crate::index::{GroupIndex, Orders};
use crate::layout::{Layout, Run};
use crate::mechanism::Mechanism;
use crate::release_epoch::ReleaseEpoch;
use crate::size_class::{Classes, GroupMap};
use crate::stats::Stats;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::trace::Recorder;
use crate::tunables::{Config, Live};
use hectare_units::{Clusters, GroupNr, TxnId, low32, usize_of};
use std::ops::Range;

/// Where streams without a goal of their own were last served.
const STREAMS_MAX: u32 = 64;

/// The group a stream was last served from, on a cache line of its own.
#[repr(align(64))]
struct Stream(AtomicU32);

/// State shared by everything that holds space of one volume.
pub(crate) struct State {
    pub(crate) layout: Layout,
    pub(crate) config: Config,
    pub(crate) table: GroupTable,
    /// The loaded groups.
    pub(crate) index: GroupIndex,
    /// The others, those that announce nothing free and those on unread pages left out; by average order
    /// only.
    pub(crate) untouched: GroupIndex,
    /// Only where the policy has classes.
    pub(crate) classes: Option<Classes>,
    pub(crate) counters: Counters,
    pub(crate) contention: Contention,
    pub(crate) stats: Stats,
    /// Groups changed since they were last rendered, each once.
    pub(crate) dirty: Mutex<Vec<GroupNr>>,
    /// As many as there are in `dirty`.
    pub(crate) dirty_groups: AtomicU32,
    /// Groups rendered for transactions that have not committed yet.
    pub(crate) rendered: Mutex<Vec<(TxnId, Vec<GroupNr>)>>,
    /// Groups with runs to discard, each once.
    pub(crate) discards: Mutex<Vec<GroupNr>>,
    /// Whether freed runs are remembered to be discarded.
    pub(crate) discarding: AtomicBool,
    /// Decides whether a search that found nothing has to look again.
    pub(crate) release_epoch: ReleaseEpoch,
    /// Groups in memory.
    pub(crate) loaded: AtomicU32,
    /// How many groups could not be loaded, and are passed over.
    pub(crate) set_aside: AtomicU32,
    /// Where the next eviction starts.
    pub(crate) evict_from: AtomicU32,
    /// What can be tuned while the volume is in use.
    pub(crate) tunables: Live,
    /// What the policy makes of a volume that is searched group by group, and of one with an index.
    tables: [Tables; 2],
    /// Only where requests are recorded.
    pub(crate) recorder: Option<Recorder>,
    streams: Box<[Stream]>,
}

impl GroupMap for State {
    fn groups(&self) -> u32 {
        self.layout.groups()
    }

    fn is_whole(&self, group: GroupNr) -> bool {
        // An untouched group may be anything.
        self.table.get(group).is_some_and(GroupInfo::is_whole)
    }
}

/// The order of the average run if the free clusters of a group are all together.
pub(crate) fn best_average(free: u32, orders: u32) -> Option<u32> {
    Some(average_order(free.checked_ilog2()?, orders))
}

/// The order that stands for averages of 2^`log` to below 2^(`log` + 1).
pub(crate) fn average_order(log: u32, orders: u32) -> u32 {
    log.saturating_sub(1).min(orders - 1)
}

/// Where the streams start: all at the first group, as the kernel's, or spread over the volume.
fn streams(groups: u32, spread: bool) -> Box<[Stream]> {
    let count = groups.div_ceil(4).min(STREAMS_MAX);
    let start = |n: u32| if spread { u64::from(n) * u64::from(groups) / u64::from(count) } else { 0 };
    (0..count).map(|n| Stream(AtomicU32::new(low32(start(n))))).collect()
}

impl State {
    /// Space of groups that are all untouched; `free` clusters are free in all.
    pub(crate) fn new(layout: Layout, config: Config, table: GroupTable, free: u64) -> Self {
        let (groups, orders) = (layout.groups(), config.orders());
        let has_classes = config.policy.has(Mechanism::Classes);
        Self {
            layout,
            config,
            table,
            index: GroupIndex::new(groups, orders),
            untouched: GroupIndex::new(groups, orders),
            classes: has_classes.then(|| Classes::new(groups, config.flex_groups, config.tunables.classes)),
            counters: Counters::new(free),
            contention: Contention::new(config.policy.has(Mechanism::Contention)),
            stats: Stats::default(),
            dirty: Mutex::new(Vec::new()),
            dirty_groups: AtomicU32::new(0),
            rendered: Mutex::new(Vec::new()),
            discards: Mutex::new(Vec::new()),
            discarding: AtomicBool::new(config.discard),
            release_epoch: ReleaseEpoch::default(),
            loaded: AtomicU32::new(0),
            set_aside: AtomicU32::new(0),
            evict_from: AtomicU32::new(0),
            tunables: Live::new(&config.tunables, groups),
            tables: [false, true].map(|indexed| Tables::new(config.policy, indexed)),
            recorder: config.record.map(Recorder::new),
            streams: streams(groups, has_classes),
        }
    }

    /// Whether searches use the index.
    pub(crate) fn is_indexed(&self) -> bool {
        self.config.policy.has(Mechanism::Index) && self.tunables.mb_optimize_scan()
    }

    /// The policy's tables, as the tunables are now.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables[usize::from(self.is_indexed())]
    }

    /// The group info of a group that has been touched before.
    pub(crate) fn info(&self, group: GroupNr) -> &GroupInfo {
        self.table.get(group).expect("a group info that was made stays")
    }

    /// Where the index of untouched groups has a group that is not loaded.
    pub(crate) fn untouched_orders(&self, group: GroupNr, info: &GroupInfo) -> Orders {
        if info.is_set_aside() {
            return Orders::default();
        }
        let free = info.free().min(self.layout.group_len(group));
        Orders { largest: None, average: best_average(free, self.config.orders()) }
    }

    /// The highest order that the average free run of any group has, as far as is known; of unread pages the
    /// best is assumed.
    pub(crate) fn highest_average(&self) -> Option<u32> {
        if self.table.has_unread() {
            return best_average(self.layout.clusters_per_group(), self.config.orders());
        }
        self.index.highest_average().max(self.untouched.highest_average())
    }

    /// The clusters of a group as a run of the volume.
    pub(crate) fn run(&self, group: GroupNr, range: &Range<u32>) -> Run {
        let len = Clusters::new(u64::from(range.end - range.start));
        Run::new(self.layout.cluster(group, range.start), len)
    }

    /// The groups of a group's flex group.
    pub(crate) fn flex(&self, group: GroupNr) -> Range<u32> {
        let size = self.config.flex_groups.max(1);
        let first = group.get() / size * size;
        first..first.saturating_add(size).min(self.layout.groups())
    }

    /// Where a stream's last group is kept, and that group.
    pub(crate) fn stream(&self, key: u32) -> Option<(&AtomicU32, GroupNr)> {
        let count = u32::try_from(self.streams.len()).ok()?;
        let Stream(last) = &self.streams[usize_of(key.checked_rem(count)?)];
        Some((last, GroupNr::new(last.load(Ordering::Relaxed))))
    }

    /// Clusters of a stripe, if large requests are to be aligned to stripes.
    pub(crate) fn stripe(&self) -> Option<u32> {
        let stripe = self.tunables.stripe();
        let cluster = self.config.cluster_blocks.max(1);
        let clusters = stripe / cluster;
        (clusters > 1 && stripe.is_multiple_of(cluster) && clusters <= self.layout.clusters_per_group())
            .then_some(clusters)
    }
}
