//! What can be read of a volume: every inode that a path leads to, with a sum of its content.

use hectare_device::Device;
use hectare_engine::{Kind, OpenOptions, Volume};
use hectare_units::InodeNr;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a volume holds: by inode, its kind and a sum of its content; and all paths.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Survey {
    pub(crate) inodes: BTreeMap<u32, (String, u64)>,
    pub(crate) paths: BTreeSet<(Vec<u8>, u32)>,
    /// What could not be read.
    pub(crate) errors: u32,
}

impl Survey {
    /// Reads a volume.
    pub(crate) fn of(device: Arc<dyn Device>) -> Option<Self> {
        let volume = Volume::open(device, OpenOptions::read_only()).ok()?;
        let mut survey = Self::default();
        let mut open = vec![(Vec::new(), InodeNr::ROOT)];
        let mut seen = BTreeSet::new();
        while let Some((path, nr)) = open.pop() {
            if !seen.insert(nr) {
                continue;
            }
            let Ok(entries) = volume.list(nr) else {
                survey.errors += 1;
                continue;
            };
            for entry in entries {
                let mut below = path.clone();
                below.push(b'/');
                below.extend(&entry.name);
                survey.add(&volume, entry.inode, &below, &mut open);
            }
        }
        Some(survey)
    }

    fn add(&mut self, volume: &Volume, nr: InodeNr, path: &[u8], open: &mut Vec<(Vec<u8>, InodeNr)>) {
        let Ok(metadata) = volume.stat(nr) else {
            self.errors += 1;
            return;
        };
        self.paths.insert((path.to_vec(), nr.get()));
        if self.inodes.contains_key(&nr.get()) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        match metadata.kind {
            Kind::File => self.read(volume, nr, metadata.size, &mut hasher),
            Kind::Symlink => volume.read_link_at(nr).unwrap_or_default().hash(&mut hasher),
            Kind::Directory => open.push((path.to_vec(), nr)),
            _ => {}
        }
        self.inodes.insert(nr.get(), (format!("{:?}", metadata.kind), hasher.finish()));
    }

    /// The content up to 64 MiB; holes cost time.
    fn read(&mut self, volume: &Volume, nr: InodeNr, size: u64, hasher: &mut DefaultHasher) {
        size.hash(hasher);
        let Ok(file) = volume.open_inode(nr) else {
            self.errors += 1;
            return;
        };
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while at < size.min(64 << 20) {
            match file.read_at(at, &mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    buffer[..count].hash(hasher);
                    at += u64::try_from(count).unwrap();
                }
                Err(_) => {
                    self.errors += 1;
                    break;
                }
            }
        }
    }

    /// The inodes that another survey has, with the same content, and this has not.
    pub(crate) fn lacks(&self, other: &Self) -> Vec<u32> {
        let same = |nr: &u32, found: &(String, u64)| self.inodes.get(nr) == Some(found);
        other.inodes.iter().filter(|(nr, found)| !same(nr, found)).map(|(nr, _)| *nr).collect()
    }

    /// How many paths another survey has that this has not.
    pub(crate) fn lacks_paths(&self, other: &Self) -> usize {
        other.paths.difference(&self.paths).count()
    }
}
