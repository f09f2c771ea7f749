//! Volumes with a journal: e2fsck, the kernel and the engine itself replay the log that the engine leaves;
//! the engine replays the logs that they leave.
//!
//! A crash is made by copying the bytes of the device while the volume is open, after a sync. The crash
//! harness covers crashes at every other moment.

use crate::common::{
    InMemory, assert_clean_bytes, entries_of, format_bytes, in_memory, in_memory_with, open_image, pattern,
    save, unhurried,
};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, DataMode, FallocateMode, OpenOptions, RenameMode, Volume, XattrHow};
use hectare_oracle::{Entry, KernelMount, skip};
use std::path::Path;
use std::sync::Arc;

const FORMATS: [(&str, &[&str], &str); 5] = [
    ("1K", &["-t", "ext4", "-b", "1024", "-J", "size=1"], "16M"),
    ("4K", &["-t", "ext4", "-b", "4096", "-J", "size=4"], "32M"),
    ("no checksums", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"], "16M"),
    ("32 bit", &["-t", "ext4", "-b", "1024", "-O", "^64bit", "-J", "size=1"], "16M"),
    ("bigalloc", &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384", "-J", "size=1"], "64M"),
];

/// The first bytes of each block of a log; a block of data that begins so is escaped.
pub(crate) const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// No thread: commits happen only on request.
fn options() -> OpenOptions {
    OpenOptions { seed: Some(1), ..unhurried() }
}

fn quiet(bytes: &[u8]) -> InMemory {
    in_memory_with(bytes, options()).unwrap()
}

/// Some of everything, more than a small log holds; `round` varies it between calls.
pub(crate) fn work(volume: &Volume, round: u64) {
    let c = Creation::default();
    volume.create_dir_all(format!("r{round}/deep/er"), c).unwrap();
    for n in 0..40 {
        let path = format!("r{round}/{n}-{}", "n".repeat(100));
        volume.write_file(&path, &pattern(n, round, 700 * n as usize), c).unwrap();
        if n % 3 == 0 {
            volume.remove_file(&path).unwrap();
        }
    }
    let begins_as_a_log: Vec<u8> =
        pattern(round, 0, 9000).chunks(1024).flat_map(|block| [&MAGIC[..], &block[4..]].concat()).collect();
    volume.write_file(format!("r{round}/magic"), &begins_as_a_log, c).unwrap();
    volume.symlink([b't'; 200], format!("r{round}/link"), c).unwrap();
    let nr = volume.make(format!("r{round}/attr"), hectare_engine::NewNode::File, c).unwrap();
    volume.set_xattr(nr, "user.large", &vec![round as u8; 600], XattrHow::Either).unwrap();
    volume.rename_path(format!("r{round}/link"), format!("r{round}/deep/link"), RenameMode::Replace).unwrap();
    if let Some(last) = round.checked_sub(1) {
        volume.remove_dir_all(format!("r{last}/deep")).unwrap();
    }
}

/// The bytes of a volume as a crash after some rounds leaves them, with its entries.
fn crashed(bytes: &[u8], rounds: u64, data_mode: Option<DataMode>) -> (Vec<u8>, Vec<Entry>) {
    let held = in_memory_with(bytes, OpenOptions { data_mode, ..options() }).unwrap();
    for round in 0..rounds {
        work(&held.volume, round);
        held.volume.sync().unwrap();
    }
    let entries = entries_of(&held.volume);
    let left = held.device.to_vec();
    held.volume.close().unwrap();
    assert_clean_bytes(&held.device.to_vec());
    (left, entries)
}

/// Each kind of volume in each data mode.
fn each_format(test: &str, check: impl Fn(&str, &[u8], Option<DataMode>)) {
    for (name, args, size) in FORMATS {
        match format_bytes(args, size) {
            Ok(bytes) => {
                check(name, &bytes, None);
                check(&format!("{name}, data=journal"), &bytes, Some(DataMode::Journal));
            }
            Err(reason) => return hectare_oracle::skip_part!(format!("logged::{test}"), reason),
        }
    }
}

fn in_folder<R>(bytes: &[u8], look: impl FnOnce(&Path) -> R) -> R {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    look(&image)
}

#[test]
fn e2fsck_replays_what_the_engine_left() {
    each_format("e2fsck", |name, bytes, data_mode| {
        let (left, entries) = crashed(bytes, 4, data_mode);
        in_folder(&left, |image| {
            let report = hectare_oracle::fsck::e2fsck_with(image, &["-fy"]).unwrap();
            assert!(report.output.contains("recovering journal"), "{name}: {}", report.output);
            assert!(report.questions.is_empty(), "{name}: {}", report.output);
            hectare_oracle::assert_clean(image).unwrap();
            let volume = crate::common::open_read_only(image);
            assert_eq!(entries_of(&volume), entries, "{name}");
        });
    });
}

#[test]
fn the_engine_replays_what_it_left() {
    each_format("engine", |name, bytes, data_mode| {
        let (left, entries) = crashed(bytes, 4, data_mode);
        let again = quiet(&left);
        assert_eq!(entries_of(&again.volume), entries, "{name}");
        work(&again.volume, 4);
        again.volume.close().unwrap();
        assert_clean_bytes(&again.device.to_vec());
    });
}

#[test]
fn the_kernel_replays_what_the_engine_left() {
    each_format("kernel", |name, bytes, data_mode| {
        let (left, entries) = crashed(bytes, 3, data_mode);
        in_folder(&left, |image| {
            let mounted = match KernelMount::new(image, "") {
                Ok(mounted) => mounted,
                Err(reason) => return hectare_oracle::skip_part!("logged::kernel", reason),
            };
            mounted.unmount();
            hectare_oracle::assert_clean(image).unwrap();
            let volume = crate::common::open_read_only(image);
            assert_eq!(entries_of(&volume), entries, "{name}");
        });
    });
}

#[test]
fn reading_replays_in_memory_and_leaves_the_device_alone() {
    each_format("reading", |name, bytes, data_mode| {
        let (left, entries) = crashed(bytes, 2, data_mode);
        let device = Arc::new(MemoryDevice::from_bytes(&left));
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::read_only()).unwrap();
        assert_eq!(entries_of(&volume), entries, "{name}");
        volume.close().unwrap();
        assert!(device.to_vec() == left, "{name}: the device was changed");
    });
}

#[test]
fn debugfs_reads_the_log() {
    each_format("logdump", |name, bytes, data_mode| {
        let held = in_memory_with(bytes, OpenOptions { data_mode, ..options() }).unwrap();
        work(&held.volume, 0);
        held.volume.sync().unwrap();
        work(&held.volume, 1);
        held.volume.sync().unwrap();
        in_folder(&held.device.to_vec(), |image| {
            let dump = hectare_oracle::debugfs(image, &["logdump -a"]).unwrap();
            let commits = dump.lines().filter(|line| line.contains("type 2 (commit block)")).count();
            assert!(commits >= 2, "{name}: {dump}");
            assert!(dump.contains("type 1 (descriptor block)"), "{name}: {dump}");
            assert!(dump.contains("type 5 (revoke table)"), "{name}: {dump}");
        });
    });
}

#[test]
fn freed_metadata_does_not_come_back_over_data() {
    each_format("revoke", |name, bytes, data_mode| {
        let held = in_memory_with(bytes, OpenOptions { data_mode, ..options() }).unwrap();
        let volume = &held.volume;
        let c = Creation::default();
        // Directory blocks and attribute blocks are logged and freed, and their places filled with data.
        for n in 0..60 {
            volume.create_dir_all(format!("d/{n}"), c).unwrap();
            volume
                .set_xattr(
                    volume.resolve(format!("d/{n}"), false).unwrap(),
                    "user.a",
                    &[7; 700],
                    XattrHow::Either,
                )
                .unwrap();
        }
        volume.sync().unwrap();
        volume.remove_dir_all("d").unwrap();
        volume.sync().unwrap();
        let file = volume.create_file("full", c).unwrap();
        let mut at = 0;
        while let Ok(n) = file.write_at(at, &pattern(3, at, 65536)) {
            at += n as u64;
        }
        volume.sync().unwrap();
        let left = held.device.to_vec();
        let again = quiet(&left);
        let content = again.volume.read("full").unwrap();
        assert_eq!(content.len() as u64, at, "{name}");
        assert!(content == pattern(3, 0, at as usize), "{name}: the log came back over the data");
    });
}

#[test]
fn many_small_commits_wrap_the_log() {
    each_format("wrap", |name, bytes, data_mode| {
        let held = in_memory_with(bytes, OpenOptions { data_mode, ..options() }).unwrap();
        let c = Creation::default();
        for n in 0..400_u64 {
            held.volume.write_file(format!("f{}", n % 7), &pattern(n, 0, 900), c).unwrap();
            held.volume.sync().unwrap();
            if n % 67 == 0 {
                let again = quiet(&held.device.to_vec());
                assert_eq!(
                    again.volume.read(format!("f{}", n % 7)).unwrap(),
                    pattern(n, 0, 900),
                    "{name} {n}"
                );
                again.volume.close().unwrap();
                assert_clean_bytes(&again.device.to_vec());
            }
        }
    });
}

#[test]
fn a_volume_left_open_says_so_and_a_closed_one_does_not() {
    let bytes = match format_bytes(FORMATS[1].1, "32M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("logged::a_volume_left_open", reason),
    };
    let held = in_memory(&bytes);
    in_folder(&held.device.to_vec(), |image| {
        assert!(hectare_oracle::dumpe2fs(image).unwrap().has("needs_recovery"));
    });
    held.volume.close().unwrap();
    in_folder(&held.device.to_vec(), |image| {
        let dump = hectare_oracle::dumpe2fs(image).unwrap();
        assert!(!dump.has("needs_recovery"));
        let features = dump.field("Journal features").to_owned();
        for feature in ["journal_incompat_revoke", "journal_64bit", "journal_checksum_v3"] {
            assert!(features.contains(feature), "{features}");
        }
    });
}

#[test]
fn what_the_kernel_left_is_replayed() {
    what_the_kernel_left("");
}

#[test]
fn what_the_kernel_left_with_data_in_the_journal_is_replayed() {
    what_the_kernel_left("data=journal");
}

#[track_caller]
fn what_the_kernel_left(mount_options: &str) {
    for (name, args, size) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let copy = folder.path().join("copy");
        if let Err(reason) = hectare_oracle::mke2fs(args, &image, size) {
            skip!("logged::what_the_kernel_left", reason);
        }
        let mounted = match KernelMount::unhurried(&image, mount_options) {
            Ok(mounted) => mounted,
            Err(reason) => skip!("logged::what_the_kernel_left", reason),
        };
        for n in 0..30 {
            std::fs::create_dir_all(mounted.path().join(format!("d{n}"))).unwrap();
            std::fs::write(
                mounted.path().join(format!("d{n}/f")),
                [&MAGIC[..], &pattern(n, 0, 5000)].concat(),
            )
            .unwrap();
            if n % 4 == 0 {
                std::fs::remove_dir_all(mounted.path().join(format!("d{}", n / 2))).unwrap();
            }
        }
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        let entries = hectare_oracle::walk(mounted.path());
        std::fs::write(&copy, mounted.image_at_rest()).unwrap();
        mounted.unmount();
        assert!(hectare_oracle::dumpe2fs(&copy).unwrap().has("needs_recovery"), "{name}");
        let other = folder.path().join("other");
        std::fs::copy(&copy, &other).unwrap();
        drop(KernelMount::new(&other, "").unwrap());
        let volume = open_image(&copy);
        assert_eq!(entries_of(&volume), entries_of(&crate::common::open_read_only(&other)), "{name}");
        let ours = entries_of(&volume);
        let names = |entries: &[Entry]| {
            entries.iter().map(|entry| (entry.path.clone(), entry.size, entry.digest)).collect::<Vec<_>>()
        };
        assert_eq!(names(&ours), names(&entries), "{name}");
        volume.close().unwrap();
        hectare_oracle::assert_clean(&copy).unwrap();
    }
}

