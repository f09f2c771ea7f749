//! Overwrites: no handle, correct times all the same, and nothing stale when the map changes.

use crate::common::{
    InMemory, assert_clean_bytes, close_clean, format_bytes, in_memory, in_memory_with, pattern,
};
use hectare_engine::{
    Changes, Creation, Error, Observed, Observer, OpenFile, OpenOptions, Timestamp, XattrHow,
};
use hectare_oracle::skip;
use hectare_oracle::trees::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

macro_rules! volume {
    ($test:literal) => {
        match format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "32M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!($test, reason),
        }
    };
}

fn handles(held: &InMemory) -> u64 {
    held.volume.journal_stats().handles_started
}

/// A file whose extents alternate with another's.
fn in_pieces(held: &InMemory, pieces: u64) -> (OpenFile, Vec<u8>) {
    let [file, other] =
        ["file", "other"].map(|name| held.volume.create_file(name, Creation::default()).unwrap());
    for n in 0..pieces {
        for file in [&file, &other] {
            file.allocate(n * 20_480, 20_480, false).unwrap();
        }
        file.write_all_at(n * 20_480, &pattern(1, n * 20_480, 20_480)).unwrap();
    }
    let content = pattern(1, 0, usize::try_from(pieces * 20_480).unwrap());
    (file, content)
}

#[test]
fn ten_thousand_overwrites_start_no_handle() {
    let held = volume!("overwrite::ten_thousand");
    let (file, mut content) = in_pieces(&held, 20);
    held.volume.sync().unwrap();
    let (before, mut random) = (handles(&held), Random::new("overwrites"));
    for n in 0..10_000 {
        let at = random.below(content.len() as u64 - 1) as usize;
        let len =
            (1 + random.below(if n % 100 == 0 { 60_000 } else { 3000 }) as usize).min(content.len() - at);
        let data = pattern(n, at as u64, len);
        assert_eq!(file.write_at(at as u64, &data).unwrap(), len);
        content[at..at + len].copy_from_slice(&data);
        let at = random.below(content.len() as u64) as usize;
        let mut read = vec![0xaa; 2000];
        let got = file.read_at(at as u64, &mut read).unwrap();
        assert!(got == 2000.min(content.len() - at) && read[..got] == content[at..at + got]);
    }
    held.volume.sync().unwrap();
    assert_eq!(handles(&held), before);
    drop(file);
    close_clean(&held);
    let again = in_memory_with(&held.device.to_vec(), OpenOptions::read_only()).unwrap();
    assert!(again.volume.read("file").unwrap() == content);
}

/// No handle had credits for the inodes of files that were overwritten, or whose appends were buffered: a
/// commit of more of them than the log has blocks ended the volume.
#[test]
fn regression_overwrites_of_many_files_outgrew_a_small_log() {
    const NAME: &str = "overwrite::regression_overwrites_of_many_files";
    const FILES: usize = 7000;
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "8000"], "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(NAME, reason),
    };
    // Nothing commits by age.
    let options = OpenOptions { commit_interval: None, ..OpenOptions::default() };
    let held = in_memory_with(&bytes, options).unwrap();
    for n in 0..FILES {
        held.volume.write_file(format!("{n}"), &[1; 900], Creation::default()).unwrap();
    }
    held.volume.sync().unwrap();
    let opened = || (0..FILES).map(|n| held.volume.open_file(format!("{n}")).unwrap());
    opened().for_each(|file| file.write_all_at(0, &[2; 100]).unwrap());
    held.volume.sync().unwrap();
    let opened: Vec<_> = opened().collect();
    opened.iter().for_each(|file| file.write_all_at(900, &[3; 10]).unwrap());
    held.volume.sync().unwrap();
    drop(opened);
    close_clean(&held);
}

