//! Placement: files that grow side by side, preallocated space, the six policies.

use crate::common::{InMemory, assert_clean_bytes, format_bytes, in_memory_with, pattern};
use hectare_engine::{Creation, Error, Mechanism, OpenOptions, Policy, Tunables};
use hectare_oracle::skip;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! volume {
    ($test:literal, $policy:expr, $size:literal, $($arg:literal),*) => {
        match format_bytes(&["-t", "ext4", $($arg),*], $size) {
            Ok(bytes) => in_memory_with(&bytes, options($policy)).unwrap(),
            Err(reason) => skip!($test, reason),
        }
    };
}

fn options(policy: Policy) -> OpenOptions {
    OpenOptions { policy, ..OpenOptions::default() }
}

fn close(held: &InMemory) {
    held.volume.close().unwrap();
    assert_clean_bytes(&held.device.to_vec());
}

#[test]
fn kept_space_is_free_space_and_comes_back() {
    for policy in Policy::ALL {
        let held = volume!("placement::kept_space", policy, "64M", "-b", "4096", "-m", "0");
        let v = &held.volume;
        let free = || v.statfs().unwrap().free.get();
        v.sync().unwrap();
        let before = free();
        let files: Vec<_> =
            (0..8).map(|n| v.create_file(format!("f{n}"), Creation::default()).unwrap()).collect();
        for (n, file) in (0..).zip(&files) {
            for step in 0..20 {
                file.write_all_at(step * 8192, &pattern(n, step * 8192, 8192)).unwrap();
            }
        }
        assert_eq!(before - free(), 8 * 20 * 2, "{policy}: what is kept counts as free");
        // All the rest is available although it is preallocated for others.
        let last = v.create_file("last", Creation::default()).unwrap();
        assert!(matches!(last.allocate(0, 1 << 30, false), Err(Error::NoSpace)), "{policy}");
        assert_eq!(v.statfs().unwrap().available.get(), 0, "{policy}");
        drop(last);
        for n in 0..8 {
            v.remove_file(format!("f{n}")).unwrap();
        }
        v.remove_file("last").unwrap();
        drop(files);
        v.sync().unwrap();
        assert_eq!(free(), before, "{policy}: nothing leaks");
        close(&held);
    }
}

#[test]
fn every_policy_fills_a_volume_to_the_last_block_with_64_threads() {
    for policy in Policy::ALL {
        let held =
            volume!("placement::every_policy_fills", policy, "48M", "-b", "1024", "-m", "0", "-N", "256");
        let v = &held.volume;
        let written = AtomicU64::new(0);
        let before = v.statfs().unwrap().free.get();
        let files: Vec<_> =
            (0..64).map(|n| v.create_file(format!("f{n}"), Creation::default()).unwrap()).collect();
        std::thread::scope(|scope| {
            for (n, file) in (0..).zip(&files) {
                let written = &written;
                scope.spawn(move || {
                    let step = 1024 * (1 + n % 7);
                    let mut at = 0;
                    loop {
                        let data = pattern(n, at, usize::try_from(step).unwrap());
                        match file.write_at(at, &data) {
                            Ok(done) => {
                                written.fetch_add(done as u64, Ordering::Relaxed);
                                at += done as u64;
                            }
                            Err(Error::NoSpace) => return,
                            Err(other) => panic!("{policy}: {other}"),
                        }
                    }
                });
            }
        });
        // A file whose tree would have to grow may have left a few; files that need one block each get them.
        let last = v.create_file("last", Creation::default()).unwrap();
        let mut at = 0;
        while let Ok(done) = last.write_at(at, &pattern(64, at, 1024)) {
            at += done as u64;
        }
        let files: Vec<_> = files.into_iter().chain([last]).collect();
        assert_eq!(v.statfs().unwrap().available.get(), 0, "{policy}: exact to the last block");
        let left = v.statfs().unwrap().free.get();
        let sectors: u64 = files.iter().map(|file| file.metadata().unwrap().sectors).sum();
        assert_eq!(before - left, sectors / 2, "{policy}: what was free is in the files");
        for (n, file) in (0..).zip(&files) {
            let size = usize::try_from(file.metadata().unwrap().size).unwrap();
            let mut read = vec![0; size];
            assert_eq!(file.read_at(0, &mut read).unwrap(), size);
            assert!(read == pattern(n, 0, size), "{policy}: file {n} holds another's data");
        }
        drop(files);
        close(&held);
    }
}

