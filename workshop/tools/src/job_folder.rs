//! A directory of this process for large temporary files, removed when it is no longer needed.
//!
//! A killed process removes nothing, so each name ends in the process's id, and making a directory first
//! removes those of processes that are gone. Mounts in them are unmounted by the oracle's own sweep.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory of this name and the process's id below `parent`, and removes what killed processes
    /// have left there. Only one per name at a time.
    pub fn new(parent: &Path, name: &str) -> Result<Self, String> {
        crate::scratch::sweep();
        fs::create_dir_all(parent).map_err(with_path(parent))?;
        for entry in fs::read_dir(parent).map_err(with_path(parent))?.flatten() {
            if is_abandoned(&entry.file_name().to_string_lossy(), name) {
                let _ = fs::remove_dir_all(entry.path()); // another user's, perhaps
            }
        }
        let folder = parent.join(format!("{name}.{}", std::process::id()));
        fs::create_dir(&folder).map_err(with_path(&folder))?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it now, for a process that is about to end without dropping anything.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0); // the next run tries again
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes the oracle's directory of this process, which the next one would remove: for the end of a process.
pub fn leave_nothing() {
    let _ = fs::remove_dir_all(crate::scratch::folder()); // the next run tries again
}

fn is_abandoned(found: &str, name: &str) -> bool {
    let owner = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    owner.is_some_and(|id| id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists())
}

/// A failure with its path.
pub fn with_path<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> String + use<E> {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_go_and_others_stay() {
        let parent = crate::scratch::fresh("scratch");
        let dead = parent.join("hectare-test.4294967295");
        fs::create_dir_all(&dead).unwrap();
        let (theirs, odd) = (parent.join("other.4294967295"), parent.join("hectare-test.x"));
        fs::create_dir(&theirs).unwrap();
        fs::create_dir(&odd).unwrap();
        let scratch = Scratch::new(&parent, "hectare-test").unwrap();
        assert!(scratch.path().is_dir() && !dead.exists() && theirs.exists() && odd.exists());
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
        fs::remove_dir_all(&parent).unwrap();
    }
}
