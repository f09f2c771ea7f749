//! Sound volumes of every kind: what each library lists and reads of them.
//!
//! The kernel fills them (what it can't mount here, mke2fs does), or we do. The truth is what the kernel reads,
//! or the directory that was copied. One volume has a journal with changes that are nowhere else.

use super::adapters::Peer;
use super::judge::Verdict;
use super::table::Table;
use hectare_oracle::filled::Maker;
use hectare_oracle::tool::need;
use hectare_oracle::{
    Combo, Entry, KernelMount, Scale, Skip, Tree, assert_clean, combos, filled, source, superblock, walk,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kinds of volumes beside the trees that are hard for them.
const HARD: [(&str, &[Tree]); 8] = [
    ("ext2", &[Tree::Sizes, Tree::Sparse, Tree::ManyFiles]),
    ("ext3-1k", &[Tree::Sizes, Tree::Fragmented, Tree::Times]),
    ("ext4-1k", &[Tree::ManyFiles]),
    ("ext4-64k", &[Tree::Sizes]),
    ("large-dir", &[Tree::ManyFiles]),
    ("bigalloc", &[Tree::Sizes, Tree::Fragmented]),
    ("inline-data", &[Tree::Sizes, Tree::ManyFiles, Tree::Links]),
    ("inline-data-512", &[Tree::Attributes, Tree::Sizes]),
];
/// What we make, by features.
const OURS: [(&str, &str, &[Tree]); 3] = [
    ("ours", "", &Tree::ALL),
    ("ours, inline_data", "inline_data", &[Tree::Ordinary, Tree::Sizes, Tree::Links, Tree::ManyFiles]),
    ("ours, no extents", "^extents,^64bit", &[Tree::Ordinary, Tree::Sizes, Tree::Sparse, Tree::Fragmented]),
];

/// `EXT4_FEATURE_INCOMPAT_RECOVER`.
const NEEDS_RECOVERY: u32 = 4;

/// A volume to read.
struct Sound {
    name: String,
    image: PathBuf,
    truth: Vec<Entry>,
    /// Inodes have no room for nanoseconds.
    seconds: bool,
}

/// Reads all; fails if ours is wrong, or has an error.
pub(super) fn run(peers: &[Peer], folder: &Path, times: bool) -> Result<(), String> {
    let all: Vec<&Peer> = peers.iter().collect();
    let mut table = Table::new("volume", &all);
    let (mut ours, mut examples, mut right) = (Vec::new(), Vec::new(), vec![(0, 0, 0); peers.len()]);
    let volumes = kinds().into_iter().chain(own(folder)).chain([("journal to replay".to_owned(), None)]);
    for (name, made) in volumes {
        let made = match made {
            Some(make) => make(),
            None => unreplayed(folder),
        };
        let volume = match made {
            Ok(volume) => volume,
            Err(reason) => {
                println!("skipped {name}: {reason}");
                continue;
            }
        };
        let mut cells = Vec::new();
        for (peer, (fine, wrong, refused)) in peers.iter().zip(&mut right) {
            let (listing, ran) = peer.list(&volume.image, folder)?;
            let verdict = Verdict::of(&listing, &ran, &volume.truth, volume.seconds);
            if times {
                println!("{}\t{}\t{:.3} s", volume.name, peer.name, ran.time.as_secs_f64());
            }
            if peer.is_ours() && (verdict.is_wrong() || verdict.errors > 0 || verdict.refused.is_some()) {
                ours.push(format!("{}: {}: {:?}", volume.name, verdict.cell(), verdict.examples));
            }
            *wrong += usize::from(verdict.is_wrong());
            *refused += usize::from(!verdict.is_wrong() && verdict.cell() != "right");
            *fine += usize::from(verdict.cell() == "right");
            let example = verdict.refused.iter().chain(&verdict.died).chain(&verdict.examples).next();
            if let Some(example) = example.filter(|_| verdict.cell() != "right") {
                examples.push(format!("- {}, {}: {example}", volume.name, peer.name));
            }
            cells.push(verdict.cell());
        }
        table.row(&volume.name, cells);
    }
    let sums = right.iter().map(|(fine, wrong, refused)| format!("{fine} / {wrong} / {refused}"));
    table.row("right / wrong / error", sums.collect());
    table.print("Sound volumes");
    println!("\n{}", examples.join("\n"));
    super::none_wrong(&ours)
}

type Make = Box<dyn FnOnce() -> Result<Sound, Skip>>;

/// Volumes that the kernel or mke2fs fills.
fn kinds() -> Vec<(String, Option<Make>)> {
    let ordinary = combos().iter().map(|combo| (*combo, Tree::Ordinary));
    let trees = Tree::ALL.into_iter().filter(|tree| *tree != Tree::Ordinary);
    let usual = trees.map(|tree| (Combo::named("ext4"), tree));
    let known = |name: &str| combos().iter().find(|combo| combo.name == name).copied();
    let hard = HARD.iter().filter_map(|(name, trees)| Some((known(name)?, *trees)));
    let hard = hard.flat_map(|(combo, trees)| trees.iter().map(move |tree| (combo, *tree)));
    let kind = |(combo, tree): (Combo, Tree)| {
        let name = format!("{}, {}", combo.name, tree.name());
        let label = name.clone();
        let make = move || {
            let made = filled(&combo, tree, &Scale::SMALL)?;
            let (image, truth) = (made.image().to_owned(), made.entries().to_vec());
            // mke2fs -d copies whole seconds.
            let seconds = combo.inode_size == 128 || made.maker() == Maker::Mke2fs;
            Ok(Sound { name: label, image, truth, seconds })
        };
        (name, Some(Box::new(make) as Make))
    };
    ordinary.chain(usual).chain(hard).map(kind).collect()
}

/// Volumes that we make.
fn own(folder: &Path) -> Vec<(String, Option<Make>)> {
    let all =
        OURS.iter().flat_map(|(name, features, trees)| trees.iter().map(move |t| (*name, *features, *t)));
    let kind = |(kind, features, tree): (&'static str, &'static str, Tree)| {
        let (name, image) = (format!("{kind}, {}", tree.name()), folder.join("ours.img"));
        let label = name.clone();
        let make = move || {
            let source = source(tree, &Scale::SMALL)?;
            let format = hectare::mkfs::Format::new().features(features);
            let building = hectare::build::Image::new().format(format).replace(true);
            let built = building.size(hectare::Size::Free(8 << 20)).folder(&source).create(&image);
            built.unwrap_or_else(|error| panic!("{label} can't be built: {error}"));
            assert_clean(&image)?;
            Ok(Sound { name: label, image, truth: walk(&source), seconds: false })
        };
        (name, Some(Box::new(make) as Make))
    };
    all.map(kind).collect()
}

/// A volume as a power cut leaves it: the last changes are in the journal only.
fn unreplayed(folder: &Path) -> Result<Sound, Skip> {
    let (image, cut) = (folder.join("whole.img"), folder.join("cut.img"));
    Combo::named("ext4").make(&image)?;
    let source = source(Tree::Ordinary, &Scale::SMALL)?;
    let mount = KernelMount::unhurried(&image, "")?;
    let made = || -> std::io::Result<Vec<Entry>> {
        let copied = need("cp")
            .map_err(std::io::Error::other)?
            .arg("-a")
            .arg(source.join("."))
            .arg(mount.path())
            .status()?;
        assert!(copied.success(), "cp fails");
        rustix::fs::syncfs(File::open(mount.path())?)?;
        let changed = mount.path().join("changed");
        fs::create_dir(&changed)?;
        for number in 0..40 {
            let name = changed.join(format!("new {number}"));
            fs::write(&name, format!("{number} ").repeat(200 * number))?;
            File::open(&name)?.sync_all()?;
            fs::rename(&name, changed.join(format!("renamed {number}")))?;
        }
        File::open(changed.join("renamed 7"))?.sync_all()?;
        File::open(&changed)?.sync_all()?;
        let truth = walk(mount.path());
        let mut copy = Command::new("cp");
        assert!(copy.arg("--sparse=always").args([&image, &cut]).status()?.success(), "cp fails");
        Ok(truth)
    };
    let truth = made().unwrap_or_else(|error| panic!("the cut volume can't be made: {error}"));
    mount.unmount();
    let needs = superblock::read(&cut).is_ok_and(|found| found.incompat & NEEDS_RECOVERY != 0);
    assert!(needs, "the journal of the cut volume has nothing to replay");
    Ok(Sound { name: "journal to replay".to_owned(), image: cut, truth, seconds: false })
}
