//! Files are moved together: what they hold stays, in any format, whatever fails and wherever power is cut.

use crate::common::{
    InMemory, close_clean, each_operation_failing, format_bytes, in_memory, in_memory_with, long, pattern,
    unhurried,
};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_engine::{Creation, Error, FallocateMode, OpenOptions, Volume};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::extent::Extent;
use hectare_oracle::{skip, skip_part};
use hectare_units::{BlockNr, Bytes, GroupNr};
use std::ops::Range;
use std::sync::Arc;

const FORMATS: [(&str, &[&str]); 5] = [
    ("ext4", &["-t", "ext4", "-b", "4096"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2", "-b", "4096"]),
    ("quota", &["-t", "ext4", "-b", "1024", "-O", "quota,fast_commit"]),
];

/// Pieces of 4 KiB that the file is written in.
const PIECES: u64 = 240;

/// Makes a file whose blocks are scattered, with a hole and, where that is possible, unwritten blocks: it is
/// written when only gaps between small files are free.
fn scatter(volume: &Volume) -> Result<(), Error> {
    let name = |n| format!("small{n}");
    for n in 0..800 {
        volume.write_file(name(n), &[1; 4096], Creation::default())?;
    }
    volume.sync()?;
    let large = volume.create_file("large", Creation::default())?;
    let mut len = 0;
    loop {
        match large.write_all_at(len, &[7; 4096]).and_then(|()| large.sync()) {
            Err(Error::NoSpace) => break,
            written => written?,
        }
        len += 4096;
    }
    (0..800).step_by(2).try_for_each(|n| volume.remove_file(name(n)))?;
    volume.sync()?;
    let file = volume.create_file("a", Creation::default())?;
    for n in (0..PIECES).filter(|n| !(20..24).contains(n)) {
        file.write_all_at(n * 4096, &pattern(0, n, 4096))?;
    }
    file.sync()?;
    (1..800).step_by(2).try_for_each(|n| volume.remove_file(name(n)))?;
    volume.remove_file("large")?;
    let ahead = FallocateMode::Allocate { keep_size: false };
    match file.fallocate(ahead, PIECES * 4096, 10 * 4096) {
        Ok(()) | Err(Error::Unsupported(_)) => {}
        Err(error) => return Err(error),
    }
    volume.sync()
}

/// The content of the file that stays.
fn content(volume: &Volume) -> Result<Vec<u8>, Error> {
    volume.read("a")
}

fn expected(len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    for n in (0..PIECES).filter(|n| !(20..24).contains(n)) {
        let at = usize::try_from(n).unwrap() * 4096;
        content[at..at + 4096].copy_from_slice(&pattern(0, n, 4096));
    }
    content
}

fn prepared(name: &str, args: &[&str]) -> Option<InMemory> {
    match format_bytes(&[args, &["-m", "0"]].concat(), "16M") {
        Ok(bytes) => {
            let held = in_memory(&bytes);
            scatter(&held.volume).unwrap();
            let nr = held.volume.resolve("a", true).unwrap();
            let places = held.volume.inode_blocks(nr).unwrap().places();
            assert!(places > 10, "{name}: only {places} places");
            Some(held)
        }
        Err(reason) => {
            skip_part!(format!("gather, {name}"), reason);
            None
        }
    }
}

#[test]
fn a_scattered_file_comes_to_lie_in_one_place_for_each_stretch() {
    for (name, args) in FORMATS {
        let Some(held) = prepared(name, args) else { continue };
        let nr = held.volume.resolve("a", true).unwrap();
        let before = held.volume.stat(nr).unwrap();
        let len = content(&held.volume).unwrap().len();
        let blocks = held.volume.inode_blocks(nr).unwrap();
        assert_eq!(blocks.stretches(), 2, "{name}");
        let gathered = held.volume.gather(nr).unwrap();
        assert_eq!(gathered.before, blocks.places(), "{name}");
        assert_eq!(gathered.after, held.volume.inode_blocks(nr).unwrap().places(), "{name}");
        assert_eq!(gathered.after, 2, "{name}: {gathered:?}");
        assert!(gathered.moved.get() > 0, "{name}");
        assert!(content(&held.volume).unwrap() == expected(len), "{name}");
        let after = held.volume.stat(nr).unwrap();
        assert_eq!(
            (before.mtime, before.ctime, before.size),
            (after.mtime, after.ctime, after.size),
            "{name}"
        );
        let again = held.volume.gather(nr).unwrap();
        assert_eq!((again.moved.get(), again.before), (0, gathered.after), "{name}");
        held.volume.check_space().unwrap();
        close_clean(&held);
    }
}

#[test]
fn what_can_not_be_moved_is_refused_by_name() {
    let Some(held) = prepared("ext4", FORMATS[0].1) else { return };
    let dir = held.volume.create_dir("dir", Creation::default()).unwrap();
    let refused = held.volume.gather(dir).unwrap_err().to_string();
    assert!(refused.contains("it is not a regular file") && refused.contains(&dir.to_string()), "{refused}");
    close_clean(&held);
    let bytes = match format_bytes(&["-t", "ext4", "-O", "bigalloc"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("gather::what_can_not_be_moved", reason),
    };
    let held = in_memory(&bytes);
    held.volume.write_file("a", b"content", Creation::default()).unwrap();
    let nr = held.volume.resolve("a", true).unwrap();
    assert!(held.volume.gather(nr).unwrap_err().to_string().contains("bigalloc"));
    close_clean(&held);
}

/// Opens what a crash or a fault has left, which recovers it, and compares the file.
fn compare_left(bytes: &[u8], what: &str) {
    let held = in_memory(bytes);
    let len = content(&held.volume).unwrap().len();
    assert!(content(&held.volume).unwrap() == expected(len), "{what}");
    close_clean(&held);
}

fn bytes_of(device: &impl Device, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(Bytes::ZERO, &mut bytes).unwrap();
    bytes
}

fn gather_and_close(volume: &Volume) -> Result<(), Error> {
    let nr = volume.resolve("a", true)?;
    volume.gather(nr)?;
    volume.close()
}

/// Moves each extent of the file to the first free run that holds it, up to twelve of them.
fn move_and_close(volume: &Volume) -> Result<(), Error> {
    let nr = volume.resolve("a", true)?;
    let groups = (0..volume.superblock().geometry().groups()).map(GroupNr::new);
    let mut free: Vec<Range<BlockNr>> = Vec::new();
    for group in groups {
        free.extend(volume.free_runs(group)?);
    }
    let mut moved = 0;
    for extent in volume.inode_blocks(nr)?.extents.into_iter().take(12) {
        let len = u64::from(extent.len);
        let Some(run) = free.iter_mut().find(|run| run.end.get() - run.start.get() >= len) else { continue };
        moved += u64::from(volume.move_extent(nr, extent, run.start)?);
        run.start = BlockNr::new(run.start.get() + len);
    }
    assert!(moved > 8, "only {moved} extents have moved");
    volume.close()
}

#[test]
fn an_extent_moves_to_free_blocks_only_and_only_as_it_is_mapped() {
    let Some(held) = prepared("ext4", FORMATS[0].1) else { return };
    let nr = held.volume.resolve("a", true).unwrap();
    let extents = held.volume.inode_blocks(nr).unwrap().extents;
    let (first, second) = (extents[0], extents[1]);
    assert!(!held.volume.move_extent(nr, first, second.physical).unwrap(), "it moved to blocks in use");
    let moved_by_one = Extent { physical: BlockNr::new(first.physical.get() + 1), ..first };
    let free = held.volume.free_runs(GroupNr::new(0)).unwrap().pop().unwrap();
    assert!(!held.volume.move_extent(nr, moved_by_one, free.start).unwrap(), "it is not mapped there");
    assert!(held.volume.move_extent(nr, first, free.start).unwrap());
    assert_eq!(held.volume.inode_blocks(nr).unwrap().extents[0].physical, free.start);
    let len = content(&held.volume).unwrap().len();
    assert!(content(&held.volume).unwrap() == expected(len));
    held.volume.check_space().unwrap();
    close_clean(&held);
}

#[test]
fn power_cuts_leave_every_block_at_one_of_its_places() {
    power_cuts(gather_and_close);
}

#[test]
fn power_cuts_leave_every_extent_that_is_moved_at_one_of_its_places() {
    power_cuts(move_and_close);
}

fn power_cuts(change: fn(&Volume) -> Result<(), Error>) {
    for (name, args) in FORMATS {
        // Without a journal there is no such promise.
        if name == "ext2" {
            continue;
        }
        let Some(held) = prepared(name, args) else { continue };
        held.volume.close().unwrap();
        let base = held.device.to_vec();
        let device = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::from_bytes(&base))));
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
        change(&volume).unwrap();
        let mut states = CrashStates::new(MemoryDevice::from_bytes(&base), device.log());
        let points: Vec<usize> = states.points().collect();
        assert!(points.len() > 10, "{name}: {}", points.len());
        let step = if long("every point") { 1 } else { points.len().div_ceil(25) };
        for point in points.into_iter().step_by(step) {
            let what = format!("{name}, point {point}");
            compare_left(&bytes_of(&states.prefix(point).unwrap(), base.len()), &what);
            for seed in 0..2 {
                let left = bytes_of(&states.torn(point, seed).unwrap(), base.len());
                // A torn superblock is not in the log.
                if crc32c(!0, &left[1024..2044]).to_le_bytes() == left[2044..2048] || name == "ext3" {
                    compare_left(&left, &format!("{what}, seed {seed}"));
                }
            }
        }
    }
}

#[test]
fn each_operation_failing_in_turn_leaves_the_file_as_it_reads() {
    let Some(held) = prepared("ext4-1k", FORMATS[1].1) else { return };
    held.volume.close().unwrap();
    let bytes = held.device.to_vec();
    let operations = each_operation_failing(&bytes, unhurried, gather_and_close, |left, k| {
        // A volume that failed is marked so, and is only read.
        let held = in_memory_with(left, OpenOptions::read_only()).unwrap();
        let len = content(&held.volume).unwrap().len();
        assert!(content(&held.volume).unwrap() == expected(len), "operation {k}");
    });
    assert!(operations > 20, "{operations}");
}