#[test]
fn a_journal_on_another_device_is_replayed_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let (image, journal) = (folder.path().join("image"), folder.path().join("journal"));
    // e2fsck searches for a device with the journal's UUID, and other tests' loop devices have the usual one.
    let args = ["-O", "journal_dev", "-b", "4096", "-U", "0a1b2c3d-1111-4222-8333-444444444444"];
    let made = hectare_oracle::mke2fs(&args, &journal, "8M").and_then(|()| {
        hectare_oracle::mke2fs(&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], &image, "32M")
    });
    if let Err(reason) = made {
        skip!("logged::a_journal_on_another_device", reason);
    }
    let uuid = hectare_oracle::dumpe2fs(&journal).unwrap().field("Filesystem UUID").to_owned();
    let fields = [
        "feature has_journal",
        "ssv journal_inum 0",
        "ssv journal_dev 1",
        &format!("ssv journal_uuid {uuid}"),
    ];
    hectare_oracle::debugfs_write(&image, &fields).unwrap();
    let alone = crate::common::try_open_image(&image, options()).err().unwrap().to_string();
    assert!(alone.contains("another device"), "{alone}");
    let bytes = std::fs::read(&image).unwrap();
    let log = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&journal).unwrap()));
    let with_log = |log: &Arc<MemoryDevice>| OpenOptions {
        journal: Some(hectare_engine::JournalDevice(Arc::clone(log) as Arc<dyn Device>)),
        ..options()
    };
    let held = in_memory_with(&bytes, with_log(&log)).unwrap();
    work(&held.volume, 0);
    held.volume.sync().unwrap();
    let entries = entries_of(&held.volume);
    let (left, left_log) = (held.device.to_vec(), Arc::new(MemoryDevice::from_bytes(&log.to_vec())));
    save(&left, &image);
    save(&left_log.to_vec(), &journal);
    // e2fsck replays it.
    let at = journal.display().to_string();
    let report = hectare_oracle::fsck::e2fsck_with(&image, &["-fy", "-j", &at]).unwrap();
    assert!(report.output.contains("recovering journal"), "{}", report.output);
    let clean = || hectare_oracle::fsck::e2fsck_with(&image, &["-fn", "-j", &at]).unwrap();
    assert!(clean().clean, "{}", clean().output);
    let again = in_memory_with(&left, with_log(&left_log)).unwrap();
    assert_eq!(entries_of(&again.volume), entries);
    again.volume.close().unwrap();
    save(&again.device.to_vec(), &image);
    save(&left_log.to_vec(), &journal);
    assert!(clean().clean, "{}", clean().output);
    let other = Arc::new(MemoryDevice::from_bytes(&vec![0; 1 << 20]));
    let wrong = in_memory_with(&left, with_log(&other)).err().unwrap().to_string();
    assert!(wrong.contains("external journal"), "{wrong}");
}

