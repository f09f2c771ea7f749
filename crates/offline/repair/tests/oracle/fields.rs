//! Fields that once only e2fsck minded: each is found by the check, too, and mended.

use crate::duplicates::content;
use crate::structures::{Case, survey};
use crate::trial::{e2fsck, watched};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{OpenOptions, Volume};
use hectare_oracle::{debugfs, debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use std::fs;
use std::sync::Arc;

const QUOTA: &[&str] = &["-t", "ext4", "-O", "quota,orphan_file"];

/// What mke2fs makes, and what debugfs changes in it.
const CASES: [(&[&str], &[&str]); 51] = [
    (&["-t", "ext4", "-b", "1024", "-J", "size=4"], &["sif <8> size 2097152"]),
    (&["-t", "ext3", "-b", "1024"], &["sif <8> bmap[700] 0"]),
    (&["-t", "ext2"], &["ssv journal_inum 8"]),
    (&["-t", "ext2"], &["write /dev/null f", "ssv journal_inum 12"]),
    (&["-t", "ext2"], &["ssv journal_inum 2"]),
    (&["-t", "ext2"], &["ssv journal_inum 7"]),
    (&["-t", "ext2"], &["ssv journal_inum 4000000000"]),
    (&["-t", "ext4"], &["feature -has_journal", "sif <8> size 1073741824"]),
    (&["-t", "ext4", "-b", "4096"], &["feature -large_file"]),
    (&["-t", "ext4"], &["sif <5> size 103079215104"]),
    (&["-t", "ext4"], &["sif <6> mode 0160000"]),
    (&["-t", "ext4"], &["sif <9> mode 0100600", "sif <9> links_count 1"]),
    (&["-t", "ext4", "-O", "^resize_inode"], &["sif <7> block[1] 77"]),
    (&["-t", "ext2"], &["sif <8> block[0] 77"]),
    (&["-t", "ext4"], &["sif <3> blocks 2"]),
    (&["-t", "ext4"], &["sif <1> mode 0100600", "sif <1> links_count 1"]),
    (&["-t", "ext4"], &["sif <1> uid 9"]),
    (&["-t", "ext4"], &["sif <8> size 1048578"]),
    (&["-t", "ext4"], &["mknod p p", "sif p flags 0x10"]),
    (&["-t", "ext4", "-O", "bigalloc"], &["mkdir d", "sif d flags 0"]),
    (&["-t", "ext4", "-O", "orphan_file"], &["unlink lost+found", "clri <11>", "mkdir d", "unlink d"]),
    (
        &["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum"],
        &["zap_block -f <12> -o 1020 -l 4 -p 17 0"],
    ),
    (&["-t", "ext4"], &["sif <8> dtime 1700000000"]),
    (&["-t", "ext4"], &["ssv journal_inum 352321544"]),
    (
        &["-t", "ext4"],
        &[
            "symlink s 0123456789012345678901234567890123456789012345678901234567890123456789",
            "sif s size 30",
        ],
    ),
    (&["-t", "ext4", "-O", "inline_data"], &["mkdir d", "sif d extra_isize 0"]),
    (&["-t", "ext2"], &["ssv journal_uuid 12345678-1234-1234-1234-123456789abc"]),
    (
        &["-t", "ext4", "-b", "4096"],
        &["mknod p p", "sif p mode 0100644", "sif p flags 0", "sif p size 4402345721856"],
    ),
    (&["-t", "ext4", "-b", "4096"], &["sif <11> mode 0100644", "sif <11> size 17592186044416"]),
    (
        &["-t", "ext3", "-b", "1024"],
        &[
            "symlink s 0123456789012345678901234567890123456789012345678901234567890123456789",
            "sif s block[TIND] 7000",
        ],
    ),
    (QUOTA, &["sif <3> size 6442450944000000"]),
    (QUOTA, &["ssv usr_quota_inum 9999999"]),
    (QUOTA, &["ssv grp_quota_inum 7"]),
    (QUOTA, &["ssv usr_quota_inum 2"]),
    (QUOTA, &["ssv usr_quota_inum 12"]),
    (QUOTA, &["ssv usr_quota_inum 4"]),
    (QUOTA, &["ssv journal_inum 12"]),
    (QUOTA, &["ssv orphan_file_inum 9999999"]),
    (QUOTA, &["ssv orphan_file_inum 0"]),
    (QUOTA, &["ssv orphan_file_inum 7"]),
    (QUOTA, &["ssv orphan_file_inum 4"]),
    (QUOTA, &["ssv orphan_file_inum 2"]),
    (&["-t", "ext4"], &["mknod p p", "sif p mode 0100644", "ssv orphan_file_inum 12"]),
    (&["-t", "ext4"], &["sif <7> faddr 5", "sif <8> faddr 5"]),
    (&["-t", "ext4", "-O", "^resize_inode"], &["ssv reserved_gdt_blocks 200"]),
    (&["-t", "ext4", "-O", "^resize_inode"], &["sif <7> flags 0x40000000"]),
    (&["-t", "ext2"], &["sif <9> flags 0x40000000"]),
    (&["-t", "ext2"], &["sif <1> gid 6400"]),
    (&["-t", "ext4", "-O", "mmp"], &["ssv mmp_block 1"]),
    (&["-t", "ext2"], &["ssv desc_size 188"]),
    (&["-t", "ext2", "-E", "resize=16385"], &["ssv reserved_gdt_blocks 0", "sif <7> block[DIND] 16711697"]),
];

#[test]
fn regression_fields_that_only_e2fsck_minded() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (args, changes) in CASES {
        let changed = mke2fs(args, &image, "16M").and_then(|_| debugfs_write(&image, changes));
        if let Err(reason) = changed {
            skip!("repair fields::regression_fields_that_only_e2fsck_minded", reason);
        }
        // For some it asks, and does not count them as errors.
        let before = e2fsck("-fn", &image);
        let asks = before.code != Some(0) || before.out.contains("? no");
        let strict = ["dtime", "faddr"].iter().any(|field| changes[0].contains(field));
        assert!(asks || strict, "{changes:?}: e2fsck finds nothing");
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap()));
        let report = hectare_check::check(&*device, &hectare_check::Options::default()).unwrap();
        assert!(!report.is_clean() || !report.notes.is_empty(), "{changes:?}: the check finds nothing");
        let staged = Staged::new(device);
        watched(staged.overlay()).unwrap();
        fs::write(&image, crate::trial::bytes_of(&**staged.overlay())).unwrap();
        let after = e2fsck("-fn", &image);
        assert_eq!(after.code, Some(0), "{changes:?}: {}", after.out);
    }
}

