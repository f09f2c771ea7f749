//! Metadata corruption found while a volume is in use: recorded in the superblock, and handled as the volume
//! specifies (`errors=`); and I/O errors of file data.

use crate::checksums::{Specimen, specimen};
use crate::common::{assert_clean_bytes, format_bytes, in_memory_with, is_io, pattern, save, unhurried};
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Request, Rule};
use hectare_engine::{Changes, Creation, Error, NewNode, OnError, OpenFile, OpenOptions, Timestamp, Volume};
use hectare_oracle::e2fsprogs::Dump;
use hectare_oracle::{KernelMount, skip};
use hectare_units::{GroupNr, InodeNr};
use std::sync::Arc;
use std::time::Duration;

type Faulty = FaultDevice<Arc<MemoryDevice>>;

const LOGGED: [&str; 6] = ["-t", "ext4", "-b", "1024", "-J", "size=4"];
const UNLOGGED: [&str; 6] = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
const BLOCK: usize = 1024;

fn faulty(bytes: &[u8]) -> (Arc<Faulty>, Arc<MemoryDevice>) {
    let memory = Arc::new(MemoryDevice::from_bytes(bytes));
    (Arc::new(FaultDevice::new(Arc::clone(&memory))), memory)
}

fn open(device: &Arc<Faulty>, options: OpenOptions) -> Result<Volume, Error> {
    Volume::open(Arc::clone(device) as Arc<dyn Device>, options)
}

/// 2026-11-20.
const NOW: i64 = 1_795_187_788;

/// No thread, and a recognizable time.
fn options(errors: Option<OnError>) -> OpenOptions {
    let fixed_time = Some(Timestamp::from_seconds(NOW));
    OpenOptions { errors, fixed_time, ..unhurried() }
}

fn on_image<R>(bytes: &[u8], look: impl FnOnce(&std::path::Path) -> R) -> R {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    look(&image)
}

fn dump(bytes: &[u8]) -> Dump {
    on_image(bytes, |image| hectare_oracle::dumpe2fs_superblock(image).unwrap())
}

/// The errors that the superblock counts, once the log is replayed.
fn recorded(bytes: &[u8]) -> u32 {
    in_memory_with(bytes, OpenOptions::read_only()).unwrap().volume.superblock().error_count()
}

/// What the kernel reports about the errors on a volume that it has mounted.
fn errors_by_kernel(mount: &KernelMount, field: &str) -> String {
    let device = mount.device().file_name().unwrap().to_string_lossy().into_owned();
    std::fs::read_to_string(format!("/sys/fs/ext4/{device}/{field}")).unwrap().trim().to_owned()
}

type Trigger = fn(&Volume, &Specimen) -> Result<(), Error>;

/// One of each structure: a byte of it, and what meets it.
fn faults(s: &Specimen) -> Vec<(&'static str, usize, Trigger)> {
    let desc = s.desc_at(GroupNr::new(0));
    let named = |at: usize| s.word(desc + at) as usize * BLOCK;
    let needy: Trigger = |v, _| v.open_file("plain")?.allocate(0, 1 << 30, true);
    let other_group: Trigger = |v, _| {
        let first = v.superblock().geometry().inodes_per_group + 1;
        v.stat(InodeNr::new(first)).map(drop)
    };
    vec![
        ("block bitmap", named(0) + 500, needy),
        ("inode bitmap", named(4) + 100, |v, _| v.make("new", NewNode::File, Creation::default()).map(drop)),
        ("group descriptor", s.desc_at(GroupNr::new(1)) + 0x1e, other_group),
        ("inode", s.inode_at(s.attributes) + 0x30, |v, s| v.stat(s.attributes).map(drop)),
        ("extent", s.first_child(s.fragmented) + 100, |v, _| v.read("fragmented").map(drop)),
        ("directory", s.block_of(s.indexed, 0) + 50, |v, s| v.list(s.indexed).map(drop)),
        ("attribute", s.attribute_block() * BLOCK + 16, |v, s| v.list_xattrs(s.attributes).map(drop)),
    ]
}

