//! Images of kilobytes that claim gigabytes: every reading command ends within [`MEMORY_KIB`] and
//! [`PATIENCE`], whatever its result.
//!
//! The memory limit is the kernel's (`RLIMIT_DATA`): a command that exceeds it is aborted, and has no exit
//! code.

use crate::support::{Bench, Ran, hectare, hectare_bounded, hectare_within};
use hectare_oracle::{Skip, debugfs, debugfs_write, mke2fs, skip};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const MEMORY_KIB: u32 = 256 << 10;
/// Generous, for a busy machine; a bounded command takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(10);
const BLOCK: usize = 4096;

/// Runs every reading command on `path` of the image; a signal may end none.
fn read_in_every_way(bench: &Bench, path: &str) -> Vec<Ran> {
    let (image, at) = (bench.image(), bench.at(path));
    let (out, picture) = (bench.local("out"), bench.local("map.svg"));
    fs::create_dir(&out).unwrap();
    let archive = bench.local("a.tar");
    let (out, picture, archive) =
        (out.to_str().unwrap(), picture.to_str().unwrap(), archive.to_str().unwrap());
    let commands: [&[&str]; 17] = [
        &["ls", &at],
        &["ls", "-lR", image],
        &["ls", "--json", &at],
        &["tree", image],
        &["tree", "--json", image],
        &["stat", &at],
        &["stat", "--json", &at],
        &["xattr", "list", "--json", &at],
        &["cp", "-r", &at, out],
        &["cp", "-a", &at, out],
        &["export", image, "-o", archive, "-F"],
        &["export", image, "--diff", image, "-o", archive, "-F"],
        &["diff", image, image],
        &["check", image],
        &["freefrag", image],
        &["map", image, "-o", picture],
        &["info", "--groups", image],
    ];
    let run = |command: &&[&str]| {
        let ran = hectare_bounded(command, MEMORY_KIB, PATIENCE);
        assert!(!ran.hung && ran.code.is_some(), "{}: {:?} {}", ran.line, ran.code, ran.err);
        ran
    };
    commands.iter().map(run).collect()
}

