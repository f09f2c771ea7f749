//! Small appends that are buffered: what is visible before they are placed, what places them, and that a lack
//! of space fails the write itself and never anything later.

use crate::common::{
    InMemory, assert_clean_bytes, close_clean, format_bytes, in_memory, in_memory_with, pattern, unhurried,
};
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Rule};
use hectare_engine::{Changes, Creation, Error, OpenFile, OpenOptions, RenameMode, Timestamp, Volume};
use hectare_oracle::skip;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

macro_rules! volume {
    ($test:literal, $($arg:literal),*) => {
        match format_bytes(&["-t", "ext4", $($arg),*], "64M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!($test, reason),
        }
    };
}

fn handles(volume: &Volume) -> u64 {
    volume.journal_stats().handles_started
}

/// Writes `len` bytes of a file's pattern at its end, `step` at a time.
fn append(file: &OpenFile, seed: u64, len: u64, step: u64) {
    let start = file.metadata().unwrap().size;
    let mut at = start;
    while at < start + len {
        let now = step.min(start + len - at);
        file.write_all_at(at, &pattern(seed, at, usize::try_from(now).unwrap())).unwrap();
        at += now;
    }
}

#[track_caller]
fn assert_holds(file: &OpenFile, seed: u64, len: usize) {
    assert_eq!(file.metadata().unwrap().size, len as u64);
    let mut read = vec![0xaa; len + 9];
    assert_eq!(file.read_at(0, &mut read).unwrap(), len);
    assert!(read[..len] == pattern(seed, 0, len));
}

/// The size that another opening would find after a crash now, were everything written so far.
fn on_device(held: &InMemory, name: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    crate::common::save(&held.device.to_vec(), &image);
    let again = crate::common::open_read_only(&image);
    again.metadata(name).unwrap().size
}

#[test]
fn logs_written_side_by_side_are_one_extent_each() {
    let held = volume!("delayed::logs_written_side_by_side", "-b", "4096");
    let v = &held.volume;
    let files: Vec<_> =
        (0..64).map(|n| v.create_file(format!("log-{n}"), Creation::default()).unwrap()).collect();
    let before = handles(v);
    std::thread::scope(|scope| {
        for (n, file) in (0..).zip(&files) {
            scope.spawn(move || append(file, n, 200_000, 100));
        }
    });
    assert_eq!(handles(v), before, "nothing has a place yet");
    v.sync().unwrap();
    assert!(handles(v) - before <= 64 * 2, "{} handles", handles(v) - before);
    for (n, file) in (0..).zip(&files) {
        assert_eq!(file.extents().unwrap().len(), 1, "log {n}");
        assert_holds(file, n, 200_000);
    }
    drop(files);
    close_clean(&held);
}

#[test]
fn logs_longer_than_what_gathers_are_one_extent_each() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "4096"], "256M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("delayed::logs_longer_than_what_gathers", reason),
    };
    let held = in_memory_with(&bytes, OpenOptions { delayed_bytes: 4 << 20, ..unhurried() }).unwrap();
    let v = &held.volume;
    let files: Vec<_> =
        (0..16).map(|n| v.create_file(format!("log-{n}"), Creation::default()).unwrap()).collect();
    std::thread::scope(|scope| {
        for (n, file) in (0..).zip(&files) {
            scope.spawn(move || append(file, n, 2_500_000, 900));
        }
    });
    for (n, file) in (0..).zip(&files) {
        assert!(file.extents().unwrap().len() <= 3, "log {n}: {:?}", file.extents().unwrap());
        assert_holds(file, n, 2_500_000);
    }
    drop(files);
    close_clean(&held);
}

