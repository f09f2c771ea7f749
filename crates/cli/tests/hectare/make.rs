//! mkfs: what it says, what it makes, what it refuses. (The formatter's own tests compare every field.)

use crate::support::{Bench, digest, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{assert_clean, dumpe2fs, skip, skip_part};

#[test]
fn a_volume_is_made_and_described() {
    let bench = Bench::empty();
    let ran =
        hectare(&["mkfs", "-b", "4096", "-L", "pear", "-m", "1", "-J", "size=4", bench.image(), "64M"]).ok();
    assert!(ran.text().starts_with("Creating filesystem with 16384 4k blocks and "), "{}", ran.text());
    if let Err(reason) = assert_clean(&bench.image) {
        skip!("cli make::a_volume_is_made", reason);
    }
    let dump = dumpe2fs(&bench.image).unwrap();
    assert_eq!(dump.field("Filesystem volume name"), "pear");
    assert_eq!(dump.number("Block count"), 16384);
    assert_eq!(dump.number("Reserved block count"), 163);
    assert_eq!(dump.number("Total journal blocks"), 1024);
    assert!(ran.text().contains(dump.field("Filesystem UUID")));
}

#[test]
fn sizes_are_blocks_or_kib_or_have_a_suffix() {
    for (arguments, bytes) in [
        (&["8192"][..], 8 << 20),
        (&["8M"], 8 << 20),
        (&["16384s"], 8 << 20),
        (&["-b", "4096", "2048"], 8 << 20),
    ] {
        let bench = Bench::empty();
        let (flags, size) = arguments.split_at(arguments.len() - 1);
        hectare(&[&["mkfs", "-q"], flags, &[bench.image()], size].concat()).ok();
        assert_eq!(std::fs::metadata(&bench.image).unwrap().len(), bytes, "{arguments:?}");
    }
}

#[test]
fn what_is_there_is_kept_without_force() {
    let bench = Bench::empty();
    hectare(&["mkfs", bench.image(), "16M"]).ok();
    let before = digest(&bench.image);
    let ran = hectare(&["mkfs", bench.image(), "8M"]);
    assert!(ran.refused().contains("an ext4 file system") && ran.err.contains("--force"), "{}", ran.err);
    assert_eq!(digest(&bench.image), before);
    let dry = hectare(&["mkfs", "-n", bench.image()]).ok();
    assert!(dry.text().contains("16384 1k blocks"), "{}", dry.text());
    assert_eq!(digest(&bench.image), before);
    let json = hectare(&["mkfs", "--force", "--json", "-t", "ext2", bench.image()]).ok().json();
    assert_eq!(json["block_size"], 1024);
    assert!(json["features"].as_array().unwrap().iter().all(|feature| feature != "has_journal"));
    if let Err(reason) = assert_clean(&bench.image) {
        skip!("cli make::what_is_there_is_kept", reason);
    }
}

#[test]
fn failures_leave_nothing_behind() {
    let bench = Bench::empty();
    assert!(hectare(&["mkfs", bench.image()]).refused().contains("give a SIZE"));
    assert!(hectare(&["mkfs", bench.image(), "16K"]).refused().contains("too small"));
    assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}

#[test]
fn an_xfs_volume_is_made_with_the_words_of_mkfs_xfs() {
    let bench = Bench::empty();
    let image = bench.image();
    let words = ["-m", "rmapbt=1", "-d", "su=64k,sw=4", "-L", "data", "-n", "size=8192"];
    let with = |before: &[&str], after: &[&str]| {
        hectare(&[&["mkfs", "-t", "xfs"], before, &words[..], &[image], after].concat())
    };
    let planned = with(&["-N"], &["1g"]).ok();
    assert!(!std::path::Path::new(image).exists(), "nothing is made");
    let made = with(&[], &["1g"]).ok();
    assert_eq!(made.text(), planned.text());
    let json = with(&["-N", "--json"], &[]).ok().json();
    assert_eq!((json["groups"].as_u64(), json["group_blocks"].as_u64()), (Some(8), Some(32_752)));
    let judged = || {
        let said = run(need("mkfs.xfs")?.arg("-N").arg("-f").args(words).arg(image)).expect_success();
        // The first line has the image's name, which may or may not fit its column.
        let tail = |text: &str| text.split_once('\n').map(|(_, tail)| tail.trim_end().to_owned());
        assert_eq!(tail(made.text()), tail(&said.stdout));
        let _ = run(need("xfs_repair")?.arg("-n").arg(image)).expect_success();
        Ok::<(), hectare_oracle::Skip>(())
    };
    if let Err(reason) = judged() {
        skip_part!("an_xfs_volume_is_made_with_the_words_of_mkfs_xfs, judged", reason);
    }
    assert!(with(&[], &[]).refused().contains("holds an XFS file system (label data); use --force"));
    with(&["-f", "-K", "-q"], &[]).ok();
}

#[test]
fn an_impossible_xfs_volume_is_refused_and_nothing_is_made() {
    let bench = Bench::empty();
    for (words, size, said) in [
        (&[][..], "100m", "too small: XFS needs 300 MiB"),
        (&[], "1073741925", "not a multiple of the sector"),
        (&["-m", "crc=0"], "1g", "-m crc=0: "),
        (&["-d", "bogus=1"], "1g", "-d bogus=1: no such word"),
        (&["-L", "thirteenbytes"], "1g", "-L thirteenbytes: a label has up to 12 bytes"),
    ] {
        let line = hectare(&[&["mkfs", "-t", "xfs"], words, &[bench.image(), size]].concat());
        assert!(line.refused().contains(said), "{}", line.err);
    }
    assert!(hectare(&["mkfs", "-t", "xfs", bench.image()]).refused().contains("give a SIZE"));
    assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}
