//! Every workload, small, on the engine and in a directory: counts add up, files are there, volumes are
//! clean.

use hectare_device::FileOptions;
use hectare_lab::age;
use hectare_lab::fragmentation::FileExtents;
use hectare_lab::inspect::inspect;
use hectare_lab::workload::fragmentation::{self, Mix};
use hectare_lab::workload::processes::Worker;
use hectare_lab::workload::{
    fallocate2, fsync_append, many_appenders, random_overwrite, small_files, streams,
};
use hectare_lab::{Access, After, Bench, How, On, Policy, Run, Settings, Streams, Through, Workload, bench};
use hectare_oracle::{KernelMount, Skip, assert_clean, assert_clean_but_wide, mke2fs, scratch, skip};
use hectare_units::Bytes;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// One test at a time: a program started by another test can hold our image's lock for the moment between its
/// fork and its exec, and the image then seems to be in use.
static GATE: Mutex<()> = Mutex::new(());

/// A directory in memory, and an empty volume in it.
struct Scene {
    folder: TempDir,
    image: PathBuf,
    _gate: MutexGuard<'static, ()>,
}

impl Scene {
    fn new(size: &str) -> Result<Self, Skip> {
        let gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir_in(scratch::folder()).unwrap();
        let image = folder.path().join("disk.img");
        mke2fs(&["-t", "ext4"], &image, size)?;
        Ok(Self { folder, image, _gate: gate })
    }

    fn engine(&self) -> On {
        On::Engine { image: self.image.clone(), through: Through::Cache, settings: Settings::default() }
    }
}

fn on(workload: Workload, on: On, threads: &[u32]) -> Bench {
    Bench { workload, on, threads: threads.to_vec(), after: After::Keep, replace: false, label: None }
}

/// What a run of the small form of a workload must leave: files, their length, and operations, where they are
/// predictable.
struct Expected {
    workload: Workload,
    threads: u32,
    files: u64,
    file_bytes: u64,
    operations: Option<u64>,
}

fn small() -> Vec<Expected> {
    let expect = |workload, threads, files, file_bytes, operations| Expected {
        workload,
        threads,
        files,
        file_bytes,
        operations: Some(operations),
    };
    let files = small_files::Options { files: 50, size: 40 * KIB, ..small_files::Options::default() };
    let synced = small_files::Options { fsync_each: true, ..files };
    let presized = small_files::Options { presize: 16 * MIB, ..files };
    let appenders = many_appenders::Options { size: 256 * KIB, ..many_appenders::Options::default() };
    let writers = many_appenders::Options { how: How::Write, ..appenders };
    let stream = streams::Options { total: 10 * MIB, piece: 4 * MIB, ..streams::Options::default() };
    let mixed = streams::Options { pattern: Streams::Mixed, ..stream };
    let mut all = vec![
        expect(Workload::SmallFiles(files), 3, 50, 40 * KIB, 50),
        expect(Workload::SmallFiles(synced), 3, 50, 40 * KIB, 50),
        expect(Workload::SmallFiles(presized), 3, 50, 40 * KIB, 50),
        expect(Workload::ManyAppenders(appenders), 5, 5, 256 * KIB, 5 * 64),
        expect(Workload::ManyAppenders(writers), 5, 5, 256 * KIB, 5 * 64),
        expect(Workload::Streams(stream), 1, 1, 10 * MIB, 3),
        expect(Workload::Streams(mixed), 2, 2, 5 * MIB, 5 * MIB / (4 * KIB) + 2),
    ];
    let time = Duration::from_millis(50);
    let steps = fallocate2::Options { time, ..fallocate2::Options::default() };
    let apart = fallocate2::Options { apart: true, ..steps.clone() };
    for steps in [steps, apart] {
        all.push(Expected { operations: None, ..expect(Workload::Fallocate2(steps), 4, 4, 0, 0) });
    }
    let overwrite = Workload::RandomOverwrite(overwrites());
    all.push(Expected { operations: None, ..expect(overwrite, 3, 4, MIB + 64 * KIB, 0) });
    for mix in Mix::ALL {
        let options = fragmentation::Options { scale: 1.0 / 64.0, ..fragmentation::Options::new(mix) };
        let jobs = options.jobs();
        let stay = jobs.iter().find(|job| !job.unlink);
        let bytes = stay.map_or(0, |job| job.file / job.block * job.block);
        let measured = jobs.iter().filter(|job| job.measured);
        let operations =
            measured.map(|job| u64::from(job.threads) * job.loops * (job.file / job.block)).sum();
        let files = stay.map_or(0, |job| u64::from(job.threads));
        all.push(expect(Workload::Fragmentation(options), 1, files, bytes, operations));
    }
    all
}

