//! One thread of the soak: files of its own, their expected content, and everything the engine offers done to
//! them.
//!
//! A thread has a directory of its own, with directories in it, and puts some of its files into one that all
//! threads share. No other thread touches its names, so at any time it knows exactly what must be there:
//! names, sizes, every byte, attributes, permissions. A full volume is no failure; any other refusal of the
//! engine is.
//!
//! The operations are in the modules below, by what they are done to.

mod data;
mod directories;
mod inodes;
mod names;
mod space;

use super::owned::{Engine, Owned, Step, Symlink, told, verify};
use hectare_engine::{Creation, Error, OpenFile, Volume};
use hectare_units::random::SplitMix64;
use hectare_units::usize_of;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The directory that all share.
pub(super) const SHARED: &str = "shared";
/// Files of a thread at a time, and of those without a name, and directories.
const FILES_MAX: usize = 8;
const NAMELESS_MAX: usize = 3;
const DIRECTORIES_MAX: usize = 6;
/// Symbolic links of a thread at a time.
const SYMLINKS_MAX: usize = 6;
/// Names of a file beside its first.
const LINKS_MAX: usize = 2;
/// Bytes of the largest file.
const FILE_MAX: u32 = 1 << 20;
/// Bytes of the largest write.
const WRITE_MAX: u32 = 128 << 10;
const BLOCK: u32 = 4096;
/// Operations between two reports to the counter.
const REPORT: u64 = 32;

