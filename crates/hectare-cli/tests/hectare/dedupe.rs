//! `hectare build --dedupe`: files with the same content share their blocks.

use crate::support::{Bench, digest, hectare};
use hectare_oracle::loops::Access;
use hectare_oracle::{KernelMount, Skip, What, assert_clean, assert_same, skip, tool, walk};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the large file.
const LARGE: usize = 700_000;

/// Bytes that are no run of one value, different for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// A file with data from 1 MiB and from 3 MiB on, and holes around them.
fn sparse(path: &Path, seed: u64) {
    let file = File::create(path).unwrap();
    file.set_len(5 << 20).unwrap();
    file.write_all_at(&noise(seed, 10_000), 1 << 20).unwrap();
    file.write_all_at(&noise(seed + 1, 5_000), 3 << 20).unwrap();
}

/// A bench with a tree in which six files have the content of another one, 2 x 700,000 + 15,000 + 5 bytes and
/// that of two in many pieces, and more that only look like it.
fn tree() -> (Bench, PathBuf) {
    let bench = Bench::empty();
    let src = bench.local("src");
    for dir in ["a", "b", "pieces"] {
        fs::create_dir_all(src.join(dir)).unwrap();
    }
    for path in ["a/large", "b/large", "large"] {
        fs::write(src.join(path), noise(1, LARGE)).unwrap();
    }
    fs::set_permissions(src.join("b/large"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(src.join("a/large"), src.join("hard")).unwrap();
    let mut other = noise(1, LARGE);
    *other.last_mut().unwrap() ^= 1;
    fs::write(src.join("differs at the end"), other).unwrap();
    fs::write(src.join("longer"), noise(1, LARGE + 1)).unwrap();
    sparse(&src.join("holes"), 5);
    sparse(&src.join("b/holes"), 5);
    sparse(&src.join("other holes"), 6);
    fs::write(src.join("small"), "small").unwrap();
    fs::write(src.join("b/little"), "small").unwrap();
    fs::write(src.join("empty"), "").unwrap();
    fs::write(src.join("b/empty"), "").unwrap();
    // More extents than an inode has room for.
    for name in ["pieces/1", "pieces/2", "pieces/3"] {
        let file = File::create(src.join(name)).unwrap();
        file.set_len(100 << 16).unwrap();
        for n in 0..100 {
            file.write_all_at(&noise(n, 4096), n << 16).unwrap();
        }
    }
    (bench, src)
}

fn build(src: &Path, image: &Path, more: &[&str]) -> crate::support::Ran {
    let words = [&["build", "-F", "--from", src.to_str().unwrap()], more, &[image.to_str().unwrap()]];
    hectare(&words.concat())
}

/// The volume is clean for e2fsck and for us, nothing left unchecked.
#[track_caller]
fn assert_checked(image: &Path) {
    assert_clean(image).unwrap();
    let ran = hectare(&["check", image.to_str().unwrap()]).ok();
    assert!(!ran.text().contains("not checked") && ran.err.is_empty(), "{}{}", ran.text(), ran.err);
}

fn compare(bench: &Bench, src: &Path, more: &[&str]) -> Result<(), Skip> {
    let plain = bench.local("plain.img");
    build(src, &plain, more).ok();
    build(src, &bench.image, &[&["--dedupe"], more].concat()).ok();
    assert_checked(&bench.image);
    let (expected, found) = (KernelMount::read_only(&plain, "")?, KernelMount::read_only(&bench.image, "")?);
    // The volume's own directory is as old as the volume.
    let seen = |mount: &KernelMount| {
        let mut entries = walk(mount.path());
        let (atime, mtime) = (entries[0].atime, entries[0].mtime);
        let own = entries.iter_mut().find(|entry| entry.path == b"lost+found").unwrap();
        (own.atime, own.mtime) = (atime, mtime);
        entries
    };
    assert_same(&seen(&found), &seen(&expected), What::all());
    // Each file counts its blocks as if it had them alone.
    for path in ["a/large", "large", "b/large", "holes", "b/holes", "small", "pieces/3", "empty"] {
        let of = |mount: &KernelMount| fs::metadata(mount.path().join(path)).unwrap();
        assert_eq!(of(&found).blocks(), of(&expected).blocks(), "{more:?} {path}");
    }
    Ok(())
}

#[test]
fn equal_files_share_blocks_and_the_kernel_sees_the_same_tree() {
    let (bench, src) = tree();
    let shapes: [&[&str]; 8] = [
        &[],
        &["-b", "1024"],
        &["-O", "bigalloc", "-C", "16384"],
        &["-O", "^metadata_csum,^64bit"],
        &["-t", "ext3"],
        &["-t", "ext2", "-b", "1024"],
        &["--size", "min", "--threads", "1"],
        &["--size", "64M", "-O", "meta_bg,^resize_inode"],
    ];
    for more in shapes {
        if let Err(reason) = compare(&bench, &src, more) {
            skip!("dedupe::equal_files_share_blocks", reason);
        }
    }
}

#[test]
fn what_is_shared_is_printed_and_saved() {
    let (bench, src) = tree();
    let plain = bench.local("plain.img");
    build(&src, &plain, &["--size", "min"]).ok();
    let ran = build(&src, &bench.image, &["--size", "min", "--dedupe"]).ok();
    // Two of 171 blocks, one of three and two, one of one, two of a hundred.
    let bytes = 4096 * (2 * 171 + 5 + 1 + 200);
    let line = format!("6 files share {bytes} bytes of blocks with files of the same content\n");
    assert_eq!(ran.text(), line);
    let saved = fs::metadata(&plain).unwrap().len() - fs::metadata(&bench.image).unwrap().len();
    assert!((bytes..bytes + bytes / 10).contains(&saved), "{saved} of {bytes}");
    let json = build(&src, &bench.image, &["--dedupe", "--json"]).ok().json();
    assert_eq!((json["duplicate_files"].as_u64(), json["shared_bytes"].as_u64()), (Some(6), Some(bytes)));
    assert!(build(&src, &plain, &["--json"]).ok().json().get("shared_bytes").is_none());
}

#[test]
fn shared_blocks_can_be_read_everywhere_and_written_nowhere() {
    let (bench, src) = tree();
    build(&src, &bench.image, &["--dedupe", "--free", "1M"]).ok();
    let before = digest(&bench.image);
    let features =
        &hectare(&["info", "--json", bench.image()]).ok().json()["superblock"]["Filesystem features"];
    assert!(features.to_string().contains("shared_blocks"), "{features}");
    for path in ["/a/large", "/b/large", "/large", "/hard"] {
        assert!(hectare(&["cat", &bench.at(path)]).ok().out == noise(1, LARGE), "{path}");
    }
    for words in [vec!["rm", "/large"], vec!["mkdir", "/new"], vec!["chmod", "0", "/small"]] {
        let (last, first) = words.split_last().unwrap();
        let said = hectare(&[first, &[&bench.at(last)]].concat());
        assert!(said.refused().contains("shared_blocks"), "{}", said.err);
    }
    assert_eq!(digest(&bench.image), before);
    match KernelMount::read_only(&bench.image, "") {
        Ok(mount) => assert_eq!(fs::read(mount.path().join("b/little")).unwrap(), b"small"),
        Err(reason) => skip!("dedupe::shared_blocks_can_be_read", reason),
    }
    assert!(KernelMount::attempt(&bench.image, Access::ReadWrite, "").is_err());
    assert_eq!(digest(&bench.image), before);
    let mut fsck = match tool::need("e2fsck") {
        Ok(fsck) => fsck,
        Err(reason) => skip!("dedupe::shared_blocks_can_be_read", reason),
    };
    assert!(fsck.args(["-fy", bench.image()]).output().unwrap().status.success());
    assert!(hectare(&["cat", &bench.at("/b/large")]).ok().out == noise(1, LARGE), "e2fsck -fy keeps it");
}

#[test]
fn without_equal_files_the_image_is_as_any_other() {
    let bench = Bench::empty();
    let src = bench.local("src");
    fs::create_dir(&src).unwrap();
    fs::write(src.join("one"), "1").unwrap();
    fs::write(src.join("two"), "2").unwrap();
    assert!(build(&src, &bench.image, &["--dedupe"]).ok().text().starts_with("0 files share 0 bytes"));
    let features =
        &hectare(&["info", "--json", bench.image()]).ok().json()["superblock"]["Filesystem features"];
    assert!(features.is_string() && !features.to_string().contains("shared_blocks"), "{features}");
    bench.changed(&["rm", &bench.at("/one")]);
    let refused = build(&src, &bench.image, &["-O", "shared_blocks"]);
    assert!(refused.refused().contains("--dedupe"), "{}", refused.err);
}

#[test]
fn the_same_sources_give_the_same_bytes_whatever_they_come_from() {
    let (bench, src) = tree();
    let archive = bench.local("src.tar");
    let made =
        Command::new("tar").args(["--sparse", "-cf"]).arg(&archive).arg("-C").arg(&src).arg(".").status();
    assert!(made.unwrap().success());
    let reproducible = |from: &Path, threads: &str, name: &str| {
        let image = bench.local(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_hectare"));
        command
            .args(["build", "--dedupe", "--threads", threads, "--from"])
            .arg(from)
            .arg(&image)
            .env("SOURCE_DATE_EPOCH", "1000000000");
        assert!(command.output().unwrap().status.success());
        digest(&image)
    };
    let one = reproducible(&src, "1", "one.img");
    assert_eq!(one, reproducible(&src, "4", "two.img"));
    assert_checked(&bench.local("one.img"));
    reproducible(&archive, "2", "tar.img");
    assert_checked(&bench.local("tar.img"));
    for path in ["/a/large", "/b/large", "/pieces/3", "/b/holes"] {
        let read =
            |name: &str| hectare(&["cat", &format!("{}:{path}", bench.local(name).display())]).ok().out;
        assert!(read("one.img") == read("tar.img"), "{path}");
    }
}

#[test]
fn a_rebuild_keeps_places_that_files_share() {
    let (bench, src) = tree();
    let old = bench.local("old.img");
    build(&src, &old, &["--dedupe"]).ok();
    let ran = build(&src, &bench.image, &["--dedupe", "--like", old.to_str().unwrap()]).ok();
    assert!(ran.text().contains("\n0 of ") || ran.text().starts_with("0 of "), "{}", ran.text());
    // The first of the equal files changes, and the others keep what they have.
    fs::write(src.join("a/large"), noise(9, LARGE)).unwrap();
    for more in [&["--dedupe"][..], &[]] {
        build(&src, &bench.image, &[more, &["--like", old.to_str().unwrap()]].concat()).ok();
        assert_checked(&bench.image);
        assert!(hectare(&["cat", &bench.at("/a/large")]).ok().out == noise(9, LARGE));
        assert!(hectare(&["cat", &bench.at("/b/large")]).ok().out == noise(1, LARGE));
        assert!(hectare(&["cat", &bench.at("/large")]).ok().out == noise(1, LARGE));
    }
}
