//! Shared code of the tests of images: options as mke2fs takes them, images in files, and comparing them with
//! a directory.

use hectare_device::{Device, FileOptions, Overwrite};
use hectare_mkfs::{FormatOptions, FsType, InodeCount, apply_extended, parse_features};
use hectare_oracle::compare::Times;
use hectare_oracle::{Entry, IS_LINUX, KernelMount, What, assert_clean, assert_same, skip_part};
use hectare_populate::{Image, ImageError, Options, Progress, Quiet, Size, Source, Tree};
use hectare_units::{BlockSize, Bytes};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const UUID: [u8; 16] = *b"hectare-test-id!";

pub(crate) fn threads(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

/// Options from mke2fs's arguments; UUID and hash seed are fixed.
pub(crate) fn options(args: &str) -> FormatOptions {
    let mut options = FormatOptions { uuid: Some(UUID), hash_seed: Some(UUID), ..FormatOptions::default() };
    let mut words = args.split_whitespace();
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag {
            "-t" => options.fs_type = FsType::by_name(value).unwrap(),
            "-b" => options.block_size = BlockSize::from_bytes(value.parse().unwrap()),
            "-C" => options.cluster_size = Some(value.parse().unwrap()),
            "-I" => options.inode_size = Some(value.parse().unwrap()),
            "-i" => options.inodes = InodeCount::Ratio(value.parse().unwrap()),
            "-N" => options.inodes = InodeCount::Exactly(value.parse().unwrap()),
            "-m" => options.reserved_percent = value.parse().unwrap(),
            "-O" => options.features.extend(parse_features(value).unwrap()),
            "-E" => apply_extended(&mut options, value).unwrap(),
            "-J" => options.journal_mib = Some(value.strip_prefix("size=").unwrap().parse().unwrap()),
            "-G" => options.flex_groups = Some(value.parse().unwrap()),
            "-g" => options.clusters_per_group = Some(value.parse().unwrap()),
            _ => panic!("unknown flag {flag}"),
        }
    }
    options
}

pub(crate) fn tree(folder: &Path) -> Tree {
    Tree::build(vec![Source::Folder(folder.to_owned())], &Options::default()).unwrap()
}

/// Adds up the reported progress.
#[derive(Default)]
pub(crate) struct Sum(pub(crate) AtomicU64);

impl Progress for Sum {
    fn advance(&self, bytes: Bytes) {
        self.0.fetch_add(bytes.get(), Ordering::Relaxed);
    }
}

/// Makes an image file of a tree.
pub(crate) fn build(
    tree: &Tree,
    options: &FormatOptions,
    size: Size,
    image: &Path,
) -> Result<Bytes, ImageError> {
    let planned = Image::plan(tree, options, size, true)?;
    let explained = planned.explain().unwrap();
    let parts: u64 = explained.parts.iter().map(|part| part.bytes.get()).sum();
    assert_eq!(parts, explained.total.get(), "the parts add up: {explained:#?}");
    let pending = FileOptions::new().write(true).create_pending(image, planned.size(), Overwrite::Replace)?;
    let sum = Sum::default();
    planned.write(pending.device(), threads(2), &sum)?;
    assert_eq!(sum.0.into_inner(), tree.totals().data.get(), "progress adds up");
    pending.publish()?;
    Ok(planned.size())
}

/// Writes over a device that is full of something else.
pub(crate) fn build_over(tree: &Tree, options: &FormatOptions, size: Size, device: &dyn Device) -> Bytes {
    let planned = Image::plan(tree, options, size, false).unwrap();
    planned.write(device, threads(2), &Quiet).unwrap();
    planned.size()
}

/// The expectations for a volume with these options.
pub(crate) fn what(options: &FormatOptions) -> What {
    let block = options.block_size.map_or(4096, |size| u64::from(size.get()));
    let narrow = options.inode_size == Some(128);
    let mtimes = if narrow { Times::Seconds } else { Times::Exact };
    What { mtimes, holes: Some(block.max(4096)), ..What::all() }
}

/// Times that inodes of 128 bytes can't hold become the nearest they can.
pub(crate) fn narrowed(mut entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &mut entries {
        entry.mtime.secs = entry.mtime.secs.min(i32::MAX.into());
    }
    entries
}

/// What an image of a directory holds: without extended attributes, except on Linux.
pub(crate) fn walk(root: &Path) -> Vec<Entry> {
    let mut entries = hectare_oracle::walk(root);
    if !IS_LINUX {
        entries.iter_mut().for_each(|entry| entry.xattrs.clear());
    }
    entries
}

/// Fails unless e2fsck finds the image clean and the kernel sees the expected entries in it. `test` names
/// what is left out where these oracles are not available.
#[track_caller]
pub(crate) fn judge(test: &str, image: &Path, expected: &[Entry], what: What) {
    if let Err(reason) = assert_clean(image) {
        skip_part!(format!("{test}, e2fsck"), reason);
    }
    match KernelMount::read_only(image, "") {
        Ok(mount) => assert_same(&walk(mount.path()), expected, what),
        Err(reason) => skip_part!(format!("{test}, kernel"), reason),
    }
}
