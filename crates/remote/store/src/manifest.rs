//! The manifest of a volume, and the tables it refers to, directly or through a list of them.
//!
//! All are little-endian records with a magic number, a version, fields, a sorted list of *slots* and a
//! checksum (CRC-64/NVME) of all before it:
//!
//! - the manifest: `HECTSTOR`; of 32 bits: version, log2 of the chunk's bytes, log2 of a table's chunks, number
//!   of patches; UUID; of 64 bits: length, epoch, generation, writer, next number, content, count; slots of
//!   tables, by index, or one with the index 2^32 - 1 that names a list of them; slots of patches, oldest first;
//! - a table: `HECTTABL`; of 32 bits: version, index, count, 0; UUID; slots of chunks, by index in the
//!   table;
//! - a list of tables: `HECTLIST`, else as a table with the index 0; slots of tables, by index.
//!
//! A manifest with a list or patches has version 2; others have version 1, which earlier programs know.
//!
//! A slot is 32 bytes: index, stored length, session, number, checksum of the object. What has no slot is
//! zeros, and so is what a chunk's object lacks at its end. Patches ([`crate::patch`]) lie over all of
//! that.
//!
//! *Epoch*: counts the writers of a volume. *Generation*: counts the manifests. *Writer* and *next number*:
//! the session that put this manifest, and the first number of its objects that it may not refer to.
//! *Content*: drawn anew by each flush, and kept by a manifest that says the same with another epoch.
//!
//! Hazards: they come from strangers. Everything is checked before it is used, counts against the bytes
//! that are there; there is one way to write each. A manifest whose list was not read yet has no tables,
//! which would be zeros: so it is of another type until then ([`Parsed`]).

use crate::codec::{Fields, seal, unsealed};
use crate::{Error, Result};
use hectare_units::u64_of;
use std::collections::BTreeMap;

const MANIFEST_MAGIC: [u8; 8] = *b"HECTSTOR";
const TABLE_MAGIC: [u8; 8] = *b"HECTTABL";
const LIST_MAGIC: [u8; 8] = *b"HECTLIST";
const VERSION: u32 = 1;
/// That of a manifest with patches or a list of tables.
pub const VERSION_PATCHED: u32 = 2;
const SLOT_LEN: usize = 32;
const MANIFEST_HEAD: usize = 96;
const TABLE_HEAD: usize = 40;
/// Log2 of the bytes of a chunk: 4 KiB to 64 MiB.
pub(crate) const CHUNK_SHIFTS: std::ops::RangeInclusive<u32> = 12..=26;
/// Log2 of the chunks of a table: up to a table of 2 MiB.
const TABLE_SHIFTS: std::ops::RangeInclusive<u32> = 4..=16;
/// What a new volume has: a table of 128 KiB for 16 GiB in chunks of 4 MiB.
const TABLE_SHIFT: u32 = 12;
/// The most tables: a manifest of 32 MiB. With the defaults that is 16 PiB.
const TABLES_MAX: u64 = 1 << 20;
/// The name of the manifest below the volume's prefix.
pub(crate) const MANIFEST: &str = "manifest";
/// The longest manifest.
pub(crate) const MANIFEST_MAX: u64 = 96 + (TABLES_MAX * 32) + 8;
/// The most tables that stand in the manifest itself, which each flush puts; more are in a list.
pub(crate) const INLINE_TABLES: usize = 128;
/// In the place of a table's index: the list of tables.
const LIST: u32 = u32::MAX;
/// The most patches.
pub(crate) const PATCHES_MAX: usize = 64;
/// The most bytes of all patches: they are in memory while a volume is open.
pub(crate) const PATCHES_BYTES: u64 = 64 << 20;
/// The longest table.
pub(crate) const TABLE_MAX: u64 = 40 + (1 << 16) * 32 + 8;

/// The name of an object, which is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ObjectId {
    pub(crate) session: u64,
    pub(crate) number: u64,
}

impl ObjectId {
    /// The object's key below the volume's prefix.
    pub(crate) fn key(self) -> String {
        format!("{}/{:016x}", session_key(self.session), self.number)
    }

    /// The object that has a key; `None` for what is none of ours.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        let (session, number) = key.strip_prefix("objects/")?.split_once('/')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let id = Self { session: hex(session)?, number: hex(number)? };
        (id.key() == key).then_some(id)
    }
}

