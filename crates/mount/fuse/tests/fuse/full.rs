//! A volume that fills up: the writer gets the error at that time, and no accepted data is lost; compared
//! with the kernel's own mount where numbers matter.
//!
//! The cases that external suites (xfstests, LTP) test, in the terms of this project.

#![allow(unsafe_code)] // no safe library maps files

use crate::support::{MIB, Mount, mounted};
use hectare_oracle::{KernelMount, mke2fs, skip_part, until};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

const STEP: usize = 1 << 20;

pub(crate) fn made(dir: &Path, name: &str) -> File {
    File::options().read(true).write(true).create_new(true).open(dir.join(name)).unwrap()
}

/// Writes to a file from its first byte until that fails; returns how many bytes were accepted, and the
/// error.
pub(crate) fn fill(file: &File, step: usize) -> (u64, Errno) {
    let (piece, mut at) = (vec![0xf1; step], 0);
    while at < 1 << 40 {
        match file.write_at(&piece, at) {
            Ok(written) => at += written as u64,
            Err(error) => return (at, Errno::from_io_error(&error).unwrap()),
        }
    }
    panic!("nothing stops the writer");
}

/// Fills the last space with pieces that get smaller.
fn fill_up(dir: &Path) -> Vec<File> {
    let fill_one = |(n, step)| {
        let file = made(dir, &format!("fill{n}"));
        assert_eq!(fill(&file, step).1, Errno::NOSPC);
        file
    };
    [STEP, 65_536, 4096, 1024].into_iter().enumerate().map(fill_one).collect()
}

/// The space for root, the writer here: all that is free except a fiftieth of the volume, which is kept for
/// extent trees.
fn free(mount: &Mount) -> u64 {
    let found = rustix::fs::statvfs(&mount.dir).unwrap();
    let blocks = fs::metadata(&mount.image).unwrap().len() / found.f_frsize;
    (found.f_bfree - (blocks / 50).min(found.f_bfree)) * found.f_frsize
}

/// The capacity of a volume of this kind through the kernel's own mount.
fn taken_by_kernel(mount: &Mount, size: &str) -> Result<u64, hectare_oracle::Skip> {
    let image = mount.outside("kernel");
    mke2fs(&["-t", "ext4"], &image, size)?;
    let kernel = KernelMount::new(&image, "")?;
    let taken = fill(&made(kernel.path(), "f"), STEP).0;
    kernel.unmount();
    Ok(taken)
}

/// The kernel buffered writes without reserved space: `dd` never ended, and files had sizes without content.
#[test]
fn regression_a_writer_hears_at_once_that_the_volume_is_full() {
    const NAME: &str = "full::regression_a_writer_hears_at_once_that_the_volume_is_full";
    for options in ["", "nodelalloc", "data=journal", "threads=1"] {
        let mut mount = match Mount::by_mke2fs(&["-t", "ext4"], "64M", options) {
            Ok(mount) => mount,
            Err(reason) => hectare_oracle::skip!(NAME, reason),
        };
        let file = made(&mount.dir, "f");
        let (taken, why) = fill(&file, STEP);
        assert_eq!(why, Errno::NOSPC, "{options}");
        assert_eq!(file.metadata().unwrap().len(), taken, "{options}: the size that it has");
        match taken_by_kernel(&mount, "64M") {
            Ok(kernel) => {
                assert!(taken.abs_diff(kernel) < 2 * MIB, "{taken}, the kernel {kernel} ({options})");
            }
            Err(reason) => skip_part!(NAME, reason),
        }
        file.sync_all().unwrap();
        drop(file);
        mount.detach();
        mount.attach(options);
        let content = fs::read(mount.path("f")).unwrap();
        assert!(content.len() as u64 == taken && content.iter().all(|byte| *byte == 0xf1), "{options}");
        mount.judge(NAME);
    }
}

/// As xfstests' generic/015.
#[test]
fn what_filled_a_volume_is_free_again_when_it_is_removed() {
    const NAME: &str = "full::what_filled_a_volume_is_free_again_when_it_is_removed";
    let mount = mounted!(NAME, 64 * MIB, "");
    let before = free(&mount);
    for round in 0..3 {
        let taken: u64 = fill_up(&mount.dir).iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(before.abs_diff(taken) < MIB, "round {round}: {taken} of {before}");
        for n in 0..4 {
            fs::remove_file(mount.path(&format!("fill{n}"))).unwrap();
        }
        until(|| free(&mount) == before);
    }
    mount.judge(NAME);
}

