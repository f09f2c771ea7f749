//! Checks that synced data is there: a program that writes, renames and syncs files in a directory, and
//! remembers what the file system has promised by that.
//!
//! Files consist of records of [`RECORD`] bytes, which do not fit blocks evenly. Each record carries the
//! file's number, its place and a version, spread over all its bytes, so that the origin of found bytes is
//! known. A synced record must be found with the version it had then or with a later one that was written;
//! unsynced data may also be absent or zeros, but never anything else: another file's bytes are a failure
//! wherever they are.
//!
//! A name is promised when its directory was synced, and a new file's first name with the file, as in ext4.
//! Between two syncs a name may stand for anything that it stood for since the first.
//!
//! Invariant: the model in memory is changed *before* an operation begins and narrowed only after a sync has
//! succeeded; so it is right at whatever moment the server of the file system dies.
//!
//! It does not stop by itself: it ends with the first operation that fails.

mod file;

use file::File;
use hectare_oracle::trees::random::Random;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes in a record: blocks don't end where records do.
pub const RECORD: usize = 1000;
/// Files at a time.
const FILES_MAX: usize = 12;
/// Records in a file.
const RECORDS_MAX: usize = 400;

/// What was checked and found right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Names that had to exist.
    pub names: usize,
    /// Records that had to be found.
    pub records: usize,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.names += other.names;
        self.records += other.records;
    }
}

/// A program that writes to a directory of its own.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    random: Random,
    files: BTreeMap<u32, File>,
    /// What each name may stand for, the latest last; `None`: nothing.
    names: BTreeMap<String, Vec<Option<u32>>>,
    made: u32,
    /// Distinguishes files of this writer from those of others.
    tag: u64,
}

/// An operation: its weight among all, and its function.
type Operation = (u32, fn(&mut Writer) -> io::Result<()>);

const OPERATIONS: [Operation; 10] = [
    (4, Writer::create),
    (8, Writer::append),
    (6, Writer::overwrite),
    (1, Writer::truncate),
    (5, Writer::sync),
    (3, Writer::sync_data),
    (2, Writer::rename),
    (3, Writer::replace),
    (1, Writer::unlink),
    (2, Writer::sync_folder),
];

impl Writer {
    /// A program whose steps follow from a seed, in a directory, which is made and synced.
    ///
    /// # Errors
    /// If the directory can't be made.
    pub fn new(parent: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        fs::File::open(parent)?.sync_all()?;
        let mut random = Random::new(&format!("{name}-{seed}"));
        let tag = random.bits();
        Ok(Self { folder, random, files: BTreeMap::new(), names: BTreeMap::new(), made: 0, tag })
    }

    /// Does one operation.
    ///
    /// # Errors
    /// If the file system refuses it; its possible effects are remembered.
    pub fn step(&mut self) -> io::Result<()> {
        let mut left = self.random.below32(OPERATIONS.iter().map(|(weight, _)| weight).sum());
        let chosen = OPERATIONS.iter().find(|(weight, _)| {
            let found = left < *weight;
            left = left.saturating_sub(*weight);
            found
        });
        chosen.map_or(Ok(()), |(_, act)| act(self))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new name, and the number of a new file.
    fn fresh(&mut self) -> (String, u32) {
        self.made += 1;
        (format!("f{}", self.made), self.made)
    }

    /// A number below another; 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap_or(0)
    }

    /// A number from 1 to another.
    fn some(&mut self, most: usize) -> usize {
        1 + self.below(most)
    }

    /// What a name stands for now.
    fn current(&self, name: &str) -> Option<u32> {
        self.names.get(name).and_then(|states| states.last().copied()).flatten()
    }

    /// Any existing name, and its file.
    fn any(&mut self) -> Option<(String, u32)> {
        let there: Vec<_> =
            self.names.keys().filter_map(|name| Some((name.clone(), self.current(name)?))).collect();
        let chosen = self.below(there.len());
        there.into_iter().nth(chosen)
    }

    fn becomes(&mut self, name: &str, what: Option<u32>) {
        self.names.entry(name.to_owned()).or_insert_with(|| vec![None]).push(what);
    }

