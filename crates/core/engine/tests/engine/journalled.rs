//! File data in the journal: with `data=journal`, and of files with the flag. Blocks that are logged and not
//! checkpointed are what is read, what a crash leaves, and never overwrite the next user's data.

use crate::common::{
    InMemory, assert_clean_but_wide_bytes, assert_clean_bytes, close_clean, format_bytes, in_memory,
    in_memory_with, journalling_data, open_read_only, pattern, save, unhurried,
};
use crate::logged::MAGIC;
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{
    Changes, Creation, DataMode, Error, FallocateMode, InodeFlags, NewNode, OpenFile, OpenOptions, Timestamp,
};
use hectare_oracle::skip;
use std::sync::Arc;

/// No reserve: the volume can be filled wholly.
const ARGS: [&str; 8] = ["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"];

/// No thread: commits happen only on request.
fn options(data_mode: Option<DataMode>) -> OpenOptions {
    OpenOptions { seed: Some(1), data_mode, ..unhurried() }
}

fn made(data_mode: Option<DataMode>) -> Option<InMemory> {
    let bytes = format_bytes(&ARGS, "16M").ok()?;
    Some(in_memory_with(&bytes, options(data_mode)).unwrap())
}

macro_rules! held {
    ($mode:expr, $test:literal) => {
        match made($mode) {
            Some(held) => held,
            None => skip!($test, "there is no mke2fs"),
        }
    };
}

/// The content of a file that another opening finds after a crash now.
fn after_a_crash(held: &InMemory, path: &str) -> Vec<u8> {
    let (content, bytes) = recovered(held, path);
    assert_clean_bytes(&bytes);
    content
}

/// Likewise, with the volume that it left.
fn recovered(held: &InMemory, path: &str) -> (Vec<u8>, Vec<u8>) {
    let again = in_memory_with(&held.device.to_vec(), options(None)).unwrap();
    let content = again.volume.read(path).unwrap();
    again.volume.close().unwrap();
    (content, again.device.to_vec())
}

/// The bytes on the device at the location of a file's first block.
fn at_home(held: &InMemory, file: &OpenFile, len: usize) -> Vec<u8> {
    let place = file.extents().unwrap()[0].physical.get() * 1024;
    held.device.to_vec()[place as usize..place as usize + len].to_vec()
}

fn journalled(held: &InMemory, path: &str) -> OpenFile {
    let file = held.volume.create_file(path, Creation::default()).unwrap();
    held.volume.set_journal_data(file.inode(), true).unwrap();
    file
}

#[test]
fn what_is_in_the_log_is_read_and_comes_home() {
    let held = held!(Some(DataMode::Journal), "journalled::what_is_in_the_log");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    let content = [&MAGIC[..], &pattern(1, 0, 9_000)].concat();
    file.write_all_at(0, &content).unwrap();
    assert_eq!(held.volume.read("file").unwrap(), content, "in the running transaction");
    file.sync().unwrap();
    assert_eq!(held.volume.read("file").unwrap(), content, "in the log");
    assert_ne!(at_home(&held, &file, 9_000), content[..9_000], "not at home yet");
    assert_eq!(after_a_crash(&held, "file"), content);
    file.write_all_at(5_000, b"over").unwrap();
    assert_eq!(after_a_crash(&held, "file"), content, "what is not committed is not there");
    file.sync_data().unwrap();
    let content = [&content[..5_000], b"over", &content[5_004..]].concat();
    assert_eq!(after_a_crash(&held, "file"), content);
    held.volume.close().unwrap();
    assert_eq!(at_home(&held, &file, 9_000), content[..9_000], "at home");
    assert_clean_bytes(&held.device.to_vec());
}

