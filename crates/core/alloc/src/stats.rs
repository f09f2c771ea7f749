//! The allocator's counters, which are always on.
//!
//! A request counts in a [`RequestStats`] on its own stack, which costs plain additions, and hands it in once
//! at its end ([`Stats::add`]), where only the passes it made cost anything. The totals are spread over
//! stripes by thread, each behind a lock on cache lines of its own: one uncontended lock per request is
//! cheaper than an atomic addition per counter, and a request is either in a snapshot with all it counted or
//! not at all.
//!
//! [`StatsSnapshot::text`] and [`structs_summary`] have the layout of Linux's `mb_stats` and
//! `mb_structs_summary` under `/proc/fs/ext4/DEVICE` (as of 6.18, recorded from a running kernel; see the
//! tests), so that programs that read those can read these; what the kernel does not count follows at the
//! end. Two differences in meaning: times are in nanoseconds, and the counters start with the volume, not
//! with a switch.
//!
//! What it is not: an account of space (that is [`Counts`](crate::Counts), which is exact).

use crate::sync::{Mutex, thread_number};
use hectare_units::usize_of;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::ops::{Index, IndexMut};

/// The passes that a request can make over the groups, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Pass {
    /// The goal itself.
    #[serde(rename = "goal")]
    Goal,
    /// An aligned chunk of a power of two, by the index.
    #[serde(rename = "CR_POWER2_ALIGNED")]
    P2Aligned,
    /// Groups whose average run is as long as the goal, by the index.
    #[serde(rename = "CR_GOAL_LEN_FAST")]
    GoalFast,
    /// The same with the goal trimmed step by step.
    #[serde(rename = "CR_BEST_AVAIL_LEN")]
    BestAvail,
    /// Every group, for the length of the goal.
    #[serde(rename = "CR_GOAL_LEN_SLOW")]
    GoalSlow,
    /// Every group, for anything.
    #[serde(rename = "CR_ANY_FREE")]
    AnyFree,
    /// By the largest chunk, for the length asked for; not one of the kernel's.
    #[serde(rename = "chunk")]
    Chunk,
    /// The longest average run, for a request longer than all; not one of the kernel's.
    #[serde(rename = "split")]
    Split,
    /// The first run that will do.
    #[serde(rename = "first fit")]
    FirstFit,
    /// The shortest run that will do.
    #[serde(rename = "best fit")]
    BestFit,
}

/// What one pass counts: `u32` within a request, `u64` in total.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PassStats<N> {
    /// Requests served by this pass.
    pub hits: N,
    /// Groups asked whether they are worth a look.
    pub groups_considered: N,
    /// Free runs scanned.
    pub extents_scanned: N,
    /// Times the pass went over all its groups for nothing.
    pub useless_loops: N,
}

/// What each pass counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PassesStats<N> {
    /// The goal itself. The kernel has no such block.
    pub goal: PassStats<N>,
    /// An aligned chunk of a power of two, by the index.
    pub p2_aligned: PassStats<N>,
    /// Groups whose average run is as long as the goal, by the index.
    pub goal_fast: PassStats<N>,
    /// The same with the goal trimmed step by step.
    pub best_avail: PassStats<N>,
    /// Every group, for the length of the goal.
    pub goal_slow: PassStats<N>,
    /// Every group, for anything.
    pub any_free: PassStats<N>,
    /// By the largest chunk, for the length asked for. The kernel has no such block, nor those that follow.
    #[serde(default)]
    pub chunk: PassStats<N>,
    /// The longest average run, for a request longer than all.
    #[serde(default)]
    pub split: PassStats<N>,
    /// The first run that will do.
    #[serde(default)]
    pub first_fit: PassStats<N>,
    /// The shortest run that will do.
    #[serde(default)]
    pub best_fit: PassStats<N>,
}

impl<N> Index<Pass> for PassesStats<N> {
    type Output = PassStats<N>;

    fn index(&self, pass: Pass) -> &PassStats<N> {
        match pass {
            Pass::Goal => &self.goal,
            Pass::P2Aligned => &self.p2_aligned,
            Pass::GoalFast => &self.goal_fast,
            Pass::BestAvail => &self.best_avail,
            Pass::GoalSlow => &self.goal_slow,
            Pass::AnyFree => &self.any_free,
            Pass::Chunk => &self.chunk,
            Pass::Split => &self.split,
            Pass::FirstFit => &self.first_fit,
            Pass::BestFit => &self.best_fit,
        }
    }
}

