//! Small images that claim much: what a command takes of memory and time follows what is there, not what is
//! claimed.

use crate::support::hectare;
use hectare_oracle::{Skip, debugfs, mke2fs, skip};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a command that reads may take of memory, in KiB.
const MEMORY_MAX: u64 = 256 << 10;
const BLOCK: usize = 4096;

/// Where some blocks of the journal lie, as debugfs has it.
fn journal_blocks(image: &Path, wanted: &[u32]) -> Result<Vec<u64>, Skip> {
    let requests: Vec<String> = wanted.iter().map(|at| format!("bmap <8> {at}")).collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let said = debugfs(image, &requests)?;
    Ok(said.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// A volume whose journal has to be replayed, and holds a copy of each of `copies` blocks. All copies are
/// holes of the image, so they take no space.
fn journal_of_holes(copies: u32) -> Result<PathBuf, Skip> {
    const TAGS: u32 = 500;
    let image = hectare_oracle::scratch::fresh("journal-of-holes");
    let features = "^metadata_csum,^64bit,^resize_inode,^orphan_file";
    let size = format!("size={}", (copies >> 8) + 16);
    let lazily = "lazy_itable_init=1,lazy_journal_init=1";
    let args = ["-t", "ext4", "-b", "4096", "-O", features, "-J", &size, "-E", lazily];
    mke2fs(&args, &image, "8G")?;
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let transactions = copies / TAGS;
    let descriptors: Vec<u32> = (0..=transactions).map(|n| 1 + n * (TAGS + 1)).collect();
    let places = journal_blocks(&image, &[&[0], &descriptors[..]].concat())?;
    let put = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at * BLOCK as u64).unwrap();
    // The superblock: the log begins at block 1 with transaction 1.
    let mut start = [0; 8];
    start[3] = 1;
    start[7] = 1;
    file.write_all_at(&start, places[0] * BLOCK as u64 + 0x18).unwrap();
    let word = |n: u32| n.to_be_bytes();
    let header = |kind: u32| [word(0xc03b_3998), word(kind), word(1)].concat();
    let in_journal = u64::from(transactions + 1) * u64::from(TAGS + 1);
    let mut target = u32::try_from(places[0] + in_journal + 4096).unwrap();
    for place in &places[1..=usize::try_from(transactions).unwrap()] {
        let mut block = header(1);
        for n in 0..TAGS {
            let (same_uuid, last) = (u16::from(n > 0) * 2, u16::from(n + 1 == TAGS) * 8);
            block.extend(word(target));
            block.extend([0, 0]);
            block.extend((same_uuid | last).to_be_bytes());
            block.extend(if n == 0 { &[0; 16][..] } else { &[] });
            target += 1;
        }
        put(*place, &block);
    }
    put(places[places.len() - 1], &header(2));
    let mut incompat = [0; 4];
    file.read_exact_at(&mut incompat, 1024 + 0x60).unwrap();
    incompat[0] |= 4; // needs_recovery
    file.write_all_at(&incompat, 1024 + 0x60).unwrap();
    Ok(image)
}

#[test]
fn regression_a_journal_of_holes_was_held_in_memory() {
    let name = "bombs::regression_a_journal_of_holes_was_held_in_memory";
    let image = match journal_of_holes(130_000) {
        Ok(image) => image,
        Err(reason) => skip!(name, reason),
    };
    let path = image.to_str().unwrap();
    for command in ["ls", "tree", "freefrag", "info"] {
        let ran = hectare(&[command, path]).ok();
        assert!(ran.memory < MEMORY_MAX, "{command} took {} KiB", ran.memory);
    }
}
