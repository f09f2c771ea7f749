//! Drawn sets of options on kinds of volumes, beside tune2fs: what is not refused is sound, has the same
//! files, can be written by the kernel, and has the features that tune2fs gives a copy. Options at once give
//! what they give one after the other. What is refused has not changed.

use crate::support::{Base, change, changes};
use hectare_oracle::hunt::{self, is_long};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{
    Entry, KernelMount, Skip, What, assert_same, dumpe2fs_superblock, dumped, e2fsck, scratch, skip, walk,
};
use hectare_units::random::SplitMix64;
use hectare_units::{index_of, u64_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

type Choice = (&'static str, &'static str);

/// What is drawn from. Of those of one line a set has one.
const CHOICES: &[&[Choice]] = &[
    &[("-O", "metadata_csum"), ("-O", "^metadata_csum"), ("-O", "uninit_bg"), ("-O", "metadata_csum_seed")],
    &[("-O", "64bit"), ("-O", "^64bit"), ("-O", "64bit,extent"), ("-O", "^64bit,^extent")],
    &[("-I", "256"), ("-I", "512"), ("-I", "1024")],
    &[("-O", "^filetype"), ("-O", "filetype")],
    &[("-O", "^dir_index"), ("-O", "dir_index")],
    &[("-O", "sparse_super"), ("-O", "^sparse_super"), ("-O", "sparse_super2"), ("-O", "^sparse_super2")],
    &[("-O", "^resize_inode"), ("-O", "resize_inode")],
    &[("-O", "^has_journal"), ("-O", "has_journal"), ("-J", "size=8"), ("-J", "location=9000")],
    &[("-O", "orphan_file"), ("-O", "^orphan_file")],
    &[("-O", "quota"), ("-O", "^quota"), ("-O", "project")],
    &[("-O", "mmp"), ("-O", "^mmp")],
    &[("-U", "a"), ("-U", "b")],
    &[
        ("-O", "large_dir,ea_inode,casefold"),
        ("-O", "^huge_file,^dir_nlink"),
        ("-O", "flex_bg"),
        ("-L", "label"),
    ],
    &[("-O", "fast_commit"), ("-O", "^fast_commit"), ("-O", "verity,stable_inodes"), ("-O", "encrypt")],
];

/// Kinds of volumes by which the layout and the structures differ.
const KINDS: &[(&str, &[&str], u64)] = &[
    ("ext4", &[], 64),
    ("ext4-1k", &[], 64),
    ("ext4-2k", &["-g", "4096"], 64),
    ("ext4-64k", &[], 256),
    ("ext4-inode-128", &[], 64),
    ("ext2", &[], 64),
    ("ext2-1k-128", &[], 64),
    ("ext2-plain", &[], 64),
    ("ext2-no-filetype", &[], 64),
    ("ext3-1k", &[], 64),
    ("no-csum", &[], 64),
    ("uninit-bg-1k", &[], 64),
    ("csum-seed", &[], 64),
    ("meta-bg", &[], 256),
    ("meta-bg-1k", &[], 128),
    ("no-flex-bg", &[], 64),
    ("sparse-super2", &[], 64),
    ("no-sparse-super", &[], 64),
    ("bigalloc", &[], 256),
    ("bigalloc-1k", &[], 256),
    ("inline-data", &[], 64),
    ("inline-data-512", &[], 64),
    ("ea-inode", &[], 64),
    ("mmp", &[], 64),
    ("no-journal", &[], 64),
    ("no-extents", &[], 64),
    ("no-filetype", &[], 64),
    ("no-dir-index", &["-O", "^metadata_csum"], 64),
    ("casefold", &[], 64),
    ("encrypt", &[], 64),
    ("small-groups", &[], 64),
    ("packed-meta", &[], 128),
    ("lazy-itable", &["-g", "4096"], 96),
    ("modern", &[], 64),
    ("quota", &[], 64),
    ("project", &["-O", "^metadata_csum"], 64),
    ("fast-commit", &["-J", "size=8"], 64),
];

/// A set of options.
fn options(draw: &mut SplitMix64) -> Vec<Choice> {
    let mut below = |end: usize| index_of(draw.below(u64_of(end)));
    let mut lines: Vec<&[Choice]> = CHOICES.to_vec();
    let count = 1 + below(4);
    (0..count)
        .map(|_| {
            let line = lines.remove(below(lines.len()));
            line[below(line.len())]
        })
        .collect()
}

/// What became of the pairs.
#[derive(Default, Debug)]
struct Tally {
    done: u32,
    refused: u32,
    by_tune2fs_too: u32,
    only_tune2fs: Vec<String>,
}

/// A kind of volume, made once.
struct Made {
    base: Base,
    image: PathBuf,
    /// As the kernel sees it, if it mounts it.
    seen: Option<Vec<Entry>>,
    dumped: Vec<Entry>,
    questions: Vec<String>,
}

fn copy(of: &Path) -> PathBuf {
    let path = scratch::fresh("copy");
    let _ = run(need("cp").unwrap().args(["--sparse=always"]).arg(of).arg(&path)).expect_success();
    path
}

fn features(image: &Path) -> Result<BTreeSet<String>, Skip> {
    let sb = dumpe2fs_superblock(image)?;
    Ok(sb.field("Filesystem features").split_whitespace().map(str::to_owned).collect())
}

/// What tune2fs makes of a copy: its features, if e2fsck finds that sound without being asked to mend it.
fn by_tune2fs(image: &Path, options: &[Choice]) -> Result<Option<BTreeSet<String>>, Skip> {
    let theirs = copy(image);
    let mut tune2fs = need("tune2fs")?;
    // All -O are one option for it.
    let named: Vec<&str> =
        options.iter().filter(|(option, _)| *option == "-O").map(|(_, list)| *list).collect();
    if !named.is_empty() {
        tune2fs.args(["-O", &named.join(",")]);
    }
    for (option, value) in options.iter().filter(|(option, _)| *option != "-O") {
        let uuid = format!("{0}{0}{0}{0}-{0}{0}-{0}{0}-{0}{0}-{0}{0}{0}{0}{0}{0}", hex(value));
        if *option == "-J" {
            // Without it a place is taken for nothing.
            tune2fs.arg("-j");
        }
        tune2fs.args([*option, if *option == "-U" { &uuid } else { *value }]);
    }
    let ran = run(tune2fs.arg("-f").arg(&theirs));
    // Of 64bit it only says that resize2fs does it.
    let did = ran.succeeded() && !ran.report().contains("resize2fs");
    let sound = did && e2fsck(&theirs)?.exit == Some(0);
    let found = if sound { Some(features(&theirs)?) } else { None };
    fs::remove_file(theirs).unwrap();
    Ok(found)
}

fn hex(value: &str) -> String {
    format!("{:02x}", value.as_bytes()[0])
}

/// Changes one volume in one way.
fn judge(made: &Made, options: &[Choice], tally: &mut Tally) -> Result<(), Skip> {
    let ours = copy(&made.image);
    let place = format!("{} {:?} {options:?}", made.base.combo.name, made.base.more);
    let theirs = by_tune2fs(&made.image, options)?;
    match change(&ours, &changes(options)) {
        Err(error) => {
            tally.refused += 1;
            let text = error.to_string();
            assert!(!text.contains("would not be sound"), "{place}: {text}");
            assert!(
                fs::read(&ours).unwrap() == fs::read(&made.image).unwrap(),
                "{place}: refused, and changed"
            );
            match theirs {
                Some(_) => tally.only_tune2fs.push(format!("{place}: {text}")),
                None => tally.by_tune2fs_too += 1,
            }
        }
        Ok(_) => {
            tally.done += 1;
            sound(made, &ours, &place)?;
            if let Some(theirs) = theirs {
                assert_eq!(features(&ours)?, theirs, "{place}: features");
            }
            match (KernelMount::read_only(&ours, ""), &made.seen) {
                (Ok(mount), Some(seen)) => assert_same(&walk(mount.path()), seen, made.base.compared()),
                _ => assert_same(&dumped(&ours)?, &made.dumped, What::content()),
            }
            one_after_the_other(made, options, &ours, &place)?;
            if let Ok(mount) = KernelMount::new(&ours, "") {
                fs::write(mount.path().join("new"), vec![1; 300_000]).unwrap();
                fs::create_dir(mount.path().join("folder")).unwrap();
                for nr in 0..60 {
                    fs::write(mount.path().join("folder").join(format!("name-{nr}")), "x").unwrap();
                }
                mount.unmount();
                sound(made, &ours, &place)?;
            }
        }
    }
    fs::remove_file(ours).unwrap();
    Ok(())
}

/// Fails unless e2fsck asks no more of a volume than of the one that it was.
fn sound(made: &Made, image: &Path, place: &str) -> Result<(), Skip> {
    let found = e2fsck(image)?;
    let is_known = |question: &String| made.questions.contains(question);
    assert!(found.exit == Some(0) && found.questions.iter().all(is_known), "{place}: {}", found.output);
    Ok(())
}

/// The same options, each by itself, give the same superblock, if none is refused alone.
fn one_after_the_other(made: &Made, options: &[Choice], ours: &Path, place: &str) -> Result<(), Skip> {
    let other = copy(&made.image);
    let all = options.iter().all(|option| change(&other, &changes(&[*option])).is_ok());
    if all {
        let fields = |image: &Path| -> Result<BTreeMap<String, String>, Skip> {
            let mut fields = dumpe2fs_superblock(image)?.fields;
            // Those that depend on where things happen to lie.
            let own = ["Checksum", "Lifetime", "Free", "Journal", "MMP", "mmp", "Overhead", "Reserved GDT"];
            let is_own = |name: &str| own.iter().any(|own| name.starts_with(own)) || name.ends_with("inode");
            fields.retain(|name, _| !is_own(name.trim()));
            Ok(fields)
        };
        // The order of what was drawn matters for features that exclude each other.
        if features(ours)? == features(&other)? {
            assert_eq!(fields(ours)?, fields(&other)?, "{place}: one after the other");
        }
        sound(made, &other, place)?;
    }
    fs::remove_file(other).unwrap();
    Ok(())
}

fn made(kind: usize) -> Result<Made, Skip> {
    let (name, more, mib) = KINDS[kind];
    let base = Base::new(name, more, mib);
    let image = base.make()?;
    let seen = if base.combo.mountable().is_ok() { Some(base.entries(&image)?) } else { None };
    let dumped = dumped(&image)?;
    let questions = e2fsck(&image)?.questions;
    Ok(Made { base, image, seen, dumped, questions })
}

#[test]
fn drawn_options_on_drawn_volumes() {
    let kinds: Vec<usize> = match std::env::var("HECTARE_TUNE_KIND") {
        Ok(name) => (0..KINDS.len()).filter(|kind| KINDS[*kind].0 == name).collect(),
        Err(_) if is_long() => (0..KINDS.len()).collect(),
        Err(_) => (0..KINDS.len()).step_by(5).collect(),
    };
    let each = if is_long() { 10 } else { 2 };
    let seed = hunt::seed("drawn_options_on_drawn_volumes");
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for kind in kinds {
        let made = match made(kind) {
            Ok(made) => made,
            Err(reason) => skip!("drawn_options_on_drawn_volumes", reason),
        };
        let mut draw = SplitMix64::stream(seed, u64_of(kind));
        for _ in 0..each {
            let options = options(&mut draw);
            // One failure does not keep the others from being found.
            match catch_unwind(AssertUnwindSafe(|| judge(&made, &options, &mut tally))) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => skip!("drawn_options_on_drawn_volumes", reason),
                Err(_) => failed.push(format!("{} {:?} {options:?}", made.base.combo.name, made.base.more)),
            }
        }
        fs::remove_file(made.image).unwrap();
    }
    println!("{tally:#?}");
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(tally.done > tally.refused / 2, "{tally:?}");
}