/// The blocks of a file, those of its map included.
fn blocks(image: &Path, file: &str) -> Result<Vec<u64>, Skip> {
    let said = debugfs(image, &[&format!("blocks {file}")])?;
    Ok(said.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// A volume with a directory `d`, a file `f` and one of `len` bytes, and the blocks of the latter.
fn volume(bench: &Bench, args: &[&str], size: &str, len: usize) -> Result<Vec<u64>, Skip> {
    let source = bench.local("source");
    fs::create_dir_all(source.join("d")).unwrap();
    fs::write(source.join("f"), "x").unwrap();
    fs::write(source.join("data"), vec![b'D'; len]).unwrap();
    let args = [args, &["-b", "4096", "-m", "0", "-d", source.to_str().unwrap()]].concat();
    mke2fs(&args, &bench.image, size)?;
    blocks(&bench.image, "/data")
}

/// A block full of names of inode 12, whose first two letters are those of `n`.
fn names(n: usize) -> Vec<u8> {
    let mut block = Vec::new();
    for entry in 0..341_usize {
        let len: u16 = if entry < 340 { 12 } else { 16 };
        block.extend(12_u32.to_le_bytes());
        block.extend(len.to_le_bytes());
        block.extend([4, 1]);
        let letter = |value: usize| b'a' + u8::try_from(value % 26).unwrap();
        block.extend([letter(n / 26), letter(n), letter(entry / 26), letter(entry)]);
    }
    block.resize(BLOCK, 0);
    block
}

fn put(image: &File, block: u64, bytes: &[u8]) {
    image.write_all_at(bytes, block * BLOCK as u64).unwrap();
}

fn set_fields(image: &Path, file: &str, fields: &[(&str, u64)]) -> Result<(), Skip> {
    let requests: Vec<String> =
        fields.iter().map(|(field, value)| format!("set_inode_field {file} {field} {value}")).collect();
    debugfs_write(image, &requests.iter().map(String::as_str).collect::<Vec<_>>()).map(drop)
}

/// One table of tables, one table and one block of names, each named 1024 times by the one above.
fn tables(bench: &Bench) -> Result<(), Skip> {
    let of_data = volume(bench, &["-t", "ext2", "-O", "none,filetype"], "2M", 3 * BLOCK)?;
    let image = File::options().write(true).open(&bench.image).unwrap();
    let numbers = |block: u64| u32::try_from(block).unwrap().to_le_bytes().repeat(1024);
    put(&image, of_data[0], &numbers(of_data[1]));
    put(&image, of_data[1], &numbers(of_data[2]));
    put(&image, of_data[2], &names(0));
    let size = (12 + 1024 + 1000 * 1024) * BLOCK as u64;
    let mut fields = vec![("size", size), ("block[IND]", of_data[1]), ("block[DIND]", of_data[0])];
    let direct: Vec<String> = (1..12).map(|n| format!("block[{n}]")).collect();
    fields.extend(direct.iter().map(|name| (name.as_str(), of_data[2])));
    set_fields(&bench.image, "/d", &fields)
}

#[test]
fn regression_a_block_map_that_names_one_block_a_million_times() {
    let bench = Bench::empty();
    if let Err(reason) = tables(&bench) {
        skip!("bombs::regression_a_block_map_that_names_one_block_a_million_times", reason);
    }
    let ran = read_in_every_way(&bench, "/d");
    assert!(ran[0].refused().contains("is in it twice"), "{}", ran[0].err);
    assert_eq!(ran[13].code, Some(1), "{}", ran[13].line);
}

/// A file whose block map has half a thousand million single blocks between holes, made of three tables and
/// one block.
fn holes(bench: &Bench) -> Result<(), Skip> {
    let of_data = volume(bench, &["-t", "ext2", "-O", "none,filetype"], "2M", 4 * BLOCK)?;
    let image = File::options().write(true).open(&bench.image).unwrap();
    let numbers = |block: u64| u32::try_from(block).unwrap().to_le_bytes();
    put(&image, of_data[0], &numbers(of_data[1]).repeat(1024));
    put(&image, of_data[1], &numbers(of_data[2]).repeat(1024));
    put(&image, of_data[2], &[numbers(of_data[3]), [0; 4]].concat().repeat(512));
    let size = (12 + 1024 + 1024 * 1024 + 1000 * 1024 * 1024) * BLOCK as u64;
    set_fields(&bench.image, "/f", &[("size", size), ("block[TIND]", of_data[0])])
}

/// Regression: each of the ranges between the holes was kept in memory.
#[test]
fn regression_a_file_with_more_blocks_than_the_volume_is_corrupt() {
    let bench = Bench::empty();
    if let Err(reason) = holes(&bench) {
        skip!("bombs::regression_a_file_with_more_blocks_than_the_volume_is_corrupt", reason);
    }
    let ran = read_in_every_way(&bench, "/f");
    for refused in [&ran[5], &ran[6], &ran[8], &ran[9]] {
        assert!(
            refused.refused().contains("it has more blocks than the volume"),
            "{}: {}",
            refused.line,
            refused.err
        );
    }
    assert_eq!(ran[13].code, Some(1), "{}", ran[13].line);
}

/// A leaf of 340 extents that all lead to the same thousand blocks of names.
fn extents(bench: &Bench) -> Result<(), Skip> {
    let features = ["-t", "ext4", "-O", "^metadata_csum,^has_journal,^dir_index"];
    let of_data = volume(bench, &features, "32M", 3000 * BLOCK)?;
    let together = |run: &[u64]| run[999] - run[0] == 999;
    let start = of_data.windows(1000).find(|run| together(run)).unwrap()[0];
    let spare = of_data.iter().copied().find(|block| !(start..start + 1000).contains(block)).unwrap();
    let image = File::options().write(true).open(&bench.image).unwrap();
    for n in 0..1000 {
        put(&image, start + n as u64, &names(n));
    }
    let header = |entries: u16, max: u16, depth: u16| {
        [0xf30a, entries, max, depth, 0, 0].into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    let mut leaf = header(340, 340, 0);
    for n in 0..340_u32 {
        leaf.extend((n * 1000).to_le_bytes());
        leaf.extend(1000_u16.to_le_bytes());
        leaf.extend(0_u16.to_le_bytes());
        leaf.extend(u32::try_from(start).unwrap().to_le_bytes());
    }
    put(&image, spare, &leaf);
    let spare = u32::try_from(spare).unwrap().to_le_bytes();
    let root = [&header(1, 4, 1)[..], &[0; 4], &spare, &[0; 4]].concat();
    let names: Vec<String> = (0..6).map(|n| format!("block[{n}]")).collect();
    let words = root.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()).into());
    let mut fields: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(words).collect();
    fields.push(("size", 340_000 * BLOCK as u64));
    set_fields(&bench.image, "/d", &fields)
}

#[test]
fn regression_a_directory_whose_extents_lead_to_the_same_blocks() {
    let bench = Bench::empty();
    if let Err(reason) = extents(&bench) {
        skip!("bombs::regression_a_directory_whose_extents_lead_to_the_same_blocks", reason);
    }
    let ran = read_in_every_way(&bench, "/d");
    assert!(ran[0].refused().contains("is in it twice"), "{}", ran[0].err);
    assert_eq!(ran[13].code, Some(1), "{}", ran[13].line);
}

/// An attribute block of 2000 entries, each with a value of 64 KiB in one and the same inode.
fn attributes(bench: &Bench) -> Result<(), Skip> {
    let source = bench.local("source");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("f"), "x").unwrap();
    fs::write(source.join("block"), vec![b'B'; 65536]).unwrap();
    fs::write(source.join("value"), vec![b'V'; 65536]).unwrap();
    let features = "^metadata_csum,^has_journal,^resize_inode,ea_inode";
    let args = ["-t", "ext4", "-b", "65536", "-O", features, "-d", source.to_str().unwrap()];
    mke2fs(&args, &bench.image, "16M")?;
    let said = debugfs(&bench.image, &["stat /value"])?;
    let holder = said.split("Inode:").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let (holder, at) = (holder.parse::<u32>().unwrap(), blocks(&bench.image, "/block")?[0]);
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut block = words(&[0xea02_0000, 1, 1, 0, 0, 0, 0, 0]);
    for n in 0..2000 {
        block.extend([5, 1, 0, 0]);
        block.extend(words(&[holder, 65536, 0]));
        block.extend(format!("{n:05}").bytes().chain([0; 3]));
    }
    block.resize(65536, 0);
    File::options().write(true).open(&bench.image).unwrap().write_all_at(&block, at * 65536).unwrap();
    set_fields(&bench.image, "/value", &[("flags", 0x0028_0000)])?;
    set_fields(&bench.image, "/f", &[("file_acl", at)])
}

