//! The directory tree, and the link count of each inode.

use crate::context::Scan;
use crate::report::{Problem, What};
use hectare_ext4::error::Place;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::Kind;
use hectare_units::{InodeNr, usize_of};
use std::borrow::Cow;

/// The most links a directory counts; with more it counts 1 (`dir_nlink`).
const LINKS_MAX: u32 = 65_000;

impl Scan<'_> {
    /// Checks that every directory has a parent, names it, and hangs below the root.
    pub(crate) fn check_tree(&mut self) {
        let problems_max = self.volume.options.problems_max;
        let Self { report, inodes, orphans, directories, .. } = self;
        let mut wrong = |nr, reason: Cow<'static, str>| {
            report.tell(Problem { what: What::Tree, place: Place::Inode(nr), reason }, problems_max);
        };
        for directory in &*directories {
            let (nr, parent, dot_dot) = (directory.nr, directory.parent(), directory.dot_dot());
            let unlinked = || inodes.get(nr.get()).is_some_and(|info| info.links == 0);
            let orphan = orphans.contains(nr) && unlinked();
            let expected = if nr == InodeNr::ROOT { nr.get() } else { parent };
            if expected == 0 && !orphan {
                wrong(nr, "no directory leads to it".into());
            } else if dot_dot != expected && !orphan {
                wrong(nr, format!("its .. leads to inode {dot_dot}, its parent is {expected}").into());
            }
        }
        for nr in self.circles() {
            self.tell(What::Tree, Place::Inode(nr), "it lies below itself");
        }
    }

    /// One directory of every circle of parents.
    fn circles(&self) -> Vec<InodeNr> {
        let parent_of = |at: usize| {
            let directory = self.directories.get(at).filter(|directory| directory.nr != InodeNr::ROOT)?;
            let index = self.inodes.get(directory.parent())?.directory.checked_sub(1)?;
            Some(usize_of(index))
        };
        // Each directory is marked with the walk that first met it; to meet one's own mark is a circle.
        let mut marks = vec![0; self.directories.len()];
        let mut circles = Vec::new();
        for start in 0..self.directories.len() {
            let mut at = Some(start);
            while let Some(index) = at {
                match marks.get_mut(index) {
                    Some(mark) if *mark == 0 => *mark = start + 1,
                    Some(mark) if *mark == start + 1 => {
                        circles.extend(self.directories.get(index).map(|directory| directory.nr));
                        break;
                    }
                    _ => break,
                }
                at = parent_of(index);
            }
        }
        circles
    }

    /// Compares the links of every inode with the names that lead to it.
    pub(crate) fn check_links(&mut self) {
        let many = self.volume.sb.features().ro_compat.contains(RoCompat::DIR_NLINK);
        let problems_max = self.volume.options.problems_max;
        let Self { report, inodes, orphans, .. } = self;
        // There may be as many as inodes: none is kept here.
        let mut wrong = |nr, reason: Cow<'static, str>| {
            report.tell(Problem { what: What::LinkCount, place: Place::Inode(nr), reason }, problems_max);
        };
        for (nr, info) in inodes.not_simply_named() {
            if info.nameless {
                continue;
            }
            let refs = inodes.names(nr, &info).max(u32::from(info.holds_value));
            let nr = InodeNr::new(nr);
            let is_directory = info.kind == Some(Kind::Directory);
            let links = u32::from(info.links);
            let uncounted = is_directory && many && links == 1 && refs > LINKS_MAX;
            let forgotten = orphans.contains(nr) && links == 0 && (refs == 0 || is_directory && refs == 1);
            if links != refs && !uncounted && !forgotten {
                wrong(nr, format!("it counts {links} links, {refs} names lead to it").into());
            } else if refs == 0 && !forgotten {
                wrong(nr, "no name leads to it".into());
            }
        }
    }
}
