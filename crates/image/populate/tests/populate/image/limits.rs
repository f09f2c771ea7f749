//! The limits of the format, and what lies beyond them.

use crate::image::common::*;
use hectare_oracle::{KernelMount, assert_clean, dumpe2fs, skip, trees};
use hectare_populate::{Image, ImageError, Options, Size, Source, Tree};
use hectare_units::Bytes;
use rustix::fs::XattrFlags;
use std::fs::{self, File};
use std::io::Cursor;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

/// An entry of a tar archive: a directory (`5`), an empty file (`0`) or a hard link (`1`).
fn entry(archive: &mut Vec<u8>, name: &str, kind: u8, link: &str) {
    let mut header = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000755\x000000000\x000000000\x0000000000000\x0000000000000\0        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    archive.extend_from_slice(&header);
}

fn archive(bytes: Vec<u8>) -> Tree {
    let reader = Box::new(Cursor::new(bytes));
    Tree::build(vec![Source::Stream { name: "archive".into(), reader }], &Options::default()).unwrap()
}

fn refusal(folder: &Path, args: &str) -> String {
    let tree = tree(folder);
    let error = Image::plan(&tree, &options(args), Size::Min, true).err().expect("it is refused");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

/// Builds with these options and compares what the kernel sees with the directory.
#[track_caller]
fn round_trip(test: &str, from: &Path, args: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (image, options) = (folder.path().join("image"), options(args));
    build(&tree(from), &options, Size::Min, &image).unwrap();
    judge(test, &image, &walk(from), what(&options));
}

#[test]
fn extents_go_on_behind_the_metadata_of_groups() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = trees::Random::new("groups");
    for n in 0..5 {
        fs::write(folder.path().join(format!("file{n}")), random.bytes((5 << 20) + n * 4321)).unwrap();
    }
    let test = "image::limits, groups";
    round_trip(test, folder.path(), "-b 1024 -O ^flex_bg");
    round_trip(test, folder.path(), "-b 1024 -g 256 -O ^has_journal,^resize_inode");
    round_trip(test, folder.path(), "-b 1024 -g 1024 -O bigalloc,^flex_bg -C 4096");
    round_trip(test, folder.path(), "-g 256 -O ^has_journal,^flex_bg,meta_bg,^resize_inode");
}

#[test]
fn maps_get_as_deep_as_they_must() {
    let folder = tempfile::tempdir().unwrap();
    trees::fragmented(&folder.path().join("fragmented"), 8000, 4096).unwrap();
    // Ends at the end of a leaf, and one extent behind it.
    trees::fragmented(&folder.path().join("four"), 4, 4096).unwrap();
    trees::fragmented(&folder.path().join("five"), 5, 4096).unwrap();
    trees::fragmented(&folder.path().join("leaf"), 340, 4096).unwrap();
    trees::fragmented(&folder.path().join("more"), 341, 4096).unwrap();
    round_trip("image::limits, maps", folder.path(), "");
    round_trip("image::limits, maps of 1 KiB", folder.path(), "-b 1024");
    round_trip("image::limits, maps in clusters", folder.path(), "-O bigalloc -C 16384 -b 1024");
}

#[test]
fn a_file_of_a_tebibyte_is_a_few_blocks() {
    if !hectare_oracle::IS_LINUX {
        skip!("image::limits, sparse", "other hosts read holes to find them, which takes minutes here");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("sparse")).unwrap();
    for at in [0, 12345, 1 << 31, (1 << 40) - 5] {
        file.write_all_at(b"data!", at).unwrap();
    }
    drop(file);
    round_trip("image::limits, sparse", folder.path(), "");
    round_trip("image::limits, sparse 1 KiB", folder.path(), "-b 1024");
    round_trip("image::limits, sparse in clusters", folder.path(), "-O bigalloc -C 65536");
}

#[test]
fn large_directories_are_indexed() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..20_000 {
        File::create(folder.path().join(format!("a-name-of-some-length-{n:06}"))).unwrap();
    }
    round_trip("image::limits, directories of 1 KiB", folder.path(), "-b 1024");
    round_trip("image::limits, directories", folder.path(), "");
}

