//! A file that keeps what was fetched from a store, for later commands.
//!
//! Why nothing in it is ever out of date: it holds only what can't change. Of a volume those are the
//! objects that the manifest names, directly or not: a name is never used twice ([`crate`]), and the
//! manifest, which is read from the store at each opening and never kept, names each object with its length
//! and checksum. Of an image those are its blocks at one version (a strong ETag), which is part of the
//! file's identity. Writes go past it.
//!
//! Form: a header of 4 KiB with the identity (what the bytes are of) and a random *life*; then slots of one
//! length, each a head (name, length, checksum, life, and a checksum of these) and the bytes. A slot counts
//! if its head is whole and has the file's life, and its bytes are taken only with the right checksum. So a
//! crash at any moment, which may leave any mixture of old and new bytes, loses at most what it was
//! keeping; nothing is synced.
//!
//! A header that is damaged, or of something else, makes the file begin anew. A file that does not begin as
//! a cache file at all is left as it is, and refused; so is one that other users could write.
//!
//! Invariants: one process uses a file at a time (`flock`); it never grows beyond the bytes that were
//! given.
//!
//! Hazard: two threads may write the same slot at once, if it changed hands in between. The bytes are then
//! a mixture, which the checksum shows.

mod open;

use crate::codec::{Fields, seal, sum, unsealed};
use crate::draw::draw;
use crate::file_lock::lock;
use crate::manifest::ObjectId;
use crate::{Error, Result};
use bytes::Bytes as Data;
use hectare_device::os::FileExt;
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"HECTCACH";
const VERSION: u32 = 1;
/// How long a file in use is tried again.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);
const HEADER_LEN: usize = 4096;
/// The longest identity: the header has room for it.
const IDENTITY_MAX: usize = HEADER_LEN - 64;
const SLOT_MAGIC: u32 = 0x4843_4f42;
const HEAD_LEN: usize = 48;
/// The most slots: their heads are read when the file is opened.
const SLOTS_MAX: u64 = 1 << 16;
/// The fewest slots that are of any use.
const SLOTS_MIN: u64 = 4;

/// What of an object is in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept {
    slot: u64,
    len: u32,
    sum: u64,
    used: u64,
}

#[derive(Default)]
struct Slots {
    by_id: HashMap<ObjectId, Kept>,
    /// By when they were used.
    order: BTreeMap<u64, ObjectId>,
    free: Vec<u64>,
    time: u64,
}

/// A cache file in use.
pub(crate) struct CacheFile {
    file: File,
    life: u64,
    /// The bytes that a slot has room for.
    room: u64,
    slots: Mutex<Slots>,
    /// Nothing more is kept: the file can't be written.
    full: AtomicBool,
}

/// What to keep, and where.
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a Path,
    /// The most bytes of the file.
    pub(crate) size: Bytes,
    /// What the bytes are of.
    pub(crate) identity: &'a str,
    /// The longest thing that is kept.
    pub(crate) room: u64,
}

impl CacheFile {
    /// Opens or makes the file; with a note for the user if something in it was dropped. `None` if another
    /// process uses it.
    ///
    /// # Errors
    /// If it is no cache file or can't be used, or `size` is too small.
    pub(crate) fn open(wanted: &Wanted<'_>) -> Result<(Option<Self>, Option<String>)> {
        let shown = wanted.path.display();
        let refuse = |why: String| Err(Error::Cache(format!("the cache file {shown} {why}")));
        if wanted.identity.len() > IDENTITY_MAX {
            return refuse("can't be used: the address is too long for it".to_owned());
        }
        let count = slot_count(wanted);
        if count < SLOTS_MIN {
            let least = u64_of(HEADER_LEN) + SLOTS_MIN * slot_len(wanted.room);
            return refuse(format!("must have at least {least} bytes, to hold a few of the volume's chunks"));
        }
        let failed = |error: io::Error| {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            Error::Cache(format!("the cache file {shown} can't be used: {text}"))
        };
        let file = open::open(wanted.path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return refuse("is no regular file".to_owned());
        }
        if !open::is_trusted(&metadata) {
            return refuse("is another user's, or others may write it, so it can't be trusted".to_owned());
        }
        match lock(&file, LOCK_PATIENCE) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let note =
                    "is in use (by another process, or for another volume of this command): it is not used";
                return Ok((None, Some(format!("the cache file {shown} {note}"))));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut first = vec![0; HEADER_LEN.min(index_of(metadata.len().min(u64_of(HEADER_LEN))))];
        file.read_exact_at(&mut first, 0).map_err(failed)?;
        if !MAGIC.starts_with(&first[..first.len().min(MAGIC.len())]) {
            return refuse("is none: it holds something else, and is left as it is; name another".to_owned());
        }
        let (life, note) = match life_of(&first, wanted) {
            Some(life) => (life, None),
            None => {
                let life = draw();
                file.set_len(0).map_err(failed)?;
                file.write_all_at(&header(wanted, life), 0).map_err(failed)?;
                let note = "was damaged, or of something else: it begins anew";
                (life, (!first.is_empty()).then(|| format!("the cache file {shown} {note}")))
            }
        };
        // It may have been allowed more before.
        let most = u64_of(HEADER_LEN) + count * slot_len(wanted.room);
        if file.metadata().map_err(failed)?.len() > most {
            file.set_len(most).map_err(failed)?;
        }
        let slots = Mutex::new(scan(&file, life, wanted.room, count).map_err(failed)?);
        let (room, full) = (wanted.room, AtomicBool::new(false));
        Ok((Some(Self { file, life, room, slots, full }), note))
    }

    fn place(&self, slot: u64) -> u64 {
        u64_of(HEADER_LEN) + slot * slot_len(self.room)
    }

