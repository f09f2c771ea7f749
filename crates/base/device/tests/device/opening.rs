//! Opening, creating and publishing: what is allowed, what is refused with which error, and what is left
//! behind.

use hectare_device::{Device, Error, FileDevice, FileOptions, Overwrite, Reason};
use hectare_oracle::loops::{Access, LoopDevice};
use hectare_units::Bytes;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LEN: Bytes = Bytes::mib(1);
/// Elsewhere holders of locks are not named, and who can read a file can lock it.
const IS_LINUX: bool = cfg!(all(target_os = "linux", not(hectare_portable)));

fn open(path: impl AsRef<Path>) -> Result<FileDevice, Error> {
    FileOptions::new().open(path)
}

fn open_to_write(path: impl AsRef<Path>) -> Result<FileDevice, Error> {
    FileOptions::new().write(true).open(path)
}

fn names_in(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// `Result::unwrap_err` for devices, which cannot be printed.
fn error_of<T>(result: Result<T, Error>) -> Error {
    result.err().expect("this must fail")
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(4096).unwrap();
    let readers = [open(&path).unwrap(), open(&path).unwrap()];
    let error = error_of(open_to_write(&path));
    assert!(error.is_busy());
    // Elsewhere the holder is not found out.
    let expected = if IS_LINUX {
        "this program itself is using it; close all handles"
    } else {
        "another program is using it"
    };
    assert!(error.to_string().contains(expected), "{error}");
    drop(readers);
    let writer = open_to_write(&path).unwrap();
    assert!(error_of(open(&path)).is_busy());
    let replaced = FileOptions::new().create(&path, LEN, Overwrite::Replace);
    assert!(error_of(replaced).is_busy());
    assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
    FileOptions::new().exclusive(false).open(&path).unwrap();
    drop(writer);
    open(&path).unwrap();
}

/// The variable that names the image which a child of a test is to hold until its input ends.
const HELD: &str = "HECTARE_TEST_HELD";

#[test]
fn another_process_with_the_lock_is_named() {
    const NAME: &str = "opening::another_process_with_the_lock_is_named";
    if !IS_LINUX {
        return;
    }
    if let Some(path) = std::env::var_os(HELD) {
        let _held = open_to_write(path).unwrap();
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", NAME]).env(HELD, &path).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = child.spawn().unwrap();
    // Until it has the lock; and a child of another test may have a copy of ours for a moment.
    let began = Instant::now();
    let is_named = || {
        let refused = open_to_write(&path).err();
        refused.is_some_and(|error| error.to_string().contains(&format!("process {} (", child.id())))
    };
    while !is_named() {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", open_to_write(&path).err());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn regression_who_can_only_read_an_image_locks_nobody_out() {
    if !IS_LINUX {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(4096).unwrap();
    // As flock(1) does it.
    let reader = File::open(&path).unwrap();
    reader.lock().unwrap();
    drop(open_to_write(&path).unwrap());
    let readers = [open(&path).unwrap(), open(&path).unwrap()];
    drop(readers);
    reader.unlock().unwrap();
    reader.lock_shared().unwrap();
    drop(open_to_write(&path).unwrap());
}

#[test]
fn a_released_claim_lets_others_in_and_a_copy_keeps_them_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(4096).unwrap();
    let device = open_to_write(&path).unwrap();
    let claim = device.claim().unwrap();
    drop(device);
    assert!(error_of(open(&path)).is_busy(), "the lock is the open file's, not the descriptor's");
    // Nor does it go with another descriptor of the file that is closed.
    drop(File::open(&path).unwrap());
    assert!(error_of(open_to_write(&path)).is_busy());
    claim.release();
    open_to_write(&path).unwrap();
}

#[test]
fn a_read_only_device_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    fs::write(&path, b"content").unwrap();
    let device = open(&path).unwrap();
    assert!(device.is_read_only() && !device.is_zeroed());
    let source = File::open(&path).unwrap();
    let (at, len) = (Bytes::ZERO, Bytes::new(3));
    let refused = [
        device.write_at(at, b"abc").unwrap_err(),
        device.write_all_at(at, &[std::io::IoSlice::new(b"abc")]).unwrap_err(),
        device.zero(at, len).unwrap_err(),
        device.discard(at, len).unwrap_err(),
        device.copy_from(at, AsFd::as_fd(&source), at, len).unwrap_err(),
        device.resize(len).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| *error.reason() == Reason::ReadOnly), "{refused:?}");
    device.flush().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

#[test]
fn what_is_no_device_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for (path, what) in [
        (dir.path(), "it is a directory"),
        (&fifo, "it is a pipe"),
        (Path::new("/dev/null"), "it is a character device"),
        (&dir.path().join("missing"), "No such file or directory"),
    ] {
        let text = error_of(open(path)).to_string();
        assert_eq!(text, format!("{}: cannot open: {what}", path.display()));
    }
    let error = error_of(FileOptions::new().create(dir.path(), LEN, Overwrite::Replace));
    assert_eq!(error.to_string(), format!("{}: cannot create: it is a directory", dir.path().display()));
}

#[test]
fn a_length_that_the_host_refuses_leaves_things_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    fs::write(&old, "content").unwrap();
    for path in [&new, &old] {
        let len = Bytes::new(1 << 63);
        let error = error_of(FileOptions::new().create(path, len, Overwrite::Replace));
        assert_eq!(error.reason(), &Reason::TooLarge(len));
        assert!(error.to_string().contains("takes no file of 9223372036854775808 bytes"), "{error}");
    }
    assert!(!new.exists());
    assert_eq!(fs::read(&old).unwrap(), b"content");
    let direct = FileOptions::new().direct(true);
    let error = error_of(direct.create(&old, Bytes::new(5), Overwrite::Replace));
    if matches!(error.reason(), Reason::Unsupported(_)) {
        eprintln!("skipped: a_length_that_the_host_refuses, direct I/O: {error}");
        return;
    }
    assert!(matches!(error.reason(), Reason::Unaligned(_)), "{error}");
    assert_eq!(fs::read(&old).unwrap(), b"content");
    // An old length that direct I/O could not have does not matter.
    assert_eq!(direct.create(&old, Bytes::new(8192), Overwrite::Replace).unwrap().len(), Bytes::new(8192));
}

