//! Damaged volumes, read: each kind of damage is an error that names the option with which it can be read,
//! and can be read with it by every command.

use crate::mount;
use crate::support::{Bench, Ran, hectare};
use hectare_oracle::{debugfs, mke2fs, skip};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const NAME: &str = "some file";

/// A volume of 256 MiB with `dir/some file`, the content of which is `content()`, as mke2fs makes it.
fn volume() -> Result<Bench, hectare_oracle::Skip> {
    let bench = Bench::empty();
    mke2fs(&["-t", "ext4", "-b", "4096"], &bench.image, "256M")?;
    let source = bench.folder.path().join("dir");
    fs::create_dir(&source).unwrap();
    fs::write(source.join(NAME), content()).unwrap();
    hectare(&["cp", "-a", source.to_str().unwrap(), &bench.at("/")]).ok();
    Ok(bench)
}

fn content() -> Vec<u8> {
    (0..200_000u32).flat_map(u32::to_le_bytes).collect()
}

/// Where an inode lies: the byte of its slot.
fn slot_of(image: &Path, path: &str) -> u64 {
    let said = debugfs(image, &[&format!("imap \"{path}\"")]).unwrap();
    let place = said.split_once("located at block ").unwrap().1;
    let (block, offset) = place.split_once(", offset 0x").unwrap();
    let offset = u64::from_str_radix(offset.split_whitespace().next().unwrap(), 16).unwrap();
    block.parse::<u64>().unwrap() * 4096 + offset
}

