//! The same bytes every time.

use crate::image::common::*;
use hectare_device::MemoryDevice;
use hectare_mkfs::FormatOptions;
use hectare_oracle::trees::Random;
use hectare_oracle::{Content, Scale, trees};
use hectare_populate::{Image, Options, Quiet, Size, Source, Timestamp, Tree, reproducible};
use std::fs;
use std::path::Path;

const EPOCH: i64 = 1_700_000_000;

fn dated(folder: &Path, scanners: usize) -> Tree {
    let options =
        Options { source_date_epoch: Some(EPOCH), threads: threads(scanners), ..Options::default() };
    Tree::build(vec![Source::Folder(folder.to_owned())], &options).unwrap()
}

fn digest(tree: &Tree, options: &FormatOptions, writers: usize) -> [u8; 32] {
    let image = Image::plan(tree, options, Size::Default, true).unwrap();
    let device = MemoryDevice::new(image.size());
    image.write(&device, threads(writers), &Quiet).unwrap();
    Content::of(&device.to_vec())
}

#[test]
fn the_bytes_depend_neither_on_threads_nor_on_the_run() {
    let folder = tempfile::tempdir().unwrap();
    trees::make_all(folder.path(), &Scale::SMALL).unwrap();
    // Several batches of small files, and files that are copied by themselves.
    let many = folder.path().join("batches");
    fs::create_dir(&many).unwrap();
    let mut random = Random::new("batches");
    for n in 0..1500 {
        let len = if n % 500 == 0 { 3 << 20 } else { random.below32(9000) };
        fs::write(many.join(format!("{n}")), random.bytes(usize::try_from(len).unwrap())).unwrap();
    }
    let mut digests = Vec::new();
    for n in [1, 2, 3, 8, 1] {
        let tree = dated(folder.path(), n);
        digests.push(digest(&tree, &reproducible(&FormatOptions::default(), EPOCH, &tree), n));
    }
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:x?}");
}

#[test]
fn what_is_not_given_is_derived_from_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "content").unwrap();
    let plain = FormatOptions::default();
    let derived = |tree: &Tree| reproducible(&plain, EPOCH, tree);
    let first = derived(&dated(folder.path(), 1));
    assert_eq!(first.now, hectare_ext4::time::Timestamp::from_seconds(EPOCH));
    assert_eq!(first, derived(&dated(folder.path(), 1)));
    let uuid = first.uuid.unwrap();
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2), "version and variant");
    assert_ne!(first.uuid, first.hash_seed);
    assert_eq!(dated(folder.path(), 1).meta(hectare_populate::NodeId::ROOT).atime, Timestamp::at(EPOCH));

    let given = FormatOptions { uuid: Some(UUID), hash_seed: Some(UUID), ..FormatOptions::default() };
    let kept = reproducible(&given, EPOCH, &dated(folder.path(), 1));
    assert_eq!((kept.uuid, kept.hash_seed), (Some(UUID), Some(UUID)));
    let labelled = FormatOptions { label: b"other".to_vec(), ..FormatOptions::default() };
    assert_ne!(reproducible(&labelled, EPOCH, &dated(folder.path(), 1)).uuid, first.uuid);

    fs::rename(folder.path().join("file"), folder.path().join("renamed")).unwrap();
    let renamed = derived(&dated(folder.path(), 1));
    assert_ne!(renamed.uuid, first.uuid);
    fs::write(folder.path().join("renamed"), "content and more").unwrap();
    assert_ne!(derived(&dated(folder.path(), 1)).uuid, renamed.uuid);
}
