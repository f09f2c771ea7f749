//! Orphans: what a crash leaves of files that were open without a name or being truncated, and their cleanup.
//! e2fsck, the kernel and the engine must find the orphans that the engine leaves, and nothing else; the
//! engine those that the kernel leaves.
//!
//! A crash is made by copying the bytes of the device while the volume is open, after a sync.

use crate::common::{
    InMemory, assert_clean_bytes, close_clean, entries_of, format_bytes, in_memory, in_memory_with,
    open_image, pattern, save, try_open_image, unhurried,
};
use hectare_device::MemoryDevice;
use hectare_engine::{Cleaned, Creation, OpenFile, OpenOptions, RenameMode, Volume};
use hectare_oracle::fsck::e2fsck_with;
use hectare_oracle::{KernelMount, debugfs, debugfs_write, mke2fs, skip};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

const FORMATS: [(&str, &[&str]); 6] = [
    ("list", &["-t", "ext4", "-J", "size=4"]),
    ("list, 1K", &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
    (
        "list, no checksums, 128",
        &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum", "-J", "size=1"],
    ),
    ("file", &["-t", "ext4", "-O", "orphan_file", "-J", "size=4"]),
    ("file, no checksums", &["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum", "-J", "size=1"]),
    ("bigalloc", &["-t", "ext4", "-b", "1024", "-O", "bigalloc,orphan_file", "-C", "4096", "-J", "size=1"]),
];

fn each_format(test: &str, check: impl Fn(&str, Vec<u8>)) {
    for (name, args) in FORMATS {
        match format_bytes(args, "32M") {
            Ok(bytes) => check(name, bytes),
            Err(reason) => return hectare_oracle::skip_part!(format!("orphans::{test}"), reason),
        }
    }
}

/// A file of many extents.
fn write_comb(file: &OpenFile, seed: u64) {
    for n in 0..200 {
        file.write_all_at(n * 10_000, &pattern(seed, n, 1500)).unwrap();
    }
}

/// What is open without a name: small, of many extents, replaced by a rename, with an attribute block.
fn leave_open(volume: &Volume) -> Vec<OpenFile> {
    let c = Creation::default();
    let mut open = Vec::new();
    volume.create_dir_all("kept/deep", c).unwrap();
    volume.write_file("kept/file", &pattern(7, 0, 50_000), c).unwrap();
    for name in ["empty", "small", "large", "replaced", "attributed"] {
        volume.write_file(name, if name == "small" { b"some" } else { b"" }, c).unwrap();
        let file = volume.open_file(name).unwrap();
        match name {
            "large" | "replaced" => write_comb(&file, 1),
            "attributed" => {
                let how = hectare_engine::XattrHow::Either;
                volume.set_xattr(file.inode(), "user.large", &[b'v'; 600], how).unwrap();
            }
            _ => {}
        }
        open.push(file);
    }
    volume.write_file("new", b"new", c).unwrap();
    volume.rename_path("new", "replaced", RenameMode::Replace).unwrap();
    for name in ["empty", "small", "large", "attributed"] {
        volume.remove_file(name).unwrap();
    }
    open
}

fn numbers(files: &[OpenFile]) -> BTreeSet<u32> {
    files.iter().map(|file| file.inode().get()).collect()
}

fn in_folder<R>(bytes: &[u8], look: impl FnOnce(&Path) -> R) -> R {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    look(&image)
}

/// Replays the journal, and does no more.
fn replay(image: &Path) {
    debugfs_write(image, &["journal_run"]).unwrap();
}

/// The content of a volume, without times.
fn content_of(volume: &Volume) -> Vec<(Vec<u8>, u64, [u8; 32])> {
    entries_of(volume).into_iter().map(|entry| (entry.path, entry.size, entry.digest)).collect()
}

/// Fails unless e2fsck clears exactly these orphans, finds nothing else, and then the volume clean.
fn assert_cleared(image: &Path, orphans: &BTreeSet<u32>) {
    let report = e2fsck_with(image, &["-fy"]).unwrap();
    let number = |line: &str| -> Option<u32> {
        let (_, rest) = line.split_once("orphaned inode ")?;
        rest.split(' ').next()?.parse().ok()
    };
    let told: BTreeSet<u32> = report.output.lines().filter_map(number).collect();
    assert_eq!(&told, orphans, "{}", report.output);
    // It checks whether the orphan file is empty before it empties it.
    let file = |line: &str| line.starts_with("Orphan file (inode ") && line.ends_with(" is not clean.");
    let in_file = report.output.lines().filter(|line| file(line)).count();
    assert_eq!(report.questions.len(), in_file, "{}", report.output);
    hectare_oracle::assert_clean(image).unwrap();
}

#[test]
fn files_open_without_a_name_are_cleared_by_all() {
    each_format("files_open_without_a_name", |name, bytes| {
        let held = in_memory(&bytes);
        let open = leave_open(&held.volume);
        held.volume.sync().unwrap();
        let crashed = held.device.to_vec();
        let kept = content_of(&held.volume);
        // While they are open they can be read, written and truncated.
        assert_eq!(open[1].read_at(0, &mut [0; 10]).unwrap(), 4);
        open[2].set_len(100).unwrap();
        open[1].write_all_at(50_000, b"more").unwrap();
        let orphans = numbers(&open);
        drop(open);
        close_clean(&held);
        assert_eq!(held.volume.cleaned(), Cleaned::default());

        in_folder(&crashed, |image| assert_cleared(image, &orphans));
        let again = in_memory(&crashed);
        let freed = u64::try_from(orphans.len()).unwrap();
        assert_eq!(again.volume.cleaned(), Cleaned { freed, cut: 0 }, "{name}");
        assert_eq!(content_of(&again.volume), kept);
        again.volume.write_file("after", &pattern(3, 0, 300_000), Creation::default()).unwrap();
        close_clean(&again);
        assert_eq!(in_memory(&again.device.to_vec()).volume.cleaned(), Cleaned::default());
        // Opening for reading only leaves them.
        let reader = in_memory_with(&crashed, OpenOptions::read_only()).unwrap();
        assert_eq!(content_of(&reader.volume), kept);
        reader.volume.close().unwrap();
        assert!(reader.device.to_vec() == crashed, "{name}: bytes changed");
    });
}

#[test]
fn the_kernel_clears_ours() {
    if let Err(reason) = hectare_oracle::mount::can_mount() {
        skip!("orphans::the_kernel_clears_ours", reason);
    }
    each_format("the_kernel_clears_ours", |name, bytes| {
        let held = in_memory(&bytes);
        let open = leave_open(&held.volume);
        held.volume.sync().unwrap();
        in_folder(&held.device.to_vec(), |image| {
            match KernelMount::new(image, "") {
                Ok(mount) => {
                    assert_eq!(fs::read(mount.path().join("kept/file")).unwrap(), pattern(7, 0, 50_000));
                    mount.unmount();
                }
                Err(reason) => {
                    return hectare_oracle::skip_part!(format!("the_kernel_clears_ours, {name}"), reason);
                }
            }
            assert_cleared(image, &BTreeSet::new());
            let volume = open_image(image);
            assert_eq!(volume.cleaned(), Cleaned::default(), "{name}");
        });
        drop(open);
    });
}

#[test]
fn each_is_off_the_list_when_it_is_closed() {
    each_format("each_is_off_the_list", |name, bytes| {
        let held = in_memory(&bytes);
        let mut open = leave_open(&held.volume);
        // From the middle, the ends, and the rest.
        for at in [2, 0, 2, 0, 0] {
            drop(open.remove(at));
            held.volume.sync().unwrap();
            in_folder(&held.device.to_vec(), |image| assert_cleared(image, &numbers(&open)));
        }
        let bytes = held.device.to_vec();
        assert_eq!(in_memory(&bytes).volume.cleaned(), Cleaned::default(), "{name}");
        close_clean(&held);
    });
}

#[test]
fn what_becomes_and_ceases_to_be_one_in_a_transaction_leaves_no_trace() {
    each_format("no_trace", |name, bytes| {
        let held = in_memory(&bytes);
        drop(leave_open(&held.volume));
        held.volume.sync().unwrap();
        in_folder(&held.device.to_vec(), |image| {
            replay(image);
            let words = hectare_oracle::dumpe2fs(image).unwrap();
            assert!(!words.fields.contains_key("First orphan inode"), "{name}");
            assert!(!words.has("orphan_present"), "{name}");
            assert_cleared(image, &BTreeSet::new());
        });
    });
}

/// Files that the kernel has open without a name, copied while it has them.
fn kernels_orphans(image: &Path) -> Result<(Vec<u8>, u64), hectare_oracle::Skip> {
    let mount = KernelMount::new(image, "")?;
    let mut open = Vec::new();
    for n in 0..20u64 {
        let path = mount.path().join(format!("file{n}"));
        let file = fs::File::create(&path).unwrap();
        for tooth in 0..n * 3 {
            file.write_all_at(&pattern(n, tooth, 2000), tooth * 9000).unwrap();
        }
        open.push(file);
        fs::remove_file(&path).unwrap();
    }
    fs::write(mount.path().join("kept"), pattern(1, 0, 100_000)).unwrap();
    assert!(open.iter().all(|file| file.metadata().unwrap().nlink() == 0));
    let freeze = |flag: &str| {
        let mut tool = hectare_oracle::tool::need("fsfreeze").unwrap();
        let _ = hectare_oracle::tool::run(tool.arg(flag).arg(mount.path())).expect_success();
    };
    freeze("-f");
    let copy = fs::read(image).unwrap();
    freeze("-u");
    Ok((copy, 20))
}

#[test]
fn the_kernels_are_cleaned_up() {
    if let Err(reason) =
        hectare_oracle::mount::can_mount().and_then(|()| hectare_oracle::tool::need("fsfreeze").map(drop))
    {
        skip!("orphans::the_kernels_are_cleaned_up", reason);
    }
    for (name, args) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        mke2fs(args, &image, "32M").unwrap();
        let (copy, count) = match kernels_orphans(&image) {
            Ok(made) => made,
            Err(reason) => {
                hectare_oracle::skip_part!(format!("orphans::the_kernels_are_cleaned_up, {name}"), reason);
                continue;
            }
        };
        let held = in_memory(&copy);
        assert_eq!(held.volume.cleaned(), Cleaned { freed: count, cut: 0 }, "{name}");
        assert_eq!(held.volume.read("kept").unwrap(), pattern(1, 0, 100_000));
        close_clean(&held);
    }
}

