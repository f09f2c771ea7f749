//! What e2fsck asks about and does not count: `e2fsck -fn` ends with 0, and the kernel mounts the volume. It is
//! a note, so that programs that need a sound volume (resize, tune) take it.

use crate::support::{e2fsck, lines, load, options};
use hectare_check::{Options, Report, check};
use hectare_oracle::{debugfs_write, mke2fs, scratch, skip};
use std::num::NonZeroUsize;

struct Case {
    args: &'static [&'static str],
    size: &'static str,
    requests: &'static [&'static str],
    note: &'static str,
}

const EXT4: &[&str] = &["-t", "ext4", "-b", "1024", "-I", "256"];
const LATE: &str = "a time is in 2310 or later; old kernels";

const CASES: [Case; 4] = [
    Case {
        args: EXT4,
        size: "8M",
        requests: &["mknod p p", "sif p mtime @4026531840", "sif p mtime_extra 3"],
        note: LATE,
    },
    Case {
        args: EXT4,
        size: "8M",
        requests: &["mknod p p", "sif p crtime @4026531840", "sif p crtime_extra 3"],
        note: LATE,
    },
    Case {
        args: EXT4,
        size: "8M",
        requests: &[
            "mknod p p",
            "sif p atime @4026531840",
            "sif p atime_extra 3",
            "sif <2> ctime @4026531840",
            "sif <2> ctime_extra 3",
        ],
        note: "inode 2: a time is in 2310 or later (2 inodes)",
    },
    // mke2fs makes this one, without a change.
    Case {
        args: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "256",
            "-O",
            "sparse_super2,orphan_file",
            "-E",
            "resize=1097728",
        ],
        size: "134M",
        requests: &[],
        note: "s_reserved_gdt_blocks is 234, but there is no resize inode",
    },
];

/// What lies over other metadata is none of these.
#[test]
fn blocks_kept_over_other_metadata_are_a_problem() {
    let image = scratch::fresh("noted");
    let made = mke2fs(&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], &image, "64M")
        .and_then(|()| debugfs_write(&image, &["ssv reserved_gdt_blocks 5"]));
    if let Err(reason) = made {
        skip!("check noted, blocks kept over other metadata", reason);
    }
    assert_eq!(e2fsck(&image).expect("it was there a moment ago").0, Some(4));
    assert!(!check(&load(&image), &options()).unwrap().is_clean());
    std::fs::remove_file(&image).unwrap();
}

#[test]
fn regression_what_e2fsck_does_not_count_was_a_problem() {
    let image = scratch::fresh("noted");
    for Case { args, size, requests, note } in CASES {
        if let Err(reason) = mke2fs(args, &image, size).and_then(|()| debugfs_write(&image, requests)) {
            skip!("check noted", reason);
        }
        let (exit, said) = e2fsck(&image).expect("it was there a moment ago");
        assert!(exit == Some(0) && said.contains("? no"), "{requests:?}: {said}");
        let device = load(&image);
        let judge = |threads| {
            let threads = NonZeroUsize::new(threads).unwrap();
            check(&device, &Options { threads, ..options() }).unwrap()
        };
        let report: Report = judge(1);
        assert!(report.is_clean(), "{requests:?}: {}", lines(&report));
        let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
        assert!(notes.iter().any(|found| found.contains(note)), "{requests:?}: {notes:?}");
        assert_eq!(judge(2), report);
        std::fs::remove_file(&image).unwrap();
    }
}
