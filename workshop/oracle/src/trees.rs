//! Awkward source directories, made the same every time.
//!
//! Each [`Tree`] is one kind of trouble for a file system or a tool that fills one: many names, long names,
//! deep nesting, odd sizes, holes, links, device nodes, attributes, odd times. All content, owners, modes and
//! times come from a seed, so two runs make equal trees, and a failure can be reproduced from its name and
//! [`Scale`].
//!
//! Hazards: device nodes, foreign owners and capabilities need root ([`Tree::needs_root`]); ACLs and user
//! attributes need a file system below the directory that supports them. The directory must be empty or
//! absent.

mod attributes;
mod files;
pub mod random;

pub use attributes::{acl, capabilities};
pub use files::fragmented;
pub use random::Random;

use crate::is_root;
use std::fs;
use std::io;
use std::path::Path;

/// One kind of awkward directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tree {
    /// One directory with [`Scale::files`] small files.
    ManyFiles,
    /// [`Scale::depth`] levels of directories with a file at each.
    Deep,
    /// Names of 1 to 255 bytes, non-UTF-8, spaces, newlines, leading dashes and dots.
    Names,
    /// Files of sizes around every boundary of the format.
    Sizes,
    /// Files with holes at the start, the middle and the end; one of [`Scale::sparse`] bytes.
    Sparse,
    /// A file of [`Scale::extents`] extents, kept apart by holes.
    Fragmented,
    /// Symbolic links around the in-inode limit, dangling and absolute; hard links within and across
    /// directories.
    Links,
    /// Named pipes and sockets.
    Pipes,
    /// Character and block devices with small and large numbers. Needs root.
    Devices,
    /// User attributes of many sizes and counts, and POSIX ACLs.
    Attributes,
    /// Capabilities, trusted attributes and foreign owners. Needs root.
    Privileged,
    /// Every permission bit on files and directories.
    Modes,
    /// Times from 1901 to 2446, with nanoseconds.
    Times,
    /// An ordinary directory: a mix of directories, texts, binaries and links.
    Ordinary,
}

/// How large trees are made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scale {
    /// Files in the one directory of [`Tree::ManyFiles`].
    pub files: u32,
    /// Levels of [`Tree::Deep`].
    pub depth: u32,
    /// Bytes of the largest file of [`Tree::Sparse`].
    pub sparse: u64,
    /// Extents of the file of [`Tree::Fragmented`], 4 KiB each.
    pub extents: u32,
    /// Bytes of the longest link target (a link must fit one block: at most the block size - 1).
    pub target: u16,
}

impl Scale {
    /// Fits every volume of [`combos()`](crate::combos()) and takes well under a second.
    pub const SMALL: Self = Self { files: 600, depth: 20, sparse: 1 << 30, extents: 600, target: 1000 };
    /// What the format must carry: 100,000 files in a directory, a sparse file of 1 TiB, 50,000 extents.
    pub const FULL: Self = Self { files: 100_000, depth: 20, sparse: 1 << 40, extents: 50_000, target: 4095 };
}

