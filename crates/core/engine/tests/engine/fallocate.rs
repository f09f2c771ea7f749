//! Preallocation: allocated ranges read as zeros, here and in the kernel, and hold what is written later.

use crate::common::{
    assert_clean_bytes, close_clean, format_bytes, in_memory, open_image, pattern, try_open_image, unhurried,
};
use hectare_device::{Device, FaultDevice, MemoryDevice, Outcome, Rule};
use hectare_engine::{Creation, Error, OpenFile, OpenOptions, Policy, Volume};
use hectare_oracle::trees::Random;
use hectare_oracle::{Combo, KernelMount, assert_clean, skip, skip_part};
use std::sync::Arc;

const SIZE: u64 = 600_000;

/// Random allocations, writes and truncates; returns the content that the file should then hold.
fn exercise(file: &OpenFile, random: &mut Random, label: &str) -> Vec<u8> {
    let mut content: Vec<u8> = Vec::new();
    for step in 0..100_u64 {
        let (at, len) = (random.below(SIZE), 1 + random.below(40_000));
        let end = usize::try_from(at + len).unwrap();
        match step % 5 {
            0 | 1 => {
                let keep_size = step % 2 == 0;
                file.allocate(at, len, keep_size).unwrap();
                if !keep_size {
                    content.resize(content.len().max(end), 0);
                }
            }
            2 | 3 => {
                let data = pattern(step, at, usize::try_from(len).unwrap());
                file.write_all_at(at, &data).unwrap();
                content.resize(content.len().max(end), 0);
                content[usize::try_from(at).unwrap()..end].copy_from_slice(&data);
            }
            _ => {
                file.set_len(at).unwrap();
                content.resize(usize::try_from(at).unwrap(), 0);
            }
        }
        let mut read = vec![0xaa; content.len() + 1];
        assert_eq!(file.read_at(0, &mut read).unwrap(), content.len(), "{label}, step {step}");
        assert!(read[..content.len()] == content, "{label}, step {step}");
    }
    content
}

#[test]
fn allocated_ranges_read_as_zeros_and_take_what_is_written() {
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    for name in ["ext4", "ext4-1k", "bigalloc", "bigalloc-1k", "uninit-bg"] {
        let _ = std::fs::remove_file(&image);
        let combo = Combo::named(name);
        if let Err(reason) = combo.make(&image) {
            skip_part!(format!("fallocate, {name}"), reason);
            continue;
        }
        let volume = open_image(&image);
        let file = volume.create_file("file", Creation::default()).unwrap();
        let content = exercise(&file, &mut Random::new(name), name);
        drop(file);
        volume.close().unwrap();
        drop(volume);
        if let Err(reason) = assert_clean(&image) {
            skip_part!(format!("fallocate, {name}, e2fsck"), reason);
        }
        match combo.mountable().and_then(|()| KernelMount::read_only(&image, "")) {
            Ok(mount) => {
                let read = std::fs::read(mount.path().join("file")).unwrap();
                assert!(read == content, "{name}: the kernel reads it otherwise");
            }
            Err(reason) => skip_part!(format!("fallocate, {name}, kernel"), reason),
        }
    }
}

#[test]
fn a_volume_that_runs_full_leaves_the_file_as_long_as_what_it_got() {
    let held = match format_bytes(&["-t", "ext4", "-b", "1024", "-m", "0"], "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("fallocate::a_volume_that_runs_full", reason),
    };
    let before = held.volume.statfs().unwrap().free;
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    assert!(matches!(file.allocate(0, 64 << 20, false), Err(Error::NoSpace)));
    let metadata = file.metadata().unwrap();
    assert_eq!(held.volume.statfs().unwrap().available.get(), 0, "exact to the last block");
    assert!(metadata.size > 1 << 20 && metadata.size < 8 << 20, "{} bytes", metadata.size);
    file.set_len(0).unwrap();
    held.volume.sync().unwrap();
    assert_eq!(held.volume.statfs().unwrap().free, before, "all of it comes back");
    let second = held.volume.create_file("second", Creation::default()).unwrap();
    assert!(matches!(second.allocate(0, 64 << 20, true), Err(Error::NoSpace)));
    assert_eq!(second.metadata().unwrap().size, 0);
    drop((file, second));
    close_clean(&held);
}