#[test]
fn attribute_blocks_are_shared_by_so_many_and_no_more() {
    const TEST: &str = "image::limits, attributes";
    if !hectare_oracle::IS_LINUX {
        skip!(TEST, "other hosts do not read attributes");
    }
    let folder = tempfile::tempdir().unwrap();
    for n in 0..2100 {
        let path = folder.path().join(format!("{n}"));
        fs::write(&path, "x").unwrap();
        if let Err(error) = rustix::fs::setxattr(&path, "user.large", &[b'v'; 700], XattrFlags::empty()) {
            skip!(TEST, error);
        }
    }
    round_trip(TEST, folder.path(), "");
    let tree = tree(folder.path());
    let explained = Image::plan(&tree, &options(""), Size::Min, true).unwrap().explain().unwrap();
    let blocks = explained.parts.iter().find(|part| part.name.contains("attributes")).unwrap();
    assert_eq!(blocks.bytes, Bytes::kib(12), "1024 + 1024 + 52");
    // Without the feature e2fsck does not count them.
    assert!(
        refusal(folder.path(), "-O ^ext_attr").ends_with("they need an attribute block; add -O ext_attr")
    );
}

#[test]
fn a_directory_of_65001_subdirectories_stops_counting() {
    const TEST: &str = "image::limits, subdirectories";
    let mut bytes = Vec::new();
    for n in 0..65_001 {
        entry(&mut bytes, &format!("many/{n}/"), b'5', "");
    }
    bytes.resize(bytes.len() + 1024, 0);
    let tree = archive(bytes);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let text =
        Image::plan(&tree, &options("-b 1024 -O ^dir_nlink"), Size::Min, true).err().unwrap().to_string();
    assert!(text.starts_with("many: ") && text.contains("add -O dir_nlink"), "{text}");
    build(&tree, &options("-b 1024"), Size::Min, &image).unwrap();
    match assert_clean(&image).and_then(|()| KernelMount::read_only(&image, "")) {
        Ok(mount) => {
            let many = mount.path().join("many");
            assert_eq!(fs::metadata(&many).unwrap().nlink(), 1);
            assert_eq!(fs::read_dir(&many).unwrap().count(), 65_001);
            assert_eq!(fs::metadata(many.join("65000")).unwrap().nlink(), 2);
        }
        Err(reason) => skip!(TEST, reason),
    }
}

#[test]
fn a_file_has_65000_names_and_no_more() {
    let links = |count: usize| {
        let mut bytes = Vec::new();
        entry(&mut bytes, "first", b'0', "");
        for n in 1..count {
            entry(&mut bytes, &format!("{n}"), b'1', "first");
        }
        bytes.resize(bytes.len() + 1024, 0);
        archive(bytes)
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    build(&links(65_000), &options(""), Size::Min, &image).unwrap();
    if let Err(reason) = assert_clean(&image) {
        skip!("image::limits, hard links", reason);
    }
    let error = Image::plan(&links(65_001), &options(""), Size::Min, true).err().unwrap();
    let first = error.to_string(); // "1" comes before "first"
    assert_eq!(first, "1: it has 65001 names, an inode can count 65000");
}

#[test]
fn an_empty_lost_and_found_becomes_the_volumes_own() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["alpha/beta", "lost+found", "zeta/lost+found", "zeta/omega"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("alpha/file"), "a").unwrap();
    fs::write(folder.path().join("zeta/file"), "z").unwrap();
    fs::hard_link(folder.path().join("zeta/file"), folder.path().join("alpha/other")).unwrap();
    let test = "image::limits, lost+found";
    for args in ["", "-O ^has_journal -b 1024", "-O orphan_file", "-N 1000"] {
        let (image, options) = (folder.path().join("image"), options(args));
        let from = tree(folder.path());
        build(&from, &options, Size::Min, &image).unwrap();
        // Its metadata is that of every volume's.
        let expected = walk(folder.path()).into_iter();
        let kept = |path: &[u8]| path != b"lost+found" && path != b"image";
        let expected: Vec<_> = expected.filter(|entry| kept(&entry.path)).collect();
        // The image lies in its own source directory, but was created after the scan.
        let without_root = |entry: &hectare_oracle::Entry| !entry.path.is_empty();
        if let Err(reason) = assert_clean(&image) {
            skip!(test, reason);
        }
        match KernelMount::read_only(&image, "") {
            Ok(mount) => {
                let found: Vec<_> = walk(mount.path()).into_iter().filter(without_root).collect();
                let expected: Vec<_> = expected.into_iter().filter(without_root).collect();
                hectare_oracle::assert_same(&found, &expected, what(&options));
                assert_eq!(fs::metadata(mount.path()).unwrap().nlink(), 5);
            }
            Err(reason) => skip!(test, reason),
        }
        fs::remove_file(image).unwrap();
    }
    fs::write(folder.path().join("lost+found/#12"), "found").unwrap();
    let text = refusal(folder.path(), "");
    assert!(text.starts_with("lost+found: ") && text.contains("--exclude /lost+found"), "{text}");
    fs::remove_dir_all(folder.path().join("lost+found")).unwrap();
    fs::write(folder.path().join("lost+found"), "file").unwrap();
    assert!(refusal(folder.path(), "").contains("--exclude /lost+found"));
}

