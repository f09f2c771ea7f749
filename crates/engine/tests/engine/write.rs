//! What the engine writes, read by the kernel and judged by e2fsck: every combination that can be written,
//! every tree.

use crate::common::{copy_in, entries_of, long, open_image, open_read_only, try_open_image, what, what_of};
use hectare_engine::{Error, OpenOptions};
use hectare_oracle::{
    Combo, KernelMount, Scale, Tree, assert_clean, assert_same, combos, filled, skip, skip_part, source, walk,
};

fn write(combo: &Combo, tree: Tree, scale: &Scale) {
    let label = format!("write, {} {}", combo.name, tree.name());
    let folder = match source(tree, scale) {
        Ok(folder) => folder,
        Err(reason) => return skip_part!(label, reason),
    };
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    if let Err(reason) = combo.make(&image) {
        return skip_part!(label, reason);
    }
    let volume = open_image(&image);
    let expected = copy_in(&volume, &folder);
    volume.close().unwrap();
    drop(volume);
    if let Err(reason) = assert_clean(&image) {
        return skip_part!(label, reason);
    }
    assert_same(&entries_of(&open_read_only(&image)), &expected, what(combo));
    if let Err(reason) = combo.mountable() {
        return skip_part!(format!("{label}, mounted"), reason);
    }
    let mount = KernelMount::read_only(&image, "").unwrap();
    assert_same(&walk(mount.path()), &expected, what(combo));
}

/// Why a combination can't be written yet.
fn refused(combo: &Combo) -> Option<&'static str> {
    ["quota", "project", "casefold"].into_iter().find(|feature| combo.has(feature))
}

#[test]
fn every_combination_that_can_be_written_is_written_right() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("write::every_combination", reason);
    }
    let mut written = 0;
    for combo in combos().iter().filter(|combo| refused(combo).is_none()) {
        write(combo, Tree::Ordinary, &Scale::SMALL);
        written += 1;
    }
    assert!(written >= 34, "only {written}");
}

#[test]
fn every_tree_is_written_right() {
    for name in ["ext4", "ext4-1k", "bigalloc", "ext4-inode-128"] {
        let combo = Combo::named(name);
        for tree in Tree::ALL {
            let narrow_times = combo.inode_size == 128 && tree == Tree::Times;
            if !narrow_times {
                write(&combo, tree, &Scale::SMALL);
            }
        }
    }
}

#[test]
fn every_tree_on_every_combination_is_written_right() {
    if !long("write, every tree on every combination") {
        return;
    }
    for combo in combos().iter().filter(|combo| refused(combo).is_none()) {
        for tree in Tree::ALL.into_iter().filter(|tree| combo.inode_size > 128 || *tree != Tree::Times) {
            write(combo, tree, &Scale::SMALL);
        }
    }
}

#[test]
fn trees_of_full_scale_are_written_right() {
    let combo = Combo { size: "2G", args: &["-t", "ext4", "-N", "150000"], ..Combo::named("ext4") };
    for tree in [Tree::ManyFiles, Tree::Sparse, Tree::Fragmented, Tree::Deep] {
        write(&Combo { name: "full-scale", ..combo }, tree, &Scale::FULL);
    }
}

#[test]
fn what_cannot_be_written_yet_is_refused_by_name_and_left_as_it_was() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("write::what_cannot_be_written_yet", reason);
    }
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    for combo in combos() {
        let Some(why) = refused(combo) else { continue };
        let filled = match filled(combo, Tree::Ordinary, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(format!("write, refused, {}", combo.name), reason);
                continue;
            }
        };
        filled.copy_to(&image).unwrap();
        let before = std::fs::read(&image).unwrap();
        let error = try_open_image(&image, OpenOptions::default()).err().unwrap();
        assert!(matches!(&error, Error::Unsupported(text) if text.contains(why)), "{}: {error}", combo.name);
        assert!(std::fs::read(&image).unwrap() == before, "{}: bytes changed", combo.name);
        assert_clean(&image).unwrap();
        assert_same(&entries_of(&open_read_only(&image)), filled.entries(), what_of(combo, &filled));
    }
}
