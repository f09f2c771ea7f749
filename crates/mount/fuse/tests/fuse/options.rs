//! The promises of mount options: how long a change waits, which reads update the access time, which file
//! data the journal has.

use crate::support::{MIB, Mount, mounted};
use hectare_device::{FileOptions, Operation};
use hectare_engine::{OpenOptions, Volume};
use hectare_fuse::Operation as Request;
use hectare_oracle::skip;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, utimensat};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The volume as it would be after a crash now.
fn durable(mount: &Mount) -> Volume {
    let copy = mount.outside("copy");
    fs::copy(&mount.image, &copy).unwrap();
    let device = FileOptions::new().open(&copy).unwrap();
    Volume::open(Arc::new(device), OpenOptions::read_only()).unwrap()
}

fn is_durable(mount: &Mount, name: &str) -> bool {
    durable(mount).metadata(name).is_ok()
}

/// The kernel's FUSE leaves it to the server, except for the content of files.
#[test]
fn what_is_to_be_written_through_is_durable_at_once() {
    const NAME: &str = "options::what_is_to_be_written_through_is_durable_at_once";
    for (option, names, all) in [("async", false, false), ("dirsync", true, false), ("sync", true, true)] {
        let mount = mounted!(NAME, 32 * MIB, &format!("commit=600,{option}"));
        fs::create_dir(mount.path("d")).unwrap();
        assert_eq!(is_durable(&mount, "d"), names, "{option}");
        fs::write(mount.path("d/f"), "kept").unwrap();
        fs::set_permissions(mount.path("d/f"), fs::Permissions::from_mode(0o601)).unwrap();
        let left = durable(&mount);
        assert_eq!(left.read("d/f").is_ok_and(|text| text == b"kept"), all, "{option}");
        assert_eq!(left.metadata("d/f").is_ok_and(|found| found.permissions == 0o601), all, "{option}");
        mount.judge(NAME);
    }
}

#[test]
fn a_change_waits_as_long_as_commit_says() {
    const NAME: &str = "options::a_change_waits_as_long_as_commit_says";
    let soon = mounted!(NAME, 32 * MIB, "commit=1");
    let late = mounted!(NAME, 32 * MIB, "commit=600");
    for mount in [&soon, &late] {
        fs::create_dir(mount.path("d")).unwrap();
    }
    let started = Instant::now();
    while !is_durable(&soon, "d") {
        assert!(started.elapsed() < Duration::from_secs(120), "it takes too long");
        sleep(Duration::from_millis(100));
    }
    // Longer than the default interval.
    sleep(Duration::from_millis(5500).saturating_sub(started.elapsed()));
    assert!(!is_durable(&late, "d"), "it may wait ten minutes");
    fs::File::open(&late.dir).unwrap().sync_all().unwrap();
    assert!(is_durable(&late, "d"), "unless a process syncs");
    soon.judge(NAME);
    late.judge(NAME);
}

/// While a thread of the server waits for the mount, the server can't be killed.
#[test]
fn regression_whoever_serves_a_mount_asks_it_for_nothing() {
    const NAME: &str = "options::regression_whoever_serves_a_mount_asks_it_for_nothing";
    let mount = mounted!(NAME, 32 * MIB, "");
    assert_eq!(mount.all_requests(), 0);
    mount.judge(NAME);
}

/// A file's access time, after it was read from a mount without cached data.
fn accessed(mount: &mut Mount, options: &str) -> (i64, i64) {
    mount.detach();
    mount.attach(options);
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"text");
    let found = fs::metadata(mount.path("f")).unwrap();
    (found.atime(), found.atime_nsec())
}

#[test]
fn reads_leave_times_of_access_as_the_mount_wants_them() {
    const NAME: &str = "options::reads_leave_times_of_access_as_the_mount_wants_them";
    let mut mount = mounted!(NAME, 32 * MIB, "");
    fs::write(mount.path("f"), "text").unwrap();
    let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    utimensat(CWD, mount.path("f"), &times, AtFlags::empty()).unwrap();
    let old = (old.tv_sec, old.tv_nsec);
    assert_eq!(accessed(&mut mount, "noatime"), old);
    assert_eq!(accessed(&mut mount, "noatime,lazytime"), old);
    assert_eq!(accessed(&mut mount, "ro"), old);
    let first = accessed(&mut mount, "relatime,lazytime");
    assert!(first > old, "the first since a change");
    sleep(Duration::from_millis(20));
    assert_eq!(accessed(&mut mount, "relatime"), first, "and no other for a day");
    assert!(accessed(&mut mount, "strictatime,lazytime") > first, "but here every one");
    mount.judge(NAME);
}