fn overwrites() -> random_overwrite::Options {
    let time = Duration::from_millis(50);
    random_overwrite::Options { files: 4, size: MIB + 64 * KIB, time, ..random_overwrite::Options::default() }
}

/// Checks a run's figures against each other and against what was expected.
fn adds_up(expected: &Expected, run: &Run) {
    let (name, measure) = (&run.workload, &run.measure);
    if let Some(operations) = expected.operations {
        assert_eq!(measure.operations, operations, "{name}");
    }
    assert!(measure.operations > 0 && measure.bytes > 0 && measure.seconds > 0.0, "{name}: {measure:?}");
    assert_eq!(measure.per_thread.iter().sum::<u64>(), measure.operations, "{name}");
    assert!(run.wall_seconds >= measure.seconds && run.sync_seconds >= 0.0, "{name}");
    let measured = run.jobs.iter().filter(|job| job.measured).map(|job| job.measure.operations);
    assert!(run.jobs.is_empty() || measured.sum::<u64>() == measure.operations, "{name}");
    if matches!(expected.workload, Workload::Fragmentation(_)) {
        let latency = measure.latency.unwrap();
        assert!(latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.max_ns, "{name}: {latency:?}");
    }
}

#[test]
fn every_workload_on_the_engine() {
    let scene = match Scene::new("256M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::on_the_engine", reason),
    };
    for expected in small() {
        let mut bench_of = on(expected.workload.clone(), scene.engine(), &[expected.threads]);
        bench_of.replace = true;
        let runs = bench(&bench_of, |_| ()).unwrap();
        adds_up(&expected, &runs[0]);
        let files = runs[0].inspection.as_ref().unwrap().files;
        seen(&expected, &files);
        clean(&expected.workload, &scene.image);
        bench_of.after = After::Remove;
        bench(&Bench { threads: vec![1, 2], ..bench_of }, |_| ()).map(drop).or_else(no_mix_alone).unwrap();
        assert_eq!(
            inspect(&scene.image, &runs[0].folder.clone().unwrap()).unwrap().files,
            FileExtents::default()
        );
        assert_clean(&scene.image).unwrap();
    }
}

/// Clean without a question; but of a file written at random e2fsck may suggest a narrower tree: extents that
/// came to touch each other were joined, the leaves that held them stayed.
fn clean(workload: &Workload, image: &Path) {
    let mixed = matches!(workload, Workload::Streams(options) if options.pattern == Streams::Mixed);
    if !mixed {
        return assert_clean(image).unwrap();
    }
    assert_clean_but_wide(image, |_| true).unwrap();
}

/// Mixed streams refuse one thread.
fn no_mix_alone(error: hectare_lab::Error) -> Result<(), hectare_lab::Error> {
    if error.to_string().contains("at least two threads") { Ok(()) } else { Err(error) }
}

/// Files that hold nothing may not be counted.
fn seen(expected: &Expected, files: &FileExtents) {
    let name = expected.workload.name();
    if expected.file_bytes > 0 {
        assert_eq!(
            (files.files, files.bytes),
            (expected.files, expected.files * expected.file_bytes),
            "{name}"
        );
        assert!(files.extents >= files.files && files.extents_max >= 1, "{name}: {files:?}");
    } else {
        assert_eq!(files.bytes, 0, "{name}: {files:?}");
    }
}

#[test]
fn every_workload_in_a_folder() {
    for expected in small() {
        let folder = tempfile::tempdir_in(scratch::folder()).unwrap();
        let place = On::Directory(folder.path().to_owned());
        let runs = bench(&on(expected.workload.clone(), place, &[expected.threads]), |_| ()).unwrap();
        adds_up(&expected, &runs[0]);
        let mut lengths = Vec::new();
        collect(&folder.path().join(runs[0].folder.as_ref().unwrap()), &mut lengths);
        let name = expected.workload.name();
        assert_eq!(hectare_units::u64_of(lengths.len()), expected.files, "{name}");
        assert!(lengths.iter().all(|len| *len == expected.file_bytes), "{name}: {lengths:?}");
    }
}

fn collect(folder: &Path, lengths: &mut Vec<u64>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        if meta.is_dir() { collect(&entry.path(), lengths) } else { lengths.push(meta.len()) }
    }
}

