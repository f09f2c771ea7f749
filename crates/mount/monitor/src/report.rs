//! The report: all metrics of a mount at about one moment, as a value that can be sent.

use crate::watched::{ServerReport, Watched};
use hectare_alloc::StatsSnapshot;
use hectare_device::Operation as DeviceOperation;
use hectare_engine::{Gauges, JournalStats, Volume};
use hectare_fuse::{Histogram, OperationsSnapshot};
use hectare_units::u64_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// All metrics of a mount. Counters start with the mount; they are read one after the other, while it
/// works.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of the program that serves it.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The time since it was mounted, in seconds.
    pub uptime_seconds: f64,
    /// The image.
    pub image: String,
    /// The directory it is mounted on.
    pub dir: String,
    /// The volume's label; empty if it has none.
    pub label: String,
    /// The volume's UUID.
    pub uuid: String,
    /// The allocation policy.
    pub policy: String,
    /// Whether it was mounted read-only.
    pub read_only: bool,
    /// Why it accepts no more changes, after a failure; one line.
    pub stopped: Option<String>,
    /// Number of places with metadata corruption.
    pub broken_places: u32,
    /// The address where metrics and the live page are served, if they are.
    pub metrics: Option<String>,
    /// The requests and their answers.
    pub operations: OperationsSnapshot,
    /// The operations on the image.
    pub device: DeviceReport,
    /// What was asked of the server that has the image; `None` if it is a file or device of this machine.
    #[serde(default)]
    pub server: Option<ServerReport>,
    /// The usage of the volume; `None` if it can't be read.
    pub space: Option<Space>,
    /// Block groups of the volume.
    pub groups: u32,
    /// The allocator's counters.
    pub allocator: StatsSnapshot,
    /// The allocator's settings and state.
    #[serde(default)]
    pub search: Search,
    /// The journal's counters.
    pub journal: Journal,
    /// The memory in use.
    pub caches: Caches,
}

/// The allocator at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Search {
    /// Its tunables by name.
    pub tunables: BTreeMap<String, u64>,
    /// How contended the locks of groups are, from 0 to 8.
    pub contention: u64,
    /// Groups, or flex groups, by size class; empty under policies without classes.
    pub classes: Vec<ClassUnits>,
}

/// The groups, or flex groups, of a size class.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClassUnits {
    /// The class: `unset`, `up to 128K`, `more`.
    pub class: String,
    /// How many.
    pub units: u64,
}

/// Operations of one kind on the image.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moved {
    /// The kind: `read`, `write`, `flush`...
    pub name: String,
    /// How many succeeded.
    pub done: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How many failed.
    pub failed: u64,
}

/// The operations on the image, by kind.
pub type DeviceReport = Vec<Moved>;

/// The usage of a volume, in bytes and inodes, as `df` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Space {
    /// Bytes for files.
    pub size: u64,
    /// Bytes of them that are free.
    pub free: u64,
    /// The bytes of those available to every user.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// The journal's counters. A volume without a journal has commits, too.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Journal {
    /// Handles: changes that were started.
    pub handles: u64,
    /// Commits.
    pub commits: u64,
    /// How long each commit blocked changes.
    pub pauses: Histogram,
    /// The longest of these pauses, in nanoseconds.
    pub longest_pause_nanoseconds: u64,
}

/// The memory that a volume uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Caches {
    /// Metadata blocks.
    pub blocks: u64,
    /// Those that the next commit writes.
    pub dirty_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Those that the next commit writes.
    pub dirty_inodes: u64,
    /// Groups whose block bitmap is in memory.
    pub loaded_groups: u64,
    /// Bytes that were appended to files and are not allocated yet.
    pub delayed_bytes: u64,
    /// Blocks in the journal that are not at their final locations yet.
    pub journal_blocks: u64,
    /// Bytes that become free with the next commit.
    pub pending_bytes: u64,
    /// Bytes that are reserved for the next writes.
    pub reserved_bytes: u64,
}

