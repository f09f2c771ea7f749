//! Runs e2fsck to check a whole volume.
//!
//! Clean means more than exit status 0: with `-n` some findings are only questions ("Optimize? no") and do
//! not change the status. A volume that Hectare wrote must give e2fsck nothing to ask.

use crate::{Skip, tool};
use std::path::Path;

/// The result of `e2fsck -fn` on an image.
#[derive(Clone, Debug)]
pub struct Report {
    /// Exit status 0 and nothing asked.
    pub clean: bool,
    /// The exit status (0 clean, 4 errors left, 8 operational error, and so on; `None` if a signal ended it).
    pub exit: Option<i32>,
    /// The questions that `-n` answered with no, which name what is wrong.
    pub questions: Vec<String>,
    /// The command line, all output and the status.
    pub output: String,
}

impl Report {
    /// Whether there are no errors; offers to make trees smaller are none. The kernel leaves such trees, too.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.exit == Some(0) && self.questions.iter().all(|question| question.ends_with("Optimize? no"))
    }
}

/// Checks an image with `e2fsck -fn`, which writes nothing.
///
/// # Errors
/// A [`Skip`] if e2fsck is not installed.
pub fn e2fsck(image: &Path) -> Result<Report, Skip> {
    e2fsck_with(image, &["-fn"])
}

/// Checks or repairs an image with other flags (such as `-fy`).
///
/// # Errors
/// A [`Skip`] if e2fsck is not installed.
pub fn e2fsck_with(image: &Path, flags: &[&str]) -> Result<Report, Skip> {
    let said = tool::run(tool::need("e2fsck")?.args(flags).arg(image));
    let asked = |line: &&str| line.ends_with("? no") || line.ends_with("? yes");
    let questions: Vec<String> = said.stdout.lines().filter(asked).map(String::from).collect();
    Ok(Report {
        clean: said.succeeded() && questions.is_empty(),
        exit: said.exit,
        questions,
        output: said.report(),
    })
}

/// Fails the test unless `e2fsck -fn` finds the image clean.
///
/// # Errors
/// A [`Skip`] if e2fsck is not installed.
///
/// # Panics
/// If the image is not clean, with all that e2fsck printed.
#[track_caller]
pub fn assert_clean(image: &Path) -> Result<(), Skip> {
    let report = e2fsck(image)?;
    assert!(report.clean, "e2fsck does not find {} clean:\n{}", image.display(), report.output);
    Ok(())
}

/// As [`assert_clean`], but the extent trees of some inodes may have nodes that are not full, which e2fsck
/// offers to change: a tree that was split all over, or emptied in the middle, has such nodes, the kernel's
/// as well.
///
/// # Errors
/// A [`Skip`] if e2fsck is not installed.
///
/// # Panics
/// If e2fsck asks anything else, or this of another inode.
#[track_caller]
pub fn assert_clean_but_wide(image: &Path, may_be_wide: impl Fn(u64) -> bool) -> Result<(), Skip> {
    let report = e2fsck(image)?;
    let fine = |question: &String| wide_inode(question).is_some_and(&may_be_wide);
    let clean = report.exit == Some(0) && report.questions.iter().all(fine);
    assert!(clean, "e2fsck does not find {} clean:\n{}", image.display(), report.output);
    Ok(())
}

/// The inode whose extent tree e2fsck finds wider than it has to be, if that is what it asks.
fn wide_inode(question: &str) -> Option<u64> {
    let rest = question.strip_prefix("Inode ")?.strip_suffix(" could be narrower.  Optimize? no")?;
    let (inode, tree) = rest.split_once(' ')?;
    tree.starts_with("extent tree (at level ").then(|| inode.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{debugfs_write, mke2fs, skip};

    #[test]
    fn a_wide_tree_is_told_from_all_else() {
        let wide = "Inode 12 extent tree (at level 1) could be narrower.  Optimize? no";
        assert_eq!(wide_inode(wide), Some(12));
        assert_eq!(wide_inode("Inode 12 extent tree (at level 1) could be shorter.  Optimize? no"), None);
        assert_eq!(wide_inode("Inode 12, i_blocks is 8, should be 16.  Fix? no"), None);
    }

    #[test]
    fn tells_clean_from_broken_and_from_no_volume_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if let Err(reason) = mke2fs(&["-t", "ext4"], &image, "8M") {
            skip!("fsck::tells_clean_from_broken", reason);
        }
        assert_clean(&image).unwrap();

        debugfs_write(&image, &["set_inode_field <2> links_count 77"]).unwrap();
        let report = e2fsck(&image).unwrap();
        assert!(!report.clean && report.exit == Some(4), "{}", report.output);
        assert!(!report.questions.is_empty(), "{}", report.output);
        assert!(e2fsck_with(&image, &["-fy"]).unwrap().exit == Some(1));
        assert_clean(&image).unwrap();

        std::fs::write(&image, [7; 65536]).unwrap();
        assert_eq!(e2fsck(&image).unwrap().exit, Some(8));
        let failed = std::panic::catch_unwind(|| assert_clean(&image));
        assert!(failed.is_err());
    }
}
