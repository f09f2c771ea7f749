//! Operations on an inode's own metadata: permissions and extended attributes.

use super::Worker;
use crate::jobs::soak::content::pattern;
use crate::jobs::soak::owned::{Step, told};
use hectare_engine::{Changes, Error, XattrHow};
use hectare_units::usize_of;

/// Bytes of values, of the few attributes a file has, that always fit into a block.
const BLOCK_HOLDS: usize = 3800;

impl Worker {
    pub(super) fn stat(&mut self) -> Step {
        self.with_file(|worker, file| file.verify_inode(&worker.volume))
    }

    pub(super) fn change_permissions(&mut self) -> Step {
        self.with_file(|worker, file| {
            file.permissions = [0o600, 0o640, 0o644, 0o755][usize_of(worker.random.below32(4))];
            let changes = Changes { permissions: Some(file.permissions), ..Changes::default() };
            told("chmod", &file.path, worker.volume.change_path(&file.path, &changes))
        })
    }

    pub(super) fn set_attribute(&mut self) -> Step {
        self.with_file(|worker, file| {
            let name = format!("user.{}", worker.random.below32(5));
            // Most lie in the inode; of the longest, a block holds one.
            let len = [60, 60, 60, 60, 60, 600, 600, 3000][usize_of(worker.random.below32(8))];
            let mut value = vec![0; usize_of(worker.random.below32(len))];
            pattern(worker.version(), 0, &mut value);
            let inode = told("lookup", &file.path, worker.volume.resolve(&file.path, false))?;
            let result = worker.volume.set_xattr(inode, &name, &value, XattrHow::Either);
            let others = file.attributes.iter().filter(|(other, _)| **other != name);
            let total = others.map(|(_, value)| value.len()).sum::<usize>() + value.len();
            if matches!(result, Err(Error::AttributeTooLarge)) && total > BLOCK_HOLDS {
                return Ok(());
            }
            if worker.unless_full("setxattr", &file.path, result)?.is_some() {
                file.attributes.insert(name, value);
            }
            Ok(())
        })
    }

    pub(super) fn remove_attribute(&mut self) -> Step {
        self.with_file(|worker, file| {
            let Some((name, _)) = file.attributes.pop_first() else { return Ok(()) };
            let inode = told("lookup", &file.path, worker.volume.resolve(&file.path, false))?;
            told("removexattr", &file.path, worker.volume.remove_xattr(inode, &name))
        })
    }
}
