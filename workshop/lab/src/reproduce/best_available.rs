//! The criterion of the best available length: goals that no group can serve are trimmed instead of searched
//! for.

use super::figure::Figure;
use super::plan::{FileSystem, Runner, Section, Shown, Volume, policy, published, shown};
use super::{Experiment, Options, Part, Role, sections};
use crate::age;
use crate::bench::Settings;
use crate::target::engine::Through;
use crate::workload::{Streams, Workload, size, small_files, streams};
use hectare_alloc::Tunables;
use hectare_tools::error::{Error, Result};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "best-available",
    title: "a goal that no group has is trimmed instead of searched for (CR_BEST_AVAIL_LEN)",
    source: "Ojaswin Mujoo, Ritesh Harjani, \"multiblock allocator improvements\", linux-ext4, 2023-05-25",
    differs: "The published machine is a POWER server with pages of 64 KiB and an NVMe drive (Test 1) or \
              persistent memory (Test 2). Extents scanned, requests and hits are to be compared, files per \
              second are not. The kernel's side is a kernel that has the series; its mount option \
              mb_optimize_scan=0 leaves the group index out, not the criterion, and this machine's kernel \
              may not mount blocks larger than a page. fio's job of Test 3 was not published.",
    make,
};

/// What was published of one test: rate, extents scanned, hits by criterion (the third is the new one).
struct Published {
    rate: [f64; 2],
    scanned: [f64; 2],
    hits: [[f64; 2]; 5],
}

const FILES: u64 = 40_000;
const QUICK_FILES: u64 = 2000;
const THREADS: u32 = 64;
/// What a file is long before it is written: ext4's table then gives each block a goal of 8 MiB.
const PRESIZE: u64 = 16 << 20;
const VOLUME: u64 = 100 << 30;
const QUICK_VOLUME: u64 = 16 << 30;

const TEST_1_64K: Published = Published {
    rate: [6866.0, 13_527.0],
    scanned: [8_188_644.0, 1_719_725.0],
    hits: [[381.0, 381.0], [330.0, 280.0], [0.0, 33_299.0], [4779.0, 1000.0], [35_534.0, 6064.0]],
};
const TEST_2_64K: Published = Published {
    rate: [6927.0, 8422.0],
    scanned: [8_055_911.0, 261_268.0],
    hits: [[1011.0, 1721.0], [999.0, 1210.0], [0.0, 38_093.0], [6153.0, 0.0], [32_861.0, 0.0]],
};
const TEST_1_4K: Published = Published {
    rate: [21_618.0, 23_528.0],
    scanned: [8_149_272.0, 223_013.0],
    hits: [[34.0, 34.0], [1380.0, 1341.0], [0.0, 40_387.0], [5624.0, 0.0], [34_710.0, 0.0]],
};
const TEST_2_4K: Published = Published {
    rate: [30_739.0, 30_946.0],
    scanned: [7_742_853.0, 2_176_475.0],
    hits: [[1131.0, 1596.0], [2244.0, 1079.0], [0.0, 28_425.0], [3914.0, 1098.0], [34_468.0, 8547.0]],
};

fn make(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let files = if options.quick { QUICK_FILES } else { FILES };
    let total = if options.quick { 64 << 20 } else { 5 << 30 };
    let (bytes, aged) = (if options.quick { QUICK_VOLUME } else { VOLUME }, aged()?);
    let volume = |block| Volume { size: bytes, block, aged: Some(aged.clone()) };
    let small = |title: &str, block, through, published: &Published| Section {
        title: title.to_owned(),
        about: format!(
            "{THREADS} threads write {files} files of 64 KiB in one directory, no delayed allocation"
        ),
        volume: volume(block),
        workload: Workload::SmallFiles(small_files::Options {
            files,
            presize: PRESIZE,
            ..small_files::Options::default()
        }),
        threads: THREADS,
        sides: sides(through),
        figures: figures(published),
        notes: Vec::new(),
    };
    let stream = |title: &str, block, pattern, before, after| Section {
        title: title.to_owned(),
        about: format!("{}, no delayed allocation", size(total)),
        volume: volume(block),
        workload: Workload::Streams(streams::Options { pattern, total, ..streams::Options::default() }),
        threads: 2,
        sides: sides(Through::Cache),
        figures: stream_figures(before, after),
        notes: Vec::new(),
    };
    let all = vec![
        small("Test 1, blocks of 64 KiB", 65_536, Through::Cache, &TEST_1_64K),
        small("Test 2, blocks of 64 KiB, dax", 65_536, Through::Dax, &TEST_2_64K),
        stream(
            "Test 3, blocks of 64 KiB: half sequential, half random",
            65_536,
            Streams::Mixed,
            387.0,
            443.0,
        ),
        stream("Test 4, blocks of 64 KiB: sequential", 65_536, Streams::Sequential, 3139.0, 3180.0),
        small("Test 1, blocks of 4 KiB", 4096, Through::Cache, &TEST_1_4K),
        small("Test 2, blocks of 4 KiB, dax", 4096, Through::Dax, &TEST_2_4K),
        stream("Test 3, blocks of 4 KiB: half sequential, half random", 4096, Streams::Mixed, 200.0, 186.0),
        stream("Test 4, blocks of 4 KiB: sequential", 4096, Streams::Sequential, 621.0, 632.0),
    ];
    sections(all, options, say)
}

