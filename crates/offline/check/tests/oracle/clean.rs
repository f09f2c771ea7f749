//! Volumes that mke2fs and the kernel made are clean for both.

use crate::support::{check_file, lines};
use hectare_oracle::{
    Combo, Scale, Tree, assert_clean, combos, debugfs_write, filled, mke2fs, name_journal, scratch, skip,
    skip_part, tool,
};
use std::path::Path;

#[track_caller]
fn assert_both_clean(name: &str, image: &Path) {
    let report = check_file(image).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(report.is_clean(), "{name}:\n{}", lines(&report));
    assert!(report.notes.is_empty(), "{name}: {:?}", report.notes);
}

#[test]
fn every_fresh_volume_is_clean() {
    if let Err(reason) = tool::need("mke2fs") {
        skip!("check clean::every_fresh_volume", reason);
    }
    for combo in combos() {
        let image = scratch::fresh("fresh");
        combo.make(&image).unwrap();
        assert_both_clean(combo.name, &image);
        let _ = std::fs::remove_file(&image);
    }
}

#[test]
fn every_combination_filled_is_clean() {
    if let Err(reason) = tool::need("mke2fs") {
        skip!("check clean::every_combination_filled", reason);
    }
    for combo in combos() {
        match filled(combo, Tree::Ordinary, &Scale::SMALL) {
            Ok(filled) => assert_both_clean(combo.name, filled.image()),
            Err(reason) => skip_part!(format!("check clean, {}", combo.name), reason),
        }
    }
}

#[test]
fn every_tree_is_clean() {
    if let Err(reason) = tool::need("mke2fs") {
        skip!("check clean::every_tree", reason);
    }
    for combo in ["ext4-1k", "ext2-plain", "bigalloc-1k", "inline-data", "no-filetype"].map(Combo::named) {
        for tree in Tree::ALL {
            let name = format!("{} with {}", combo.name, tree.name());
            match filled(&combo, tree, &Scale::SMALL) {
                Ok(filled) => {
                    assert_clean(filled.image()).unwrap();
                    assert_both_clean(&name, filled.image());
                }
                Err(reason) => skip_part!(format!("check clean, {name}"), reason),
            }
        }
    }
}

/// The journal that tune2fs gives to a mounted volume is the file `.journal`, of an ordinary inode.
#[test]
fn regression_a_journal_with_a_name_is_clean() {
    let image = scratch::fresh("visible");
    let made = mke2fs(&["-t", "ext3", "-b", "1024"], &image, "16M").and_then(|()| name_journal(&image));
    if let Err(reason) = made {
        skip!("check clean::regression_a_journal_with_a_name", reason);
    }
    assert_clean(&image).unwrap();
    assert_both_clean("a journal with a name", &image);
    debugfs_write(&image, &["unlink .journal"]).unwrap();
    let report = check_file(&image).unwrap();
    assert!(lines(&report).contains("0 names lead to it"), "{}", lines(&report));
    let _ = std::fs::remove_file(&image);
}