impl<N> IndexMut<Pass> for PassesStats<N> {
    fn index_mut(&mut self, pass: Pass) -> &mut PassStats<N> {
        match pass {
            Pass::Goal => &mut self.goal,
            Pass::P2Aligned => &mut self.p2_aligned,
            Pass::GoalFast => &mut self.goal_fast,
            Pass::BestAvail => &mut self.best_avail,
            Pass::GoalSlow => &mut self.goal_slow,
            Pass::AnyFree => &mut self.any_free,
            Pass::Chunk => &mut self.chunk,
            Pass::Split => &mut self.split,
            Pass::FirstFit => &mut self.first_fit,
            Pass::BestFit => &mut self.best_fit,
        }
    }
}

impl PassStats<u64> {
    fn add(&mut self, by: &PassStats<u32>) {
        self.hits = self.hits.wrapping_add(u64::from(by.hits));
        self.groups_considered = self.groups_considered.wrapping_add(u64::from(by.groups_considered));
        self.extents_scanned = self.extents_scanned.wrapping_add(u64::from(by.extents_scanned));
        self.useless_loops = self.useless_loops.wrapping_add(u64::from(by.useless_loops));
    }

    fn combine(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            hits: f(self.hits, other.hits),
            groups_considered: f(self.groups_considered, other.groups_considered),
            extents_scanned: f(self.extents_scanned, other.extents_scanned),
            useless_loops: f(self.useless_loops, other.useless_loops),
        }
    }
}

/// Applies a function to each pass of two sets of counters, by name.
macro_rules! each_pass {
    ($a:expr, $b:expr, $f:expr) => {
        PassesStats {
            goal: $f(&$a.goal, &$b.goal),
            p2_aligned: $f(&$a.p2_aligned, &$b.p2_aligned),
            goal_fast: $f(&$a.goal_fast, &$b.goal_fast),
            best_avail: $f(&$a.best_avail, &$b.best_avail),
            goal_slow: $f(&$a.goal_slow, &$b.goal_slow),
            any_free: $f(&$a.any_free, &$b.any_free),
            chunk: $f(&$a.chunk, &$b.chunk),
            split: $f(&$a.split, &$b.split),
            first_fit: $f(&$a.first_fit, &$b.first_fit),
            best_fit: $f(&$a.best_fit, &$b.best_fit),
        }
    };
}

/// Declares the counters of a request, and their totals.
macro_rules! counters {
    (request { $($(#[$doc:meta])* $name:ident,)* } volume { $($(#[$vdoc:meta])* $vname:ident,)* }) => {
        /// What one request counts on its way.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub(crate) struct RequestStats {
            /// What each pass counted; to be changed by way of [`Self::pass`].
            pub(crate) passes: [PassStats<u32>; Pass::ALL.len()],
            /// The passes that counted anything, a bit each: the others are not added to the totals.
            pub(crate) made: u16,
            $($(#[$doc])* pub(crate) $name: u32,)*
        }

        /// The counters of a volume at one moment, since it was opened.
        #[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        pub struct StatsSnapshot {
            /// What each pass counted.
            pub passes: PassesStats<u64>,
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$vdoc])* pub $vname: u64,)*
        }

        impl StatsSnapshot {
            fn add(&mut self, by: &RequestStats) {
                let mut made = by.made;
                while made != 0 {
                    let pass = Pass::ALL[usize_of(made.trailing_zeros())];
                    self.passes[pass].add(&by.passes[pass as usize]);
                    made &= made - 1;
                }
                $(self.$name = self.$name.wrapping_add(u64::from(by.$name));)*
            }

            fn combine(&self, other: &Self, f: impl Fn(u64, u64) -> u64 + Copy) -> Self {
                let pass = |a: &PassStats<u64>, b: &PassStats<u64>| a.combine(b, f);
                Self {
                    passes: each_pass!(self.passes, other.passes, pass),
                    $($name: f(self.$name, other.$name),)*
                    $($vname: f(self.$vname, other.$vname),)*
                }
            }
        }
    };
}