    fn create(&mut self) -> io::Result<()> {
        if self.names.keys().filter(|name| self.current(name).is_some()).count() >= FILES_MAX {
            return self.unlink();
        }
        let (name, id) = self.fresh();
        self.files.insert(id, File::new(self.tag, id));
        self.becomes(&name, Some(id));
        OpenOptions::new().write(true).create_new(true).open(self.path(&name))?;
        let count = self.some(20);
        self.write(&name, id, 0, count)
    }

    /// Writes some records of a new version.
    fn write(&mut self, name: &str, id: u32, from: usize, count: usize) -> io::Result<()> {
        let count = count.min(RECORDS_MAX.saturating_sub(from));
        let path = self.path(name);
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        let bytes = file.write(from, count);
        let open = OpenOptions::new().write(true).open(path)?;
        open.write_all_at(&bytes, (from * RECORD) as u64)
    }

    fn append(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return self.create() };
        let most = if self.random.below(8) == 0 { 200 } else { 10 };
        let count = self.some(most);
        self.write(&name, id, self.len(id), count)
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return self.create() };
        let len = self.len(id);
        let from = self.below(len);
        let count = self.some(9).min(len.saturating_sub(from));
        self.write(&name, id, from, count)
    }

    fn len(&self, id: u32) -> usize {
        self.files.get(&id).map_or(0, File::len)
    }

    fn truncate(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return self.create() };
        let len = self.len(id);
        let len = self.below(len + 1);
        let path = self.path(&name);
        if let Some(file) = self.files.get_mut(&id) {
            file.cut(len);
        }
        OpenOptions::new().write(true).open(path)?.set_len((len * RECORD) as u64)
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return self.create() };
        self.sync_one(&name, id, fs::File::sync_all)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return self.create() };
        self.sync_one(&name, id, fs::File::sync_data)
    }

    fn sync_one(&mut self, name: &str, id: u32, sync: fn(&fs::File) -> io::Result<()>) -> io::Result<()> {
        sync(&OpenOptions::new().write(true).open(self.path(name))?)?;
        if let Some(file) = self.files.get_mut(&id) {
            file.synced();
        }
        if let Some(states) = self.names.get_mut(name)
            && states[..] == [None, Some(id)]
        {
            states.remove(0);
        }
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return self.create() };
        let (new, _) = self.fresh();
        self.becomes(&new, Some(id));
        self.becomes(&name, None);
        fs::rename(self.path(&name), self.path(&new))
    }

    /// Replaces a file's content as careful programs do: written beside it, synced, and renamed over it.
    fn replace(&mut self) -> io::Result<()> {
        let Some((name, old)) = self.any() else { return self.create() };
        let (beside, id) = self.fresh();
        self.files.insert(id, File::new(self.tag, id));
        self.becomes(&beside, Some(id));
        OpenOptions::new().write(true).create_new(true).open(self.path(&beside))?;
        let count = self.some(30);
        self.write(&beside, id, 0, count)?;
        self.sync_one(&beside, id, fs::File::sync_all)?;
        self.forget(old);
        self.becomes(&name, Some(id));
        self.becomes(&beside, None);
        fs::rename(self.path(&beside), self.path(&name))
    }

    fn unlink(&mut self) -> io::Result<()> {
        let Some((name, id)) = self.any() else { return Ok(()) };
        self.forget(id);
        self.becomes(&name, None);
        fs::remove_file(self.path(&name))
    }

    /// Notes that a file about to lose its name may be gone.
    fn forget(&mut self, id: u32) {
        if let Some(file) = self.files.get_mut(&id) {
            file.unpromise();
        }
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        fs::File::open(&self.folder)?.sync_all()?;
        for states in self.names.values_mut() {
            states.drain(..states.len().saturating_sub(1));
        }
        Ok(())
    }

    /// Checks that the directory below `root` has everything that was promised, and nothing that is
    /// impossible.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn verify(&self, root: &Path) -> Result<Checked, String> {
        let folder = root.join(self.folder.file_name().unwrap_or_default());
        let told = |error: io::Error| format!("{}: {error}", folder.display());
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(told)? {
            let entry = entry.map_err(told)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            found.insert(name, fs::read(entry.path()).map_err(told)?);
        }
        if let Some(stray) = found.keys().find(|name| !self.names.contains_key(*name)) {
            return Err(format!("{}: nobody made {stray}", folder.display()));
        }
        let (mut checked, mut met) = (Checked::default(), Vec::new());
        for (name, states) in &self.names {
            let bytes = found.get(name).map(Vec::as_slice);
            met.extend(
                self.verify_name(states, bytes, &mut checked)
                    .map_err(|wrong| format!("{}: {wrong}", folder.join(name).display()))?,
            );
        }
        let promised = self.files.iter().filter(|(_, file)| file.is_promised());
        for (id, _) in promised {
            if !met.contains(id) && self.is_named(*id) {
                return Err(format!("{}: file {id} was synced and is nowhere", folder.display()));
            }
        }
        Ok(checked)
    }

    /// Whether a name may stand for a file.
    fn is_named(&self, id: u32) -> bool {
        self.names.values().any(|states| states.contains(&Some(id)))
    }

    /// Checks that the file found under a name is a possible one; returns the files it may be.
    fn verify_name(
        &self,
        states: &[Option<u32>],
        bytes: Option<&[u8]>,
        checked: &mut Checked,
    ) -> Result<Vec<u32>, String> {
        let Some(bytes) = bytes else {
            return if states.contains(&None) { Ok(Vec::new()) } else { Err("it is missing".into()) };
        };
        let (mut fits, mut wrong) = (Vec::new(), String::from("it should not be there"));
        for id in states.iter().flatten() {
            match self.files.get(id).map(|file| file.verify(bytes)) {
                Some(Ok(records)) => {
                    if states.len() == 1 {
                        checked.names += 1;
                    }
                    if fits.is_empty() {
                        checked.records += records;
                    }
                    fits.push(*id);
                }
                Some(Err(why)) => wrong = why,
                None => {}
            }
        }
        if fits.is_empty() { Err(wrong) } else { Ok(fits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worked(steps: u32) -> (tempfile::TempDir, Writer) {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(folder.path(), "w", 3).unwrap();
        for _ in 0..steps {
            writer.step().unwrap();
        }
        (folder, writer)
    }

    #[test]
    fn what_is_there_is_found_right_after_any_number_of_steps() {
        let (folder, mut writer) = worked(0);
        for _ in 0..600 {
            writer.step().unwrap();
            writer.verify(folder.path()).unwrap();
        }
        let checked = writer.verify(folder.path()).unwrap();
        assert!(checked.names > 0 && checked.records > 50, "{checked:?}");
    }

    #[test]
    fn what_was_synced_and_is_lost_is_told() {
        let (folder, mut writer) = worked(300);
        let (name, id) = writer.any().unwrap();
        writer.sync_one(&name, id, fs::File::sync_all).unwrap();
        writer.sync_folder().unwrap();
        let path = writer.path(&name);
        let right = fs::read(&path).unwrap();
        let wrong = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let told = writer.verify(folder.path()).unwrap_err();
            fs::write(&path, &right).unwrap();
            told
        };
        assert!(wrong(&right[..right.len() - 1]).contains("bytes long"));
        assert!(wrong(&[&right[..], b"x"].concat()).contains("bytes long"));
        let mut changed = right.clone();
        changed[7] ^= 1;
        assert!(wrong(&changed).contains("byte 0"));
        changed[..500].fill(0);
        assert!(wrong(&changed).contains("byte 0"), "zeros are no excuse for what was synced");
        fs::remove_file(&path).unwrap();
        assert!(writer.verify(folder.path()).unwrap_err().contains("missing"));
        fs::write(&path, &right).unwrap();
        fs::write(folder.path().join("w/stray"), "x").unwrap();
        assert!(writer.verify(folder.path()).unwrap_err().contains("nobody made"));
    }

    #[test]
    fn what_was_not_synced_may_be_absent_or_zeros_but_nothing_else() {
        let (folder, mut writer) = worked(0);
        writer.create().unwrap();
        let (name, _) = writer.any().unwrap();
        let path = writer.path(&name);
        let len = fs::metadata(&path).unwrap().len();
        fs::write(&path, vec![0; usize::try_from(len).unwrap()]).unwrap();
        writer.verify(folder.path()).unwrap();
        fs::write(&path, vec![7; usize::try_from(len).unwrap()]).unwrap();
        assert!(writer.verify(folder.path()).is_err());
        fs::remove_file(&path).unwrap();
        assert_eq!(writer.verify(folder.path()).unwrap(), Checked::default());
    }
}