/// A change that needs nothing corrupt.
fn change(volume: &Volume, permissions: u16) -> Result<(), Error> {
    let plain = volume.resolve("plain", false)?;
    volume.change(plain, &Changes { permissions: Some(permissions), ..Changes::default() })
}

#[test]
fn what_is_found_broken_is_recorded_and_the_volume_goes_on() {
    for args in [LOGGED, UNLOGGED] {
        let s = match specimen(&args) {
            Ok(specimen) => specimen,
            Err(reason) => skip!("found::what_is_found_broken_is_recorded", reason),
        };
        for (what, at, trigger) in faults(&s) {
            let held = in_memory_with(&s.broken(at), options(None)).unwrap();
            let volume = &held.volume;
            assert_eq!(volume.errors_behaviour(), OnError::Continue);
            for _ in 0..3 {
                let error = trigger(volume, &s).expect_err(what);
                assert!(matches!(error, Error::Corrupt(_)), "{what}: {error}");
            }
            let found = volume.found_errors().expect(what);
            assert_eq!((found.count, found.time.seconds), (1, NOW), "{what}: {found:?}");
            assert!(found.first.contains(what) && found.first.contains("checksum"), "{what}: {found:?}");
            change(volume, 0o600).unwrap();
            volume.sync().unwrap();
            // It is recorded as soon as something was committed, and when all is closed.
            assert_eq!(recorded(&held.device.to_vec()), 1, "{what}");
            change(volume, 0o640).unwrap();
            volume.close().unwrap();
            let bytes = held.device.to_vec();
            let dump = dump(&bytes);
            assert_eq!(dump.field("Filesystem state"), "clean with errors", "{what}");
            assert_eq!(dump.field("FS Error count"), "1", "{what}");
            for function in [dump.field("First error function"), dump.field("Last error function")] {
                assert!(found.first.contains(function) && function.contains(what), "{what}: {function}");
            }
            assert_eq!(dump.field("First error err"), "EFSBADCRC", "{what}");
            assert!(dump.field("First error time").starts_with("Fri Nov 20"), "{what}");
            let place = ["First error block #", "First error inode #"].map(|name| dump.fields.get(name));
            assert!(place.iter().any(Option::is_some), "{what}: neither block nor inode");
            let again = in_memory_with(&bytes, OpenOptions::default()).err().expect(what);
            assert!(again.to_string().contains("marked as having errors"), "{again}");
            let read = in_memory_with(&bytes, OpenOptions::read_only()).unwrap().volume;
            assert_eq!(read.metadata("plain").unwrap().permissions, 0o640, "{what}");
        }
    }
}

#[test]
fn what_breaks_the_format_is_recorded_where_there_are_no_checksums() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum"];
    let s = match specimen(&args) {
        Ok(specimen) => specimen,
        Err(reason) => skip!("found::what_breaks_the_format", reason),
    };
    let fragmented: Trigger = |v, _| v.read("fragmented").map(drop);
    let cases: [(&str, usize, Trigger); 5] = [
        ("block bitmap", s.word(s.desc_at(GroupNr::new(0))) as usize * BLOCK + 1000, |v, _| {
            v.open_file("plain")?.allocate(0, 1 << 30, true)
        }),
        ("extent", s.inode_at(s.fragmented) + 40, fragmented),
        ("extent", s.first_child(s.fragmented), fragmented),
        ("directory", s.block_of(s.indexed, 0) + 4, |v, s| v.lookup(s.indexed, b"none").map(drop)),
        ("attribute", s.attribute_block() * BLOCK, |v, s| v.list_xattrs(s.attributes).map(drop)),
    ];
    for (what, at, trigger) in cases {
        let held = in_memory_with(&s.broken(at), options(None)).unwrap();
        let error = trigger(&held.volume, &s).expect_err(what);
        assert!(matches!(error, Error::Corrupt(_)), "{what}: {error}");
        assert_eq!(held.volume.found_errors().expect(what).count, 1, "{what}");
        held.volume.close().unwrap();
        let dump = dump(&held.device.to_vec());
        assert!(dump.field("First error function").contains(what), "{what}");
        assert_eq!(dump.field("First error err"), "EFSCORRUPTED", "{what}");
    }
}

