//! The tunables, under the names Linux gives them in `/sys/fs/ext4/DEVICE`, with their defaults.

mod live;

pub(crate) use live::Live;

use crate::size_class::SizeClasses;
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
    /// Blocks of a stripe, to which large requests are aligned; 0 or 1 means none. `None`, the default, is
    /// what the superblock says; an allocator alone takes it for none.
    pub stripe: Option<u32>,
    /// The bounds of the size classes, under policies that have any. Default 128 KiB and 8 MiB.
    pub classes: SizeClasses,
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
            stripe: None,
            classes: SizeClasses::default(),
        }
    }
}

/// A tunable by its name.
struct Row {
    name: &'static str,
    most: u32,
    set: fn(&mut Tunables, u32),
    get: fn(&Tunables) -> Option<u32>,
}

macro_rules! rows {
    ($($name:ident up to $most:expr;)*) => {
        &[$(Row {
            name: stringify!($name),
            most: $most,
            set: |tunables, value| tunables.$name = value,
            get: |tunables| Some(tunables.$name),
        },)*
        Row {
            name: "mb_optimize_scan",
            most: 1,
            set: |tunables, value| tunables.mb_optimize_scan = Some(value == 1),
            get: |tunables| tunables.mb_optimize_scan.map(u32::from),
        },
        Row {
            name: "stripe",
            most: i32::MAX as u32,
            set: |tunables, value| tunables.stripe = Some(value),
            get: |tunables| tunables.stripe,
        }]
    };
}

/// The bounds are those of the kernel's attributes (`fs/ext4/sysfs.c`): any number of the type, orders up to
/// 64. What is longer than a group counts as a group.
const ROWS: &[Row] = rows! {
    mb_max_to_scan up to u32::MAX;
    mb_min_to_scan up to u32::MAX;
    mb_order2_req up to 64;
    mb_stream_req up to u32::MAX;
    mb_group_prealloc up to u32::MAX;
    mb_best_avail_max_trim_order up to 64;
    mb_max_linear_groups up to u32::MAX;
};

/// A tunable can't be set so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadTunable {
    /// It is no NAME=VALUE.
    #[error("'{0}': a tunable is given as NAME=VALUE")]
    Form(String),
    /// There is none of that name.
    #[error("there is no tunable '{name}' ('{nearest}' is the nearest)")]
    Name {
        /// The name.
        name: String,
        /// The tunable whose name is most like it.
        nearest: &'static str,
    },
    /// The value is no number, or out of bounds.
    #[error("{name}={value}: a number from 0 to {most} is meant")]
    Value {
        /// The tunable.
        name: &'static str,
        /// What was given.
        value: String,
        /// The largest value.
        most: u32,
    },
}

impl Tunables {
    /// Sets one by its name, given as `NAME=VALUE`.
    ///
    /// # Errors
    /// If there is none of that name, or the value is no number or out of bounds; nothing is set then.
    pub fn set(&mut self, text: &str) -> Result<(), BadTunable> {
        let (name, value) = text.split_once('=').ok_or_else(|| BadTunable::Form(text.to_owned()))?;
        let row = ROWS.iter().find(|row| row.name == name).ok_or_else(|| BadTunable::Name {
            name: name.to_owned(),
            nearest: crate::policy::nearest(ROWS.iter().map(|row| row.name), name),
        })?;
        let parsed = value.parse().ok().filter(|value| *value <= row.most);
        let bad = || BadTunable::Value { name: row.name, value: value.to_owned(), most: row.most };
        (row.set)(self, parsed.ok_or_else(bad)?);
        Ok(())
    }

    /// Those that are not as they are by default, as they would be given to [`Self::set`]; and the size
    /// classes.
    pub fn changed(&self) -> impl Iterator<Item = String> {
        let default = Self::default();
        let changed = ROWS.iter().filter(move |row| (row.get)(self) != (row.get)(&default));
        let classes = (self.classes != default.classes).then(|| format!("classes={}", self.classes));
        changed.map(|row| format!("{}={}", row.name, (row.get)(self).unwrap_or_default())).chain(classes)
    }
}

impl Tunables {
    /// The name of each, and its largest value; the smallest is 0.
    pub fn names() -> impl Iterator<Item = (&'static str, u32)> {
        ROWS.iter().map(|row| (row.name, row.most))
    }

    /// Each by its name; none for one that is left to the volume.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, Option<u32>)> {
        ROWS.iter().map(|row| (row.name, (row.get)(self)))
    }
}

/// Volumes of at least this many groups use the index by default.
const OPTIMIZE_SCAN_GROUPS: u32 = 16;

impl Tunables {
    /// Whether a volume of `groups` groups is searched through the index.
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
    /// How much is kept of the traces of requests, for [`Allocator::trace`](crate::Allocator::trace);
    /// nothing, if `None`.
    pub record: Option<crate::Recording>,
}

impl Default for Config {
    /// Blocks of 4 KiB, no clusters, no flex groups, no discard, no record, the default policy.
    fn default() -> Self {
        Self {
            policy: crate::Policy::default(),
            tunables: Tunables::default(),
            block_bytes: 4096,
            cluster_blocks: 1,
            flex_groups: 1,
            discard: false,
            record: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunables_are_set_by_their_names_within_bounds() {
        let mut tunables = Tunables::default();
        assert_eq!(tunables.changed().count(), 0);
        for given in ["mb_max_to_scan=50", "mb_optimize_scan=0", "stripe=48", "mb_order2_req=64"] {
            tunables.set(given).unwrap();
        }
        assert_eq!(
            (tunables.mb_max_to_scan, tunables.mb_optimize_scan, tunables.stripe),
            (50, Some(false), Some(48))
        );
        let changed: Vec<_> = tunables.changed().collect();
        assert_eq!(changed, ["mb_max_to_scan=50", "mb_order2_req=64", "mb_optimize_scan=0", "stripe=48"]);
        let before = tunables;
        for (given, part) in [
            ("mb_max_to_scan", "NAME=VALUE"),
            ("mb_max_scan=1", "'mb_max_to_scan' is the nearest"),
            ("mb_order2_req=65", "a number from 0 to 64"),
            ("mb_optimize_scan=2", "from 0 to 1"),
            ("stripe=-1", "stripe=-1: a number"),
            ("mb_min_to_scan=", "a number"),
        ] {
            let error = tunables.set(given).unwrap_err().to_string();
            assert!(error.contains(part), "{given}: {error}");
        }
        assert_eq!(tunables, before);
    }
}