#[test]
fn the_superblock_may_ask_for_it() {
    let bytes = match format_bytes(&ARGS, "16M").and_then(|bytes| journalling_data(&bytes)) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("journalled::the_superblock_may_ask_for_it", reason),
    };
    for (mode, in_log) in [(None, true), (Some(DataMode::Ordered), false)] {
        let held = in_memory_with(&bytes, options(mode)).unwrap();
        let file = held.volume.create_file("file", Creation::default()).unwrap();
        file.write_all_at(0, &pattern(1, 0, 2048)).unwrap();
        file.sync().unwrap();
        assert_eq!(at_home(&held, &file, 2048) != pattern(1, 0, 2048), in_log, "{mode:?}");
        close_clean(&held);
    }
}

#[test]
fn a_mode_without_a_journal_is_refused_by_name() {
    let bytes = match format_bytes(&["-t", "ext4", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("journalled::a_mode_without_a_journal", reason),
    };
    for mode in DataMode::ALL {
        let error = in_memory_with(&bytes, options(Some(mode))).err().unwrap().to_string();
        assert!(error.contains(&format!("data={} needs a journal", mode.name())), "{error}");
    }
    // The superblock's default is not a requirement, as with the kernel.
    let bytes = journalling_data(&bytes).unwrap();
    let held = in_memory_with(&bytes, options(None)).unwrap();
    held.volume.write_file("file", &pattern(1, 0, 5000), Creation::default()).unwrap();
    assert_eq!(held.volume.read("file").unwrap(), pattern(1, 0, 5000));
    close_clean(&held);
}

#[test]
fn a_flagged_file_is_journalled_in_any_mode() {
    for mode in [DataMode::Ordered, DataMode::Writeback] {
        let held = held!(Some(mode), "journalled::a_flagged_file");
        let (flagged, other) =
            (journalled(&held, "flagged"), held.volume.create_file("other", Creation::default()).unwrap());
        for (n, file) in [(1, &flagged), (2, &other)] {
            file.write_all_at(0, &pattern(n, 0, 3000)).unwrap();
            file.sync().unwrap();
        }
        assert_ne!(at_home(&held, &flagged, 3000), pattern(1, 0, 3000));
        assert_eq!(at_home(&held, &other, 3000), pattern(2, 0, 3000));
        assert!(flagged.metadata().unwrap().flags.contains(InodeFlags::JOURNAL_DATA));
        assert_eq!(after_a_crash(&held, "flagged"), pattern(1, 0, 3000));
        close_clean(&held);
    }
}

#[test]
fn directories_give_the_flag_to_what_is_made_in_them() {
    let held = held!(None, "journalled::directories_give_the_flag");
    let dir = held.volume.create_dir("dir", Creation::default()).unwrap();
    held.volume.set_journal_data(dir, true).unwrap();
    let file = held.volume.create_file("dir/file", Creation::default()).unwrap();
    assert!(file.metadata().unwrap().flags.contains(InodeFlags::JOURNAL_DATA));
    file.write_all_at(0, &pattern(1, 0, 3000)).unwrap();
    file.sync().unwrap();
    assert_ne!(at_home(&held, &file, 3000), pattern(1, 0, 3000));
    let fifo = held.volume.make("fifo", NewNode::Fifo, Creation::default()).unwrap();
    assert!(matches!(held.volume.set_journal_data(fifo, true), Err(Error::Unsupported(_))));
    close_clean(&held);
}

#[test]
fn a_flag_that_is_taken_back_leaves_nothing_in_the_log() {
    let held = held!(None, "journalled::a_flag_that_is_taken_back");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    for round in 0..4 {
        // Bytes buffered before are placed before the flag is set.
        file.write_all_at(file.metadata().unwrap().size, &pattern(round, 0, 700)).unwrap();
        held.volume.set_journal_data(file.inode(), true).unwrap();
        file.write_all_at(0, &pattern(round + 10, 0, 3000)).unwrap();
        if round % 2 == 0 {
            file.sync().unwrap();
        }
        held.volume.set_journal_data(file.inode(), false).unwrap();
        assert_eq!(at_home(&held, &file, 3000), pattern(round + 10, 0, 3000));
        // Past the log now: logged copies must neither overwrite it nor be read from the cache.
        file.write_all_at(0, &pattern(round + 20, 0, 3000)).unwrap();
        assert_eq!(held.volume.read("file").unwrap()[..3000], pattern(round + 20, 0, 3000));
        file.sync().unwrap();
        assert_eq!(after_a_crash(&held, "file")[..3000], pattern(round + 20, 0, 3000));
    }
    close_clean(&held);
}

#[test]
fn freed_data_does_not_come_back_over_what_is_written_past_the_log() {
    for how in ["unlink", "truncate", "punch", "collapse"] {
        let held = held!(None, "journalled::freed_data_does_not_come_back");
        let volume = &held.volume;
        let full = |file: &OpenFile, seed| {
            let mut at = 0;
            while let Ok(n) = file.write_at(at, &pattern(seed, at, 50_000)) {
                at += n as u64;
            }
            at
        };
        let first = journalled(&held, "first");
        first.write_all_at(0, &pattern(1, 0, 200_000)).unwrap();
        first.sync().unwrap();
        first.write_all_at(100_000, &pattern(2, 0, 50_000)).unwrap(); // in the running transaction
        match how {
            "unlink" => volume.remove_file("first").unwrap(),
            "truncate" => first.set_len(1).unwrap(),
            "punch" => first.fallocate(FallocateMode::PunchHole, 1024, 190 << 10).unwrap(),
            _ => first.fallocate(FallocateMode::CollapseRange, 1024, 190 << 10).unwrap(),
        }
        drop(first);
        let second = volume.create_file("second", Creation::default()).unwrap();
        let len = full(&second, 3);
        assert!(len > 5 << 20, "{how}: {len}");
        volume.sync().unwrap();
        assert!(after_a_crash(&held, "second") == pattern(3, 0, len as usize), "{how}: it came back");
        volume.close().unwrap();
        let again = in_memory(&held.device.to_vec());
        assert!(again.volume.read("second").unwrap() == pattern(3, 0, len as usize), "{how}: it came home");
    }
}

#[test]
fn a_large_write_takes_several_transactions_and_small_logs_hold_it() {
    let held = held!(Some(DataMode::Journal), "journalled::a_large_write");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    let content = pattern(4, 0, 5 << 20);
    file.write_all_at(0, &content).unwrap();
    file.write_all_at(1 << 20, &pattern(5, 0, 3 << 20)).unwrap();
    let content = [&content[..1 << 20], &pattern(5, 0, 3 << 20), &content[4 << 20..]].concat();
    assert!(held.volume.read("file").unwrap() == content);
    file.sync().unwrap();
    assert!(after_a_crash(&held, "file") == content);
    // Frees more than the log holds.
    held.volume.remove_file("file").unwrap();
    drop(file);
    held.volume.sync().unwrap();
    held.volume.check_space().unwrap();
    close_clean(&held);
}

#[test]
fn a_write_is_whole_or_not_there_at_all() {
    let held = held!(Some(DataMode::Journal), "journalled::a_write_is_whole");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    // Holes, unwritten and written blocks, in one handle.
    file.write_all_at(3 * 1024, &pattern(1, 0, 2500)).unwrap();
    file.allocate(8 * 1024, 2048, false).unwrap();
    file.sync().unwrap();
    let before = held.volume.read("file").unwrap();
    let handles = held.volume.journal_stats().handles_started;
    file.write_all_at(100, &pattern(2, 0, 12_000)).unwrap();
    assert_eq!(held.volume.journal_stats().handles_started, handles + 1);
    assert_eq!(after_a_crash(&held, "file"), before);
    file.sync().unwrap();
    let after = [&before[..100], &pattern(2, 0, 12_000)].concat();
    assert_eq!(after_a_crash(&held, "file"), after);
    close_clean(&held);
}

#[test]
fn cutting_a_block_is_one_with_the_size() {
    let held = held!(Some(DataMode::Journal), "journalled::cutting_a_block");
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &pattern(1, 0, 5000)).unwrap();
    file.sync().unwrap();
    file.set_len(2500).unwrap();
    assert_eq!(after_a_crash(&held, "file"), pattern(1, 0, 5000));
    file.set_len(4000).unwrap();
    let expected = [&pattern(1, 0, 2500)[..], &[0; 1500]].concat();
    assert_eq!(held.volume.read("file").unwrap(), expected);
    file.sync().unwrap();
    assert_eq!(after_a_crash(&held, "file"), expected);
    close_clean(&held);
}

