//! The hash of files and directories of the workspace: whether sources are those that something was shown with.

use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The SHA-256 of the names and contents of all files below these paths, in hexadecimal digits. What can't be read
/// counts as empty, which matches no hash of what could.
#[must_use]
pub fn tree_hash(root: &Path, paths: &[&str]) -> String {
    let mut files = Vec::new();
    paths.iter().for_each(|path| collect(&root.join(path), &mut files));
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let content = std::fs::read(&file).unwrap_or_default();
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        hash.update(format!("{name}\0{}\0", content.len()));
        hash.update(content);
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a string takes all
        text
    })
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => files.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_follows_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let hash = || tree_hash(folder.path(), &["a", "b"]);
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/x"), "1").unwrap();
        std::fs::write(folder.path().join("b"), "2").unwrap();
        let first = hash();
        assert_eq!(first, hash());
        std::fs::write(folder.path().join("b"), "3").unwrap();
        let second = hash();
        assert_ne!(first, second);
        std::fs::rename(folder.path().join("a/x"), folder.path().join("a/y")).unwrap();
        assert_ne!(second, hash());
    }
}
