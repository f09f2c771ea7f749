//! Mapped files: what is refused, what happens where memory ends, and that pages are written and read whole.

use hectare_device::{DaxDevice, Device, FileDevice, FileOptions, Overwrite, Reason};
use hectare_units::Bytes;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const WINDOW: u64 = 2 << 20;

fn create(dir: &Path, len: u64) -> FileDevice {
    FileOptions::new().create(dir.join("disk.img"), Bytes::new(len), Overwrite::Refuse).unwrap()
}

/// A directory in memory.
fn in_memory() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/dev/shm").ok();
    if dir.is_none() {
        eprintln!("skipped: /dev/shm: no directory there");
    }
    dir
}

fn stored(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("disk.img")).unwrap().blocks() * 512
}

fn read(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    device.read_at(Bytes::new(at), &mut buf).unwrap();
    buf
}

#[test]
fn files_elsewhere_are_refused_and_say_why() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let error = DaxDevice::new(create(dir.path(), 8192)).err().expect("a disk is no memory");
    assert!(matches!(error.reason(), Reason::Unsupported(_)));
    assert!(error.to_string().ends_with("memory-backed storage (tmpfs, or a file system mounted with dax)"));
    let open = |direct| FileOptions::new().write(true).direct(direct).open(dir.path().join("disk.img"));
    drop(DaxDevice::new_anywhere(open(false).unwrap()).unwrap());
    if let Ok(direct) = open(true) {
        assert!(DaxDevice::new_anywhere(direct).is_err());
    }
}

#[test]
fn the_lock_of_the_file_stays_for_as_long_as_it_is_mapped() {
    let Some(dir) = in_memory() else { return };
    let device = DaxDevice::new(create(dir.path(), 8192)).unwrap();
    let path = dir.path().join("disk.img");
    assert!(FileOptions::new().open(&path).err().expect("it is locked").is_busy());
    device.write_at(Bytes::new(10), b"mapped").unwrap();
    drop(device);
    let device = DaxDevice::new(FileOptions::new().open(&path).unwrap()).unwrap();
    assert!(device.is_read_only());
    assert_eq!(read(&device, 10, 6), b"mapped");
    assert_eq!(*device.write_at(Bytes::ZERO, b"x").unwrap_err().reason(), Reason::ReadOnly);
}

#[test]
fn what_is_little_written_stays_sparse_and_what_is_much_written_is_filled() {
    let Some(dir) = in_memory() else { return };
    let device = DaxDevice::new(create(dir.path(), 1 << 30)).unwrap();
    for n in 0..512 {
        device.write_at(Bytes::new(n * WINDOW + 100), b"little").unwrap();
        assert_eq!(read(&device, n * WINDOW + 100, 7), b"little\0");
        assert_eq!(read(&device, n * WINDOW + WINDOW / 2, 100), [0; 100]);
    }
    assert_eq!(stored(dir.path()), 512 * PAGE, "reading holes does not fill them either");
    for _ in 0..40 {
        device.write_at(Bytes::new(WINDOW + 5 * PAGE), b"much").unwrap();
    }
    assert_eq!(stored(dir.path()), 511 * PAGE + WINDOW);
    // What was taken out is a hole again, and is written and read as one.
    device.discard(Bytes::new(WINDOW), Bytes::new(WINDOW)).unwrap();
    device.zero(Bytes::new(7), Bytes::new(WINDOW - 7)).unwrap();
    assert_eq!(stored(dir.path()), 511 * PAGE);
    assert_eq!(read(&device, 0, 1 << 20), [0; 1 << 20]);
    assert_eq!(read(&device, WINDOW + 5 * PAGE, 4), [0; 4]);
    device.write_at(Bytes::new(WINDOW + 5 * PAGE), b"again").unwrap();
    assert_eq!(read(&device, WINDOW + 5 * PAGE, 5), b"again");
    assert_eq!(stored(dir.path()), 512 * PAGE);
}

#[test]
fn an_old_file_with_holes_anywhere_reads_the_same_and_gains_nothing_by_it() {
    const LEN: usize = 11 << 20;
    let Some(dir) = in_memory() else { return };
    let file = create(dir.path(), LEN as u64);
    let mut expected = vec![0; LEN];
    for (at, len) in [(0, 2 << 20), (3 << 20, 100), ((4 << 20) - 1, 2 << 20), (LEN - 5, 5)] {
        expected[at..at + len].fill((at >> 16) as u8 | 1);
        file.write_at(Bytes::new(at as u64), &expected[at..at + len]).unwrap();
    }
    let before = stored(dir.path());
    let device = DaxDevice::new(file).unwrap();
    // Downwards, in pieces over every border, many times each.
    for at in (0..LEN - 70_000).rev().step_by(30_011) {
        assert!(read(&device, at as u64, 70_000) == expected[at..at + 70_000], "at {at}");
    }
    assert_eq!(stored(dir.path()), before);
    for n in 0..2000_usize {
        let (at, len) = (n * 7_777_777 % (LEN - 9000), n * 37 % 9000);
        expected[at..at + len].fill(n as u8);
        device.write_at(Bytes::new(at as u64), &expected[at..at + len]).unwrap();
    }
    assert!(read(&device, 0, LEN) == expected);
    assert!(read(device.file(), 0, LEN) == expected, "mapping and file are the same");
}

