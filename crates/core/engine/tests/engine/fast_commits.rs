//! Fast commits that the kernel left: what was synced is recovered, by every reader.
//!
//! The expected state is what the kernel showed while the volume was mounted, when the image was copied and
//! all had been synced. The kernel's own replay is the second oracle, but loses some of that (so do e2fsprogs
//! 1.47); where it does, the test says so.

use crate::common::{
    InMemory, assert_clean_bytes, entries_of, in_memory_with, pattern, save, try_entries_of, unhurried,
};
use hectare_device::{CrashStates, Device, MemoryDevice, OverlayDevice, RecordDevice};
use hectare_engine::{Creation, Error, OpenOptions, Volume};
use hectare_ext4::checksum::crc32c;
use hectare_oracle::hunt::{self, long};
use hectare_oracle::{
    Entry, KernelMount, Kind, Skip, Time, What, assert_clean, assert_same, compare, debugfs, mke2fs, scratch,
    skip, walk,
};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;

const FORMATS: [(&str, &[&str], &str); 6] = [
    ("4K", &["-b", "4096", "-J", "size=8"], ""),
    ("1K", &["-b", "1024", "-J", "size=4"], ""),
    ("writeback", &["-b", "4096", "-J", "size=8"], "data=writeback"),
    ("no checksums", &["-b", "4096", "-O", "^metadata_csum,^64bit", "-J", "size=8"], ""),
    ("bigalloc", &["-b", "1024", "-O", "bigalloc", "-C", "16384", "-J", "size=4"], ""),
    ("small inodes", &["-b", "4096", "-I", "128", "-J", "size=8"], ""),
];

/// A volume as a crash leaves it, what it held, and its journal in debugfs' words.
struct Left {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    log: String,
}

impl Left {
    /// How many valid records of a kind the fast commits have.
    fn count(&self, tag: &str) -> usize {
        self.log.lines().filter(|line| line.starts_with(&format!("tag {tag}"))).count()
    }
}

/// Mounts a new volume, prepares and syncs it as a whole, then runs `work`, and takes the bytes that a crash
/// leaves. A `sync` of the machine that no test calls commits in full what the fast commits should have: if
/// `is_wanted` says no, it is all done again, some times.
fn left_by_the_kernel(
    args: &[&str],
    options: &str,
    is_wanted: impl Fn(&Left) -> bool,
    mut prepare: impl FnMut(&Path),
    mut work: impl FnMut(&Path),
) -> Result<Left, Skip> {
    let mut left = left_once(args, options, &mut prepare, &mut work)?;
    for _ in 0..5 {
        if is_wanted(&left) {
            break;
        }
        left = left_once(args, options, &mut prepare, &mut work)?;
    }
    Ok(left)
}

fn has_fast_commits(left: &Left) -> bool {
    left.count("TAIL") > 0
}

fn left_once(
    args: &[&str],
    options: &str,
    mut prepare: impl FnMut(&Path),
    mut work: impl FnMut(&Path),
) -> Result<Left, Skip> {
    let image = scratch::fresh("fast");
    let always = ["-t", "ext4", "-O", "fast_commit", "-E", "lazy_itable_init=0"];
    mke2fs(&[&always, args].concat(), &image, "32M")?;
    let mount = KernelMount::unhurried(&image, options)?;
    prepare(mount.path());
    // Only what is committed in full by then is no part of the fast commits.
    let mut sync = hectare_oracle::tool("sync").unwrap();
    let _ = hectare_oracle::tool::run(sync.arg("-f").arg(mount.path())).expect_success();
    work(mount.path());
    let bytes = mount.image_at_rest();
    let entries = walk(mount.path());
    mount.unmount();
    save(&bytes, &image);
    let log = debugfs(&image, &["logdump -a"])?;
    fs::remove_file(image).unwrap();
    Ok(Left { bytes, entries, log })
}

fn write(path: &Path, at: u64, data: &[u8]) {
    let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    file.write_all_at(data, at).unwrap();
    file.sync_all().unwrap();
}

fn quiet(bytes: &[u8]) -> Result<InMemory, Error> {
    in_memory_with(bytes, OpenOptions { seed: Some(1), ..unhurried() })
}

