//! One thread of the soak: files of its own, what they should hold, and everything the engine offers done to
//! them.
//!
//! A thread has a directory of its own, with directories in it, and puts some of its files into one that all
//! threads share. Nobody else touches its names, so at any time it knows exactly what must be there: names,
//! sizes, every byte, attributes, permissions. A full volume is no failure; anything else the engine refuses
//! is.

use super::content::{Content, pattern};
use super::owned::{Engine, Owned, Step, name, parent, told, verify};
use hectare_engine::{Changes, Creation, Error, OpenFile, RenameMode, Volume, XattrHow};
use hectare_lab::random::Random;
use hectare_units::{u64_of, usize_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The directory that all share.
pub(super) const SHARED: &str = "shared";
/// Files of a thread at a time, and of those without a name, and directories.
const FILES_MAX: usize = 8;
const NAMELESS_MAX: usize = 3;
const DIRECTORIES_MAX: usize = 6;
/// Bytes of the largest file.
const FILE_MAX: u32 = 1 << 20;
/// Bytes of the largest write.
const WRITE_MAX: u32 = 128 << 10;
const BLOCK: u32 = 4096;
/// Operations between two reports to the counter.
const REPORT: u64 = 32;

/// An operation: how often it comes among all, its name, and what it does.
type Operation = (u32, &'static str, fn(&mut Worker) -> Step);

const OPERATIONS: [Operation; 25] = [
    (5, "create", Worker::create),
    (15, "write", Worker::write),
    (20, "append", Worker::append),
    (20, "overwrite", Worker::overwrite),
    (5, "truncate", Worker::truncate),
    (5, "fallocate", Worker::allocate),
    (3, "fsync", Worker::fsync),
    (3, "fdatasync", Worker::fdatasync),
    (1, "sync", Worker::sync),
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

/// What a thread leaves when it ends.
pub(super) struct Left {
    pub(super) files: Vec<Owned>,
    pub(super) counts: Counts,
}

/// One thread.
pub(super) struct Worker {
    volume: Volume,
    nr: u32,
    random: Random,
    directories: Vec<String>,
    files: Vec<Owned>,
    nameless: Vec<Owned>,
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
            random: Random::new(seed.rotate_left(32) ^ u64::from(nr)),
            directories: vec![home],
            files: Vec::new(),
            nameless: Vec::new(),
            names: 0,
            versions: u64::from(nr) << 40,
            counts: Counts::new(),
            buffer: vec![0; usize_of(WRITE_MAX)],
        })
    }

    /// Works until told to stop, and looks at everything once more in the end.
    pub(super) fn run(mut self, stop: &AtomicBool, done: &AtomicU64) -> Result<Left, String> {
        let weights: u32 = OPERATIONS.iter().map(|(weight, ..)| weight).sum();
        let mut steps = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut left = self.random.below(weights);
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
        Ok(Left { files, counts: self.counts })
    }

    // What operations are made of.

    fn odds(&mut self, of: u32) -> bool {
        self.random.below(of) == 0
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// A new name in one of the directories, or in the one all share.
    fn new_path(&mut self) -> String {
        self.names += 1;
        let directory = match self.random.below(3) {
            0 => SHARED,
            _ => {
                let count = u32::try_from(self.directories.len()).unwrap_or(1);
                &self.directories[usize_of(self.random.below(count))]
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
        (count > 0).then(|| self.files.swap_remove(usize_of(self.random.below(count))))
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

    fn write_to(&mut self, open: &OpenFile, file: &mut Owned, at: u64, len: u32) -> Step {
        let version = self.version();
        let mut data = std::mem::take(&mut self.buffer);
        let part = &mut data[..usize_of(len)];
        pattern(version, at, part);
        let result = open.write_at(at, part);
        self.buffer = data;
        if let Some(written) = self.unless_full("write", &file.path, result)? {
            file.content.write(at, u64_of(written), version);
        }
        Ok(())
    }

    // The operations.

    fn create(&mut self) -> Step {
        if self.files.len() >= FILES_MAX {
            return self.unlink();
        }
        let path = self.new_path();
        let permissions = 0o644;
        let made = self.volume.create_file(&path, Creation { permissions, ..Creation::default() });
        if let Some(open) = self.unless_full("create", &path, made)? {
            let (content, attributes) = (Content::default(), BTreeMap::new());
            let open = self.odds(2).then_some(open);
            self.files.push(Owned { path, open, content, attributes, permissions });
        }
        Ok(())
    }

    fn write(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let len = 1 + worker.random.below(WRITE_MAX);
            let at = worker.random.below(FILE_MAX - len);
            worker.write_to(open, file, at.into(), len)
        })
    }

    fn append(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            for _ in 0..=worker.random.below(8) {
                let len = 1 + worker.random.below(BLOCK);
                if file.content.len() + u64::from(len) <= u64::from(FILE_MAX) {
                    worker.write_to(open, file, file.content.len(), len)?;
                }
            }
            Ok(())
        })
    }

    /// Whole blocks inside the file.
    fn overwrite(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let blocks = u32::try_from(file.content.len() / u64::from(BLOCK)).unwrap_or(0);
            for _ in 0..worker.random.below(8).min(blocks) {
                let at = u64::from(worker.random.below(blocks)) * u64::from(BLOCK);
                worker.write_to(open, file, at, BLOCK)?;
            }
            Ok(())
        })
    }

    fn truncate(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let len = if worker.odds(4) { 0 } else { worker.random.below(FILE_MAX).into() };
            if worker.unless_full("truncate", &file.path, open.set_len(len))?.is_some() {
                file.content.set_len(len);
            }
            Ok(())
        })
    }

    fn allocate(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let len = 1 + u64::from(worker.random.below(2 * WRITE_MAX));
            let at = u64::from(worker.random.below(FILE_MAX)).min(u64::from(FILE_MAX) - len);
            let keep_size = worker.odds(2);
            let result = open.allocate(at, len, keep_size);
            let done = worker.unless_full("fallocate", &file.path, result)?.is_some();
            if !keep_size {
                // A volume that became full on the way leaves the file as long as it got.
                let reached = told("stat", &file.path, open.metadata())?.size;
                file.content.extend(if done { at + len } else { reached.min(at + len) });
            }
            Ok(())
        })
    }

    fn fsync(&mut self) -> Step {
        self.with_open(|_, open, file| told("fsync", &file.path, open.sync()))
    }

    fn fdatasync(&mut self) -> Step {
        self.with_open(|_, open, file| told("fdatasync", &file.path, open.sync_data()))
    }

    fn sync(&mut self) -> Step {
        told("sync", "/", self.volume.sync())
    }

    fn read_back(&mut self) -> Step {
        self.with_open(|worker, open, file| verify(open, &file.content, &file.path, &mut worker.buffer))
    }

    fn stat(&mut self) -> Step {
        self.with_file(|worker, file| file.verify_inode(&worker.volume))
    }

    fn change_permissions(&mut self) -> Step {
        self.with_file(|worker, file| {
            file.permissions = [0o600, 0o640, 0o644, 0o755][usize_of(worker.random.below(4))];
            let changes = Changes { permissions: Some(file.permissions), ..Changes::default() };
            told("chmod", &file.path, worker.volume.change_path(&file.path, &changes))
        })
    }

    fn rename(&mut self) -> Step {
        self.with_file(|worker, file| {
            let to = worker.new_path();
            let result = worker.volume.rename_path(&file.path, &to, RenameMode::Replace);
            if worker.unless_full("rename", &file.path, result)?.is_some() {
                file.path = to;
            }
            Ok(())
        })
    }

    /// The victim lives on while it is open.
    fn rename_over(&mut self) -> Step {
        let Some(victim) = self.take_file() else { return self.create() };
        let Some(mut file) = self.take_file() else {
            self.files.push(victim);
            return self.create();
        };
        let result = self.volume.rename_path(&file.path, &victim.path, RenameMode::Replace);
        if self.unless_full("rename", &file.path, result)?.is_some() {
            file.path.clone_from(&victim.path);
            self.add_nameless(victim)?;
        } else {
            self.files.push(victim);
        }
        self.files.push(file);
        Ok(())
    }

    fn exchange(&mut self) -> Step {
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

    /// A second name, and one of the two goes.
    fn link(&mut self) -> Step {
        self.with_file(|worker, file| {
            let other = worker.new_path();
            let result = worker.volume.hard_link(&file.path, &other);
            if worker.unless_full("link", &file.path, result)?.is_none() {
                return Ok(());
            }
            let links = told("stat", &other, worker.volume.metadata(&other))?.links;
            if links != 2 {
                return Err(format!("{other}: {links} links after linking"));
            }
            let goes = if worker.odds(2) { other } else { std::mem::replace(&mut file.path, other) };
            told("unlink", &goes, worker.volume.remove_file(&goes))
        })
    }

    fn symlink(&mut self) -> Step {
        self.with_file(|worker, file| {
            let (link, target) = (worker.new_path(), format!("/{}", file.path));
            let made = worker.volume.symlink(&target, &link, Creation::default());
            if worker.unless_full("symlink", &link, made)?.is_none() {
                return Ok(());
            }
            let read = told("readlink", &link, worker.volume.read_link(&link))?;
            let through = told("stat", &link, worker.volume.metadata(&link))?.size;
            if read != target.as_bytes() || through != file.content.len() {
                return Err(format!("{link}: it does not lead to {target}"));
            }
            told("unlink", &link, worker.volume.remove_file(&link))
        })
    }

    fn unlink(&mut self) -> Step {
        let Some(mut file) = self.take_file() else { return self.create() };
        file.open = None;
        told("unlink", &file.path, self.volume.remove_file(&file.path))?;
        match self.volume.metadata(&file.path) {
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(format!("{}: stat after unlinking: {error}", file.path)),
            Ok(_) => Err(format!("{}: it is there after unlinking", file.path)),
        }
    }

    fn unlink_open(&mut self) -> Step {
        let Some(mut file) = self.take_file() else { return self.create() };
        if file.open.is_none() {
            file.open = Some(told("open", &file.path, self.volume.open_file(&file.path))?);
        }
        told("unlink", &file.path, self.volume.remove_file(&file.path))?;
        self.add_nameless(file)
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

    /// What has no name is a file as any other until it is closed.
    fn use_nameless(&mut self) -> Step {
        let Some(mut file) = self.nameless.pop() else { return self.unlink_open() };
        let Some(open) = file.open.take() else { return Ok(()) };
        match self.random.below(4) {
            0 => {
                let at = u64::from(self.random.below(FILE_MAX));
                self.write_to(&open, &mut file, at, BLOCK)?;
            }
            1 => {
                let len = u64::from(self.random.below(FILE_MAX));
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

    fn set_attribute(&mut self) -> Step {
        self.with_file(|worker, file| {
            let name = format!("user.{}", worker.random.below(5));
            let len = if worker.odds(4) { 600 } else { 60 };
            let mut value = vec![0; usize_of(worker.random.below(len))];
            pattern(worker.version(), 0, &mut value);
            let inode = told("lookup", &file.path, worker.volume.resolve(&file.path, false))?;
            let result = worker.volume.set_xattr(inode, &name, &value, XattrHow::Either);
            if worker.unless_full("setxattr", &file.path, result)?.is_some() {
                file.attributes.insert(name, value);
            }
            Ok(())
        })
    }

    fn remove_attribute(&mut self) -> Step {
        self.with_file(|worker, file| {
            let Some((name, _)) = file.attributes.pop_first() else { return Ok(()) };
            let inode = told("lookup", &file.path, worker.volume.resolve(&file.path, false))?;
            told("removexattr", &file.path, worker.volume.remove_xattr(inode, &name))
        })
    }

    fn make_directory(&mut self) -> Step {
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

    /// It goes if it is empty, and is else given another name.
    fn remove_directory(&mut self) -> Step {
        let others = u32::try_from(self.directories.len() - 1).unwrap_or(0);
        if others == 0 {
            return self.make_directory();
        }
        let nr = 1 + usize_of(self.random.below(others));
        let path = self.directories[nr].clone();
        let inside = |file: &Owned| parent(&file.path) == path;
        if !self.files.iter().any(inside) {
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
        for file in self.files.iter_mut().filter(|file| parent(&file.path) == path) {
            file.path = file.path.replacen(&path, &to, 1);
        }
        self.directories[nr] = to;
        Ok(())
    }

    /// A directory of its own holds exactly what it should, the shared one exactly its own names.
    fn list(&mut self) -> Step {
        let own = u32::try_from(self.directories.len()).unwrap_or(1);
        let nr = usize_of(self.random.below(own + 1));
        let directory = self.directories.get(nr).map_or(SHARED, String::as_str);
        let mine = format!("{:03}-", self.nr);
        let entries = told("readdir", directory, self.volume.read_dir(directory))?;
        let found: BTreeSet<String> = entries
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
            .filter(|name| directory != SHARED || name.starts_with(&mine))
            .collect();
        let paths = self.files.iter().map(|file| &file.path).chain(&self.directories);
        let expected: BTreeSet<String> =
            paths.filter(|path| parent(path) == directory).map(|path| name(path).to_owned()).collect();
        match found.symmetric_difference(&expected).next() {
            None => Ok(()),
            Some(odd) => {
                let what = if expected.contains(odd) { "is missing" } else { "should not be there" };
                Err(format!("{directory}: {odd} {what}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::FileOptions;
    use hectare_engine::OpenOptions;
    use hectare_oracle::{mke2fs, scratch, skip};
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