#[test]
fn gathered_bytes_are_seen_at_once() {
    let held = volume!("delayed::gathered_bytes_are_seen", "-b", "1024");
    let v = &held.volume;
    let file = v.create_file("file", Creation::default()).unwrap();
    append(&file, 3, 2500, 2500);
    file.sync().unwrap();
    let (before, free) = (handles(v), v.statfs().unwrap().free.get());
    append(&file, 3, 3000, 70);
    assert_holds(&file, 3, 5500);
    assert_eq!(v.metadata("file").unwrap().sectors, 12);
    assert_eq!(free - v.statfs().unwrap().free.get(), 3);
    let other = v.open_file("file").unwrap();
    let mut read = [0; 1000];
    assert_eq!(other.read_at(2000, &mut read).unwrap(), 1000);
    assert!(read[..] == pattern(3, 2000, 1000));
    assert_eq!((other.read_at(5400, &mut read).unwrap(), other.read_at(5500, &mut read).unwrap()), (100, 0));
    // Over the buffered bytes, and beyond them.
    other.write_all_at(5000, &pattern(3, 5000, 1000)).unwrap();
    assert_holds(&file, 3, 6000);
    other.write_all_at(2500, &[9; 100]).unwrap();
    assert_eq!(handles(v), before);
    assert_eq!(on_device(&held, "file"), 2500);
    other.write_all_at(2500, &pattern(3, 2500, 100)).unwrap();
    // Over both placed and buffered bytes.
    other.write_all_at(2000, &pattern(3, 2000, 1000)).unwrap();
    assert!(handles(v) > before);
    assert_holds(&file, 3, 6000);
    drop((file, other));
    close_clean(&held);
}

#[test]
fn the_times_are_those_of_the_writing() {
    let held = volume!("delayed::the_times", "-b", "1024");
    let v = &held.volume;
    let file = v.create_file("file", Creation::default()).unwrap();
    for len in [2500, 100, 2000] {
        append(&file, 3, len, 50);
        let old = Some(Timestamp { seconds: 1000, nanoseconds: 5 });
        file.change(&Changes { mtime: old, ctime: old, ..Changes::default() }).unwrap();
        let told = file.metadata().unwrap();
        file.sync().unwrap();
        assert_eq!((file.metadata().unwrap(), Some(told.mtime)), (told, old));
    }
    let before = file.metadata().unwrap();
    append(&file, 3, 10, 10);
    assert!(file.metadata().unwrap().mtime > before.mtime);
    drop(file);
    close_clean(&held);
}

#[test]
fn whatever_looks_at_the_map_finds_it_whole() {
    let held = volume!("delayed::whatever_looks_at_the_map", "-b", "1024");
    let v = &held.volume;
    let fresh = |name: &str| {
        let file = v.create_file(name, Creation::default()).unwrap();
        append(&file, 4, 5000, 500);
        file
    };
    let blocks = |file: &OpenFile| file.extents().unwrap().iter().map(|extent| extent.len).sum::<u32>();
    assert_eq!(blocks(&fresh("extents")), 5);
    assert_eq!(fresh("ranges").data_ranges().unwrap(), [(0, 5000)]);
    let file = fresh("longer");
    file.set_len(9000).unwrap();
    append(&file, 4, 10, 10);
    assert_eq!(
        v.read("longer").unwrap(),
        [pattern(4, 0, 5000), vec![0; 4000], pattern(4, 9000, 10)].concat()
    );
    let file = fresh("shorter");
    file.set_len(1200).unwrap();
    append(&file, 4, 3000, 100);
    assert_holds(&file, 4, 4200);
    let before = handles(v);
    let file = fresh("empty");
    file.set_len(0).unwrap();
    assert!(file.metadata().unwrap().size == 0 && handles(v) - before < 6, "nothing is placed to be cut off");
    append(&file, 4, 700, 100);
    assert_holds(&file, 4, 700);
    let file = fresh("allocated");
    file.allocate(3000, 4000, false).unwrap();
    assert_eq!(v.read("allocated").unwrap(), [pattern(4, 0, 5000), vec![0; 2000]].concat());
    let file = fresh("kept");
    file.allocate(5000, 4000, true).unwrap();
    append(&file, 4, 2000, 100);
    assert_holds(&file, 4, 7000);
    let file = fresh("gap");
    file.write_all_at(8000, &pattern(4, 8000, 50)).unwrap();
    assert_eq!(v.read("gap").unwrap(), [pattern(4, 0, 5000), vec![0; 3000], pattern(4, 8000, 50)].concat());
    let file = fresh("large");
    append(&file, 4, 300_000, 150_000);
    assert_holds(&file, 4, 305_000);
    drop(file);
    close_clean(&held);
}