/// As xfstests' generic/275.
#[test]
fn a_write_for_which_there_is_half_the_room_is_half_done() {
    const NAME: &str = "full::a_write_for_which_there_is_half_the_room_is_half_done";
    let mount = mounted!(NAME, 32 * MIB, "");
    let (spare, last) = (made(&mount.dir, "spare"), made(&mount.dir, "last"));
    spare.write_all_at(&[1; STEP / 2], 0).unwrap();
    drop((spare, fill_up(&mount.dir)));
    assert_eq!(last.write_at(&[2; STEP], 0).unwrap_err().raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    fs::remove_file(mount.path("spare")).unwrap();
    // Files that fill up in many pieces have taken blocks for their extent trees.
    let half = MIB / 2 - 65_536..=MIB / 2 + 65_536;
    until(|| half.contains(&free(&mount)));
    let (written, why) = fill(&last, 2 * STEP);
    assert!(half.contains(&written), "{written}");
    assert_eq!((why, last.metadata().unwrap().len()), (Errno::NOSPC, written));
    last.sync_all().unwrap();
    drop(last);
    mount.judge(NAME);
}

/// As xfstests' generic/274 and LTP's fallocate05 and fallocate06.
#[test]
fn what_was_allocated_can_be_written_on_a_full_volume() {
    const NAME: &str = "full::what_was_allocated_can_be_written_on_a_full_volume";
    const LEN: usize = 4 << 20;
    for options in ["", "writeback", "data=journal"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        let (file, hole) = (made(&mount.dir, "f"), made(&mount.dir, "hole"));
        for file in [&file, &hole] {
            fallocate(file, FallocateFlags::KEEP_SIZE, 0, LEN as u64).unwrap();
        }
        while fallocate(made_again(&mount), FallocateFlags::empty(), 0, 60 * MIB).is_ok() {}
        let filled = if options == "writeback" { Vec::new() } else { fill_up(&mount.dir) };
        for at in (0..LEN).step_by(65_536) {
            file.write_all_at(&[3; 65_536], at as u64).unwrap();
        }
        file.sync_all().unwrap();
        assert!(fs::read(mount.path("f")).unwrap() == vec![3; LEN], "{options}");
        // A hole punched into one file is space for another.
        hole.write_all_at(&vec![4; LEN], 0).unwrap();
        hole.sync_all().unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&hole, punch, 0, LEN as u64).unwrap();
        let other = made(&mount.dir, "other");
        other.write_all_at(&[5; STEP], 0).unwrap();
        other.sync_all().unwrap();
        drop((file, hole, other, filled));
        mount.judge_scattered(NAME);
    }
}

/// A file that asks for more than there is, and gets nothing.
fn made_again(mount: &Mount) -> File {
    File::options().write(true).create(true).truncate(false).open(mount.path("greedy")).unwrap()
}

/// As xfstests' generic/269 and LTP's fs_fill: many processes fill, remove and fill again.
#[test]
fn many_fill_a_volume_and_what_each_was_told_is_true() {
    const NAME: &str = "full::many_fill_a_volume_and_what_each_was_told_is_true";
    let mount = mounted!(NAME, 32 * MIB, "");
    thread::scope(|scope| {
        for number in 0..6_u8 {
            let dir = mount.dir.clone();
            scope.spawn(move || {
                for round in 0..8 {
                    let name = format!("f{number}");
                    let file = made(&dir, &name);
                    let piece = vec![number + 1; 3000 + usize::from(number) * 20_000];
                    let (mut at, mut refused) = (0, 0);
                    while at < 8 * MIB && refused < 3 {
                        match file.write_at(&piece, at) {
                            Ok(written) => at += written as u64,
                            Err(error) => {
                                assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
                                refused += 1;
                            }
                        }
                    }
                    file.sync_all().unwrap();
                    let content = fs::read(dir.join(&name)).unwrap();
                    assert_eq!(content.len() as u64, at, "{number}, {round}");
                    assert!(content.iter().all(|byte| *byte == number + 1), "{number}, {round}");
                    if round < 7 {
                        fs::remove_file(dir.join(&name)).unwrap();
                    }
                }
            });
        }
    });
    mount.judge_scattered(NAME);
}