impl Report {
    /// The metrics of a mount as they are now.
    pub(crate) fn of(watched: &Watched, uptime: Duration, metrics: Option<String>) -> Self {
        let volume = &watched.volume;
        let sb = volume.superblock();
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_seconds: uptime.as_secs_f64(),
            image: watched.image.to_string_lossy().into_owned(),
            dir: watched.dir.to_string_lossy().into_owned(),
            label: String::from_utf8_lossy(sb.label()).into_owned(),
            uuid: Uuid::from_bytes(sb.uuid()).to_string(),
            policy: volume.policy().to_string(),
            read_only: volume.is_read_only(),
            stopped: volume.stopped(),
            broken_places: volume.found_errors().map_or(0, |found| found.count),
            metrics,
            operations: watched.operations.snapshot(),
            device: device(watched),
            server: watched.server.as_ref().map(|counters| counters()),
            space: space(watched),
            groups: volume.group_count(),
            allocator: volume.allocator_stats(),
            search: Search::of(volume),
            journal: Journal::of(&volume.journal_stats()),
            caches: Caches::of(&volume.gauges()),
        }
    }

    /// The state of the volume in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (&self.stopped, self.read_only) {
            (Some(_), _) => "stopped",
            (None, true) => "read-only",
            (None, false) => "working",
        }
    }
}

fn device(watched: &Watched) -> DeviceReport {
    let counted = watched.device.snapshot();
    let moved = |operation: DeviceOperation| {
        let counters = counted.of(operation);
        Moved {
            name: operation.verb().into(),
            done: counters.done,
            bytes: counters.bytes.get(),
            failed: counters.failed,
        }
    };
    DeviceOperation::ON_DEVICE.into_iter().map(moved).collect()
}

fn space(watched: &Watched) -> Option<Space> {
    let fs = watched.volume.statfs().ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(fs.block_size.get()));
    Some(Space {
        size: bytes(fs.blocks.get()),
        free: bytes(fs.free.get()),
        available: bytes(fs.available.get()),
        inodes: fs.inodes.into(),
        free_inodes: fs.free_inodes.into(),
    })
}

impl Search {
    fn of(volume: &Volume) -> Self {
        let tunables = volume.tunables();
        let bounds = tunables.classes.to_string();
        let names = std::iter::once("unset".to_owned())
            .chain(bounds.split(':').map(|bound| format!("up to {bound}")))
            .chain(std::iter::once("more".to_owned()));
        let units = volume.class_units().unwrap_or_default();
        Self {
            contention: volume.contention().into(),
            classes: names
                .zip(units)
                .map(|(class, units)| ClassUnits { class, units: units.into() })
                .collect(),
            tunables: tunables
                .values()
                .map(|(name, value)| (name.to_owned(), value.unwrap_or_default().into()))
                .collect(),
        }
    }
}

impl Journal {
    fn of(stats: &JournalStats) -> Self {
        let mut pauses = Histogram::default();
        for (end, count) in stats.pauses() {
            pauses.add(end - Duration::from_nanos(1), count, Duration::ZERO);
        }
        pauses.add(Duration::ZERO, 0, stats.paused);
        Self {
            handles: stats.handles_started,
            commits: stats.commits,
            pauses,
            longest_pause_nanoseconds: u64::try_from(stats.longest_pause.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl Caches {
    fn of(gauges: &Gauges) -> Self {
        Self {
            blocks: u64_of(gauges.cached_blocks),
            dirty_blocks: u64_of(gauges.dirty_blocks),
            inodes: u64_of(gauges.cached_inodes),
            dirty_inodes: u64_of(gauges.dirty_inodes),
            loaded_groups: u64_of(gauges.loaded_groups),
            delayed_bytes: u64_of(gauges.delayed_bytes),
            journal_blocks: u64_of(gauges.journal_blocks),
            pending_bytes: gauges.pending.get(),
            reserved_bytes: gauges.reserved.get(),
        }
    }
}
