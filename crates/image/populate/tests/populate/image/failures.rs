//! Failures: one clear line, no panic, and nothing under the final name.

use crate::image::common::*;
use hectare_device::{FaultDevice, FileOptions, MemoryDevice, Operation, Outcome, Overwrite, Rule};
use hectare_oracle::trees::Random;
use hectare_oracle::{KernelMount, is_root, skip};
use hectare_populate::{Image, ImageError, Progress, Quiet, Size, Tree};
use hectare_units::Bytes;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A directory with small files, and large ones that are copied by themselves.
fn sample(folder: &Path) {
    let mut random = Random::new("failures");
    for n in 0..40 {
        let dir = folder.join(format!("dir{}", n % 4));
        fs::create_dir_all(&dir).unwrap();
        let len = if n < 4 { 2 << 20 } else { 3000 + n };
        fs::write(dir.join(format!("file{n:02}")), random.bytes(len)).unwrap();
    }
}

fn write_to_memory(tree: &Tree) -> Result<(), ImageError> {
    let image = Image::plan(tree, &options(""), Size::Min, true)?;
    image.write(&MemoryDevice::new(image.size()), threads(3), &Quiet)
}

#[track_caller]
fn one_line(error: &ImageError, parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n') && parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_file_that_changes_after_the_scan_is_named() {
    type Change = fn(&Path);
    let changes: [(Change, &str); 8] = [
        (
            |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(10).unwrap(),
            "became shorter",
        ),
        (|path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4 << 20).unwrap(), "grew"),
        (|path| fs::remove_file(path).unwrap(), "vanished"),
        (
            |path| {
                fs::copy(path, path.with_extension("new")).unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            },
            "was replaced",
        ),
        (
            |path| {
                fs::remove_file(path).unwrap();
                symlink("/etc/passwd", path).unwrap();
            },
            "was replaced",
        ),
        (
            |path| {
                fs::remove_file(path).unwrap();
                let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
                assert!(status.success());
            },
            "was replaced",
        ),
        (
            |path| {
                fs::remove_file(path).unwrap();
                mknodat(CWD, path, FileType::Socket, Mode::RUSR, 0).unwrap();
            },
            "was replaced",
        ),
        (
            |path| {
                let content = fs::read(path).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                fs::write(path, content).unwrap();
            },
            "was modified",
        ),
    ];
    for name in ["dir1/file01", "dir3/file39"] {
        for (change, what) in changes {
            let folder = tempfile::tempdir().unwrap();
            sample(folder.path());
            let tree = tree(folder.path());
            write_to_memory(&tree).unwrap();
            change(&folder.path().join(name));
            let error = write_to_memory(&tree).unwrap_err();
            one_line(&error, &[name, what, "while it was being read"]);
        }
    }
}

#[test]
fn a_directory_that_vanishes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let tree = tree(folder.path());
    fs::remove_dir_all(folder.path().join("dir2")).unwrap();
    one_line(&write_to_memory(&tree).unwrap_err(), &["dir2/file", "vanished"]);
}

#[test]
fn every_failing_write_stops_the_build_once_and_leaves_no_volume() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let tree = tree(folder.path());
    for zeroed in [true, false] {
        let image = Image::plan(&tree, &options(""), Size::Min, zeroed).unwrap();
        let operations = [Operation::Write, Operation::Copy, Operation::Zero, Operation::Flush];
        for k in 0.. {
            let device = FaultDevice::new(MemoryDevice::new(image.size()));
            device.add(Rule::new(Outcome::NO_SPACE).on(&operations).after(k));
            let result = image.write(&device, threads(3), &Quiet);
            if device.strikes() == 0 {
                result.unwrap();
                assert!(k > 8, "{k} operations were too few to mean anything");
                break;
            }
            let error = result.unwrap_err();
            one_line(&error, &["cannot", "No space left on device"]);
            assert!(matches!(&error, ImageError::Device(_) | ImageError::Format(_)), "{error:?}");
            // Only the flush behind the superblock may fail with a superblock there.
            let magic = &device.inner().to_vec()[1024 + 56..1024 + 58];
            assert!(
                magic == [0, 0] || error.to_string().contains("cannot flush"),
                "there is a volume: {error}"
            );
        }
    }
}

#[test]
fn a_device_that_can_not_take_the_image_says_so() {
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let tree = tree(folder.path());
    let image = Image::plan(&tree, &options(""), Size::Min, true).unwrap();
    let short = MemoryDevice::new(image.size() - Bytes::kib(4));
    one_line(&image.write(&short, threads(2), &Quiet).unwrap_err(), &["beyond its end"]);
    let path = folder.path().join("read-only.img");
    fs::File::create(&path).unwrap().set_len(image.size().get()).unwrap();
    let device = FileOptions::new().open(&path).unwrap();
    one_line(&image.write(&device, threads(2), &Quiet).unwrap_err(), &["read-only.img", "for reading only"]);
}

#[test]
fn a_build_that_fails_leaves_nothing_under_the_final_name() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::create_dir_all(&target).unwrap();
    fs::create_dir_all(&source).unwrap();
    sample(&source);
    let tree = tree(&source);
    fs::remove_file(source.join("dir3/file39")).unwrap();
    build(&tree, &options(""), Size::Min, &target.join("disk.img")).unwrap_err();
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    fs::write(target.join("disk.img"), "precious").unwrap();
    build(&tree, &options(""), Size::Min, &target.join("disk.img")).unwrap_err();
    assert_eq!(fs::read(target.join("disk.img")).unwrap(), b"precious");
}

#[test]
fn a_full_host_file_system_is_one_clear_error() {
    const TEST: &str = "image::failures::a_full_host_file_system";
    let folder = tempfile::tempdir().unwrap();
    // A small volume of our own plays the host.
    let host = folder.path().join("host");
    fs::create_dir(folder.path().join("empty")).unwrap();
    build(&tree(&folder.path().join("empty")), &options("-m 0"), Size::Exactly(Bytes::mib(8)), &host)
        .unwrap();
    let mount = match KernelMount::new(&host, "") {
        Ok(mount) => mount,
        Err(reason) => skip!(TEST, reason),
    };
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    sample(&source);
    let image = Image::plan(&tree(&source), &options(""), Size::Min, true).map(|image| image.size()).unwrap();
    let target = mount.path().join("disk.img");
    let pending = FileOptions::new().write(true).create_pending(&target, image, Overwrite::Refuse);
    let error = match pending {
        Ok(pending) => {
            let tree = tree(&source);
            let image = Image::plan(&tree, &options(""), Size::Min, true).unwrap();
            let error = image.write(pending.device(), threads(2), &Quiet).unwrap_err();
            drop(pending);
            error
        }
        Err(error) => error.into(),
    };
    one_line(&error, &["disk.img", "No space left on device"]);
    assert!(!target.exists());
}

#[test]
fn an_unreadable_file_is_named() {
    if is_root() {
        skip!("image::failures::an_unreadable_file_is_named", "root can read everything");
    }
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let tree = tree(folder.path());
    let path = folder.path().join("dir1/file01");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    one_line(&write_to_memory(&tree).unwrap_err(), &["dir1/file01", "permission denied"]);
}

#[test]
fn progress_that_panics_does_not_hang() {
    struct Panics;
    impl Progress for Panics {
        fn advance(&self, _: Bytes) {
            panic!("on purpose");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    sample(folder.path());
    let tree = tree(folder.path());
    let image = Image::plan(&tree, &options(""), Size::Min, true).unwrap();
    let device = MemoryDevice::new(image.size());
    let write = || image.write(&device, threads(3), &Panics);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err());
}