#[test]
fn a_file_longer_than_the_address_space_works_all_the_same() {
    let Some(dir) = in_memory() else { return };
    let device = DaxDevice::new(create(dir.path(), 1 << 60)).unwrap();
    let last = (1 << 60) - 3;
    for _ in 0..40 {
        device.write_at(Bytes::new(last), b"end").unwrap();
    }
    assert_eq!(read(&device, last, 3), b"end");
    // Short enough to be mapped, it is.
    device.resize(Bytes::new(10 * WINDOW + 5)).unwrap();
    for _ in 0..40 {
        device.write_at(Bytes::new(10 * WINDOW + 1), b"tail").unwrap();
        device.write_at(Bytes::new(WINDOW - 2), b"border").unwrap();
    }
    assert_eq!(read(&device, 10 * WINDOW, 5), b"\0tail");
    assert_eq!(read(&device, WINDOW - 3, 8), b"\0border\0");
    device.write_at(Bytes::new(10 * WINDOW + 2), b"long").unwrap_err();
}

#[test]
fn readers_see_every_page_of_one_write_or_another() {
    const WRITERS: u64 = 2;
    const PAGES: usize = 8;
    let Some(dir) = in_memory() else { return };
    let device = &DaxDevice::new(create(dir.path(), 1 << 20)).unwrap();
    device.write_at(Bytes::ZERO, &[1; 1 << 20]).unwrap();
    // One value in every page of a buffer, made before, so that there is little to do but reading and
    // writing.
    let buffers: &Vec<Vec<u8>> = &(0..=255).map(|value| vec![value; PAGES * PAGE as usize]).collect();
    let end = Instant::now() + Duration::from_millis(400);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut found = vec![0; PAGES * PAGE as usize];
            while Instant::now() < end {
                device.read_at(Bytes::ZERO, &mut found).unwrap();
                for page in found.chunks(PAGE as usize) {
                    assert!(
                        *page == buffers[usize::from(page[0])][..PAGE as usize],
                        "two writes in one page"
                    );
                }
            }
        });
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for n in (writer..).step_by(WRITERS as usize).take_while(|_| Instant::now() < end) {
                    let at = Bytes::new(n % 4 * PAGE);
                    let data = &buffers[n as usize % 256][..(1 + n as usize % 5) * PAGE as usize];
                    device.write_at(at, data).unwrap();
                    if n % 1024 == writer {
                        device.zero(at, Bytes::of(data.len())).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn lengths_change_under_readers_and_writers() {
    let Some(dir) = in_memory() else { return };
    let device = &DaxDevice::new(create(dir.path(), 4 * WINDOW)).unwrap();
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    let at = Bytes::new((n * 37 + thread) % 1024 * 8192);
                    match device.write_at(at, &[5; 8192]) {
                        Ok(()) => {}
                        Err(error) => assert!(matches!(error.reason(), Reason::OutOfRange(_)), "{error}"),
                    }
                    match device.read_at(at, &mut [0; 8192]) {
                        Ok(()) => {}
                        Err(error) => assert!(
                            matches!(error.reason(), Reason::OutOfRange(_) | Reason::EndsEarly),
                            "{error}"
                        ),
                    }
                }
            });
        }
        for n in 0..200 {
            device.resize(Bytes::new(if n % 2 == 0 { WINDOW + 4096 } else { 4 * WINDOW })).unwrap();
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A file system in memory with room for 8 MiB, unmounted in the end.
struct SmallMount(tempfile::TempDir);

impl SmallMount {
    fn new() -> Option<Self> {
        let mount = Self(tempfile::tempdir().unwrap());
        let tried =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "none"]).arg(mount.0.path()).status();
        if !tried.is_ok_and(|status| status.success()) {
            eprintln!("skipped: a small tmpfs: cannot be mounted here");
            return None;
        }
        Some(mount)
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        let _ =
            Command::new("umount").arg("-l").arg(self.0.path()).stderr(std::process::Stdio::null()).status();
    }
}

#[test]
fn a_host_without_memory_is_an_error_and_not_a_signal() {
    let Some(mount) = SmallMount::new() else { return };
    let device = DaxDevice::new(create(mount.0.path(), 64 << 20)).unwrap();
    // Little into each window, so that filling one fails too; then all that there is room for.
    for n in 0..32 {
        device.write_at(Bytes::new(n * WINDOW), &[1; 4096]).unwrap();
    }
    let mut written = Vec::new();
    let mut refused = 0;
    for round in 0..90 {
        for n in 0..32 {
            let at = n * WINDOW + (1 + (round * 5) % 511) * PAGE;
            match device.write_at(Bytes::new(at), &[round as u8 | 1; 4096]) {
                Ok(()) => written.push((at, round as u8 | 1)),
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    refused += 1;
                }
            }
            assert!(read(&device, at + PAGE, 64).len() == 64, "a hole is read on a full host");
        }
    }
    assert!(refused > 0 && written.len() > 500, "{refused} refused, {} written", written.len());
    for (at, value) in &written {
        assert!(read(&device, *at, 4096) == [*value; 4096]);
        device.write_at(Bytes::new(*at), &[*value; 4096]).unwrap();
    }
    device.zero(Bytes::ZERO, device.len()).unwrap();
    device.write_at(Bytes::new(5 * WINDOW), &vec![3; 6 << 20]).unwrap();
    assert!(read(&device, 5 * WINDOW, 6 << 20) == vec![3; 6 << 20]);
}
