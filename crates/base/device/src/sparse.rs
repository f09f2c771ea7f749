//! A device of any length, up to 16 EiB, of which only what was written is stored: formatting an exabyte then
//! takes as much memory as the metadata it writes.
//!
//! Stored are chunks of 4 KiB, sixteen neighbours to a region, the regions in hash maps spread over
//! shards with a lock each. A chunk that would hold only zeros is not stored: zeros written where nothing is
//! leave nothing, and overwriting a whole chunk with zeros drops it.
//!
//! Hazards: a range may span 2^48 regions, so nothing here walks a range region by region unless its bytes
//! are in memory anyway; zeroing a huge range walks what is stored instead. Operations over several regions
//! are not atomic, as with any disk.

use crate::device::check_fits;
use crate::file::FileDevice;
use crate::file_options::{FileOptions, Overwrite};
use crate::span::Piece;
use crate::{Device, Extent, Operation, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::{RwLock, RwLockReadGuard};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "sparse device";

const CHUNK_LEN: usize = 4096;
const CHUNKS_PER_REGION: usize = 16;
const REGION_LEN: u64 = 1 << 16;
const _: () = assert!((CHUNK_LEN * CHUNKS_PER_REGION) as u64 == REGION_LEN);

/// Enough that two of a few dozen threads seldom meet in one.
const SHARDS: u64 = 64;

static ZEROS: [u8; CHUNK_LEN] = [0; CHUNK_LEN];

type Chunk = [u8; CHUNK_LEN];
type Region = [Option<Box<Chunk>>; CHUNKS_PER_REGION];
type Shard = RwLock<HashMap<u64, Region>>;

/// A device that stores only what was written.
pub struct SparseDevice {
    len: RwLock<Bytes>,
    shards: Vec<Shard>,
    chunks_stored: AtomicU64,
}

impl SparseDevice {
    /// A device of `len` zeros that stores nothing yet.
    #[must_use]
    pub fn new(len: Bytes) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { len: RwLock::new(len), shards, chunks_stored: AtomicU64::new(0) }
    }

    /// How many bytes are stored, in whole chunks of 4 KiB.
    #[must_use]
    pub fn stored(&self) -> Bytes {
        Bytes::new(self.chunks_stored.load(Ordering::Relaxed) * u64_of(CHUNK_LEN))
    }

    /// The ranges that are stored, in order, neighbours joined; all else is zeros. In whole chunks of 4 KiB,
    /// but never beyond the end.
    #[must_use]
    pub fn data_ranges(&self) -> Vec<Span> {
        let len = self.len();
        let mut starts = Vec::new();
        for shard in &self.shards {
            for (region, chunks) in &*shard.read() {
                let stored = chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_some());
                starts.extend(stored.map(|(nr, _)| region * REGION_LEN + u64_of(nr * CHUNK_LEN)));
            }
        }
        starts.sort_unstable();
        let mut ranges: Vec<Span> = Vec::new();
        for start in starts.into_iter().map(Bytes::new).filter(|start| *start < len) {
            let piece = Bytes::of(CHUNK_LEN).min(len - start);
            match ranges.last_mut() {
                Some(last) if last.end() == Some(start) => last.len += piece,
                _ => ranges.push(Span::new(start, piece)),
            }
        }
        ranges
    }

    /// Writes what is stored to another device, which must hold zeros elsewhere.
    ///
    /// # Errors
    /// If the target is too short or fails.
    pub fn copy_to(&self, target: &dyn Device) -> Result<()> {
        let mut buf = vec![0; 1 << 20];
        for range in self.data_ranges() {
            for piece in range.pieces(u64_of(buf.len())) {
                let part = &mut buf[..index_of(piece.len.get())];
                self.read_at(piece.at, part)?;
                target.write_at(piece.at, part)?;
            }
        }
        Ok(())
    }

    /// Saves the device as a sparse file of its full length.
    ///
    /// # Errors
    /// If the file exists and is not to be overwritten, cannot have that length, or writing fails.
    pub fn save_to(&self, path: impl AsRef<Path>, overwrite: Overwrite) -> Result<FileDevice> {
        let pending = FileOptions::new().create_pending(path, self.len(), overwrite)?;
        self.copy_to(pending.device())?;
        pending.publish()
    }

    /// The length, held still, once the range is known to lie inside it.
    fn within(&self, operation: Operation, span: Span) -> Result<RwLockReadGuard<'_, Bytes>> {
        let len = self.len.read();
        check_fits(NAME, *len, operation, span)?;
        Ok(len)
    }

    /// Neighbouring regions lie in different shards, so that a large sequential write spreads.
    fn shard(&self, region: u64) -> &Shard {
        &self.shards[index_of(region % SHARDS)]
    }

    fn write_region(&self, span: Span, data: &[u8]) {
        let number = span.at.get() / REGION_LEN;
        let mut shard = self.shard(number).write();
        if !shard.contains_key(&number) && is_zero(data) {
            return;
        }
        let region = shard.entry(number).or_default();
        for piece in span.chunks(CHUNK_LEN) {
            let (slot, data) = (&mut region[slot_of(&piece)], &data[piece.of_data]);
            if data != &ZEROS[..data.len()] {
                let chunk = slot.get_or_insert_with(|| {
                    self.chunks_stored.fetch_add(1, Ordering::Relaxed);
                    Box::new(ZEROS)
                });
                chunk[piece.within].copy_from_slice(data);
            } else {
                self.clear(slot, piece.within);
            }
        }
        if region.iter().all(Option::is_none) {
            shard.remove(&number);
        }
    }

    fn clear(&self, slot: &mut Option<Box<Chunk>>, within: std::ops::Range<usize>) {
        let Some(chunk) = slot else { return };
        chunk[within.clone()].fill(0);
        if within.len() == CHUNK_LEN || **chunk == ZEROS {
            *slot = None;
            self.chunks_stored.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn zero_region(&self, span: Span) {
        let number = span.at.get() / REGION_LEN;
        let mut shard = self.shard(number).write();
        let Some(region) = shard.get_mut(&number) else { return };
        for piece in span.chunks(CHUNK_LEN) {
            self.clear(&mut region[slot_of(&piece)], piece.within);
        }
        if region.iter().all(Option::is_none) {
            shard.remove(&number);
        }
    }

    /// Zeroes a range by walking the regions of the range or the regions that are stored, whichever are
    /// fewer.
    fn zero_range(&self, span: Span) {
        let Some(end) = span.end() else { return };
        let stored: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        if span.len.get() / REGION_LEN <= u64_of(stored) {
            span.pieces(REGION_LEN).for_each(|piece| self.zero_region(piece));
            return;
        }
        let touched = span.at.get() / REGION_LEN..end.get().div_ceil(REGION_LEN);
        for shard in &self.shards {
            let numbers: Vec<u64> =
                shard.read().keys().copied().filter(|number| touched.contains(number)).collect();
            for number in numbers {
                let start = (number * REGION_LEN).max(span.at.get());
                let stop = (number * REGION_LEN).saturating_add(REGION_LEN).min(end.get());
                self.zero_region(Span::new(Bytes::new(start), Bytes::new(stop - start)));
            }
        }
    }
}

/// The chunk's place in its region.
fn slot_of(piece: &Piece) -> usize {
    index_of(piece.chunk % u64_of(CHUNKS_PER_REGION))
}

fn is_zero(data: &[u8]) -> bool {
    data.chunks(CHUNK_LEN).all(|part| part == &ZEROS[..part.len()])
}

impl Device for SparseDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> Bytes {
        *self.len.read()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        let _len = self.within(Operation::Read, span)?;
        let mut rest = buf;
        for part in span.pieces(REGION_LEN) {
            let (target, after) = rest.split_at_mut(index_of(part.len.get()));
            let number = part.at.get() / REGION_LEN;
            match self.shard(number).read().get(&number) {
                Some(region) => read_region(region, part, target),
                None => target.fill(0),
            }
            rest = after;
        }
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        let _len = self.within(Operation::Write, span)?;
        let mut rest = data;
        for part in span.pieces(REGION_LEN) {
            let (source, after) = rest.split_at(index_of(part.len.get()));
            self.write_region(part, source);
            rest = after;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        let _len = self.within(Operation::Zero, span)?;
        self.zero_range(span);
        Ok(())
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        let _len = self.within(Operation::Discard, span)?;
        self.zero_range(span);
        Ok(())
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let mut current = self.len.write();
        if len < *current {
            self.zero_range(Span::new(len, *current - len));
        }
        *current = len;
        Ok(())
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        drop(self.within(Operation::Read, span)?);
        Ok(Extent::among(self.data_ranges(), span))
    }

    fn discards_to_zeros(&self) -> bool {
        true
    }

    fn is_zeroed(&self) -> bool {
        true
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

fn read_region(region: &Region, span: Span, target: &mut [u8]) {
    for piece in span.chunks(CHUNK_LEN) {
        let chunk = &region[slot_of(&piece)];
        let target = &mut target[piece.of_data];
        match chunk {
            Some(chunk) => target.copy_from_slice(&chunk[piece.within]),
            None => target.fill(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIB: Bytes = Bytes::gib(1 << 30);

    #[test]
    fn an_exabyte_stores_what_was_written() {
        let device = SparseDevice::new(EIB);
        let last = EIB - Bytes::new(3);
        device.write_at(last, b"end").unwrap();
        device.write_at(Bytes::gib(5), &[0; 100_000]).unwrap();
        device.write_at(Bytes::new(4095), b"ab").unwrap();
        assert_eq!(device.stored(), Bytes::kib(12));
        assert_eq!(
            device.data_ranges(),
            [Span::new(Bytes::ZERO, Bytes::kib(8)), Span::new(EIB - Bytes::kib(4), Bytes::kib(4)),]
        );
        device.zero(Bytes::new(1), EIB - Bytes::new(1)).unwrap();
        assert_eq!(device.stored(), Bytes::ZERO);
    }

    #[test]
    fn the_longest_device_there_can_be_works_to_its_last_byte() {
        let device = SparseDevice::new(Bytes::new(u64::MAX));
        device.write_at(Bytes::new(u64::MAX - 1), b"z").unwrap();
        assert!(device.write_at(Bytes::new(u64::MAX), b"z").is_err());
        let end = Bytes::new(u64::MAX - 4095);
        assert_eq!(device.data_ranges(), [Span::new(end, Bytes::new(4095))]);
        device.zero(Bytes::ZERO, Bytes::new(u64::MAX)).unwrap();
        assert_eq!(device.stored(), Bytes::ZERO);
    }

    #[test]
    fn zeros_over_data_give_the_memory_back() {
        let device = SparseDevice::new(Bytes::mib(1));
        device.write_at(Bytes::ZERO, &[1; 300_000]).unwrap();
        device.write_at(Bytes::ZERO, &[0; 300_000]).unwrap();
        assert_eq!(device.stored(), Bytes::ZERO);
        assert!(device.shards.iter().all(|shard| shard.read().is_empty()));
    }

    #[test]
    fn saved_to_a_file_it_reads_the_same_and_stays_sparse() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("saved.img");
        let device = SparseDevice::new(Bytes::gib(40));
        device.write_at(Bytes::gib(39), b"far").unwrap();
        let file = device.save_to(&path, Overwrite::Refuse).unwrap();
        let mut buf = [0; 3];
        file.read_at(Bytes::gib(39), &mut buf).unwrap();
        assert_eq!((&buf, file.len()), (b"far", Bytes::gib(40)));
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20);
        assert!(device.save_to(&path, Overwrite::Refuse).is_err());
    }
}
