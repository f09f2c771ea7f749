//! Inodes that descriptors hide: a count of unused inodes that is too large, marks that are set too early. What
//! `e2fsck -fy` keeps is kept.

use crate::structures::{Case, survey};
use crate::trial::Trial;
use hectare_oracle::skip;
use std::fs;

/// Descriptors with checksums, in both ways.
const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "256"],
    &["-t", "ext4", "-b", "1024", "-N", "256", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-b", "4096", "-N", "128", "-O", "^flex_bg"],
];

/// Changes descriptors of a filled volume; nothing that something leads to may be lost.
#[track_caller]
fn nothing_is_lost(test: &str, size: &str, changes: impl Fn(&Case) -> Vec<String>) {
    for kind in KINDS {
        let case = match Case::filled(kind, size) {
            Ok(case) => case,
            Err(reason) => skip!(test, reason),
        };
        let requests = changes(&case);
        let before = case.survey();
        case.change(&requests.iter().map(String::as_str).collect::<Vec<_>>());
        let trial = Trial::run(&case.bytes(), case.folder.path());
        assert!(trial.is_clean(), "{kind:?}: {:?}", trial.repaired);
        assert!(trial.lost.is_empty() && trial.lost_paths == 0, "{kind:?}: {:?}", trial.repaired);
        assert!(trial.checked.is_some_and(|count| count > 0), "{kind:?}: the check finds nothing");
        let (repaired, after) = case.repaired(test);
        assert!(survey(&after) == before, "{kind:?}: {:?}", repaired.mends);
        assert!(!repaired.loses(), "{kind:?}: {:?}", repaired.mends);
    }
}

const SEALED: &str = "set_bg 0 checksum calc";

fn per_group(case: &Case) -> u32 {
    let bytes = case.bytes();
    u32::from_le_bytes(bytes[1024 + 40..1024 + 44].try_into().unwrap())
}

/// Names in the root, and below a directory that is itself hidden, lead to inodes that were not read.
#[test]
fn regression_a_count_of_unused_inodes_that_is_too_large_takes_no_file() {
    nothing_is_lost("repair unread::a_count_of_unused_inodes", "8M", |case| {
        let deep = case.folder.path().join("deep");
        fs::write(&deep, "deep").unwrap();
        case.change(&["mkdir d7/e", &format!("write {} d7/e/deep", deep.display())]);
        vec![format!("set_bg 0 itable_unused {}", per_group(case) - 50), SEALED.to_owned()]
    });
}

#[test]
fn regression_a_group_that_is_marked_as_without_inodes_loses_none() {
    // Of 64 inodes in each group.
    nothing_is_lost("repair unread::a_group_that_is_marked", "256M", |case| {
        assert!(per_group(case) < 90);
        ["set_bg 1 flags 5", "set_bg 1 checksum calc"].map(str::to_owned).to_vec()
    });
}

#[test]
fn regression_a_hidden_journal_is_no_missing_one() {
    nothing_is_lost("repair unread::a_hidden_journal", "8M", |case| {
        vec![format!("set_bg 0 itable_unused {}", per_group(case) - 6), SEALED.to_owned()]
    });
}

/// Nothing else is wrong: such marks were taken for sound.
#[test]
fn regression_marks_that_can_not_be_are_found_and_cleared() {
    for (kind, group, flags) in [
        (&["-t", "ext4", "-b", "1024"][..], 3, 6),
        (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"], 1, 1),
        (&["-t", "ext3", "-b", "1024"], 1, 3),
    ] {
        let case = match Case::filled(kind, "32M") {
            Ok(case) => case,
            Err(reason) => skip!("repair unread::marks_that_can_not_be", reason),
        };
        case.change(&[&format!("set_bg {group} flags {flags}"), &format!("set_bg {group} checksum calc")]);
        let trial = Trial::run(&case.bytes(), case.folder.path());
        assert!(trial.checked.is_some_and(|count| count > 0), "{kind:?}: the check finds nothing");
        assert!(trial.is_clean() && trial.lost.is_empty(), "{kind:?}: {:?}", trial.repaired);
    }
}