/// More metadata than the cache holds is committed and not checkpointed: it is read from where it is pending.
#[test]
fn what_the_cache_let_go_of_is_read_as_it_was_committed() {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=8", "-N", "4096"];
    let bytes = match format_bytes(&args, "48M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("logged::what_the_cache_let_go_of", reason),
    };
    let options = OpenOptions { cache_bytes: 0, cache_inodes: 0, ..unhurried() };
    let InMemory { device, volume } = in_memory_with(&bytes, options).unwrap();
    for round in 0..4 {
        for n in 0..500 {
            volume.create_dir(format!("{round}-{n}"), Creation::default()).unwrap();
        }
        volume.sync().unwrap();
    }
    for round in 0..4 {
        for n in 0..500 {
            assert_eq!(volume.read_dir(format!("{round}-{n}")).unwrap().len(), 0, "{round}-{n}");
        }
    }
    volume.close().unwrap();
    assert_clean_bytes(&device.to_vec());
}

/// A directory of `blocks` blocks without a name in it, on the smallest log: a file whose blocks are those of
/// an empty directory, turned into a directory.
fn emptied(args: &[&str], block: usize, blocks: usize, size: &str) -> Result<Vec<u8>, hectare_oracle::Skip> {
    let held = in_memory_with(&format_bytes(args, size)?, options()).unwrap();
    let file = held.volume.create_file("big", Creation::default()).unwrap();
    let (own, root) = (file.inode().get(), hectare_units::InodeNr::ROOT.get());
    let group = |inode: u32| (inode - 1) / held.volume.superblock().geometry().inodes_per_group;
    // The root, lost+found, and this one.
    let directories = [root, 11, own].into_iter().filter(|inode| group(*inode) == group(own)).count();
    let count = format!("set_bg {} used_dirs_count {directories}", group(own));
    let record = |inode: u32, len: usize, name: &[u8]| {
        let len = u16::try_from(if len == 65_536 { 65_535 } else { len }).unwrap();
        let head = [&inode.to_le_bytes()[..], &len.to_le_bytes(), &[u8::try_from(name.len()).unwrap(), 2]];
        let mut bytes = head.concat();
        bytes.extend_from_slice(name);
        bytes
    };
    let mut first = record(own, 12, b".");
    first.resize(12, 0);
    first.extend(record(root, block - 12, b".."));
    first.resize(block, 0);
    let mut rest = record(0, block, b"");
    rest.resize(block, 0);
    file.write_all_at(0, &first).unwrap();
    let many: Vec<u8> = rest.repeat((1 << 20) / block);
    let mut at = block;
    while at < blocks * block {
        let len = many.len().min(blocks * block - at);
        file.write_all_at(at as u64, &many[..len]).unwrap();
        at += len;
    }
    drop(file);
    held.volume.close().unwrap();
    let bytes = held.device.to_vec();
    drop(held);
    in_folder(&bytes, |image| {
        let requests = [
            format!("sif <{own}> mode 040755"),
            format!("sif <{own}> links_count 2"),
            format!("sif <{root}> links_count 4"),
            // The name has the kind, and groups count their directories.
            "unlink big".into(),
            format!("link <{own}> big"),
            count,
        ];
        hectare_oracle::debugfs_write(image, &requests.each_ref().map(String::as_str))?;
        hectare_oracle::assert_clean(image)?;
        Ok(std::fs::read(image).unwrap())
    })
}