#[test]
fn the_journal_has_file_data_only_where_that_is_asked() {
    const NAME: &str = "options::the_journal_has_file_data_only_where_that_is_asked";
    const SIZE: usize = 4 << 20;
    for (options, copies) in [("data=ordered", 1), ("data=writeback", 1), ("data=journal", 2)] {
        let mut mount = mounted!(NAME, 128 * MIB, options);
        let file = fs::File::create_new(mount.path("f")).unwrap();
        let device = mount.device();
        let before = device.snapshot();
        file.write_all_at(&vec![5; SIZE], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        mount.detach();
        let written = device.snapshot().since(&before).of(Operation::Write).bytes.get();
        let least = SIZE as u64 * copies;
        assert!((least..least + 2 * MIB).contains(&written), "{options}: {written} bytes");
        drop(device);
        mount.attach("ro");
        assert!(fs::read(mount.path("f")).unwrap() == vec![5; SIZE], "{options}");
        mount.judge(NAME);
    }
}

#[test]
fn the_kernel_sends_what_the_options_grant() {
    const NAME: &str = "options::the_kernel_sends_what_the_options_grant";
    const FILES: u64 = 200;
    let mut mount = mounted!(NAME, 64 * MIB, "");
    fs::create_dir(mount.path("d")).unwrap();
    for n in 0..FILES {
        fs::write(mount.path("d").join(n.to_string()), "text").unwrap();
    }
    fs::write(mount.path("large"), vec![1; 4 << 20]).unwrap();
    let used = |mount: &mut Mount, options: &str| {
        mount.detach();
        mount.attach(options);
        let listed = fs::read_dir(mount.path("d")).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        assert_eq!(u64::try_from(listed.count()).unwrap(), FILES);
        let looked_up = mount.requests(Request::Lookup);
        let one = mount.path("d").join("1");
        let look = || (0..50).for_each(|_| assert!(fs::metadata(&one).unwrap().is_file()));
        look();
        let again = mount.requests(Request::Lookup) + mount.requests(Request::Getattr);
        look();
        let again = mount.requests(Request::Lookup) + mount.requests(Request::Getattr) - again;
        assert_eq!(fs::read(mount.path("large")).unwrap(), vec![1; 4 << 20]);
        let read = mount.requests(Request::Read);
        fs::write(mount.path("written"), vec![2; 4 << 20]).unwrap();
        fs::File::open(mount.path("written")).unwrap().sync_all().unwrap();
        (looked_up, again, read, mount.requests(Request::Write))
    };
    let (looked_up, again, read, written) = used(&mut mount, "");
    assert!(looked_up < FILES / 2, "they were listed with attributes: {looked_up} lookups");
    assert_eq!(again, 0, "what the kernel knows it keeps");
    // It may begin to write before it has all.
    assert!(read <= 32 && written <= 32, "4 MiB in {read} reads and {written} writes");
    let (looked_up, ..) = used(&mut mount, "noreaddirplus");
    assert!(looked_up >= FILES, "{looked_up} lookups of {FILES} names");
    let (_, again, ..) = used(&mut mount, "actimeo=0");
    assert!(again >= 50, "{again} questions for 50 looks");
    let missing = |mount: &Mount| {
        let before = mount.requests(Request::Lookup);
        (0..50).for_each(|_| assert!(fs::metadata(mount.path("missing")).is_err()));
        mount.requests(Request::Lookup) - before
    };
    for (options, most, opened) in [("", 1, 0), ("opendir,negative_timeout=0", 50, 1)] {
        let (_, again, ..) = used(&mut mount, options);
        assert_eq!((again, mount.requests(Request::Opendir)), (0, opened), "{options}");
        assert_eq!(missing(&mount), most, "{options}");
    }
    let (_, _, read, written) = used(&mut mount, "max_write=65536");
    assert!(read >= 64 && written >= 64, "4 MiB in {read} reads and {written} writes");
    let (_, _, read, written) = used(&mut mount, "max_read=65536");
    assert!(read >= 64 && written <= 32, "4 MiB in {read} reads and {written} writes");
    let (_, _, read, _) = used(&mut mount, "max_readahead=65536");
    assert!(read >= 16, "4 MiB in {read} reads");
    mount.judge(NAME);
}

#[test]
fn regression_long_attributes_did_not_fit_where_writes_are_short() {
    const NAME: &str = "options::regression_long_attributes_did_not_fit_where_writes_are_short";
    let format = &["-t", "ext4", "-O", "ea_inode"];
    let mount = match Mount::by_mke2fs(format, "64M", "max_write=4096") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    let path = mount.path("f");
    fs::write(&path, "text").unwrap();
    for (name, len) in [("user.short", 4096), ("user.longest", 65_536)] {
        let value = vec![7; len];
        rustix::fs::setxattr(&path, name, &value, XattrFlags::CREATE).unwrap();
        let mut read = vec![0; len];
        assert_eq!(rustix::fs::getxattr(&path, name, &mut read), Ok(len));
        assert!(read == value, "{name}");
    }
    mount.judge(NAME);
}
