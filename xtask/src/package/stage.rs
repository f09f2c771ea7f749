//! Writes the files of a package below a directory, as they will be installed.
//!
//! Invariant: the result does not depend on the umask, nor on the time: modes are set, and every file,
//! directory and link gets the time of the packages. Owners are those of this process; the programs that
//! write packages replace them by root.

use super::layout::{Entry, What};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Writes the entries below a new directory.
pub(super) fn stage(entries: &[Entry], root: &Path, epoch: u64) -> Result<(), String> {
    fs::create_dir(root).map_err(at(root))?;
    let mut folders = BTreeSet::from([root.to_owned()]);
    for entry in entries {
        let path = root.join(&entry.path);
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
            folders.insert(folder.to_owned());
        }
        fs::create_dir_all(path.parent().unwrap_or(root)).map_err(at(&path))?;
        write(entry, &path)?;
        dated(&path, epoch)?;
    }
    // The longest first: what is written into a directory changes its time.
    for folder in folders.iter().rev() {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(at(folder))?;
        dated(folder, epoch)?;
    }
    Ok(())
}

fn write(entry: &Entry, path: &Path) -> Result<(), String> {
    match &entry.what {
        What::Link(target) => return symlink(target, path).map_err(at(path)),
        What::Copy(from) => fs::copy(from, path).map(|_| ()).map_err(at(from))?,
        What::Bytes(bytes) => fs::write(path, bytes).map_err(at(path))?,
    }
    fs::set_permissions(path, Permissions::from_mode(entry.mode)).map_err(at(path))
}

/// Gives a file, or a link itself, a time.
pub(super) fn dated(path: &Path, epoch: u64) -> Result<(), String> {
    let time = Timespec { tv_sec: i64::try_from(epoch).unwrap_or(i64::MAX), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(at(path))
}

/// The directories that a package brings and no other has: below these, by its name.
pub(super) fn own_folders(entries: &[Entry], name: &str) -> Vec<PathBuf> {
    let tops = ["doc", "licenses"].map(|kind| PathBuf::from(format!("usr/share/{kind}/{name}")));
    let paths = entries.iter().flat_map(|entry| Path::new(&entry.path).ancestors().skip(1));
    let own: BTreeSet<_> = paths.filter(|path| tops.iter().any(|top| path.starts_with(top))).collect();
    own.into_iter().map(Path::to_owned).collect()
}

fn at<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> String + use<E> {
    hectare_tools::job_folder::with_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn entries() -> [Entry; 3] {
        let entry = |path: &str, mode, what| Entry { path: path.to_owned(), mode, what };
        [
            entry("usr/bin/a", 0o755, What::Bytes(b"a".to_vec())),
            entry("usr/sbin/b", 0o777, What::Link("../bin/a".to_owned())),
            entry("usr/share/doc/a/docs/c", 0o644, What::Bytes(b"c".to_vec())),
        ]
    }

    #[test]
    fn modes_and_times_are_those_of_the_package() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        stage(&entries(), &root, 1_000_000).unwrap();
        for (path, mode) in [("usr/bin/a", 0o755), ("usr/share/doc/a/docs/c", 0o644), ("usr/bin", 0o755)] {
            let metadata = fs::symlink_metadata(root.join(path)).unwrap();
            assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (mode, 1_000_000), "{path}");
        }
        assert_eq!(fs::symlink_metadata(root.join("usr/sbin/b")).unwrap().mtime(), 1_000_000);
        assert_eq!(fs::read(root.join("usr/sbin/b")).unwrap(), b"a");
        assert_eq!(fs::metadata(&root).unwrap().mtime(), 1_000_000);
    }

    #[test]
    fn a_package_owns_its_directories_of_documents() {
        let own = own_folders(&entries(), "a");
        assert_eq!(own, [Path::new("usr/share/doc/a"), Path::new("usr/share/doc/a/docs")]);
    }
}