#[test]
fn a_volume_that_is_not_to_go_on_takes_no_change_after_what_was_found() {
    for (args, reaction) in [(LOGGED, OnError::RemountReadOnly), (UNLOGGED, OnError::Panic)] {
        let s = match specimen(&args) {
            Ok(specimen) => specimen,
            Err(reason) => skip!("found::a_volume_that_is_not_to_go_on", reason),
        };
        for (what, at, trigger) in faults(&s) {
            let held = in_memory_with(&s.broken(at), options(Some(reaction))).unwrap();
            let volume = &held.volume;
            assert_eq!(volume.errors_behaviour(), reaction);
            trigger(volume, &s).expect_err(what);
            let refused = |result: Result<(), Error>| {
                let text = result.expect_err(what).to_string();
                let words = [
                    what,
                    "found in",
                    "at 2026-11-20 15:16:28 UTC",
                    &format!("errors={reaction}"),
                    "e2fsck -fy",
                ];
                assert!(words.iter().all(|word| text.contains(word)), "{what}: {text}");
                assert_eq!(text.lines().count(), 1);
            };
            refused(change(volume, 0o600));
            let bytes = held.device.to_vec();
            assert_eq!(recorded(&bytes), 1, "{what}: at once");
            refused(volume.make("new", NewNode::Fifo, Creation::default()).map(drop));
            refused(volume.open_file("plain").unwrap().write_all_at(0, b"over"));
            refused(volume.sync());
            // What was there is still read.
            assert!(volume.read("plain").unwrap() == pattern(1, 0, 5000));
            refused(volume.close());
            assert!(held.device.to_vec() == bytes, "{what}: bytes changed after the end");
            let state = dump(&bytes).field("Filesystem state").to_owned();
            assert!(state.contains("with errors"), "{what}: {state}");
        }
    }
}

#[test]
fn what_is_not_committed_when_all_changes_end_is_lost_and_nothing_else() {
    let s = match specimen(&LOGGED) {
        Ok(specimen) => specimen,
        Err(reason) => skip!("found::what_is_not_committed", reason),
    };
    let node = s.first_child(s.fragmented) + 100;
    let held = in_memory_with(&s.broken(node), options(Some(OnError::RemountReadOnly))).unwrap();
    held.volume.write_file("kept", b"kept", Creation::default()).unwrap();
    held.volume.sync().unwrap();
    held.volume.write_file("lost", b"lost", Creation::default()).unwrap();
    held.volume.read("fragmented").unwrap_err();
    assert!(matches!(held.volume.sync(), Err(Error::Aborted(_))));
    let mut bytes = held.device.to_vec();
    drop(held);
    bytes[node] ^= 0x10;
    on_image(&bytes, |image| match KernelMount::new(image, "") {
        Ok(mount) => {
            assert!(mount.path().join("kept").exists() && !mount.path().join("lost").exists());
            assert!(errors_by_kernel(&mount, "errors_count").parse::<u32>().unwrap() >= 1);
            assert_eq!(errors_by_kernel(&mount, "first_error_func"), "extent node");
        }
        Err(reason) => hectare_oracle::skip_part!("found::what_is_not_committed", reason),
    });
    on_image(&bytes, |image| {
        let report = hectare_oracle::fsck::e2fsck_with(image, &["-fy"]).unwrap();
        assert!(report.questions.is_empty(), "{}", report.output);
        hectare_oracle::assert_clean(image).unwrap();
        let volume = crate::common::open_image(image);
        assert_eq!(volume.read("kept").unwrap(), b"kept");
        assert!(matches!(volume.read("lost"), Err(Error::NotFound)));
        volume.close().unwrap();
    });
}

#[test]
fn the_superblock_says_what_is_done_on_errors_and_the_caller_otherwise() {
    for (word, expected) in
        [("continue", OnError::Continue), ("remount-ro", OnError::RemountReadOnly), ("panic", OnError::Panic)]
    {
        let bytes = match format_bytes(&["-t", "ext4", "-e", word], "8M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("found::the_superblock_says", reason),
        };
        let behaviour = |errors| in_memory_with(&bytes, options(errors)).unwrap().volume.errors_behaviour();
        assert_eq!(behaviour(None), expected);
        for other in OnError::ALL {
            assert_eq!(behaviour(Some(other)), other);
        }
    }
}