#[test]
fn regression_one_value_under_thousands_of_names() {
    let bench = Bench::empty();
    if let Err(reason) = attributes(&bench) {
        skip!("bombs::regression_one_value_under_thousands_of_names", reason);
    }
    let ran = read_in_every_way(&bench, "/f");
    assert!(ran[5].refused().contains("have 131072000 bytes, and 64 MiB are read"), "{}", ran[5].err);
}

#[test]
fn a_limit_of_memory_ends_with_a_line() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "15T"]).ok();
    for command in [&["check", bench.image()][..], &["ls", "-lR", bench.image()], &["info", bench.image()]] {
        for limit in ["32MiB", "64MiB", "1G"] {
            let ran = hectare_within(&[&["--max-memory", limit], command].concat(), PATIENCE * 6);
            let refused = ran.err.contains("memory at once") || ran.err.contains("memory allocation of");
            assert!(ran.code == Some(0) || (ran.code == Some(1) && refused), "{} {}", ran.line, ran.err);
        }
    }
    let refused = hectare(&["--max-memory", "1k", "check", bench.image()]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("at least 32 MiB"), "{}", refused.err);
}

#[test]
fn names_that_do_not_fit_a_limit_of_memory_are_an_error() {
    let bench = Bench::empty();
    let source = bench.local("source");
    let folder = source.join("d");
    fs::create_dir_all(&folder).unwrap();
    // Long names, to need few of them, and no more links of a file than there can be.
    for file in ["e", "f"] {
        let first = folder.join(file);
        fs::write(&first, "x").unwrap();
        for n in 0..50_000 {
            fs::hard_link(&first, folder.join(format!("{file}{n:0>240}"))).unwrap();
        }
    }
    hectare(&["build", "--from", source.to_str().unwrap(), bench.image()]).ok();
    let bounded = |limit: &str, command: &[&str]| {
        hectare_within(&[&["--max-memory", limit], command].concat(), PATIENCE * 6)
    };
    let at = bench.at("/d");
    assert!(
        bounded("32M", &["ls", &at]).refused().ends_with("MiB of memory at once, which the system refuses")
    );
    assert_eq!(bounded("128M", &["ls", &at]).ok().text().lines().count(), 100_002);
    bounded("32M", &["cp", "-r", &at, bench.local("out").to_str().unwrap()]).ok();
    // A failed infallible allocation is no error of ours, but no signal either.
    let ended =
        bounded("32M", &["build", "--from", source.to_str().unwrap(), bench.local("b").to_str().unwrap()]);
    assert!(matches!(ended.code, Some(0 | 1)), "{:?} {}", ended.code, ended.err);
}

