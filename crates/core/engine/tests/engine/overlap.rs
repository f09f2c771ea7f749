//! Overwrites of one file by several threads: overlapping ones end wholly as one or the other, and the others
//! run concurrently.

use crate::common::{close_clean, format_bytes, in_memory, save, unhurried};
use hectare_device::{Device, FileOptions, MemoryDevice, Result};
use hectare_engine::{Creation, FallocateMode, OpenFile, Volume};
use hectare_oracle::{skip, skip_part};
use hectare_units::Bytes;
use std::ops::Range;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes of the file.
const SIZE: usize = 256 << 10;

/// A file of several extents: every second part of one twice as long is removed.
fn in_pieces(volume: &Volume, piece: u64) -> OpenFile {
    let file = volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &[9; 2 * SIZE]).unwrap();
    for at in (0..SIZE as u64).step_by(piece as usize) {
        file.fallocate(FallocateMode::CollapseRange, at, piece).unwrap();
    }
    file.sync().unwrap();
    assert_eq!(
        (file.metadata().unwrap().size, file.extents().unwrap().len()),
        (SIZE as u64, SIZE / piece as usize)
    );
    file
}

/// Two threads overwrite overlapping ranges of the file; returns how often the shared bytes were a mixture.
fn mixtures(file: &OpenFile, rounds: u32, ranges: &[Range<usize>; 2]) -> u32 {
    let common = ranges[0].start.max(ranges[1].start)..ranges[0].end.min(ranges[1].end);
    let (barrier, mut read, mut mixed) = (Barrier::new(3), vec![0; SIZE], 0);
    thread::scope(|scope| {
        for (range, byte) in ranges.iter().zip([1, 2]) {
            let barrier = &barrier;
            scope.spawn(move || {
                let data = vec![byte; range.len()];
                for _ in 0..rounds {
                    barrier.wait();
                    file.write_all_at(range.start as u64, &data).unwrap();
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            barrier.wait();
            barrier.wait();
            assert_eq!(file.read_at(0, &mut read).unwrap(), SIZE);
            let parts = [&ranges[0], &ranges[1]].map(|range| &read[range.clone()]);
            assert!(parts.iter().all(|part| part.iter().all(|byte| *byte == 1 || *byte == 2)));
            let both = &read[common.clone()];
            mixed += u32::from(both.iter().any(|byte| *byte != both[0]));
        }
    });
    mixed
}

fn no_pair_mixes(what: &str, device: Arc<dyn Device>, rounds: u32) {
    for piece in [64 << 10, 32 << 10] {
        let volume = Volume::open(Arc::clone(&device), unhurried()).unwrap();
        let file = in_pieces(&volume, piece);
        for ranges in [[0..SIZE, 0..SIZE], [1000..200_000, 100_000..SIZE], [0..SIZE, 70_001..70_600]] {
            let mixed = mixtures(&file, rounds, &ranges);
            assert_eq!(mixed, 0, "{what}: of {rounds} pairs of {ranges:?}, pieces of {piece} bytes");
        }
        drop(file);
        volume.remove_file("file").unwrap();
        volume.close().unwrap();
    }
}

const SMALL: &[&str] = &["-t", "ext4", "-b", "4096"];

#[test]
fn regression_overlapping_overwrites_end_as_one_of_them() {
    const TEST: &str = "overlap::regression_overlapping_overwrites_end_as_one_of_them";
    let bytes = match format_bytes(SMALL, "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(TEST, reason),
    };
    no_pair_mixes("memory", Arc::new(MemoryDevice::from_bytes(&bytes)), 200);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&bytes, &image);
    let file = || FileOptions::new().write(true);
    no_pair_mixes("cached", Arc::new(file().open(&image).unwrap()), 200);
    match file().direct(true).open(&image) {
        Ok(device) if device.is_direct() => no_pair_mixes("direct", Arc::new(device), 100),
        _ => skip_part!(format!("{TEST}, direct"), "the temporary directory takes no direct I/O"),
    }
    #[cfg(all(target_os = "linux", not(hectare_portable)))]
    {
        let mapped = hectare_device::DaxDevice::new_anywhere(file().open(&image).unwrap()).unwrap();
        no_pair_mixes("dax", Arc::new(mapped), 200);
    }
}

/// A device in memory with a hook before every write.
struct Hooked<F> {
    memory: MemoryDevice,
    before_write: F,
}

impl<F: Fn(Bytes, &[u8]) + Send + Sync> Device for Hooked<F> {
    fn name(&self) -> &str {
        self.memory.name()
    }
    fn len(&self) -> Bytes {
        self.memory.len()
    }
    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.memory.read_at(at, buf)
    }
    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        (self.before_write)(at, data);
        self.memory.write_at(at, data)
    }
    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.memory.zero(at, len)
    }
    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.memory.discard(at, len)
    }
    fn resize(&self, len: Bytes) -> Result<()> {
        self.memory.resize(len)
    }
    fn is_zeroed(&self) -> bool {
        self.memory.is_zeroed()
    }
    fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }
}