/// Without the times of directories, which fast commits don't record.
pub(crate) fn comparable(entries: &[Entry]) -> Vec<Entry> {
    let untimed = |entry: &Entry| {
        let mtime = if entry.kind == Kind::Directory { Time::default() } else { entry.mtime };
        Entry { mtime, ..entry.clone() }
    };
    entries.iter().map(untimed).collect()
}

#[track_caller]
pub(crate) fn assert_equal(found: &[Entry], expected: &[Entry], what: What) {
    assert_same(&comparable(found), &comparable(expected), what);
}

/// What the kernel finds on a volume after a crash; the volume it leaves must be clean if `clean`.
pub(crate) fn as_the_kernel_recovers(bytes: &[u8], clean: bool) -> Result<Vec<Entry>, Skip> {
    let image = scratch::fresh("recovered");
    save(bytes, &image);
    let mount = KernelMount::new(&image, "")?;
    let entries = walk(mount.path());
    mount.unmount();
    if clean {
        assert_clean(&image)?;
    }
    fs::remove_file(image).unwrap();
    Ok(entries)
}

/// The same after e2fsck replayed and repaired.
pub(crate) fn as_e2fsck_recovers(bytes: &[u8]) -> Result<Vec<Entry>, Skip> {
    let image = scratch::fresh("repaired");
    save(bytes, &image);
    let report = hectare_oracle::fsck::e2fsck_with(&image, &["-fy"])?;
    assert!(report.output.contains("recovering journal"), "{}", report.output);
    let repaired = fs::read(&image).unwrap();
    fs::remove_file(image).unwrap();
    as_the_kernel_recovers(&repaired, true)
}

/// What holds for any volume with fast commits: reading and writing find what was synced, what is written is
/// clean, and a crash after that leaves what the kernel recovers.
fn check(left: &Left, what: What) -> Result<(), Skip> {
    let reading = in_memory_with(&left.bytes, OpenOptions::read_only()).unwrap();
    assert_equal(&entries_of(&reading.volume), &left.entries, what);
    reading.volume.close().unwrap();
    assert!(reading.device.to_vec() == left.bytes, "reading writes nothing");

    let writing = quiet(&left.bytes).unwrap();
    assert_equal(&entries_of(&writing.volume), &left.entries, what);
    let crashed = writing.device.to_vec();
    assert_equal(&as_the_kernel_recovers(&crashed, true)?, &left.entries, what);
    writing.volume.close().unwrap();
    assert_clean_bytes(&writing.device.to_vec());

    let again = quiet(&left.bytes).unwrap();
    crate::logged::work(&again.volume, 0);
    again.volume.check_space().unwrap();
    again.volume.sync().unwrap();
    let ours = entries_of(&again.volume);
    let crashed = again.device.to_vec();
    assert_same(&as_the_kernel_recovers(&crashed, true)?, &ours, What::content());
    again.volume.close().unwrap();
    assert_clean_bytes(&again.device.to_vec());
    Ok(())
}

fn prepare(root: &Path) {
    let folder = root.join("folder");
    fs::create_dir(&folder).unwrap();
    for (n, name) in ["gone", "replaced", "moved", "cut", "punched", "linked", "kept"].iter().enumerate() {
        fs::write(folder.join(name), pattern(n as u64, 1, 70_000)).unwrap();
    }
    fs::create_dir(folder.join("other")).unwrap();
}

/// Some of each change that the kernel writes as fast commits and replays correctly.
fn some_of_each(root: &Path) {
    let folder = root.join("folder");
    for n in 0..5usize {
        write(&folder.join(format!("new-{n}")), 0, &pattern(n as u64, 2, 3000 * (n + 1)));
    }
    write(&folder.join("kept"), 90_000, &pattern(9, 3, 5000));
    write(&folder.join("kept"), 500, b"over");
    fs::hard_link(folder.join("linked"), folder.join("other/link")).unwrap();
    fs::remove_file(folder.join("gone")).unwrap();
    let cut = File::options().write(true).open(folder.join("cut")).unwrap();
    cut.set_len(20_000).unwrap();
    cut.sync_all().unwrap();
    let punched = File::options().write(true).open(folder.join("punched")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 16_384, 32_768).unwrap();
    rustix::fs::fallocate(&punched, FallocateFlags::KEEP_SIZE, 131_072, 65_536).unwrap();
    punched.sync_all().unwrap();
    write(&folder.join("punched"), 140_000, b"in what was allocated");
    fs::rename(folder.join("moved"), folder.join("other/moved")).unwrap();
    fs::rename(folder.join("new-1"), folder.join("replaced")).unwrap();
    write(&folder.join("last"), 0, b"the last");
}

