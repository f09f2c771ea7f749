//! Files are moved together: what they hold stays, in any format, whatever fails and wherever power is cut.

use crate::common::{
    InMemory, assert_clean_but_wide_bytes, close_clean, each_operation_failing, format_bytes, in_memory,
    in_memory_with, journalling_data, pattern, unhurried,
};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_engine::{Creation, Error, FallocateMode, OpenOptions, Volume};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::extent::Extent;
use hectare_oracle::{hunt, skip, skip_part};
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr};
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
    held.volume.symlink("a", "link", Creation::default()).unwrap();
    let link = held.volume.resolve("link", false).unwrap();
    let refused = held.volume.gather(link).unwrap_err().to_string();
    let wanted =
        refused.contains("neither a regular file nor a directory") && refused.contains(&link.to_string());
    assert!(wanted, "{refused}");
    let journal = held.volume.superblock().journal_inode().unwrap();
    let refused = held.volume.gather(journal).unwrap_err().to_string();
    assert!(refused.contains("it belongs to the format"), "{refused}");
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

/// Moves each extent of the file to the first free run that holds it, up to twelve of them; returns how many
/// that were.
fn move_some(
    volume: &Volume,
    nr: InodeNr,
    after_each: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<u64, Error> {
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
        after_each()?;
    }
    Ok(moved)
}

fn move_and_close(volume: &Volume) -> Result<(), Error> {
    let moved = move_some(volume, volume.resolve("a", true)?, &mut || Ok(()))?;
    assert!(moved > 8, "only {moved} extents have moved");
    volume.close()
}

/// Pieces that are written anew while extents move, in this order.
const REWRITTEN: [u64; 12] = [0, 7, 30, 61, 90, 101, 130, 150, 171, 190, 211, 239];

/// Moves extents as above; after each, a piece of the file is written anew and synced.
fn move_while_written(volume: &Volume) -> Result<(), Error> {
    let (nr, file) = (volume.resolve("a", true)?, volume.open_file("a")?);
    let mut pieces = REWRITTEN.into_iter();
    let moved = move_some(volume, nr, &mut || {
        let Some(n) = pieces.next() else { return Ok(()) };
        file.write_all_at(n * 4096, &pattern(1, n, 4096))?;
        file.sync()
    })?;
    assert!(moved > 8, "only {moved} extents have moved");
    drop(file);
    volume.close()
}

/// Compares the file that was written anew while its extents moved: where a piece has anything new, all before
/// it are new as a whole, since they were synced.
fn compare_rewritten(bytes: &[u8], what: &str) {
    let held = in_memory(bytes);
    let found = content(&held.volume).unwrap();
    let mut wanted = expected(found.len());
    let pieces = REWRITTEN.map(|n| (usize::try_from(n).unwrap() * 4096, pattern(1, n, 4096)));
    let is_touched = |(at, _): &&(usize, Vec<u8>)| found[*at..at + 4096] != wanted[*at..at + 4096];
    let touched = pieces.iter().rposition(|piece| is_touched(&piece)).map_or(0, |last| last + 1);
    for (nr, (at, new)) in pieces.iter().enumerate().take(touched) {
        let (new, found) = (new.chunks(512), found[*at..at + 4096].chunks(512));
        let old = wanted[*at..at + 4096].to_vec();
        let is_known =
            |((new, old), found): ((&[u8], &[u8]), &[u8])| found == new || nr + 1 == touched && found == old;
        assert!(new.zip(old.chunks(512)).zip(found).all(is_known), "{what}: piece {nr} of {touched}");
    }
    for (at, _) in pieces.iter().take(touched) {
        wanted[*at..at + 4096].copy_from_slice(&found[*at..at + 4096]);
    }
    assert!(found == wanted, "{what}");
    close_clean(&held);
}

#[test]
fn power_cuts_while_a_file_that_moves_is_written_lose_nothing_that_was_synced() {
    power_cuts(move_while_written, &compare_rewritten);
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
    let nothing = Extent { len: 0, ..first };
    assert!(!held.volume.move_extent(nr, nothing, free.start).unwrap(), "nothing was moved");
    for outside in [0, 16 << 10, u64::MAX - 1, u64::MAX] {
        let moved = held.volume.move_extent(nr, first, BlockNr::new(outside)).unwrap();
        assert!(!moved, "there is no block {outside}, or it is the superblock's");
    }
    assert!(held.volume.move_extent(nr, first, free.start).unwrap());
    assert_eq!(held.volume.inode_blocks(nr).unwrap().extents[0].physical, free.start);
    let len = content(&held.volume).unwrap().len();
    assert!(content(&held.volume).unwrap() == expected(len));
    held.volume.check_space().unwrap();
    close_clean(&held);
}

