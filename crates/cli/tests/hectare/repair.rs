//! `hectare repair` and `hectare undo`: exit codes, what is written, and the way back.

use crate::support::{digest, hectare};
use hectare_oracle::{assert_clean, debugfs_write, mke2fs, skip};
use std::path::Path;

/// A volume that counts wrong and has a name that leads nowhere.
fn broken(image: &Path) -> Result<(), hectare_oracle::Skip> {
    mke2fs(&["-t", "ext4"], image, "16M")?;
    let name = image.to_str().unwrap();
    hectare(&["mkdir", "-p", &format!("{name}:/a/b")]).ok();
    debugfs_write(image, &["set_inode_field /a links_count 9", "clri /a/b"])?;
    Ok(())
}

#[test]
fn a_repair_is_shown_made_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::a_repair_is_shown_made_and_taken_back", reason);
    }
    let (name, before) = (image.to_str().unwrap(), digest(&image));
    assert_eq!(hectare(&["repair", name]).code, Some(8), "nobody can be asked in a test");
    assert_eq!(hectare(&["repair", "-n", name]).code, Some(4));
    assert_eq!(hectare(&["repair", "-p", name]).code, Some(4), "a name is lost");
    assert_eq!(hectare(&["repair", "-n", "-y", name]).code, Some(16));
    assert_eq!(digest(&image), before, "nothing was written");

    let ran = hectare(&["repair", "-y", name]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_clean(&image).unwrap();
    assert_eq!(hectare(&["check", name]).code, Some(0));
    assert_eq!(hectare(&["repair", "-y", name]).code, Some(0), "it is sound now");

    let undo = format!("{name}.undo-1");
    hectare(&["undo", name, &undo]).ok();
    assert_eq!(digest(&image), before, "it is as it was");
}

#[test]
fn an_undo_file_fits_its_volume_only() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::an_undo_file_fits_its_volume_only", reason);
    }
    let (name, undo) = (image.to_str().unwrap(), folder.path().join("u"));
    let undo = undo.to_str().unwrap();
    assert_eq!(hectare(&["repair", "-y", "--undo", undo, name]).code, Some(1));
    hectare(&["mkdir", &format!("{name}:/later")]).ok();
    let changed = digest(&image);
    assert!(hectare(&["undo", name, undo]).refused().contains("does not fit"));
    assert_eq!(digest(&image), changed);
    let again = hectare(&["repair", "-y", "--undo", undo, name]);
    assert_eq!(again.code, Some(0), "sound: no undo file is made");
    std::fs::write(folder.path().join("damaged"), &std::fs::read(undo).unwrap()[..90]).unwrap();
    assert!(!hectare(&["undo", name, folder.path().join("damaged").to_str().unwrap()]).refused().is_empty());
}

#[test]
fn what_is_no_volume_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let ran = hectare(&["repair", "-y", image.to_str().unwrap()]);
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    assert!(ran.err.contains("nothing was written"), "{}", ran.err);
    assert!(std::fs::read(&image).unwrap() == vec![7; 1 << 20]);
}

#[test]
fn blocks_with_two_owners_are_copied_or_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (image, content) = (folder.path().join("disk.img"), folder.path().join("content"));
    std::fs::write(&content, vec![b'a'; 3000]).unwrap();
    let (name, content) = (image.to_str().unwrap(), content.to_str().unwrap());
    for (how, kept) in [("clone", vec![b'a'; 3000]), ("delete", [vec![0; 1024], vec![b'a'; 1976]].concat())] {
        let made = mke2fs(&["-t", "ext2", "-b", "1024"], &image, "4M").and_then(|_| {
            debugfs_write(&image, &[&format!("write {content} a"), &format!("write {content} b")])?;
            let first = hectare_oracle::debugfs(&image, &["blocks a"])?;
            let first = first
                .split_whitespace()
                .find(|word| word.parse::<u64>().is_ok())
                .unwrap_or_default()
                .to_owned();
            debugfs_write(&image, &[&format!("sif b block[0] {first}")])
        });
        if let Err(reason) = made {
            skip!("cli repair::blocks_with_two_owners_are_copied_or_given_up", reason);
        }
        let ran = hectare(&["repair", "-y", "--no-undo", "--duplicates", how, name]);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert_clean(&image).unwrap();
        assert!(hectare(&["cat", &format!("{name}:/a")]).out == vec![b'a'; 3000], "{how}");
        assert!(hectare(&["cat", &format!("{name}:/b")]).out == kept, "{how}");
    }
}

#[test]
fn an_interrupted_repair_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    if let Err(reason) = broken(&image) {
        skip!("cli repair::an_interrupted_repair_begins_again", reason);
    }
    let (name, before) = (image.to_str().unwrap(), std::fs::read(&image).unwrap());
    assert_eq!(hectare(&["repair", "-y", name]).code, Some(1));
    let after = std::fs::read(&image).unwrap();
    // What a power cut leaves: the old superblock with the mark of errors, and half of the changes.
    let mut cut = [&after[..after.len() / 2], &before[after.len() / 2..]].concat();
    cut[1024..2048].copy_from_slice(&before[1024..2048]);
    cut[1024 + 0x3a] |= 2;
    let sum = hectare_ext4::checksum::crc32c(!0, &cut[1024..1024 + 0x3fc]);
    cut[1024 + 0x3fc..2048].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&image, &cut).unwrap();
    assert!(
        hectare(&["repair", "-y", "--resume", "/dev/null", name]).code == Some(8),
        "that is no undo file"
    );
    let again = hectare(&["repair", "-y", name]);
    assert_eq!(again.code, Some(1), "{}", again.err);
    assert!(again.err.contains("interrupted"), "{}", again.err);
    assert!(std::fs::read(&image).unwrap() == after, "it ends as the first would have");
    hectare(&["undo", name, &format!("{name}.undo-2")]).ok();
    assert!(std::fs::read(&image).unwrap() == before, "and is taken back as the first would be");
}