#[test]
fn a_created_file_is_sparse_and_replaces_only_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let device = FileOptions::new().create(&path, Bytes::gib(3), Overwrite::Refuse).unwrap();
    assert!(device.is_zeroed() && !device.is_read_only());
    device.write_at(Bytes::gib(2), b"data").unwrap();
    device.flush().unwrap();
    drop(device);
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 3 << 30);
    assert!(meta.blocks() * 512 < 1 << 20);
    let error = error_of(FileOptions::new().create(&path, LEN, Overwrite::Refuse));
    assert_eq!(*error.reason(), Reason::Exists);
    let device = FileOptions::new().create(&path, Bytes::gib(3), Overwrite::Replace).unwrap();
    let mut buf = [1; 4];
    device.read_at(Bytes::gib(2), &mut buf).unwrap();
    assert_eq!(buf, [0; 4]);
}

#[test]
fn a_length_the_host_cannot_hold_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let error = error_of(FileOptions::new().create(&path, Bytes::new(u64::MAX), Overwrite::Refuse));
    assert_eq!(error.device(), path.to_str().unwrap());
    error_of(FileOptions::new().create_pending(&path, Bytes::new(u64::MAX), Overwrite::Refuse));
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn direct_io_refuses_a_length_it_could_not_write_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(4096 + 100).unwrap();
    match error_of(FileOptions::new().direct(true).open(&path)).reason() {
        Reason::Unaligned(unit) => assert!(*unit >= 512),
        Reason::Unsupported(_) => eprintln!("skipped: no direct I/O in {}", dir.path().display()),
        other => panic!("{other}"),
    }
}