/// The prefix of a session's objects.
pub(crate) fn session_key(session: u64) -> String {
    format!("objects/{session:016x}")
}

/// A reference to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) id: ObjectId,
    /// The object's length in bytes.
    pub(crate) len: u32,
    /// The object's checksum.
    pub(crate) sum: u64,
}

/// What a volume is, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub(crate) uuid: [u8; 16],
    /// The volume's length in bytes.
    pub(crate) len: u64,
    pub(crate) chunk_shift: u32,
    pub(crate) table_shift: u32,
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) writer: u64,
    pub(crate) next_number: u64,
    pub(crate) content: u64,
    pub(crate) tables: BTreeMap<u32, Slot>,
    /// The object that lists the tables, if they don't stand in the manifest itself.
    pub(crate) list: Option<Slot>,
    /// What lies over the chunks, oldest first.
    pub(crate) patches: Vec<Slot>,
}

/// A manifest as its object has it: the list of tables may be missing.
#[derive(Debug)]
pub(crate) struct Parsed(Manifest);

impl Parsed {
    /// The object that has the list of tables, if there is one.
    pub(crate) const fn list(&self) -> Option<Slot> {
        self.0.list
    }

    /// What the manifest itself says; it may lack its tables.
    pub(crate) const fn head(&self) -> &Manifest {
        &self.0
    }

    /// The manifest, with the tables of another one that has the same list.
    pub(crate) fn with_tables_of(self, known: &Manifest) -> Manifest {
        debug_assert_eq!(self.0.list, known.list, "the list names the tables");
        Manifest { tables: known.tables.clone(), ..self.0 }
    }

    /// The manifest, with the tables that the bytes of its list name, if it has one.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the list is wrong, or missing.
    pub(crate) fn listed(self, list: Option<&[u8]>) -> Result<Manifest> {
        let mut manifest = self.0;
        if manifest.list.is_some() {
            manifest.tables = manifest.parse_list(list.unwrap_or_default())?;
        }
        Ok(manifest)
    }
}

/// The chunks of a part of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Table {
    pub(crate) chunks: BTreeMap<u32, Slot>,
}

impl Manifest {
    /// A volume of zeros.
    ///
    /// # Errors
    /// If no volume can have this length in chunks of this size.
    pub(crate) fn new(uuid: [u8; 16], len: u64, chunk: u64, content: u64) -> Result<Self> {
        let shift = chunk.trailing_zeros();
        if !chunk.is_power_of_two() || !CHUNK_SHIFTS.contains(&shift) {
            let what = "chunks have a power of two of bytes, 4 KiB to 64 MiB";
            return Err(Error::Remote(format!("{what}, not {chunk}")));
        }
        let manifest = Self {
            uuid,
            len,
            chunk_shift: shift,
            table_shift: TABLE_SHIFT,
            epoch: 0,
            generation: 0,
            writer: 0,
            next_number: 0,
            content,
            tables: BTreeMap::new(),
            list: None,
            patches: Vec::new(),
        };
        manifest.check_len(len)?;
        Ok(manifest)
    }