/// A volume with a file, marked by debugfs as being truncated to `size`.
fn half_cut(image: &Path, args: &[&str], size: u64) -> Result<u32, hectare_oracle::Skip> {
    mke2fs(args, image, "32M")?;
    let volume = open_image(image);
    volume.write_file("cut", b"", Creation::default()).unwrap();
    let file = volume.open_file("cut").unwrap();
    write_comb(&file, 5);
    file.write_all_at(0, &pattern(9, 0, 9000)).unwrap();
    let nr = file.inode().get();
    drop(file);
    volume.close().unwrap();
    let requests =
        [format!("set_inode_field <{nr}> size {size}"), format!("set_super_value last_orphan {nr}")];
    debugfs_write(image, &requests.each_ref().map(String::as_str))?;
    Ok(nr)
}

#[test]
fn a_cut_that_was_cut_off_is_finished() {
    for (name, args) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if let Err(reason) = half_cut(&image, args, 5555) {
            skip!("orphans::a_cut_that_was_cut_off", reason);
        }
        let volume = open_image(&image);
        assert_eq!(volume.cleaned(), Cleaned { freed: 0, cut: 1 }, "{name}");
        assert_eq!(volume.read("cut").unwrap(), pattern(9, 0, 5555), "{name}");
        let file = volume.open_file("cut").unwrap();
        assert!(file.extents().unwrap().iter().all(|extent| extent.end() * 1024 < 16_384), "{name}");
        // The old content does not come back.
        file.set_len(9000).unwrap();
        let mut tail = vec![1; 3445];
        assert_eq!(file.read_at(5555, &mut tail).unwrap(), 3445);
        assert!(tail.iter().all(|byte| *byte == 0), "{name}");
        drop(file);
        volume.close().unwrap();
        hectare_oracle::assert_clean(&image).unwrap();
        assert!(debugfs(&image, &["show_super_stats -h"]).unwrap().contains("Inode count"));
    }
}

