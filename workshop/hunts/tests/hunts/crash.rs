//! Some thousand crashes; `cargo hunt crash` tests more.

use hectare_hunts::crash::{At, Failure, Format, Image, Kept, Progress, Search, Workload, explore, look_at};
use hectare_oracle::hunt;

fn search<'a>(workloads: &'a [Workload], points: u64) -> Search<'a> {
    Search {
        workloads,
        format: None,
        seed: hunt::seed("crash"),
        points: hunt::share(points),
        threads: 2,
        oracle: None,
        flushes_lie: false,
        only: None,
    }
}

/// e2fsck as an oracle beside the checker; none where it is not installed.
fn e2fsck(image: &Image) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = |name: &str| folder.path().join(name);
    let write = |name, bytes: &[u8]| std::fs::write(path(name), bytes).map_err(|error| error.to_string());
    write("volume", &image.volume)?;
    let journal = path("journal").display().to_string();
    let mut flags = vec!["-fn"];
    if let Some(bytes) = &image.journal {
        write("journal", bytes)?;
        flags.extend(["-j", &journal]);
    }
    match hectare_oracle::fsck::e2fsck_with(&path("volume"), &flags) {
        Ok(report) if !report.is_sound() => Err(report.output),
        _ => Ok(()),
    }
}

fn told(failure: &Failure) -> String {
    let Failure { what, workload, format, seed, at, kept } = failure;
    let at = at.map(|at: At| format!(" --at {at}")).unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("hectare-crash-{}-{seed}", workload.name()));
    let kept = match kept.save(&folder) {
        Ok(()) => folder.display().to_string(),
        Err(error) => error.to_string(),
    };
    format!(
        "{what}\ncargo hunt crash --workload {} --format {} --seed {seed}{at}\nkept in {kept}",
        workload.name(),
        format.name
    )
}

#[track_caller]
fn survive(workloads: &[Workload], points: u64) {
    let oracle: &hectare_hunts::crash::Oracle<'_> = &e2fsck;
    let search = Search { oracle: Some((oracle, 200)), ..search(workloads, points) };
    let (progress, failure) = explore(&search, &|_| {}).expect("there are volumes to run on");
    assert!(failure.is_none(), "{}", failure.as_ref().map(told).unwrap_or_default());
    assert!(progress.total() >= hunt::share(points), "{progress:?}");
}

macro_rules! survives {
    ($($test:ident: $workload:ident, $points:literal;)*) => {$(
        #[test]
        fn $test() {
            survive(&[Workload::$workload], $points);
        }
    )*};
}

survives! {
    names_survive: Names, 1000;
    appends_survive: Append, 1000;
    overwrites_survive: Overwrite, 1000;
    truncates_survive: Truncate, 1000;
    fallocate_survives: Fallocate, 1000;
    attributes_survive: Xattr, 1000;
    directories_survive: Directory, 1000;
    four_threads_survive: Mixed, 1000;
    large_files_survive: Large, 800;
    full_volumes_survive: Full, 1000;
    commits_by_a_thread_of_the_volume_survive: Committer, 800;
}

/// A journal on another disk is cut off with the volume, each as far as it was flushed.
#[test]
fn journals_on_other_disks_survive() {
    let oracle: &hectare_hunts::crash::Oracle<'_> = &e2fsck;
    for format in ["1k-external", "4k-external"] {
        let format = Some(Format::by_name(format).expect("a format that there is"));
        let search = Search { format, oracle: Some((oracle, 100)), ..search(&Workload::ALL, 1000) };
        let (_, failure) = explore(&search, &|_| {}).expect("there are volumes to run on");
        assert!(failure.is_none(), "{}", failure.as_ref().map(told).unwrap_or_default());
    }
}