#[test]
fn appends_are_made_durable_one_by_one() {
    let scene = match Scene::new("128M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::appends", reason),
    };
    let options = fsync_append::Options { size: 64 * KIB, time: Duration::from_millis(100), append: 4 * KIB };
    let workload = Workload::FsyncAppend(options);
    let folder = On::Directory(scene.folder.path().to_owned());
    for place in [scene.engine(), folder] {
        let runs = bench(&on(workload.clone(), place.clone(), &[2]), |_| ()).unwrap();
        let measure = &runs[0].measure;
        assert!(measure.operations > 0 && measure.bytes == measure.operations * 4 * KIB, "{measure:?}");
        let (whole, sync) = (measure.latency.unwrap(), measure.sync_latency.unwrap());
        assert!(sync.p50_ns > 0 && whole.max_ns >= sync.max_ns, "{whole:?} {sync:?}");
        if let On::Engine { .. } = place {
            let files = runs[0].inspection.as_ref().unwrap().files;
            assert!(files.bytes <= 2 * 64 * KIB, "a file became too large: {files:?}");
            assert_clean(&scene.image).unwrap();
        }
    }
}

#[test]
fn overwrites_are_counted_apart_and_take_no_handle_once_they_are_measured() {
    let scene = match Scene::new("256M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::overwrites_are_counted_apart", reason),
    };
    let ramp = Duration::from_millis(50);
    for (reads, some_reads, some_writes) in [(50, true, true), (0, false, true), (100, true, false)] {
        let options = random_overwrite::Options { reads, ramp, ..overwrites() };
        let bench_of =
            Bench { after: After::Remove, ..on(Workload::RandomOverwrite(options), scene.engine(), &[2]) };
        let run = bench(&bench_of, |_| ()).unwrap().remove(0);
        let count = |name: &str| run.job(name).unwrap().operations;
        assert_eq!((count("reads") > 0, count("writes") > 0), (some_reads, some_writes), "{reads}");
        assert_eq!(count("reads") + count("writes"), run.measure.operations);
        // Laying the files out took handles; what is measured did not.
        assert_eq!(run.handles_per_operation(), Some(0.0), "{:?}", run.allocator);
    }
    // Every append takes at least one.
    let appends = many_appenders::Options { size: 64 * KIB, ..many_appenders::Options::default() };
    let bench_of = on(Workload::ManyAppenders(appends), scene.engine(), &[1]);
    let handles = bench(&bench_of, |_| ()).unwrap().remove(0).handles_per_operation().unwrap();
    assert!(handles >= 1.0, "{handles}");
}

#[test]
fn files_to_overwrite_are_as_large_as_the_place_holds() {
    let scene = match Scene::new("256M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::files_to_overwrite", reason),
    };
    let time = Duration::from_millis(20);
    let options = random_overwrite::Options { files: 16, time, ..random_overwrite::Options::default() };
    let run = bench(&on(Workload::RandomOverwrite(options), scene.engine(), &[1]), |_| ()).unwrap().remove(0);
    assert_eq!(run.variant, "4 KiB, 50 % reads, 16 files of 4 MiB, the most that fits");
    assert_eq!(run.inspection.unwrap().files.bytes, 64 * MIB);
}

#[test]
fn a_volume_too_small_for_a_job_is_refused_unchanged() {
    let scene = match Scene::new("64M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::a_volume_too_small", reason),
    };
    let before = std::fs::read(&scene.image).unwrap();
    let exactly = random_overwrite::Options { fit: random_overwrite::Fit::Exactly, ..Default::default() };
    let many = random_overwrite::Options { files: 100_000, ..Default::default() };
    let appenders = many_appenders::Options { size: 128 * MIB, ..Default::default() };
    for workload in [
        Workload::Streams(streams::Options::default()),
        Workload::SmallFiles(small_files::Options::default()),
        Workload::RandomOverwrite(exactly),
        Workload::RandomOverwrite(many),
        Workload::ManyAppenders(appenders),
    ] {
        let refused = bench(&on(workload.clone(), scene.engine(), &[1]), |_| ()).unwrap_err().to_string();
        assert!(refused.contains("disk.img: too small for this: the files take "), "{refused}");
        assert!(refused.ends_with(" are free") && !refused.contains('\n'), "{refused}");
        let base = On::Directory(scene.folder.path().join("none"));
        assert!(bench(&on(workload, base, &[1]), |_| ()).is_err());
    }
    let processes = fallocate2::Options {
        processes: Some(Worker { program: "none".into(), arguments: Vec::new() }),
        ..fallocate2::Options::default()
    };
    let refused = bench(&on(Workload::Fallocate2(processes), scene.engine(), &[1]), |_| ()).unwrap_err();
    assert!(refused.to_string().contains("an image has one process"), "{refused}");
    assert!(std::fs::read(&scene.image).unwrap() == before);
}

