//! What `std::fs` has no counterpart for, and what is promised of types.

use crate::{close_clean, in_memory};
use hectare::fs::{DirEntry, File, FileTimes, FileType, Metadata, OpenOptions, Permissions, ReadDir};
use hectare::{Error, Progress, Size, Space, Step, Volume, VolumeOptions, Watch};
use hectare::{build, check, device, inode, mkfs};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn handles_pass_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<(Volume, VolumeOptions, Space, Error, Size, Watch, Progress, Step)>();
    shared::<(File, OpenOptions, ReadDir, DirEntry, Metadata, FileType, Permissions, FileTimes)>();
    shared::<(mkfs::Format, mkfs::FormatOptions, mkfs::FsType)>();
    shared::<(check::Report, check::Problem, check::Counts, check::Options, check::What, check::Place)>();
    shared::<(build::Image, build::Built, build::Options, build::Addition, build::Excludes)>();
    shared::<(build::ModeChange, build::Reference, build::Totals)>();
    shared::<(device::Bytes, device::Error, device::Extent, device::FileDevice, device::FileOptions)>();
    shared::<(device::MemoryDevice, device::PendingFile, device::SliceDevice<device::MemoryDevice>)>();
    shared::<(device::SparseDevice, device::Reason, device::Span)>();
    shared::<(inode::Volume, inode::OpenFile, inode::HeldInode, inode::OpenOptions, inode::Metadata)>();
    shared::<(inode::Error, inode::Changes, inode::DirEntry, inode::NewNode<'static>, inode::StatFs)>();
    shared::<(inode::Caller<'static>, inode::FileExtent, inode::InodeBlocks, inode::Timestamp)>();
}

#[test]
fn a_file_has_one_position_for_all_its_handles() {
    let (volume, device) = in_memory();
    let mut file = OpenOptions::new().read(true).write(true).create(true).open(&volume, "x").unwrap();
    file.write_all(b"abcdef").unwrap();
    file.seek(SeekFrom::Start(1)).unwrap();
    let mut other = file.try_clone().unwrap();
    let mut two = [0; 2];
    other.read_exact(&mut two).unwrap();
    assert_eq!((&two, file.stream_position().unwrap()), (b"bc", 3));
    file.write_all_at(b"Z", 5).unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "deZ");
    assert!(file.seek(SeekFrom::Current(-100)).is_err());
    drop((file, other));
    close_clean(volume, &device);
}

/// The end was looked up before the write: lines that several handles appended at the same time overwrote each other.
#[test]
fn regression_handles_that_append_lose_no_line() {
    const LINES: u64 = 2000;
    let (volume, device) = in_memory();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(volume, "log").unwrap();
                (0..LINES).for_each(|nr| file.write_all(format!("{writer} {nr:08}\n").as_bytes()).unwrap());
            });
        }
    });
    let mut lines: Vec<String> = volume.read_to_string("log").unwrap().lines().map(String::from).collect();
    for writer in 0..4 {
        let own = lines.iter().filter(|line| line.starts_with(&format!("{writer} ")));
        assert!(own.is_sorted(), "those of {writer} are in order");
    }
    lines.sort();
    lines.dedup();
    assert_eq!(hectare_units::u64_of(lines.len()), 4 * LINES);
    close_clean(volume, &device);
}

#[test]
fn a_handle_allows_what_it_was_opened_for() {
    let (volume, device) = in_memory();
    volume.write("x", "1").unwrap();
    let reader = volume.open_file("x").unwrap();
    assert_eq!(reader.write_at(b"2", 0).unwrap_err().errno(), 9);
    assert_eq!(reader.set_len(0).unwrap_err().errno(), 9);
    let writer = OpenOptions::new().write(true).open(&volume, "x").unwrap();
    assert_eq!(writer.read_at(&mut [0], 0).unwrap_err().errno(), 9);
    drop((reader, writer));
    close_clean(volume, &device);
    let read_only = Volume::options().open_device(device).unwrap();
    assert_eq!(read_only.write("x", "2").unwrap_err().errno(), 30);
    assert_eq!(OpenOptions::new().append(true).open(&read_only, "x").unwrap_err().errno(), 30);
    assert_eq!(read_only.read("x").unwrap(), b"1");
}

#[test]
fn a_handle_changes_owners_and_attributes_of_a_file_without_a_name() {
    let (volume, device) = in_memory();
    let file = volume.create("x").unwrap();
    volume.remove_file("x").unwrap();
    file.chown(Some(7), None).unwrap();
    file.set_xattr("user.a", "1").unwrap();
    assert_eq!((file.metadata().unwrap().uid(), file.xattrs().unwrap()), (7, vec![b"user.a".to_vec()]));
    assert_eq!(file.xattr("user.a").unwrap().as_deref(), Some(b"1".as_slice()));
    file.remove_xattr("user.a").unwrap();
    assert_eq!(file.xattr("user.a").unwrap(), None);
    assert_eq!(file.remove_xattr("user.a").unwrap_err().errno(), 61);
    let long = file.set_xattr([b"user.".as_slice(), &[b'a'; 251]].concat(), "").unwrap_err();
    assert!(long.to_string().contains("1 to 255 bytes"), "{long}");
    let large = file.set_xattr("user.a", [0; 8192]).unwrap_err();
    assert!(large.to_string().contains("65536 bytes"), "{large}");
    file.close().unwrap();
    close_clean(volume, &device);
}

