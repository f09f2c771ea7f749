//! Keeps every change in memory and leaves the device below as it is: to see what a replayed journal would
//! make of a read-only volume, or to try what happens after a power cut and discard it.
//!
//! Changes lie in pages of 4 KiB in hash maps, spread over shards with a lock each; a write to a part of a
//! page copies the rest of it up from below. Pages are counted references: cloning an overlay copies no
//! bytes, and a range of zeros is one page, many times over. Making an overlay allocates nothing, so that a
//! hundred thousand of them are cheap.
//!
//! Hazards:
//! - *Flushing makes nothing durable.* Nothing here ever is.
//! - *The device below must not change.* What was not changed here is read from it, each time.
//! - *Memory.* A changed page takes 4 KiB, a zeroed one some twenty bytes: zeroing terabytes in one call is
//!   not for this layer. A discard changes nothing.

use crate::device::{check_fits, of_inner};
use crate::{Device, Operation, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::{RwLock, RwLockReadGuard};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

const PAGE_LEN: usize = 4096;

/// Enough for the few threads of a test; an array of more makes making one dearer.
const SHARDS: usize = 16;

type Page = [u8; PAGE_LEN];
type Shard = RwLock<HashMap<u64, Arc<Page>>>;

static ZERO_PAGE: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new([0; PAGE_LEN]));

/// A device whose changes stay in memory.
pub struct OverlayDevice<D> {
    inner: D,
    extent: RwLock<Extent>,
    shards: [Shard; SHARDS],
}

/// How long the device is, and how much of the one below shows.
#[derive(Clone, Copy)]
struct Extent {
    len: Bytes,
    /// The least length there ever was: what lay beyond it was truncated, and is zero if it came back.
    shown: Bytes,
}

impl Extent {
    fn of(inner: &impl Device) -> Self {
        let len = inner.len();
        Self { len, shown: len }
    }
}

impl<D: Device> OverlayDevice<D> {
    /// Lays an empty overlay over `inner`, which is never changed through it.
    #[must_use]
    pub fn new(inner: D) -> Self {
        let extent = RwLock::new(Extent::of(&inner));
        Self { inner, extent, shards: Default::default() }
    }

    /// The device below, without the changes.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Forgets all changes, that of the length too.
    pub fn reset(&self) {
        let mut extent = self.extent.write();
        *extent = Extent::of(&self.inner);
        for shard in &self.shards {
            *shard.write() = HashMap::new();
        }
    }

    /// How many bytes lie in changed pages, in whole pages of 4 KiB.
    #[must_use]
    pub fn changed_bytes(&self) -> Bytes {
        let pages: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        Bytes::of(pages * PAGE_LEN)
    }

    /// Where the changed pages lie, in ascending order. What was written may be what was there.
    #[must_use]
    pub fn changed(&self) -> Vec<Span> {
        let pages = |shard: &Shard| shard.read().keys().copied().collect::<Vec<u64>>();
        let mut numbers: Vec<u64> = self.shards.iter().flat_map(pages).collect();
        numbers.sort_unstable();
        let page = |number| Span::new(Bytes::new(number * u64_of(PAGE_LEN)), Bytes::of(PAGE_LEN));
        numbers.into_iter().map(page).collect()
    }

    /// The extent, held still, once the range is known to lie inside it.
    fn within(&self, operation: Operation, span: Span) -> Result<RwLockReadGuard<'_, Extent>> {
        let extent = self.extent.read();
        check_fits(self.inner.name(), extent.len, operation, span)?;
        Ok(extent)
    }

    fn shard(&self, page: u64) -> &Shard {
        &self.shards[index_of(page % u64_of(SHARDS))]
    }

    /// Reads what the device below shows of a range.
    fn read_below(&self, extent: Extent, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let shown = extent.shown.saturating_sub(at).min(Bytes::of(buf.len()));
        let (below, beyond) = buf.split_at_mut(index_of(shown.get()));
        beyond.fill(0);
        if below.is_empty() { Ok(()) } else { self.inner.read_at(at, below) }
    }

    /// Changes a part of one page to `data`, which is as long.
    fn put(&self, extent: Extent, number: u64, within: Range<usize>, data: &[u8]) -> Result<()> {
        let mut shard = self.shard(number).write();
        if let Some(page) = shard.get_mut(&number) {
            Arc::make_mut(page)[within].copy_from_slice(data);
            return Ok(());
        }
        let mut page = [0; PAGE_LEN];
        if within.len() < PAGE_LEN {
            self.read_below(extent, Bytes::new(number * u64_of(PAGE_LEN)), &mut page)?;
        }
        page[within].copy_from_slice(data);
        shard.insert(number, Arc::new(page));
        Ok(())
    }
}

impl<D: Device + Clone> Clone for OverlayDevice<D> {
    /// The same changes over the same device; what is changed from here on is each one's own.
    fn clone(&self) -> Self {
        let extent = self.extent.read();
        let shards = std::array::from_fn(|n| RwLock::new(self.shards[n].read().clone()));
        Self { inner: self.inner.clone(), extent: RwLock::new(*extent), shards }
    }
}

impl<D: Device> Device for OverlayDevice<D> {
    of_inner!(name);