/// A file of 2350 was made one of 1941, for old kernels' sake, whatever else was mended.
#[test]
fn regression_late_years_became_early_ones() {
    let case = match Case::filled(&["-t", "ext4"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair fields::regression_late_years_became_early_ones", reason),
    };
    case.change(&["mknod p p", "sif p mtime @4026531840", "sif p mtime_extra 3"]);
    let (repaired, _) = case.repaired("late");
    assert!(repaired.mends.is_empty(), "{:?}", repaired.mends);
    case.change(&["sif p flags 0x10"]);
    let (repaired, after) = case.repaired("late");
    assert!(!repaired.mends.is_empty());
    fs::write(&case.image, after).unwrap();
    let stat = debugfs(&case.image, &["stat p"]).unwrap();
    assert!(stat.contains("mtime: 0xf0000000:00000003"), "{stat}");
}

/// An inode that the volume itself uses and that counts no links is an error for the check. That of a quota file was
/// not mended, so the whole repair failed.
#[test]
fn regression_inodes_with_a_task_have_a_link() {
    for nr in [3, 4, 7, 8, 12] {
        let case = match Case::filled(QUOTA, "16M") {
            Ok(case) => case,
            Err(reason) => skip!("repair fields::regression_inodes_with_a_task_have_a_link", reason),
        };
        let before = case.survey();
        case.change(&[&format!("sif <{nr}> links_count 0")]);
        let (repaired, after) = case.repaired("linked");
        assert!(!repaired.loses(), "inode {nr}: {:?}", repaired.mends);
        assert!(!repaired.mends.is_empty(), "inode {nr}: nothing is found");
        assert_eq!(survey(&after), before);
    }
}

/// Blocks kept for growing without an inode for them: the tables that lie there are no less where they are.
#[test]
fn regression_no_table_is_moved_out_of_blocks_that_are_not_kept() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair fields::regression_no_table_is_moved", reason),
    };
    let before = case.survey();
    case.change(&["ssv reserved_gdt_blocks 200"]);
    let (repaired, after) = case.repaired("reserved");
    assert!(!repaired.loses(), "{:?}", repaired.mends);
    assert_eq!(survey(&after), before);
}

