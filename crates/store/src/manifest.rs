//! The manifest of a volume, and the tables it refers to.
//!
//! Both are little-endian records with a magic number, a version, fields, a sorted list of *slots* and a
//! checksum (CRC-64/NVME) of all before it:
//!
//! - the manifest: `HECTSTOR`; of 32 bits: version, log2 of the chunk's bytes, log2 of a table's chunks, 0;
//!   UUID; of 64 bits: length, epoch, generation, writer, next number, content, count; slots of tables, by
//!   index;
//! - a table: `HECTTABL`; of 32 bits: version, index, count, 0; UUID; slots of chunks, by index in the
//!   table.
//!
//! A slot is 32 bytes: index, stored length, session, number, checksum of the object. What has no slot is
//! zeros, and so is what a chunk's object lacks at its end.
//!
//! *Epoch*: counts the writers of a volume. *Generation*: counts the manifests. *Writer* and *next number*:
//! the session that put this manifest, and the first number of its objects that it may not refer to.
//! *Content*: drawn anew by each flush, and kept by a manifest that says the same with another epoch.
//!
//! Hazards: both come from strangers. Everything is checked before it is used, counts against the bytes that
//! are there; there is one way to write each.

use crate::codec::{Fields, seal, unsealed};
use crate::{Error, Result};
use hectare_units::u64_of;
use std::collections::BTreeMap;

const MANIFEST_MAGIC: [u8; 8] = *b"HECTSTOR";
const TABLE_MAGIC: [u8; 8] = *b"HECTTABL";
/// The version of the format of manifests.
pub const VERSION: u32 = 1;
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
/// The longest manifest.
pub(crate) const MANIFEST_MAX: u64 = 96 + (TABLES_MAX * 32) + 8;
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

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MANIFEST_HEAD + SLOT_LEN * self.tables.len() + 8);
        out.extend_from_slice(&MANIFEST_MAGIC);
        for field in [VERSION, self.chunk_shift, self.table_shift, 0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.uuid);
        let (writer, content) = (self.writer, self.content);
        for field in [self.len, self.epoch, self.generation, writer, self.next_number, content] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&u64_of(self.tables.len()).to_le_bytes());
        encode_slots(&self.tables, &mut out);
        seal(&mut out);
        out
    }

    /// Parses a manifest.
    ///
    /// # Errors
    /// [`Error::Damaged`] with what is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Error::Damaged(format!("its manifest {what}"));
        let mut fields = Fields::new(bytes);
        if fields.bytes() != Some(MANIFEST_MAGIC) {
            return Err(wrong("is none: it does not begin as one"));
        }
        let version = fields.u32().ok_or_else(|| wrong("is too short"))?;
        if version != VERSION {
            return Err(wrong(&format!("has version {version}, and 1 is known: use a newer program")));
        }
        let body = unsealed(bytes).ok_or_else(|| wrong("has a wrong checksum"))?;
        let (manifest, slots) = Self::head(body).ok_or_else(|| wrong("is too short"))?;
        let Self { chunk_shift, table_shift, len, .. } = manifest;
        if !CHUNK_SHIFTS.contains(&chunk_shift) || !TABLE_SHIFTS.contains(&table_shift) {
            return Err(wrong(&format!("has chunks of 2^{chunk_shift} bytes, tables of 2^{table_shift}")));
        }
        manifest.check_len(len).map_err(|_| wrong(&format!("has an impossible length, {len}")))?;
        // Reserved, and the count against what is there: nothing else is what `encode` writes.
        let tables = len.div_ceil(1 << (chunk_shift + table_shift));
        let slot_max = u32::try_from(TABLE_MAX).unwrap_or(u32::MAX);
        let tables = parse_slots(slots, tables, slot_max).ok_or_else(|| wrong("has wrong slots"))?;
        let manifest = Self { tables, ..manifest };
        if manifest.encode() != bytes {
            return Err(wrong("has values in reserved fields"));
        }
        Ok(manifest)
    }

    fn head(body: &[u8]) -> Option<(Self, &[u8])> {
        let (head, slots) = body.split_at_checked(MANIFEST_HEAD)?;
        let mut fields = Fields::new(head);
        let (_magic, _version) = (fields.u64()?, fields.u32()?);
        let (chunk_shift, table_shift, _reserved) = (fields.u32()?, fields.u32()?, fields.u32()?);
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
        };
        let count = fields.u64()?;
        debug_assert_eq!(fields.rest(), 0, "the head has these fields");
        (count.checked_mul(u64_of(SLOT_LEN)) == Some(u64_of(slots.len()))).then_some((manifest, slots))
    }
}

impl Table {
    pub(crate) fn encode(&self, uuid: [u8; 16], index: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(TABLE_HEAD + SLOT_LEN * self.chunks.len() + 8);
        out.extend_from_slice(&TABLE_MAGIC);
        let count = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        for field in [VERSION, index, count, 0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&uuid);
        encode_slots(&self.chunks, &mut out);
        seal(&mut out);
        out
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

fn encode_slots(slots: &BTreeMap<u32, Slot>, out: &mut Vec<u8>) {
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

/// Parses bytes as a manifest, and as a table of one: for the fuzzer. Returns how many slots there were.
///
/// The checksum is made right first, or no change to an input would come past it.
///
/// # Panics
/// If what was parsed is written in another way than it was read, which is a defect.
#[must_use]
pub fn digest(bytes: &[u8]) -> usize {
    let mut sealed = bytes.get(..bytes.len().saturating_sub(8)).unwrap_or_default().to_vec();
    seal(&mut sealed);
    let mut slots = 0;
    for bytes in [bytes, &sealed] {
        if let Ok(manifest) = Manifest::parse(bytes) {
            assert_eq!(manifest.encode(), bytes, "a manifest has one form");
            slots += manifest.tables.len();
        }
        let model = Manifest::new([7; 16], 1 << 40, 1 << 22, 1);
        if let Ok(table) = model.and_then(|model| Table::parse(bytes, &model, 3)) {
            slots += table.chunks.len();
        }
    }
    slots + usize::from(crate::note::Note::parse(bytes).is_some())
}

#[cfg(test)]
mod tests;
