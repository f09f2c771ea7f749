//! The cost of a step, and what a crash between two steps leaves.

#![allow(clippy::unwrap_used)] // all of this is tests

use super::*;
use crate::{Cleaned, Creation, OpenOptions, Volume};
use hectare_device::{Device, MemoryDevice};
use hectare_oracle::fsck::e2fsck_with;
use hectare_oracle::{Skip, assert_clean, mke2fs, skip};

/// Groups of 32,768 blocks of 4 KiB.
fn volume_of(groups: u32) -> Bounds {
    Bounds { groups, group_blocks: 32768, desc_blocks: groups.div_ceil(64), descs_per_block: 64 }
}

#[test]
fn steps_are_small_on_any_usual_volume_and_never_nothing() {
    let fine = Bounds { groups: 1 << 20, group_blocks: 8192, desc_blocks: 1 << 16, descs_per_block: 16 };
    for bounds in [volume_of(1), volume_of(8), volume_of(100), volume_of(1 << 20), fine] {
        for depth in 0..=5 {
            let step = bounds.step(depth, 0);
            assert!(step.extents >= 7, "{bounds:?} {depth}: {step:?}");
            assert!(step.credits <= STEP_CREDITS, "{bounds:?} {depth}: {step:?}");
        }
    }
    let tiny = Bounds { groups: 1 << 20, group_blocks: 256, desc_blocks: 1 << 14, descs_per_block: 64 };
    assert_eq!(tiny.step(0, 0).extents, 1);
    let odd = Bounds { groups: u32::MAX, group_blocks: 1, desc_blocks: u32::MAX, descs_per_block: 1 };
    assert_eq!(odd.step(5, 0).extents, 1);
}

#[test]
fn an_extent_dirties_the_bitmaps_and_descriptors_it_can_reach() {
    let large = volume_of(1 << 20);
    assert_eq!(large.run(1), (2, 2));
    assert_eq!(large.run(32768), (2, 2));
    assert_eq!(large.run(32769), (3, 2));
    assert_eq!(large.extents(1, 0), 4 + INODE_CREDITS);
    // A leaf of its own: its bitmap and descriptor, and the root's block above it never.
    assert_eq!(large.extents(1, 1), 4 + 2 + 1 + 1 + INODE_CREDITS);
    assert_eq!(volume_of(1).extents(1, 0), 2 + INODE_CREDITS);
}

/// A closed file with every other block mapped.
fn make_comb(volume: &Volume, path: &str, teeth: u64) -> Arc<CachedInode> {
    volume.write_file(path, b"", Creation::default()).unwrap();
    let file = volume.open_file(path).unwrap();
    for n in 0..teeth {
        file.write_all_at(n * 2048, &[1; 1024]).unwrap();
    }
    volume.core().state.inode(file.inode()).unwrap()
}

/// Fails unless e2fsck reports nothing but which orphan it cleaned up.
fn assert_only_orphan(bytes: &[u8], words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, bytes).unwrap();
    let report = e2fsck_with(&image, &["-fy"]).unwrap();
    let told: Vec<&str> = report.output.lines().filter(|line| line.contains("orphaned")).collect();
    assert!(told.len() == usize::from(!words.is_empty()), "{}", report.output);
    assert!(told.iter().all(|line| line.contains(words)), "{words:?}: {}", report.output);
    // It leaves trees too deep, and orphan files not empty, and then reports that.
    let usual = |question: &&String| question.contains("Optimize?") || question.as_str() == "Clear? yes";
    assert!(report.questions.iter().all(|question| usual(&question)), "{}", report.output);
    assert_clean(&image).unwrap();
}

/// A file to be truncated, or with no size, deleted.
#[derive(Clone, Copy)]
struct Case {
    teeth: u64,
    size: Option<u64>,
    extents: u32,
    /// Whether e2fsck can handle it: it fails on files of several leaves that are truncated to nothing, also
    /// on those that the kernel has written.
    for_e2fsck: bool,
}

const CASES: [Case; 5] = [
    Case { teeth: 80, size: Some(0), extents: 16, for_e2fsck: true },
    Case { teeth: 80, size: None, extents: 16, for_e2fsck: true },
    Case { teeth: 1000, size: Some(0), extents: 300, for_e2fsck: false },
    Case { teeth: 1000, size: Some(300_001), extents: 300, for_e2fsck: true },
    Case { teeth: 1000, size: None, extents: 300, for_e2fsck: true },
];

/// The bytes after each transaction of a case.
fn states_of(format: &[&str], case: Case) -> std::result::Result<(InodeNr, Vec<Vec<u8>>), Skip> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    mke2fs(&[&["-t", "ext4", "-b", "1024"], format].concat(), &image, "16M")?;
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    let inode = make_comb(&volume, "comb", case.teeth);
    let open = case.size.is_none().then(|| volume.open_file("comb").unwrap());
    volume.sync().unwrap();
    let mut states = Vec::new();
    let mut note = || {
        volume.sync().unwrap();
        states.push(device.to_vec());
    };
    {
        if open.is_some() {
            volume.remove_file("comb").unwrap();
        }
        let _operation = inode.lock().write();
        if let Some(size) = case.size {
            assert_eq!(begin_cut(volume.core(), &inode, size, Source::Caller).unwrap(), Progress::More);
        }
        note();
        let from = first_after(volume.core(), case.size.unwrap_or(0)).unwrap();
        let step = Step { extents: case.extents, ..Bounds::of(&volume.core().state).step(5, 0) };
        let step = Step { credits: step.credits.max(2000), ..step };
        while unmap_step(volume.core(), &inode, from, step).unwrap() == Progress::More {
            note();
        }
        note();
        if case.size.is_some() {
            finish_cut(volume.core(), &inode).unwrap();
        }
    }
    drop(open);
    note();
    volume.close().unwrap();
    states.push(device.to_vec());
    Ok((inode.nr(), states))
}

/// The bytes after our orphan cleanup.
fn cleaned(bytes: &[u8], expected: Cleaned) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    assert_eq!(volume.cleaned(), expected);
    volume.close().unwrap();
    device.to_vec()
}

const FORMATS: [&[&str]; 3] = [
    &["-J", "size=1"],
    &["-J", "size=1", "-O", "orphan_file"],
    &["-J", "size=1", "-O", "bigalloc", "-C", "2048"],
];

#[test]
fn a_crash_between_the_steps_of_a_cut_leaves_an_orphan_and_nothing_else() {
    for (format, case) in FORMATS.iter().flat_map(|format| CASES.map(|case| (*format, case))) {
        let (nr, states) = match states_of(format, case) {
            Ok(made) => made,
            Err(reason) => skip!("truncate::a_crash_between_the_steps", reason),
        };
        assert!(states.len() > 5, "{} states", states.len());
        let (between, ended) = states.split_at(states.len() - 2);
        let (word, expected) = match case.size {
            Some(_) => ("Truncating", Cleaned { cut: 1, freed: 0 }),
            None => ("Clearing", Cleaned { cut: 0, freed: 1 }),
        };
        for (n, state) in between.iter().enumerate() {
            let cleaned = cleaned(state, expected);
            if n % 2 == 0 && case.for_e2fsck {
                assert_only_orphan(state, &format!("{word} orphaned inode {nr} "));
            } else {
                assert_only_orphan(&cleaned, "");
            }
        }
        ended.iter().for_each(|state| assert_only_orphan(state, ""));
    }
}
