//! What can be tuned, under the names Linux gives it in `/sys/fs/ext4/DEVICE`, with its defaults.

use serde::Serialize;

/// The knobs of the search. Lengths are in blocks where the kernel's are, else in clusters as said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Tunables {
    /// Extents one request looks at before it takes the best so far. Default 200.
    pub mb_max_to_scan: u32,
    /// Extents it looks at before it is content with one that is long enough but not exact. Default 10.
    pub mb_min_to_scan: u32,
    /// The least order (log2 of the length in clusters) of a request that is served from an aligned buddy.
    /// Default 2.
    pub mb_order2_req: u32,
    /// Files up to this many blocks share preallocated space with others; larger ones get their own. Default
    /// 16.
    pub mb_stream_req: u32,
    /// Blocks preallocated at once for small files; 0 means none. Default 512.
    pub mb_group_prealloc: u32,
    /// Orders by which "best available" may trim a goal. Default 3, so to an eighth.
    pub mb_best_avail_max_trim_order: u32,
    /// Groups from the goal on that are looked at in order before the index is asked. Default 0; the kernel
    /// uses 4 on rotating disks.
    pub mb_max_linear_groups: u32,
    /// Whether the index is used at all; `None` uses it on volumes of at least 16 groups.
    pub mb_optimize_scan: Option<bool>,
    /// Blocks of a stripe, to which large requests are aligned; 0 or 1 means none. Default 0.
    pub stripe: u32,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            mb_max_to_scan: 200,
            mb_min_to_scan: 10,
            mb_order2_req: 2,
            mb_stream_req: 16,
            mb_group_prealloc: 512,
            mb_best_avail_max_trim_order: 3,
            mb_max_linear_groups: 0,
            mb_optimize_scan: None,
            stripe: 0,
        }
    }
}

/// Volumes of at least this many groups use the index unless told otherwise.
const OPTIMIZE_SCAN_GROUPS: u32 = 16;

impl Tunables {
    /// Whether a volume of so many groups is searched through the index.
    #[must_use]
    pub fn optimize_scan(&self, groups: u32) -> bool {
        self.mb_optimize_scan.unwrap_or(groups >= OPTIMIZE_SCAN_GROUPS)
    }
}

/// How an allocator works, beside the shape of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How space is chosen.
    pub policy: crate::Policy,
    /// The knobs of the search.
    pub tunables: Tunables,
    /// Bytes of a block; a power of two.
    pub block_bytes: u32,
    /// Blocks of a cluster; a power of two, 1 without `bigalloc`.
    pub cluster_blocks: u32,
    /// Groups of a flex group, whose metadata lies together in its first; 1 if there are none.
    pub flex_groups: u32,
    /// Whether freed runs are kept for [`Allocator::take_discards`](crate::Allocator::take_discards) once
    /// their transaction has committed.
    pub discard: bool,
}

impl Default for Config {
    /// Blocks of 4 KiB, no clusters, no flex groups, no discard, the default policy.
    fn default() -> Self {
        Self {
            policy: crate::Policy::default(),
            tunables: Tunables::default(),
            block_bytes: 4096,
            cluster_blocks: 1,
            flex_groups: 1,
            discard: false,
        }
    }
}

impl Config {
    /// Bytes of a cluster.
    #[must_use]
    pub fn cluster_bytes(&self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.cluster_blocks)
    }

    /// Orders of the buddies of a group: from single clusters up to chunks of twice a block's bytes. Source:
    /// a bitmap of one block, halved from order to order, which ends at log2(block bytes) + 1.
    #[must_use]
    pub fn orders(&self) -> u32 {
        self.block_bytes.ilog2() + 2
    }
}