#[test]
fn a_link_has_attributes_of_its_own() {
    let (volume, device) = in_memory();
    volume.write("file", "").unwrap();
    volume.symlink("file", "link").unwrap();
    volume.lset_xattr("link", "trusted.a", "of the link").unwrap();
    assert_eq!(volume.xattr("link", "trusted.a").unwrap(), None);
    assert_eq!(volume.lxattr("link", "trusted.a").unwrap().as_deref(), Some(b"of the link".as_slice()));
    assert_eq!(volume.lxattrs("link").unwrap(), [b"trusted.a".to_vec()]);
    volume.lremove_xattr("link", "trusted.a").unwrap();
    assert!(volume.lxattrs("link").unwrap().is_empty());
    close_clean(volume, &device);
}

#[test]
fn a_copy_keeps_holes_and_permissions() {
    let (volume, device) = in_memory();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o751).open(&volume, "a").unwrap();
    file.write_all_at(b"end", 3 << 20).unwrap();
    drop(file);
    assert_eq!(volume.copy("a", "b").unwrap(), (3 << 20) + 3);
    assert_eq!(volume.read("a").unwrap(), volume.read("b").unwrap());
    let copy = volume.metadata("b").unwrap();
    assert_eq!(copy.mode(), 0o751);
    assert!(copy.blocks() <= 8, "{} sectors: the hole was filled", copy.blocks());
    assert!(volume.copy("a", "a").is_err());
    assert_eq!(volume.metadata("a").unwrap().len(), (3 << 20) + 3);
    close_clean(volume, &device);
}

/// The length was read once, and what lay beyond it was looked for again and again.
#[test]
fn regression_a_copy_of_a_file_that_grows_ends() {
    let (volume, device) = in_memory();
    let log = OpenOptions::new().append(true).create(true).open(&volume, "log").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                log.write_all_at(&[b'x'; 512], 0).unwrap();
            }
        });
        for _ in 0..20 {
            let copied = volume.copy("log", "copy").unwrap();
            assert_eq!(volume.read("copy").unwrap(), vec![b'x'; usize::try_from(copied).unwrap()]);
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(log);
    close_clean(volume, &device);
}

/// The copy had its whole length at once, so one that failed looked complete.
#[test]
fn regression_a_copy_that_fails_is_not_as_long_as_a_whole_one() {
    let (volume, device) = in_memory();
    let free = volume.space().unwrap().free;
    let content = vec![7; usize::try_from(free * 2 / 3).unwrap()];
    volume.write("large", &content).unwrap();
    let error = volume.copy("large", "copy").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains(":copy: "), "{error}");
    let len = volume.metadata("copy").unwrap().len();
    assert!(len < free / 2, "{len} of {}", content.len());
    close_clean(volume, &device);
}

#[test]
fn handles_do_as_those_of_std() {
    let (volume, device) = in_memory();
    volume.write("x", "12345").unwrap();
    let appending = OpenOptions::new().append(true).open(&volume, "x").unwrap();
    assert_eq!(appending.write_at(b"6", 0).unwrap(), 1);
    appending.write_all_at(b"789", 2).unwrap();
    assert_eq!(volume.read("x").unwrap(), b"123456789");
    let short = volume.open_file("x").unwrap().read_exact_at(&mut [0; 4], 7).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    drop(appending);
    close_clean(volume, &device);
}