#[test]
fn processes_that_do_not_work_end_the_run_with_one_line() {
    let folder = tempfile::tempdir_in(scratch::folder()).unwrap();
    let script = |text: &str| Worker { program: "sh".into(), arguments: vec!["-c".into(), text.into()] };
    let missing = Worker { program: "/none/at/all".into(), arguments: Vec::new() };
    for (worker, reason) in [
        (missing, "/none/at/all: No such file"),
        (script("exit 3"), "a process ended before it was to"),
        (script("echo no place"), "no place"),
        (script("echo ready; read x"), "a process ended before it was to"),
        (script("echo ready; cat > /dev/null; echo done 1 2"), "done 1 2"),
        (script("echo ready; cat > /dev/null; echo it is full"), "it is full"),
    ] {
        let time = Duration::from_millis(10);
        let options = fallocate2::Options { time, processes: Some(worker), ..Default::default() };
        let place = On::Directory(folder.path().to_owned());
        let bench_of = Bench { after: After::Remove, ..on(Workload::Fallocate2(options), place, &[2]) };
        let refused = bench(&bench_of, |_| ()).unwrap_err().to_string();
        assert!(refused.contains(reason) && !refused.contains('\n'), "{refused}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_bare_file_is_made_of_the_size_of_all_files_and_goes() {
    let folder = tempfile::tempdir_in(scratch::folder()).unwrap();
    let file = folder.path().join("raw");
    let mut bench_of = on(Workload::RandomOverwrite(overwrites()), On::Raw(file.clone()), &[2]);
    let runs = bench(&bench_of, |_| ()).unwrap();
    assert_eq!((runs[0].system.as_str(), runs[0].title().as_str()), ("raw", "raw"));
    assert!(runs[0].measure.operations > 0 && runs[0].folder.is_none());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4 * (MIB + 64 * KIB));

    let refused = bench(&bench_of, |_| ()).unwrap_err().to_string();
    assert!(refused.contains("raw") && refused.contains("--replace"), "{refused}");
    (bench_of.replace, bench_of.after) = (true, After::Remove);
    bench(&bench_of, |_| ()).unwrap();
    assert!(!file.exists());

    bench_of.workload = Workload::SmallFiles(small_files::Options::default());
    let refused = bench(&bench_of, |_| ()).unwrap_err().to_string();
    assert!(refused.contains("random-overwrite") && !file.exists(), "{refused}");
}

#[test]
fn an_image_is_overwritten_past_the_page_cache_too() {
    let scene = match Scene::new("128M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::an_image_past_the_cache", reason),
    };
    let place =
        On::Engine { image: scene.image.clone(), through: Through::Direct, settings: Settings::default() };
    let only_reads = random_overwrite::Options { reads: 100, access: Access::Cached, ..overwrites() };
    let runs = match bench(&on(Workload::RandomOverwrite(only_reads), place, &[2]), |_| ()) {
        Ok(runs) => runs,
        Err(error) if error.to_string().contains("no direct I/O") => {
            skip!("lab workloads::an_image_past_the_cache", error)
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(runs[0].system, "engine direct");
    assert_clean(&scene.image).unwrap();
}

#[test]
fn every_policy_leaves_a_clean_volume() {
    let scene = match Scene::new("128M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::every_policy", reason),
    };
    let options =
        fragmentation::Options { scale: 1.0 / 256.0, ..fragmentation::Options::new(Mix::FourSizes) };
    for policy in Policy::ALL {
        let settings = Settings { policy, ..Settings::default() };
        let place = On::Engine { image: scene.image.clone(), through: Through::Cache, settings };
        let bench_of = Bench { replace: true, ..on(Workload::Fragmentation(options), place, &[]) };
        let runs = bench(&bench_of, |_| ()).unwrap();
        assert_eq!(runs[0].policy.as_deref(), Some(&*policy.to_string()));
        assert_clean(&scene.image).unwrap();
    }
}

#[test]
fn a_presized_file_is_one_request_for_eight_mebibytes() {
    let scene = match Scene::new("4G") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::a_presized_file", reason),
    };
    // Free extents of just under 4 MiB: a trimmed goal finds one at once, a full one looks at 200.
    let aging = age::Options {
        fill: 60.0,
        shape: age::Shape::Exponential { mean: Bytes::mib(2), longest: Some(Bytes::kib(4000)) },
        seed: 1,
    };
    age::age(&(Arc::new(FileOptions::new().write(true).open(&scene.image).unwrap()) as Arc<_>), &aging)
        .unwrap();
    let files = small_files::Options { files: 200, presize: 16 * MIB, ..small_files::Options::default() };
    for (policy, pass, scanned) in [("mballoc,-best-avail", "goal_slow", 201), ("mballoc", "best_avail", 1)] {
        let settings = Settings { policy: policy.parse().unwrap(), ..Settings::default() };
        let place = On::Engine { image: scene.image.clone(), through: Through::Cache, settings };
        let bench_of = Bench { after: After::Remove, ..on(Workload::SmallFiles(files), place, &[1]) };
        let counted = bench(&bench_of, |_| ()).unwrap().remove(0).allocator.unwrap();
        let hits = counted.passes.iter().find(|one| one.name == pass).unwrap().hits();
        assert_eq!(hits, 200, "{policy}: {}", counted.shown());
        // The directory's blocks are the other requests, and found at their goals.
        let (requests, all) = (counted.count("reqs"), counted.count("extents_scanned"));
        assert!((200..220).contains(&requests), "{policy}: {}", counted.shown());
        assert!((200 * scanned..200 * scanned + 20).contains(&all), "{policy}: {}", counted.shown());
    }
}

