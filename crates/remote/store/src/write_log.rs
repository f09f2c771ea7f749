//! The local log of what was written since the last flush, so that memory need not hold it.
//!
//! Each volume has a directory, locked by the process that uses it. A file starts with a header that names
//! the *content* of the manifest on which its writes lie, and the one that the flush of it will make; so
//! after a crash it is known whether a file's writes are in the store already (the manifest has the
//! latter), are still to be made (the former), or lie on a state that is gone (neither).
//!
//! Records follow, each with a sequence number, a checksum of its head and one of its bytes. What a crash
//! tears is at the end: reading stops at the first record that is not whole. So what is found is what was
//! written up to some moment, in order, which a disk may leave as well. Nothing is synced: a flush doesn't
//! rely on the log, and losing it loses nothing that was flushed.
//!
//! Hazard: the directory may hold anything. Lengths are checked against the file before memory is taken.

use crate::codec::{Fields, seal, sum, unsealed};
use crate::file_lock::lock;
use crate::{Error, Result};
use hectare_device::os::FileExt;
use hectare_units::{hex, u64_of};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MAGIC: [u8; 8] = *b"HECTWLOG";
const VERSION: u32 = 1;
const HEADER_LEN: u64 = 56;
const RECORD_MAGIC: u32 = 0x4843_5245;
const RECORD_LEN: usize = 48;
/// The most bytes of one record; longer writes are several.
pub(crate) const RECORD_MAX: usize = 8 << 20;
/// Smaller writes are copied to be one system call.
const COPY_MAX: usize = 256 << 10;

/// How long a directory in use is tried again.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

const WRITE: u32 = 1;
const ZERO: u32 = 2;
const RESIZE: u32 = 3;

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Bytes at a place of the volume; they lie at `from` in the log.
    Write { at: u64, len: u64, from: u64 },
    /// A range that became zeros.
    Zero { at: u64, len: u64 },
    /// A new length.
    Resize { len: u64 },
}

/// The contents between which the writes of a log lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Between {
    pub(crate) base: u64,
    pub(crate) next: u64,
}

/// A log that is written.
pub(crate) struct WriteLog {
    file: Arc<File>,
    path: PathBuf,
    end: u64,
    sequence: u64,
    pub(crate) between: Between,
}