#[test]
fn what_can_not_be_stored_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let links = fresh("links");
    symlink("t".repeat(1024), links.join("long")).unwrap();
    assert!(refusal(&links, "-b 1024").starts_with("long: the link's target of 1024 bytes"));
    round_trip("image::limits, links", &links, "-b 2048");

    let files = fresh("files");
    File::create(files.join("large")).unwrap().set_len(1 << 31).unwrap();
    // The resize inode would bring it.
    assert!(refusal(&files, "-O ^large_file,^resize_inode").contains("add -O large_file"));
    if !hectare_oracle::IS_LINUX {
        skip!("image::limits, a huge file", "other hosts read eight tebibytes of holes to find that out");
    }
    File::create(files.join("huge")).unwrap().set_len(1 << 43).unwrap();
    let text = refusal(&files, "-b 1024");
    assert!(text.starts_with("huge: its 8796093022208 bytes") && text.contains("(-b)"), "{text}");
    let text = refusal(&files, "-O ^extent,^64bit");
    assert!(text.contains("with blocks of 4096 bytes (4402345721856)"), "{text}");
    File::create(files.join("huge")).unwrap().set_len(1 << 41).unwrap();
    assert!(refusal(&files, "-t ext2").contains("add -O huge_file"));
    round_trip("image::limits, a huge file", &files, "-t ext2 -O huge_file");
    let text = refusal(&files, "-N 12");
    assert!(text.starts_with("-N 12: ") && text.contains("13 files"), "{text}");

    let attributes = fresh("attributes");
    fs::write(attributes.join("file"), "").unwrap();
    let large =
        rustix::fs::setxattr(attributes.join("file"), "user.large", &[b'v'; 2000], XattrFlags::empty());
    if large.is_ok() {
        let text = refusal(&attributes, "-b 1024");
        assert!(text.starts_with("file: its extended attributes can't be stored"), "{text}");
    }
}

#[test]
fn the_largest_number_of_inodes_is_asked_for_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(folder.path());
    for args in ["-J size=40000 -b 1024", "-I 3000", "-E resize=1", "-O bigalloc -C 1000", "-g 100", "-i 1"] {
        match Image::plan(&tree, &options(args), Size::Min, true) {
            Err(ImageError::Format(error)) => assert!(!error.to_string().contains('\n'), "{error}"),
            Err(error) => panic!("{args}: {error}"),
            Ok(image) => assert!(args == "-i 1", "{args}: {} bytes", image.size()),
        }
    }
}

#[test]
fn sizes_are_those_of_the_volume() {
    let folder = tempfile::tempdir().unwrap();
    let (from, image) = (folder.path().join("from"), folder.path().join("image"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), vec![7; 5_000_000]).unwrap();
    for (size, args) in [
        (Size::Min, ""),
        (Size::Default, ""),
        (Size::Exactly(Bytes::mib(64)), ""),
        (Size::Free(Bytes::mib(30)), "-m 0"),
    ] {
        let bytes = build(&tree(&from), &options(args), size, &image).unwrap();
        assert_eq!(fs::metadata(&image).unwrap().len(), bytes.get());
        let dump = match dumpe2fs(&image) {
            Ok(dump) => dump,
            Err(reason) => skip!("image::limits, sizes", reason),
        };
        assert_eq!(dump.number("Block count") * 4096, bytes.get());
        let planned = tree(&from);
        let planned = Image::plan(&planned, &options(args), size, true).unwrap();
        assert_eq!(dump.number("Free blocks"), planned.free().get());
    }
}

#[test]
fn regression_a_format_that_describes_the_root_is_obeyed_or_refused() {
    let format = options("-E root_owner=5:6,root_perms=0700");
    let mut tar = crate::common::Archive::default();
    tar.entry(b'5', "./", "", &[]).file("f", b"x");
    let bytes = tar.bytes;
    let tree = |options: &Options| Tree::build(vec![crate::common::stream(bytes.clone())], options).unwrap();
    let of_sources = tree(&Options::default());
    let error = Image::plan(&of_sources, &format, Size::Min, true).err().unwrap().to_string();
    assert!(error.contains("-E root_owner=, root_perms=") && error.contains("0:0"), "{error}");
    let asked = tree(&Options::default().for_format(&format));
    let meta = asked.meta(hectare_populate::NodeId::ROOT);
    assert_eq!((meta.uid, meta.gid, meta.mode), (5, 6, 0o700));
    assert!(Image::plan(&asked, &format, Size::Min, true).is_ok());
}