#[test]
fn reserved_blocks_are_for_those_who_may_take_them() {
    let held = volume!("placement::reserved_blocks", Policy::HYBRID, "32M", "-b", "4096", "-m", "10");
    let v = &held.volume;
    let reserved = v.superblock().reserved_blocks().get();
    let kept = v.superblock().geometry().clusters_count().get() / 50;
    let file = v.create_file("file", Creation::default()).unwrap();
    assert!(matches!(file.allocate(0, 1 << 30, false), Err(Error::NoSpace)));
    assert_eq!(v.statfs().unwrap().free.get(), reserved + kept, "all but the reserve was given");
    drop(file);
    close(&held);
    let options = OpenOptions { use_reserved_blocks: true, ..OpenOptions::default() };
    let held = in_memory_with(&held.device.to_vec(), options).unwrap();
    let file = held.volume.open_file("file").unwrap();
    assert!(matches!(file.allocate(0, 1 << 30, false), Err(Error::NoSpace)));
    assert_eq!(held.volume.statfs().unwrap().free.get(), kept, "and the reserve was allocated, too");
    drop(file);
    close(&held);
}

/// The setting that `mkfs -E stripe_width=` reported as having no effect.
#[test]
fn regression_the_stripe_of_the_superblock_aligns_large_files() {
    for (policy, stripe, all_aligned) in [
        (Policy::MBALLOC, None, true),
        (Policy::MBALLOC_LINEAR, None, true),
        (Policy::MBALLOC, Some(0), false),
    ] {
        let bytes =
            match format_bytes(&["-t", "ext4", "-b", "4096", "-E", "stride=16,stripe_width=48"], "256M") {
                Ok(bytes) => bytes,
                Err(reason) => skip!("placement::regression_the_stripe_of_the_superblock", reason),
            };
        let tunables = Tunables { stripe, ..Tunables::default() };
        let held = in_memory_with(&bytes, OpenOptions { tunables, ..options(policy) }).unwrap();
        let starts = (0..6).map(|n| {
            let file = held.volume.create_file(format!("f{n}"), Creation::default()).unwrap();
            file.allocate(0, 48 * 8 * 4096, false).unwrap();
            file.extents().unwrap()[0].physical.get()
        });
        let starts: Vec<_> = starts.collect();
        assert_eq!(starts.iter().all(|start| start % 48 == 0), all_aligned, "{policy}: {starts:?}");
        close(&held);
    }
}

/// The kernel preallocates nothing for the tail of a file that is not open any more.
#[test]
fn what_is_left_of_a_closed_file_gets_no_window() {
    for (policy, kept) in [
        (Policy::MBALLOC, false),
        (Policy::MBALLOC.without(Mechanism::Contention), true),
        (Policy::HYBRID, true),
    ] {
        let held = volume!("placement::what_is_left_of_a_closed_file", policy, "256M", "-b", "4096");
        let preallocated = || held.volume.allocator_stats().preallocated;
        // Small appends are buffered, and placed when the file is closed or synced.
        let written = |name| {
            let file = held.volume.create_file(name, Creation::default()).unwrap();
            for at in (0..100_000).step_by(1000) {
                file.write_at(at, &pattern(1, at, 1000)).unwrap();
            }
            file
        };
        let file = written("closed");
        assert_eq!(preallocated(), 0, "{policy}: it is buffered");
        drop(file);
        assert_eq!(preallocated() > 0, kept, "{policy}");
        let file = written("open");
        file.sync().unwrap();
        assert!(preallocated() > 0, "{policy}: an open file gets one");
        drop(file);
        close(&held);
    }
}
