//! Many threads write one file at once: nothing is lost, and a host without room returns an error.

use hectare_device::{Device, FileDevice, FileOptions, Overwrite};
use hectare_units::Bytes;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory in memory, and one wherever temporary files lie.
fn places() -> Vec<tempfile::TempDir> {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    if in_memory.is_err() {
        eprintln!("skipped: /dev/shm: no directory there");
    }
    in_memory.into_iter().chain(tempfile::tempdir()).collect()
}

fn create(dir: &Path, len: u64) -> FileDevice {
    FileOptions::new().create(dir.join("disk.img"), Bytes::new(len), Overwrite::Refuse).unwrap()
}

/// The length of the `n`th piece: 16 to 64 KiB, a third of them whole pages.
fn piece_len(n: u64) -> usize {
    let more = (n * 5003 % (48 << 10)) as usize;
    (16 << 10) + if n.is_multiple_of(3) { more / 4096 * 4096 } else { more }
}

/// Content of the `n`th piece, different in each.
fn piece(n: u64) -> Vec<u8> {
    let seed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..piece_len(n) as u64).map(|at| (seed.wrapping_mul(at | 1) >> 32) as u8).collect()
}

#[test]
fn pieces_of_eight_threads_all_arrive() {
    const THREADS: u64 = 8;
    const PIECES: u64 = 400;
    for dir in places() {
        // One piece after the other where whole pages begin, or, in the second round over other content,
        // nowhere in particular.
        let device = create(dir.path(), 64 << 20);
        for step in [64 << 10, (64 << 10) + 100] {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let device = &device;
                    scope.spawn(move || {
                        for n in (thread..PIECES).step_by(THREADS as usize) {
                            let (at, data) = (Bytes::new(n * step), piece(n));
                            if n % 2 == 0 {
                                device.write_at(at, &data).unwrap();
                            } else {
                                let (head, tail) = data.split_at(16 << 10);
                                device.write_all_at(at, &[IoSlice::new(head), IoSlice::new(tail)]).unwrap();
                            }
                            let mut found = vec![0; data.len()];
                            device.read_at(at, &mut found).unwrap();
                            assert!(found == data, "piece {n}, read at once");
                        }
                    });
                }
            });
            for n in 0..PIECES {
                let mut found = vec![0; piece_len(n)];
                device.read_at(Bytes::new(n * step), &mut found).unwrap();
                assert!(found == piece(n), "piece {n} in steps of {step}");
            }
        }
        device.flush().unwrap();
    }
}

/// A file system in memory with room for 8 MiB, unmounted in the end.
struct SmallMount(tempfile::TempDir);

impl SmallMount {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a small tmpfs: needs root");
            return None;
        }
        let mount = Self(tempfile::tempdir().unwrap());
        let tried =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "none"]).arg(mount.path()).status();
        if !tried.is_ok_and(|status| status.success()) {
            eprintln!("skipped: a small tmpfs: cannot be mounted here");
            return None;
        }
        Some(mount)
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        let _ =
            Command::new("umount").arg("-l").arg(self.path()).stderr(std::process::Stdio::null()).status();
    }
}

#[test]
fn a_host_that_runs_full_says_so_to_every_writer() {
    if cfg!(not(all(target_os = "linux", not(hectare_portable)))) {
        return; // zeroing makes no room elsewhere
    }
    const THREADS: u64 = 8;
    const LEN: usize = 64 << 10;
    let Some(mount) = SmallMount::new() else { return };
    // Far more than there is room for.
    let device = create(&mount.path(), 1 << 30);
    // The pieces of one thread that had room, up to the first that had not.
    let write = &|thread: u64| -> Vec<u64> {
        let mine = (thread..).step_by(THREADS as usize);
        mine.take_while(|n| match device.write_at(Bytes::new(n * LEN as u64), &[*n as u8 | 1; LEN]) {
            Ok(()) => true,
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                false
            }
        })
        .collect()
    };
    // Which writer runs into the end, and on which path, is random.
    for _ in 0..20 {
        let written: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!((100..=128).contains(&written.len()), "{} of 128 pieces had room", written.len());
        for n in written {
            let mut found = [0; LEN];
            device.read_at(Bytes::new(n * LEN as u64), &mut found).unwrap();
            assert!(found == [n as u8 | 1; LEN], "piece {n}");
        }
        device.zero(Bytes::ZERO, device.len()).unwrap();
    }
}