#[test]
fn what_the_kernel_synced_is_there() {
    let test = "fast_commits::what_the_kernel_synced_is_there";
    let (mut commits, mut ranges, mut names) = (0, 0, 0);
    for (name, args, options) in FORMATS {
        println!("{name}");
        let what = What { holes: None, ..What::all() };
        let left = match left_by_the_kernel(args, options, has_fast_commits, prepare, some_of_each) {
            Ok(left) => left,
            Err(reason) => skip!(test, reason),
        };
        println!(
            "{}",
            left.log.lines().filter(|line| line.starts_with("tag")).collect::<Vec<_>>().join("\n")
        );
        commits += left.count("TAIL");
        ranges += left.count("ADD_RANGE") * left.count("DEL_RANGE");
        names += left.count("ADD_ENTRY") * left.count("DEL_ENTRY") * left.count("CREAT_DENTRY");
        if let Err(reason) = check(&left, what) {
            skip!(test, reason);
        }
        match as_the_kernel_recovers(&left.bytes, false) {
            Ok(theirs) => assert_equal(&theirs, &left.entries, what),
            Err(reason) => skip!(test, reason),
        }
    }
    assert!(commits > 0 && ranges > 0 && names > 0, "{commits} commits, {ranges}, {names}");
}

/// Where nothing is freed e2fsprogs 1.47 agree. They take a reused number for its old file.
#[test]
fn e2fsck_agrees_where_nothing_is_freed() {
    let test = "fast_commits::e2fsck_agrees_where_nothing_is_freed";
    let (_, args, options) = FORMATS[0];
    let is_wanted = |left: &Left| left.count("TAIL") > 2 && left.count("ADD_ENTRY") > 1;
    let checked = left_by_the_kernel(args, options, is_wanted, prepare, |root| {
        let folder = root.join("folder");
        for n in 0..4usize {
            write(&folder.join(format!("new-{n}")), 0, &pattern(n as u64, 2, 3000 * (n + 1)));
        }
        fs::hard_link(folder.join("linked"), folder.join("other/link")).unwrap();
        fs::rename(folder.join("moved"), folder.join("other/moved")).unwrap();
        write(&folder.join("kept"), 90_000, &pattern(9, 3, 5000));
    })
    .and_then(|left| {
        assert!(is_wanted(&left), "{}", left.log);
        assert_equal(&as_e2fsck_recovers(&left.bytes)?, &left.entries, What::all());
        check(&left, What::all())
    });
    if let Err(reason) = checked {
        skip!(test, reason);
    }
}

/// Fast commits that were replayed stayed in their area: e2fsck took them for damage of the log that followed, and
/// dropped it.
#[test]
fn regression_fast_commits_of_another_session_cost_the_log() {
    let test = "fast_commits::regression_fast_commits_of_another_session";
    let (_, args, options) = FORMATS[0];
    let checked =
        left_by_the_kernel(args, options, has_fast_commits, prepare, some_of_each).and_then(|left| {
            let held = quiet(&left.bytes).unwrap();
            for n in 0..3 {
                held.volume.create_dir(format!("synced-{n}"), Creation::default()).unwrap();
                held.volume.sync().unwrap();
            }
            let expected = entries_of(&held.volume);
            // A session of Linux declares the area again, and e2fsck then reads what is in it.
            let first = area_of(&left).start;
            assert!(held.device.to_vec()[first..first + 1024].iter().all(|byte| *byte == 0));
            assert_equal(
                &as_e2fsck_recovers(&held.device.to_vec())?,
                &expected,
                What { holes: None, ..What::all() },
            );
            Ok(())
        });
    if let Err(reason) = checked {
        skip!(test, reason);
    }
}

/// A file that is made without a name and then given one.
fn link_nameless(folder: &Path, name: &str, data: &[u8]) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(0o644)).unwrap();
    let mut file = File::from(file);
    file.write_all(data).unwrap();
    rustix::fs::linkat(&file, "", CWD, folder.join(name), AtFlags::EMPTY_PATH).unwrap();
    file.sync_all().unwrap();
}