/// Which writes of the bytes 1, 2... have begun, and how to wait for more.
#[derive(Default)]
struct Begun {
    writes: Mutex<[u32; 8]>,
    more: Condvar,
}

impl Begun {
    /// Records a write of one of these bytes alone; returns which.
    fn note(&self, data: &[u8]) -> Option<u8> {
        let byte = *data.first()?;
        if !(1..8).contains(&byte) || data.iter().any(|one| *one != byte) {
            return None;
        }
        self.writes.lock().unwrap()[usize::from(byte)] += 1;
        self.more.notify_all();
        Some(byte)
    }

    /// Waits until a write of `byte` has begun; returns whether one has.
    fn wait_for(&self, byte: u8, patience: Duration) -> bool {
        let writes = self.writes.lock().unwrap();
        let none = |writes: &mut [u32; 8]| writes[usize::from(byte)] == 0;
        !self.more.wait_timeout_while(writes, patience, none).unwrap().1.timed_out()
    }

    fn count(&self, byte: u8) -> u32 {
        self.writes.lock().unwrap()[usize::from(byte)]
    }
}

#[test]
fn regression_a_write_waits_for_all_pieces_of_one_that_overlaps_it() {
    let bytes = match format_bytes(SMALL, "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("overlap::regression_a_write_waits_for_all_pieces", reason),
    };
    let begun = Arc::new(Begun::default());
    let in_hook = Arc::clone(&begun);
    let before_write = move |_: Bytes, data: &[u8]| {
        // Its second part comes only after the other's write, if the other doesn't wait for it.
        if in_hook.note(data) == Some(1) && in_hook.count(1) == 2 {
            in_hook.wait_for(2, Duration::from_millis(300));
        }
    };
    let device = Hooked { memory: MemoryDevice::from_bytes(&bytes), before_write };
    let volume = Volume::open(Arc::new(device), unhurried()).unwrap();
    let file = in_pieces(&volume, 64 << 10);
    thread::scope(|scope| {
        scope.spawn(|| file.write_all_at(0, &[1; SIZE]).unwrap());
        assert!(begun.wait_for(1, Duration::from_secs(60)));
        file.write_all_at(0, &[2; SIZE]).unwrap();
    });
    let mut read = vec![0; SIZE];
    file.read_at(0, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == read[0]), "the second piece is the other's");
}

#[test]
fn overwrites_that_do_not_overlap_run_at_the_same_time() {
    let bytes = match format_bytes(SMALL, "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("overlap::overwrites_that_do_not_overlap", reason),
    };
    let begun = Arc::new(Begun::default());
    let in_hook = Arc::clone(&begun);
    let before_write = move |_: Bytes, data: &[u8]| {
        let Some(byte) = in_hook.note(data) else { return };
        for other in 1..4 {
            assert!(in_hook.wait_for(other, Duration::from_secs(60)), "{byte} waits for {other}");
        }
    };
    let device = Hooked { memory: MemoryDevice::from_bytes(&bytes), before_write };
    let volume = Volume::open(Arc::new(device), unhurried()).unwrap();
    let file = in_pieces(&volume, 64 << 10);
    // Neighbours, one of several parts and too long for the word of a lone writer.
    let ranges = [0..1000, 1000..4096, 4096..SIZE];
    thread::scope(|scope| {
        for (range, byte) in ranges.into_iter().zip(1..) {
            let file = &file;
            scope.spawn(move || file.write_all_at(range.start as u64, &vec![byte; range.len()]).unwrap());
        }
    });
    let mut read = vec![0; SIZE];
    file.read_at(0, &mut read).unwrap();
    assert!(read[..1000].iter().all(|byte| *byte == 1) && read[1000..4096].iter().all(|byte| *byte == 2));
    assert!(read[4096..].iter().all(|byte| *byte == 3));
}

/// Every other change of content excludes overwrites: none shows in part.
#[test]
fn other_changes_of_content_are_whole_for_overwrites() {
    let bytes = match format_bytes(SMALL, "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("overlap::other_changes_of_content", reason),
    };
    let held = in_memory(&bytes);
    let file = in_pieces(&held.volume, 32 << 10);
    let changes: [fn(&OpenFile); 4] = [
        |file| file.fallocate(FallocateMode::PunchHole, 0, SIZE as u64).unwrap(),
        |file| {
            let mode = FallocateMode::ZeroRange { keep_size: true };
            file.fallocate(mode, 0, SIZE as u64).unwrap();
        },
        |file| file.set_len(0).unwrap(),
        |file| file.write_all_at(0, &[0; SIZE + 1]).unwrap(), // beyond the end
    ];
    let mut read = vec![0; SIZE];
    for n in 0..200 {
        let change = changes[n % changes.len()];
        file.set_len(SIZE as u64).unwrap();
        file.write_all_at(0, &[7; SIZE]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| change(&file));
            file.write_all_at(0, &[1; SIZE]).unwrap();
        });
        let got = file.read_at(0, &mut read).unwrap();
        assert!(read[..got].iter().all(|byte| *byte == read[0]), "change {}", n % changes.len());
    }
    drop(file);
    close_clean(&held);
}