    /// The bytes of an object, if they are here; with the checksum that they must have, or else the one
    /// that is with them.
    pub(crate) fn get(&self, id: ObjectId, len: u64, wanted: Option<u64>) -> Option<Data> {
        let kept = {
            let mut slots = self.slots.lock();
            let kept = *slots.by_id.get(&id)?;
            if u64::from(kept.len) != len || wanted.is_some_and(|wanted| wanted != kept.sum) {
                return None;
            }
            slots.touch(id);
            kept
        };
        let mut bytes = vec![0; index_of(len)];
        let read = self.file.read_exact_at(&mut bytes, self.place(kept.slot) + u64_of(HEAD_LEN));
        if read.is_ok() && sum(&bytes) == kept.sum {
            return Some(bytes.into());
        }
        self.slots.lock().forget(id, kept.slot);
        None
    }

    /// Keeps the bytes of an object, if there is room for their length, in place of what was not used for
    /// longest.
    pub(crate) fn put(&self, id: ObjectId, bytes: &[u8], sum: u64) {
        let Ok(len) = u32::try_from(bytes.len()) else { return };
        if u64::from(len) > self.room || self.full.load(Ordering::Relaxed) {
            return;
        }
        let Some(slot) = self.slots.lock().take(id, len, sum) else { return };
        let mut head = Vec::with_capacity(HEAD_LEN);
        for field in [SLOT_MAGIC, len] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        for field in [id.session, id.number, sum, self.life] {
            head.extend_from_slice(&field.to_le_bytes());
        }
        seal(&mut head);
        debug_assert_eq!(head.len(), HEAD_LEN);
        let place = self.place(slot);
        let written = self.file.write_all_at(bytes, place + u64_of(HEAD_LEN));
        if let Err(error) = written.and_then(|()| self.file.write_all_at(&head, place)) {
            self.slots.lock().forget(id, slot);
            if !self.full.swap(true, Ordering::Relaxed) {
                log::warn!("the cache file can't be written, so it keeps no more: {error}");
            }
        }
    }
}

impl Slots {
    fn touch(&mut self, id: ObjectId) {
        self.time += 1;
        if let Some(kept) = self.by_id.get_mut(&id) {
            self.order.remove(&kept.used);
            kept.used = self.time;
            self.order.insert(self.time, id);
        }
    }

    fn add(&mut self, id: ObjectId, slot: u64, len: u32, sum: u64) {
        self.time += 1;
        self.by_id.insert(id, Kept { slot, len, sum, used: self.time });
        self.order.insert(self.time, id);
    }

    /// A slot for an object; `None` if it is here.
    fn take(&mut self, id: ObjectId, len: u32, sum: u64) -> Option<u64> {
        if self.by_id.contains_key(&id) {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let (_, oldest) = self.order.pop_first()?;
                self.by_id.remove(&oldest)?.slot
            }
        };
        self.add(id, slot, len, sum);
        Some(slot)
    }

    /// Forgets an object, if it still has the slot.
    fn forget(&mut self, id: ObjectId, slot: u64) {
        if self.by_id.get(&id).is_none_or(|kept| kept.slot != slot) {
            return;
        }
        if let Some(kept) = self.by_id.remove(&id) {
            self.order.remove(&kept.used);
            self.free.push(slot);
        }
    }
}

/// The bytes from the beginning of a slot to that of the next.
const fn slot_len(room: u64) -> u64 {
    (room + HEAD_LEN as u64).next_multiple_of(4096)
}

fn slot_count(wanted: &Wanted<'_>) -> u64 {
    (wanted.size.get().saturating_sub(u64_of(HEADER_LEN)) / slot_len(wanted.room)).min(SLOTS_MAX)
}

fn header(wanted: &Wanted<'_>, life: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for field in [VERSION, u32::try_from(wanted.identity.len()).unwrap_or(u32::MAX)] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    for field in [wanted.room, life] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(wanted.identity.as_bytes());
    out.resize(HEADER_LEN - 8, 0);
    seal(&mut out);
    out
}

/// The life that a header has; `None` if it is not whole, or of something else.
fn life_of(found: &[u8], wanted: &Wanted<'_>) -> Option<u64> {
    let mut fields = Fields::new(found);
    let (_magic, _version, _len, _room) = (fields.u64()?, fields.u32()?, fields.u32()?, fields.u64()?);
    let life = fields.u64()?;
    (header(wanted, life) == found).then_some(life)
}

/// The slots whose heads are whole.
fn scan(file: &File, life: u64, room: u64, count: u64) -> io::Result<Slots> {
    let mut slots = Slots::default();
    let len = file.metadata()?.len();
    let mut head = [0; HEAD_LEN];
    for slot in 0..count {
        let place = u64_of(HEADER_LEN) + slot * slot_len(room);
        let there = place + u64_of(HEAD_LEN) <= len && file.read_exact_at(&mut head, place).is_ok();
        match head_of(&head, life).filter(|(_, len, _)| there && u64::from(*len) <= room) {
            Some((id, len, sum)) if !slots.by_id.contains_key(&id) => slots.add(id, slot, len, sum),
            _ => slots.free.push(slot),
        }
    }
    // Low slots first, so that the file is no longer than it must be.
    slots.free.reverse();
    Ok(slots)
}

fn head_of(head: &[u8], life: u64) -> Option<(ObjectId, u32, u64)> {
    let mut fields = Fields::new(unsealed(head)?);
    let (magic, len) = (fields.u32()?, fields.u32()?);
    let id = ObjectId { session: fields.u64()?, number: fields.u64()? };
    let (sum, of) = (fields.u64()?, fields.u64()?);
    (magic == SLOT_MAGIC && of == life).then_some((id, len, sum))
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod tests;