/// Each of its blocks is revoked, and the records of that take room in the log.
#[test]
fn regression_a_large_emptied_directory_is_removed_on_a_small_log() {
    let volumes = [
        (1024, "size=1", 135_000, "170M"),
        (2048, "size=2", 20_000, "64M"),
        (4096, "size=4", 20_000, "100M"),
        (65_536, "size=64", 1200, "200M"),
    ];
    for (block, journal, blocks, size) in volumes {
        let name = block.to_string();
        let args = [
            "-t",
            "ext4",
            "-b",
            &name,
            "-O",
            "^metadata_csum,large_dir",
            "-J",
            journal,
            "-m",
            "0",
            "-N",
            "64",
        ];
        let bytes = match emptied(&args, block, blocks, size) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("logged::a_large_emptied_directory", reason),
        };
        let held = quiet(&bytes);
        let commits = held.volume.journal_stats().commits;
        held.volume.remove_dir("big").unwrap();
        held.volume.sync().unwrap();
        held.volume.create_file("after", Creation::default()).unwrap();
        let steps = held.volume.journal_stats().commits - commits;
        assert!(block > 1024 || steps > 2, "{block}: {steps} transactions");
        held.volume.close().unwrap();
        assert_clean_bytes(&held.device.to_vec());
    }
}