counters! {
    request {
        /// Requests for space.
        reqs,
        /// Requests that got at least what they asked for.
        success,
        /// Groups that were searched.
        groups_scanned,
        /// Free runs scanned, in all passes.
        extents_scanned,
        /// Requests that got the very place of their goal.
        goal_hits,
        /// Requests that got the place a stream of their file was at.
        stream_goal_hits,
        /// Requests that got the length of their goal.
        len_goal_hits,
        /// Requests served by an aligned chunk of a power of two.
        p2_hits,
        /// Searches ended because enough was scanned.
        breaks,
        /// Runs chosen and then lost to another request before they were taken.
        lost,
        /// Groups skipped because another request held their lock.
        busy_skips,
        /// Groups skipped for the same reason before they were chosen.
        busy_peeks,
        /// Times a request waited for a group's lock.
        busy_waits,
        /// Requests served by a group of their own size class.
        class_hits_matching,
        /// Requests served by a group that had no size class yet.
        class_hits_unset,
        /// Requests served by a group of another size class.
        class_hits_any,
        /// Groups of other size classes passed over one by one, where those of a class have no index.
        class_skips,
        /// Goals trimmed to get a run at all.
        trims,
        /// Requests longer than any free run, served in pieces.
        splits,
    }
    volume {
        /// Groups whose bitmap was loaded and indexed.
        buddies_generated,
        /// Time spent on that, in nanoseconds.
        buddies_time_used,
        /// Clusters set aside for later requests of a file or a thread.
        preallocated,
        /// Clusters of those given back unused.
        discarded,
    }
}

impl Pass {
    /// The kernel's criteria, in their order.
    const CRITERIA: [Self; 5] =
        [Self::P2Aligned, Self::GoalFast, Self::BestAvail, Self::GoalSlow, Self::AnyFree];

    /// Those that the kernel does not count.
    const OWN: [Self; 5] = [Self::Goal, Self::Chunk, Self::Split, Self::FirstFit, Self::BestFit];

    /// All of them, each at its own number.
    const ALL: [Self; 10] = [
        Self::Goal,
        Self::P2Aligned,
        Self::GoalFast,
        Self::BestAvail,
        Self::GoalSlow,
        Self::AnyFree,
        Self::Chunk,
        Self::Split,
        Self::FirstFit,
        Self::BestFit,
    ];

    /// Its name in the kernel's listing; of those that are not the kernel's, one in the same form.
    const fn name(self) -> &'static str {
        match self {
            Self::Goal => "cr_goal_stats",
            Self::P2Aligned => "cr_p2_aligned_stats",
            Self::GoalFast => "cr_goal_fast_stats",
            Self::BestAvail => "cr_best_avail_stats",
            Self::GoalSlow => "cr_goal_slow_stats",
            Self::AnyFree => "cr_any_free_stats",
            Self::Chunk => "chunk_stats",
            Self::Split => "split_stats",
            Self::FirstFit => "first_fit_stats",
            Self::BestFit => "best_fit_stats",
        }
    }

    /// Its name in the kernel's code; of those that are not the kernel's, their own.
    #[must_use]
    pub const fn criterion(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::P2Aligned => "CR_POWER2_ALIGNED",
            Self::GoalFast => "CR_GOAL_LEN_FAST",
            Self::BestAvail => "CR_BEST_AVAIL_LEN",
            Self::GoalSlow => "CR_GOAL_LEN_SLOW",
            Self::AnyFree => "CR_ANY_FREE",
            Self::Chunk => "chunk",
            Self::Split => "split",
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
        }
    }
}

impl RequestStats {
    /// The counters of one pass.
    #[inline]
    pub(crate) fn pass(&mut self, pass: Pass) -> &mut PassStats<u32> {
        self.made |= 1 << pass as u16;
        &mut self.passes[pass as usize]
    }
}

/// Lines of a listing, each set in by tabs. Writing to a `String` does not fail.
struct Listing(String);

impl Listing {
    fn line(&mut self, tabs: usize, name: &str, value: u64) {
        let _ = writeln!(self.0, "{:\t<tabs$}{name}: {value}", "");
    }

    fn heading(&mut self, tabs: usize, name: &str) {
        let _ = writeln!(self.0, "{:\t<tabs$}{name}:", "");
    }

    fn pass(&mut self, pass: Pass, stats: &PassStats<u64>) {
        self.heading(1, pass.name());
        self.line(2, "hits", stats.hits);
        self.line(2, "groups_considered", stats.groups_considered);
        self.line(2, "extents_scanned", stats.extents_scanned);
        self.line(2, "useless_loops", stats.useless_loops);
    }
}

