//! Volumes with the feature `fast_commit`: what was synced is recovered by the kernel, by e2fsck and by the
//! engine, and the kernel goes on with the log. The engine writes no fast commits; its log ends before the area
//! that the kernel sets aside for them.
//!
//! A crash is made by copying the bytes of the device after a sync of one file. The expected state is what
//! the engine shows at that moment.

use crate::common::{
    InMemory, assert_clean_bytes, entries_of, format_bytes, in_memory_with, pattern, save, unhurried,
};
use crate::fast_commits::{as_e2fsck_recovers, as_the_kernel_recovers, assert_equal, comparable};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_engine::{
    Changes, Creation, DataMode, FallocateMode, OpenOptions, RenameMode, Timestamp, Volume,
};
use hectare_ext4::checksum::crc32c;
use hectare_oracle::hunt::long;
use hectare_oracle::{Entry, KernelMount, Skip, What, compare, fsck, hunt, scratch, skip};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use std::fs;
use std::sync::Arc;

const FORMATS: [(&str, &[&str]); 5] = [
    ("4K", &["-b", "4096", "-J", "size=8"]),
    ("1K", &["-b", "1024", "-J", "size=4"]),
    ("no checksums", &["-b", "4096", "-O", "^metadata_csum,^64bit", "-J", "size=8"]),
    ("small inodes", &["-b", "4096", "-I", "128", "-J", "size=8"]),
    ("orphan file", &["-b", "1024", "-O", "orphan_file", "-J", "size=4"]),
];

fn options() -> OpenOptions {
    OpenOptions { seed: Some(1), ..unhurried() }
}

/// A new volume with something in it.
fn prepared(args: &[&str]) -> Result<InMemory, Skip> {
    let always = ["-t", "ext4", "-O", "fast_commit", "-E", "lazy_itable_init=0"];
    let held = in_memory_with(&format_bytes(&[&always, args].concat(), "32M")?, options()).unwrap();
    let volume = &held.volume;
    let c = Creation::default();
    volume.create_dir_all("folder/other", c).unwrap();
    for (n, name) in ["gone", "replaced", "moved", "cut", "punched", "linked", "kept"].iter().enumerate() {
        volume.write_file(format!("folder/{name}"), &pattern(n as u64, 1, 70_000), c).unwrap();
    }
    volume.sync().unwrap();
    Ok(held)
}

fn sync(volume: &Volume, path: &str) {
    volume.open_file(path).unwrap().sync().unwrap();
}

fn write(volume: &Volume, path: &str, at: u64, data: &[u8]) {
    let file = match volume.open_file(path) {
        Ok(file) => file,
        Err(_) => volume.create_file(path, Creation::default()).unwrap(),
    };
    file.write_at(at, data).unwrap();
    file.sync().unwrap();
}

/// What holds after each crash: all recover the same, and what they leave is clean.
fn check(bytes: &[u8], expected: &[Entry], what: What) -> Result<(), Skip> {
    let ours = in_memory_with(bytes, options()).unwrap();
    assert_equal(&entries_of(&ours.volume), expected, what);
    ours.volume.close().unwrap();
    assert_clean_bytes(&ours.device.to_vec());
    assert_equal(&as_the_kernel_recovers(bytes, true)?, expected, what);
    assert_equal(&as_e2fsck_recovers(bytes)?, expected, what);
    Ok(())
}

/// Checks what a crash would leave now, and what closing leaves.
fn check_and_close(held: &InMemory) -> Result<(), Skip> {
    let what = What { holes: None, ..What::all() };
    check(&held.device.to_vec(), &entries_of(&held.volume), what)?;
    held.volume.close().unwrap();
    assert_clean_bytes(&held.device.to_vec());
    Ok(())
}