#[test]
fn who_only_reads_is_told_and_records_nothing() {
    let s = match specimen(&LOGGED) {
        Ok(specimen) => specimen,
        Err(reason) => skip!("found::who_only_reads", reason),
    };
    let bytes = s.broken(s.first_child(s.fragmented) + 100);
    let held = in_memory_with(&bytes, OpenOptions::read_only()).unwrap();
    assert_eq!(held.volume.found_errors(), None);
    held.volume.read("fragmented").unwrap_err();
    assert_eq!(held.volume.found_errors().unwrap().count, 1);
    held.volume.close().unwrap();
    assert!(held.device.to_vec() == bytes, "bytes changed");
}

#[test]
fn numbers_that_callers_make_up_are_no_fault_of_the_volume() {
    let bytes = match format_bytes(&LOGGED, "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("found::numbers_that_callers_make_up", reason),
    };
    let held = in_memory_with(&bytes, options(Some(OnError::RemountReadOnly))).unwrap();
    for nr in (1..5000).chain([u32::MAX]) {
        let _ = held.volume.stat(InodeNr::new(nr));
    }
    held.volume.group_report(GroupNr::new(77)).unwrap_err();
    held.volume.block_bitmap(GroupNr::new(77)).unwrap_err();
    assert_eq!(held.volume.found_errors(), None);
    crate::common::close_clean(&held);
}

/// A volume with a directory and a file whose blocks are no longer in memory.
fn with_things(device: &Arc<Faulty>) -> Result<(), Error> {
    let volume = open(device, options(None))?;
    let c = Creation::default();
    volume.create_dir("dir", c)?;
    volume.write_file("dir/file", &pattern(3, 0, 5000), c)?;
    volume.close()
}

#[test]
fn metadata_that_cannot_be_read_is_recorded_and_file_data_is_not() {
    for args in [LOGGED, UNLOGGED] {
        let bytes = match format_bytes(&args, "16M") {
            Ok(bytes) => bytes,
            Err(reason) => skip!("found::metadata_that_cannot_be_read", reason),
        };
        let (device, memory) = faulty(&bytes);
        with_things(&device).unwrap();
        let volume = open(&device, options(None)).unwrap();
        let file = volume.open_file("dir/file").unwrap();
        let once = || device.add(Rule::new(Outcome::IO).on(&[Operation::Read]).times(1));
        once();
        assert_eq!(file.read_at(0, &mut [0; 5000]).unwrap_err().errno(), 5);
        assert_eq!(file.read_at(0, &mut [0; 5000]).unwrap(), 5000);
        assert_eq!(volume.found_errors(), None, "data is none of the volume's");
        once();
        let lost = volume.resolve("lost+found", false).unwrap();
        assert_eq!(volume.list(lost).unwrap_err().errno(), 5);
        assert_eq!(volume.list(lost).unwrap().len(), 0, "only the one operation fails");
        assert_eq!(volume.found_errors().unwrap().count, 1);
        drop(file);
        volume.close().unwrap();
        drop(volume);
        let bytes = memory.to_vec();
        let dump = dump(&bytes);
        assert_eq!((dump.field("FS Error count"), dump.field("First error err")), ("1", "EIO"));
        assert_eq!(dump.field("First error function"), "directory block");
        assert_eq!(dump.field("First error inode #"), "11");
        assert!(dump.number("First error block #") > 0);
        on_image(&bytes, |image| {
            // It has no other errors.
            let report = hectare_oracle::e2fsck(image).unwrap();
            assert!(report.clean, "{}", report.output);
            match KernelMount::new(image, "") {
                Ok(mount) => {
                    assert_eq!(errors_by_kernel(&mount, "errors_count"), "1");
                    assert_eq!(errors_by_kernel(&mount, "first_error_func"), "directory block");
                    assert_eq!(std::fs::read(mount.path().join("dir/file")).unwrap(), pattern(3, 0, 5000));
                }
                Err(reason) => hectare_oracle::skip_part!("found::metadata_that_cannot_be_read", reason),
            }
            hectare_oracle::fsck::e2fsck_with(image, &["-fy"]).unwrap();
            let volume = crate::common::open_image(image);
            assert_eq!(volume.superblock().error_count(), 0, "e2fsck clears it");
            volume.close().unwrap();
        });
    }
}