#[test]
fn syncing_closing_replacing_and_age_give_a_place() {
    let held = volume!("delayed::syncing_closing", "-b", "1024");
    let v = &held.volume;
    let fresh = |name: &str| {
        let file = v.create_file(name, Creation::default()).unwrap();
        append(&file, 5, 5000, 500);
        file
    };
    let files = ["sync", "data", "age", "volume"].map(fresh);
    files[0].sync().unwrap();
    assert_eq!(on_device(&held, "sync"), 5000);
    drop(files);
    let file = fresh("data2");
    file.sync_data().unwrap();
    assert_eq!(on_device(&held, "data2"), 5000);
    let files = ["age2", "volume2"].map(fresh);
    let before = handles(v);
    v.place_aged(Duration::from_secs(600));
    assert_eq!(handles(v), before);
    v.place_aged(Duration::ZERO);
    assert!(handles(v) > before);
    append(&files[1], 5, 100, 100);
    v.sync().unwrap();
    assert_eq!(on_device(&held, "volume2"), 5100);
    // Two have it open: the last close places the bytes.
    let (first, second) = (fresh("two"), v.open_file("two").unwrap());
    let before = handles(v);
    drop(first);
    assert_eq!(handles(v), before);
    second.close().unwrap();
    assert!(handles(v) > before);
    // A file is replaced by one that is still open: with its bytes.
    v.write_file("old", &[1; 3000], Creation::default()).unwrap();
    v.sync().unwrap();
    let new = fresh("new");
    let before = handles(v);
    v.rename_path("new", "other", RenameMode::Replace).unwrap();
    assert_eq!(handles(v), before + 1, "nothing is replaced");
    v.rename_path("other", "old", RenameMode::Replace).unwrap();
    assert!(handles(v) > before + 2);
    assert_holds(&new, 5, 5000);
    drop((new, files));
    close_clean(&held);
}

#[test]
fn more_than_the_budget_never_gathers() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("delayed::more_than_the_budget", reason),
    };
    for budget in [0, 5000, 100_000] {
        let options = OpenOptions { delayed_bytes: budget, ..unhurried() };
        let held = in_memory_with(&bytes, options).unwrap();
        let v = &held.volume;
        let files: Vec<_> =
            (0..50).map(|n| v.create_file(format!("f{n}"), Creation::default()).unwrap()).collect();
        let before = handles(v);
        for round in 0..10 {
            for (n, file) in (0..).zip(&files) {
                append(file, n, 1500, 300);
                let written = round * 50 * 1500 + (n + 1) * 1500;
                assert!(handles(v) > before || written < budget as u64 + 3000, "{budget}: {written}");
            }
        }
        for (n, file) in (0..).zip(&files) {
            assert_holds(file, n, 15_000);
        }
        drop(files);
        close_clean(&held);
    }
}

#[test]
fn files_removed_while_open_take_what_has_gathered_with_them() {
    let held = volume!("delayed::files_removed_while_open", "-b", "1024", "-O", "^has_journal");
    let v = &held.volume;
    v.sync().unwrap();
    let before = v.statfs().unwrap().free;
    let files: Vec<_> =
        (0..4).map(|n| v.create_file(format!("f{n}"), Creation::default()).unwrap()).collect();
    for (n, file) in (0..).zip(&files) {
        append(file, n, 5000, 500);
        v.remove_file(format!("f{n}")).unwrap();
        append(file, n, 5000, 500);
        assert_holds(file, n, 10_000);
    }
    let mut files = files.into_iter();
    let first = files.next().unwrap();
    first.sync().unwrap();
    assert_holds(&first, 0, 10_000);
    drop(first);
    let started = handles(v);
    drop(files.next());
    assert!(handles(v) - started <= 4, "nothing is placed");
    v.sync().unwrap();
    // Two are open when the volume is closed.
    close_clean(&held);
    drop(files);
    assert_eq!(v.statfs().unwrap().free, before);
}

