//! `resize` from the command line: what it refuses, and how it names that; parts of a disk; sizes at the
//! limits.

use crate::support::{Bench, digest, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{KernelMount, Skip, assert_clean, dumpe2fs_superblock, mke2fs, scratch, skip, until};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

fn volume(args: &[&str], size: &str) -> Result<PathBuf, Skip> {
    let image = scratch::fresh("resize");
    mke2fs(args, &image, size)?;
    Ok(image)
}

/// Is refused with these words, and nothing changes.
#[track_caller]
fn refused(image: &Path, size: &str, words: &[&str]) {
    let (before, name) = (digest(image), image.to_str().unwrap());
    let ran = hectare(&["resize", name, size]);
    let said = ran.refused();
    assert!(said.contains(name) && said.lines().count() == 1, "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said} does not say {words:?}");
    assert_eq!(digest(image), before, "{size}: it was changed");
}

fn blocks(image: &Path) -> u64 {
    dumpe2fs_superblock(image).unwrap().number("Block count")
}

#[test]
fn a_volume_in_use_is_refused_by_name() {
    let image = match volume(&["-t", "ext4"], "64M") {
        Ok(image) => image,
        Err(skip) => skip!("a_volume_in_use_is_refused_by_name", skip),
    };
    let mount = match KernelMount::new(&image, "") {
        Ok(mount) => mount,
        Err(skip) => skip!("a_volume_in_use_is_refused_by_name", skip),
    };
    let device = mount.device().to_str().unwrap().to_owned();
    refused(&image, "90M", &["the kernel uses it", &device, "unmount it"]);
    let ran = hectare(&["resize", &device, "min"]);
    assert!(ran.refused().contains(&device) && ran.refused().contains("unmount it"), "{}", ran.refused());
    mount.unmount();
    // As another hectare has it open.
    let held = hectare_device::FileOptions::new().write(true).exclusive(true).open(&image).unwrap();
    let using = format!("process {}", std::process::id());
    // A program that another test starts has a copy of the lock for a moment, and may be named for it.
    until(|| hectare(&["resize", image.to_str().unwrap(), "90M"]).refused().contains(&using));
    refused(&image, "90M", &["is using it"]);
    drop(held);
    hectare(&["resize", image.to_str().unwrap(), "90M"]).ok();
    assert_clean(&image).unwrap();
}

#[test]
fn a_volume_that_was_not_closed_is_refused_with_the_command() {
    let image = match volume(&["-t", "ext4"], "64M") {
        Ok(image) => image,
        Err(skip) => skip!("a_volume_that_was_not_closed_is_refused_with_the_command", skip),
    };
    for (what, words) in [
        ("feature needs_recovery", ["its journal must be replayed first", "e2fsck -f"]),
        ("ssv state 0", ["not unmounted cleanly", "e2fsck -f"]),
        ("ssv state 3", ["errors were found", "e2fsck -f"]),
    ] {
        let copy = scratch::fresh("resize-open");
        fs::copy(&image, &copy).unwrap();
        hectare_oracle::debugfs_write(&copy, &[what]).unwrap();
        refused(&copy, "90M", &words);
        refused(&copy, "min", &words);
        // What it says to do helps.
        let fixed = run(need("e2fsck").unwrap().arg("-fp").arg(&copy));
        assert!(matches!(fixed.exit, Some(0 | 1)), "{what}: {fixed:?}");
        hectare(&["resize", copy.to_str().unwrap(), "90M"]).ok();
        assert_clean(&copy).unwrap();
    }
}

#[test]
fn sizes_beyond_the_limits_are_refused() {
    let (wide, old) = match (volume(&["-t", "ext4"], "64M"), volume(&["-r", "0", "-O", "none"], "20M")) {
        (Ok(wide), Ok(old)) => (wide, old),
        (Err(skip), _) | (_, Err(skip)) => skip!("sizes_beyond_the_limits_are_refused", skip),
    };
    for size in ["0", "-64M", "-900M"] {
        refused(&wide, size, &["0 blocks are no volume"]);
    }
    refused(&wide, "1M", &["does not fit", "blocks too small"]);
    refused(&wide, "100K", &["would not hold its own metadata"]);
    for size in ["900T", "18446744073709551615", "+18446744073709551615"] {
        refused(&wide, size, &["are more than the", "inodes and features allow"]);
    }
    refused(&old, "5T", &["are more than the 4294967295"]);
    assert!(hectare(&["resize", wide.to_str().unwrap(), "64Q"]).misused().contains("64Q is no size"));
    let narrow = hectare(&["resize", "--32bit", wide.to_str().unwrap(), "17T"]);
    assert!(narrow.refused().contains("blocks"), "{}", narrow.refused());
}

#[test]
fn a_part_of_a_disk_grows_within_it() {
    const AT: u64 = 10 << 20;
    let disk = scratch::fresh("resize-disk");
    File::create(&disk).unwrap().set_len(100 << 20).unwrap();
    let made = mke2fs(&["-t", "ext4", "-b", "1024", "-E", &format!("offset={AT}")], &disk, "32M");
    if let Err(skip) = made {
        skip!("a_part_of_a_disk_grows_within_it", skip);
    }
    let (name, at) = (disk.to_str().unwrap(), AT.to_string());
    let before = fs::read(&disk).unwrap();
    let ran = hectare(&["resize", "--offset", &at, name, "120M"]);
    assert!(ran.refused().contains("make the partition larger first"), "{}", ran.refused());
    assert!(fs::read(&disk).unwrap() == before, "a refused resize changed the disk");
    let whole = hectare(&["resize", "--json", "--offset", &at, name]).ok().json();
    assert_eq!(whole["blocks"], 90 << 10);
    let shrunk = hectare(&["resize", "--json", "--offset", &at, name, "20M"]).ok().json();
    assert_eq!(shrunk["blocks"], 20 << 10);
    let after = fs::read(&disk).unwrap();
    assert_eq!(after.len(), before.len(), "the disk keeps its length");
    let start = usize::try_from(AT).unwrap();
    assert!(after[..start] == before[..start], "what lies before the part changed");
    let alone = scratch::fresh("resize-alone");
    fs::write(&alone, &after[start..]).unwrap();
    assert_clean(&alone).unwrap();
    assert_eq!(blocks(&alone), 20 << 10);
}

#[test]
fn a_volume_without_a_journal_keeps_none() {
    let bench = match Bench::filled("ext2", hectare_oracle::Tree::ManyFiles) {
        Ok(bench) => bench,
        Err(skip) => skip!("a_volume_without_a_journal_keeps_none", skip),
    };
    let features = |image: &Path| dumpe2fs_superblock(image).unwrap().field("Filesystem features").to_owned();
    let before = features(&bench.image);
    for size in ["90M", "40M", "70M"] {
        let ran = hectare(&["resize", bench.image(), size]).ok();
        assert!(!ran.text().contains("no journal"), "a journal on loan held it: {}", ran.text());
        assert_clean(&bench.image).unwrap();
        assert_eq!(features(&bench.image), before);
    }
}

/// A volume with one group has no room for a backup under `sparse_super2`, and got none when it grew.
#[test]
fn regression_a_volume_that_grew_had_no_backup_of_its_superblock() {
    for (made, from, to, backups) in [
        ("2", "6M", "40M", 2),
        ("2", "6M", "14M", 1),
        ("2", "14M", "40M", 2),
        ("2", "40M", "60M", 2),
        ("1", "40M", "60M", 1),
        ("0", "14M", "40M", 0),
    ] {
        let args =
            ["-t", "ext4", "-b", "1024", "-O", "sparse_super2", "-E", &format!("num_backup_sb={made}")];
        let image = match volume(&args, from) {
            Ok(image) => image,
            Err(skip) => skip!("regression_a_volume_that_grew_had_no_backup_of_its_superblock", skip),
        };
        hectare(&["resize", image.to_str().unwrap(), to]).ok();
        assert_clean(&image).unwrap();
        let said = run(need("dumpe2fs").unwrap().arg(&image)).expect_success();
        let found = said.stdout.matches("Backup superblock at").count();
        assert_eq!(found, backups, "{made} of {from}, {to}");
    }
}
