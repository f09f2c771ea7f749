//! Sizes that are exact: one step less is not enough, and nothing is left over.

use super::*;
use crate::{Options, Source};
use hectare_mkfs::{apply_extended, parse_features};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// A few kinds of trees: empty, one large file, many small ones, many empty ones, holes, links and
/// directories.
fn make(folder: &Path, kind: u32, seed: u32) {
    let name = |n: u32| folder.join(format!("name-{n}-{seed}"));
    match kind {
        0 => {}
        1 => fs::write(name(0), vec![1; 3_000_000 + usize::try_from(seed * 54_321).unwrap()]).unwrap(),
        2 => (0..300)
            .for_each(|n| fs::write(name(n), vec![2; usize::try_from(n * seed * 41).unwrap()]).unwrap()),
        3 => (0..2000).for_each(|n| drop(File::create(name(n)).unwrap())),
        4 => {
            let file = File::create(name(0)).unwrap();
            (0..400).for_each(|n| file.write_all_at(b"x", n * 30_011).unwrap());
        }
        _ => (0..200).for_each(|n| {
            fs::create_dir(name(n)).unwrap();
            symlink("t".repeat(80), name(n).join("link")).unwrap();
        }),
    }
}

/// A tree of a kind, made once.
fn tree(kind: u32, seed: u32) -> Arc<Tree> {
    type Made = Mutex<HashMap<(u32, u32), Arc<Tree>>>;
    static MADE: LazyLock<Made> = LazyLock::new(Mutex::default);
    MADE.lock().entry((kind, seed)).or_insert_with(|| Arc::new(scanned(kind, seed))).clone()
}

fn scanned(kind: u32, seed: u32) -> Tree {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), kind, seed);
    // Only the plan is made here; the files are not read again.
    Tree::build(vec![Source::Folder(folder.path().to_owned())], &Options::default()).unwrap()
}

fn options(args: &str) -> FormatOptions {
    let seed = Some([7; 16]);
    let mut options = FormatOptions { uuid: seed, hash_seed: seed, ..FormatOptions::default() };
    let mut words = args.split_whitespace();
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag {
            "-b" => options.block_size = BlockSize::from_bytes(value.parse().unwrap()),
            "-C" => options.cluster_size = Some(value.parse().unwrap()),
            "-I" => options.inode_size = Some(value.parse().unwrap()),
            "-i" => options.inodes = InodeCount::Ratio(value.parse().unwrap()),
            "-N" => options.inodes = InodeCount::Exactly(value.parse().unwrap()),
            "-O" => options.features.extend(parse_features(value).unwrap()),
            "-E" => apply_extended(&mut options, value).unwrap(),
            "-J" => options.journal_mib = Some(value.parse().unwrap()),
            "-g" => options.clusters_per_group = Some(value.parse().unwrap()),
            "-G" => options.flex_groups = Some(value.parse().unwrap()),
            _ => panic!("unknown flag {flag}"),
        }
    }
    options
}

/// The outcome and how many sizes were tried.
fn find(tree: &Tree, options: &FormatOptions, size: Size) -> (Result<(Bytes, Inodes), ImageError>, u32) {
    let search = Search::new(tree, options, true).unwrap();
    let found = search.find(size);
    (found, search.attempts.get())
}

fn plan<'t>(tree: &'t Tree, options: &FormatOptions, size: Size) -> Result<Image<'t>, ImageError> {
    Image::plan(tree, options, size, true)
}

fn adds_up(image: &Image<'_>) {
    let explained = image.explain().unwrap();
    let parts: u64 = explained.parts.iter().map(|part| part.bytes.get()).sum();
    assert_eq!((parts, explained.total), (explained.total.get(), image.size()), "{explained:#?}");
}

