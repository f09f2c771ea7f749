//! Devices that fail: the k-th operation fails for k = 0, 1, 2...; every call returns an error that names the
//! device's, and after a failed commit nothing more is written.

use crate::common::{assert_clean_bytes, each_operation_failing, format_bytes, is_io, pattern, unhurried};
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Rule};
use hectare_engine::{Creation, Error, NewNode, OpenOptions, RenameMode, Volume, XattrHow};
use hectare_oracle::skip;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Faulty = FaultDevice<Arc<MemoryDevice>>;

fn device(bytes: &[u8]) -> (Arc<Faulty>, Arc<MemoryDevice>) {
    let memory = Arc::new(MemoryDevice::from_bytes(bytes));
    (Arc::new(FaultDevice::new(Arc::clone(&memory))), memory)
}

/// Nothing is buffered: the requested write itself fails.
fn at_once() -> OpenOptions {
    OpenOptions { delayed_bytes: 0, ..unhurried() }
}

/// Some of everything.
fn workload(volume: &Volume) -> Result<(), Error> {
    let c = Creation::default();
    volume.create_dir_all("a/b", c)?;
    for n in 0..12 {
        volume.write_file(format!("a/{n}-{}", "n".repeat(200)), &pattern(n, 0, 3000), c)?;
    }
    volume.sync()?;
    volume.symlink([b't'; 200], "a/link", c)?;
    let file = volume.open_file(format!("a/1-{}", "n".repeat(200)))?;
    file.write_all_at(100, b"over")?;
    file.set_len(1500)?;
    volume.set_xattr(file.inode(), "user.large", &[1; 700], XattrHow::Either)?;
    volume.rename_path(format!("a/2-{}", "n".repeat(200)), "a/b/moved", RenameMode::Replace)?;
    volume.sync()?;
    volume.make("pipe", NewNode::Fifo, c)?;
    volume.remove_dir_all("a")?;
    volume.close()
}

fn small() -> Result<Vec<u8>, hectare_oracle::Skip> {
    format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-g", "1024"], "4M")
}

#[test]
fn each_operation_failing_in_turn_is_an_error_and_no_more() {
    let bytes = match small() {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::each_operation_failing", reason),
    };
    let k = each_operation_failing(&bytes, OpenOptions::default, workload, |_, _| ());
    assert!(k > 50, "only {k} operations");
}

#[test]
fn everything_failing_from_some_point_on_is_an_error_and_no_more() {
    let bytes = match small() {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::everything_failing", reason),
    };
    for k in 0.. {
        let (device, _) = device(&bytes);
        device.add(Rule::new(Outcome::IO).after(k));
        let result = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default())
            .and_then(|volume| workload(&volume));
        if device.strikes() == 0 {
            break;
        }
        assert!(matches!(result, Err(Error::Device(_) | Error::Aborted(_))), "operation {k}: {result:?}");
    }
}

#[test]
fn after_a_failed_commit_nothing_more_is_written() {
    let bytes = match small() {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::after_a_failed_commit", reason),
    };
    for failing in [Operation::Write, Operation::Flush] {
        let (device, memory) = device(&bytes);
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, at_once()).unwrap();
        let file = volume.create_file("file", Creation::default()).unwrap();
        file.write_all_at(0, &[1; 5000]).unwrap();
        device.add(Rule::new(Outcome::IO).on(&[failing]).times(1));
        let first = volume.sync().unwrap_err();
        assert!(matches!(&first, Error::Aborted(text) if text.contains("memory device")), "{first}");
        let before = memory.to_vec();
        let c = Creation::default();
        assert!(matches!(file.write_at(0, &[2; 100]), Err(Error::Aborted(_))));
        assert!(matches!(file.write_at(9000, &[2; 100]), Err(Error::Aborted(_))));
        assert!(matches!(file.set_len(3), Err(Error::Aborted(_))));
        assert!(matches!(volume.make("new", NewNode::File, c), Err(Error::Aborted(_))));
        assert!(matches!(volume.remove_file("file"), Err(Error::Aborted(_))));
        assert!(matches!(volume.sync(), Err(Error::Aborted(_))));
        assert!(matches!(volume.close(), Err(Error::Aborted(_))));
        // What was there is still read.
        let mut read = [0; 5000];
        assert_eq!(file.read_at(0, &mut read).unwrap(), 5000);
        drop(file);
        drop(volume);
        assert!(memory.to_vec() == before, "bytes changed after the failure");
        let again = Volume::open(Arc::clone(&memory) as Arc<dyn Device>, OpenOptions::default());
        assert!(matches!(again, Err(Error::NeedsRepair(text)) if text.contains("marked as having errors")));
    }
}

#[test]
fn file_data_that_cannot_be_written_leaves_a_volume_that_is_right() {
    let bytes = match small() {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::file_data", reason),
    };
    let (device, memory) = device(&bytes);
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, at_once()).unwrap();
    let file = volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &[1; 5000]).unwrap();
    device.add(Rule::new(Outcome::NO_SPACE).on(&[Operation::Write]));
    let error = file.write_at(5000, &[2; 9000]).unwrap_err();
    assert!(matches!(&error, Error::Device(error) if error.is_no_space()), "{error}");
    assert_eq!(error.errno(), 28);
    device.clear();
    assert_eq!(file.metadata().unwrap().size, 5000);
    file.write_all_at(5000, &[3; 9000]).unwrap();
    drop(file);
    volume.close().unwrap();
    assert_clean_bytes(&memory.to_vec());
}

