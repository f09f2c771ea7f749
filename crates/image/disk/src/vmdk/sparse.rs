//! A file of grains: a directory of tables of places of grains, which are stored or compressed.

use super::{SECTOR, TEXT_MAX};
use crate::error::{Error, Result};
use crate::mapped::{Layout, Source, extent};
use hectare_device::{Extent, Span};
use hectare_probe::record::{Record, record};
use hectare_units::{Bytes, index_of, u64_of, usize_of};
use parking_lot::Mutex;
use std::io::Read;
use std::sync::Arc;

const MAGIC: &[u8] = b"KDMV";
/// The directory of a file that was written in one go lies at its end, where a copy of the head names it.
const AT_END: u64 = u64::MAX;
const FOOTER_FROM_END: u64 = 1024;
/// Flags.
const ZERO_GRAINS: u32 = 1 << 2;
const COMPRESSED: u32 = 1 << 16;
/// A grain of zeros, where there are such.
const ZERO_GRAIN: u32 = 1;
/// The largest grain that is read: 2 MiB. Programs make such of 64 KiB.
const GRAIN_MAX: u64 = 4096;
const PER_TABLE_MAX: u32 = 1 << 16;

pub(super) struct Sparse {
    source: Source,
    flags: u32,
    /// The length of the disk and of a grain.
    len: u64,
    grain: u64,
    per_table: u64,
    /// Where the tables are, in sectors; 0 for one that is not there.
    directory: Vec<u32>,
    /// Where its descriptor is, and its length, in sectors.
    text: (u64, u64),
    /// The table and the grain that were read last.
    table: Mutex<Option<(u32, Arc<[u32]>)>>,
    unpacked: Mutex<Option<(u32, Arc<[u8]>)>>,
}

fn head_at(source: &Source, at: u64) -> hectare_device::Result<Option<Record>> {
    Ok(record(source.device(), at, 512)?.filter(|head| head.bytes(0, 4) == MAGIC))
}

