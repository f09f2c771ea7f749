//! What the engine writes, read by the kernel and judged by e2fsck: every combination, every tree.

use crate::common::{copy_in, entries_of, open_image, open_read_only, what};
use hectare_oracle::hunt::{long, part};
use hectare_oracle::{
    Combo, KernelMount, Scale, Tree, assert_clean, assert_same, combos, skip, skip_part, source, walk,
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

#[test]
fn every_combination_is_written_right() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("write::every_combination", reason);
    }
    for combo in combos() {
        write(combo, Tree::Ordinary, &Scale::SMALL);
    }
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
    for combo in combos() {
        for tree in Tree::ALL.into_iter().filter(|tree| combo.inode_size > 128 || *tree != Tree::Times) {
            write(combo, tree, &Scale::SMALL);
        }
    }
}

#[test]
fn trees_of_full_scale_are_written_right() {
    let combo = Combo { size: "2G", args: &["-t", "ext4", "-N", "150000"], ..Combo::named("ext4") };
    let trees = [Tree::ManyFiles, Tree::Sparse, Tree::Fragmented, Tree::Deep];
    for tree in part("write, trees of full scale", trees, 2) {
        write(&Combo { name: "full-scale", ..combo }, tree, &Scale::FULL);
    }
}
