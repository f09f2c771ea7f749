//! Dynamic VHDs: a table of blocks, each with a bitmap of the sectors that it has.

use super::footer::{FOOTER_LEN, Footer, checksum};
use super::{DYNAMIC_MAX, SECTOR};
use crate::error::{Error, Result, check};
use hectare_device::{Device, Extent, FileDevice, Operation, Reason, Span};
use hectare_probe::record::record;
use hectare_units::{Bytes, index_of, u64_of, usize_of};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;

const HEADER_LEN: usize = 1024;
const COOKIE: &[u8] = b"cxsparse";
const TABLE_AT: usize = 16;
const ENTRIES_AT: usize = 28;
const BLOCK_AT: usize = 32;
const CHECKSUM_AT: usize = 36;
/// The size of a block of images that are made.
const BLOCK: u32 = 2 << 20;
/// Smaller ones have fewer sectors than a byte of their bitmap has bits, and are made by nobody.
const BLOCK_MIN: u64 = 8 * SECTOR;
/// The entry of a block that is not there.
const ABSENT: u32 = u32::MAX;

/// The disk of a dynamic VHD.
pub(super) struct DynamicDevice<D: Device> {
    file: D,
    footer: Footer,
    block: u64,
    /// The length of the bitmap before each block.
    bitmap: u64,
    table_at: u64,
    /// Where each block is, in sectors, including those that the file's table does not have yet.
    table: RwLock<Vec<u32>>,
    growth: Mutex<Growth>,
    /// Flushes are made one after the other: one that finds nothing to write must not end before the one that
    /// writes it.
    flushing: Mutex<()>,
    zeroed: bool,
}

/// What a new block changes.
#[derive(Default)]
struct Growth {
    /// The first byte after the last block, where the footer is.
    end: u64,
    /// The entries that are not in the file's table yet.
    unwritten: BTreeSet<usize>,
}

/// Makes the file an empty image.
pub(super) fn create(file: &FileDevice, footer: &Footer) -> Result<()> {
    let entries = u32::try_from(footer.size.get().div_ceil(u64::from(BLOCK))).unwrap_or(u32::MAX);
    let table_at = FOOTER_LEN + u64_of(HEADER_LEN);
    let mut header = vec![0; HEADER_LEN];
    let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
    put(0, COOKIE);
    put(8, &u64::MAX.to_be_bytes());
    put(TABLE_AT, &table_at.to_be_bytes());
    put(24, &0x0001_0000_u32.to_be_bytes());
    put(ENTRIES_AT, &entries.to_be_bytes());
    put(BLOCK_AT, &BLOCK.to_be_bytes());
    let sum = checksum(&header, CHECKSUM_AT);
    header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
    let table = vec![0xff; index_of((u64::from(entries) * 4).next_multiple_of(SECTOR))];
    let bytes = [&footer.bytes, &header, &table, &footer.bytes].map(Vec::as_slice).concat();
    file.resize(Bytes::of(bytes.len()))?;
    Ok(file.write_at(Bytes::ZERO, &bytes)?)
}

/// Whether two of these ranges (first byte and length) have a byte in common.
fn overlaps(mut ranges: Vec<(u64, u64)>) -> bool {
    ranges.sort_unstable();
    ranges.windows(2).any(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0)
}

