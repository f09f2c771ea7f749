//! Volumes with content that Hectare did not write.
//!
//! A combination is made with mke2fs and filled with a tree: by a kernel mount and `cp -a` where possible,
//! else by `mke2fs -d` (which needs no root, but writes simpler structures: no directory indexes). Each is
//! made once per machine and is read-only; a test that changes it copies it first. The expected content is
//! what the kernel reads ([`Filled::entries`]), or else the source tree.
//!
//! What is kept depends on the tools, the kernel, and the sources of what makes and reads it (`SOURCES`).

use crate::entry::Entry;
use crate::fsck::e2fsck_with;
use crate::mount::{KernelMount, can_mount};
use crate::trees::{Scale, Tree};
use crate::{Combo, Skip, assert_clean, fixtures, is_root, scratch, stored, tool, walk};
use rustix::fs::XattrFlags;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// The program that filled a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    /// The kernel, with `cp -a`.
    Kernel,
    /// `mke2fs -d`.
    Mke2fs,
}

/// A filled volume.
#[derive(Clone, Debug)]
pub struct Filled {
    image: PathBuf,
    maker: Maker,
    entries: Vec<Entry>,
}

impl Filled {
    /// The image: read-only and shared, see [`Filled::copy_to`].
    #[must_use]
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The program that filled it.
    #[must_use]
    pub const fn maker(&self) -> Maker {
        self.maker
    }

    /// Its content, sorted by path: as the kernel reads it, `lost+found` included; or, if `mke2fs -d` filled
    /// it, as in the source directory.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Copies the image, holes as holes, to a file that may be changed.
    ///
    /// # Errors
    /// If it can't be copied.
    pub fn copy_to(&self, file: &Path) -> io::Result<()> {
        fixtures::copy(&self.image, file)
    }
}

type CacheCell<T> = Arc<OnceLock<Result<T, Skip>>>;

/// One slot per key: the first caller makes the value, others wait for it, other keys don't wait.
struct Cache<K, T>(LazyLock<Mutex<HashMap<K, CacheCell<T>>>>);

impl<K: Eq + std::hash::Hash, T: Clone> Cache<K, T> {
    const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    fn get(&self, key: K, make: impl FnOnce() -> Result<T, Skip>) -> Result<T, Skip> {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        slot.get_or_init(make).clone()
    }
}

/// The source directory of a tree, made once per process; it must not be changed.
///
/// # Errors
/// A [`Skip`] if this user or the file system below can't make it.
///
/// # Panics
/// If it can't be made for another reason.
pub fn source(tree: Tree, scale: &Scale) -> Result<PathBuf, Skip> {
    static SOURCES: Cache<(Tree, Scale), PathBuf> = Cache::new();
    SOURCES.get((tree, *scale), || {
        if tree.needs_root() && !is_root() {
            return Err(Skip::new(format!("making the tree {} needs root", tree.name())));
        }
        let folder = scratch::fresh(tree.name());
        match tree.make(&folder, scale) {
            Ok(()) => Ok(folder),
            Err(error) if is_for_want_of_rights(&error) => {
                Err(Skip::new(format!("can't make the tree {} here: {error}", tree.name())))
            }
            Err(error) => panic!("can't make the tree {}: {error}", tree.name()),
        }
    })
}

fn is_for_want_of_rights(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

/// A volume of a combination filled with a tree, made once per machine and clean for e2fsck.
///
/// # Errors
/// A [`Skip`] if neither the kernel nor `mke2fs -d` can make it here.
///
/// # Panics
/// If making it fails otherwise, or e2fsck does not find it clean.
pub fn filled(combo: &Combo, tree: Tree, scale: &Scale) -> Result<Arc<Filled>, Skip> {
    static FILLED: Cache<(&str, Tree, Scale), Arc<Filled>> = Cache::new();
    FILLED.get((combo.name, tree, *scale), || {
        let what = fixtures::hash(&format!("{combo:?} {scale:?}"));
        let name = format!("{}-{}-{what}", combo.name, tree.name());
        let (image, notes) = fixtures::fixture(&name, version()?, |image| {
            let source = source(tree, scale)?;
            let (maker, entries) = match combo.mountable() {
                Ok(()) => (Maker::Kernel, by_kernel(combo, &source, image)?),
                Err(reason) => (Maker::Mke2fs, by_mke2fs(combo, &source, image, &reason)?),
            };
            assert_clean(image)?;
            Ok::<_, Skip>([vec![maker as u8], stored::encode(&entries)].concat())
        })?;
        let (maker, entries) = notes.split_first().unwrap_or_else(|| panic!("{name} has no notes"));
        let maker = if *maker == Maker::Kernel as u8 { Maker::Kernel } else { Maker::Mke2fs };
        let entries = stored::decode(entries).unwrap_or_else(|| panic!("{name} has unreadable notes"));
        Ok(Arc::new(Filled { image, maker, entries }))
    })
}

/// The sources of all that decides what a volume is filled with and how it is read.
const SOURCES: [&str; 12] = [
    include_str!("e2fsprogs.rs"),
    include_str!("../../tools/src/entry.rs"),
    include_str!("filled.rs"),
    include_str!("fixtures.rs"),
    include_str!("fsck.rs"),
    include_str!("mount.rs"),
    include_str!("stored.rs"),
    include_str!("trees.rs"),
    include_str!("trees/attributes.rs"),
    include_str!("trees/files.rs"),
    include_str!("trees/random.rs"),
    include_str!("../../tools/src/walk.rs"),
];

/// What volumes are made and read by.
fn version() -> Result<&'static str, Skip> {
    static VERSION: OnceLock<Result<String, Skip>> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let mke2fs = tool::run(tool::need("mke2fs")?.arg("-V")).stderr;
        let system = rustix::system::uname();
        let (kernel, mounts) = (system.release().to_string_lossy(), can_mount().is_ok());
        Ok(format!("{}\n{mke2fs}{kernel} {mounts}", SOURCES.concat()))
    });
    version.as_deref().map_err(Skip::clone)
}

