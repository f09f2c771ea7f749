//! A random program, and what it knows to be durable.
//!
//! - *Slots*: files of fixed blocks that are overwritten in place. Each block says which file, place and version
//!   it is. After an `fsync` of the file, each block has at least the version it had then.
//! - *Replaced* files: a new version is written to another name, synced, and renamed over the old one. The name
//!   always has one whole version; after a `sync`, at least the one it had then.
//! - *Appended* files: records in order. After an `fsync` at least those records are there.

use super::{Checked, text_of};
use hectare_engine::{Creation, Error, OpenFile, RenameMode, Volume};
use hectare_units::random::SplitMix64;
use hectare_units::{index_of, u64_of};
use std::time::{Duration, Instant};

const FILES: usize = 4;
const BLOCKS: usize = 12;
const BLOCK: usize = 4096;
const RECORD: usize = 1500;
/// Steps of a run, and the fewest of one that waits for faults.
pub(super) const STEPS: u32 = 160;

/// A version that may be there, and one that must be.
#[derive(Clone, Copy, Default)]
struct Version {
    newest: u64,
    durable: u64,
}

/// The program of a seed, and what it did.
pub(super) struct Program {
    random: SplitMix64,
    steps: u32,
    versions: u64,
    slots: [[Version; BLOCKS]; FILES],
    replaced: [Version; FILES],
    appended: [Version; FILES],
    ended: Option<String>,
}

fn slot_path(file: usize) -> String {
    format!("/slots-{file}")
}

fn replaced_path(file: usize) -> String {
    format!("/dir-{file}/name")
}

fn appended_path(file: usize) -> String {
    format!("/log-{file}")
}