/// All guarantees about sizes, for one tree and one set of options.
fn check_sizes(tree: &Tree, options: &FormatOptions, what: &str) {
    let search = Search::new(tree, options, true).unwrap();
    let (unit, block) = (search.unit, search.block_size);
    let min = plan(tree, options, Size::Min).unwrap_or_else(|error| panic!("{what}: {error}"));
    let size = min.size();
    adds_up(&min);
    // What is left over is at most what a last group needs to be worth having.
    let group = u64::from(min.format().geometry().itable_blocks()) + 2048;
    // Only a journal of a given size must leave as much again.
    let left = min.free().bytes(block).get();
    let spared = options.journal_mib.is_some() || left < group * u64::from(block.get()) + unit;
    assert!(spared, "{what}: {left} bytes are free");
    match plan(tree, options, Size::Exactly(size - Bytes::new(unit))) {
        Err(ImageError::TooSmall { size: asked, lacking, enough }) => {
            assert_eq!((asked + lacking, enough), (enough, size), "{what}");
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(image) => panic!("{what}: {size} was not the minimum, {} is enough", image.size()),
    }
    assert_eq!(plan(tree, options, Size::Exactly(size)).unwrap().size(), size, "{what}");

    let default = plan(tree, options, Size::Default).unwrap();
    adds_up(&default);
    let tenth = size.get() + size.get().div_ceil(10);
    assert!(default.size().get() >= tenth, "{what}: {} of {tenth}", default.size());
    let left = default.free().bytes(block).get();
    assert!(left >= size.get().div_ceil(10), "{what}: {left} bytes are free of {}", default.size());

    let wanted = Bytes::mib(3) + Bytes::new(123);
    let free = plan(tree, options, Size::Free(wanted)).unwrap();
    adds_up(&free);
    assert!(free.free().bytes(block) >= wanted, "{what}");
    let less = find_fits(tree, options, free.size() - Bytes::new(unit), wanted);
    assert!(!less, "{what}: less than {} has {wanted} free", free.size());
    for goal in [Size::Min, Size::Default, Size::Free(wanted), Size::Exactly(size - Bytes::new(unit))] {
        let (_, attempts) = find(tree, options, goal);
        assert!(attempts <= 40, "{what}: {attempts} attempts for {goal:?}");
    }
}

fn find_fits(tree: &Tree, options: &FormatOptions, size: Bytes, free: Bytes) -> bool {
    let search = Search::new(tree, options, true).unwrap();
    let goal = Goal { free, inodes: Inodes::Roomy, ..Goal::MIN };
    matches!(search.attempt(size, goal).unwrap(), Outcome::Fits(_))
}

const OPTIONS: [&str; 17] = [
    "",
    "-b 1024",
    "-b 65536",
    "-O bigalloc -C 65536",
    "-O bigalloc -b 1024 -C 4096",
    "-O ^has_journal",
    "-O ^has_journal,^resize_inode -b 1024",
    "-O meta_bg,^resize_inode -b 1024 -g 1024",
    "-O sparse_super2",
    "-I 1024 -b 1024",
    "-I 128",
    "-O ^flex_bg -g 512",
    "-J 16",
    "-i 1024",
    "-E packed_meta_blocks=1,stride=3",
    "-O orphan_file,mmp -N 5000",
    "-O quota,project",
];

#[test]
fn every_kind_of_tree_with_every_kind_of_options() {
    for kind in 0..6 {
        let tree = tree(kind, 1);
        for args in OPTIONS {
            check_sizes(&tree, &options(args), &format!("tree {kind} with {args:?}"));
        }
    }
}

#[test]
fn few_sizes_are_looked_at() {
    for kind in 0..6 {
        let tree = tree(kind, 2);
        let (_, attempts) = find(&tree, &options(""), Size::Min);
        assert!(attempts <= 16, "tree {kind}: {attempts} attempts");
    }
}

#[test]
fn inodes_that_the_formatter_rounds_down_are_made_up_for() {
    // 10 of the formatter and 401 of the tree are 412 in whole blocks of four, and 408 in eights.
    let tree = tree(5, 1);
    let image = plan(&tree, &options("-b 1024"), Size::Min).unwrap();
    assert!(image.size() < Bytes::mib(2), "{}", image.size());
    assert!(image.format().geometry().inodes_count() >= 411);
}

#[test]
fn a_size_just_behind_a_group_is_found_quickly() {
    // A little more than one group of data: the next group is only made when it is worth it.
    for extra in [0, 1, 5, 20, 60, 100, 300] {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("file")).unwrap();
        let file = File::options().write(true).open(folder.path().join("file")).unwrap();
        let options = options("-b 1024 -O ^has_journal,^resize_inode -N 512");
        file.write_all_at(&vec![1; (8 << 20) - (100 << 10) + extra * 1024], 0).unwrap();
        let tree = Tree::build(vec![Source::Folder(folder.path().to_owned())], &Options::default()).unwrap();
        check_sizes(&tree, &options, &format!("{extra} blocks"));
    }
}