#[test]
fn a_pending_file_appears_when_published_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let options = FileOptions::new();
    drop(options.create_pending(&path, LEN, Overwrite::Refuse).unwrap());
    let pending = options.create_pending(&path, LEN, Overwrite::Refuse).unwrap();
    pending.device().write_at(Bytes::ZERO, b"built").unwrap();
    assert!(!path.exists());
    let device = pending.publish().unwrap();
    device.flush().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[..5], b"built");
    assert!(error_of(open(&path)).is_busy(), "it stays locked under its name");
    drop(device);
    assert_eq!(names_in(dir.path()), ["disk.img"]);
}

#[test]
fn publishing_replaces_only_when_told_even_at_the_last_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let options = FileOptions::new();
    let pending = options.create_pending(&path, LEN, Overwrite::Refuse).unwrap();
    fs::write(&path, b"somebody else's").unwrap();
    assert_eq!(*error_of(pending.publish()).reason(), Reason::Exists);
    assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
    assert_eq!(*error_of(options.create_pending(&path, LEN, Overwrite::Refuse)).reason(), Reason::Exists);
    let link = dir.path().join("link.img");
    std::os::unix::fs::symlink("disk.img", &link).unwrap();
    let pending = options.create_pending(&link, LEN, Overwrite::Replace).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
    pending.publish().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN.get());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names_in(dir.path()).len(), 2);
}

#[test]
fn a_nameless_file_is_its_owners_alone_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileOptions::new().write(true).create_nameless(dir.path(), LEN).unwrap();
    device.write_at(Bytes::ZERO, b"secret").unwrap();
    let file = device.claim().unwrap().as_fd().try_clone_to_owned().map(File::from).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(device.is_zeroed() && names_in(dir.path()).is_empty());
}

/// What is written to a file that has no name any more is lost.
#[test]
fn regression_a_file_that_is_being_written_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    fs::write(&path, b"in use").unwrap();
    let replace = || FileOptions::new().create_pending(&path, LEN, Overwrite::Replace);
    let reader = open(&path).unwrap();
    drop(replace().unwrap());
    drop(reader);
    let writer = open_to_write(&path).unwrap();
    assert!(error_of(replace()).is_busy());
    drop(writer);
    let pending = replace().unwrap();
    assert!(error_of(open_to_write(&path)).is_busy(), "it is about to be replaced");
    open(&path).unwrap();
    drop(pending.publish().unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN.get());
    open_to_write(&path).unwrap();
}

#[test]
fn regression_a_writer_that_waited_gets_the_file_that_has_the_name_now() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    fs::write(&path, b"old").unwrap();
    let pending = FileOptions::new().create_pending(&path, LEN, Overwrite::Replace).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| open_to_write(&path).unwrap().write_at(Bytes::ZERO, b"new").unwrap());
        std::thread::sleep(Duration::from_millis(100));
        drop(pending.publish().unwrap());
        waiting.join().unwrap();
    });
    assert_eq!(fs::read(&path).unwrap()[..3], *b"new");
}

#[test]
fn regression_what_took_the_name_meanwhile_is_not_replaced_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let pending = FileOptions::new().create_pending(&path, LEN, Overwrite::Replace).unwrap();
    let newcomer = FileOptions::new().create(&path, Bytes::new(100), Overwrite::Refuse).unwrap();
    assert!(error_of(pending.publish()).is_busy());
    newcomer.write_at(Bytes::ZERO, b"kept").unwrap();
    assert_eq!(fs::read(&path).unwrap()[..4], *b"kept");
    assert_eq!(names_in(dir.path()), ["disk.img"]);
}