/// Reads and changes of every kind; as many of them as succeed.
fn all_that_goes(volume: &Volume) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut go = |result: Result<(), Error>| errors.extend(result.err());
    let c = Creation::default();
    go(volume.list(InodeNr::ROOT).map(drop));
    go(volume.read("dir/file").map(drop));
    go(volume.write_file("dir/new", &pattern(1, 0, 3000), c).map(drop));
    go(change(volume, 0o600));
    go(volume.remove_file("dir/file"));
    go(volume.sync());
    go(volume.close());
    errors
}

#[test]
fn each_read_failing_in_turn_fails_what_needed_it_in_every_mode() {
    let bytes = match format_bytes(&LOGGED, "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("found::each_read_failing_in_turn", reason),
    };
    let (device, memory) = faulty(&bytes);
    with_things(&device).unwrap();
    let bytes = memory.to_vec();
    for reaction in OnError::ALL {
        let mut found = 0;
        for k in 0.. {
            let (device, memory) = faulty(&bytes);
            device.add(Rule::new(Outcome::IO).on(&[Operation::Read]).after(k).times(1));
            let Ok(volume) = open(&device, options(Some(reaction))) else { continue };
            let errors = all_that_goes(&volume);
            let struck = device.strikes() > 0;
            let known = |error: &Error| is_io(error) || matches!(error, Error::Aborted(_) | Error::NotFound);
            assert!(errors.iter().all(known), "read {k}, {reaction}: {errors:?}");
            let recorded_one = volume.found_errors().is_some();
            drop(volume);
            if recorded_one {
                found += 1;
                let stopped = errors.iter().any(|error| matches!(error, Error::Aborted(_)));
                assert_eq!(stopped, reaction != OnError::Continue, "read {k}, {reaction}: {errors:?}");
                assert_eq!(recorded(&memory.to_vec()), 1, "read {k}, {reaction}");
            }
            on_image(&memory.to_vec(), |image| {
                let report = hectare_oracle::fsck::e2fsck_with(image, &["-fy"]).unwrap();
                assert!(report.questions.is_empty(), "read {k}, {reaction}: {}", report.output);
            });
            if !struck {
                break;
            }
        }
        assert!(found > 3, "{reaction}: only {found} reads were of metadata");
    }
}

/// File data of the test: no metadata is written in pieces of that size.
fn is_data(request: &Request) -> bool {
    request.operation == Operation::Write && request.span.len.get() == 50_176
}

#[test]
fn each_write_of_file_data_failing_in_turn_is_told_and_the_volume_goes_on() {
    let bytes = match format_bytes(&LOGGED, "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("found::each_write_of_file_data", reason),
    };
    for delayed_bytes in [0, 1 << 20] {
        for k in 0..6_u64 {
            let (device, memory) = faulty(&bytes);
            device.add(Rule::new(Outcome::IO).when(is_data).after(k).times(1));
            let volume = open(&device, OpenOptions { delayed_bytes, ..options(None) }).unwrap();
            for n in 0..6 {
                let file = volume.create_file(format!("{n}"), Creation::default()).unwrap();
                let written = file.write_all_at(0, &pattern(n, 0, 50_000));
                let told = [written.is_err(), file.sync().is_err(), file.close().is_err()];
                let when = usize::from(delayed_bytes > 0);
                assert_eq!(told, std::array::from_fn(|at| n == k && at == when), "write {k}, file {n}");
            }
            assert_eq!(device.strikes(), 1);
            let synced = volume.sync();
            assert_eq!(synced.is_err(), delayed_bytes > 0, "the volume reports writeback errors as well");
            assert_eq!(volume.found_errors(), None);
            for n in 0..6 {
                let len = if n == k { 0 } else { 50_000 };
                assert!(volume.read(format!("{n}")).unwrap() == pattern(n, 0, len));
            }
            volume.close().unwrap();
            assert_clean_bytes(&memory.to_vec());
        }
    }
}