#[test]
fn what_can_not_be_is_said_and_not_searched_forever() {
    let tree = tree(2, 2);
    let cases = [
        (Size::Free(Bytes::new(u64::MAX)), ""),
        (Size::Free(Bytes::new(1 << 59)), "-b 1024 -O ^64bit"),
        (Size::Exactly(Bytes::new(u64::MAX)), ""),
        (Size::Exactly(Bytes::ZERO), "-E resize=4000"),
        (Size::Exactly(Bytes::new(1)), "-J 4000 -b 65536"),
    ];
    for (size, args) in cases {
        let options = options(args);
        match Search::new(&tree, &options, true) {
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            Ok(search) => {
                let error = search.find(size).map(|(size, _)| size).unwrap_err();
                assert!(!error.to_string().contains('\n'), "{error}");
                assert!(
                    search.attempts.get() < 100,
                    "{} attempts for {size:?} {args}",
                    search.attempts.get()
                );
            }
        }
    }
}

fn any_options() -> impl Strategy<Value = String> {
    let block = prop::sample::select(vec!["-b 1024", "-b 2048", "-b 4096", "-b 65536"]);
    let words = prop::sample::subsequence(
        vec![
            "-O bigalloc -C 65536",
            "-O ^has_journal",
            "-O ^resize_inode",
            "-O meta_bg",
            "-O ^flex_bg",
            "-O sparse_super2",
            "-O ^metadata_csum",
            "-O ^64bit",
            "-O ^dir_index",
            "-O orphan_file",
            "-O quota",
            "-O fast_commit",
            "-I 512",
            "-g 2048",
            "-g 256",
            "-G 64",
            "-J 5",
            "-i 2048",
            "-i 1000000",
            "-N 3000",
            "-E packed_meta_blocks=1",
            "-E resize=100000",
            "-E stride=7",
        ],
        0..6,
    );
    (block, words).prop_map(|(block, words)| format!("{block} {}", words.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_options_give_the_smallest_or_a_reason(args in any_options(), kind in 0..6u32, seed in 1..3u32) {
        let (tree, options) = (tree(kind, seed), options(&args));
        match plan(&tree, &options, Size::Min) {
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{args}: {error}"),
            Ok(image) => {
                adds_up(&image);
                let unit = Search::new(&tree, &options, true).unwrap().unit;
                let less = plan(&tree, &options, Size::Exactly(image.size() - Bytes::new(unit)));
                prop_assert!(less.is_err(), "{args}: {} is not the smallest", image.size());
                prop_assert!(find(&tree, &options, Size::Min).1 < 60);
                // Each is an image, or a reason why not; their guarantees are checked elsewhere.
                for size in [Size::Default, Size::Free(Bytes::mib(2)), Size::Exactly(image.size())] {
                    match plan(&tree, &options, size) {
                        Ok(image) => adds_up(&image),
                        Err(error) => prop_assert!(!error.to_string().contains('\n'), "{args}: {error}"),
                    }
                }
            }
        }
    }
}