/// The kernel (6.18) loses the name: it comes before the inode, and that is not there yet.
#[test]
fn regression_a_name_for_a_file_that_had_none_is_kept() {
    let test = "fast_commits::regression_a_name_for_a_file_that_had_none_is_kept";
    let (_, args, options) = FORMATS[0];
    let is_wanted = |left: &Left| left.count("ADD_ENTRY") > 0;
    let left = left_by_the_kernel(args, options, is_wanted, prepare, |root| {
        write(&root.join("folder/new"), 0, b"new");
        fs::remove_file(root.join("folder/gone")).unwrap(); // its number is taken again
        link_nameless(&root.join("folder"), "named", &pattern(1, 1, 10_000));
        link_nameless(&root.join("folder"), "twice", &pattern(2, 1, 10_000));
        fs::hard_link(root.join("folder/twice"), root.join("folder/other/twice")).unwrap();
        write(&root.join("folder/new"), 3, b"er");
    });
    let checked = left.and_then(|left| {
        assert!(is_wanted(&left), "{}", left.log);
        check(&left, What::all())
    });
    if let Err(reason) = checked {
        skip!(test, reason);
    }
}

/// The kernel (6.18) leaves a removed directory in use, without a name.
#[test]
fn regression_a_removed_directory_is_free() {
    let test = "fast_commits::regression_a_removed_directory_is_free";
    for (name, args, options) in FORMATS {
        println!("{name}");
        let is_wanted = |left: &Left| left.count("DEL_ENTRY") > 0;
        let left = left_by_the_kernel(args, options, is_wanted, prepare, |root| {
            write(&root.join("folder/new"), 0, b"new");
            fs::remove_dir(root.join("folder/other")).unwrap();
            write(&root.join("folder/kept"), 100_000, b"new");
        });
        let checked = left.and_then(|left| {
            assert!(is_wanted(&left), "{}", left.log);
            check(&left, What::all())
        });
        if let Err(reason) = checked {
            skip!(test, reason);
        }
    }
}

#[test]
fn directories_that_grow_keep_out_of_what_files_were_given() {
    let test = "fast_commits::directories_that_grow";
    let args = ["-b", "1024", "-J", "size=4,fast_commit_size=1024"];
    let is_wanted = |left: &Left| left.count("CREAT_DENTRY") > 20;
    let left = left_by_the_kernel(&args, "", is_wanted, prepare, |root| {
        for n in 0..150u64 {
            let path = root.join(format!("folder/{n:04}{}", "n".repeat(200)));
            write(&path, 0, &pattern(n, 4, 3000));
        }
        fs::remove_file(root.join("folder/gone")).unwrap();
        write(&root.join("folder/kept"), 100_000, b"new");
    });
    let checked = left.and_then(|left| {
        assert!(is_wanted(&left), "{}", left.log);
        check(&left, What::all())
    });
    if let Err(reason) = checked {
        skip!(test, reason);
    }
}

/// One change of the kernel's volume; impossible ones are skipped. Changes of files are synced, those of
/// names come along.
fn one_change(root: &Path, random: &mut SplitMix64) {
    let folders = ["folder", "folder/other", "folder/a", "folder/other/b"].map(|folder| root.join(folder));
    let mut place = || {
        let folder = &folders[random.below(4) as usize];
        folder.join(format!("f{}", random.below(12)))
    };
    let (path, other) = (place(), place());
    let at = random.below(60) * 3000;
    let open = |path: &Path| File::options().write(true).open(path);
    match random.below(20) {
        0..=6 => {
            let file = File::options().create(true).truncate(false).write(true).open(&path);
            let Ok(file) = file else { return };
            let _ = file.write_all_at(&pattern(at, 5, 1 + random.below(20_000) as usize), at);
            file.sync_all().unwrap();
        }
        7 | 8 => drop(fs::remove_file(&path)),
        9 | 10 => drop(fs::rename(&path, &other)),
        11 => drop(fs::hard_link(&path, &other)),
        12 => drop(symlink("to".repeat(1 + random.below(60) as usize), &path)),
        13 => drop(fs::create_dir(path.parent().unwrap())),
        14 => drop(fs::remove_dir(path.parent().unwrap())),
        15 if path.parent().unwrap().is_dir() && path.symlink_metadata().is_err() => {
            link_nameless(path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap(), b"nameless");
        }
        16 => {
            let Ok(file) = open(&path) else { return };
            file.set_len(at).unwrap();
            file.sync_all().unwrap();
        }
        choice => {
            let Ok(file) = open(&path) else { return };
            let keep = FallocateFlags::KEEP_SIZE;
            let flags = match choice {
                17 => keep | FallocateFlags::PUNCH_HOLE,
                18 => keep | FallocateFlags::ZERO_RANGE,
                _ => keep,
            };
            let _ = rustix::fs::fallocate(&file, flags, at, 1 + random.below(100_000));
            file.sync_all().unwrap();
        }
    }
}