/// A program that is written anew does not have the rights of the one that was there.
#[test]
fn regression_file_capabilities_end_with_a_write() {
    const NAME: &str = "security.capability";
    type Change = (&'static str, fn(&File));
    // Version 2, effective, CAP_NET_RAW permitted (linux/capability.h).
    let capability = [&[1, 0, 0, 2][..], &[0, 0x20, 0, 0], &[0; 12]].concat();
    let (volume, device) = in_memory();
    let changes: [Change; 4] = [
        ("write", |file| file.write_all_at(b"new", 0).unwrap()),
        ("append", |mut file| file.write_all(b"more").unwrap()),
        ("truncate", |file| file.set_len(1).unwrap()),
        ("allocate", |file| file.allocate(0, 8192).unwrap()),
    ];
    for (name, change) in changes {
        volume.write(name, "program").unwrap();
        volume.set_xattr(name, NAME, &capability).unwrap();
        volume.set_permissions(name, Permissions::from_mode(0o4755)).unwrap();
        let file = OpenOptions::new().append(name == "append").write(true).open(&volume, name).unwrap();
        assert!(file.xattr(NAME).unwrap().is_some(), "opening changes nothing");
        change(&file);
        assert_eq!(file.xattr(NAME).unwrap(), None, "{name}");
        assert_eq!(file.metadata().unwrap().permissions().mode(), 0o4755, "root keeps what its programs are");
        file.set_xattr(NAME, &capability).unwrap();
        file.write_all_at(b"newer", 0).unwrap();
        assert_eq!(file.xattr(NAME).unwrap(), None, "{name}: set after the first write");
        file.set_xattr(NAME, &capability).unwrap();
    }
    volume.create("write").unwrap();
    assert_eq!(volume.xattr("write", NAME).unwrap(), None);
    assert!(volume.xattr("append", NAME).unwrap().is_some());
    close_clean(volume, &device);
}

#[test]
fn regression_a_file_that_must_not_change_is_not_opened_to_change_it() {
    let (volume, device) = in_memory();
    volume.write("fixed", "content").unwrap();
    volume.write("log", "line").unwrap();
    for (name, flag) in [("fixed", inode::InodeFlags::IMMUTABLE), ("log", inode::InodeFlags::APPEND)] {
        let file = volume.engine().resolve(name, true).unwrap();
        volume.engine().set_inode_flags(file, flag, &inode::Caller::ROOT).unwrap();
        let opened = OpenOptions::new().write(true).open(&volume, name);
        assert_eq!(opened.unwrap_err().errno(), 1, "{name}");
        assert!(volume.open_file(name).is_ok());
    }
    assert!(OpenOptions::new().append(true).open(&volume, "fixed").is_err());
    let mut log = OpenOptions::new().append(true).open(&volume, "log").unwrap();
    writeln!(log, " and more").unwrap();
    drop(log);
    close_clean(volume, &device);
}

#[test]
fn a_dangling_link_leads_to_where_a_file_is_made() {
    let (volume, device) = in_memory();
    volume.create_dir("d").unwrap();
    volume.symlink("d/new", "link").unwrap();
    volume.symlink("/link", "d/again").unwrap();
    volume.write("d/again", "x").unwrap();
    assert_eq!(volume.read("/d/new").unwrap(), b"x");
    volume.symlink("loop", "loop").unwrap();
    assert_eq!(volume.write("loop", "x").unwrap_err().errno(), 40);
    close_clean(volume, &device);
}

#[test]
fn an_image_is_built_checked_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/b/c"), vec![7; 100_000]).unwrap();
    let make = || build::Image::new().folder(&tree).size(Size::Minimal).source_date_epoch(5);
    let built = make().create(&image).unwrap();
    assert_eq!((built.totals.files, built.size), (1, std::fs::metadata(&image).unwrap().len()));
    assert!(check::check(&image).unwrap().is_clean());
    hectare_oracle::assert_clean(&image)
        .unwrap_or_else(|reason| hectare_oracle::skip_part!("library, e2fsck", reason));
    let first = std::fs::read(&image).unwrap();
    assert_eq!(make().create(&image).unwrap_err().kind(), ErrorKind::AlreadyExists);
    make().replace(true).create(&image).unwrap();
    assert!(first == std::fs::read(&image).unwrap(), "the same sources give the same image");
    let small = make().size(Size::Exactly(1 << 16)).replace(true).create(&image).unwrap_err();
    assert!(small.to_string().contains("image"), "{small}");
    assert_eq!(Volume::open(&image).unwrap().read("a/b/c").unwrap().len(), 100_000);
}

#[test]
fn errors_name_what_lies_there() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("no-volume");
    assert_eq!(Volume::open(&image).unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let error = Volume::open(&image).unwrap_err().to_string();
    assert!(error.contains("no-volume") && !error.contains('\n'), "{error}");
    let error = mkfs::Format::new().create(&image, 8 << 20).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    let error =
        mkfs::Format::new().features("no-such").create(folder.path().join("new"), 8 << 20).unwrap_err();
    assert!(error.to_string().contains("no-such"), "{error}");
}

/// A check gave EINVAL for whatever was not the device's.
#[test]
fn regression_a_check_of_an_unknown_feature_is_unsupported_as_opening_is() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    mkfs::Format::new().features("^metadata_csum").create(&image, 8 << 20).unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[1024 + 0x63] |= 0x80; // the highest bit of s_feature_incompat
    std::fs::write(&image, bytes).unwrap();
    for error in [Volume::open(&image).map(drop).unwrap_err(), check::check(&image).map(drop).unwrap_err()] {
        assert_eq!((error.errno(), error.kind()), (95, ErrorKind::Unsupported), "{error}");
    }
}
