//! Aging and measuring real volumes, judged by e2fsprogs and the kernel.

use hectare_device::{Device, FileOptions};
use hectare_engine::{Creation, OpenOptions, Volume};
use hectare_lab::age::{Error, FreefragOutput, Options, Shape, age, like};
use hectare_lab::fragmentation::{FileExtents, Fragmentation};
use hectare_oracle::{KernelMount, assert_clean, e2freefrag, mke2fs, skip, skip_part};
use hectare_units::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens an image. A tool that another test starts holds a copy of every descriptor, and with it our lock on
/// an image, for the moment until it runs: that is waited for.
fn device(image: &Path) -> Arc<dyn Device> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match FileOptions::new().write(true).open(image) {
            Ok(device) => return Arc::new(device),
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Exponentially distributed free extents.
fn options(fill: f64, mean: u64, seed: u64) -> Options {
    Options { fill, shape: Shape::Exponential { mean: Bytes::new(mean), longest: None }, seed }
}

fn volume(image: &Path, options: OpenOptions) -> Volume {
    Volume::open(device(image), options).unwrap()
}

/// The number after a heading of e2freefrag's.
fn number(text: &str, heading: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(heading)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Its histogram: extents and blocks by class.
fn histogram_rows(text: &str) -> Vec<(u64, u64)> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Extent Size Range"));
    let row = |line: &str| {
        let mut words = line.split(':').nth(1)?.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    lines.skip(1).filter_map(row).collect()
}

const ARGUMENTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096", "-m", "0"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    &["-t", "ext4", "-b", "4096", "-O", "^flex_bg,^has_journal,^64bit"],
];

#[test]
fn an_aged_volume_is_as_full_and_as_cut_up_as_asked() {
    for (arguments, fill, mean) in [
        (0, 95.0, 64 << 10),
        (0, 50.0, 1 << 20),
        (1, 80.0, 24 << 10),
        (2, 70.0, 1 << 20),
        (3, 60.0, 256 << 10),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if let Err(reason) = mke2fs(ARGUMENTS[arguments], &image, "4G") {
            skip!("age::an_aged_volume", reason);
        }
        let options = options(fill, mean, 11);
        let report = age(&device(&image), &options).unwrap();
        assert!(report.is_reached(), "{report:?}");
        assert_clean(&image).unwrap();
        if arguments != 2 {
            // e2freefrag 1.47 misreads bigalloc.
            let said = e2freefrag(&image).unwrap();
            assert_eq!(number(&said, "Num. free extent:"), report.reached.extents);
            let (free, all) = (number(&said, "Free blocks:"), number(&said, "Total blocks:"));
            let full = 100.0 - 100.0 * free as f64 / all as f64;
            assert!((full - fill).abs() < 0.02 * (100.0 - fill), "{full} % full: {said}");
            let block = number(&said, "Blocksize:");
            let reached = (free * block) as f64 / report.reached.extents as f64;
            assert!((reached - mean as f64).abs() < 0.02 * mean as f64, "{reached} a free extent: {said}");
        }
        match KernelMount::new(&image, "") {
            Ok(mount) => {
                std::fs::write(mount.path().join("new"), vec![1; 3 << 20]).unwrap();
                drop(mount);
                assert_clean(&image).unwrap();
            }
            Err(reason) => skip_part!(format!("age::an_aged_volume, {arguments}"), reason),
        }
    }
}

#[test]
fn free_extents_follow_a_histogram_as_e2freefrag_sees_them() {
    for (arguments, histogram) in [
        (0, "2M-4M:85:3887K,4M-8M:10:7980K"),
        (1, "4K-8K:5,64K-256K:60,1M-2M:35"),
        (3, "8K-16K:0.01,3M-5M:50,20M-70M:49.99"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if let Err(reason) = mke2fs(ARGUMENTS[arguments], &image, "4G") {
            skip!("age::free_extents_follow_a_histogram", reason);
        }
        let asked = Options { fill: 60.0, shape: Shape::Histogram(histogram.parse().unwrap()), seed: 5 };
        let report = age(&device(&image), &asked).unwrap();
        assert!(report.is_reached() && !report.ranges.is_empty(), "{report:?}");
        assert_clean(&image).unwrap();
        let said = e2freefrag(&image).unwrap();
        assert_eq!(number(&said, "Num. free extent:"), report.reached.extents);
        let in_ranges: u64 = report.ranges.iter().map(|range| range.extents).sum();
        assert_eq!(in_ranges, report.reached.extents, "none outside: {said}");
        if arguments == 0 {
            // Both ranges are rows of its table.
            let rows = histogram_rows(&said);
            let (short, long) = (rows[rows.len() - 2], rows[rows.len() - 1]);
            let share = 100.0 * long.1 as f64 / (short.1 + long.1) as f64;
            assert!((share - 10.53).abs() < 0.2 && rows.len() == 2, "{said}");
            let mean = (short.1 * 4096) as f64 / short.0 as f64;
            assert!((mean / 1024.0 - 3887.0).abs() < 40.0, "{mean}: {said}");
        }
    }
}

#[test]
fn a_volume_becomes_like_another_and_like_what_was_printed_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
    for (image, size) in [(&one, "2G"), (&two, "3G"), (&three, "3G")] {
        if let Err(reason) = mke2fs(ARGUMENTS[0], image, size) {
            skip!("age::a_volume_becomes_like_another", reason);
        }
    }
    age(&device(&one), &options(70.0, 300 << 10, 5)).unwrap();
    let said = e2freefrag(&one).unwrap();
    let (told, printed) = (like(&device(&one)).unwrap(), said.parse::<FreefragOutput>().unwrap());
    assert_eq!(told, printed, "{said}");
    for (image, told) in [(&two, told), (&three, printed)] {
        let asked = Options { fill: told.fill.unwrap(), shape: Shape::Histogram(told.histogram), seed: 1 };
        let report = age(&device(image), &asked).unwrap();
        assert!(report.is_reached() && (report.reached.fill - 70.0).abs() < 0.2, "{report:?}");
        assert!((report.reached.mean / 1024.0 - 300.0).abs() < 6.0, "{report:?}");
        assert_clean(image).unwrap();
    }
}

#[test]
fn one_seed_makes_one_image() {
    let folder = tempfile::tempdir().unwrap();
    let images = [1, 1, 2].map(|seed| {
        let image = folder.path().join("image");
        mke2fs(ARGUMENTS[0], &image, "256M").map(|()| {
            // The tool stamps the time of day; the same one for all.
            let bytes = folder.path().join("first");
            if !bytes.exists() {
                std::fs::copy(&image, &bytes).unwrap();
            }
            std::fs::copy(&bytes, &image).unwrap();
            age(&device(&image), &options(70.0, 256 << 10, seed)).unwrap();
            std::fs::read(&image).unwrap()
        })
    });
    let [Ok(first), Ok(again), Ok(other)] = images else {
        skip!("age::one_seed_makes_one_image", "mke2fs is not installed");
    };
    assert!(first == again, "the same seed");
    assert!(first != other, "another seed");
}

#[test]
fn what_cannot_be_reached_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if let Err(reason) = mke2fs(ARGUMENTS[0], &image, "64M") {
        skip!("age::what_cannot_be_reached", reason);
    }
    let before = std::fs::read(&image).unwrap();
    for (fill, mean) in
        [(50.0, 4095), (0.0, 65_536), (100.0, 65_536), (f64::NAN, 65_536), (2.0, 65_536), (30.0, 1 << 40)]
    {
        let refused = age(&device(&image), &options(fill, mean, 1));
        assert!(matches!(refused, Err(Error::Impossible(_))), "{fill} {mean}: {refused:?}");
    }
    for histogram in ["2M-4M:100", "1K-2K:1,1M-2M:99", "128M-256M:100", "60M-100M:100", "4K-8K:100"] {
        let shape = Shape::Histogram(histogram.parse().unwrap());
        let fill = if histogram == "4K-8K:100" { 40.0 } else { 99.9 };
        let refused = age(&device(&image), &Options { fill, shape, seed: 1 });
        assert!(matches!(refused, Err(Error::Impossible(_))), "{histogram}: {refused:?}");
    }
    assert!(std::fs::read(&image).unwrap() == before);
    let options = options(60.0, 64 << 10, 1);
    age(&device(&image), &options).unwrap();
    assert!(matches!(age(&device(&image), &options), Err(Error::Impossible(_))), "twice");
}