impl<D: Device> DynamicDevice<D> {
    pub(super) fn open(file: D, footer: Footer) -> Result<Self> {
        let wrong = |what: &str| Error::new(file.name(), format!("the VHD is damaged: {what}"));
        let header = record(&file, footer.header_at, HEADER_LEN)?
            .filter(|header| header.bytes(0, 8) == COOKIE)
            .filter(|header| header.be32(CHECKSUM_AT) == checksum(header.bytes(0, HEADER_LEN), CHECKSUM_AT))
            .ok_or_else(|| wrong("its header is missing or has a wrong checksum"))?;
        let (block, entries) = (u64::from(header.be32(BLOCK_AT)), header.be32(ENTRIES_AT));
        if !block.is_power_of_two() || block < BLOCK_MIN {
            return Err(wrong("its blocks have a size that can't be"));
        }
        let needed = footer.size.get().div_ceil(block);
        if footer.size.get() > DYNAMIC_MAX || u64::from(entries) < needed {
            return Err(wrong("its table is shorter than its disk"));
        }
        let table_at = header.be64(TABLE_AT);
        let count = index_of(needed);
        let stored =
            record(&file, table_at, count * 4)?.ok_or_else(|| wrong("its table lies beyond its end"))?;
        let table: Vec<u32> = (0..count).map(|index| stored.be32(index * 4)).collect();
        let bitmap = (block / SECTOR / 8).next_multiple_of(SECTOR);
        let ends = table.iter().filter(|entry| **entry != ABSENT);
        let end = ends.map(|entry| u64::from(*entry) * SECTOR + bitmap + block).max().unwrap_or(0);
        if end > file.len().get() {
            return Err(wrong("its table leads beyond its end"));
        }
        let table_end = table_at.checked_add((u64::from(entries) * 4).next_multiple_of(SECTOR));
        let table_end = table_end.ok_or_else(|| wrong("its table lies beyond its end"))?;
        // All that lies behind the blocks is the footer, unless a power cut left a block that nothing names.
        let end = end.max(table_end).max(footer.header_at + u64_of(HEADER_LEN));
        // The table names blocks by sectors, wherever the file has its table.
        let end = end.next_multiple_of(SECTOR);
        if !file.is_read_only() {
            let head =
                [(0, FOOTER_LEN), (footer.header_at, u64_of(HEADER_LEN)), (table_at, table_end - table_at)];
            let blocks = table.iter().filter(|entry| **entry != ABSENT);
            let blocks = blocks.map(|entry| (u64::from(*entry) * SECTOR, bitmap + block));
            if overlaps(head.into_iter().chain(blocks).collect()) {
                return Err(wrong(
                    "its blocks share bytes with each other or with its table; it can only be read",
                ));
            }
        }
        let growth = Growth { end, unwritten: BTreeSet::new() };
        let is_new = table.iter().all(|entry| *entry == ABSENT);
        Ok(Self {
            file,
            footer,
            block,
            bitmap,
            table_at,
            table: RwLock::new(table),
            growth: Mutex::new(growth),
            flushing: Mutex::default(),
            zeroed: is_new,
        })
    }

    /// The parts of a range that lie in one block each: the block, the place in it, and which of the range.
    fn parts(&self, at: Bytes, len: usize) -> impl Iterator<Item = (usize, u64, std::ops::Range<usize>)> {
        let (block, start) = (self.block, at.get());
        let mut done = 0;
        std::iter::from_fn(move || {
            let place = start + u64_of(done);
            let within = place % block;
            let take = index_of(u64_of(len - done).min(block - within));
            let range = done..done + take;
            done += take;
            (take > 0).then(|| (index_of(place / block), within, range))
        })
    }

    /// Where a block is, if it is there.
    fn place(&self, block: usize) -> Option<u64> {
        Some(self.table.read()[block]).filter(|entry| *entry != ABSENT).map(|entry| u64::from(entry) * SECTOR)
    }

    /// Reads a part of a block that is there.
    fn read_block(&self, place: u64, within: u64, buf: &mut [u8]) -> hectare_device::Result<()> {
        let bits = self.bits(place, within, buf.len())?;
        self.file.read_at(Bytes::new(place + self.bitmap + within), buf)?;
        if bits.is_whole() {
            return Ok(());
        }
        for (index, byte) in buf.iter_mut().enumerate() {
            if !bits.has((within + u64_of(index)) / SECTOR) {
                *byte = 0;
            }
        }
        Ok(())
    }

    /// The bits of the sectors of a part of a block.
    fn bits(&self, place: u64, within: u64, len: usize) -> hectare_device::Result<Bits> {
        let first = within / SECTOR / 8;
        let last = (within + u64_of(len) - 1) / SECTOR / 8;
        let mut bytes = vec![0; index_of(last + 1 - first)];
        self.file.read_at(Bytes::new(place + first), &mut bytes)?;
        Ok(Bits { first, bytes })
    }

    /// Gives a block a place, zeroed and with all its sectors; returns the place.
    fn allocate(&self, block: usize) -> hectare_device::Result<u64> {
        let mut growth = self.growth.lock();
        if let Some(place) = self.place(block) {
            return Ok(place);
        }
        let (place, len) = (growth.end, self.bitmap + self.block);
        let entry = u32::try_from(place / SECTOR).ok().filter(|entry| *entry != ABSENT).ok_or_else(|| {
            let reason = Reason::Unsupported("a VHD that grows takes no more blocks");
            hectare_device::Error::new(self.file.name(), Operation::Write, None, reason)
        })?;
        let end = place + len;
        // The footer first: its old place is about to be overwritten.
        if self.file.len().get() < end + FOOTER_LEN {
            self.file.resize(Bytes::new(end + FOOTER_LEN))?;
        }
        self.file.write_at(Bytes::new(end), &self.footer.bytes)?;
        self.file.zero(Bytes::new(place), Bytes::new(len))?;
        self.file.write_at(Bytes::new(place), &vec![0xff; index_of(self.block / SECTOR / 8)])?;
        growth.end = end;
        growth.unwritten.insert(block);
        self.table.write()[block] = entry;
        Ok(place)
    }

