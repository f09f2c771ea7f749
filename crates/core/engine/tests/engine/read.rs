//! What mke2fs and the kernel wrote, read by the engine: every combination, every tree.

use crate::common::{entries_of, open_read_only, what_of};
use hectare_oracle::hunt::{long, part};
use hectare_oracle::{Combo, Scale, Tree, assert_same, combos, filled, skip, skip_part};

fn read(combo: &Combo, tree: Tree, scale: &Scale) {
    match filled(combo, tree, scale) {
        Ok(filled) => {
            let volume = open_read_only(filled.image());
            assert_same(&entries_of(&volume), filled.entries(), what_of(combo, &filled));
        }
        Err(reason) => skip_part!(format!("read, {} {}", combo.name, tree.name()), reason),
    }
}

#[test]
fn every_combination_is_read_as_the_kernel_reads_it() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("read::every_combination", reason);
    }
    for combo in combos() {
        read(combo, Tree::Ordinary, &Scale::SMALL);
    }
}

#[test]
fn every_tree_is_read_as_the_kernel_reads_it() {
    for name in ["ext4", "ext4-1k", "ext2-1k-128", "bigalloc-1k", "inline-data"] {
        let combo = Combo::named(name);
        for tree in Tree::ALL {
            read(&combo, tree, &Scale::SMALL);
        }
    }
}

#[test]
fn every_tree_on_every_combination_is_read_as_the_kernel_reads_it() {
    if !long("read, every tree on every combination") {
        return;
    }
    for combo in combos() {
        for tree in Tree::ALL {
            read(combo, tree, &Scale::SMALL);
        }
    }
}

#[test]
fn trees_of_full_scale_are_read_as_the_kernel_reads_them() {
    let combo = Combo { size: "2G", args: &["-t", "ext4", "-N", "150000"], ..Combo::named("ext4") };
    for tree in part("read, trees of full scale", [Tree::ManyFiles, Tree::Sparse, Tree::Fragmented], 2) {
        // The cache of filled volumes is keyed by name.
        read(&Combo { name: "full-scale", ..combo }, tree, &Scale::FULL);
    }
}