/// Free space in single blocks all over the volume, so that trees grow.
fn crumbs(held: &InMemory) {
    let v = &held.volume;
    let block = usize::try_from(v.statfs().unwrap().block_size.get()).unwrap();
    let step = if block == 1024 { 8192 } else { block };
    let mut n = 0;
    loop {
        let Ok(file) = v.create_file(format!("crumb-{n}"), Creation::default()) else { break };
        match file.write_at(0, &vec![1; step]) {
            Ok(done) if done == step => n += 1,
            _ => break,
        }
        if file.close().is_err() {
            break;
        }
    }
    for n in (0..n).step_by(2) {
        v.remove_file(format!("crumb-{n}")).unwrap();
    }
    v.sync().unwrap();
}

#[test]
fn want_of_space_is_told_when_writing_and_never_later() {
    let kinds: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal", "-N", "6000"],
        &["-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal", "-N", "6000"],
        &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "bigalloc,^has_journal", "-C", "8192", "-N", "6000"],
    ];
    for (args, threads) in kinds.into_iter().flat_map(|args| [(args, 1), (args, 8)]) {
        let held = match format_bytes(args, "12M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("delayed::want_of_space", reason),
        };
        let v = &held.volume;
        crumbs(&held);
        let files: Vec<_> =
            (0..threads).map(|n| v.create_file(format!("log-{n}"), Creation::default()).unwrap()).collect();
        std::thread::scope(|scope| {
            for (n, file) in (0..).zip(&files) {
                scope.spawn(move || {
                    let mut at = 0;
                    loop {
                        match file.write_at(at, &pattern(n, at, 333)) {
                            Ok(done) => at += done as u64,
                            Err(Error::NoSpace) => break,
                            Err(other) => panic!("{args:?}: {other}"),
                        }
                    }
                    assert_eq!(file.metadata().unwrap().size, at);
                });
            }
        });
        for file in &files {
            file.sync().unwrap();
        }
        v.sync().unwrap();
        // Files that need one block each get what the others' trees left over.
        let last = v.create_file("last", Creation::default());
        if let Ok(last) = last {
            let mut at = 0;
            while let Ok(done) = last.write_at(at, &[7; 1000]) {
                at += done as u64;
            }
            last.close().unwrap();
            assert_eq!(v.statfs().unwrap().available.get(), 0, "{args:?}, {threads} threads");
        }
        v.check_space().unwrap();
        for (n, file) in (0..).zip(&files) {
            let size = usize::try_from(file.metadata().unwrap().size).unwrap();
            assert_holds(file, n, size);
        }
        drop(files);
        close_clean(&held);
    }
}

#[test]
fn what_is_claimed_in_excess_can_be_had() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("delayed::what_is_claimed_in_excess", reason),
    };
    let held = in_memory(&bytes);
    let v = &held.volume;
    let files: Vec<_> =
        (0..40).map(|n| v.create_file(format!("log-{n}"), Creation::default()).unwrap()).collect();
    let before = v.statfs().unwrap().free.get();
    for (n, file) in (0..).zip(&files) {
        append(file, n, 1500, 100);
    }
    assert_eq!(before - v.statfs().unwrap().free.get(), 2 * 40);
    let last = v.create_file("last", Creation::default()).unwrap();
    assert!(matches!(last.allocate(0, 1 << 30, false), Err(Error::NoSpace)));
    assert_eq!(v.statfs().unwrap().available.get(), 0);
    let left = v.statfs().unwrap().free.get();
    let sectors: u64 = files.iter().chain([&last]).map(|file| file.metadata().unwrap().sectors).sum();
    assert_eq!(before - left, sectors / 2);
    for (n, file) in (0..).zip(&files) {
        assert_holds(file, n, 1500);
    }
    drop((files, last));
    close_clean(&held);
}

/// The bytes were dropped before the truncation could fail, and the file kept its size without them.
#[test]
fn regression_a_truncation_that_failed_dropped_what_was_appended() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("delayed::regression_a_truncation_that_failed", reason),
    };
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
    let open = || Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
    let volume = open();
    volume.write_file("file", &pattern(6, 0, 3000), Creation::default()).unwrap();
    volume.close().unwrap();
    let volume = open();
    let file = volume.open_file("file").unwrap();
    append(&file, 6, 3000, 300);
    // What is after the new end in its block has to be read first.
    device.add(Rule::new(Outcome::IO).on(&[Operation::Read]));
    assert!(file.set_len(1500).is_err());
    device.clear();
    assert_holds(&file, 6, 6000);
    file.sync().unwrap();
    assert_holds(&file, 6, 6000);
    file.set_len(1500).unwrap();
    assert_holds(&file, 6, 1500);
    drop(file);
    volume.close().unwrap();
    assert_clean_bytes(&memory.to_vec());
}