    /// Writes a part of a block.
    fn write_block(&self, block: usize, within: u64, data: &[u8]) -> hectare_device::Result<()> {
        let place = match self.place(block) {
            Some(place) => place,
            None => self.allocate(block)?,
        };
        if !self.bits(place, within, data.len())?.is_whole() {
            self.take_sectors(place, within, data.len())?;
        }
        self.file.write_at(Bytes::new(place + self.bitmap + within), data)
    }

    /// Gives a block the sectors of a part that it does not have, as zeros.
    fn take_sectors(&self, place: u64, within: u64, len: usize) -> hectare_device::Result<()> {
        let _alone = self.growth.lock();
        let mut bits = self.bits(place, within, len)?;
        for sector in within / SECTOR..=(within + u64_of(len) - 1) / SECTOR {
            if !bits.has(sector) {
                let at = place + self.bitmap + sector * SECTOR;
                self.file.zero(Bytes::new(at), Bytes::new(SECTOR))?;
                bits.set(sector);
            }
        }
        self.file.write_at(Bytes::new(place + bits.first), &bits.bytes)
    }

    /// Writes the entries of blocks that were allocated.
    fn write_table(&self, blocks: &BTreeSet<usize>) -> hectare_device::Result<()> {
        for block in blocks {
            let entry = self.table.read()[*block];
            self.file.write_at(Bytes::new(self.table_at + u64_of(*block) * 4), &entry.to_be_bytes())?;
        }
        Ok(())
    }

    /// Makes these blocks durable, and then the table that names them.
    fn flush_blocks(&self, blocks: &BTreeSet<usize>) -> hectare_device::Result<()> {
        self.file.flush()?;
        if blocks.is_empty() {
            return Ok(());
        }
        self.write_table(blocks)?;
        self.file.flush()
    }
}

/// A part of the bitmap of a block.
struct Bits {
    /// Its first byte.
    first: u64,
    bytes: Vec<u8>,
}

impl Bits {
    /// Whether there is nothing but ones.
    fn is_whole(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0xff)
    }

    fn has(&self, sector: u64) -> bool {
        self.bytes[index_of(sector / 8 - self.first)] & (0x80 >> (sector % 8)) != 0
    }

    fn set(&mut self, sector: u64) {
        self.bytes[index_of(sector / 8 - self.first)] |= 0x80 >> (sector % 8);
    }
}