    /// The bytes of a chunk.
    pub(crate) const fn chunk(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Refuses a length that this volume can't have.
    pub(crate) fn check_len(&self, len: u64) -> Result<()> {
        let most = TABLES_MAX << (self.chunk_shift + self.table_shift);
        if len == 0 || len > most {
            return Err(Error::Remote(format!(
                "a volume in chunks of {} bytes has 1 to {most} bytes, not {len}; larger chunks (up to 64 \
                 MiB) allow more",
                self.chunk()
            )));
        }
        Ok(())
    }

    /// The table of a chunk, and its place in that.
    pub(crate) fn place(&self, chunk: u64) -> (u32, u32) {
        let table = u32::try_from(chunk >> self.table_shift).unwrap_or(u32::MAX);
        (table, u32::try_from(chunk & ((1 << self.table_shift) - 1)).unwrap_or(u32::MAX))
    }

    /// The tables that a volume of this length can have.
    const fn tables_max(&self) -> u64 {
        self.len.div_ceil(1 << (self.chunk_shift + self.table_shift))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let list: BTreeMap<_, _> = self.list.map(|slot| (LIST, slot)).into_iter().collect();
        let tables = if list.is_empty() { &self.tables } else { &list };
        let version = if list.is_empty() && self.patches.is_empty() { VERSION } else { VERSION_PATCHED };
        let slots = tables.len() + self.patches.len();
        let mut out = Vec::with_capacity(MANIFEST_HEAD + SLOT_LEN * slots + 8);
        out.extend_from_slice(&MANIFEST_MAGIC);
        let patches = u32::try_from(self.patches.len()).unwrap_or(u32::MAX);
        for field in [version, self.chunk_shift, self.table_shift, patches] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.uuid);
        let (writer, content) = (self.writer, self.content);
        for field in [self.len, self.epoch, self.generation, writer, self.next_number, content] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&u64_of(tables.len()).to_le_bytes());
        encode_slots(tables.iter().map(|(index, slot)| (*index, slot)), &mut out);
        encode_slots((0..).zip(&self.patches), &mut out);
        seal(&mut out);
        out
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// [`Error::Damaged`] with what is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed> {
        let wrong = |what: &str| Error::Damaged(format!("its manifest {what}"));
        let mut fields = Fields::new(bytes);
        if fields.bytes() != Some(MANIFEST_MAGIC) {
            return Err(wrong("is none: it does not begin as one"));
        }
        let version = fields.u32().ok_or_else(|| wrong("is too short"))?;
        if version != VERSION && version != VERSION_PATCHED {
            return Err(wrong(&format!("has version {version}, and 1 and 2 are known: use a newer program")));
        }
        let body = unsealed(bytes).ok_or_else(|| wrong("has a wrong checksum"))?;
        let (mut manifest, patches, slots) = Self::head(body).ok_or_else(|| wrong("is too short"))?;
        let Self { chunk_shift, table_shift, len, .. } = manifest;
        if !CHUNK_SHIFTS.contains(&chunk_shift) || !TABLE_SHIFTS.contains(&table_shift) {
            return Err(wrong(&format!("has chunks of 2^{chunk_shift} bytes, tables of 2^{table_shift}")));
        }
        manifest.check_len(len).map_err(|_| wrong(&format!("has an impossible length, {len}")))?;
        let tables = slots.len().checked_sub(patches * SLOT_LEN).filter(|_| patches <= PATCHES_MAX);
        let (tables, patches) = slots.split_at(tables.ok_or_else(|| wrong("has too many patches"))?);
        manifest.set_tables(tables).ok_or_else(|| wrong("has wrong slots"))?;
        manifest.set_patches(patches).ok_or_else(|| wrong("has wrong patches"))?;
        // Nothing else is what `encode` writes.
        if manifest.encode() != bytes {
            return Err(wrong("has values in reserved fields"));
        }
        Ok(Parsed(manifest))
    }

    /// The fields, with the number of patches, and the bytes of all slots.
    fn head(body: &[u8]) -> Option<(Self, usize, &[u8])> {
        let (head, slots) = body.split_at_checked(MANIFEST_HEAD)?;
        let mut fields = Fields::new(head);
        let (_magic, _version) = (fields.u64()?, fields.u32()?);
        let (chunk_shift, table_shift, patches) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let uuid = fields.bytes()?;
        let manifest = Self {
            uuid,
            chunk_shift,
            table_shift,
            len: fields.u64()?,
            epoch: fields.u64()?,
            generation: fields.u64()?,
            writer: fields.u64()?,
            next_number: fields.u64()?,
            content: fields.u64()?,
            tables: BTreeMap::new(),
            list: None,
            patches: Vec::new(),
        };
        let count = fields.u64()?.checked_add(u64::from(patches))?;
        debug_assert_eq!(fields.rest(), 0, "the head has these fields");
        (count.checked_mul(u64_of(SLOT_LEN)) == Some(u64_of(slots.len()))).then_some(())?;
        Some((manifest, usize::try_from(patches).ok()?, slots))
    }

    /// Takes the slots of tables, or of their list.
    fn set_tables(&mut self, slots: &[u8]) -> Option<()> {
        if slots.len() == SLOT_LEN && slots.starts_with(&LIST.to_le_bytes()) {
            let longest = u32::try_from(MANIFEST_MAX).unwrap_or(u32::MAX);
            self.list = parse_slots(slots, u64::from(LIST) + 1, longest)?.remove(&LIST);
            return self.list.map(|_| ());
        }
        let longest = u32::try_from(TABLE_MAX).unwrap_or(u32::MAX);
        self.tables = parse_slots(slots, self.tables_max(), longest)?;
        Some(())
    }

    fn set_patches(&mut self, slots: &[u8]) -> Option<()> {
        let longest = u32::try_from(PATCHES_BYTES).unwrap_or(u32::MAX);
        let count = u64_of(slots.len() / SLOT_LEN);
        self.patches = parse_slots(slots, count, longest)?.into_values().collect();
        let bytes = self.patches.iter().map(|slot| u64::from(slot.len)).sum::<u64>();
        (bytes <= PATCHES_BYTES).then_some(())
    }

    /// The list of this manifest's tables.
    pub(crate) fn encode_list(&self) -> Vec<u8> {
        encode_table(LIST_MAGIC, self.uuid, 0, &self.tables)
    }

    pub(crate) fn parse_list(&self, bytes: &[u8]) -> Result<BTreeMap<u32, Slot>> {
        let wrong = |what: &str| Error::Damaged(format!("its list of tables {what}"));
        let body = unsealed(bytes).ok_or_else(|| wrong("has a wrong checksum"))?;
        let (_, slots) = body.split_at_checked(TABLE_HEAD).ok_or_else(|| wrong("is too short"))?;
        let longest = u32::try_from(TABLE_MAX).unwrap_or(u32::MAX);
        let tables =
            parse_slots(slots, self.tables_max(), longest).ok_or_else(|| wrong("has wrong slots"))?;
        if encode_table(LIST_MAGIC, self.uuid, 0, &tables) != bytes {
            return Err(wrong("is not the one that the manifest names"));
        }
        Ok(tables)
    }
}