impl Sparse {
    pub(super) fn open(source: Source) -> Result<Self> {
        let name = source.device().name().to_owned();
        let wrong = |what: &str| Error::new(&name, format!("the VMDK is damaged: {what}"));
        let mut head = head_at(&source, 0)?.ok_or_else(|| wrong("it has no head"))?;
        let text = (head.le64(28), head.le64(36));
        if head.le64(56) == AT_END {
            let at = source.len().checked_sub(FOOTER_FROM_END);
            let copy = at.map_or(Ok(None), |at| head_at(&source, at))?;
            head = copy.ok_or_else(|| wrong("the copy of its head is missing at its end"))?;
        }
        let (version, flags, sectors, grain) = (head.le32(4), head.le32(8), head.le64(12), head.le64(20));
        let (per_table, directory_at) = (head.le32(44), head.le64(56));
        if !(1..=3).contains(&version) {
            return Err(wrong("it has an unknown version"));
        }
        let is_grain = grain.is_power_of_two() && (8..=GRAIN_MAX).contains(&grain);
        if !is_grain || per_table == 0 || per_table > PER_TABLE_MAX {
            return Err(wrong("its grains or tables have a size that can't be"));
        }
        if flags & COMPRESSED != 0 && head.le16(77) != 1 {
            return Err(wrong("it is compressed in an unknown way"));
        }
        let len = sectors.checked_mul(SECTOR).ok_or_else(|| wrong("it can't be so long"))?;
        let tables = sectors.div_ceil(grain).div_ceil(per_table.into());
        let stored = usize::try_from(tables.saturating_mul(4)).unwrap_or(usize::MAX);
        let stored = record(source.device(), directory_at.saturating_mul(SECTOR), stored)?;
        let stored = stored.ok_or_else(|| wrong("its directory lies beyond its end"))?;
        let directory = (0..index_of(tables)).map(|index| stored.le32(index * 4)).collect();
        let (grain, per_table) = (grain * SECTOR, per_table.into());
        let (table, unpacked) = (Mutex::default(), Mutex::default());
        Ok(Self { source, flags, len, grain, per_table, directory, text, table, unpacked })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The text that lies in the file, if there is one.
    pub(super) fn descriptor(&self) -> Result<Option<String>> {
        let (at, len) =
            (self.text.0.saturating_mul(SECTOR), self.text.1.saturating_mul(SECTOR).min(TEXT_MAX));
        let text = if at == 0 { None } else { record(self.source.device(), at, index_of(len))? };
        Ok(text.map(|text| String::from_utf8_lossy(text.bytes(0, text.len())).into_owned()))
    }

    /// Where a grain is, in sectors; `None` if it is zeros.
    fn place(&self, grain: u64) -> hectare_device::Result<Option<u32>> {
        let table = self.directory[index_of(grain / self.per_table)];
        if table == 0 {
            return Ok(None);
        }
        let place = self.table(table)?[index_of(grain % self.per_table)];
        let is_zero = place == 0 || place == ZERO_GRAIN && self.flags & ZERO_GRAINS != 0;
        Ok((!is_zero).then_some(place))
    }

    fn table(&self, at: u32) -> hectare_device::Result<Arc<[u32]>> {
        let mut kept = self.table.lock();
        if let Some((_, table)) = kept.as_ref().filter(|(place, _)| *place == at) {
            return Ok(Arc::clone(table));
        }
        let mut bytes = vec![0; index_of(self.per_table * 4)];
        self.source.read(u64::from(at) * SECTOR, &mut bytes)?;
        let words =
            bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let table: Arc<[u32]> = words.collect();
        *kept = Some((at, Arc::clone(&table)));
        Ok(table)
    }

    /// The bytes of a compressed grain.
    fn unpacked(&self, at: u32) -> hectare_device::Result<Arc<[u8]>> {
        let mut kept = self.unpacked.lock();
        if let Some((_, grain)) = kept.as_ref().filter(|(place, _)| *place == at) {
            return Ok(Arc::clone(grain));
        }
        let place = u64::from(at) * SECTOR;
        let mut head = [0; 12];
        self.source.read(place, &mut head)?;
        let packed = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let wrong = |what: &str| self.source.damaged(Span::new(Bytes::new(place), Bytes::new(12)), what);
        if u64::from(packed) > 2 * self.grain {
            return Err(wrong("a compressed grain is larger than it can be"));
        }
        let mut bytes = vec![0; usize_of(packed)];
        self.source.read(place + 12, &mut bytes)?;
        let mut grain = Vec::new();
        let decoded = flate2::read::ZlibDecoder::new(&*bytes).take(self.grain).read_to_end(&mut grain);
        let _ =
            decoded.map_err(|error| wrong(&format!("a compressed grain can't be decompressed: {error}")))?;
        grain.resize(index_of(self.grain), 0);
        let grain: Arc<[u8]> = grain.into();
        *kept = Some((at, Arc::clone(&grain)));
        Ok(grain)
    }
}

impl Layout for Sparse {
    fn extent(&self, at: u64, len: u64) -> hectare_device::Result<Extent> {
        Ok(extent(self.place(at / self.grain)?.is_none(), self.grain - at % self.grain, len))
    }

    fn read_some(&self, at: u64, buf: &mut [u8]) -> hectare_device::Result<usize> {
        let (grain, within) = (at / self.grain, at % self.grain);
        let len = index_of(u64_of(buf.len()).min(self.grain - within));
        let buf = &mut buf[..len];
        match self.place(grain)? {
            None => buf.fill(0),
            Some(place) if self.flags & COMPRESSED != 0 => {
                let start = index_of(within);
                buf.copy_from_slice(&self.unpacked(place)?[start..start + len]);
            }
            Some(place) => self.source.read(u64::from(place) * SECTOR + within, buf)?,
        }
        Ok(len)
    }
}
