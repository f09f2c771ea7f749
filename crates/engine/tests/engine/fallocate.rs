//! Space before writing: allocated ranges read as zeros, here and in the kernel, and hold what is written
//! later.

use crate::common::{close_clean, format_bytes, in_memory, open_image, pattern};
use hectare_engine::{Creation, Error, OpenFile};
use hectare_oracle::trees::Random;
use hectare_oracle::{Combo, KernelMount, assert_clean, skip, skip_part};

const SIZE: u64 = 600_000;

/// Random allocations, writes and cuts; what the file should then hold.
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