impl Table {
    pub(crate) fn encode(&self, uuid: [u8; 16], index: u32) -> Vec<u8> {
        encode_table(TABLE_MAGIC, uuid, index, &self.chunks)
    }

    /// Parses the table `index` of a volume.
    ///
    /// # Errors
    /// [`Error::Damaged`] with what is wrong.
    pub(crate) fn parse(bytes: &[u8], manifest: &Manifest, index: u32) -> Result<Self> {
        let wrong = |what: &str| Error::Damaged(format!("its table {index} {what}"));
        let body = unsealed(bytes).ok_or_else(|| wrong("has a wrong checksum"))?;
        let (_, slots) = body.split_at_checked(TABLE_HEAD).ok_or_else(|| wrong("is too short"))?;
        let chunk = u32::try_from(manifest.chunk()).unwrap_or(u32::MAX);
        let chunks = parse_slots(slots, 1 << manifest.table_shift, chunk);
        let table = Self { chunks: chunks.ok_or_else(|| wrong("has wrong slots"))? };
        // The head has nothing that is not known.
        if table.encode(manifest.uuid, index) != bytes {
            return Err(wrong("is not the one that the manifest names"));
        }
        Ok(table)
    }
}

fn encode_table(magic: [u8; 8], uuid: [u8; 16], index: u32, slots: &BTreeMap<u32, Slot>) -> Vec<u8> {
    let mut out = Vec::with_capacity(TABLE_HEAD + SLOT_LEN * slots.len() + 8);
    out.extend_from_slice(&magic);
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    for field in [VERSION, index, count, 0] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&uuid);
    encode_slots(slots.iter().map(|(index, slot)| (*index, slot)), &mut out);
    seal(&mut out);
    out
}

fn encode_slots<'a>(slots: impl Iterator<Item = (u32, &'a Slot)>, out: &mut Vec<u8>) {
    for (index, slot) in slots {
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&slot.len.to_le_bytes());
        for field in [slot.id.session, slot.id.number, slot.sum] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
}

/// Slots in ascending order below `limit`, of objects of 1 to `longest` bytes.
fn parse_slots(bytes: &[u8], limit: u64, longest: u32) -> Option<BTreeMap<u32, Slot>> {
    let mut slots = Vec::with_capacity(bytes.len() / SLOT_LEN);
    let mut next = 0;
    let mut fields = Fields::new(bytes);
    while fields.rest() > 0 {
        let (index, len) = (fields.u32()?, fields.u32()?);
        let id = ObjectId { session: fields.u64()?, number: fields.u64()? };
        let sum = fields.u64()?;
        if u64::from(index) < next || u64::from(index) >= limit || len == 0 || len > longest {
            return None;
        }
        next = u64::from(index) + 1;
        slots.push((index, Slot { id, len, sum }));
    }
    Some(slots.into_iter().collect())
}

#[cfg(test)]
mod tests;