#[test]
fn random_changes_that_the_kernel_synced_are_there() {
    let test = "fast_commits::random_changes";
    let seeds = if long(test) { 200 } else { 18 };
    let (first, mut commits) = (hunt::seed(test) % 1_000_000, 0);
    for seed in first..first + seeds {
        let (name, args, options) = FORMATS[seed as usize % FORMATS.len()];
        let mut random = SplitMix64::new(seed);
        let left = left_by_the_kernel(args, options, has_fast_commits, prepare, |root| {
            for _ in 0..10 + random.below(60) {
                one_change(root, &mut random);
            }
            // Comes with all the names.
            write(&root.join("folder/kept"), 100_000, b"the last");
        });
        println!("{name}, seed {seed}");
        let checked = left.and_then(|left| {
            commits += left.count("TAIL");
            check(&left, What { holes: None, ..What::all() })
        });
        if let Err(reason) = checked {
            skip!(test, reason);
        }
    }
    assert!(commits > seeds as usize, "{commits} fast commits");
}

/// An interrupted recovery leaves a volume that recovers to the same state.
#[test]
fn a_crash_while_fast_commits_are_replayed_loses_nothing() {
    let test = "fast_commits::a_crash_while_fast_commits_are_replayed";
    for (name, args, options) in &FORMATS[..2] {
        let left = match left_by_the_kernel(args, options, has_fast_commits, prepare, some_of_each) {
            Ok(left) => left,
            Err(reason) => skip!(test, reason),
        };
        let recorder = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&left.bytes)));
        let recorded = unhurried();
        let volume = Volume::open(Arc::clone(&recorder) as Arc<dyn Device>, recorded).unwrap();
        volume.close().unwrap();
        let mut states = CrashStates::new(MemoryDevice::from_bytes(&left.bytes), recorder.log());
        let points: Vec<usize> = states.points().collect();
        assert!(points.len() > 10, "{name}: {}", points.len());
        for point in points {
            for seed in 0..4 {
                let device = Arc::new(states.torn(point, seed).unwrap());
                let options = unhurried();
                let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options)
                    .unwrap_or_else(|error| panic!("{name}, {point}, {seed}: {error}"));
                let found = comparable(&entries_of(&volume));
                if let Err(differences) = compare(&found, &comparable(&left.entries), What::content()) {
                    panic!("{name}, point {point}, seed {seed}: {differences}");
                }
                volume.close().unwrap();
                if seed == 0 && point % 8 == 0 {
                    let mut bytes = vec![0; left.bytes.len()];
                    device.read_at(Bytes::ZERO, &mut bytes).unwrap();
                    assert_clean_bytes(&bytes);
                }
            }
        }
    }
}

/// Where the fast commits lie, from their first record on.
fn area_of(left: &Left) -> std::ops::Range<usize> {
    let tid = left.log.lines().find_map(|line| line.strip_prefix("tag HEAD, features 0x0, tid "));
    let tid: u32 = tid.expect("there are fast commits").parse().unwrap();
    let head = [&[9, 0, 8, 0, 0, 0, 0, 0][..], &tid.to_le_bytes()].concat();
    let start = (0..left.bytes.len()).step_by(1024).find(|at| left.bytes[*at..].starts_with(&head)).unwrap();
    start..start + 16 * 4096
}