#[test]
fn allocated_space_can_be_written_when_the_volume_is_full() {
    let held = held!(Some(DataMode::Journal), "journalled::allocated_space");
    let volume = &held.volume;
    let file = volume.create_file("file", Creation::default()).unwrap();
    file.allocate(0, 400 << 10, false).unwrap();
    // Fragmented, so that the tree has no room in the inode.
    for n in 0..40_u64 {
        file.write_all_at(n * 10_240, &pattern(n, 0, 1024)).unwrap();
    }
    let ballast = volume.create_file("ballast", Creation::default()).unwrap();
    let mut at = 0;
    while let Ok(n @ 1..) = ballast.write_at(at, &pattern(7, at, 9000)) {
        at += n as u64;
    }
    let mut expected = volume.read("file").unwrap();
    for n in 0..400_u64 {
        let at = (n * 37 % 400) * 1024 + 100;
        file.write_all_at(at, &pattern(n, 0, 300)).unwrap();
        expected[at as usize..at as usize + 300].copy_from_slice(&pattern(n, 0, 300));
    }
    assert!(volume.read("file").unwrap() == expected);
    volume.sync().unwrap();
    for (name, expected) in [("file", expected), ("ballast", pattern(7, 0, at as usize))] {
        let (content, bytes) = recovered(&held, name);
        assert!(content == expected, "{name}");
        assert_clean_but_wide_bytes(&bytes);
    }
    volume.close().unwrap();
    assert_clean_but_wide_bytes(&held.device.to_vec());
}

