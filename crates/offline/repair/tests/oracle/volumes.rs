//! The volumes that are damaged: ten feature sets with trees of some size, and the small volumes of the
//! fuzz targets, which have one of everything.

use crate::survey::Survey;
use hectare_device::MemoryDevice;
use hectare_oracle::{Skip, mke2fs, unpacked};
use hectare_units::random::SplitMix64 as Random;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

/// Feature sets: name, arguments of mke2fs, size for the trees of some thousand files, and for the small one.
pub(crate) const KINDS: [(&str, &[&str], &str, &str); 10] = [
    ("ext4", &["-t", "ext4"], "40M", "16M"),
    ("ext4 1k", &["-t", "ext4", "-b", "1024"], "32M", "12M"),
    ("no checksums", &["-t", "ext4", "-O", "^metadata_csum", "-b", "1024"], "32M", "12M"),
    ("ext2", &["-t", "ext2", "-b", "1024"], "32M", "8M"),
    ("ext3", &["-t", "ext3", "-b", "4096"], "40M", "16M"),
    ("bigalloc", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"], "96M", "24M"),
    ("inline", &["-t", "ext4", "-O", "inline_data", "-I", "512"], "40M", "12M"),
    ("quota", &["-t", "ext4", "-O", "quota"], "40M", "16M"),
    ("small inodes", &["-t", "ext4", "-I", "128", "-O", "^flex_bg"], "40M", "12M"),
    ("meta_bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], "32M", "12M"),
];

/// How much a tree has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// Some 350 inodes.
    Small,
    /// Some 2,400.
    Usual,
    /// Some 5,500.
    Large,
}

/// A tree with what volumes have: long directories, deep ones, links, holes, files of all sizes.
fn make_tree(root: &Path, scale: Scale) {
    let (folders, many, len_max) = match scale {
        Scale::Small => (4, 200, 3000),
        Scale::Usual => (30, 1500, 30_000),
        Scale::Large => (40, 4200, 9000),
    };
    let mut random = Random::new(7);
    for d in 0..folders {
        let folder = root.join(format!("folder {d}/inner/deep"));
        fs::create_dir_all(&folder).unwrap();
        for f in 0..25 {
            let len = match f % 5 {
                0 => random.below(60),
                1 => random.below(400),
                2 => random.below(9000),
                _ => random.below(len_max),
            };
            let bytes: Vec<u8> = (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            let place = [root.join(format!("folder {d}")), folder.clone()][f % 2].join(format!("file {f}"));
            fs::write(place, bytes).unwrap();
        }
        symlink("file 1", folder.join("short link")).unwrap();
        symlink("x/".repeat(60), folder.join("long link")).unwrap();
        fs::hard_link(folder.join("file 1"), root.join(format!("hard link {d}"))).unwrap();
    }
    fs::create_dir(root.join("many")).unwrap();
    for f in 0..many {
        fs::write(root.join(format!("many/a name of usual length {f}")), b"").unwrap();
    }
}

/// A volume of a kind, with a tree, its large directory indexed.
pub(crate) fn volume(kind: usize, scale: Scale, folder: &Path) -> Result<Vec<u8>, Skip> {
    let (tree, image) = (folder.join(format!("{scale:?}")), folder.join("base"));
    if !tree.exists() {
        make_tree(&tree, scale);
    }
    let (_, args, usual, small) = KINDS[kind];
    let args = [args, &["-d", tree.to_str().unwrap()]].concat();
    mke2fs(&args, &image, if scale == Scale::Small { small } else { usual })?;
    crate::trial::e2fsck("-fyD", &image);
    let bytes = fs::read(&image).unwrap();
    fs::remove_file(&image).unwrap();
    Ok(bytes)
}

/// A volume to start from.
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// What can be read of it.
    pub(crate) found: Arc<Survey>,
}

impl Base {
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Self {
        let found = Survey::of(Arc::new(MemoryDevice::from_bytes(&bytes))).unwrap_or_default();
        Self { name: name.to_owned(), bytes, found: Arc::new(found) }
    }
}

/// Small volumes: the ten kinds, and those of the fuzz targets.
pub(crate) fn small(folder: &Path) -> Result<Vec<Base>, Skip> {
    let mut bases = Vec::new();
    for (kind, (name, ..)) in KINDS.iter().enumerate() {
        bases.push(Base::new(name, volume(kind, Scale::Small, folder)?));
    }
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../workshop/fuzz/bases");
    let mut paths: Vec<_> = fs::read_dir(packed).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
        bases.push(Base::new(&format!("fuzz {name}"), unpacked(&path)));
    }
    Ok(bases)
}