#[test]
fn broken_lists_keep_the_volume_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let nr = match half_cut(&image, FORMATS[0].1, 5555) {
        Ok(nr) => nr,
        Err(reason) => skip!("orphans::broken_lists", reason),
    };
    let good = fs::read(&image).unwrap();
    let free = nr + 1;
    let itself = format!("set_inode_field <{nr}> dtime @{nr}");
    let to_free = format!("set_inode_field <{nr}> dtime @{free}");
    let beyond = format!("set_inode_field <{nr}> dtime @123456789");
    let first_free = format!("set_super_value last_orphan {free}");
    let cases: [(&[&str], u32); 6] = [
        (&[&itself], nr),
        (&[&to_free], free),
        (&[&beyond], 123_456_789),
        (&[&first_free], free),
        (&["set_super_value last_orphan 8"], 8),
        (&["set_super_value last_orphan 4000000000"], 4_000_000_000),
    ];
    for (requests, culprit) in cases {
        fs::write(&image, &good).unwrap();
        debugfs_write(&image, requests).unwrap();
        let broken = fs::read(&image).unwrap();
        let error = try_open_image(&image, OpenOptions::default()).err().expect("it was opened");
        let text = error.to_string();
        assert!(text.contains(&culprit.to_string()), "{requests:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(fs::read(&image).unwrap() == broken, "{requests:?}: bytes changed");
        try_open_image(&image, OpenOptions::read_only()).unwrap();
    }
}