/// What e2fsck had to repair, besides replaying the journal and cleaning up orphans.
fn mended(bytes: &[u8]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    crate::common::save(bytes, &image);
    let report = hectare_oracle::fsck::e2fsck_with(&image, &["-fy"]).unwrap();
    hectare_oracle::assert_clean(&image).unwrap();
    report.questions
}

#[test]
fn with_a_journal_every_failure_leaves_an_image_that_recovers() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::with_a_journal", reason),
    };
    let options = unhurried();
    let mut latched = 0;
    for k in 0.. {
        let (device, memory) = device(&bytes);
        device.add(Rule::new(Outcome::IO).after(k).times(1));
        let opened = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options.clone());
        let result = opened.and_then(|volume| {
            let result = workload(&volume);
            if matches!(result, Err(Error::Aborted(_))) {
                // It takes no changes any more, whatever the device does.
                let again = volume.make("again", NewNode::Fifo, Creation::default());
                // If closing failed, it is closed.
                assert!(matches!(again, Err(Error::Aborted(_) | Error::Closed)), "operation {k}: {again:?}");
                latched += 1;
            }
            result
        });
        if device.strikes() == 0 {
            result.unwrap();
            assert_clean_bytes(&memory.to_vec());
            break;
        }
        if let Err(error) = &result {
            let known = is_io(error) || matches!(error, Error::Aborted(_));
            assert!(known, "operation {k}: {error}");
        }
        let questions = mended(&memory.to_vec());
        assert!(questions.is_empty(), "operation {k} ({result:?}): {questions:?}");
    }
    assert!(latched > 10, "only {latched} failures latched");
}

/// Panics at each request of the device in turn, with caches that keep nothing, so that many come while a
/// handle is open. Other threads keep using the volume, and close it.
#[test]
fn regression_a_panic_leaves_no_half_change_to_commit() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::a_panic_leaves_no_half_change", reason),
    };
    let options = OpenOptions { cache_bytes: 0, cache_inodes: 0, ..unhurried() };
    let (mut latched, mut halves, mut struck) = (0, 0, 0);
    for k in 0.. {
        let (device, memory) = device(&bytes);
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options.clone()).unwrap();
        device.add(Rule::panic().after(k).times(1));
        let worked = catch_unwind(AssertUnwindSafe(|| workload(&volume)));
        if device.strikes() == 0 {
            worked.unwrap().unwrap();
            break;
        }
        struck += 1;
        assert!(worked.is_err(), "request {k}: {worked:?}");
        let again = volume.make("again", NewNode::Fifo, Creation::default());
        if matches!(again, Err(Error::Aborted(_))) {
            latched += 1;
            let error = again.unwrap_err();
            assert_eq!(error.errno(), 5);
            halves += usize::from(error.to_string().contains("half done"));
            volume.read_dir("/").unwrap();
            volume.sync().unwrap_err();
        }
        let _ = volume.close();
        drop(volume);
        let questions = mended(&memory.to_vec());
        assert!(questions.is_empty(), "request {k}: {questions:?}");
    }
    assert!(struck > latched && latched > halves && halves > 3, "{struck} panics, {latched}, {halves}");
}

/// Buffered bytes are lost with a panic of the thread that places them, so a sync must not report that they
/// are safe; and the volume's own thread must not end unnoticed.
#[test]
fn regression_a_panic_that_loses_gathered_bytes_is_told_by_the_next_sync() {
    let bytes = match small() {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::a_panic_that_loses_gathered_bytes", reason),
    };
    for by_itself in [false, true] {
        let (device, memory) = device(&bytes);
        let interval = by_itself.then_some(Duration::from_millis(20));
        let options = OpenOptions { commit_interval: interval, ..unhurried() };
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
        volume.write_file("before", b"before", Creation::default()).unwrap();
        volume.sync().unwrap();
        let file = volume.create_file("file", Creation::default()).unwrap();
        device.add(Rule::panic().on(&[Operation::Write]).times(1));
        file.write_all_at(0, b"gathers").unwrap();
        if by_itself {
            let begun = Instant::now();
            while device.strikes() == 0 && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(50));
        } else {
            catch_unwind(AssertUnwindSafe(|| file.sync())).unwrap_err();
        }
        assert!(matches!(file.sync(), Err(Error::Aborted(_))), "by itself: {by_itself}");
        assert!(matches!(volume.sync(), Err(Error::Aborted(_))), "by itself: {by_itself}");
        drop((file, volume));
        let read = Volume::open(memory as Arc<dyn Device>, OpenOptions::read_only()).unwrap();
        assert_eq!(read.read("before").unwrap(), b"before");
    }
}

#[test]
fn a_failure_is_recorded_in_the_superblock() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("faults::a_failure_is_recorded", reason),
    };
    let (device, memory) = device(&bytes);
    let options = unhurried();
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    volume.write_file("kept", b"kept", Creation::default()).unwrap();
    volume.sync().unwrap();
    volume.write_file("lost", b"lost", Creation::default()).unwrap();
    device.add(Rule::new(Outcome::IO).on(&[Operation::Write]).times(1));
    volume.sync().unwrap_err();
    drop(volume);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    crate::common::save(&memory.to_vec(), &image);
    let dump = hectare_oracle::dumpe2fs(&image).unwrap();
    assert_eq!(dump.field("FS Error count"), "1");
    assert!(dump.field("Filesystem state").contains("with errors"), "{}", dump.field("Filesystem state"));
    let read = Volume::open(memory as Arc<dyn Device>, OpenOptions::read_only()).unwrap();
    assert_eq!(read.read("kept").unwrap(), b"kept");
    assert!(matches!(read.read("lost"), Err(Error::NotFound)));
}
