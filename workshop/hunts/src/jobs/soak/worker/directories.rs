//! Operations on directories: making, moving, removing, listing and syncing them.

use super::{DIRECTORIES_MAX, SHARED, Worker};
use crate::jobs::soak::owned::{Step, name, parent, told};
use hectare_engine::{Creation, Error, RenameMode};
use hectare_units::usize_of;
use std::collections::BTreeSet;

impl Worker {
    pub(super) fn make_directory(&mut self) -> Step {
        if self.directories.len() >= DIRECTORIES_MAX {
            return self.remove_directory();
        }
        self.names += 1;
        let path = format!("{}/d{}", self.directories[0], self.names);
        let made = self.volume.create_dir(&path, Creation::default());
        if self.unless_full("mkdir", &path, made)?.is_some() {
            self.directories.push(path);
        }
        Ok(())
    }

    /// Removes it if it is empty, and renames it otherwise.
    pub(super) fn remove_directory(&mut self) -> Step {
        let others = u32::try_from(self.directories.len() - 1).unwrap_or(0);
        if others == 0 {
            return self.make_directory();
        }
        let nr = 1 + usize_of(self.random.below32(others));
        let path = self.directories[nr].clone();
        if !self.paths().any(|inside| parent(inside) == path) {
            self.directories.swap_remove(nr);
            return told("rmdir", &path, self.volume.remove_dir(&path));
        }
        match self.volume.remove_dir(&path) {
            Err(Error::NotEmpty) => {}
            Err(error) => return Err(format!("rmdir {path}, which holds files: {error}")),
            Ok(()) => return Err(format!("rmdir {path}: it held files")),
        }
        self.names += 1;
        let to = format!("{}/d{}", self.directories[0], self.names);
        told("rename", &path, self.volume.rename_path(&path, &to, RenameMode::NoReplace))?;
        for moved in self.paths_mut().filter(|inside| parent(inside) == path) {
            *moved = moved.replacen(&path, &to, 1);
        }
        self.directories[nr] = to;
        Ok(())
    }

    /// A directory of its own, or the shared one.
    fn any_directory(&mut self) -> String {
        let own = u32::try_from(self.directories.len()).unwrap_or(1);
        let nr = usize_of(self.random.below32(own + 1));
        self.directories.get(nr).map_or(SHARED, String::as_str).to_owned()
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_directory(&mut self) -> Step {
        let directory = self.any_directory();
        let nr = told("lookup", &directory, self.volume.resolve(&directory, false))?;
        told("fsync", &directory, self.volume.sync_inode(nr))
    }

    /// A directory of its own holds exactly what it should, the shared one exactly its own names.
    pub(super) fn list(&mut self) -> Step {
        let directory = self.any_directory();
        let mine = format!("{:03}-", self.nr);
        let entries = told("readdir", &directory, self.volume.read_dir(&directory))?;
        let found: BTreeSet<String> = entries
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
            .filter(|name| directory != SHARED || name.starts_with(&mine))
            .collect();
        let paths = self.paths().chain(&self.directories).filter(|path| parent(path) == directory);
        let expected: BTreeSet<String> = paths.map(|path| name(path).to_owned()).collect();
        match found.symmetric_difference(&expected).next() {
            None => Ok(()),
            Some(odd) => {
                let what = if expected.contains(odd) { "is missing" } else { "should not be there" };
                Err(format!("{directory}: {odd} {what}"))
            }
        }
    }

    /// Every name of a file, and those of symbolic links.
    fn paths(&self) -> impl Iterator<Item = &String> {
        let files = self.files.iter().flat_map(|file| std::iter::once(&file.path).chain(&file.links));
        files.chain(self.symlinks.iter().map(|link| &link.path))
    }

    /// The same, to be changed.
    fn paths_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let files =
            self.files.iter_mut().flat_map(|file| std::iter::once(&mut file.path).chain(&mut file.links));
        files.chain(self.symlinks.iter_mut().map(|link| &mut link.path))
    }
}
