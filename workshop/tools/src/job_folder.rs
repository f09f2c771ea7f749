//! A directory of this process for large temporary files, removed when it is no longer needed; what killed
//! processes left is removed by the next ([`scratch`](crate::scratch)).

use crate::scratch::{Owned, sweep, sweep_in};
use std::fs;
use std::path::Path;

pub use crate::scratch::leave_nothing;

/// A directory that is removed when this value is dropped, with what is mounted in it.
#[derive(Debug)]
pub struct Scratch(Owned);

impl Scratch {
    /// Makes a directory of this name below `parent`, and removes what killed processes have left there.
    pub fn new(parent: &Path, name: &str) -> Result<Self, String> {
        sweep();
        fs::create_dir_all(parent).map_err(with_path(parent))?;
        sweep_in(parent, name);
        Owned::new(parent, name).map(Self).map_err(with_path(parent))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.folder
    }

    /// Removes it now, for a process that is about to end without dropping anything.
    pub fn remove(&self) {
        self.0.remove();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
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
        // The dead one has the number of a process that lives.
        let dead = parent.join(format!("hectare-test.{}.00000000", std::process::id()));
        fs::create_dir_all(&dead).unwrap();
        let other = parent.join("other.4294967295.00000000");
        fs::create_dir(&other).unwrap();
        let first = Scratch::new(&parent, "hectare-test").unwrap();
        let second = Scratch::new(&parent, "hectare-test").unwrap();
        assert!(first.path().is_dir() && second.path().is_dir() && !dead.exists() && other.exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
        fs::remove_dir_all(&parent).unwrap();
    }
}