/// Bytes that say what they are.
fn stamped(kind: u8, file: usize, place: u64, version: u64, len: usize) -> Vec<u8> {
    let head = [u64::from(kind), u64_of(file), place, version];
    let mut random = SplitMix64::new(version << 20 ^ place << 8 ^ u64_of(file) << 4 ^ u64::from(kind));
    let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    while bytes.len() < len {
        bytes.extend(random.draw().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The version of bytes that say they are of a place; zeros are version 0.
fn version_of(kind: u8, file: usize, place: u64, bytes: &[u8]) -> Checked<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word = bytes.get(24..32).and_then(|word| word.try_into().ok());
    let version = u64::from_le_bytes(word.ok_or("it is too short")?);
    match stamped(kind, file, place, version, bytes.len()) == bytes {
        true => Ok(version),
        false => Err(format!("it is not what was written as version {version}")),
    }
}

impl Program {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::stream(seed, 4),
            steps: 0,
            versions: 0,
            slots: Default::default(),
            replaced: Default::default(),
            appended: Default::default(),
            ended: None,
        }
    }

    /// The steps that were done.
    pub(super) fn steps(&self) -> u32 {
        self.steps
    }

    /// The first error, which ended the program.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Runs as long as it is to go on after so many steps, or to an error. Returns how long the longest step took.
    pub(super) fn work(&mut self, volume: &Volume, goes_on: impl Fn(u32) -> bool) -> Duration {
        let mut longest = Duration::ZERO;
        while goes_on(self.steps) {
            let began = Instant::now();
            let done = if self.steps == 0 { self.prepare(volume) } else { self.step(volume) };
            longest = longest.max(began.elapsed());
            match done {
                Ok(()) => self.steps += 1,
                Err(error) => {
                    self.ended = Some(error.to_string());
                    break;
                }
            }
        }
        longest
    }

    fn prepare(&mut self, volume: &Volume) -> hectare_engine::Result<()> {
        for file in 0..FILES {
            volume.write_file(slot_path(file), &[0; BLOCK * BLOCKS], Creation::default())?;
            volume.create_dir(format!("/dir-{file}"), Creation::default())?;
            volume.write_file(replaced_path(file), &[0; 100], Creation::default())?;
            volume.write_file(appended_path(file), b"", Creation::default())?;
        }
        volume.sync()
    }

    fn step(&mut self, volume: &Volume) -> hectare_engine::Result<()> {
        let file = index_of(self.random.below(u64_of(FILES)));
        self.versions += 1;
        match self.random.below(10) {
            0..=3 => self.overwrite(volume, file),
            4 | 5 => self.append(volume, file),
            6 | 7 => self.replace(volume, file),
            8 => self.churn(volume),
            _ => {
                volume.sync()?;
                self.everything_is_durable();
                Ok(())
            }
        }
    }

    fn overwrite(&mut self, volume: &Volume, file: usize) -> hectare_engine::Result<()> {
        let open = volume.open_file(slot_path(file))?;
        for _ in 0..1 + self.random.below(4) {
            let block = index_of(self.random.below(u64_of(BLOCKS)));
            self.versions += 1;
            // It may be there even if the write fails.
            self.slots[file][block].newest = self.versions;
            let place = u64_of(block);
            open.write_all_at(place * u64_of(BLOCK), &stamped(1, file, place, self.versions, BLOCK))?;
        }
        if self.random.below(3) > 0 {
            sync(&open, self.random.below(2) == 0)?;
            self.slots[file].iter_mut().for_each(|slot| slot.durable = slot.newest);
        }
        self.read_back(&open, file)?;
        open.close()
    }

    /// What was written is read, whatever became of the connection.
    fn read_back(&mut self, open: &OpenFile, file: usize) -> hectare_engine::Result<()> {
        let block = index_of(self.random.below(u64_of(BLOCKS)));
        let mut bytes = vec![0; BLOCK];
        open.read_at(u64_of(block * BLOCK), &mut bytes)?;
        let (found, newest) = (version_of(1, file, u64_of(block), &bytes), self.slots[file][block].newest);
        if found.as_ref() != Ok(&newest) {
            let what = format!("{}, block {block}: read {found:?} instead of {newest}", slot_path(file));
            return Err(Error::Unsupported(what));
        }
        Ok(())
    }

    fn append(&mut self, volume: &Volume, file: usize) -> hectare_engine::Result<()> {
        let open = volume.open_file(appended_path(file))?;
        for _ in 0..1 + self.random.below(5) {
            let number = self.appended[file].newest;
            self.appended[file].newest = number + 1;
            open.write_all_at(number * u64_of(RECORD), &stamped(2, file, number, 1, RECORD))?;
        }
        if self.random.below(2) == 0 {
            sync(&open, self.random.below(2) == 0)?;
            self.appended[file].durable = self.appended[file].newest;
        }
        open.close()
    }

    fn replace(&mut self, volume: &Volume, file: usize) -> hectare_engine::Result<()> {
        let (version, new) = (self.versions, format!("/new-{file}"));
        let len = 100 + index_of(self.random.below(20_000));
        volume.write_file(&new, &stamped(3, file, 0, version, len), Creation::default())?;
        let open = volume.open_file(&new)?;
        open.sync()?;
        self.replaced[file].newest = version;
        volume.rename_path(&new, replaced_path(file), RenameMode::Replace)?;
        if self.random.below(2) == 0 {
            // The inode's change of name is durable with it.
            open.sync()?;
            self.replaced[file].durable = version;
        }
        open.close()
    }

    /// Names that come and go, so that there is something in the journal.
    fn churn(&mut self, volume: &Volume) -> hectare_engine::Result<()> {
        let name = format!("/dir-{}/{}", self.random.below(u64_of(FILES)), self.random.below(12));
        match volume.remove_file(&name) {
            Err(Error::NotFound) => {
                let len = index_of(self.random.below(50_000));
                volume.write_file(&name, &vec![7; len], Creation::default())
            }
            removed => removed,
        }
    }

    /// All that was written is durable.
    pub(super) fn everything_is_durable(&mut self) {
        let all = self.slots.iter_mut().flatten().chain(&mut self.replaced).chain(&mut self.appended);
        all.for_each(|version| version.durable = version.newest);
    }

    /// Checks that a volume that has ended takes no change, and says why.
    ///
    /// A program also ends at a read that fails, which does not end the volume: it takes changes into memory
    /// until the first write fails. So the first change may succeed, but no `sync`, and nothing after that.
    pub(super) fn is_latched(&self, volume: &Volume) -> Checked {
        let Some(_) = &self.ended else { return Ok(()) };
        let write = || volume.write_file("/late", b"x", Creation::default());
        let _ = write();
        let changes: [(&str, &dyn Fn() -> hectare_engine::Result<()>); 3] = [
            ("sync", &|| volume.sync()),
            ("write", &write),
            ("rename", &|| volume.rename_path("/log-0", "/late", RenameMode::Replace)),
        ];
        for (what, change) in changes {
            let said = match change() {
                Ok(()) => return Err(format!("{what} succeeded without a server")),
                Err(error) => error.to_string(),
            };
            if !said.contains("connection was lost") && !said.contains("could not be made again") {
                return Err(format!("{what} failed without the reason: {said}"));
            }
        }
        Ok(())
    }

    /// Checks what is there after recovery. Returns how many promises there were.
    pub(super) fn check(&self, volume: &Volume) -> Checked<u64> {
        if self.steps == 0 {
            return Ok(0);
        }
        let mut promises = 0;
        for file in 0..FILES {
            let read = |path: &str| volume.read(path).map_err(|error| format!("{path}: {error}"));
            let slots = read(&slot_path(file))?;
            for (block, version) in self.slots[file].iter().enumerate() {
                let bytes = slots.get(block * BLOCK..(block + 1) * BLOCK).unwrap_or_default();
                let found = version_of(1, file, u64_of(block), bytes);
                holds(&format!("{}, block {block}", slot_path(file)), found, *version)?;
                promises += u64::from(version.durable > 0);
            }
            let replaced = read(&replaced_path(file))?;
            holds(&replaced_path(file), version_of(3, file, 0, &replaced), self.replaced[file])?;
            promises += u64::from(self.replaced[file].durable > 0);
            let log = read(&appended_path(file))?;
            let durable = self.appended[file].durable;
            for (number, record) in
                (0..durable).zip(log.chunks(RECORD).map(Some).chain(std::iter::repeat(None)))
            {
                let name = format!("{}, record {number}", appended_path(file));
                let found = version_of(2, file, number, record.unwrap_or_default());
                holds(&name, found, Version { newest: 1, durable: 1 })?;
            }
            promises += durable;
        }
        Ok(promises)
    }
}

fn sync(file: &OpenFile, data_only: bool) -> hectare_engine::Result<()> {
    if data_only { file.sync_data() } else { file.sync() }
}

/// Checks a version that was found.
fn holds(name: &str, found: Checked<u64>, version: Version) -> Checked {
    let found = found.map_err(|what| format!("{name}: {what}")).map_err(text_of)?;
    if (version.durable..=version.newest).contains(&found) {
        return Ok(());
    }
    Err(format!(
        "{name}: version {found} is there, {} was durable and {} the newest",
        version.durable, version.newest
    ))
}