#[test]
fn with_overwrite_handles_each_overwrite_starts_one() {
    const NAME: &str = "overwrite::with_overwrite_handles";
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(NAME, reason),
    };
    for overwrite_handles in [false, true] {
        let options = OpenOptions { overwrite_handles, commit_interval: None, ..OpenOptions::default() };
        let held = in_memory_with(&bytes, options).unwrap();
        let (file, _) = in_pieces(&held, 4);
        let before = handles(&held);
        (0..100).for_each(|n| file.write_all_at(n * 700, &pattern(n, n * 700, 700)).unwrap());
        assert_eq!(handles(&held) - before, if overwrite_handles { 100 } else { 0 });
        let mut read = vec![0; 70_000];
        file.read_at(0, &mut read).unwrap();
        assert!((0..100).all(|n| read[n * 700..][..700] == pattern(n as u64, n as u64 * 700, 700)));
        drop(file);
        close_clean(&held);
    }
}

/// Counts what it is called with.
#[derive(Default)]
struct Counting {
    reserved: AtomicU64,
    committed: AtomicU64,
}

impl Observer for Counting {
    fn reserved(&self, _took: Duration) {
        self.reserved.fetch_add(1, Ordering::Relaxed);
    }

    fn committed(&self, took: Duration) {
        assert!(took > Duration::ZERO);
        self.committed.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_observer_hears_of_requests_for_space_and_of_commits() {
    let bytes = match format_bytes(&["-t", "ext4"], "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("overwrite::an_observer", reason),
    };
    let observer = Arc::new(Counting::default());
    let observed = Some(Observed(Arc::clone(&observer) as _));
    let options = OpenOptions { observer: observed, commit_interval: None, ..OpenOptions::default() };
    let held = in_memory_with(&bytes, options).unwrap();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let commits = |held: &InMemory| held.volume.journal_stats().commits;
    let (asked, before, committed) = (count(&observer.reserved), count(&observer.committed), commits(&held));
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.allocate(0, 1 << 20, false).unwrap();
    assert!(count(&observer.reserved) > asked);
    held.volume.sync().unwrap();
    assert!(commits(&held) > committed);
    assert_eq!(count(&observer.committed) - before, commits(&held) - committed);
    drop(file);
    close_clean(&held);
}

#[test]
fn what_is_not_written_yet_takes_a_handle_and_then_none() {
    let held = volume!("overwrite::what_is_not_written_yet");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.allocate(0, 100_000, false).unwrap();
    file.set_len(300_000).unwrap();
    for at in [5000, 200_000] {
        for (len, takes) in [(1500, true), (1500, false), (700, false)] {
            let before = handles(&held);
            file.write_all_at(at, &pattern(2, at, len)).unwrap();
            assert_eq!(handles(&held) > before, takes, "{len} bytes at {at}");
        }
        let mut read = vec![0xaa; 3000];
        file.read_at(at - 1000, &mut read).unwrap();
        assert!(read[..1000].iter().chain(&read[2500..]).all(|byte| *byte == 0));
        assert!(read[1000..2500] == pattern(2, at, 1500));
    }
    drop(file);
    close_clean(&held);
}

#[test]
fn times_are_seen_at_once_and_written_with_the_next_commit() {
    let held = volume!("overwrite::times");
    let v = &held.volume;
    let names = ["plain", "mode", "attribute", "set", "future", "renamed"];
    let stamp = |seconds| Some(Timestamp { seconds, nanoseconds: 5 });
    for name in names {
        v.write_file(name, &[1; 5000], Creation::default()).unwrap();
        let old = if name == "future" { stamp(8_000_000_000) } else { stamp(1000) };
        v.change_path(name, &Changes { mtime: old, ctime: old, ..Changes::default() }).unwrap();
    }
    v.sync().unwrap();
    let now = Timestamp::now().seconds;
    for name in names {
        v.open_file(name).unwrap().write_all_at(7, b"over").unwrap();
        let metadata = v.metadata(name).unwrap();
        assert!(metadata.mtime.seconds.abs_diff(now) < 60, "{name}: {:?}", metadata.mtime);
        assert_eq!(metadata.mtime, metadata.ctime);
    }
    let nr = |name: &str| v.resolve(name, true).unwrap();
    v.change(nr("mode"), &Changes { permissions: Some(0o600), ..Changes::default() }).unwrap();
    v.set_xattr(nr("attribute"), "user.a", b"1", XattrHow::Create).unwrap();
    v.change(nr("set"), &Changes { mtime: stamp(77), ..Changes::default() }).unwrap();
    v.rename_path("renamed", "moved", hectare_engine::RenameMode::Replace).unwrap();
    let names = ["plain", "mode", "attribute", "set", "future", "moved"];
    let told = names.map(|name| v.metadata(name).unwrap());
    v.sync().unwrap();
    assert_eq!(names.map(|name| v.metadata(name).unwrap()), told);
    close_clean(&held);
    let again = in_memory_with(&held.device.to_vec(), OpenOptions::read_only()).unwrap();
    assert_eq!(names.map(|name| again.volume.metadata(name).unwrap()), told);
    for (name, metadata) in names.iter().zip(&told) {
        if *name == "set" {
            assert_eq!(Some(metadata.mtime), stamp(77));
        } else {
            assert!(metadata.mtime.seconds.abs_diff(now) < 60, "{name}");
        }
    }
}

#[test]
fn a_fixed_time_is_the_time_of_an_overwrite() {
    let held = volume!("overwrite::a_fixed_time");
    held.volume.write_file("file", &[1; 5000], Creation::default()).unwrap();
    held.volume.close().unwrap();
    let fixed_time = Some(Timestamp { seconds: 1234, nanoseconds: 9 });
    let options = OpenOptions { fixed_time, ..OpenOptions::default() };
    let held = in_memory_with(&held.device.to_vec(), options).unwrap();
    held.volume.open_file("file").unwrap().write_all_at(7, b"over").unwrap();
    close_clean(&held);
    let again = in_memory_with(&held.device.to_vec(), OpenOptions::read_only()).unwrap();
    assert_eq!(Some(again.volume.metadata("file").unwrap().mtime), fixed_time);
}

#[test]
fn a_closed_volume_is_not_written_over() {
    let held = volume!("overwrite::a_closed_volume");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &[1; 5000]).unwrap();
    file.sync().unwrap();
    file.write_all_at(0, &[2; 5000]).unwrap();
    held.volume.close().unwrap();
    let before = held.device.to_vec();
    assert!(matches!(file.write_at(0, &[3; 5000]), Err(Error::Closed)));
    drop(file);
    assert!(held.device.to_vec() == before);
    assert_clean_bytes(&before);
}

/// Some threads overwrite and read a file that others truncate and rewrite, while freed blocks go to other
/// files. Every byte must be the file's own, or zero.
#[test]
fn no_overwrite_and_no_read_goes_where_the_file_was() {
    let held = volume!("overwrite::no_overwrite_goes_where_the_file_was");
    let v = &held.volume;
    let file = v.create_file("file", Creation::default()).unwrap();
    let done = AtomicBool::new(false);
    let own = |read: &[u8], at: u64| {
        read.iter().zip(pattern(1, at, read.len())).all(|(byte, own)| *byte == own || *byte == 0)
    };
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (file, done, own) = (&file, &done, &own);
            scope.spawn(move || {
                let mut random = Random::new(&format!("over {thread}"));
                let mut read = vec![0; 6000];
                while !done.load(Ordering::Acquire) {
                    let at = random.below(200_000);
                    let got = file.read_at(at, &mut read).unwrap();
                    assert!(own(&read[..got], at), "foreign bytes at {at}");
                    // Inside the old size; the pattern is the same wherever it ends up.
                    file.write_all_at(at, &pattern(1, at, 1 + random.below(3000) as usize)).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for n in 0..300_u64 {
                file.set_len(n % 3 * 50_000).unwrap();
                let name = format!("other-{n}");
                v.write_file(&name, &[0xee; 150_000], Creation::default()).unwrap();
                file.write_all_at(0, &pattern(1, 0, 180_000)).unwrap();
                assert!(v.read(&name).unwrap().iter().all(|byte| *byte == 0xee), "{name}");
                v.remove_file(&name).unwrap();
                if n % 10 == 0 {
                    v.sync().unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
    });
    drop(file);
    close_clean(&held);
}