impl WriteLog {
    fn create(path: PathBuf, uuid: [u8; 16], between: Between) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&u64::from(VERSION).to_le_bytes());
        header.extend_from_slice(&uuid);
        header.extend_from_slice(&between.base.to_le_bytes());
        header.extend_from_slice(&between.next.to_le_bytes());
        seal(&mut header);
        debug_assert_eq!(u64_of(header.len()), HEADER_LEN);
        file.write_all_at(&header, 0)?;
        Ok(Self { file: Arc::new(file), path, end: HEADER_LEN, sequence: 0, between })
    }

    /// The file, to read from.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// How many bytes it has.
    pub(crate) const fn len(&self) -> u64 {
        self.end
    }

    /// Appends bytes for a place of the volume; returns where they lie. After an error nothing was appended.
    pub(crate) fn write(&mut self, at: u64, parts: &[IoSlice<'_>]) -> io::Result<u64> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
        parts.iter().for_each(|part| digest.update(part));
        let mut head = self.head(WRITE, at, u64_of(len), digest.finalize());
        let from = self.end + u64_of(RECORD_LEN);
        if len <= COPY_MAX {
            parts.iter().for_each(|part| head.extend_from_slice(part));
            self.file.write_all_at(&head, self.end)?;
        } else {
            self.file.write_all_at(&head, self.end)?;
            let mut place = from;
            for part in parts {
                self.file.write_all_at(part, place)?;
                place += u64_of(part.len());
            }
        }
        self.advance(RECORD_LEN + len);
        Ok(from)
    }

    pub(crate) fn zero(&mut self, at: u64, len: u64) -> io::Result<()> {
        self.bare(ZERO, at, len)
    }

    pub(crate) fn resize(&mut self, len: u64) -> io::Result<()> {
        self.bare(RESIZE, 0, len)
    }

    fn bare(&mut self, kind: u32, at: u64, len: u64) -> io::Result<()> {
        self.file.write_all_at(&self.head(kind, at, len, 0), self.end)?;
        self.advance(RECORD_LEN);
        Ok(())
    }

    fn advance(&mut self, len: usize) {
        self.end += u64_of(len);
        self.sequence += 1;
    }

    fn head(&self, kind: u32, at: u64, len: u64, data: u64) -> Vec<u8> {
        let mut head = Vec::with_capacity(RECORD_LEN);
        head.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        head.extend_from_slice(&kind.to_le_bytes());
        for field in [self.sequence, at, len, data] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        seal(&mut head);
        head
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file; what reads it may continue.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A log that an earlier process left.
pub(crate) struct Left {
    pub(crate) file: File,
    path: PathBuf,
    pub(crate) between: Between,
    pub(crate) changes: Vec<Change>,
}

impl Left {
    /// Reads a log; `None` if it is none of this volume.
    fn read(path: &Path, uuid: [u8; 16]) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut header = [0; 56];
        if size < HEADER_LEN || file.read_exact_at(&mut header, 0).is_err() {
            return Ok(None);
        }
        let Some(between) = header_of(&header, uuid) else { return Ok(None) };
        let changes = changes(&file, size);
        Ok(Some(Self { file, path: path.to_owned(), between, changes }))
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn header_of(header: &[u8], uuid: [u8; 16]) -> Option<Between> {
    let mut fields = Fields::new(unsealed(header)?);
    let (magic, version, of) = (fields.bytes::<8>()?, fields.u64()?, fields.bytes::<16>()?);
    let known = magic == MAGIC && version == u64::from(VERSION) && of == uuid;
    known.then_some(Between { base: fields.u64()?, next: fields.u64()? })
}

/// The changes of a log, up to the first record that is not whole.
fn changes(file: &File, size: u64) -> Vec<Change> {
    let (mut at, mut found) = (HEADER_LEN, Vec::new());
    while let Some((change, len)) = record(file, size, at, u64_of(found.len())) {
        found.push(change);
        at += len;
    }
    found
}

/// The record at a place of a log, and its length.
fn record(file: &File, size: u64, place: u64, sequence: u64) -> Option<(Change, u64)> {
    let mut head = [0; RECORD_LEN];
    file.read_exact_at(&mut head, place).ok()?;
    let mut fields = Fields::new(unsealed(&head)?);
    let (magic, kind, number) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let (at, len, data) = (fields.u64()?, fields.u64()?, fields.u64()?);
    if magic != RECORD_MAGIC || number != sequence {
        return None;
    }
    let from = place + u64_of(RECORD_LEN);
    match kind {
        ZERO => Some((Change::Zero { at, len }, u64_of(RECORD_LEN))),
        RESIZE => Some((Change::Resize { len }, u64_of(RECORD_LEN))),
        WRITE if len <= u64_of(RECORD_MAX) && from.checked_add(len)? <= size => {
            let mut bytes = vec![0; usize::try_from(len).ok()?];
            file.read_exact_at(&mut bytes, from).ok()?;
            (sum(&bytes) == data).then_some((Change::Write { at, len, from }, u64_of(RECORD_LEN) + len))
        }
        _ => None,
    }
}

/// Makes directories for their owner alone, where the host has owners.
fn private() -> DirBuilder {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// The directory of a volume's logs.
pub(crate) struct LogDirectory {
    path: PathBuf,
    uuid: [u8; 16],
    next: u64,
    _lock: File,
}

impl LogDirectory {
    /// Opens the directory of a volume, and locks it.
    ///
    /// # Errors
    /// If it can't be made, or another process uses it.
    pub(crate) fn open(below: Option<&Path>, uuid: [u8; 16]) -> Result<Self> {
        let below = below.map_or_else(default_directory, |path| Ok(path.to_owned()))?;
        let path = below.join(hex(&uuid));
        let failed = |error: io::Error| failed(&path, &error);
        private().recursive(true).create(&path).map_err(failed)?;
        let file = File::options().write(true).create(true).truncate(false).open(path.join("lock"));
        let file = file.map_err(failed)?;
        match lock(&file, LOCK_PATIENCE) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let shown = path.display();
                return Err(Error::Busy(format!(
                    "another process uses its log of unflushed writes, {shown}"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(Self { path, uuid, next: 0, _lock: file })
    }

    /// The logs that are there, by age.
    pub(crate) fn left(&mut self) -> Result<Vec<Left>> {
        let failed = |error: io::Error| failed(&self.path, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number =
                name.to_str().and_then(|name| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok());
            names.extend(number.map(|number| (number, name)));
        }
        names.sort();
        let mut found = Vec::new();
        for (number, name) in &names {
            self.next = self.next.max(number.saturating_add(1));
            found.extend(Left::read(&self.path.join(name), self.uuid).map_err(failed)?);
        }
        Ok(found)
    }

    /// A new log.
    pub(crate) fn create(&mut self, between: Between) -> Result<WriteLog> {
        let path = self.path.join(format!("{:016x}.log", self.next));
        self.next = self.next.saturating_add(1);
        WriteLog::create(path.clone(), self.uuid, between).map_err(|error| failed(&path, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    Error::Log(format!("the log of unflushed writes, {}, can't be used: {text}", path.display()))
}

/// Where logs lie unless another directory is named.
fn default_directory() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let cache = cache.filter(|path| path.is_absolute()).ok_or_else(|| {
        Error::Log(
            "there is no HOME to keep the log of unflushed writes in: name a directory for it".to_owned(),
        )
    })?;
    Ok(cache.join("hectare").join("store"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [3; 16];
    const BETWEEN: Between = Between { base: 1, next: 2 };

    /// A log with a write, a zeroed range, a new length and a long write; its bytes and changes.
    fn sample(folder: &Path) -> (Vec<u8>, Vec<Change>) {
        let mut directory = LogDirectory::open(Some(folder), UUID).unwrap();
        let mut log = directory.create(BETWEEN).unwrap();
        let from = log.write(10, &[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap();
        log.zero(5, 7).unwrap();
        log.resize(99).unwrap();
        let long = vec![9; COPY_MAX + 1];
        let long_from = log.write(0, &[IoSlice::new(&long)]).unwrap();
        let changes = vec![
            Change::Write { at: 10, len: 3, from },
            Change::Zero { at: 5, len: 7 },
            Change::Resize { len: 99 },
            Change::Write { at: 0, len: u64_of(long.len()), from: long_from },
        ];
        (fs::read(&log.path).unwrap(), changes)
    }

    #[test]
    fn a_log_is_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let (_, changes) = sample(folder.path());
        let mut directory = LogDirectory::open(Some(folder.path()), UUID).unwrap();
        let left = directory.left().unwrap();
        assert_eq!((left.len(), left[0].between), (1, BETWEEN));
        assert_eq!(left[0].changes, changes);
        assert_eq!(directory.next, 1);
        let other = LogDirectory::open(Some(folder.path()), UUID).err().unwrap().to_string();
        assert!(other.contains("another process"), "{other}");
    }

    #[test]
    fn a_torn_tail_is_left_out_and_what_is_before_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (bytes, changes) = sample(folder.path());
        let path = folder.path().join("torn");
        // A record ends at each of these.
        let ends = [56, 56 + 51, 56 + 51 + 48, 56 + 51 + 96, bytes.len()];
        let whole = |len: usize| ends.iter().filter(|end| **end <= len).count();
        for len in (0..400).chain([bytes.len() - 1, bytes.len()]) {
            fs::write(&path, &bytes[..len]).unwrap();
            let found = Left::read(&path, UUID).unwrap();
            let found = found.map(|left| left.changes);
            assert_eq!(found, whole(len).checked_sub(1).map(|n| changes[..n].to_vec()), "cut at {len}");
        }
        for at in 0..350 {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            fs::write(&path, changed).unwrap();
            let found = Left::read(&path, UUID).unwrap().map(|left| left.changes);
            assert_eq!(found, whole(at).checked_sub(1).map(|n| changes[..n].to_vec()), "changed at {at}");
        }
        assert!(Left::read(&path, [4; 16]).unwrap().is_none());
    }
}