/// A journal of 512 MiB with one transaction of as many blocks, all of them holes of the image but the
/// descriptors.
fn journal(bench: &Bench) -> Result<(), Skip> {
    let features = "^metadata_csum,^64bit,^resize_inode,^orphan_file";
    let extended = "lazy_itable_init=1,lazy_journal_init=1";
    let args = ["-t", "ext4", "-b", "4096", "-O", features, "-J", "size=512", "-E", extended];
    mke2fs(&args, &bench.image, "8G")?;
    let log = blocks(&bench.image, "<8>")?;
    let image = File::options().read(true).write(true).open(&bench.image).unwrap();
    let mut log = log.into_iter();
    let mut superblock = [0; 1024];
    let first = log.next().unwrap();
    image.read_exact_at(&mut superblock, first * BLOCK as u64).unwrap();
    // The first transaction expected, and where the log starts.
    superblock[0x18..0x20].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
    put(&image, first, &superblock);
    let head = |kind: u32| [0xc03b_3998, kind, 1].into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>();
    let mut target = 300_000_u32; // no metadata lies there
    for _ in 0..250 {
        let mut descriptor = head(1);
        for n in 0..500 {
            let flags = if n == 0 { 0 } else { 2 } | if n == 499 { 8_u16 } else { 0 };
            descriptor.extend(target.to_be_bytes());
            descriptor.extend([0, 0]);
            descriptor.extend(flags.to_be_bytes());
            if n == 0 {
                descriptor.extend([0; 16]);
            }
            target += 1;
        }
        put(&image, log.next().unwrap(), &descriptor);
        log.nth(499).unwrap();
    }
    put(&image, log.next().unwrap(), &head(2));
    debugfs_write(&bench.image, &["feature needs_recovery"]).map(drop)
}

#[test]
fn regression_a_dirty_journal_of_holes() {
    let bench = Bench::empty();
    if let Err(reason) = journal(&bench) {
        skip!("bombs::regression_a_dirty_journal_of_holes", reason);
    }
    let mut told = String::new();
    for ran in read_in_every_way(&bench, "/") {
        writeln!(told, "{}", ran.line).unwrap();
        assert!(ran.line.contains("\"check\"") || ran.code == Some(0), "{told}{}", ran.err);
    }
}

/// Regression: sixteen bytes were held for each inode that an image without group checksums claims to have:
/// 18 MB of it were enough for 958 MB.
#[test]
fn regression_inode_tables_of_zeros_take_no_memory() {
    let bench = Bench::empty();
    let features = "^metadata_csum,^uninit_bg,^has_journal,^resize_inode,^flex_bg";
    let args = ["-t", "ext4", "-b", "4096", "-I", "128", "-N", "3000000", "-O", features];
    if let Err(reason) = mke2fs(&args, &bench.image, "12G") {
        skip!("bombs::regression_inode_tables_of_zeros_take_no_memory", reason);
    }
    let ran = hectare_bounded(&["check", bench.image()], MEMORY_KIB / 8, 6 * PATIENCE);
    assert_eq!(ran.code, Some(0), "{} {}", ran.line, ran.err);
}

/// Regression: every group names the inode table of the first; its inodes were read again for each, and held.
#[test]
fn regression_an_inode_table_that_all_groups_name_is_read_once() {
    let bench = Bench::empty();
    let args = ["-t", "ext2", "-b", "1024", "-g", "1024", "-O", "none,filetype"];
    if let Err(reason) = mke2fs(&args, &bench.image, "8M") {
        skip!("bombs::regression_an_inode_table_that_all_groups_name_is_read_once", reason);
    }
    let image = File::options().read(true).write(true).open(&bench.image).unwrap();
    let (descriptors, mut table) = (2 * 1024, [0; 4]);
    image.read_exact_at(&mut table, descriptors + 8).unwrap();
    for group in 1..8 {
        image.write_all_at(&table, descriptors + group * 32 + 8).unwrap();
    }
    let ran = hectare_within(&["check", "--json", bench.image()], PATIENCE);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let report: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(report["inodes_used"], 11);
    let unchecked = report["unchecked"].to_string();
    assert!(unchecked.contains("overlaps that of another group"), "{unchecked}");
}

/// A superblock that claims four million groups, whose descriptors are holes of the file. Regression: a
/// report of each was made, and the read data of each was kept.
#[test]
fn regression_a_volume_that_claims_to_have_millions_of_groups() {
    let bench = Bench::empty();
    let features = "64bit,meta_bg,^metadata_csum,^uninit_bg,^resize_inode,^has_journal,^flex_bg";
    let args = ["-t", "ext4", "-b", "1024", "-g", "256", "-I", "128", "-N", "128", "-O", features];
    if let Err(reason) = mke2fs(&args, &bench.image, "4M") {
        skip!("bombs::regression_a_volume_that_claims_to_have_millions_of_groups", reason);
    }
    let image = File::options().write(true).open(&bench.image).unwrap();
    let groups = 1_u32 << 22;
    let blocks = groups * 256 + 1;
    image.write_all_at(&(groups * 8).to_le_bytes(), 1024).unwrap();
    image.write_all_at(&blocks.to_le_bytes(), 1024 + 4).unwrap();
    image.set_len(u64::from(blocks) * 1024).unwrap();
    let ran = read_in_every_way(&bench, "/");
    assert!(ran[13].refused().contains("1008 problems"), "{}", ran[13].err);
    for report in &ran[14..] {
        assert!(report.err.contains("those after it are not looked at"), "{}: {}", report.line, report.err);
    }
}