/// The records of an area up to an invalid one: tag, offset, and length with its header.
fn records(bytes: &[u8], area: &std::ops::Range<usize>, block: usize) -> Vec<(u16, usize, usize)> {
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (mut found, mut at) = (Vec::new(), area.start);
    while at + 4 <= area.end {
        let left = block - (at - area.start) % block;
        if left < 4 {
            at += left;
            continue;
        }
        let (tag, len) = (half(at), usize::from(half(at + 2)) + 4);
        if !(1..=9).contains(&tag) || len > left {
            break;
        }
        found.push((tag, at, len));
        at += len;
    }
    found
}

/// Computes the checksums of fast commits anew.
fn seal(bytes: &mut [u8], records: &[(u16, usize, usize)]) {
    let mut crc = 0;
    for (tag, at, len) in records {
        if *tag == 8 {
            let sum = crc32c(crc, &bytes[*at..at + 8]);
            bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
            crc = 0;
        } else {
            crc = crc32c(crc, &bytes[*at..at + len]);
        }
    }
}

#[test]
fn damaged_fast_commits_do_not_count_and_those_before_do() {
    let test = "fast_commits::damaged_fast_commits";
    let (_, args, options) = FORMATS[0];
    let left = match left_by_the_kernel(args, options, has_fast_commits, prepare, some_of_each) {
        Ok(left) => left,
        Err(reason) => skip!(test, reason),
    };
    let area = area_of(&left);
    let records = records(&left.bytes, &area, 4096);
    let end = records.last().map(|(_, at, len)| at + len).unwrap();
    let mut clean = 0;
    for at in (area.start..end).step_by(331) {
        let mut bytes = left.bytes.clone();
        bytes[at] ^= 0x20;
        let held = quiet(&bytes).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        let found = entries_of(&held.volume);
        let names = |entries: &[Entry]| entries.iter().filter(|e| e.path.starts_with(b"folder/new")).count();
        assert!(names(&found) <= 5);
        held.volume.close().unwrap();
        if at % 3 == 0 {
            assert_clean_bytes(&held.device.to_vec());
            clean += 1;
        }
    }
    assert!(clean > 5);
}

#[test]
fn hostile_fast_commits_are_refused_or_done_without_a_panic() {
    let test = "fast_commits::hostile_fast_commits";
    let rounds = if long(test) { 20_000 } else { 600 };
    let (mut done, mut refused) = (0, 0);
    for (_, args, options) in &FORMATS[..5] {
        let left = match left_by_the_kernel(args, options, has_fast_commits, prepare, some_of_each) {
            Ok(left) => left,
            Err(reason) => skip!(test, reason),
        };
        let block = if args[1] == "1024" { 1024 } else { 4096 };
        let area = area_of(&left);
        let records = records(&left.bytes, &area, block);
        assert!(records.len() > 20);
        let mut unchanged = left.bytes.clone();
        seal(&mut unchanged, &records);
        assert!(unchanged == left.bytes, "sealing finds the checksums that were there");
        let device = Arc::new(MemoryDevice::from_bytes(&left.bytes));
        let mut random = SplitMix64::new(7);
        for _ in 0..rounds / 5 {
            let mut bytes = left.bytes[area.clone()].to_vec();
            for _ in 0..1 + random.below(3) {
                let (tag, at, len) = records[random.below(records.len() as u64) as usize];
                if matches!(tag, 8 | 9) || len <= 4 {
                    continue;
                }
                let target = at - area.start + 4 + random.below(len as u64 - 4) as usize;
                bytes[target] = match random.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[target].wrapping_add(1),
                    _ => random.below(256) as u8,
                };
            }
            let shifted: Vec<_> =
                records.iter().map(|(tag, at, len)| (*tag, at - area.start, *len)).collect();
            seal(&mut bytes, &shifted);
            let overlay = OverlayDevice::new(Arc::clone(&device) as Arc<dyn Device>);
            overlay.write_at(Bytes::of(area.start), &bytes).unwrap();
            let options = unhurried();
            match Volume::open(Arc::new(overlay), options) {
                Ok(volume) => {
                    let _ = try_entries_of(&volume);
                    let _ = volume.close();
                    done += 1;
                }
                Err(Error::Corrupt(_) | Error::Unsupported(_)) => refused += 1,
                Err(error) => panic!("refused for {error}"),
            }
        }
    }
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    println!("{done} done, {refused} refused");
}