/// Changes one byte.
fn flip(image: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

fn zero(image: &Path, at: u64, len: usize) {
    OpenOptions::new().write(true).open(image).unwrap().write_all_at(&vec![0; len], at).unwrap();
}

/// What the commands that read give with these options.
fn read_all(bench: &Bench, options: &[&str]) {
    let file = bench.at(&format!("/dir/{NAME}"));
    let run = |words: &[&str]| -> Ran { hectare(&[words, options].concat()).ok() };
    assert!(run(&["cat", &file]).out == content());
    assert_eq!(run(&["ls", &bench.at("/dir")]).text(), format!("{NAME}\n"));
    assert!(run(&["tree", &bench.at("/")]).text().contains(NAME));
    assert!(run(&["stat", &file]).text().contains("800000"));
    run(&["xattr", "list", &file]);
    let out = bench.folder.path().join("out");
    run(&["cp", &file, out.to_str().unwrap()]);
    assert!(fs::read(&out).unwrap() == content());
    fs::remove_file(&out).unwrap();
    assert!(run(&["info", bench.image.to_str().unwrap()]).text().contains("65536"));
    let archive = run(&["export", &bench.at("/dir"), "-o", "-"]).out;
    assert!(archive.windows(NAME.len()).any(|window| window == NAME.as_bytes()));
    run(&["map", bench.image.to_str().unwrap(), "-o", out.with_extension("svg").to_str().unwrap()]);
    fs::remove_file(out.with_extension("svg")).unwrap();
    run(&["freefrag", bench.image.to_str().unwrap()]);
}

/// The error of `cat`, which must name an option.
fn refused(bench: &Bench, option: &str) {
    let said = hectare(&["cat", &bench.at(&format!("/dir/{NAME}"))]);
    assert!(said.refused().contains(option), "{}", said.err);
}

macro_rules! volume {
    ($name:expr) => {
        match volume() {
            Ok(bench) => bench,
            Err(reason) => skip!($name, reason),
        }
    };
}

#[test]
fn an_inode_with_a_wrong_checksum_is_read() {
    let bench = volume!("damaged::an_inode_with_a_wrong_checksum");
    flip(&bench.image, slot_of(&bench.image, &format!("/dir/{NAME}")) + 8);
    refused(&bench, "--ignore-checksums");
    read_all(&bench, &["--ignore-checksums"]);
}

#[test]
fn a_group_descriptor_with_a_wrong_checksum_is_read() {
    let bench = volume!("damaged::a_group_descriptor_with_a_wrong_checksum");
    flip(&bench.image, 4096 + 0x1e);
    flip(&bench.image, 4096 + 64 + 0x1e);
    let said = hectare(&["ls", &bench.at("/")]);
    assert!(said.refused().contains("--ignore-checksums"), "{}", said.err);
    read_all(&bench, &["--ignore-checksums"]);
    // With the places in it wrong, only a copy helps.
    zero(&bench.image, 4096, 4096);
    let said = hectare(&["ls", &bench.at("/"), "--ignore-checksums"]);
    assert!(said.refused().contains("--superblock auto"), "{}", said.err);
    let listed = hectare(&["ls", &bench.at("/dir"), "--superblock", "auto"]).ok();
    assert_eq!(listed.text(), format!("{NAME}\n"));
}

#[test]
fn a_volume_without_its_superblock_is_read_with_a_backup() {
    let bench = volume!("damaged::a_volume_without_its_superblock");
    zero(&bench.image, 1024, 1024);
    refused(&bench, "--superblock auto");
    read_all(&bench, &["--superblock", "auto"]);
    let said = hectare(&["ls", &bench.at("/"), "--superblock=32768"]).ok();
    assert!(said.err.contains("superblock of group 1, in block 32768 of 4096 bytes"), "{}", said.err);
    let none = hectare(&["ls", &bench.at("/"), "--superblock=7"]);
    assert!(none.refused().contains("block 7 holds none"), "{}", none.err);
    // e2fsck agrees that nothing else is wrong.
    hectare(&["check", bench.image.to_str().unwrap(), "--superblock=auto", "--ignore-checksums"]).misused();
    // All of the first 64 KiB, with the group descriptors.
    zero(&bench.image, 0, 64 << 10);
    assert!(hectare(&["cat", &bench.at(&format!("/dir/{NAME}")), "--superblock=auto"]).ok().out == content());
}

#[test]
fn a_backup_inside_a_file_is_not_taken_for_the_volumes() {
    let bench = volume!("damaged::a_backup_inside_a_file");
    // A volume of 1 KiB blocks as a file, whose own copies lie anywhere.
    let inner = bench.folder.path().join("inner.img");
    if let Err(reason) = mke2fs(&["-t", "ext2", "-b", "1024"], &inner, "20M") {
        skip!("damaged::a_backup_inside_a_file", reason);
    }
    hectare(&["cp", inner.to_str().unwrap(), &bench.at("/inner")]).ok();
    zero(&bench.image, 1024, 1024);
    let said = hectare(&["ls", &bench.at("/"), "--superblock=auto"]).ok();
    assert!(
        said.err.contains("in block 32768 of 4096 bytes") && said.text().contains("inner"),
        "{}",
        said.err
    );
}

#[test]
fn a_file_that_is_cut_short_is_read_as_far_as_it_goes() {
    let bench = volume!("damaged::a_file_that_is_cut_short");
    let far = bench.at("/far");
    let source = bench.folder.path().join("far");
    fs::write(&source, vec![7; 200 << 20]).unwrap();
    hectare(&["cp", source.to_str().unwrap(), &far]).ok();
    let len = (256 << 20) * 2 / 3;
    OpenOptions::new().write(true).open(&bench.image).unwrap().set_len(len).unwrap();
    refused(&bench, "--allow-truncated");
    let cat = hectare(&["cat", &bench.at(&format!("/dir/{NAME}")), "--allow-truncated"]).ok();
    assert!(cat.out == content());
    let cut = hectare(&["cat", &far, "--allow-truncated"]);
    assert!(cut.refused().contains("beyond its end"), "{}", cut.err);
    // What writes takes no such option.
    hectare(&["rm", &bench.at("/far"), "--allow-truncated"]).misused();
}

#[test]
fn a_journal_is_left_alone_on_request() {
    let bench = volume!("damaged::a_journal_is_left_alone");
    let file = bench.at(&format!("/dir/{NAME}"));
    assert!(hectare(&["cat", &file, "--no-journal"]).ok().out == content());
}

#[test]
fn a_damaged_volume_is_mounted_for_reading() {
    let bench = mount::bench!("damaged::a_damaged_volume_is_mounted");
    let source = bench.dir.join("../file");
    fs::write(&source, content()).unwrap();
    let inside = format!("{}:/file", bench.image.display());
    hectare(&["cp", source.to_str().unwrap(), &inside]).ok();
    zero(&bench.image, 1024, 1024);
    let refused = hectare(&[&["mount"], &bench.words(&["--superblock", "auto"])[..]].concat());
    assert!(refused.misused().contains("-o ro"), "{}", refused.err);
    let said = hectare(&[&["mount", "-o", "ro"], &bench.words(&["--superblock", "auto"])[..]].concat()).ok();
    assert!(said.err.contains("superblock of group 1"), "{}", said.err);
    assert!(fs::read(bench.dir.join("file")).unwrap() == content());
    bench.umount();
}