impl StatsSnapshot {
    /// What was counted since an earlier snapshot of the same volume.
    #[must_use]
    pub fn minus(&self, earlier: &Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    /// The counters as the kernel's `mb_stats` shows them, for a volume of `groups` groups; then ours.
    #[must_use]
    pub fn text(&self, groups: u32) -> String {
        let mut out = Listing(String::from("mballoc:\n"));
        out.line(1, "reqs", self.reqs);
        out.line(1, "success", self.success);
        out.line(1, "groups_scanned", self.groups_scanned);
        for pass in Pass::CRITERIA {
            out.pass(pass, &self.passes[pass]);
        }
        out.line(1, "extents_scanned", self.extents_scanned);
        out.line(2, "goal_hits", self.goal_hits);
        out.line(2, "stream_goal_hits", self.stream_goal_hits);
        out.line(2, "len_goal_hits", self.len_goal_hits);
        out.line(2, "2^n_hits", self.p2_hits);
        out.line(2, "breaks", self.breaks);
        out.line(2, "lost", self.lost);
        let _ = writeln!(out.0, "\tbuddies_generated: {}/{groups}", self.buddies_generated);
        out.line(1, "buddies_time_used", self.buddies_time_used);
        out.line(1, "preallocated", self.preallocated);
        out.line(1, "discarded", self.discarded);
        self.own_lines(&mut out);
        out.0
    }

    /// What the kernel does not count.
    fn own_lines(&self, out: &mut Listing) {
        for pass in Pass::OWN {
            out.pass(pass, &self.passes[pass]);
        }
        out.line(1, "busy_skips", self.busy_skips);
        out.line(1, "busy_peeks", self.busy_peeks);
        out.line(1, "busy_waits", self.busy_waits);
        out.heading(1, "class_hits");
        out.line(2, "matching", self.class_hits_matching);
        out.line(2, "unset", self.class_hits_unset);
        out.line(2, "any", self.class_hits_any);
        out.line(1, "class_skips", self.class_skips);
        out.line(1, "trims", self.trims);
        out.line(1, "splits", self.splits);
    }
}

/// How many groups have each order, from 0 up; groups not loaded have none.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct OrderCounts {
    /// By the order of the largest free chunk.
    pub largest: Vec<u32>,
    /// By the order of the average free run.
    pub average: Vec<u32>,
}

/// The index as the kernel's `mb_structs_summary` shows it.
#[must_use]
pub fn structs_summary(optimize_scan: bool, counts: &OrderCounts) -> String {
    let mut out = Listing(format!("optimize_scan: {}\n", u8::from(optimize_scan)));
    for (heading, counts) in
        [("max_free_order_lists", &counts.largest), ("avg_fragment_size_lists", &counts.average)]
    {
        out.heading(0, heading);
        for (order, groups) in counts.iter().enumerate() {
            out.line(1, &format!("list_order_{order}_groups"), u64::from(*groups));
        }
    }
    out.0
}

/// Stripes over which the totals are spread.
const STRIPES: usize = 64;

/// One part of the totals, away from the cache lines (fetched in pairs) of the others.
#[repr(align(128))]
#[derive(Default)]
struct Stripe(Mutex<StatsSnapshot>);

/// The live totals of a volume.
pub(crate) struct Stats {
    stripes: Box<[Stripe]>,
}

impl Default for Stats {
    fn default() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }
}

impl Stats {
    /// Changes the stripe of this thread.
    fn with(&self, f: impl FnOnce(&mut StatsSnapshot)) {
        f(&mut self.stripes[thread_number() % STRIPES].0.lock());
    }

    /// Adds what a request has counted.
    pub(crate) fn add(&self, request: &RequestStats) {
        self.with(|totals| totals.add(request));
    }

    /// A group was loaded and indexed, in so much time.
    pub(crate) fn buddy_generated(&self, nanoseconds: u64) {
        self.with(|totals| {
            totals.buddies_generated = totals.buddies_generated.wrapping_add(1);
            totals.buddies_time_used = totals.buddies_time_used.wrapping_add(nanoseconds);
        });
    }

    /// Counts `clusters` clusters that were set aside for later requests.
    pub(crate) fn preallocated(&self, clusters: u64) {
        self.with(|totals| totals.preallocated = totals.preallocated.wrapping_add(clusters));
    }

    /// Counts `clusters` of the clusters set aside that were given back.
    pub(crate) fn discarded(&self, clusters: u64) {
        self.with(|totals| totals.discarded = totals.discarded.wrapping_add(clusters));
    }

    /// The totals. Every request that has been added is in them, in full; the stripes are read one after the
    /// other, so of requests that end meanwhile some may be.
    pub(crate) fn snapshot(&self) -> StatsSnapshot {
        self.stripes
            .iter()
            .fold(StatsSnapshot::default(), |sum, stripe| sum.combine(&stripe.0.lock(), u64::wrapping_add))
    }
}

#[cfg(test)]
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod tests;
