//! Volumes of some thousand files, damaged at random: after a repair `e2fsck -fn` is content, and what `e2fsck
//! -fy` keeps is kept.
//!
//! `HECTARE_TRIALS` says how many, `HECTARE_SEED` from which seed on, `HECTARE_KEEP` names a folder for the
//! images that failed.

use crate::trial::Trial;
use hectare_oracle::{mke2fs, skip};
use hectare_units::random::SplitMix64 as Random;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

/// Feature sets: name, arguments of mke2fs, size.
const KINDS: [(&str, &[&str], &str); 10] = [
    ("ext4", &["-t", "ext4"], "40M"),
    ("ext4 1k", &["-t", "ext4", "-b", "1024"], "32M"),
    ("no checksums", &["-t", "ext4", "-O", "^metadata_csum", "-b", "1024"], "32M"),
    ("ext2", &["-t", "ext2", "-b", "1024"], "32M"),
    ("ext3", &["-t", "ext3", "-b", "4096"], "40M"),
    ("bigalloc", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"], "96M"),
    ("inline", &["-t", "ext4", "-O", "inline_data", "-I", "512"], "40M"),
    ("quota", &["-t", "ext4", "-O", "quota"], "40M"),
    ("small inodes", &["-t", "ext4", "-I", "128", "-O", "^flex_bg"], "40M"),
    ("meta_bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], "32M"),
];

/// A tree with what volumes have: long directories, deep ones, links, holes, files of all sizes.
fn make_tree(root: &Path) {
    let mut random = Random::new(7);
    for d in 0..30 {
        let folder = root.join(format!("folder {d}/inner/deep"));
        fs::create_dir_all(&folder).unwrap();
        for f in 0..25 {
            let len = match f % 5 {
                0 => random.below(60),
                1 => random.below(400),
                2 => random.below(9000),
                _ => random.below(30_000),
            };
            let bytes: Vec<u8> = (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            let place = [root.join(format!("folder {d}")), folder.clone()][f % 2].join(format!("file {f}"));
            fs::write(place, bytes).unwrap();
        }
        symlink("file 1", folder.join("short link")).unwrap();
        symlink("x/".repeat(60), folder.join("long link")).unwrap();
        fs::hard_link(folder.join("file 1"), root.join(format!("hard link {d}"))).unwrap();
    }
    fs::create_dir(root.join("many")).unwrap();
    for f in 0..1500 {
        fs::write(root.join(format!("many/a name of usual length {f}")), b"").unwrap();
    }
}

/// A volume of a kind, with the tree, its large directory indexed.
fn volume(args: &[&str], size: &str, folder: &Path) -> Option<Vec<u8>> {
    let (tree, image) = (folder.join("tree"), folder.join("base"));
    if !tree.exists() {
        make_tree(&tree);
    }
    let args = [args, &["-d", tree.to_str().unwrap()]].concat();
    mke2fs(&args, &image, size).ok()?;
    crate::trial::e2fsck("-fyD", &image);
    let bytes = fs::read(&image).unwrap();
    fs::remove_file(&image).unwrap();
    Some(bytes)
}

/// Damages an image, and says how.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    const BLOCK: usize = 1024;
    let below = |random: &mut Random, end: usize| random.index_below(end);
    // Most of an image is file data; what is damaged shall be something else.
    let blocks: Vec<usize> = (0..bytes.len() / BLOCK)
        .filter(|at| bytes[at * BLOCK..(at + 1) * BLOCK].iter().any(|byte| *byte != 0))
        .collect();
    let early = &blocks[..blocks.len() / 3];
    let place = |random: &mut Random| {
        let list = if random.below(4) == 0 { &blocks[..] } else { early };
        list[below(random, list.len())]
    };
    match random.below(6) {
        0 | 1 => {
            let count = 1 + random.below(100);
            for _ in 0..count {
                let at = place(random) * BLOCK + below(random, BLOCK);
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            format!("{count} bytes")
        }
        2 => {
            let count = 1 + random.below(10);
            for _ in 0..count {
                let at = place(random) * BLOCK;
                for byte in &mut bytes[at..at + BLOCK] {
                    *byte = u8::try_from(random.below(256)).unwrap();
                }
            }
            format!("{count} blocks")
        }
        3 => {
            let (a, b) = (place(random), place(random));
            for i in 0..BLOCK {
                bytes.swap(a * BLOCK + i, b * BLOCK + i);
            }
            format!("blocks {a} and {b} swapped")
        }
        4 => {
            let (at, len) = (place(random), 1 + below(random, 40));
            let end = ((at + len) * BLOCK).min(bytes.len());
            bytes[at * BLOCK..end].fill(0);
            format!("{len} blocks from {at} zeroed")
        }
        _ => {
            let end = bytes.len() / 2 + below(random, bytes.len() / 2);
            bytes.truncate(end / BLOCK * BLOCK);
            format!("cut to {}", bytes.len())
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn damaged_volumes_are_mended() {
    let folder = tempfile::tempdir().unwrap();
    let (trials, first) = (number("HECTARE_TRIALS", 10), number("HECTARE_SEED", 1));
    let keep = std::env::var_os("HECTARE_KEEP");
    let (mut failed, mut lost, mut gained, mut kept, mut theirs_left) = (Vec::new(), 0, 0, 0, 0);
    let mut longest = Duration::ZERO;
    let mut bases: Vec<Option<Vec<u8>>> = vec![None; KINDS.len()];
    for seed in first..first + trials {
        let mut random = Random::new(seed);
        let kind = usize::try_from(seed).unwrap() % KINDS.len();
        let (name, args, size) = KINDS[kind];
        if bases[kind].is_none() {
            bases[kind] = volume(args, size, folder.path());
        }
        let Some(mut bytes) = bases[kind].clone() else {
            skip!("repair random::damaged_volumes_are_mended", "mke2fs can't make the volumes");
        };
        let how = damage(&mut bytes, &mut random);
        let start = Instant::now();
        let trial = Trial::run(&bytes, folder.path());
        longest = longest.max(start.elapsed());
        theirs_left += u32::from(!trial.theirs.as_ref().is_some_and(|ran| matches!(ran.code, Some(0 | 1))));
        (lost, gained) = (lost + trial.lost.len(), gained + trial.gained.len());
        kept += trial.kept;
        let note = match &trial.repaired {
            Ok(done) => format!("{} mends in {} rounds", done.mends.len(), done.rounds),
            Err(reason) => reason.clone(),
        };
        let clean = trial.is_clean();
        if !clean || trial.lost.len() > 3 {
            let (few, after) = (&trial.lost[..trial.lost.len().min(8)], trial.after.as_ref());
            println!(
                "seed {seed}, {name}, {how}: {note}; lost {} {few:?}, gained {}",
                trial.lost.len(),
                trial.gained.len()
            );
            if let Some(after) = after.filter(|_| !clean) {
                println!("{}", after.out.lines().take(12).collect::<Vec<_>>().join("\n"));
            }
        }
        if !clean {
            failed.push(seed);
            if let Some(keep) = &keep {
                fs::write(Path::new(keep).join(format!("{seed}.img")), &bytes).unwrap();
            }
        }
    }
    println!(
        "{trials} damaged volumes: {} not mended {failed:?}; {kept} inodes kept, {lost} that e2fsck -fy kept are \
         lost or differ, {gained} the other way round; e2fsck left {theirs_left}; the longest took {longest:?}",
        failed.len()
    );
    assert!(failed.is_empty(), "not mended: {failed:?}");
}