/// Attribute values in inodes of their own are there as a whole or not at all, and are freed with their last
/// user.
#[test]
fn values_in_inodes_of_their_own_survive() {
    use Workload::{Committer, Mixed, Names, Xattr};
    let oracle: &hectare_hunts::crash::Oracle<'_> = &e2fsck;
    for name in ["1k-values", "4k-values"] {
        let format = Some(Format::by_name(name).expect("a format that there is"));
        let workloads = [Xattr, Names, Mixed, Committer];
        let search = Search { format, oracle: Some((oracle, 100)), ..search(&workloads, 1500) };
        let (_, failure) = explore(&search, &|_| {}).expect("there are volumes to run on");
        assert!(failure.is_none(), "{}", failure.as_ref().map(told).unwrap_or_default());
    }
}

/// With `data=journal` more is promised: no write is torn, none overtakes another.
#[test]
fn journalled_data_survives_in_order() {
    use Workload::{Append, Fallocate, Mixed, Overwrite, Truncate};
    let oracle: &hectare_hunts::crash::Oracle<'_> = &e2fsck;
    for name in ["1k-data", "4k-data", "1k-bigalloc-data", "4k-bigalloc-data", "1k-external-data"] {
        let format = Some(Format::by_name(name).expect("a format that there is"));
        let workloads = [Append, Overwrite, Truncate, Fallocate, Mixed];
        let search = Search { format, oracle: Some((oracle, 200)), ..search(&workloads, 1000) };
        let (_, failure) = explore(&search, &|_| {}).expect("there are volumes to run on");
        assert!(failure.is_none(), "{}", failure.as_ref().map(told).unwrap_or_default());
    }
}

/// The sums of quotas are durable with what they count, and their trees with the first file of an owner.
#[test]
fn quotas_survive() {
    let oracle: &hectare_hunts::crash::Oracle<'_> = &e2fsck;
    for format in ["1k-quota", "4k-quota"] {
        let format = Some(Format::by_name(format).expect("a format that there is"));
        let search = Search { format, oracle: Some((oracle, 200)), ..search(&Workload::ALL, 1500) };
        let (_, failure) = explore(&search, &|_| {}).expect("there are volumes to run on");
        assert!(failure.is_none(), "{}", failure.as_ref().map(told).unwrap_or_default());
    }
}

/// All crashes of the run that a failure was found in.
#[track_caller]
fn survive_run(workload: Workload, format: &str, seed: u64) {
    let format = Some(Format::by_name(format).expect("a format that there is"));
    let workloads = [workload];
    let search = Search { seed, format, threads: 1, ..search(&workloads, 1) };
    let (_, failure) = explore(&search, &|_| {}).expect("there are volumes to run on");
    assert!(failure.is_none(), "{}", failure.as_ref().map(told).unwrap_or_default());
}

macro_rules! once_failed {
    ($($test:ident: $workload:ident, $format:literal, $seed:literal;)*) => {$(
        #[test]
        fn $test() {
            survive_run(Workload::$workload, $format, $seed);
        }
    )*};
}

once_failed! {
    replayed_blocks_are_durable_before_the_superblock_says_so: Xattr, "1k", 2;
    a_torn_superblock_does_not_lock_out: Directory, "1k", 2;
    a_torn_commit_block_is_the_end_of_the_log: Fallocate, "4k", 2044;
    an_open_file_without_a_name_is_freed: Names, "1k-orphan-list", 3;
    cutting_a_file_without_a_name_leaves_it_an_orphan: Truncate, "1k-orphan-list", 3;
}

#[test]
fn a_device_that_lies_about_flushes_is_found_out() {
    let workloads = [Workload::Names, Workload::Append];
    let search = Search { flushes_lie: true, points: 3000, ..search(&workloads, 3000) };
    let (_, failure) = explore(&search, &|_: &Progress| {}).unwrap();
    let failure = failure.expect("what a sync promised is lost when nothing was flushed");
    let at = failure.at.expect("a crash and not the run");
    let folder = tempfile::tempdir().unwrap();
    failure.kept.save(folder.path()).unwrap();
    let kept = Kept::load(folder.path()).unwrap();
    assert_eq!(kept.at(), Some(at));
    assert_eq!(look_at(&kept, at, None).unwrap_err(), failure.what);
}