/// Half full, and the free extents in e2freefrag's output for the published volume with blocks of 64 KiB
/// after Test 1 without the series: ranges in KiB, extents, blocks. Of the one with 4 KiB only the mean was
/// published.
fn aged() -> Result<age::Options> {
    const KIB: u64 = 1 << 10;
    const FOUND: [(u64, u64, u64, u64); 6] = [
        (128, 256, 1, 2),
        (256, 512, 1, 6),
        (512, 1024, 4, 48),
        (1024, 2048, 5, 120),
        (2048, 4096, 11_947, 725_624),
        (4096, 8192, 672, 83_796),
    ];
    let row = |(from, to, extents, blocks)| age::Row {
        from: from * KIB,
        to: to * KIB,
        extents,
        bytes: blocks * 64 * KIB,
    };
    let histogram = age::Histogram::counted(FOUND.map(row)).map_err(Error::Invalid)?;
    Ok(age::Options { fill: 50.0, shape: age::Shape::Histogram(histogram), seed: 1 })
}

fn sides(through: Through) -> Vec<Runner> {
    // 100 GiB are four groups of 64 KiB blocks; the published hits say that the index was on all the same.
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    let engine = |title: &str, role, text: &str| {
        let settings =
            Settings { policy: policy(text), tunables, delayed_allocation: false, ..Settings::default() };
        Runner::with(title, role, through, settings)
    };
    let mut sides = vec![
        engine("without", Role::Before, "mballoc,-best-avail,-skip-smaller,-locality"),
        engine("with", Role::After, "mballoc,-locality"),
        engine("criterion alone", Role::Beside, "mballoc,-skip-smaller,-locality"),
        engine("hybrid", Role::Beside, "hybrid"),
    ];
    if through == Through::Cache {
        sides.push(Runner::kernel(FileSystem::Ext4, "nodelalloc mb_optimize_scan=0"));
        sides.push(Runner::kernel(FileSystem::Ext4, "nodelalloc mb_optimize_scan=1"));
    }
    sides
}

fn figures(of: &Published) -> Vec<Shown> {
    let pair = |name: &str, figure, [before, after]: [f64; 2]| published(name, figure, before, after);
    vec![
        pair("files per second", Figure::Rate, of.rate).drawn(),
        shown("files per second, synced", Figure::SyncedRate),
        pair("extents scanned", Figure::Count("extents_scanned"), of.scanned),
        pair("extents scanned per call", Figure::ScannedPerCall, scanned_per_call(of)).drawn(),
        pair("calls of the allocator", Figure::Calls, calls(of)).drawn(),
        shown("at the goal", Figure::Hits("goal")),
        pair("CR_POWER2_ALIGNED (cr0)", Figure::Hits("p2_aligned"), of.hits[0]),
        pair("CR_GOAL_LEN_FAST (cr1)", Figure::Hits("goal_fast"), of.hits[1]),
        pair("CR_BEST_AVAIL_LEN (cr1.5)", Figure::Hits("best_avail"), of.hits[2]).drawn(),
        pair("CR_GOAL_LEN_SLOW (cr2)", Figure::Hits("goal_slow"), of.hits[3]),
        pair("CR_ANY_FREE (cr3)", Figure::Hits("any_free"), of.hits[4]),
        shown("chunk", Figure::Hits("chunk")),
        shown("split", Figure::Hits("split")),
    ]
}

fn stream_figures(before: f64, after: f64) -> Vec<Shown> {
    vec![
        published("MB/s", Figure::Bandwidth, before, after).drawn(),
        shown("MB/s, synced", Figure::SyncedBandwidth),
        shown("extents scanned", Figure::Count("extents_scanned")).drawn(),
        shown("calls of the allocator", Figure::Calls),
        shown("extents per file", Figure::ExtentsPerFile),
    ]
}

/// Published hits added up.
fn calls(of: &Published) -> [f64; 2] {
    [0, 1].map(|side| of.hits.iter().map(|hits| hits[side]).sum())
}

fn scanned_per_call(of: &Published) -> [f64; 2] {
    let calls = calls(of);
    [of.scanned[0] / calls[0], of.scanned[1] / calls[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_add_up_to_about_a_call_a_file() {
        for of in [&TEST_1_64K, &TEST_2_64K, &TEST_1_4K, &TEST_2_4K] {
            assert!(calls(of).iter().all(|calls| (39_000.0..42_000.0).contains(calls)), "{:?}", calls(of));
        }
        let [before, after] = scanned_per_call(&TEST_1_64K);
        assert!((before - 199.6).abs() < 0.1 && (after - 41.9).abs() < 0.1);
    }
}
