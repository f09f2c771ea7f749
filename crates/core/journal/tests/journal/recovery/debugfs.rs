//! Journals that debugfs wrote.

use crate::recovery::volume::{Volume, assert_as_e2fsck};
use hectare_journal::format::{Checksum, MAGIC};
use hectare_oracle::{Skip, debugfs_write, mke2fs, skip};
use hectare_units::BlockNr;
use std::fs;
use std::path::Path;

struct Form {
    mke2fs: &'static [&'static str],
    open: &'static str,
    checksum: Checksum,
    wide: bool,
    block_size: usize,
}

const FORMS: [Form; 8] = [
    form(&["-b", "1024"], "jo -c -v 3", Checksum::V3, true, 1024),
    form(&["-b", "1024"], "jo -c -v 2", Checksum::V2, true, 1024),
    form(&["-b", "1024", "-O", "^metadata_csum"], "jo", Checksum::None, true, 1024),
    form(&["-b", "1024", "-O", "^64bit,^metadata_csum"], "jo", Checksum::None, false, 1024),
    form(&["-b", "2048", "-O", "^64bit"], "jo -c -v 2", Checksum::V2, false, 2048),
    form(&["-b", "4096", "-O", "^64bit"], "jo -c -v 3", Checksum::V3, false, 4096),
    form(&["-b", "4096", "-O", "^extent,^64bit,^metadata_csum"], "jo", Checksum::None, false, 4096),
    form(&["-b", "65536"], "jo -c -v 3", Checksum::V3, true, 65536),
];

const fn form(
    mke2fs: &'static [&'static str],
    open: &'static str,
    checksum: Checksum,
    wide: bool,
    block_size: usize,
) -> Form {
    Form { mke2fs, open, checksum, wide, block_size }
}

/// Blocks of content, of which each third starts with the magic number.
fn content(folder: &Path, name: &str, blocks: usize, fill: u8, block_size: usize) -> String {
    let mut bytes = vec![fill; blocks * block_size];
    for block in bytes.chunks_mut(block_size).step_by(3) {
        block[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    let file = folder.join(name);
    fs::write(&file, bytes).unwrap();
    file.display().to_string()
}

fn numbers(blocks: impl IntoIterator<Item = u64>) -> String {
    blocks.into_iter().map(|nr| nr.to_string()).collect::<Vec<_>>().join(",")
}

fn write_and_compare(form: &Form) -> Result<(), Skip> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mebibytes = (form.block_size * 1024 * 6) >> 20;
    let journal = format!("size={}", (form.block_size * 1024) >> 20);
    let args = [&["-t", "ext4", "-J", &journal], form.mke2fs].concat();
    mke2fs(&args, &image, &format!("{mebibytes}M"))?;
    let base = Volume::read(&image)?.blocks().get() - 400;
    let many = content(folder.path(), "many", 150, 1, form.block_size);
    let few = content(folder.path(), "few", 3, 2, form.block_size);
    // Blocks and revokes apart: debugfs forgets the commit block of some transactions that have both.
    let requests = [
        form.open.to_owned(),
        format!("jw -b {} {many}", numbers(base..base + 150)),
        format!("jw -r {}", numbers(base + 5..base + 100)),
        format!("jw -b {} {few}", numbers([base, base + 1, base + 200])),
        format!("jw -b {} {few}", numbers([base + 7, base + 201, base + 5])),
        format!("jw -r {}", numbers([base + 201])),
        format!("jw -c -b {} {few}", numbers([base + 2, base + 3, base + 4])),
        "jc".to_owned(),
    ];
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs_write(&image, &requests)?;
    let volume = Volume::read(&image)?;
    let superblock = volume.journal_superblock();
    let is = (superblock.checksum(), superblock.log_format().wide);
    assert_eq!(is, (form.checksum, form.wide));
    let (ours, recovery) = assert_as_e2fsck(&volume)?;
    assert_eq!(recovery.blocks().len(), 150 + 1 - 95 + 2);
    let first = |nr: u64| ours.bytes[ours.range(BlockNr::new(base + nr))][4];
    assert_eq!((first(0), first(1), first(2), first(5), first(6), first(201)), (2, 2, 1, 2, 0, 0));
    Ok(())
}

#[test]
fn what_debugfs_wrote_is_replayed_as_e2fsck_does() {
    for form in &FORMS {
        println!("{:?} {}", form.mke2fs, form.open);
        if let Err(reason) = write_and_compare(form) {
            skip!("recovery::debugfs::what_debugfs_wrote", reason);
        }
    }
}
