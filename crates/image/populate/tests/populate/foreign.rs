//! Sources given by mistake: disk images, container images, empty archives.

use crate::common::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use hectare_oracle::skip;
use hectare_populate::{Options, Source, Tree};
use std::fs;
use std::io::{Read, Write};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A megabyte of zeros with some bytes at a place.
fn with(at: usize, magic: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    bytes[at..at + magic.len()].copy_from_slice(magic);
    bytes
}

#[test]
fn regression_the_image_of_a_disk_is_no_empty_archive() {
    let dir = tempfile::tempdir().unwrap();
    for (at, magic, what) in [
        (
            1024 + 0x38,
            &[0x53, 0xef][..],
            "it is an ext2 file system, not a directory or a tar archive: make an archive of it",
        ),
        (0, b"XFSB", "it is an XFS file system"),
        (0, b"hsqs", "it is a squashfs file system"),
        (512, b"EFI PART", "it is a GPT partition table"),
        (0x8001, b"CD001", "it is an ISO 9660 file system"),
        (0, b"QFI\xfb", "it is a qcow2 disk image"),
        (0, b"PK\x03\x04", "it is a zip archive"),
        (0, b"7z\xbc\xaf\x27\x1c", "it is a 7z archive"),
        (0, b"070701", "it is a cpio archive"),
    ] {
        let bytes = with(at, magic);
        write(dir.path().join("f"), &bytes);
        let plain = archive(&dir.path().join("f"));
        for sources in [vec![plain], vec![stream(bytes.clone())], vec![stream(gzip(&bytes))]] {
            let error = fails(sources);
            assert!(error.contains(what) && error.contains("use th"), "{error}");
        }
    }
}

#[test]
fn regression_an_archive_that_holds_nothing_is_an_error_unless_allowed() {
    let mut only_global = Archive::default();
    only_global.pax('g', &[("comment", b"x")]);
    only_global.finish();
    for bytes in [vec![0; 1024], vec![0; 10_240], vec![0; 1 << 20], only_global.bytes] {
        let error = fails(vec![stream(bytes.clone())]);
        assert!(error.contains("the archive holds nothing") && error.contains("--allow-empty"), "{error}");
        let options = Options { allow_empty: true, ..Options::default() };
        assert_eq!(Tree::build(vec![stream(bytes)], &options).unwrap().len(), 1);
    }
}

#[test]
fn regression_an_archive_without_its_end_mark_is_taken_with_a_warning() {
    let mut tar = Archive::default();
    tar.file("a", &[b'x'; 700]).file("b", b"y");
    let tree = build(vec![stream(tar.bytes.clone())]);
    assert_eq!((tree.len(), tree.warnings().len()), (3, 1));
    assert!(tree.warnings()[0].starts_with("test.tar: the archive has no end mark"), "{:?}", tree.warnings());
    // The padding of the last file is missing as well.
    let padded = tar.bytes.len() - 511;
    let tree = build(vec![stream(tar.bytes[..padded].to_vec())]);
    assert_eq!((tree.len(), tree.warnings().len()), (3, 1));
    assert!(fails(vec![stream(tar.bytes[..padded - 1].to_vec())]).contains("truncated"));
    assert!(build(tar.finish()).warnings().is_empty());
    let mut cut = Archive::default();
    cut.file("a", b"x").pax('x', &[("path", b"b")]);
    assert!(fails(vec![stream(cut.bytes)]).contains("the archive is truncated"));
}

#[test]
fn archives_one_after_the_other_are_not_taken_for_the_first() {
    let mut tar = Archive::default();
    tar.file("a", b"x").finish();
    tar.bytes.resize(10_240, 0);
    tar.file("b", b"y").finish();
    let error = fails(vec![stream(tar.bytes)]);
    assert!(error.contains("another archive follows") && error.contains("(at byte 10240 "), "{error}");
}

#[test]
fn regression_a_container_image_is_not_packed_as_its_blobs() {
    let layout = "{\"imageLayoutVersion\": \"1.0.0\"}";
    let index = "{\"schemaVersion\": 2, \"manifests\": []}";
    let docker = "[{\"Config\":\"c.json\",\"RepoTags\":[\"x:1\"],\"Layers\":[\"l/layer.tar\"]}]";
    let skopeo = "{\"schemaVersion\": 2, \"layers\": []}";
    for (files, kind) in [
        (&[("x/y", ""), ("oci-layout", layout), ("index.json", index)][..], "an OCI image layout"),
        (&[("l/layer.tar", ""), ("manifest.json", docker)], "a Docker image archive"),
        (
            &[("version", "Directory Transport Version: 1.1\n"), ("manifest.json", skopeo)],
            "a container image in a directory",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut tar = Archive::default();
        for (name, content) in files {
            write(dir.path().join("top").join(name), content);
            tar.file(name, content.as_bytes());
        }
        // Where the first entry of an archive is not that of an image, it is found afterwards.
        for sources in [tar.finish(), vec![folder(&dir.path().join("top"))]] {
            let error = fails(sources);
            assert!(error.contains(kind) && error.contains("oci-archive:FILE"), "{error}");
        }
        assert!(build(vec![folder(dir.path())]).len() > 3, "as part of a directory it is a plain file");
    }
    let mut tar = Archive::default();
    tar.file("manifest.json", b"{\"name\": \"of a browser\"}").file("index.json", b"{}");
    assert_eq!(build(tar.finish()).len(), 3);
}

/// An endless source.
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0 += hectare_units::u64_of(buffer.len());
        assert!(self.0 < 64 << 20, "{} bytes were read", self.0);
        buffer.fill(b'x');
        Ok(buffer.len())
    }
}

#[test]
fn what_is_no_archive_is_not_copied_whole() {
    let source = Source::Stream { name: "endless".to_owned(), reader: Box::new(Endless(0)) };
    assert!(fails(vec![source]).contains("it is not a tar archive"));
}

#[test]
fn regression_a_folder_for_temporary_files_is_not_filled() {
    const TEST: &str = "populate foreign::regression_a_folder_for_temporary_files_is_not_filled";
    if !hectare_oracle::IS_LINUX {
        skip!(TEST, "other hosts do not know how much is free");
    }
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    if !tool("mount", &["-t", "tmpfs", "-o", "size=4m", "none", small.to_str().unwrap()]) {
        skip!(TEST, "a small directory for temporary files (mounting needs root)");
    }
    let mut tar = Archive::default();
    tar.file("zeros", &vec![0; 8 << 20]).finish();
    let options = Options { spool_directory: Some(small.clone()), ..Options::default() };
    let error = Tree::build(vec![stream(gzip(&tar.bytes))], &options).unwrap_err().to_string();
    assert!(tool("umount", &[small.to_str().unwrap()]));
    assert!(error.contains("/small: no room for the unpacked copy of test.tar"), "{error}");
    assert!(error.contains("set TMPDIR"), "{error}");
}
