//! Copies ranges between files: against a model, and with holes.

use crate::common::{InMemory, close_clean, format_bytes, in_memory, pattern, unhurried};
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Request, Rule};
use hectare_engine::{Creation, Error, FallocateMode, InodeFlags, OpenFile, Volume};
use hectare_oracle::skip;
use std::sync::Arc;

macro_rules! volume {
    ($test:literal, $($arg:expr),*) => {
        match format_bytes(&["-t", "ext4", $($arg),*], "64M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!($test, reason),
        }
    };
}

fn content(file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().size).unwrap()];
    let len = file.read_at(0, &mut bytes).unwrap();
    assert_eq!(len, bytes.len());
    bytes
}

/// A file and what it should hold.
struct Pair {
    file: OpenFile,
    model: Vec<u8>,
}

impl Pair {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() && self.model.len() < at + bytes.len() {
            self.model.resize(at + bytes.len(), 0);
        }
        if let Some(target) = self.model.get_mut(at..at + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}

#[test]
fn what_is_copied_is_what_a_model_says() {
    const MOST: u64 = 400_000;
    for (seed, args) in
        [(1_u64, &["-b", "4096"][..]), (2, &["-b", "1024"]), (3, &["-O", "bigalloc", "-C", "16384"])]
    {
        let held = match format_bytes(&[&["-t", "ext4"], args].concat(), "64M") {
            Ok(bytes) => in_memory(&bytes),
            Err(reason) => skip!("copy::what_is_copied", reason),
        };
        let mut state = seed;
        let mut dice = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut files = [0, 1].map(|n| {
            let file = held.volume.create_file(format!("file-{n}"), Creation::default()).unwrap();
            Pair { file, model: Vec::new() }
        });
        for round in 0..400 {
            let (a, b) = (dice(2) as usize, dice(2) as usize);
            let most = if dice(3) == 0 { 200_000 } else { 9000 };
            let (mut at, mut to, mut len) = (dice(MOST), dice(MOST), dice(most));
            if dice(2) == 0 {
                [at, to, len] = [at, to, len].map(|n| n & !4095);
            }
            let kind = dice(6);
            let op = format!("round {round}: {kind} of {a} to {b}, {at} to {to}, {len}");
            match kind {
                0 => {
                    let bytes = pattern(round, at, len as usize);
                    files[a].file.write_all_at(at, &bytes).unwrap();
                    files[a].put(at as usize, &bytes);
                }
                1 => {
                    let end = files[a].model.len() as u64; // buffered in memory
                    let bytes = pattern(round, end, 1 + dice(3000) as usize);
                    files[a].file.write_all_at(end, &bytes).unwrap();
                    files[a].put(end as usize, &bytes);
                }
                2 if len > 0 => {
                    let mode = if dice(2) == 0 {
                        FallocateMode::PunchHole
                    } else {
                        FallocateMode::ZeroRange { keep_size: true }
                    };
                    files[a].file.fallocate(mode, at, len).unwrap();
                    let size = files[a].model.len();
                    let range = (at as usize).min(size)..((at + len) as usize).min(size);
                    files[a].model[range].fill(0);
                }
                3 => {
                    files[a].file.set_len(at).unwrap();
                    files[a].model.resize(at as usize, 0);
                }
                _ => {
                    let size = files[a].model.len() as u64;
                    let wanted = len.min(size.saturating_sub(at));
                    let result = files[a].file.copy_range(at, &files[b].file, to, len);
                    if a == b && at < to + wanted && to < at + wanted {
                        assert!(matches!(result, Err(Error::Invalid(_))), "{round}: {result:?}");
                    } else {
                        assert_eq!(result.unwrap(), wanted, "{round}");
                        let bytes =
                            files[a].model.get(at as usize..(at + wanted) as usize).unwrap_or(&[]).to_vec();
                        if wanted > 0 {
                            files[b].put(to as usize, &bytes);
                        }
                    }
                }
            }
            for (n, pair) in files.iter().enumerate() {
                let found = content(&pair.file);
                let wrong = found.iter().zip(&pair.model).position(|(a, b)| a != b);
                let lens = (found.len(), pair.model.len());
                assert!(found == pair.model, "seed {seed}, {op}: file {n}, {lens:?}, byte {wrong:?}");
            }
        }
        drop(files);
        held.volume.check_space().unwrap();
        close_clean(&held);
    }
}

#[test]
fn holes_stay_holes_and_make_holes() {
    let held = volume!("copy::holes", "-b", "4096");
    let v = &held.volume;
    let (from, to) = ("from", "to");
    let from = v.create_file(from, Creation::default()).unwrap();
    from.write_all_at(1 << 20, &pattern(1, 0, 1 << 20)).unwrap();
    from.set_len(4 << 20).unwrap();
    from.allocate(3 << 20, 1 << 20, false).unwrap();
    let to = v.create_file(to, Creation::default()).unwrap();
    assert_eq!(from.copy_range(0, &to, 0, u64::MAX).unwrap(), 4 << 20);
    assert_eq!(to.data_ranges().unwrap(), from.data_ranges().unwrap());
    assert_eq!(to.metadata().unwrap().sectors, (1 << 20) / 512, "what is unwritten is copied as a hole");
    assert!(content(&to) == content(&from));
    // Over data, a hole frees the space.
    let full = v.create_file("full", Creation::default()).unwrap();
    full.write_all_at(0, &vec![7; 4 << 20]).unwrap();
    assert_eq!(from.copy_range(0, &full, 0, 4 << 20).unwrap(), 4 << 20);
    assert_eq!(full.data_ranges().unwrap(), [(1 << 20, 1 << 20)]);
    assert!(content(&full) == content(&from));
    drop((from, to, full));
    close_clean(&held);
}

#[test]
fn a_full_volume_copies_what_it_has_room_for() {
    let held = volume!("copy::a_full_volume", "-b", "4096", "-m", "0");
    let v = &held.volume;
    let from = v.create_file("from", Creation::default()).unwrap();
    let len = (v.statfs().unwrap().available.get() * 4096) * 2 / 3;
    from.write_all_at(0, &pattern(5, 0, len as usize)).unwrap();
    let to = v.create_file("to", Creation::default()).unwrap();
    let copied = from.copy_range(0, &to, 0, len).unwrap();
    assert!(copied > len / 3 && copied < len, "{copied} of {len}");
    assert!(content(&to) == pattern(5, 0, copied as usize));
    assert!(matches!(from.copy_range(copied, &to, copied, len), Err(Error::NoSpace)));
    drop((from, to));
    close_clean(&held);
}

/// The call failed as a whole, and who had asked took the target for unchanged.
#[test]
fn regression_a_copy_that_fails_later_returns_how_much_it_has_copied() {
    const PIECE: u64 = 4 << 20;
    let bytes = match format_bytes(&["-t", "ext4", "-b", "4096"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("copy::regression_a_copy_that_fails_later", reason),
    };
    let device = Arc::new(FaultDevice::new(MemoryDevice::from_bytes(&bytes)));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
    let from = volume.create_file("from", Creation::default()).unwrap();
    from.write_all_at(0, &pattern(3, 0, 3 * PIECE as usize)).unwrap();
    let to = volume.create_file("to", Creation::default()).unwrap();
    // Its only extent, from the second piece on.
    let bad = from.extents().unwrap()[0].physical.get() * 4096 + PIECE;
    let is_bad = move |request: &Request| (bad..bad + 2 * PIECE).contains(&request.span.at.get());
    device.add(Rule::new(Outcome::IO).on(&[Operation::Read]).when(is_bad));
    assert_eq!(from.copy_range(0, &to, 0, 3 * PIECE).unwrap(), PIECE);
    assert!(content(&to) == pattern(3, 0, PIECE as usize));
    assert!(matches!(from.copy_range(PIECE, &to, PIECE, PIECE), Err(Error::Device(_))));
    device.clear();
    drop((from, to));
    volume.close().unwrap();
}

#[test]
fn copies_are_refused_as_writes_are() {
    let held = volume!("copy::copies_are_refused", "-b", "4096");
    let other: InMemory = volume!("copy::copies_are_refused", "-b", "4096");
    let v = &held.volume;
    let from = v.create_file("from", Creation::default()).unwrap();
    from.write_all_at(0, b"content").unwrap();
    let to = v.create_file("to", Creation::default()).unwrap();
    to.write_all_at(0, b"12345").unwrap();
    let foreign = other.volume.create_file("to", Creation::default()).unwrap();
    assert_eq!(from.copy_range(0, &foreign, 0, 7).unwrap_err().errno(), 18);
    assert!(matches!(from.copy_range(0, &to, u64::MAX - 3, 7), Err(Error::FileTooLarge)));
    assert_eq!(from.copy_range(7, &to, 0, 7).unwrap(), 0);
    assert_eq!(from.copy_range(u64::MAX, &to, 0, u64::MAX).unwrap(), 0);
    let flags = v.inode_flags(to.inode()).unwrap();
    let set = |flag| v.set_inode_flags(to.inode(), flags | flag, &hectare_engine::Caller::ROOT).unwrap();
    set(InodeFlags::APPEND);
    assert_eq!(from.copy_range(0, &to, 0, 7).unwrap_err().errno(), 1);
    assert_eq!(from.copy_range(0, &to, 5, 7).unwrap(), 7);
    set(InodeFlags::IMMUTABLE);
    assert_eq!(from.copy_range(0, &to, 12, 7).unwrap_err().errno(), 1);
    assert_eq!(content(&to), b"12345content");
    drop((from, to, foreign));
    close_clean(&held);
}

#[test]
fn files_are_copied_both_ways_at_once() {
    let held = volume!("copy::both_ways", "-b", "4096");
    let v = &held.volume;
    let files = ["a", "b"].map(|name| {
        let file = v.create_file(name, Creation::default()).unwrap();
        file.write_all_at(0, &pattern(9, 0, 1 << 20)).unwrap();
        file
    });
    std::thread::scope(|scope| {
        for (from, to) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            let (from, to) = (&files[from], &files[to]);
            scope.spawn(move || {
                for n in 0..50_u64 {
                    let at = (n % 8) * 65_536;
                    let same = std::ptr::eq(from, to);
                    let target = if same { at + (1 << 20) } else { at };
                    assert_eq!(from.copy_range(at, to, target, 65_536).unwrap(), 65_536);
                }
            });
        }
    });
    for file in &files {
        assert!(content(file)[..1 << 20] == pattern(9, 0, 1 << 20));
        assert!(content(file)[1 << 20..] == pattern(9, 0, 1 << 19));
    }
    drop(files);
    close_clean(&held);
}