impl<D: Device> Device for DynamicDevice<D> {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> Bytes {
        self.footer.size
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> hectare_device::Result<()> {
        check(self, Operation::Read, Span::new(at, Bytes::of(buf.len())))?;
        for (block, within, range) in self.parts(at, buf.len()) {
            match self.place(block) {
                Some(place) => self.read_block(place, within, &mut buf[range])?,
                None => buf[range].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> hectare_device::Result<()> {
        check(self, Operation::Write, Span::new(at, Bytes::of(data.len())))?;
        let mut parts = self.parts(at, data.len());
        parts.try_for_each(|(block, within, range)| self.write_block(block, within, &data[range]))
    }

    fn flush(&self) -> hectare_device::Result<()> {
        let _alone = self.flushing.lock();
        // Blocks are allocated meanwhile: those are for the next flush.
        let blocks = std::mem::take(&mut self.growth.lock().unwritten);
        let flushed = self.flush_blocks(&blocks);
        if flushed.is_err() {
            self.growth.lock().unwritten.extend(blocks);
        }
        flushed
    }

    fn zero(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
        check(self, Operation::Zero, Span::new(at, len))?;
        let zeros = vec![0; usize_of(BLOCK.min(1 << 16))];
        let mut done = 0;
        while done < len.get() {
            let place = at.get() + done;
            let within = place % self.block;
            let part = (len.get() - done).min(self.block - within);
            let is_there = self.place(index_of(place / self.block)).is_some();
            let mut left = if is_there { part } else { 0 };
            while left > 0 {
                let take = index_of(left.min(u64_of(zeros.len())));
                self.write_at(Bytes::new(place + part - left), &zeros[..take])?;
                left -= u64_of(take);
            }
            done += part;
        }
        Ok(())
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> hectare_device::Result<Extent> {
        check(self, Operation::Read, Span::new(at, len))?;
        let within = at.get() % self.block;
        let len = len.min(Bytes::new(self.block - within));
        let is_there = len > Bytes::ZERO && self.place(index_of(at.get() / self.block)).is_some();
        Ok(if is_there { Extent::data(len) } else { Extent::zeros(len) })
    }

    fn discard(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
        check(self, Operation::Discard, Span::new(at, len))
    }

    fn resize(&self, len: Bytes) -> hectare_device::Result<()> {
        let reason = Reason::Unsupported("a VHD keeps its size");
        let span = Some(Span::new(Bytes::ZERO, len));
        Err(hectare_device::Error::new(self.file.name(), Operation::Resize, span, reason))
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }
}

impl<D: Device> Drop for DynamicDevice<D> {
    /// What was written belongs to the file, durable or not, as with every other device.
    fn drop(&mut self) {
        let growth = std::mem::take(self.growth.get_mut());
        let _ = self.write_table(&growth.unwritten);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // all of this is tests

    use super::*;
    use crate::vhd::footer::Kind;
    use hectare_device::MemoryDevice;

    /// An image of 5 MiB whose table begins at a byte; the blocks that it names, in sectors.
    fn image(table_at: u64, blocks: [u32; 3]) -> MemoryDevice {
        let footer = Footer::new("x", Kind::Dynamic, Bytes::mib(5), [7; 16]).unwrap();
        let mut header = vec![0; HEADER_LEN];
        let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        put(0, COOKIE);
        put(TABLE_AT, &table_at.to_be_bytes());
        put(ENTRIES_AT, &3_u32.to_be_bytes());
        put(BLOCK_AT, &BLOCK.to_be_bytes());
        let sum = checksum(&header, CHECKSUM_AT);
        header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        let end = blocks.iter().filter(|block| **block != ABSENT).max();
        let end =
            end.map_or(table_at + SECTOR, |block| u64::from(*block) * SECTOR + SECTOR + u64::from(BLOCK));
        let device = MemoryDevice::new(Bytes::new(end + FOOTER_LEN));
        let table = blocks.map(u32::to_be_bytes).concat();
        for (at, bytes) in [(0, &footer.bytes), (512, &header), (table_at, &table), (end, &footer.bytes)] {
            device.write_at(Bytes::new(at), bytes).unwrap();
        }
        device
    }

    fn open(file: &MemoryDevice) -> Result<DynamicDevice<&MemoryDevice>> {
        let footer = Footer::find(file).unwrap();
        DynamicDevice::open(file, footer)
    }

    /// New blocks follow the table, which has their places in sectors: they must begin at one.
    #[test]
    fn regression_a_table_off_the_borders_of_sectors() {
        let file = image(512 + 1024 + 100, [ABSENT; 3]);
        let disk = open(&file).unwrap();
        let data: Vec<u8> = (0..5_000_000_u32).map(|n| u8::try_from(n % 253).unwrap()).collect();
        disk.write_at(Bytes::new(1234), &data).unwrap();
        disk.flush().unwrap();
        drop(disk);
        let again = open(&file).unwrap();
        let mut found = vec![0; data.len()];
        again.read_at(Bytes::new(1234), &mut found).unwrap();
        assert!(found == data);
        assert!((0..3).all(|block| again.place(block).is_some_and(|place| place % SECTOR == 0)));
    }

    #[test]
    fn blocks_that_share_bytes_are_not_written() {
        for blocks in [[100, 100, ABSENT], [100, 4000, ABSENT], [ABSENT, 3, ABSENT], [0, ABSENT, ABSENT]] {
            let error = open(&image(2048, blocks)).err().unwrap().to_string();
            assert!(error.contains("share bytes"), "{blocks:?}: {error}");
        }
        assert!(open(&image(2048, [100, 5000, 9200])).is_ok());
    }

    #[test]
    fn tables_and_blocks_that_lie_are_refused() {
        let file = image(2048, [ABSENT; 3]);
        let mut header = vec![0; HEADER_LEN];
        file.read_at(Bytes::new(512), &mut header).unwrap();
        let lie = |at: usize, field: &[u8]| {
            let mut header = header.clone();
            header[at..at + field.len()].copy_from_slice(field);
            let sum = checksum(&header, CHECKSUM_AT);
            header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
            file.write_at(Bytes::new(512), &header).unwrap();
            open(&file).err().unwrap().to_string()
        };
        for at in [u64::MAX, u64::MAX - 100, 1 << 40] {
            assert!(lie(TABLE_AT, &at.to_be_bytes()).contains("beyond its end"));
        }
        for block in [0_u32, 1, 512, 2048, 3 << 20] {
            assert!(lie(BLOCK_AT, &block.to_be_bytes()).contains("a size that can't be"));
        }
        assert!(lie(ENTRIES_AT, &2_u32.to_be_bytes()).contains("shorter than its disk"));
    }
}