/// Some of each kind of change.
fn some_of_each(volume: &Volume) {
    for n in 0..5usize {
        write(volume, &format!("folder/new-{n}"), 0, &pattern(n as u64, 2, 3000 * (n + 1)));
    }
    write(volume, "folder/kept", 90_000, &pattern(9, 3, 5000));
    write(volume, "folder/kept", 500, b"over");
    volume.hard_link("folder/linked", "folder/other/link").unwrap();
    volume.remove_file("folder/linked").unwrap();
    let cut = volume.open_file("folder/cut").unwrap();
    cut.set_len(20_480).unwrap();
    cut.sync().unwrap();
    let punched = volume.open_file("folder/punched").unwrap();
    punched.allocate(131_072, 65_536, true).unwrap();
    write(volume, "folder/punched", 140_000, b"in what was allocated");
    punched.fallocate(FallocateMode::PunchHole, 5000, 30_000).unwrap();
    punched.fallocate(FallocateMode::ZeroRange { keep_size: true }, 50_000, 12_000).unwrap();
    punched.sync().unwrap();
    volume.rename_path("folder/moved", "folder/other/moved", RenameMode::Replace).unwrap();
    volume.rename_path("folder/new-1", "folder/other/new", RenameMode::Replace).unwrap();
    let nr = volume.open_file("folder/new-2").unwrap().inode();
    volume.change(nr, &Changes { permissions: Some(0o600), uid: Some(7), ..Changes::default() }).unwrap();
    write(volume, "folder/other/link", 0, b"the last");
}

#[test]
fn what_was_synced_is_recovered_by_all() {
    let test = "fast_feature::what_was_synced_is_recovered_by_all";
    for (name, args) in FORMATS {
        println!("{name}");
        let checked = prepared(args).and_then(|held| {
            some_of_each(&held.volume);
            check_and_close(&held)
        });
        if let Err(reason) = checked {
            skip!(test, reason);
        }
    }
}

/// Syncing a directory whose mode has changed was no commit.
#[test]
fn regression_a_synced_directory_keeps_its_mode_and_times() {
    let test = "fast_feature::regression_a_synced_directory";
    let checked = prepared(FORMATS[0].1).and_then(|held| {
        let volume = &held.volume;
        write(volume, "folder/kept", 100_000, b"fast");
        let nr = volume.resolve("folder/other", false).unwrap();
        let mtime = Some(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 });
        let changes = Changes { permissions: Some(0o700), uid: Some(7), mtime, ..Changes::default() };
        volume.change(nr, &changes).unwrap();
        volume.sync_inode(nr).unwrap();
        check_and_close(&held)
    });
    if let Err(reason) = checked {
        skip!(test, reason);
    }
}

/// One change; impossible ones are skipped.
fn one_change(volume: &Volume, random: &mut SplitMix64) {
    let folders = ["folder", "folder/other"];
    let mut place = || format!("{}/f{}", folders[random.below(2) as usize], random.below(8));
    let (path, other) = (place(), place());
    let at = random.below(60) * 3000;
    let open = |path: &str| volume.open_file(path);
    match random.below(24) {
        0..=7 => {
            let file = open(&path).or_else(|_| volume.create_file(&path, Creation::default()));
            let Ok(file) = file else { return };
            let _ = file.write_at(at, &pattern(at, 5, 1 + random.below(20_000) as usize));
            if random.below(2) == 0 {
                file.sync().unwrap();
            }
        }
        8..=10 => drop(volume.remove_file(&path)),
        11..=13 => drop(volume.rename_path(&path, &other, RenameMode::Replace)),
        14 | 15 => drop(volume.hard_link(&path, &other)),
        16 => drop(volume.symlink("to", &path, Creation::default())),
        17 | 18 => {
            let Ok(file) = open(&path) else { return };
            let to = if random.below(2) == 0 { at } else { at.next_multiple_of(4096) };
            file.set_len(to).unwrap();
            file.sync().unwrap();
        }
        19 => {
            let Ok(file) = open(&path) else { return };
            let _ = file.fallocate(FallocateMode::PunchHole, at, 1 + random.below(50_000));
            file.sync().unwrap();
        }
        20 | 21 => {
            let Ok(file) = open(&path) else { return };
            let _ = file.allocate(at, 1 + random.below(100_000), random.below(2) == 0);
            file.sync().unwrap();
        }
        22 => volume.sync().unwrap(),
        _ => {
            let Ok(file) = open(&path) else { return };
            let changes = Changes { permissions: Some(0o600 + at as u16 % 64), ..Changes::default() };
            volume.change(file.inode(), &changes).unwrap();
        }
    }
}