#[track_caller]
fn refused(result: Result<(), Error>) {
    assert!(matches!(&result, Err(error @ Error::Device(_)) if error.errno() == 5), "{result:?}");
}

/// Appends to a file, and makes the volume fail to place it on its own.
fn lose(volume: &Volume, device: &Arc<Faulty>, file: &OpenFile) {
    let end = file.metadata().unwrap().size;
    file.write_all_at(end, &[7; 300]).unwrap();
    device.add(Rule::new(Outcome::IO).on(&[Operation::Write]).times(1));
    volume.place_aged(Duration::ZERO);
}

#[test]
fn bytes_lost_in_the_background_are_told_once_to_each_who_has_the_file_open() {
    let bytes = match format_bytes(&UNLOGGED, "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("found::bytes_lost_in_the_background", reason),
    };
    let (device, memory) = faulty(&bytes);
    let volume = open(&device, options(None)).unwrap();
    let first = volume.create_file("file", Creation::default()).unwrap();
    let second = volume.open_file("file").unwrap();
    let third = volume.open_file("file").unwrap();
    lose(&volume, &device, &first);
    // Opened before the error was reported to any open file.
    let fourth = volume.open_file("file").unwrap();
    refused(second.sync());
    second.sync().unwrap();
    // Opened after.
    let late = volume.open_file("file").unwrap();
    late.sync().unwrap();
    refused(first.sync_data());
    first.sync().unwrap();
    refused(third.close());
    refused(fourth.close());
    refused(volume.sync());
    volume.sync().unwrap();
    second.close().unwrap();
    // Another failure is reported to all again.
    lose(&volume, &device, &first);
    refused(late.sync());
    refused(first.sync());
    refused(volume.close());
    volume.close().unwrap();
    drop((first, late));
    assert_clean_bytes(&memory.to_vec());
}

#[test]
fn regression_syncing_an_inode_by_its_number_left_what_had_gathered() {
    let bytes = match format_bytes(&UNLOGGED, "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("found::regression_syncing_an_inode", reason),
    };
    let (device, memory) = faulty(&bytes);
    let volume = open(&device, options(None)).unwrap();
    let file = volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &[7; 300]).unwrap();
    volume.sync_inode(file.inode()).unwrap();
    let read = in_memory_with(&memory.to_vec(), OpenOptions::read_only()).unwrap().volume;
    assert_eq!(read.read("file").unwrap(), [7; 300]);
    file.write_all_at(300, &[7; 300]).unwrap();
    device.add(Rule::new(Outcome::IO).on(&[Operation::Write]).times(1));
    refused(volume.sync_inode(file.inode()));
    refused(file.sync());
    refused(volume.close());
}

#[test]
fn lost_data_ends_all_changes_only_where_that_is_asked_for() {
    let bytes = match format_bytes(&LOGGED, "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("found::lost_data_ends_all_changes", reason),
    };
    let asking = on_image(&bytes, |image| {
        hectare_oracle::debugfs_write(image, &["set_super_value mount_opts data_err=abort"]).unwrap();
        std::fs::read(image).unwrap()
    });
    for (bytes, option, aborts) in [
        (&bytes, None, false),
        (&bytes, Some(true), true),
        (&asking, None, true),
        (&asking, Some(false), false),
    ] {
        let (device, memory) = faulty(bytes);
        let options = OpenOptions { data_errors_abort: option, delayed_bytes: 0, ..options(None) };
        let volume = open(&device, options).unwrap();
        let file = volume.create_file("file", Creation::default()).unwrap();
        volume.sync().unwrap();
        device.add(Rule::new(Outcome::IO).on(&[Operation::Write]).times(1));
        refused(file.write_all_at(0, &[1; 5000]));
        let after = file.write_all_at(0, &[1; 5000]);
        assert_eq!(matches!(after, Err(Error::Aborted(_))), aborts, "{option:?}: {after:?}");
        drop(file);
        assert_eq!(volume.close().is_err(), aborts);
        drop(volume);
        assert_eq!(recorded(&memory.to_vec()), u32::from(aborts), "{option:?}");
    }
}