/// Operations of unbounded size are done in steps that the smallest log holds.
#[test]
fn the_smallest_log_holds_every_operation() {
    let volumes: [(&[&str], &str); 5] = [
        (&["-b", "1024", "-g", "256", "-J", "size=1"], "40M"),
        (&["-b", "1024", "-O", "bigalloc", "-C", "4096", "-J", "size=1"], "40M"),
        (&["-b", "2048", "-g", "512", "-J", "size=2"], "48M"),
        (&["-b", "4096", "-J", "size=4"], "64M"),
        (&["-b", "65536", "-J", "size=64"], "300M"),
    ];
    for (args, size) in volumes {
        let all = [&["-t", "ext4", "-m", "0", "-N", "256"], args].concat();
        let bytes = match format_bytes(&all, size) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("logged::the_smallest_log", reason),
        };
        for data_mode in [DataMode::Ordered, DataMode::Journal] {
            let held =
                in_memory_with(&bytes, OpenOptions { data_mode: Some(data_mode), ..options() }).unwrap();
            let volume = &held.volume;
            let unit = volume.superblock().geometry().cluster_bytes();
            let count = if unit > 4096 { 400 } else { 1500 };
            let comb = |name: &str| {
                let file = volume.create_file(name, Creation::default()).unwrap();
                for n in 0..count {
                    file.write_all_at(n * 2 * unit, &[7; 100]).unwrap();
                }
                file
            };
            let (one, other) = (comb("one"), comb("other"));
            let all = count * 2 * unit;
            one.fallocate(FallocateMode::CollapseRange, unit, all / 4 / unit * unit).unwrap();
            one.fallocate(FallocateMode::InsertRange, unit, 8 * unit).unwrap();
            one.fallocate(FallocateMode::ZeroRange { keep_size: true }, 100, all / 4).unwrap();
            one.fallocate(FallocateMode::PunchHole, all / 4, all / 4).unwrap();
            one.set_len(3 * unit).unwrap();
            drop((one, other));
            let dir = volume.create_dir("dir", Creation::default()).unwrap();
            let file = volume.resolve("one", true).unwrap();
            for n in 0..600 {
                volume.link(file, dir, format!("{n:03}{}", "n".repeat(240)).as_bytes()).unwrap();
            }
            volume.rename_path("one", "other", RenameMode::Replace).unwrap();
            volume.set_xattr(file, "user.a", &[1; 600], XattrHow::Either).unwrap();
            volume.symlink([b't'; 900], "link", Creation::default()).unwrap();
            volume.remove_file("link").unwrap();
            volume.remove_dir_all("dir").unwrap();
            volume.sync().unwrap();
            assert_eq!(volume.found_errors(), None);
            volume.close().unwrap();
            crate::common::assert_clean_but_wide_bytes(&held.device.to_vec());
        }
    }
}