#[test]
fn an_empty_or_endless_range_is_refused() {
    let held = match format_bytes(&["-t", "ext4", "-b", "1024"], "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("fallocate::an_empty_or_endless_range", reason),
    };
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    assert!(matches!(file.allocate(5, 0, false), Err(Error::Invalid(_))));
    assert!(matches!(file.allocate(u64::MAX - 3, 8, false), Err(Error::FileTooLarge)));
    assert!(matches!(file.allocate(1 << 62, 8, true), Err(Error::FileTooLarge)));
    assert_eq!(file.metadata().unwrap().sectors, 0);
    drop(file);
    close_clean(&held);
}

#[test]
fn space_whose_extents_find_no_room_in_the_tree_is_not_mapped_and_given_back() {
    // One allocation becomes more extents than the inode holds, and takes all space: no block is left for the
    // tree to grow by.
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    for policy in Policy::ALL {
        let args = ["-t", "ext4", "-b", "1024", "-O", "bigalloc,^has_journal", "-C", "65536", "-N", "64"];
        let _ = std::fs::remove_file(&image);
        if let Err(reason) = hectare_oracle::mke2fs(&[&args[..], &["-m", "0"]].concat(), &image, "240M") {
            skip!("fallocate::space_whose_extents_find_no_room", reason);
        }
        let volume = try_open_image(&image, OpenOptions { policy, ..OpenOptions::default() }).unwrap();
        let free = volume.statfs().unwrap().free.get();
        let file = volume.create_file("file", Creation::default()).unwrap();
        assert!(matches!(file.allocate(0, 1 << 30, false), Err(Error::NoSpace)));
        let mapped: u64 = file.extents().unwrap().iter().map(|extent| u64::from(extent.len)).sum();
        let metadata = file.metadata().unwrap();
        let left = volume.statfs().unwrap().free.get();
        assert!(mapped <= free - left, "{policy}: {mapped} blocks are mapped, {free} were free, {left} are");
        assert_eq!(metadata.size, mapped << 10, "{policy}: as long as what it got");
        volume.check_space().unwrap();
        drop(file);
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
    }
}

#[test]
fn a_write_that_fails_half_way_leaves_no_written_block_beyond_the_end() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("fallocate::a_write_that_fails_half_way", reason),
    };
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
    let file = volume.create_file("file", Creation::default()).unwrap();
    // Two unwritten extents with a hole between them, so that one write is split.
    file.allocate(0, 50 << 10, true).unwrap();
    file.allocate(60 << 10, 50 << 10, true).unwrap();
    device.add(Rule::new(Outcome::IO).after(1).times(1));
    let result = file.write_at(0, &pattern(1, 0, 110 << 10));
    assert!(matches!(result, Err(Error::Device(_))), "{result:?}");
    assert_eq!(device.strikes(), 1);
    assert_eq!(file.metadata().unwrap().size, 50 << 10, "what was written is in the file");
    drop(file);
    volume.close().unwrap();
    assert_clean_bytes(&memory.to_vec());
}

#[test]
fn setting_the_size_a_file_has_gives_back_what_lies_beyond() {
    let held = match format_bytes(&["-t", "ext4", "-b", "1024"], "8M") {
        Ok(bytes) => in_memory(&bytes),
        Err(reason) => skip!("fallocate::setting_the_size_a_file_has", reason),
    };
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.write_all_at(0, &[1; 1500]).unwrap();
    file.allocate(0, 100 << 10, true).unwrap();
    assert_eq!(file.metadata().unwrap().sectors, 200);
    file.set_len(1500).unwrap();
    assert_eq!(file.metadata().unwrap().sectors, 4);
    drop(file);
    close_clean(&held);
}

#[test]
fn what_was_allocated_can_be_written_when_nothing_else_is_left() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("fallocate::what_was_allocated_can_be_written", reason),
    };
    let held = in_memory(&bytes);
    let size = 300 << 10;
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    file.allocate(0, size, false).unwrap();
    let rest = held.volume.create_file("rest", Creation::default()).unwrap();
    assert!(matches!(rest.allocate(0, 64 << 20, true), Err(Error::NoSpace)));
    assert_eq!(held.volume.statfs().unwrap().available.get(), 0);
    // Each write into the middle needs two extents more, and the inode soon has no room for them.
    let mut content = vec![0; usize::try_from(size).unwrap()];
    let mut random = Random::new("the last blocks");
    for step in 0..60 {
        let at = random.below(size - 3000);
        let data = pattern(step, at, 1 + usize::try_from(random.below(3000)).unwrap());
        file.write_all_at(at, &data).unwrap();
        let at = usize::try_from(at).unwrap();
        content[at..at + data.len()].copy_from_slice(&data);
        let mut read = vec![0xaa; content.len()];
        file.read_at(0, &mut read).unwrap();
        assert!(read == content, "step {step}");
    }
    drop((file, rest));
    close_clean(&held);
}
