//! Size classes: the six jobs they were measured with, with each half of our mechanism alone.

use super::figure::{Figure, Of};
use super::plan::{FileSystem, Runner, Section, Shown, Volume, policy, published, shown};
use super::{Experiment, Options, Part, Role, sections};
use crate::bench::Settings;
use crate::target::engine::Through;
use crate::workload::Workload;
use crate::workload::fragmentation::{self, Mix};
use hectare_tools::error::Result;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "size-classes",
    title: "groups set apart by the size of requests leave less fragmented space behind",
    source: "Boris Burkov, \"btrfs: introduce size class to block group allocator\", Linux 6.3 (52bb7a2166)",
    differs: "The published rows are btrfs's on its block groups of 1 GiB; the baseline here is first \
              fit with the kernel's preallocation windows, on ext4's groups, and a region of 1 GiB \
              stands for a block group. find_free_extent is one search of btrfs; here it is one \
              request for space that the file's window does not answer. Kernel threads' time is not in \
              sys_cpu. A strict figure counts a free run as split where ext4's fixed metadata lies in \
              it.",
    make,
};

fn make(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let section = |mix: Mix| Section {
        title: mix.name().to_owned(),
        about: "as in fsperf, on a fresh volume of 32 GiB".to_owned(),
        volume: Volume { size: 32 << 30, block: 4096, aged: None },
        workload: Workload::Fragmentation(fragmentation::Options {
            scale: if options.quick { 0.02 } else { 1.0 },
            ..fragmentation::Options::new(mix)
        }),
        threads: 1,
        sides: sides(),
        figures: if mix == Mix::AppendVsFallocate { all(true) } else { all(false) },
        notes: Vec::new(),
    };
    sections(Mix::ALL.into_iter().map(section).collect(), options, say)
}

fn sides() -> Vec<Runner> {
    let engine = |title: &str, role, text: &str| {
        let settings = Settings { policy: policy(text), timed: true, ..Settings::default() };
        Runner::with(title, role, Through::Cache, settings)
    };
    vec![
        engine("first-fit", Role::Before, "first-fit"),
        engine("+classes", Role::After, "first-fit,+classes,+class-index"),
        engine("+classes, no index", Role::Beside, "first-fit,+classes"),
        engine("+room", Role::Beside, "first-fit,+room"),
        engine("+classes +room", Role::Beside, "first-fit,+classes,+class-index,+room"),
        engine("hybrid", Role::Beside, "hybrid"),
        Runner::kernel(FileSystem::Ext4, ""),
        Runner::kernel(FileSystem::Btrfs, ""),
        Runner::kernel(FileSystem::Xfs, ""),
    ]
}

/// The rows of the published table, in its order, and those that only ext4 has. What was published is of
/// append-vs-fallocate.
fn all(is_published: bool) -> Vec<Shown> {
    let mut rows = vec![
        published("avg_commit_ms", Figure::Commit(Of::Mean), 31.13, 29.20),
        published("bg_count", Figure::Regions, 14.0, 15.60),
        published("commits", Figure::Commit(Of::Number), 11.10, 12.20),
        published("elapsed", Figure::Elapsed, 27.30, 26.40),
        published("end_state_mount_ns", Figure::Open, 11_122_551.90, 10_635_118.90),
        published("end_state_umount_ns", Figure::Close, 1.36e9, 1.35e9),
        published("find_free_extent_calls", Figure::Reservation(Of::Number), 116_244.30, 114_354.30),
        published("find_free_extent_ns_max", Figure::Reservation(Of::Max), 599_507.20, 1_047_168.20),
        published("find_free_extent_ns_mean", Figure::Reservation(Of::Mean), 3607.19, 3672.11),
        published("find_free_extent_ns_min", Figure::Reservation(Of::Min), 500.0, 512.0),
        published("find_free_extent_ns_p50", Figure::Reservation(Of::P50), 2848.0, 2876.0),
        published("find_free_extent_ns_p95", Figure::Reservation(Of::P95), 4916.0, 5000.0),
        published("find_free_extent_ns_p99", Figure::Reservation(Of::P99), 20_734.49, 20_920.48),
        published("frag_pct_max", Figure::Fragmentation(Of::Max), 61.67, 0.0),
        published("frag_pct_mean", Figure::Fragmentation(Of::Mean), 43.59, 0.0).drawn(),
        published("frag_pct_min", Figure::Fragmentation(Of::Min), 25.91, 0.0),
        published("frag_pct_p50", Figure::Fragmentation(Of::P50), 42.53, 0.0),
        published("frag_pct_p95", Figure::Fragmentation(Of::P95), 61.67, 0.0),
        published("frag_pct_p99", Figure::Fragmentation(Of::P99), 61.67, 0.0),
        published("fragmented_bg_count", Figure::Fragmentation(Of::Number), 6.10, 0.0).drawn(),
        published("max_commit_ms", Figure::Commit(Of::Max), 49.80, 46.0),
        published("sys_cpu", Figure::SystemTime, 2.59, 2.62),
        published("write_bw_bytes", Figure::BytesPerSecond, 1.62e8, 1.68e8).drawn(),
        published("write_clat_ns_mean", Figure::Latency(Of::Mean), 57_426.39, 54_475.95),
        published("write_clat_ns_p50", Figure::Latency(Of::P50), 46_950.40, 42_905.60),
        published("write_clat_ns_p99", Figure::Latency(Of::P99), 148_070.40, 143_769.60),
        published("write_io_kbytes", Figure::Kibibytes, 4_194_304.0, 4_194_304.0),
        published("write_iops", Figure::Rate, 2476.15, 2556.10),
        published("write_lat_ns_max", Figure::Latency(Of::Max), 2_101_667.60, 2_251_129.50),
        published("write_lat_ns_mean", Figure::Latency(Of::Mean), 59_374.91, 55_682.0),
        published("write_lat_ns_min", Figure::Latency(Of::Min), 17_353.10, 16_250.0),
    ];
    if !is_published {
        rows.iter_mut().for_each(|row| row.published = [None; 2]);
    }
    rows.extend([
        shown("strict fragmented_bg_count", Figure::StrictFragmentation(Of::Number)),
        shown("strict frag_pct_mean", Figure::StrictFragmentation(Of::Mean)),
        shown("extents per file", Figure::ExtentsPerFile).drawn(),
        shown("requests of the search", Figure::Calls),
        shown("usr_cpu", Figure::UserTime),
        shown("write + sync ns p50", Figure::Synced(Of::P50)),
    ]);
    rows
}
