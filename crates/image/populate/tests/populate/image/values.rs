//! Attribute values in inodes of their own (`ea_inode`): the kernel sees them, and e2fsck counts their users.

use crate::image::common::*;
use hectare_oracle::{IS_LINUX, assert_clean, skip, xattr};
use hectare_populate::Size;
use std::fs;
use std::path::Path;

fn value(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| seed ^ u8::try_from(n * 31 % 251).unwrap()).collect()
}

/// Files whose attributes are equal in whole, in part, or not; returns whether this file system takes them.
fn fill(folder: &Path) -> bool {
    let set = |file: &str, name: &str, value: &[u8]| xattr::set(&folder.join(file), name, value).is_ok();
    fs::create_dir(folder.join("dir")).unwrap();
    let mut taken = true;
    for n in 0..12 {
        let file = format!("file{n}");
        fs::write(folder.join(&file), &file).unwrap();
        taken &= set(&file, "user.large", &value(1, 60_000));
        taken &= n % 2 == 0 || set(&file, "user.small", b"small");
        taken &= n % 3 == 0 || set(&file, "user.other", &value(n, 4_500));
        taken &= set(&file, "user.again", &value(1, 60_000));
    }
    // More than one block's share of inodes.
    for n in 0..1100 {
        let file = format!("dir/many{n}");
        fs::write(folder.join(&file), "").unwrap();
        taken &= set(&file, "user.many", &value(9, 3_000));
    }
    taken && set("dir", "user.largest", &value(2, 65_536)) && set("", "user.top", &value(3, 5_000))
}

#[test]
fn the_kernel_sees_values_in_inodes_of_their_own() {
    let folder = hectare_oracle::scratch::fresh("values");
    fs::create_dir_all(&folder).unwrap();
    if !IS_LINUX {
        skip!("image::values", "other hosts do not read attributes");
    }
    if !fill(&folder) {
        skip!("image::values", "the file system of test volumes holds no large attributes");
    }
    let (tree, entries) = (tree(&folder), walk(&folder));
    for args in [
        "-O ea_inode",
        "-O ea_inode -b 1024",
        "-O ea_inode -b 1024 -I 128",
        "-O ea_inode,^metadata_csum -b 2048",
        "-O ea_inode,bigalloc -C 16384",
        "-O ea_inode,orphan_file,metadata_csum_seed -g 4096",
        "-O ea_inode,^extents,^64bit -b 1024",
    ] {
        let name = format!("image::values, {args}");
        let (temporary, options) = (tempfile::tempdir().unwrap(), options(args));
        let image = temporary.path().join("image");
        build(&tree, &options, Size::Min, &image).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_clean(&image).unwrap();
        let entries =
            if options.inode_size == Some(128) { narrowed(entries.clone()) } else { entries.clone() };
        judge(&name, &image, &entries, what(&options));
    }
    let (temporary, plain) = (tempfile::tempdir().unwrap(), options("-b 1024"));
    let refused = build(&tree, &plain, Size::Min, &temporary.path().join("image")).map(drop);
    let text = refused.expect_err("no block holds them").to_string();
    assert!(text.contains("the feature ea_inode"), "{text}");
}