#[test]
fn a_full_orphan_file_leaves_the_rest_to_the_list() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "4000",
        "-O",
        "orphan_file",
        "-E",
        "orphan_file_size=2",
        "-J",
        "size=1",
    ];
    let bytes = match format_bytes(&args, "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("orphans::a_full_orphan_file", reason),
    };
    let held = in_memory(&bytes);
    let mut open: Vec<OpenFile> = (0..1200)
        .map(|n| {
            let name = format!("f{n}");
            held.volume.write_file(&name, b"", Creation::default()).unwrap();
            let file = held.volume.open_file(&name).unwrap();
            held.volume.remove_file(&name).unwrap();
            file
        })
        .collect();
    held.volume.sync().unwrap();
    let full = held.device.to_vec();
    in_folder(&full, |image| {
        replay(image);
        let dump = hectare_oracle::dumpe2fs(image).unwrap();
        let both = dump.has("orphan_present") && dump.fields.contains_key("First orphan inode");
        assert!(both, "{:?}", dump.fields);
        assert_cleared(image, &numbers(&open));
    });
    let again = in_memory(&full);
    assert_eq!(again.volume.cleaned(), Cleaned { freed: 1200, cut: 0 });
    close_clean(&again);
    // Every third is closed, wherever it is recorded; then as many are added again.
    let mut n = 0;
    open.retain(|_| {
        n += 1;
        n % 3 > 0
    });
    held.volume.sync().unwrap();
    in_folder(&held.device.to_vec(), |image| assert_cleared(image, &numbers(&open)));
    drop(open);
    close_clean(&held);
}

/// Makes, opens, truncates and removes files, and keeps some of them open.
fn churn(volume: &Volume, thread: u64, rounds: u64) -> Vec<OpenFile> {
    let c = Creation::default();
    let mut open = Vec::new();
    for n in 0..rounds {
        let name = format!("t{thread}-{n}");
        volume.write_file(&name, b"", c).unwrap();
        let file = volume.open_file(&name).unwrap();
        if n % 3 == 0 {
            write_comb(&file, n);
            file.set_len(n * 700).unwrap();
        }
        volume.remove_file(&name).unwrap();
        if n % 2 == 0 {
            open.push(file);
        }
        if open.len() > 20 {
            open.remove((n % 7) as usize);
        }
    }
    open
}

#[test]
fn threads_keep_the_list_whole() {
    each_format("threads_keep_the_list_whole", |name, bytes| {
        let held = in_memory(&bytes);
        let volume = &held.volume;
        let open: Vec<OpenFile> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|t| scope.spawn(move || churn(volume, t, 40))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        volume.sync().unwrap();
        let crashed = held.device.to_vec();
        in_folder(&crashed, |image| assert_cleared(image, &numbers(&open)));
        let again = in_memory(&crashed);
        assert_eq!(again.volume.cleaned().freed, open.len() as u64, "{name}");
        close_clean(&again);
        drop(open);
        close_clean(&held);
    });
}

#[test]
fn without_a_journal_nothing_is_noted() {
    let bytes = match format_bytes(&["-t", "ext4", "-O", "^has_journal"], "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("orphans::without_a_journal", reason),
    };
    let held: InMemory = in_memory(&bytes);
    let open = leave_open(&held.volume);
    held.volume.sync().unwrap();
    assert_eq!(held.volume.superblock().last_orphan(), None);
    let on_device = held.device.to_vec();
    let last_orphan = 1024 + 0xe8;
    assert_eq!(&on_device[last_orphan..last_orphan + 4], &[0; 4]);
    drop(open);
    close_clean(&held);
    // One that was recorded while there was a journal is cleaned up all the same.
    in_folder(&bytes, |image| {
        let args = ["-t", "ext4", "-O", "^has_journal"];
        half_cut(image, &args, 100).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&fs::read(image).unwrap()));
        let volume = Volume::open(Arc::clone(&device) as _, OpenOptions::default()).unwrap();
        assert_eq!(volume.cleaned(), Cleaned { freed: 0, cut: 1 });
        volume.close().unwrap();
        assert_clean_bytes(&device.to_vec());
    });
}

#[test]
fn regression_a_nameless_file_that_is_cut_stays_an_orphan() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("orphans::regression_a_nameless_file", reason),
    };
    let options = unhurried();
    let held = in_memory_with(&bytes, options.clone()).unwrap();
    let file = held.volume.create_file("gone", Creation::default()).unwrap();
    file.write_all_at(0, &[1; 9000]).unwrap();
    held.volume.remove_file("gone").unwrap();
    file.set_len(0).unwrap();
    held.volume.sync().unwrap();
    let again = in_memory_with(&held.device.to_vec(), options).unwrap();
    assert_eq!(again.volume.cleaned().freed, 1);
    close_clean(&again);
}
