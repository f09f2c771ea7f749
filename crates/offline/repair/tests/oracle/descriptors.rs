//! Group descriptors of which there are two opinions: in their place, in their backups, in the log.

use crate::structures::{Case, survey};
use crate::trial::e2fsck;
use hectare_oracle::skip;
use hectare_repair::Repaired;
use std::fs;

fn texts(repaired: &Repaired) -> Vec<String> {
    repaired.mends.iter().map(|mend| mend.unwrap().text).collect()
}

fn count(repaired: &Repaired, part: &str) -> usize {
    texts(repaired).iter().filter(|text| text.contains(part)).count()
}

/// e2fsck moves a table and leaves the backup of its descriptor as it was. What was written since is in the
/// moved table only; the old one still looks like a table.
#[test]
fn regression_a_backup_from_before_a_table_was_moved_takes_no_file() {
    let features = "^flex_bg,^metadata_csum,^resize_inode,^has_journal";
    let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-N", "256", "-O", features], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair descriptors::a_backup_from_before", reason),
    };
    let content = case.folder.path().join("content");
    fs::write(&content, "content ".repeat(600)).unwrap();
    let write = |names: std::ops::Range<u32>| {
        let requests: Vec<_> = names.map(|nr| format!("write {} n{nr}", content.display())).collect();
        case.change(&requests.iter().map(String::as_str).collect::<Vec<_>>());
    };
    write(0..80);
    case.change(&["set_bg 1 inode_table 12000", "set_bg 1 checksum calc"]);
    e2fsck("-fy", &case.image);
    write(80..120);
    let before = case.survey();
    case.change(&["sif n100 links_count 2"]);
    let (repaired, after) = case.repaired("stale backup");
    assert!(survey(&after) == before, "{:?}", texts(&repaired));
    assert_eq!(count(&repaired, "restored from a backup"), 0, "{:?}", texts(&repaired));
}

/// A descriptor that leads into the moved table of another group is the wrong one of both.
#[test]
fn regression_a_descriptor_that_leads_into_a_moved_table_takes_no_file() {
    for features in ["^flex_bg,^metadata_csum", "^metadata_csum,uninit_bg", "^metadata_csum", "metadata_csum"]
    {
        let features = format!("{features},^resize_inode,^has_journal");
        let kind = ["-t", "ext4", "-b", "1024", "-N", "384", "-O", &features];
        let case = match Case::filled(&kind, "24M") {
            Ok(case) => case,
            Err(reason) => skip!("repair descriptors::a_descriptor_that_leads_into", reason),
        };
        let content = case.folder.path().join("content");
        fs::write(&content, "content ".repeat(600)).unwrap();
        let write = |names: std::ops::Range<u32>| {
            let requests: Vec<_> = names.map(|nr| format!("write {} n{nr}", content.display())).collect();
            case.change(&requests.iter().map(String::as_str).collect::<Vec<_>>());
        };
        write(0..60);
        case.change(&["set_bg 1 inode_table 12000", "set_bg 1 checksum calc"]);
        e2fsck("-fy", &case.image);
        write(60..120);
        let before = case.survey();
        case.change(&["set_bg 2 inode_table 12000", "set_bg 2 checksum calc"]);
        let (repaired, after) = case.repaired("moved table");
        let lost = survey(&after).lacks(&before);
        assert!(lost.is_empty(), "{features}: {lost:?} {:?}", texts(&repaired));
        assert!(!repaired.loses(), "{features}: {:?}", texts(&repaired));
    }
}

/// A moved table whose first inodes were never used is no worse than the one that the backup leads to.
#[test]
fn regression_a_moved_table_with_a_late_first_inode_takes_no_file() {
    let kind = ["-t", "ext4", "-b", "1024", "-N", "4096", "-O", "^metadata_csum,^resize_inode,^has_journal"];
    let case = match Case::filled(&[&kind[..], &["-O", "^flex_bg"]].concat(), "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair descriptors::a_moved_table_with_a_late_first_inode", reason),
    };
    case.change(&["copy_inode d7 <2100>", "set_bg 1 itable_unused 0", "set_bg 1 checksum calc"]);
    case.change(&["set_bg 1 inode_table 12000", "set_bg 1 checksum calc"]);
    e2fsck("-fy", &case.image);
    case.change(&["copy_inode f20 <4000>", "ln <4000> far", "seti <4000>"]);
    case.change(&["set_bg 1 itable_unused 0", "set_bg 1 flags 4", "set_bg 1 checksum calc"]);
    e2fsck("-fy", &case.image);
    let before = case.survey();
    assert!(before.inodes.contains_key(&4000), "{:?}", before.inodes.keys());
    case.change(&["sif f20 links_count 2"]);
    let (repaired, after) = case.repaired("late inode");
    assert!(survey(&after) == before, "{:?}", texts(&repaired));
}