/// It was accepted, and the file had that length until the kernel forgot it.
#[test]
fn regression_a_write_ends_at_the_largest_size_of_a_file() {
    const NAME: &str = "full::regression_a_write_ends_at_the_largest_size_of_a_file";
    const LARGEST: u64 = ((1 << 32) - 1) * 4096;
    let mount = match Mount::by_mke2fs(&["-t", "ext4", "-b", "4096"], "64M", "") {
        Ok(mount) => mount,
        Err(reason) => hectare_oracle::skip!(NAME, reason),
    };
    let image = mount.outside("kernel");
    let kernel =
        mke2fs(&["-t", "ext4", "-b", "4096"], &image, "64M").and_then(|_| KernelMount::new(&image, ""));
    let kernel = match kernel {
        Ok(kernel) => Some(kernel),
        Err(reason) => {
            skip_part!(NAME, reason);
            None
        }
    };
    for dir in [Some(mount.dir.as_path()), kernel.as_ref().map(KernelMount::path)].into_iter().flatten() {
        let file = made(dir, "f");
        let written =
            |at| file.write_at(&[7; 100], at).map_err(|error| Errno::from_io_error(&error).unwrap());
        assert_eq!(written(LARGEST), Err(Errno::FBIG), "{}", dir.display());
        assert_eq!(written(LARGEST + (1 << 40)), Err(Errno::FBIG));
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert_eq!(written(LARGEST - 40), Ok(40), "{}", dir.display());
        assert_eq!(file.metadata().unwrap().len(), LARGEST);
        assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(LARGEST - 4096), "{}", dir.display());
        file.set_len(0).unwrap();
    }
    if let Some(kernel) = kernel {
        kernel.unmount();
    }
    mount.judge(NAME);
}

/// A file mapped for reading and writing.
struct Mapping(*mut libc::c_void, usize);

impl Mapping {
    fn new(file: &File, len: usize) -> Self {
        let (access, file) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: the kernel chooses a place that nothing else is at.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start, len)
    }

    fn set(&self, at: usize, value: u8) {
        assert!(at < self.1);
        // SAFETY: the byte lies in the mapping, and nothing holds a reference to it.
        unsafe { self.0.cast::<u8>().add(at).write_volatile(value) };
    }

    fn sync(&self) -> Result<(), Errno> {
        // SAFETY: this is a mapping of that length.
        let synced = unsafe { libc::msync(self.0, self.1, libc::MS_SYNC) };
        if synced == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is a mapping of that length, and nothing points into it any more.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// The kernel's own mount reports it by SIGBUS, for which FUSE has no way (as LTP's mmap16).
#[test]
fn who_writes_through_a_mapping_hears_of_a_full_volume_by_msync() {
    const NAME: &str = "full::who_writes_through_a_mapping_hears_of_a_full_volume_by_msync";
    const LEN: usize = 8 << 20;
    let mut mount = mounted!(NAME, 32 * MIB, "");
    let (file, fits) = (made(&mount.dir, "f"), made(&mount.dir, "fits"));
    fits.set_len(MIB).unwrap();
    file.set_len(LEN as u64).unwrap();
    fallocate(&fits, FallocateFlags::KEEP_SIZE, 0, MIB).unwrap();
    drop(fill_up(&mount.dir));
    for (file, len, told) in [(&fits, STEP, Ok(())), (&file, LEN, Err(Errno::NOSPC))] {
        let mapping = Mapping::new(file, len);
        (0..len).step_by(4096).for_each(|at| mapping.set(at, 9));
        assert_eq!(mapping.sync(), told);
    }
    drop((file, fits));
    mount.detach();
    mount.attach("");
    assert!(fs::read(mount.path("fits")).unwrap().chunks(4096).all(|page| page[0] == 9));
    mount.judge_scattered(NAME);
}

/// Data in a mapping looked like a hole, and would be left out of copies.
#[test]
fn regression_what_was_written_through_a_mapping_is_no_hole() {
    const NAME: &str = "full::regression_what_was_written_through_a_mapping_is_no_hole";
    for options in ["", "writeback", "threads=1"] {
        let mount = mounted!(NAME, 32 * MIB, options);
        let file = made(&mount.dir, "f");
        file.set_len(4 * MIB).unwrap();
        let mapping = Mapping::new(&file, 4 << 20);
        mapping.set(STEP, 1);
        assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(MIB), "{options}");
        drop((mapping, file));
        mount.judge(NAME);
    }
}

/// What a mapping had changed before arrived after the times were set, and set the present.
#[test]
fn regression_times_set_after_writing_through_a_mapping_stay() {
    const NAME: &str = "full::regression_times_set_after_writing_through_a_mapping_stay";
    for options in ["", "writeback", "threads=1", "noopen"] {
        let mount = mounted!(NAME, 32 * MIB, options);
        let file = made(&mount.dir, "f");
        file.set_len(MIB).unwrap();
        let mapping = Mapping::new(&file, STEP);
        (0..STEP).step_by(4096).for_each(|at| mapping.set(at, 1));
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_modified(past).unwrap();
        drop((mapping, file));
        assert_eq!(fs::metadata(mount.path("f")).unwrap().modified().unwrap(), past, "{options}");
        mount.judge(NAME);
    }
}