/// The engine's own replay after each sync, the others' at the end.
#[test]
fn random_changes_are_recovered_after_every_sync() {
    let test = "fast_feature::random_changes";
    // A seed for each format, ten of each in a hunt.
    let (first, seeds) = (hunt::seed(test), hunt::share(10) * FORMATS.len() as u64);
    for nr in 0..seeds {
        let seed = first.wrapping_add(nr);
        let (name, args) = FORMATS[nr as usize % FORMATS.len()];
        println!("{name}, seed {seed}");
        let mut random = SplitMix64::new(seed);
        let checked = prepared(args).and_then(|held| {
            let volume = &held.volume;
            for n in 0..40 {
                for _ in 0..random.below(6) {
                    one_change(volume, &mut random);
                }
                write(volume, "folder/kept", 100_000 + n * 900, b"synced");
                let ours = in_memory_with(&held.device.to_vec(), options()).unwrap();
                let (found, expected) = (entries_of(&ours.volume), entries_of(volume));
                if let Err(differences) =
                    compare(&comparable(&found), &comparable(&expected), What::content())
                {
                    panic!("{name}, seed {seed}, step {n}: {differences}");
                }
                ours.volume.check_space().unwrap();
            }
            check_and_close(&held)
        });
        if let Err(reason) = checked {
            skip!(test, reason);
        }
    }
}

/// What a power cut leaves at some moment, torn writes and all, is the same for the kernel and the engine.
#[test]
fn the_kernel_and_the_engine_recover_the_same_at_any_moment() {
    let test = "fast_feature::the_kernel_and_the_engine";
    let rounds = if long(test) { 400 } else { 24 };
    let what = What { holes: None, ..What::all() };
    for (name, args) in &FORMATS[..2] {
        let before = match prepared(args) {
            Ok(held) => {
                held.volume.close().unwrap();
                held.device.to_vec()
            }
            Err(reason) => skip!(test, reason),
        };
        let recorder = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&before)));
        let volume = Volume::open(Arc::clone(&recorder) as Arc<dyn Device>, options()).unwrap();
        let mut random = SplitMix64::new(hunt::seed(test));
        some_of_each(&volume);
        for n in 0..60 {
            one_change(&volume, &mut random);
            write(&volume, "folder/kept", 100_000 + n * 900, b"synced");
        }
        let mut states = CrashStates::new(MemoryDevice::from_bytes(&before), recorder.log());
        volume.end_changes("the machine stops");
        let points: Vec<usize> = states.points().collect();
        let mut chosen: Vec<usize> =
            (0..rounds).map(|_| points[random.below(points.len() as u64) as usize]).collect();
        chosen.sort_unstable();
        let mut torn = 0;
        for (round, point) in (0..).zip(chosen) {
            let device = states.torn(point, round).unwrap();
            let mut bytes = vec![0; before.len()];
            device.read_at(Bytes::ZERO, &mut bytes).unwrap();
            if crc32c(!0, &bytes[1024..2044]).to_le_bytes() != bytes[2044..2048] {
                torn += 1; // the superblock, which the kernel does not look for in the log
                continue;
            }
            let ours = in_memory_with(&bytes, options()).unwrap();
            let expected = entries_of(&ours.volume);
            ours.volume.close().unwrap();
            assert_clean_bytes(&ours.device.to_vec());
            println!("{name}, point {point}, seed {round}");
            match as_the_kernel_recovers(&bytes, true) {
                Ok(theirs) => assert_equal(&theirs, &expected, what),
                Err(reason) => skip!(test, reason),
            }
        }
        assert!(torn < rounds / 4, "{torn}");
    }
}

/// Where a log has an area for fast commits, e2fsck (1.47) ends a replay at the turn of the log.
#[test]
fn regression_e2fsck_lost_journalled_data_behind_the_turn_of_the_log() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=8"];
    let bytes = match format_bytes(&args, "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("fast_feature::regression_e2fsck_lost_journalled_data", reason),
    };
    let options = OpenOptions { data_mode: Some(DataMode::Journal), ..options() };
    for files in [65, 83] {
        let held = in_memory_with(&bytes, options.clone()).unwrap();
        for n in 0..files {
            let name = format!("f{}", n % 20);
            held.volume.write_file(&name, &pattern(n, 0, 128 << 10), Creation::default()).unwrap();
            sync(&held.volume, &name);
        }
        let expected = entries_of(&held.volume);
        if let Err(reason) = check(&held.device.to_vec(), &expected, What::content()) {
            skip!("fast_feature::regression_e2fsck_lost_journalled_data", reason);
        }
    }
}