#[test]
fn power_cuts_leave_every_block_at_one_of_its_places() {
    power_cuts(gather_and_close, &compare_left);
}

#[test]
fn power_cuts_leave_every_extent_that_is_moved_at_one_of_its_places() {
    power_cuts(move_and_close, &compare_left);
}

fn power_cuts(change: fn(&Volume) -> Result<(), Error>, compare: &dyn Fn(&[u8], &str)) {
    for (name, args) in FORMATS {
        // Without a journal there is no such promise.
        if name == "ext2" {
            continue;
        }
        let Some(held) = prepared(name, args) else { continue };
        cut_power(name, &held, change, compare);
    }
}

/// Cuts the power at points of a change of a volume, and has `compare` look at what is left.
fn cut_power(
    name: &str,
    held: &InMemory,
    change: fn(&Volume) -> Result<(), Error>,
    compare: &dyn Fn(&[u8], &str),
) {
    held.volume.close().unwrap();
    let base = held.device.to_vec();
    let device = Arc::new(RecordDevice::new(Arc::new(MemoryDevice::from_bytes(&base))));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
    change(&volume).unwrap();
    let mut states = CrashStates::new(MemoryDevice::from_bytes(&base), device.log());
    let points: Vec<usize> = states.points().collect();
    assert!(points.len() > 10, "{name}: {}", points.len());
    // Some of them, from another on for each seed; all in a hunt.
    let step = if hunt::is_long() { 1 } else { points.len().div_ceil(8) };
    let first = usize::try_from(hunt::seed(name) % 8).unwrap() % step;
    for point in points.into_iter().skip(first).step_by(step) {
        let what = format!("{name}, point {point}");
        compare(&bytes_of(&states.prefix(point).unwrap(), base.len()), &what);
        for seed in 0..2 {
            let left = bytes_of(&states.torn(point, seed).unwrap(), base.len());
            // A torn superblock is not in the log.
            if crc32c(!0, &left[1024..2044]).to_le_bytes() == left[2044..2048] || name == "ext3" {
                compare(&left, &format!("{what}, seed {seed}"));
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

/// Names of the directory that is scattered.
const NAMES: u32 = 400;

fn name_in(dir: &str, nr: u32) -> String {
    format!("{dir}/{nr:0200}")
}

/// Makes a directory whose blocks are scattered: it grows in turn with others beside it.
fn scatter_directory(volume: &Volume) -> Result<(), Error> {
    let others = ["top/dir", "top/second", "top/third"];
    volume.create_dir("top", Creation::default())?;
    others.iter().try_for_each(|dir| volume.create_dir(dir, Creation::default()).map(drop))?;
    for nr in 0..NAMES {
        for dir in others {
            volume.create_file(name_in(dir, nr), Creation::default())?;
        }
    }
    volume.sync()
}

const DIRECTORIES: [(&str, &[&str]); 6] = [
    ("ext4", &["-t", "ext4", "-b", "4096"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024"]),
    ("no index", &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
    ("inline", &["-t", "ext4", "-b", "1024", "-O", "inline_data,fast_commit"]),
];

fn with_directory(name: &str, args: &[&str]) -> Option<InMemory> {
    match format_bytes(&[args, &["-m", "0"]].concat(), "16M") {
        Ok(bytes) => {
            let held = in_memory(&bytes);
            scatter_directory(&held.volume).unwrap();
            let nr = held.volume.resolve("top/dir", true).unwrap();
            let places = held.volume.inode_blocks(nr).unwrap().places();
            assert!(places > 5, "{name}: only {places} places");
            Some(held)
        }
        Err(reason) => {
            skip_part!(format!("gather a directory, {name}"), reason);
            None
        }
    }
}

/// Every name of the directory is listed once, and is found.
fn check_names(volume: &Volume, what: &str) {
    let listed: Vec<_> = volume.read_dir("top/dir").unwrap().into_iter().map(|entry| entry.name).collect();
    let listed = listed.iter().filter(|name| name.len() == 200).count();
    assert_eq!(listed, usize::try_from(NAMES).unwrap(), "{what}");
    for nr in 0..NAMES {
        assert!(volume.resolve(name_in("top/dir", nr), true).is_ok(), "{what}: {nr}");
    }
}

#[test]
fn a_scattered_directory_comes_to_lie_in_one_place() {
    for (name, args) in DIRECTORIES {
        let Some(held) = with_directory(name, args) else { continue };
        let nr = held.volume.resolve("top/dir", true).unwrap();
        let before = held.volume.stat(nr).unwrap();
        let gathered = held.volume.gather(nr).unwrap();
        let blocks = held.volume.inode_blocks(nr).unwrap();
        assert_eq!((gathered.after, blocks.places()), (1, 1), "{name}: {gathered:?}");
        assert!(gathered.moved.get() >= 20 && gathered.before > 5, "{name}: {gathered:?}");
        let after = held.volume.stat(nr).unwrap();
        assert_eq!(
            (before.mtime, before.ctime, before.size),
            (after.mtime, after.ctime, after.size),
            "{name}"
        );
        check_names(&held.volume, name);
        assert_eq!(held.volume.gather(nr).unwrap().moved.get(), 0, "{name}");
        // It goes on growing and shrinking.
        held.volume.create_file("top/dir/another", Creation::default()).unwrap();
        held.volume.remove_file("top/dir/another").unwrap();
        held.volume.check_space().unwrap();
        close_clean(&held);
        let again = in_memory(&held.device.to_vec());
        check_names(&again.volume, name);
        close_clean(&again);
    }
}

fn gather_directory_and_close(volume: &Volume) -> Result<(), Error> {
    let nr = volume.resolve("top/dir", true)?;
    volume.gather(nr)?;
    volume.close()
}

#[test]
fn power_cuts_leave_every_name_of_a_directory_that_is_gathered() {
    let compare = |bytes: &[u8], what: &str| {
        let held = in_memory(bytes);
        check_names(&held.volume, what);
        close_clean(&held);
    };
    for (name, args) in DIRECTORIES.into_iter().filter(|(name, _)| *name != "ext2") {
        let Some(held) = with_directory(name, args) else { continue };
        cut_power(name, &held, gather_directory_and_close, &compare);
    }
}

#[test]
fn each_operation_failing_in_turn_leaves_a_directory_as_it_reads() {
    let Some(held) = with_directory("ext4-1k", DIRECTORIES[1].1) else { return };
    held.volume.close().unwrap();
    let bytes = held.device.to_vec();
    let operations = each_operation_failing(&bytes, unhurried, gather_directory_and_close, |left, k| {
        let held = in_memory_with(left, OpenOptions::read_only()).unwrap();
        check_names(&held.volume, &format!("operation {k}"));
    });
    assert!(operations > 10, "{operations}");
}

/// A file whose content is journalled, by the volume's mode.
#[test]
fn journalled_content_moves_through_the_log_and_survives_power_cuts() {
    for (name, args) in FORMATS.into_iter().filter(|(name, _)| *name != "ext2") {
        let bytes = match format_bytes(&[args, &["-m", "0"]].concat(), "16M") {
            Ok(bytes) => bytes,
            Err(reason) => {
                skip_part!(format!("gather journalled content, {name}"), reason);
                continue;
            }
        };
        let held = in_memory(&bytes);
        scatter(&held.volume).unwrap();
        held.volume.close().unwrap();
        let bytes = match journalling_data(&held.device.to_vec()) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("gather::journalled_content", reason),
        };
        let held = in_memory(&bytes);
        let nr = held.volume.resolve("a", true).unwrap();
        // A part of it is in the cache and in the log only.
        let file = held.volume.open_file("a").unwrap();
        file.write_all_at(30 * 4096, &pattern(0, 30, 4096)).unwrap();
        let gathered = held.volume.gather(nr).unwrap();
        assert!(gathered.after == 2 && gathered.before > 10, "{name}: {gathered:?}");
        let len = content(&held.volume).unwrap().len();
        assert!(content(&held.volume).unwrap() == expected(len), "{name}");
        held.volume.check_space().unwrap();
        close_clean(&held);
        compare_left(&held.device.to_vec(), name);
        // A part of the steps leaves nodes that are not full.
        cut_power(name, &in_memory(&bytes), gather_and_close, &|left, what| {
            let held = in_memory(left);
            let len = content(&held.volume).unwrap().len();
            assert!(content(&held.volume).unwrap() == expected(len), "{what}");
            held.volume.close().unwrap();
            assert_clean_but_wide_bytes(&held.device.to_vec());
        });
    }
}
