//! Writes that the kernel buffers (`-o writeback`) on a volume that fills up: no writer continues for ever,
//! and an error that comes too late for a write is returned by the next.

use crate::full::{fill, made};
use crate::support::{MIB, mounted};
use hectare_oracle::until;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const STEP: usize = 1 << 20;

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

fn append(file: &mut File, text: &[u8]) -> Result<(), Errno> {
    file.write_all(text).map_err(|error| errno(&error).unwrap())
}

/// `dd` never ended, and one job showed 1.7 TB on a volume of 974 MiB.
#[test]
fn regression_a_buffered_writer_is_stopped_by_a_full_volume() {
    const NAME: &str = "buffered::regression_a_buffered_writer_is_stopped_by_a_full_volume";
    let mount = mounted!(NAME, 64 * MIB, "writeback");
    let free = rustix::fs::statvfs(&mount.dir).unwrap();
    let free = free.f_bavail * free.f_frsize;
    let file = made(&mount.dir, "f");
    let (taken, why) = fill(&file, STEP);
    assert_eq!(why, Errno::NOSPC);
    assert!(taken.abs_diff(free) < 6 * MIB, "{taken} of {free}");
    // Files that were open before, that are opened now, that are created now, and again.
    let mut open = File::options().append(true).open(mount.path("f")).unwrap();
    for _ in 0..3 {
        assert_eq!(append(&mut open, b"x"), Err(Errno::NOSPC));
        let mut new = File::options().append(true).create(true).open(mount.path("new")).unwrap();
        assert_eq!(append(&mut new, b"x"), Err(Errno::NOSPC));
        assert_eq!(new.metadata().unwrap().len(), 0);
    }
    drop((open, file));
    fs::remove_file(mount.path("f")).unwrap();
    until(|| rustix::fs::statvfs(&mount.dir).unwrap().f_bavail > 1000);
    fs::write(mount.path("new"), b"there is room again").unwrap();
    assert_eq!(fs::read(mount.path("new")).unwrap(), b"there is room again");
    mount.judge(NAME);
}

/// Many writers, each of which stops; data synced without an error is there.
#[test]
fn buffered_writers_are_stopped_and_keep_what_was_synced() {
    const NAME: &str = "buffered::buffered_writers_are_stopped_and_keep_what_was_synced";
    let mut mount = mounted!(NAME, 64 * MIB, "writeback");
    let kept: Vec<u64> = std::thread::scope(|scope| {
        let writers = (0..4_u8).map(|n| {
            let dir = mount.dir.clone();
            scope.spawn(move || {
                let (file, piece, mut at) = (made(&dir, &format!("f{n}")), vec![n + 1; 300_000], 0);
                while at < 1 << 32 {
                    if file.write_all_at(&piece, at).and_then(|()| file.sync_data()).is_err() {
                        return at;
                    }
                    at += piece.len() as u64;
                }
                panic!("nothing stops the writer");
            })
        });
        writers.collect::<Vec<_>>().into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(kept.iter().sum::<u64>() > 40 * MIB, "{kept:?}");
    mount.detach();
    mount.attach("writeback");
    for (n, kept) in (1_u8..).zip(kept) {
        let content = fs::read(mount.path(&format!("f{}", n - 1))).unwrap();
        let kept = usize::try_from(kept).unwrap();
        assert!(content.len() >= kept && content[..kept].iter().all(|byte| *byte == n), "f{}", n - 1);
    }
    mount.judge_scattered(NAME);
}

/// No error was returned before `fsync`.
#[test]
fn regression_a_buffered_write_beyond_the_largest_size_fails_the_next() {
    const NAME: &str = "buffered::regression_a_buffered_write_beyond_the_largest_size_fails_the_next";
    let mount = mounted!(NAME, 64 * MIB, "writeback");
    let file = made(&mount.dir, "f");
    file.write_all_at(b"x", 17 << 40).unwrap();
    until(|| file.write_all_at(b"y", 0).is_err_and(|error| errno(&error) == Some(Errno::FBIG)));
    assert!(file.sync_all().is_err());
    fs::remove_file(mount.path("f")).unwrap();
    drop(file);
    mount.judge(NAME);
}
