//! Reports: the table's shape, JSON there and back, and a page that is well-formed whatever the names are.

use crate::markup::complaint;
use hectare_engine::Bucket;
use hectare_lab::fragmentation::{FileExtents, Fragmentation, Region};
use hectare_lab::inspect::Inspection;
use hectare_lab::latency::Latency;
use hectare_lab::report::Machine;
use hectare_lab::run::Measure;
use hectare_lab::stats::AllocatorStats;
use hectare_lab::timing::Timing;
use hectare_lab::{Report, Run};

const STATS: &str = "mballoc:\n\treqs: 100\n\tsuccess: 100\n\tgroups_scanned: 9\n\tcr_p2_aligned_stats:\n\
    \t\thits: 70\n\tcr_goal_fast_stats:\n\t\thits: 0\n\tcr_any_free_stats:\n\t\thits: 30\n\
    \textents_scanned: 500\n\tcr_goal_stats:\n\t\thits: 12\n";

fn run(workload: &str, policy: Option<&str>, threads: u32, operations: u64) -> Run {
    let measure = Measure {
        what: "fallocate calls".into(),
        operations,
        bytes: operations * 8192,
        seconds: 2.0,
        per_thread: vec![operations / u64::from(threads); usize::try_from(threads).unwrap()],
        ..Measure::default()
    };
    Run {
        workload: workload.into(),
        variant: "small".into(),
        target: "/tmp/disk.img".into(),
        system: if policy.is_some() { "engine" } else { "ext4" }.into(),
        policy: policy.map(Into::into),
        label: None,
        threads,
        measure,
        jobs: Vec::new(),
        wall_seconds: 2.0,
        sync_seconds: 0.5,
        folder: None,
        allocator: AllocatorStats::parse(STATS),
        pauses: None,
        timing: Timing::default(),
        explanation: None,
        inspection: None,
        remarks: Vec::new(),
    }
}

fn inspection() -> Inspection {
    let region = |free_bytes, largest_free_bytes, data_bytes| Region {
        free_runs: 2,
        free_bytes,
        largest_free_bytes,
        data_bytes,
        ..Region::default()
    };
    let regions = vec![region(100, 60, 5), region(100, 100, 5), region(0, 0, 5), region(100, 30, 0)];
    let histogram = vec![
        Bucket { from_bytes: 4096, runs: 9, bytes: 40_960 },
        Bucket { from_bytes: 1 << 40, runs: 1, bytes: 1 << 40 },
    ];
    Inspection {
        files: FileExtents { files: 4, bytes: 1 << 20, extents: 8, extents_max: 3 },
        fragmentation: Fragmentation { regions, histogram, ..Fragmentation::default() },
    }
}

fn report(runs: Vec<Run>) -> Report {
    let processor = "A <fast> one".to_owned();
    let machine = Machine { processor, processors: 2, memory: 24 << 30, kernel: "6.18".into() };
    Report { made: Some("2026-11-20 18:00".into()), machines: vec![machine], runs }
}

#[test]
fn the_tables_shape() {
    let mut kernel = run("fallocate2", None, 2, 120_000);
    kernel.allocator = None;
    let mut mixed = run("four-sizes", Some("hybrid"), 1, 10);
    let latency = Latency {
        count: 10,
        mean_ns: 900,
        min_ns: 700,
        p50_ns: 800,
        p95_ns: 1_200,
        p99_ns: 1_500,
        max_ns: 3_000_000,
    };
    mixed.measure.latency = Some(latency);
    mixed.inspection = Some(inspection());
    let engine = [1, 2].map(|threads| run("fallocate2", Some("hybrid"), threads, 2_400_000));
    let runs = engine.into_iter().chain([kernel, mixed]).collect();
    let expected = "\
fallocate2: small (fallocate calls)
               threads  per second   synced   MB/s  synced MB/s   fairness  scanned/op
engine hybrid        1   1,200,000  960,000  9,830        7,864          -        0.00
engine hybrid        2   1,200,000  960,000  9,830        7,864  1.00-1.00        0.00
kernel ext4          2      60,000   48,000    492          393  1.00-1.00           -

four-sizes: small (fallocate calls)
               threads  per second  synced  MB/s  synced MB/s     p50      p99      max  scanned/op  \
extents/file  KiB/extent  fragmented  mean
engine hybrid        1           5       4  0.04         0.03  800 ns  1.50 us  3.00 ms        50.0          \
2.00         128         1/3  40 %
";
    assert_eq!(report(runs).table(), expected);
}

#[test]
fn a_page_is_well_formed_whatever_is_in_it() {
    let mut hostile = run("a<b>&\"c", Some("x\"y<z>"), 1, 5);
    hostile.label = Some("</svg><script>alert(1)</script>\u{1}".into());
    hostile.target = "/tmp/<&>".into();
    hostile.inspection = Some(inspection());
    let mut nothing = run("empty", Some("hybrid"), 1, 0);
    nothing.measure = Measure::default();
    nothing.inspection =
        Some(Inspection { files: FileExtents::default(), fragmentation: Fragmentation::default() });
    let mut huge = run("fallocate2", None, 64, 1 << 40);
    let mut many = inspection();
    many.fragmentation.regions = vec![many.fragmentation.regions[0]; 5000];
    huge.inspection = Some(many);
    let mut runs = vec![hostile, nothing, huge];
    for threads in [1, 2, 64] {
        runs.extend((0..10).map(|nr| run("fallocate2", Some(&format!("policy {nr}")), threads, 1000 * nr)));
    }
    let page = report(runs).page();
    assert_eq!(complaint(&page), None);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert_eq!(complaint(&Report::default().page()), None);
}

#[test]
fn charts_show_what_there_is() {
    let mut with = run("four-sizes", Some("hybrid"), 1, 10);
    let without = report(vec![Run { allocator: None, ..with.clone() }]).page();
    assert!(without.contains("Fallocate calls per second"));
    for title in ["by threads", "answered by each pass", "Fragmentation of each region", "length of its runs"]
    {
        assert!(!without.contains(title), "{title}");
    }
    with.inspection = Some(inspection());
    let page = report(vec![with.clone(), Run { threads: 2, ..with }]).page();
    for title in ["by threads", "answered by each pass", "Fragmentation of each region", "length of its runs"]
    {
        assert!(page.contains(title), "{title}");
    }
    assert!(page.contains("1 of 3 in use, mean 40 %") && page.contains("112 answered, 500 extents scanned"));
}

#[test]
fn reports_survive_json_and_join() {
    let mut run = run("fallocate2", Some("hybrid"), 1, 10);
    run.inspection = Some(inspection());
    let one = report(vec![run]);
    let text = serde_json::to_string(&one).unwrap();
    let back: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(back, one);
    let both = Report::merged([one, back]);
    assert_eq!((both.machines.len(), both.runs.len()), (1, 2));
    // The same system twice is a repetition, distinguished in the table.
    assert!(both.table().contains("engine hybrid #2"), "{}", both.table());
}