    fn len(&self) -> Bytes {
        self.extent.read().len
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        let extent = self.within(Operation::Read, span)?;
        // Neighbouring pages that were not changed are read from below in one go.
        let mut unchanged = 0..0;
        for piece in span.chunks(PAGE_LEN) {
            if let Some(page) = self.shard(piece.chunk).read().get(&piece.chunk) {
                buf[piece.of_data.clone()].copy_from_slice(&page[piece.within]);
                self.read_below(*extent, at + Bytes::of(unchanged.start), &mut buf[unchanged])?;
                unchanged = piece.of_data.end..piece.of_data.end;
            } else {
                unchanged.end = piece.of_data.end;
            }
        }
        self.read_below(*extent, at + Bytes::of(unchanged.start), &mut buf[unchanged])
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        let extent = self.within(Operation::Write, span)?;
        span.chunks(PAGE_LEN)
            .try_for_each(|piece| self.put(*extent, piece.chunk, piece.within, &data[piece.of_data]))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        let extent = self.within(Operation::Zero, span)?;
        for piece in span.chunks(PAGE_LEN) {
            if piece.within.len() == PAGE_LEN {
                self.shard(piece.chunk).write().insert(piece.chunk, Arc::clone(&ZERO_PAGE));
            } else {
                let zeros = &ZERO_PAGE[..piece.within.len()];
                self.put(*extent, piece.chunk, piece.within, zeros)?;
            }
        }
        Ok(())
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.within(Operation::Discard, Span::new(at, len)).map(|_| ())
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let mut extent = self.extent.write();
        if len < extent.len {
            let page_len = u64_of(PAGE_LEN);
            for shard in &self.shards {
                shard.write().retain(|number, page| {
                    let start = number * page_len;
                    if start < len.get() && len.get() - start < page_len {
                        Arc::make_mut(page)[index_of(len.get() - start)..].fill(0);
                    }
                    start < len.get()
                });
            }
        }
        *extent = Extent { len, shown: extent.shown.min(len) };
        Ok(())
    }

    /// False: what lies below may hold anything.
    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn read<D: Device>(device: &D, at: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0xee; len];
        device.read_at(Bytes::new(at), &mut buf).unwrap();
        buf
    }

    #[test]
    fn changes_show_and_the_device_below_stays() {
        let below = MemoryDevice::from_bytes(&[1; 20_000]);
        let device = OverlayDevice::new(&below);
        device.write_at(Bytes::new(4090), &[2; 10]).unwrap();
        device.zero(Bytes::new(8000), Bytes::new(9000)).unwrap();
        device.discard(Bytes::ZERO, Bytes::new(100)).unwrap();
        device.flush().unwrap();
        let mut expected = vec![1; 20_000];
        expected[4090..4100].fill(2);
        expected[8000..17_000].fill(0);
        assert!(read(&device, 0, 20_000) == expected);
        assert!(read(&device, 4095, 13_000) == expected[4095..17_095]);
        // The last page, of which a part was zeroed, is whole though the device ends in it.
        assert_eq!(device.changed_bytes(), Bytes::kib(20));
        let starts: Vec<u64> = device.changed().iter().map(|span| span.at.get()).collect();
        assert_eq!(starts, [0, 4096, 8192, 12_288, 16_384]);
        assert!(below.to_vec() == [1; 20_000]);
        device.reset();
        assert!(read(&device, 0, 20_000) == [1; 20_000]);
        assert_eq!(device.changed_bytes(), Bytes::ZERO);
    }

    #[test]
    fn a_clone_goes_its_own_way() {
        let below = Arc::new(MemoryDevice::new(Bytes::kib(64)));
        let first = OverlayDevice::new(below);
        first.write_at(Bytes::new(5), b"both").unwrap();
        let second = first.clone();
        first.write_at(Bytes::new(5), b"1").unwrap();
        second.write_at(Bytes::new(8), b"2").unwrap();
        assert_eq!((read(&first, 5, 4), read(&second, 5, 4)), (b"1oth".to_vec(), b"bot2".to_vec()));
    }

    #[test]
    fn zeros_share_one_page_and_part_again_when_written() {
        let device = OverlayDevice::new(MemoryDevice::from_bytes(&[7; 1 << 16]));
        device.zero(Bytes::ZERO, Bytes::kib(64)).unwrap();
        device.write_at(Bytes::kib(4), b"x").unwrap();
        assert_eq!(read(&device, 4096, 2), b"x\0");
        assert!(read(&device, 8192, 8192) == [0; 8192] && read(&device, 0, 4096) == [0; 4096]);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let device = OverlayDevice::new(MemoryDevice::from_bytes(&[7; 10_000]));
        device.write_at(Bytes::new(4096), &[8; 4096]).unwrap();
        device.resize(Bytes::new(5000)).unwrap();
        device.resize(Bytes::new(30_000)).unwrap();
        device.write_at(Bytes::new(9000), b"!").unwrap();
        let expected = [&[7; 4096][..], &[8; 904], &[0; 4000], b"!", &[0; 20_999]].concat();
        assert!(read(&device, 0, 30_000) == expected);
        device.reset();
        assert!(read(&device, 0, 10_000) == [7; 10_000]);
    }
}
