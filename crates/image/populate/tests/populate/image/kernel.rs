//! Every awkward tree, and every combination of options: e2fsck finds the image clean and the kernel sees the
//! source.

use crate::image::common::*;
use hectare_device::{FileOptions, MemoryDevice};
use hectare_oracle::hunt::long;
use hectare_oracle::{Entry, Scale, Tree as Awkward, assert_clean, skip_part, source, trees};
use hectare_populate::{Size, Tree};
use hectare_units::Bytes;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// All trees in one directory, for each of the combinations.
struct All {
    tree: Tree,
    entries: Vec<Entry>,
}

static ALL: LazyLock<All> = LazyLock::new(|| {
    let folder: PathBuf = hectare_oracle::scratch::fresh("all-trees");
    let left_out = trees::make_all(&folder, &Scale::SMALL).unwrap();
    for left_out in left_out {
        skip_part!(format!("image::kernel, {}", left_out.name()), "needs root");
    }
    All { tree: tree(&folder), entries: walk(&folder) }
});

fn every_tree(scale: &Scale, size: &str) {
    let folder = tempfile::tempdir().unwrap();
    for awkward in Awkward::ALL {
        let name = format!("image::kernel, {size} {}", awkward.name());
        let from = match source(awkward, scale) {
            Ok(from) => from,
            Err(reason) => {
                skip_part!(name, reason);
                continue;
            }
        };
        let image = folder.path().join(awkward.name());
        build(&tree(&from), &options(""), Size::Min, &image)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        judge(&name, &image, &walk(&from), what(&options("")));
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn every_tree_becomes_what_it_was() {
    every_tree(&Scale::SMALL, "small");
}

#[test]
fn every_full_tree_becomes_what_it_was() {
    if long("image::kernel, full trees") {
        every_tree(&Scale::FULL, "full");
    }
}

#[test]
fn every_combination_of_options_holds_every_tree() {
    for args in [
        "-b 1024",
        "-b 2048",
        "-b 65536",
        "-O bigalloc",
        "-O bigalloc -C 16384",
        "-O bigalloc -C 65536 -m 0",
        "-b 1024 -O bigalloc -C 8192",
        "-O ^metadata_csum",
        "-O ^metadata_csum,uninit_bg",
        "-O ^64bit",
        "-O ^64bit,^metadata_csum,uninit_bg -b 1024",
        "-O ^has_journal",
        "-O orphan_file",
        "-O quota",
        "-O quota,project,bigalloc",
        "-O quota,ea_inode",
        "-O inline_data",
        "-O inline_data -I 512 -b 1024",
        "-O inline_data,^metadata_csum -I 1024",
        "-O inline_data,ea_inode,quota -I 256 -b 2048",
        "-O casefold",
        "-I 128",
        "-I 512",
        "-I 1024",
        "-O meta_bg,^resize_inode",
        "-O ^flex_bg",
        "-O ^flex_bg,meta_bg,^resize_inode -b 1024 -g 4096",
        "-O sparse_super2",
        "-O ^sparse_super,^resize_inode",
        "-O ^dir_index",
        "-O large_dir",
        "-O metadata_csum_seed",
        "-O inline_data,ea_inode",
        "-O mmp",
        "-O ^filetype",
        "-O ^resize_inode",
        "-O fast_commit",
        "-E packed_meta_blocks=1",
        "-E stride=4,stripe_width=16",
        "-N 20000",
        "-i 4096",
        "-g 4096 -G 4",
        "-J size=8",
        "-t ext2 -b 1024",
        "-t ext2 -b 1024 -I 128",
        "-t ext2 -O ^resize_inode,^dir_index",
        "-t ext3 -b 1024",
        "-t ext3 -b 2048",
        "-t ext3",
        "-O ^extents,^64bit -b 1024",
        "-O ^extents,^64bit,^metadata_csum",
    ] {
        let name = format!("image::kernel, {args}");
        let (folder, options) = (tempfile::tempdir().unwrap(), options(args));
        let image = folder.path().join("image");
        for size in [Size::Min, Size::Free(Bytes::mib(40))] {
            build(&ALL.tree, &options, size, &image).unwrap_or_else(|error| panic!("{name}: {error}"));
            if size != Size::Min {
                assert_clean(&image).unwrap_or_else(|reason| skip_part!(name, reason));
            } else if options.inode_size == Some(128) {
                judge(&name, &image, &narrowed(ALL.entries.clone()), what(&options));
            } else {
                judge(&name, &image, &ALL.entries, what(&options));
            }
        }
    }
}

/// Files with data and holes at every edge of a block map, and a dense one that reaches the second level (the
/// third with blocks of 1 KiB).
fn files_at_the_edges(folder: &Path) {
    for (size, per) in [(1024, 256), (2048, 512), (4096, 1024)] {
        let edges = [12, 12 + per, 12 + per + per * per];
        for (nr, edge) in edges.into_iter().enumerate() {
            let file = File::create(folder.join(format!("hole-{size}-{nr}"))).unwrap();
            for block in [3, edge - 1, edge, edge + per + 1, edge + per * per] {
                file.write_all_at(&[nr.to_le_bytes()[0] + 1; 5000], block * size).unwrap();
            }
            file.set_len((edge + per * per + 90_000) * size).unwrap();
        }
    }
    let dense: Vec<u8> = (0..70u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(folder.join("dense"), dense).unwrap();
    let target = "t".repeat(900);
    std::os::unix::fs::symlink(target, folder.join("link")).unwrap();
}

#[test]
fn block_maps_reach_their_third_level_and_keep_holes() {
    let from = tempfile::tempdir().unwrap();
    files_at_the_edges(from.path());
    let (tree, entries) = (tree(from.path()), walk(from.path()));
    for args in ["-t ext2 -b 1024", "-t ext3 -b 2048", "-t ext2", "-O ^extents,^64bit"] {
        let (folder, options) = (tempfile::tempdir().unwrap(), options(args));
        let image = folder.path().join("image");
        build(&tree, &options, Size::Min, &image).unwrap();
        judge(&format!("image::kernel, block maps {args}"), &image, &entries, what(&options));
    }
}

#[test]
fn a_device_that_held_something_else_becomes_the_image() {
    let folder = tempfile::tempdir().unwrap();
    for args in ["", "-b 1024 -O ^has_journal", "-E lazy_itable_init=0", "-O ^metadata_csum"] {
        let (name, options) = (format!("image::kernel, over garbage {args}"), options(args));
        let image = folder.path().join("image");
        let garbage: Vec<u8> = (0..96 << 20).map(|at: u32| (at >> 7).to_le_bytes()[0] | 1).collect();
        fs::write(&image, garbage).unwrap();
        let device = FileOptions::new().write(true).open(&image).unwrap();
        for size in [Size::Exactly(Bytes::mib(96)), Size::Min] {
            build_over(&ALL.tree, &options, size, &device);
            judge(&name, &image, &ALL.entries, what(&options));
        }
    }
}

#[test]
fn a_fresh_and_a_wiped_device_get_the_same_blocks() {
    // Where the formatter leaves blocks alone, the wiped device keeps what it held; so both hold zeros here.
    let options = options("-E lazy_itable_init=0");
    let one = hectare_populate::Image::plan(&ALL.tree, &options, Size::Min, true).unwrap();
    let (fresh, wiped) = (MemoryDevice::new(one.size()), MemoryDevice::new(one.size()));
    one.write(&fresh, threads(1), &hectare_populate::Quiet).unwrap();
    assert_eq!(build_over(&ALL.tree, &options, Size::Min, &wiped), one.size());
    assert!(fresh.to_vec() == wiped.to_vec());
}