#[test]
fn a_folder_of_an_earlier_run_is_not_touched_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::SmallFiles(small_files::Options { files: 3, ..small_files::Options::default() });
    let first = on(workload, On::Directory(folder.path().to_owned()), &[1]);
    bench(&first, |_| ()).unwrap();
    let theirs = folder.path().join("bench-small-files/theirs");
    std::fs::write(&theirs, "x").unwrap();
    let refused = bench(&first, |_| ()).unwrap_err().to_string();
    assert!(refused.contains("bench-small-files is there") && !refused.contains('\n'), "{refused}");
    assert!(theirs.exists());
    bench(&Bench { replace: true, after: After::Remove, ..first }, |_| ()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_full_volume_ends_the_run_with_one_line() {
    let scene = match Scene::new("64M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::a_full_volume", reason),
    };
    // How much they will write before their time is over is unpredictable.
    let time = Some(Duration::from_secs(60));
    let options = many_appenders::Options { how: How::Write, size: 32 * MIB, time, ..Default::default() };
    let full = Bench { after: After::Remove, ..on(Workload::ManyAppenders(options), scene.engine(), &[8]) };
    let refused = bench(&full, |_| ()).unwrap_err().to_string();
    assert!(refused.contains("disk.img") && refused.contains("full") && !refused.contains('\n'), "{refused}");
    assert_eq!(inspect(&scene.image, &full.folder()).unwrap().files, FileExtents::default());
    assert_clean(&scene.image).unwrap();
}

#[test]
fn what_is_no_volume_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("noise");
    let workload = || Workload::SmallFiles(small_files::Options::default());
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let engine = |image: &Path| {
        let (through, settings) = (Through::Cache, Settings::default());
        On::Engine { image: image.to_owned(), through, settings }
    };
    for place in [engine(&image), engine(&folder.path().join("none")), On::Directory(image.clone())] {
        let refused = bench(&on(workload(), place, &[1]), |_| ()).unwrap_err().to_string();
        let named = refused.contains("noise") || refused.contains("none");
        assert!(named && !refused.contains('\n'), "{refused}");
    }
    assert_eq!(std::fs::read(&image).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn a_kernel_mount_is_a_folder_whose_image_can_be_looked_at() {
    let scene = match Scene::new("128M") {
        Ok(scene) => scene,
        Err(reason) => skip!("lab workloads::a_kernel_mount", reason),
    };
    let mount = match KernelMount::new(&scene.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("lab workloads::a_kernel_mount", reason),
    };
    let workload =
        Workload::SmallFiles(small_files::Options { files: 40, ..small_files::Options::default() });
    let runs = bench(&on(workload, On::Directory(mount.path().to_owned()), &[4]), |_| ()).unwrap();
    mount.unmount();
    assert_eq!((runs[0].system.as_str(), runs[0].policy.as_deref()), ("ext4", None));
    let seen = inspect(&scene.image, runs[0].folder.as_ref().unwrap()).unwrap();
    assert_eq!((seen.files.files, seen.files.bytes), (40, 40 * 64 * KIB));
    assert!(!seen.fragmentation.histogram.is_empty());
    drop(scene.folder);
}