impl Tree {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::ManyFiles,
        Self::Deep,
        Self::Names,
        Self::Sizes,
        Self::Sparse,
        Self::Fragmented,
        Self::Links,
        Self::Pipes,
        Self::Devices,
        Self::Attributes,
        Self::Privileged,
        Self::Modes,
        Self::Times,
        Self::Ordinary,
    ];

    /// Its name, for test names and directories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ManyFiles => "many-files",
            Self::Deep => "deep",
            Self::Names => "names",
            Self::Sizes => "sizes",
            Self::Sparse => "sparse",
            Self::Fragmented => "fragmented",
            Self::Links => "links",
            Self::Pipes => "pipes",
            Self::Devices => "devices",
            Self::Attributes => "attributes",
            Self::Privileged => "privileged",
            Self::Modes => "modes",
            Self::Times => "times",
            Self::Ordinary => "ordinary",
        }
    }

    /// Whether only root can make it.
    #[must_use]
    pub const fn needs_root(self) -> bool {
        matches!(self, Self::Devices | Self::Privileged)
    }

    /// Makes it in a directory, which is created if absent.
    ///
    /// # Errors
    /// If anything can't be made, for lack of rights or because the file system below lacks a feature.
    pub fn make(self, folder: &Path, scale: &Scale) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut random = Random::new(self.name());
        match self {
            Self::ManyFiles => files::many(folder, scale.files)?,
            Self::Deep => files::deep(folder, scale.depth)?,
            Self::Names => files::names(folder)?,
            Self::Sizes => files::sizes(folder, &mut random)?,
            Self::Sparse => files::sparse(folder, scale.sparse, &mut random)?,
            Self::Fragmented => fragmented(&folder.join("fragmented"), scale.extents, 4096)?,
            Self::Links => files::links(folder, scale.target)?,
            Self::Pipes => files::pipes(folder)?,
            Self::Devices => files::devices(folder)?,
            Self::Attributes => attributes::unprivileged(folder, &mut random)?,
            Self::Privileged => attributes::privileged(folder, &mut random)?,
            Self::Modes => attributes::modes(folder)?,
            Self::Times => return attributes::times(folder), // it sets its own times
            Self::Ordinary => files::ordinary(folder, &mut random)?,
        }
        attributes::stamp(folder, &mut random)
    }
}

/// Makes every tree that this user can make, each in a subdirectory of its name; returns the ones left out.
///
/// # Errors
/// If anything can't be made.
pub fn make_all(folder: &Path, scale: &Scale) -> io::Result<Vec<Tree>> {
    fs::create_dir_all(folder)?;
    let (left_out, made) = Tree::ALL.into_iter().partition::<Vec<_>, _>(|t| t.needs_root() && !is_root());
    for tree in made {
        tree.make(&folder.join(tree.name()), scale)?;
    }
    attributes::stamp_one(folder, &mut Random::new("all"))?;
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Kind, What, assert_same, compare::Times, skip_part, walk};

    fn small(tree: Tree) -> Option<Vec<Entry>> {
        let folder = tempfile::tempdir().unwrap();
        if tree.needs_root() && !is_root() {
            skip_part!(format!("trees, {}", tree.name()), "needs root");
            return None;
        }
        match tree.make(&folder.path().join("tree"), &Scale::SMALL) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
            {
                skip_part!(format!("trees, {}", tree.name()), error);
                None
            }
            result => {
                result.unwrap_or_else(|error| panic!("{}: {error}", tree.name()));
                Some(walk(&folder.path().join("tree")))
            }
        }
    }

    #[test]
    fn every_tree_is_the_same_each_time() {
        for tree in Tree::ALL {
            let (Some(first), Some(second)) = (small(tree), small(tree)) else { continue };
            assert!(first.len() > 1, "{}", tree.name());
            assert_same(&first, &second, What { atimes: Times::Exact, ..What::all() });
        }
    }

    #[test]
    fn trees_hold_what_they_promise() {
        assert_eq!(small(Tree::ManyFiles).unwrap().len(), 601);
        let deepest =
            |entries: &[Entry]| entries.iter().map(|e| e.path.iter().filter(|b| **b == b'/').count()).max();
        assert!(deepest(&small(Tree::Deep).unwrap()) >= Some(20));
        let names = small(Tree::Names).unwrap();
        assert!(names.iter().any(|e| e.path.len() == 255));
        assert!(names.iter().any(|e| std::str::from_utf8(&e.path).is_err()));
        let sizes = small(Tree::Sizes).unwrap();
        for size in [0, 1, 59, 60, 4095, 4096, 4097] {
            assert!(sizes.iter().any(|e| e.kind == Kind::File && e.size == size), "{size}");
        }
        let fragmented = small(Tree::Fragmented).unwrap();
        assert_eq!(fragmented[1].data.len(), 600);
        let sparse = small(Tree::Sparse).unwrap();
        assert!(sparse.iter().any(|e| e.size == 1 << 30 && e.data.len() > 2));
        let links = small(Tree::Links).unwrap();
        assert!(links.iter().any(|e| e.nlink > 2) && links.iter().any(|e| e.target.len() == 60));
    }
}