/// A descriptor in the log is the newer one.
#[test]
fn regression_what_the_log_holds_is_no_damage_in_its_place() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024", "-N", "256"], "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair descriptors::what_the_log_holds", reason),
    };
    let before = case.survey();
    let block = case.folder.path().join("block");
    fs::write(&block, &case.bytes()[2048..3072]).unwrap();
    case.change(&["set_bg 0 itable_unused 100", "set_bg 0 checksum calc"]);
    case.change(&["journal_open", &format!("journal_write -b 2 {}", block.display()), "journal_close"]);
    assert_ne!(case.bytes()[2048..3072], fs::read(block).unwrap()[..]);
    let (repaired, after) = case.repaired("logged");
    assert!(survey(&after) == before, "{:?}", texts(&repaired));
    assert_eq!(count(&repaired, "unused inodes"), 0, "{:?}", texts(&repaired));
    assert!(texts(&repaired).contains(&"replayed: 1 block".to_owned()), "{:?}", texts(&repaired));
}

/// The groups were read twice, the second time with a superblock that was already changed.
#[test]
fn regression_blocks_kept_for_growing_are_reported_if_there_is_a_log() {
    let case = match Case::filled(&["-t", "ext4", "-b", "1024"], "20M") {
        Ok(case) => case,
        Err(reason) => skip!("repair descriptors::blocks_kept_for_growing", reason),
    };
    let block = case.folder.path().join("block");
    fs::write(&block, &case.bytes()[2048..3072]).unwrap();
    case.change(&["journal_open", &format!("journal_write -b 2 {}", block.display()), "journal_close"]);
    case.change(&["ssv reserved_gdt_blocks 230", "feature -needs_recovery"]);
    let (repaired, _) = case.repaired("kept blocks");
    assert_eq!(count(&repaired, "s_reserved_gdt_blocks was 230"), 1, "{:?}", texts(&repaired));
}

#[test]
fn regression_unused_counts_without_checksums_are_one_line() {
    let case = match Case::filled(&["-t", "ext2", "-b", "1024", "-g", "1024", "-I", "128"], "8M") {
        Ok(case) => case,
        Err(reason) => skip!("repair descriptors::unused_counts", reason),
    };
    let before = case.survey();
    case.change(&["set_bg 1 itable_unused 1", "set_bg 2 itable_unused 1", "set_bg 3 itable_unused 7"]);
    let (repaired, after) = case.repaired("unused counts");
    assert_eq!(texts(&repaired), ["groups that counted unused inodes, without checksums: 3, now none"]);
    assert!(survey(&after) == before);
}

/// Each group's hidden directories lead only to those of the next: the volume was checked once for each.
#[test]
fn regression_directories_hidden_behind_each_other_take_few_checks() {
    let kind = ["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "512", "-O", "^has_journal"];
    let case = match Case::filled(&kind, "16M") {
        Ok(case) => case,
        Err(reason) => skip!("repair descriptors::directories_hidden", reason),
    };
    let chain: Vec<_> = (1..250).map(|depth| format!("mkdir {}", vec!["d"; depth].join("/"))).collect();
    case.change(&chain.iter().map(String::as_str).collect::<Vec<_>>());
    let before = case.survey();
    let hide =
        (2..8).flat_map(|nr| [format!("set_bg {nr} itable_unused 64"), format!("set_bg {nr} checksum calc")]);
    let hide: Vec<_> = hide.collect();
    case.change(&hide.iter().map(String::as_str).collect::<Vec<_>>());
    let (repaired, after) = case.repaired("hidden");
    assert!(survey(&after) == before, "{:?}", texts(&repaired));
    assert_eq!(count(&repaired, "all tables are read"), 1, "{:?}", texts(&repaired));
}