#[test]
fn a_cache_that_keeps_nothing_shows_nothing_old() {
    let bytes = match format_bytes(&ARGS, "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("journalled::a_cache_that_keeps_nothing", reason),
    };
    let options = OpenOptions { cache_bytes: 0, ..OpenOptions::default() };
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let options = OpenOptions { data_mode: Some(DataMode::Journal), ..options };
    let volume = hectare_engine::Volume::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    let files: Vec<OpenFile> =
        (0..4).map(|n| volume.create_file(format!("{n}"), Creation::default()).unwrap()).collect();
    std::thread::scope(|scope| {
        for (n, file) in files.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..60_u64 {
                    let content = pattern(round * 8 + n as u64, 0, 90_000);
                    file.write_all_at(0, &content).unwrap();
                    let mut read = vec![0; content.len()];
                    file.read_at(0, &mut read).unwrap();
                    assert!(read == content, "file {n}, round {round}");
                    if round % 7 == n as u64 {
                        file.sync().unwrap();
                    }
                    file.read_at(0, &mut read).unwrap();
                    assert!(read == content, "file {n}, round {round}, synced");
                }
            });
        }
    });
    drop(files);
    volume.close().unwrap();
    assert_clean_bytes(&device.to_vec());
}

/// Its bytes bypassed the log, while the cache had other ones for these blocks.
#[test]
fn regression_a_copy_into_a_journalled_file_goes_through_the_log() {
    let held = held!(Some(DataMode::Journal), "journalled::regression_a_copy_into_a_journalled_file");
    let [from, to] = ["from", "to"].map(|name| held.volume.create_file(name, Creation::default()).unwrap());
    from.write_all_at(0, &pattern(1, 0, 9_000)).unwrap();
    to.write_all_at(0, &pattern(2, 0, 9_000)).unwrap();
    to.sync().unwrap();
    assert_eq!(from.copy_range(500, &to, 1_700, 7_000).unwrap(), 7_000);
    let mut expected = pattern(2, 0, 9_000);
    expected[1_700..8_700].copy_from_slice(&pattern(1, 0, 9_000)[500..7_500]);
    assert_eq!(held.volume.read("to").unwrap(), expected);
    assert_eq!(after_a_crash(&held, "to"), pattern(2, 0, 9_000), "the copy is in no log yet");
    to.sync().unwrap();
    assert_eq!(after_a_crash(&held, "to"), expected);
    drop((from, to));
    close_clean(&held);
}

