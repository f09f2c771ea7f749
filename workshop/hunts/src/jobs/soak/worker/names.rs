//! Operations on the names of files: making, moving, linking and removing them.

use super::{BLOCK, FILE_MAX, FILES_MAX, LINKS_MAX, NAMELESS_MAX, SYMLINKS_MAX, Worker};
use crate::jobs::soak::content::Content;
use crate::jobs::soak::owned::{Owned, Step, Symlink, told, verify};
use hectare_engine::{Creation, Error, RenameMode};
use hectare_units::usize_of;
use std::collections::BTreeMap;

impl Worker {
    pub(super) fn create(&mut self) -> Step {
        if self.files.len() >= FILES_MAX {
            return self.unlink();
        }
        let path = self.new_path();
        let permissions = 0o644;
        let made = self.volume.create_file(&path, Creation { permissions, ..Creation::default() });
        if let Some(open) = self.unless_full("create", &path, made)? {
            let (content, attributes, links) = (Content::default(), BTreeMap::new(), Vec::new());
            let open = self.odds(2).then_some(open);
            self.files.push(Owned { path, links, open, content, attributes, permissions });
        }
        Ok(())
    }

    pub(super) fn rename(&mut self) -> Step {
        self.with_file(|worker, file| {
            let to = worker.new_path();
            let result = worker.volume.rename_path(&file.path, &to, RenameMode::Replace);
            if worker.unless_full("rename", &file.path, result)?.is_some() {
                file.path = to;
            }
            Ok(())
        })
    }

    /// The replaced file lives on by another name, or while it is open.
    pub(super) fn rename_over(&mut self) -> Step {
        let Some(victim) = self.take_file() else { return self.create() };
        let Some(mut file) = self.take_file() else {
            self.files.push(victim);
            return self.create();
        };
        let result = self.volume.rename_path(&file.path, &victim.path, RenameMode::Replace);
        if self.unless_full("rename", &file.path, result)?.is_some() {
            file.path.clone_from(&victim.path);
            self.lost_name(victim)?;
        } else {
            self.files.push(victim);
        }
        self.files.push(file);
        Ok(())
    }

    pub(super) fn exchange(&mut self) -> Step {
        let Some(mut other) = self.take_file() else { return self.create() };
        let done = self.with_file(|worker, file| {
            let result = worker.volume.rename_path(&file.path, &other.path, RenameMode::Exchange);
            told("exchange", &file.path, result)?;
            std::mem::swap(&mut file.path, &mut other.path);
            Ok(())
        });
        self.files.push(other);
        done
    }

    /// One more name, or, of a file that has some, one less.
    pub(super) fn link(&mut self) -> Step {
        self.with_file(|worker, file| {
            if file.links.len() >= LINKS_MAX {
                return worker.unlink_one(file);
            }
            let other = worker.new_path();
            let result = worker.volume.hard_link(&file.path, &other);
            if worker.unless_full("link", &file.path, result)?.is_some() {
                file.links.push(other);
            }
            file.verify_inode(&worker.volume)
        })
    }

    /// Any of the names of a file that has several.
    fn unlink_one(&mut self, file: &mut Owned) -> Step {
        let count = u32::try_from(file.links.len()).unwrap_or(0);
        let mut goes = file.links.swap_remove(usize_of(self.random.below32(count)));
        if self.odds(3) {
            std::mem::swap(&mut goes, &mut file.path);
        }
        told("unlink", &goes, self.volume.remove_file(&goes))?;
        file.verify_inode(&self.volume)
    }

    /// It leads to the file as long as that keeps its name.
    pub(super) fn symlink(&mut self) -> Step {
        if self.symlinks.len() >= SYMLINKS_MAX {
            let oldest = self.symlinks.remove(0);
            oldest.verify_in(&self.volume)?;
            return told("unlink", &oldest.path, self.volume.remove_file(&oldest.path));
        }
        self.with_file(|worker, file| {
            // Up to 59 bytes lie in the inode, more in a block.
            let slashes = if worker.odds(2) { 1 } else { 100 };
            let (path, target) = (worker.new_path(), format!("{}{}", "/".repeat(slashes), file.path));
            let made = worker.volume.symlink(&target, &path, Creation::default());
            if worker.unless_full("symlink", &path, made)?.is_none() {
                return Ok(());
            }
            let through = told("stat", &path, worker.volume.metadata(&path))?.size;
            if through != file.content.len() {
                return Err(format!("{path}: it does not lead to {target}"));
            }
            worker.symlinks.push(Symlink { path, target });
            Ok(())
        })
    }

    pub(super) fn unlink(&mut self) -> Step {
        let Some(mut file) = self.take_file() else { return self.create() };
        file.open = None;
        told("unlink", &file.path, self.volume.remove_file(&file.path))?;
        match self.volume.metadata(&file.path) {
            Err(Error::NotFound) => self.lost_name(file),
            Err(error) => Err(format!("{}: stat after unlinking: {error}", file.path)),
            Ok(_) => Err(format!("{}: it is there after unlinking", file.path)),
        }
    }

    pub(super) fn unlink_open(&mut self) -> Step {
        let Some(mut file) = self.take_file() else { return self.create() };
        if file.open.is_none() {
            file.open = Some(told("open", &file.path, self.volume.open_file(&file.path))?);
        }
        told("unlink", &file.path, self.volume.remove_file(&file.path))?;
        self.lost_name(file)
    }

    /// A file whose first name has gone: it goes by another, or without one while it is open.
    fn lost_name(&mut self, mut file: Owned) -> Step {
        let Some(path) = file.links.pop() else { return self.add_nameless(file) };
        file.path = path;
        self.files.push(file);
        Ok(())
    }

    fn add_nameless(&mut self, file: Owned) -> Step {
        if file.open.is_some() {
            self.nameless.push(file);
        }
        if self.nameless.len() <= NAMELESS_MAX {
            return Ok(());
        }
        let oldest = self.nameless.remove(0);
        let Some(open) = &oldest.open else { return Ok(()) };
        verify(open, &oldest.content, &oldest.path, &mut self.buffer)
    }

    /// A file without a name is a file as any other until it is closed.
    pub(super) fn use_nameless(&mut self) -> Step {
        let Some(mut file) = self.nameless.pop() else { return self.unlink_open() };
        let Some(open) = file.open.take() else { return Ok(()) };
        match self.random.below32(4) {
            0 => {
                let at = u64::from(self.random.below32(FILE_MAX));
                self.write_to(&open, &mut file, at, BLOCK)?;
            }
            1 => {
                let len = u64::from(self.random.below32(FILE_MAX));
                if self.unless_full("truncate", &file.path, open.set_len(len))?.is_some() {
                    file.content.set_len(len);
                }
            }
            2 => return verify(&open, &file.content, &file.path, &mut self.buffer), // and close
            _ => told("fsync", &file.path, open.sync())?,
        }
        file.open = Some(open);
        self.nameless.push(file);
        Ok(())
    }
}
