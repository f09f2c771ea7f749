//! Superblock and group descriptors, field by field, against what resize2fs makes of the same volume.

use hectare_oracle::e2fsprogs::GroupDump;
use hectare_oracle::{Skip, dumpe2fs};
use hectare_resize::Outcome;
use std::path::Path;

/// Fields of the superblock that may differ, each with the reason.
const OWN: &[(&str, &str)] = &[
    ("Checksum", "it covers the others"),
    ("Last write time", "the clock"),
    ("Lifetime writes", "resize2fs counts what it writes"),
    ("Overhead clusters", "resize2fs sets it to 0, for the kernel to count"),
    ("Journal", "resize2fs does not use the journal"),
    ("mmp_", "resize2fs holds the volume for the time"),
    ("Free blocks", "maps that were built anew have fewer nodes"),
];
/// Compares what the volumes say.
pub(crate) fn compare(what: &str, ours: &Path, theirs: &Path, done: &Outcome) -> Result<(), Skip> {
    let (ours, theirs) = (dumpe2fs(ours)?, dumpe2fs(theirs)?);
    let names = ours.fields.keys().chain(theirs.fields.keys());
    let compared = names.filter(|name| !OWN.iter().any(|(own, _)| name.starts_with(own)));
    let mut differences = Vec::new();
    // Beyond its reserve the volume gets meta groups, where resize2fs moves what is in the way.
    let extended = ours.has("meta_bg") && !theirs.has("meta_bg");
    let is_layout = |name: &str| {
        ["Filesystem features", "First meta block", "Reserved GDT"].iter().any(|s| name.starts_with(s))
    };
    for name in compared.filter(|name| !extended || !is_layout(name)) {
        let (a, b) = (ours.fields.get(name), theirs.fields.get(name));
        if a != b {
            differences.push(format!("{name}: {a:?} against {b:?}"));
        }
    }
    assert!(differences.is_empty(), "{what}: {differences:#?}");
    assert_eq!(ours.groups.len(), theirs.groups.len(), "{what}: groups");
    let per_group = theirs.number("Blocks per group");
    let (before, after) = (done.before.get().min(done.after.get()), ours.number("Block count"));
    for (nr, (ours, theirs)) in (0..).zip(ours.groups.iter().zip(&theirs.groups)) {
        // New groups, and those whose metadata or files moved, have their own places in both.
        let stays =
            !extended && done.blocks_moved == 0 && done.inodes_moved == 0 && (nr + 1) * per_group <= before;
        let lines = |group| {
            let mut lines = comparable(group, stays);
            lines.retain(|line| !extended || !line.contains("superblock") && !line.contains("Reserved GDT"));
            lines
        };
        assert_eq!(lines(ours), lines(theirs), "{what}: group {nr} of {after} blocks");
    }
    Ok(())
}

/// What both must say of a group: its blocks, its copies of superblock and descriptors, its inodes; and where
/// its own metadata lies if it stays.
fn comparable(group: &GroupDump, stays: bool) -> Vec<String> {
    let mut lines = vec![group.heading.split(" csum").next().unwrap_or_default().to_owned()];
    for line in &group.lines {
        let line = line.split(", csum").next().unwrap_or_default().trim();
        let is_place =
            ["Block bitmap at", "Inode bitmap at", "Inode table at"].iter().any(|s| line.contains(s));
        let is_base = line.contains("superblock") || line.contains("Reserved GDT");
        if is_base || (stays && is_place) || line.starts_with("Free inodes") {
            lines.push(line.to_owned());
        } else if let Some((_, counts)) = line.split_once(" free blocks, ") {
            // How many at the end of the table were never used is counted anew by resize2fs.
            lines.extend(counts.split(", ").filter(|count| !count.contains("unused")).map(str::to_owned));
        }
    }
    lines
}