/// Linux continues where the log of a clean volume ended, and cuts the area for fast commits off behind that: a head
/// in the area never met the end of its ring.
#[test]
fn regression_the_head_of_a_log_lay_in_the_area_for_fast_commits() {
    const NAME: &str = "fast_feature::regression_the_head_of_a_log";
    for features in ["fast_commit,bigalloc", "fast_commit"] {
        let journal = "size=1,fast_commit_size=256"; // a fifth of it
        let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-O", features, "-J", journal], "64M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!(NAME, reason),
        };
        let held = in_memory_with(&bytes, options()).unwrap();
        for n in 0..150 {
            held.volume.create_dir(format!("{n}"), Creation::default()).unwrap();
            held.volume.sync().unwrap();
            // At many places of the ring, and as a crash and a clean end leave it.
            if n % 10 == 9 {
                let left = held.device.to_vec();
                let closed = in_memory_with(&left, options()).unwrap();
                closed.volume.close().unwrap();
                assert_head_before_area(&closed.device.to_vec());
                for bytes in [left, closed.device.to_vec()] {
                    if let Err(reason) = goes_on(&bytes, n + 1) {
                        skip!(NAME, reason);
                    }
                }
            }
        }
    }
}

/// The log's superblock names as its head a block before the area for fast commits.
fn assert_head_before_area(bytes: &[u8]) {
    let at = journal_superblock(bytes);
    let field = |offset| u32::from_be_bytes(bytes[at + offset..at + offset + 4].try_into().unwrap());
    let (len, area, head) = (field(16), field(84), field(88));
    assert_eq!(area, 256);
    assert!(head < len - area, "the head is block {head} of {len}");
}

/// The first byte of the journal's superblock, which begins with the magic number and the type 4.
fn journal_superblock(bytes: &[u8]) -> usize {
    let head = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    bytes.chunks(1024).position(|block| block.starts_with(&head)).unwrap() * 1024
}

/// The kernel mounts a volume with so many directories, and makes the log go round.
fn goes_on(bytes: &[u8], directories: usize) -> Result<(), Skip> {
    let image = scratch::fresh("goes-on");
    save(bytes, &image);
    let mount = KernelMount::new(&image, "")?;
    let root = mount.path();
    assert_eq!(fs::read_dir(root).unwrap().count(), directories + 1, "and lost+found");
    for n in 0..80 {
        fs::create_dir(root.join(format!("kernel-{n}"))).unwrap();
        fs::File::open(root).unwrap().sync_all().unwrap();
    }
    drop(mount);
    assert!(fsck::e2fsck(&image)?.is_sound());
    fs::remove_file(image).unwrap();
    Ok(())
}

/// An area of one block was an overflow, and a length of it that nothing uses a refusal.
#[test]
fn regression_odd_areas_for_fast_commits_kept_a_volume_from_being_written() {
    const NAME: &str = "fast_feature::regression_odd_areas";
    let one = ["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=8,fast_commit_size=1"];
    let none = ["-t", "ext4", "-b", "1024", "-J", "size=4"];
    for (args, count) in [(&one[..], None), (&none[..], Some(0x2000_u32))] {
        let mut bytes = match format_bytes(args, "64M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!(NAME, reason),
        };
        if let Some(count) = count {
            let at = journal_superblock(&bytes);
            bytes[at + 84..at + 88].copy_from_slice(&count.to_be_bytes());
        }
        let held = in_memory_with(&bytes, options()).unwrap();
        write_and_recover(&held);
    }
}

fn write_and_recover(held: &InMemory) {
    write(&held.volume, "file", 0, b"content");
    let left = held.device.to_vec();
    held.volume.close().unwrap();
    assert_clean_bytes(&held.device.to_vec());
    let again = in_memory_with(&left, options()).unwrap();
    assert_eq!(again.volume.read("file").unwrap(), b"content");
}