#[test]
fn what_a_device_refuses_is_told_once_by_the_next_sync_or_close() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("delayed::what_a_device_refuses", reason),
    };
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
    let fail = |times| device.add(Rule::new(Outcome::NO_SPACE).on(&[Operation::Write]).times(times));
    let refused = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Device(error)) if error.is_no_space()));
    };
    let file = volume.create_file("file", Creation::default()).unwrap();
    append(&file, 6, 3000, 300);
    file.sync().unwrap();
    // Writeback in the background fails; a sync reports it, once.
    append(&file, 6, 3000, 300);
    fail(1);
    volume.place_aged(Duration::ZERO);
    assert_holds(&file, 6, 3000);
    refused(file.sync());
    file.sync().unwrap();
    // The sync itself.
    append(&file, 6, 3000, 300);
    fail(1);
    refused(file.sync_data());
    file.sync_data().unwrap();
    // A close.
    append(&file, 6, 3000, 300);
    fail(1);
    refused(file.close());
    // Its last close could not report it: the volume does.
    let file = volume.open_file("file").unwrap();
    append(&file, 6, 3000, 300);
    fail(1);
    drop(file);
    refused(volume.sync());
    volume.sync().unwrap();
    assert!(volume.read("file").unwrap() == pattern(6, 0, 3000));
    volume.close().unwrap();
    assert_clean_bytes(&memory.to_vec());
}

/// Who committed for no caller was told in place of the next one that asked.
#[test]
fn regression_every_handle_of_a_volume_hears_of_lost_bytes_and_who_settles_of_none() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("delayed::regression_every_handle_of_a_volume", reason),
    };
    let device = Arc::new(FaultDevice::new(MemoryDevice::from_bytes(&bytes)));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
    let other = volume.clone();
    let file = volume.create_file("file", Creation::default()).unwrap();
    volume.sync().unwrap();
    append(&file, 6, 3000, 300);
    device.add(Rule::new(Outcome::NO_SPACE).on(&[Operation::Write]).times(1));
    volume.settle().unwrap();
    volume.set_label(b"label").unwrap();
    for handle in [&volume, &other] {
        assert!(matches!(handle.sync(), Err(Error::Device(error)) if error.is_no_space()));
        handle.sync().unwrap();
    }
    drop(file);
    volume.close().unwrap();
}

/// Logs grow while others sync, stat and read them: a size never shrinks, and every byte is right.
#[test]
fn logs_are_read_while_they_grow() {
    let held = volume!("delayed::logs_are_read", "-b", "1024", "-O", "^has_journal");
    let v = &held.volume;
    let files: Vec<_> =
        (0..3).map(|n| v.create_file(format!("log-{n}"), Creation::default()).unwrap()).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(&files)
            .map(|(n, file)| scope.spawn(move || append(file, n, 1_500_000, 100 + n * 37)))
            .collect();
        for (n, file) in (0..).zip(&files) {
            let done = &done;
            scope.spawn(move || {
                let (mut seen, mut read) = (0, vec![0; 5000]);
                while !done.load(Ordering::Acquire) {
                    let size = file.metadata().unwrap().size;
                    assert!(size >= seen, "log {n} shrank from {seen} to {size}");
                    seen = size;
                    let at = size.saturating_sub(4000);
                    let got = file.read_at(at, &mut read).unwrap();
                    assert!(got as u64 >= size - at && read[..got] == pattern(n, at, got), "log {n} at {at}");
                }
            });
        }
        scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::Acquire) {
                    break;
                }
                match n % 3 {
                    0 => files[n / 3 % 3].sync_data().unwrap(),
                    1 => v.place_aged(Duration::ZERO),
                    _ => v.sync().unwrap(),
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    for (n, file) in (0..).zip(&files) {
        assert_holds(file, n, 1_500_000);
    }
    drop(files);
    close_clean(&held);
}