/// With an ACL the bits of the group bound what it allows.
#[test]
fn regression_a_file_keeps_its_acl_when_it_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    fs::write(&path, b"secret").unwrap();
    // Version 2; owner rw, user 71000 rw, group none, mask rw, others none (linux/posix_acl_xattr.h).
    let entries =
        [(1_u16, 6_u16, u32::MAX), (2, 6, 71_000), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        acl.extend([&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    let name = "system.posix_acl_access";
    if !IS_LINUX || rustix::fs::setxattr(&path, name, &acl, rustix::fs::XattrFlags::empty()).is_err() {
        eprintln!("skipped: regression_a_file_keeps_its_acl_when_it_is_replaced: no ACLs here");
        return;
    }
    drop(FileOptions::new().create_pending(&path, LEN, Overwrite::Replace).unwrap().publish().unwrap());
    let mut kept = vec![0; 200];
    let len = rustix::fs::getxattr(&path, name, &mut kept).unwrap();
    assert_eq!((&kept[..len], fs::metadata(&path).unwrap().mode() & 0o777), (&acl[..], 0o660));
}

#[test]
fn regression_a_private_file_is_private_when_it_was_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    fs::write(&path, b"secret").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let owner = if rustix::process::geteuid().is_root() { 7 } else { fs::metadata(&path).unwrap().uid() };
    std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
    let pending = FileOptions::new().create_pending(&path, LEN, Overwrite::Replace).unwrap();
    drop(pending.publish().unwrap());
    let made = fs::metadata(&path).unwrap();
    assert_eq!((made.len(), made.mode() & 0o7777, made.uid()), (LEN.get(), 0o600, owner));
}

#[test]
fn an_open_file_can_be_used_as_it_is() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(100).unwrap();
    let device = FileDevice::from_file(file, "from the caller").unwrap();
    device.write_at(Bytes::new(90), b"0123456789").unwrap();
    let error = device.write_at(Bytes::new(91), b"0123456789").unwrap_err();
    assert_eq!(
        error.to_string(),
        "from the caller: cannot write 10 bytes at byte 91: that is beyond its end, it has 100 bytes"
    );
}

#[test]
fn a_file_that_shrinks_behind_our_back_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(8192).unwrap();
    let device = open(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = device.read_at(Bytes::new(4096), &mut [0; 10]).unwrap_err();
    assert_eq!(*error.reason(), Reason::EndsEarly);
}

/// A mounted ext4 image, as the kernel's loop driver uses it; undone when dropped.
struct Mounted {
    device: LoopDevice,
    dir: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        File::create(&image).unwrap().set_len(4 << 20).unwrap();
        let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&image).status();
        let device = LoopDevice::new(&image, Access::ReadWrite).ok()?;
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        let mounted = Self { device, dir };
        let point = mounted.point();
        fs::create_dir(&point).unwrap();
        let status = Command::new("mount").arg(mounted.device.path()).arg(&point).status();
        status.is_ok_and(|status| status.success()).then_some(mounted)
    }

    fn point(&self) -> std::path::PathBuf {
        self.dir.path().join("mnt")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point()).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_mounted_volume_is_refused_by_device_and_by_image() {
    if !IS_LINUX {
        return;
    }
    let Some(mounted) = Mounted::new() else {
        eprintln!("skipped: a_mounted_volume_is_refused_by_device_and_by_image: needs root, mke2fs and loop");
        return;
    };
    let error = error_of(open_to_write(mounted.device.path()));
    assert!(error.is_busy());
    assert!(error.to_string().ends_with("it is mounted or in use; unmount it first"), "{error}");
    let image = mounted.dir.path().join("disk.img");
    let error = error_of(open_to_write(&image));
    assert!(error.is_busy());
    let expected = format!("losetup -d {}", mounted.device.path().display());
    assert!(error.to_string().ends_with(&expected), "{error}");
    assert!(error_of(FileOptions::new().create_pending(&image, LEN, Overwrite::Replace)).is_busy());
    open(&image).unwrap();
    assert!(Command::new("umount").arg(mounted.point()).status().unwrap().success());
    open_to_write(mounted.device.path()).unwrap();
    assert!(FileOptions::new().create(mounted.device.path(), LEN, Overwrite::Replace).is_err());
}