#[test]
fn free_extents_are_counted_as_e2freefrag_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if let Err(reason) = mke2fs(ARGUMENTS[0], &image, "3G") {
        skip!("fragmentation::free_extents_are_counted", reason);
    }
    age(
        &device(&image),
        &Options {
            fill: 75.0,
            shape: Shape::Exponential { mean: Bytes::kib(300), longest: Some(Bytes::mib(1)) },
            seed: 5,
        },
    )
    .unwrap();
    let found = Fragmentation::of(&volume(&image, OpenOptions::read_only())).unwrap();
    let said = e2freefrag(&image).unwrap();
    let ours: Vec<_> = found.histogram.iter().map(|bucket| (bucket.runs, bucket.bytes / 4096)).collect();
    assert_eq!(ours, histogram_rows(&said), "{said}");
    assert_eq!(found.free_extents, number(&said, "Num. free extent:"));
    assert!(found.histogram.iter().all(|bucket| bucket.from_bytes <= 1 << 20), "none is longer than 1 MiB");
    assert_eq!(found.regions.len(), 3);
    assert!(found.summary().fragmented == 3 && found.summary().min > 95.0, "{:?}", found.summary());
    let free: u64 = found.regions.iter().map(|region| region.free_bytes).sum();
    assert_eq!(free / 4096, number(&said, "Free blocks:"));
}

#[test]
fn fixed_metadata_does_not_count_as_fragmentation_but_strictly_does() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if let Err(reason) = mke2fs(&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], &image, "2G") {
        skip!("fragmentation::fixed_metadata", reason);
    }
    let open = volume(&image, OpenOptions::default());
    // A directory's block comes before the file's: what lies before it is metadata, not free.
    open.write_file("/file", &vec![7; 100_000], Creation::default()).unwrap();
    open.close().unwrap();
    drop(open);
    let closed = volume(&image, OpenOptions::read_only());
    let found = Fragmentation::of(&closed).unwrap();
    let (plain, strict) = (found.summary(), found.strict_summary());
    assert_eq!(plain.used, 1);
    assert!(strict.fragmented == 1 && strict.mean > 10.0, "superblock copies split: {strict:?}");
    assert!(plain.mean < strict.mean, "{plain:?} {strict:?}");
    let data: u64 = found.regions.iter().map(|region| region.data_bytes).sum();
    assert_eq!(data, 25 * 4096);
    let files = FileExtents::under(&closed, b"/").unwrap();
    assert_eq!((files.files, files.extents, files.bytes), (1, 1, 25 * 4096));
}