#[test]
fn regression_times_that_a_caller_keeps_are_kept_through_the_journal() {
    for mode in [None, Some(DataMode::Journal)] {
        let held = held!(mode, "journalled::regression_times_that_a_caller_keeps");
        let file = held.volume.create_file("file", Creation::default()).unwrap();
        let old = Some(Timestamp { seconds: 1000, nanoseconds: 5 });
        file.change(&Changes { mtime: old, ..Changes::default() }).unwrap();
        let told = file.metadata().unwrap();
        // New, over what is there, in the middle of a file, and more than a handle takes.
        for (at, len) in [(0, 100), (50, 20), (90_000, 300), (10, 200_000)] {
            file.write_keeping_times(at, &pattern(1, at, len)).unwrap();
            file.write_from_cache(at, &pattern(2, at, len)).unwrap();
            file.sync().unwrap();
            let now = file.metadata().unwrap();
            assert_eq!((now.mtime, now.ctime), (told.mtime, told.ctime), "{len} bytes at {at}, {mode:?}");
        }
        file.write_all_at(0, b"x").unwrap();
        assert!(file.metadata().unwrap().mtime > told.mtime);
        drop(file);
        close_clean(&held);
    }
}

/// A cluster of four blocks stays with a file when three of them are freed. They were logged, so they are
/// revoked; used again in the same transaction, they are logged in the transaction that revokes them.
#[test]
fn regression_blocks_freed_and_logged_in_one_transaction_are_not_revoked() {
    let args = ["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-J", "size=8"];
    let Ok(bytes) = format_bytes(&args, "64M") else {
        skip!("journalled::regression_blocks_freed_and_logged", "there is no mke2fs");
    };
    let ways = ["cut", "punch", "twice"];
    for (mode, how) in
        [Some(DataMode::Journal), None].into_iter().flat_map(|mode| ways.map(|how| (mode, how)))
    {
        let held = in_memory_with(&bytes, options(mode)).unwrap();
        let file = journalled(&held, "file");
        file.write_all_at(0, &pattern(1, 0, 16_384)).unwrap();
        file.sync().unwrap();
        match how {
            "cut" => file.set_len(4096).unwrap(),
            "punch" => file.fallocate(FallocateMode::PunchHole, 4096, 12_288).unwrap(),
            _ => {
                file.set_len(4096).unwrap();
                file.write_all_at(4096, &pattern(2, 0, 8192)).unwrap();
                file.set_len(4096).unwrap();
            }
        }
        file.write_all_at(4096, &pattern(3, 0, 8192)).unwrap();
        file.sync().unwrap();
        let mut expected = [pattern(1, 0, 4096), pattern(3, 0, 8192)].concat();
        expected.resize(usize::try_from(file.metadata().unwrap().size).unwrap(), 0);
        assert!(
            after_a_crash(&held, "file") == expected,
            "{mode:?}, {how}: the engine replays something else"
        );
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        save(&held.device.to_vec(), &image);
        let report = hectare_oracle::fsck::e2fsck_with(&image, &["-fy"]).unwrap();
        assert!(report.questions.is_empty(), "{}", report.output);
        let again = open_read_only(&image);
        assert!(again.read("file").unwrap() == expected, "{mode:?}, {how}: e2fsck replays something else");
        close_clean(&held);
    }
}