/// An orphan that is none takes no file with it that a damaged flag calls the value of an attribute.
#[test]
fn regression_only_values_of_orphans_end_with_them() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair fields::regression_only_values_of_orphans", reason),
    };
    let before = case.survey();
    for orphan in ["ssv last_orphan 3000", "clri f8"] {
        case.change(&["sif f7 flags 0x280000", orphan]);
        if orphan.starts_with("clri") {
            case.change(&["sif f9 links_count 0", "ssv last_orphan 3000"]);
        }
        let (repaired, after) = case.repaired(orphan);
        let lost = survey(&after).lacks(&before);
        assert!(
            lost.len() <= 2 && content(&after, "f7") == "   7".repeat(2800).as_bytes(),
            "{:?}",
            repaired.mends
        );
    }
}

/// Unknown features are refused: who does not know them may not write.
#[test]
fn regression_unknown_features_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for features in ["ssv feature_ro_compat 0x80046b", "ssv feature_compat 0x20003c"] {
        let made = mke2fs(&["-t", "ext4"], &image, "16M")
            .and_then(|()| debugfs_write(&image, &["sif <2> links_count 9", features]));
        if let Err(reason) = made {
            skip!("repair fields::regression_unknown_features_are_refused", reason);
        }
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
        let refused = watched(staged.overlay()).unwrap_err();
        assert!(refused.contains("unknown features"), "{features}: {refused}");
    }
}

/// A file inside its inode whose size has a damaged upper half: the lower one says how long it is.
#[test]
fn regression_the_lower_half_of_a_size_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (image, source) = (folder.path().join("image"), folder.path().join("source"));
    for (text, size) in [("", "0x9a0000000000"), ("short", "0x9a0000000005")] {
        fs::write(&source, text).unwrap();
        let write = format!("write {} f", source.display());
        let changes = [&*write, &format!("sif f size {size}"), "sif f block[3] 209"];
        let made = mke2fs(&["-t", "ext4", "-O", "inline_data"], &image, "16M")
            .and_then(|()| debugfs_write(&image, &changes));
        if let Err(reason) = made {
            skip!("repair fields::regression_the_lower_half_of_a_size_counts", reason);
        }
        let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
        watched(staged.overlay()).unwrap();
        let bytes = crate::trial::bytes_of(&**staged.overlay());
        fs::write(&image, &bytes).unwrap();
        let after = e2fsck("-fn", &image);
        assert_eq!(after.code, Some(0), "{text:?}: {}", after.out);
        assert_eq!(content(&bytes, "f"), text.as_bytes(), "{text:?}");
    }
}

/// The engine refuses to write to such a volume until it is repaired, and a repair found it sound.
#[test]
fn regression_marks_that_keep_writers_away_are_taken_off_a_sound_volume() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (kind, state, note) in [
        ("ext4", "ssv state 2", "marked as having errors"),
        ("ext4", "ssv state 3", "marked as having errors"),
        ("ext2", "ssv state 0", "not cleanly closed"),
    ] {
        let changed = mke2fs(&["-t", kind], &image, "16M").and_then(|_| debugfs_write(&image, &[state]));
        if let Err(reason) = changed {
            skip!("repair fields::regression_marks_that_keep_writers_away", reason);
        }
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap()));
        let report = hectare_check::check(&*device, &hectare_check::Options::default()).unwrap();
        assert!(
            report.is_clean() && report.notes.iter().any(|found| found.to_string().contains(note)),
            "{state}"
        );
        assert!(Volume::open(Arc::clone(&device), OpenOptions::default()).is_err(), "{state}");
        let staged = Staged::new(device);
        let done = watched(staged.overlay()).unwrap();
        assert_eq!(done.mends.len(), 1, "{state}");
        Volume::open(Arc::clone(staged.overlay()) as _, OpenOptions::default()).unwrap().close().unwrap();
        fs::write(&image, crate::trial::bytes_of(&**staged.overlay())).unwrap();
        assert_eq!(e2fsck("-fn", &image).code, Some(0), "{state}");
    }
}
