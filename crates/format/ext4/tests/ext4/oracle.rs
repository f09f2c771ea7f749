//! Superblocks, group descriptors, bitmaps and inodes of real volumes, compared with what dumpe2fs and
//! debugfs print of them.
//!
//! Every combination of features and block sizes is made by mke2fs, and again filled by the kernel (or by
//! `mke2fs -d` where the kernel can't). What is compared is text: the lines the tools print are put together
//! from our structures and must be the same. What is rendered must be the bytes it was parsed from.

mod checksums;
mod groups;
mod inodes;
mod superblock;
mod volume;

use hectare_oracle::{Combo, Skip, combos, mke2fs, scratch, skip};
use std::fs;
use std::path::Path;
use volume::Volume;

/// Runs `check` on an image that `make` puts at the path given to it.
fn on_image(make: impl FnOnce(&Path) -> Result<(), Skip>, check: impl FnOnce(&Path)) -> Result<(), Skip> {
    let image = scratch::fresh("core");
    let made = make(&image);
    if made.is_ok() {
        check(&image);
    }
    let _ = fs::remove_file(&image); // the scratch directory is removed anyway
    made
}

/// What holds for every volume.
fn check_volume(image: &Path, name: &str) {
    let volume = Volume::open(image);
    let dump = hectare_oracle::dumpe2fs(image).unwrap_or_else(|skip| panic!("{skip}"));
    superblock::check(&volume, &dump, name);
    groups::check(&volume, &dump, name);
    inodes::check_slots(&volume, name);
}

#[test]
fn new_volumes_are_read_as_dumpe2fs_reads_them() {
    for combo in combos() {
        let checked = on_image(
            |image| combo.make(image),
            |image| {
                check_volume(image, combo.name);
                superblock::check_backups(&Volume::open(image), combo.name);
            },
        );
        if let Err(reason) = checked {
            skip!("oracle::new_volumes_are_read_as_dumpe2fs_reads_them", reason);
        }
    }
}

#[test]
fn filled_volumes_are_read_as_dumpe2fs_and_debugfs_read_them() {
    for combo in combos() {
        let checked = on_image(
            |image| inodes::fill(combo, image),
            |image| {
                check_volume(image, combo.name);
                inodes::check_stat(image, combo.name);
            },
        );
        if let Err(reason) = checked {
            hectare_oracle::skip_part!(format!("oracle::filled_volumes, {}", combo.name), reason);
        }
    }
}

/// Shapes that the combinations are too small for: many groups, several meta groups, a last group of odd
/// size.
#[test]
fn large_and_odd_shapes_are_read_as_dumpe2fs_reads_them() {
    let shapes: [(&[&str], &str); 9] = [
        (&["-t", "ext4", "-b", "1024", "-g", "512", "-O", "meta_bg,^resize_inode,^flex_bg"], "1100M"),
        (&["-t", "ext4", "-b", "1024", "-g", "256", "-O", "meta_bg,^resize_inode,^64bit"], "400M"),
        (&["-t", "ext4", "-b", "4096", "-O", "meta_bg,^resize_inode", "-N", "4096"], "20G"),
        (&["-t", "ext4", "-b", "4096", "-O", "sparse_super2,^resize_inode", "-N", "4096"], "5G"),
        (&["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode", "-E", "num_backup_sb=1"], "64M"),
        (&["-t", "ext4", "-b", "2048", "-O", "bigalloc", "-C", "131072", "-N", "4096"], "9G"),
        (&["-t", "ext4", "-b", "1024", "-O", "bigalloc,^flex_bg", "-C", "2048", "-N", "4096"], "77777"),
        (&["-t", "ext4", "-b", "4096", "-E", "resize=4T", "-N", "4096"], "33333"),
        (&["-t", "ext2", "-b", "1024", "-g", "1000", "-O", "^sparse_super,^resize_inode"], "20001"),
    ];
    for (args, size) in shapes {
        let checked = on_image(
            |image| mke2fs(args, image, size),
            |image| {
                let name = format!("{args:?} {size}");
                check_volume(image, &name);
                superblock::check_backups(&Volume::open(image), &name);
            },
        );
        if let Err(reason) = checked {
            skip!("oracle::large_and_odd_shapes_are_read_as_dumpe2fs_reads_them", reason);
        }
    }
}

#[test]
fn every_wrong_checksum_is_refused_by_name() {
    for name in ["ext4", "ext4-1k", "csum-seed", "ext4-inode-128", "no-64bit", "uninit-bg", "uninit-bg-1k"] {
        let checked =
            on_image(|image| inodes::fill(&Combo::named(name), image), |image| checksums::check(image, name));
        if let Err(reason) = checked {
            skip!("oracle::every_wrong_checksum_is_refused_by_name", reason);
        }
    }
}

/// Fields that no file of the trees has: set by debugfs, read by us.
#[test]
fn fields_set_by_debugfs_are_read() {
    for name in ["ext4", "ext4-inode-128", "ext4-inode-1024", "no-csum"] {
        let checked = on_image(
            |image| inodes::fill(&Combo::named(name), image),
            |image| {
                inodes::set_fields(image);
                inodes::check_slots(&Volume::open(image), name);
                inodes::check_stat(image, name);
            },
        );
        if let Err(reason) = checked {
            skip!("oracle::fields_set_by_debugfs_are_read", reason);
        }
    }
}