/// An operation: its weight among all, its name, and its function.
type Operation = (u32, &'static str, fn(&mut Worker) -> Step);

const OPERATIONS: [Operation; 32] = [
    (5, "create", Worker::create),
    (15, "write", Worker::write),
    (20, "append", Worker::append),
    (20, "overwrite", Worker::overwrite),
    (5, "truncate", Worker::truncate),
    (5, "fallocate", Worker::allocate),
    (3, "unshare", Worker::unshare),
    (5, "punch", Worker::punch),
    (5, "zero range", Worker::zero_range),
    (4, "collapse", Worker::collapse),
    (4, "insert", Worker::insert),
    (4, "seek", Worker::seek),
    (3, "fsync", Worker::fsync),
    (3, "fdatasync", Worker::fdatasync),
    (1, "sync", Worker::sync),
    (2, "sync directory", Worker::sync_directory),
    (10, "read back", Worker::read_back),
    (5, "stat", Worker::stat),
    (2, "chmod", Worker::change_permissions),
    (5, "rename", Worker::rename),
    (2, "rename over", Worker::rename_over),
    (2, "exchange", Worker::exchange),
    (2, "link", Worker::link),
    (2, "symlink", Worker::symlink),
    (2, "unlink", Worker::unlink),
    (2, "unlink while open", Worker::unlink_open),
    (4, "use without a name", Worker::use_nameless),
    (4, "set attribute", Worker::set_attribute),
    (2, "remove attribute", Worker::remove_attribute),
    (2, "mkdir", Worker::make_directory),
    (2, "rmdir", Worker::remove_directory),
    (3, "readdir", Worker::list),
];

/// How often each operation was done, by its name.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// The files of a thread when it ends.
pub(super) struct Left {
    pub(super) files: Vec<Owned>,
    pub(super) symlinks: Vec<Symlink>,
    pub(super) counts: Counts,
}

/// One thread.
pub(super) struct Worker {
    volume: Volume,
    nr: u32,
    random: SplitMix64,
    directories: Vec<String>,
    files: Vec<Owned>,
    nameless: Vec<Owned>,
    symlinks: Vec<Symlink>,
    names: u64,
    versions: u64,
    counts: Counts,
    buffer: Vec<u8>,
}

impl Worker {
    /// A thread with a directory of its own, which it makes.
    pub(super) fn new(volume: &Volume, nr: u32, seed: u64) -> Result<Self, String> {
        let home = format!("{nr:03}");
        told("mkdir", &home, volume.create_dir(&home, Creation::default()))?;
        Ok(Self {
            volume: volume.clone(),
            nr,
            random: SplitMix64::new(seed.rotate_left(32) ^ u64::from(nr)),
            directories: vec![home],
            files: Vec::new(),
            nameless: Vec::new(),
            symlinks: Vec::new(),
            names: 0,
            versions: u64::from(nr) << 40,
            counts: Counts::new(),
            buffer: vec![0; usize_of(WRITE_MAX)],
        })
    }

    /// Works until it is stopped, and checks everything once more in the end.
    pub(super) fn run(mut self, stop: &AtomicBool, done: &AtomicU64) -> Result<Left, String> {
        let weights: u32 = OPERATIONS.iter().map(|(weight, ..)| weight).sum();
        let mut steps = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut left = self.random.below32(weights);
            let chosen = OPERATIONS.iter().find(|(weight, ..)| {
                let found = left < *weight;
                left = left.saturating_sub(*weight);
                found
            });
            let (_, name, act) = chosen.unwrap_or(&OPERATIONS[0]);
            act(&mut self).map_err(|error| format!("thread {}, step {steps}, {name}: {error}", self.nr))?;
            *self.counts.entry(name).or_default() += 1;
            steps += 1;
            if steps % REPORT == 0 {
                done.fetch_add(REPORT, Ordering::Relaxed);
            }
        }
        let nr = self.nr;
        self.finish().map_err(|error| format!("thread {nr}, in the end: {error}"))
    }

    fn finish(mut self) -> Result<Left, String> {
        for file in std::mem::take(&mut self.nameless) {
            if let Some(open) = &file.open {
                verify(open, &file.content, &file.path, &mut self.buffer)?;
            }
        }
        let mut files = std::mem::take(&mut self.files);
        for file in &mut files {
            file.open = None;
            file.verify_in(&self.volume, &mut self.buffer)?;
        }
        self.symlinks.iter().try_for_each(|link| link.verify_in(&self.volume))?;
        Ok(Left { files, symlinks: self.symlinks, counts: self.counts })
    }

    // What operations are made of.

    fn odds(&mut self, of: u32) -> bool {
        self.random.below32(of) == 0
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// A new name in one of the directories, or in the one all share.
    fn new_path(&mut self) -> String {
        self.names += 1;
        let directory = match self.random.below32(3) {
            0 => SHARED,
            _ => {
                let count = u32::try_from(self.directories.len()).unwrap_or(1);
                &self.directories[usize_of(self.random.below32(count))]
            }
        };
        format!("{directory}/{:03}-{}", self.nr, self.names)
    }

    /// A result, or nothing if the volume is full, which is counted.
    fn unless_full<T>(&mut self, what: &str, path: &str, result: Engine<T>) -> Result<Option<T>, String> {
        match result {
            Err(Error::NoSpace | Error::NoInodes | Error::DirectoryFull) => {
                *self.counts.entry("(full)").or_default() += 1;
                Ok(None)
            }
            other => told(what, path, other).map(Some),
        }
    }

    /// Any of the files, which goes back when the work is done.
    fn with_file(&mut self, act: impl FnOnce(&mut Self, &mut Owned) -> Step) -> Step {
        let Some(mut file) = self.take_file() else { return self.create() };
        act(self, &mut file)?;
        self.files.push(file);
        Ok(())
    }

    fn take_file(&mut self) -> Option<Owned> {
        let count = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| self.files.swap_remove(usize_of(self.random.below32(count))))
    }

    /// Any of the files, open; it stays open half of the time.
    fn with_open(&mut self, act: impl FnOnce(&mut Self, &OpenFile, &mut Owned) -> Step) -> Step {
        self.with_file(|worker, file| {
            let open = match file.open.take() {
                Some(open) => open,
                None => told("open", &file.path, worker.volume.open_file(&file.path))?,
            };
            act(worker, &open, file)?;
            file.open = worker.odds(2).then_some(open);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::soak::owned::{name, parent};
    use hectare_device::FileOptions;
    use hectare_engine::{OpenOptions, XattrHow};
    use hectare_oracle::{mke2fs, scratch, skip};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn what_is_changed_behind_a_threads_back_is_found() {
        let image = scratch::fresh("soak");
        if let Err(reason) = mke2fs(&["-t", "ext4"], &image, "16M") {
            skip!("soak::what_is_changed", reason);
        }
        let device = FileOptions::new().write(true).open(&image).unwrap();
        let volume = Volume::open(Arc::new(device), OpenOptions::default()).unwrap();
        volume.create_dir(SHARED, Creation::default()).unwrap();
        let mut worker = Worker::new(&volume, 7, 1).unwrap();
        worker.create().unwrap();
        worker.append().unwrap();
        worker.set_attribute().unwrap();
        let path = worker.files[0].path.clone();
        let mut buffer = [0; 8192];
        worker.files[0].verify_in(&volume, &mut buffer).unwrap();
        let open = volume.open_file(&path).unwrap();
        let mut byte = [0];
        open.read_at(9, &mut byte).unwrap();
        open.write_all_at(9, &[!byte[0]]).unwrap();
        let wrong = worker.files[0].verify_in(&volume, &mut buffer).unwrap_err();
        assert!(wrong.contains(": byte 9 of"), "{wrong}");
        let stray = format!("{}/stray", worker.directories[0]);
        volume.create_file(&stray, Creation::default()).unwrap();
        let listed = (0..50).find_map(|_| worker.list().err()).unwrap();
        assert!(listed.contains("stray should not be there"), "{listed}");
        let inode = volume.resolve(&path, false).unwrap();
        volume.set_xattr(inode, "user.more", b"x", XattrHow::Either).unwrap();
        let stat = worker.files[0].verify_inode(&volume).unwrap_err();
        assert!(stat.contains("attributes"), "{stat}");
        open.set_len(1).unwrap();
        drop(open);
        let stat = worker.files[0].verify_inode(&volume).unwrap_err();
        assert!(stat.contains("size"), "{stat}");
        volume.close().unwrap();
        std::fs::remove_file(&image).unwrap();
    }

    #[test]
    fn every_operation_can_be_chosen() {
        assert!(OPERATIONS.iter().all(|(weight, ..)| *weight > 0));
        let names: BTreeSet<_> = OPERATIONS.iter().map(|(_, name, _)| name).collect();
        assert_eq!(names.len(), OPERATIONS.len());
        assert_eq!((parent("a/b/c"), name("a/b/c"), parent("a")), ("a/b", "c", ""));
    }
}