fn by_kernel(combo: &Combo, source: &Path, image: &Path) -> Result<Vec<Entry>, Skip> {
    combo.make(image)?;
    let mount = KernelMount::new(image, "")?;
    let mut cp = tool::need("cp")?;
    let _ = tool::run(cp.arg("-a").arg(source.join(".")).arg(mount.path())).expect_success();
    if combo.has("ea_inode") {
        large_attributes(mount.path()).unwrap_or_else(|error| panic!("{}: {error}", combo.name));
    }
    mount.unmount();
    let mount = KernelMount::read_only(image, "")?;
    Ok(walk(mount.path()))
}

/// Attributes larger than a block, which only a volume with `ea_inode` holds. Two are equal: their value's
/// inode is shared.
fn large_attributes(root: &Path) -> io::Result<()> {
    for (name, size) in [("large-a", 60_000), ("large-b", 60_000), ("large-c", 5_000)] {
        let file = root.join(name);
        fs::write(&file, name)?;
        rustix::fs::setxattr(&file, "user.large", &vec![b'v'; size], XattrFlags::empty())?;
        rustix::fs::setxattr(&file, "user.small", b"small", XattrFlags::empty())?;
    }
    Ok(())
}

fn by_mke2fs(combo: &Combo, source: &Path, image: &Path, reason: &Skip) -> Result<Vec<Entry>, Skip> {
    let folder = source.to_string_lossy();
    let args: Vec<&str> = combo.args.iter().copied().chain(["-d", &folder]).collect();
    let said = crate::e2fsprogs::try_mke2fs(&args, image, combo.size)?;
    if !said.succeeded() {
        let last = said.stderr.lines().last().unwrap_or("it failed");
        return Err(Skip::new(format!("{reason}, and mke2fs -d can't fill it: {last}")));
    }
    if combo.has("quota") {
        e2fsck_with(image, &["-fy"])?; // mke2fs counts the quotas before it copies
    }
    Ok(walk(source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Times;
    use crate::{What, assert_same, combos, skip, skip_part};

    fn what(combo: &Combo) -> What {
        let mtimes = if combo.inode_size == 128 { Times::Seconds } else { Times::Exact };
        What { mtimes, holes: Some(u64::from(combo.block_size).max(4096)), ..What::all() }
    }

    #[test]
    fn the_kernel_reads_back_every_tree() {
        let combo = Combo::named("ext4");
        if let Err(reason) = combo.mountable() {
            skip!("filled::the_kernel_reads_back_every_tree", reason);
        }
        for tree in Tree::ALL {
            match filled(&combo, tree, &Scale::SMALL) {
                Ok(filled) => {
                    let expected = walk(&source(tree, &Scale::SMALL).unwrap());
                    assert_same(filled.entries(), &expected, what(&combo));
                }
                Err(reason) => skip_part!(format!("filled, {}", tree.name()), reason),
            }
        }
    }

    #[test]
    fn every_combination_can_be_filled() {
        if let Err(reason) = tool::need("mke2fs") {
            skip!("filled::every_combination_can_be_filled", reason);
        }
        for combo in combos() {
            match filled(combo, Tree::Ordinary, &Scale::SMALL) {
                Ok(filled) if !combo.has("ea_inode") => {
                    let expected = walk(&source(Tree::Ordinary, &Scale::SMALL).unwrap());
                    assert_same(filled.entries(), &expected, what(combo));
                }
                Ok(filled) => assert!(filled.maker() == Maker::Mke2fs || has_large(&filled)),
                Err(reason) => skip_part!(format!("filled, {}", combo.name), reason),
            }
        }
    }

    fn has_large(filled: &Filled) -> bool {
        filled.entries().iter().any(|e| e.xattrs.get(&b"user.large"[..]).is_some_and(|v| v.len() == 60_000))
    }

    #[test]
    fn a_copy_is_equal_and_sparse_and_the_cache_gives_the_same() {
        let combo = Combo::named("ext4");
        let filled = match filled(&combo, Tree::Ordinary, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => skip!("filled::a_copy_is_equal", reason),
        };
        let again = super::filled(&combo, Tree::Ordinary, &Scale::SMALL).unwrap();
        assert_eq!(again.image(), filled.image());
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        filled.copy_to(&copy).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(filled.image()).unwrap());
        let blocks = |file: &Path| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(file).unwrap());
        assert!(blocks(&copy) <= blocks(filled.image()) + 64);
        assert_clean(&copy).unwrap();
    }
}
