//! The overlay that a repair works on: every change is kept, and the device below stays as it is.
//!
//! Changes lie in pages of a [`PageStore`]. Which there are is known by regions of sixteen neighbouring
//! pages, since what a repair changes lies together: some five bytes of memory for each page of an inode
//! table, and about a hundred for one that has no neighbours. Pages of zeros are none of the store's.
//!
//! Hazards:
//! - *The device below must not change.* What was not changed here is read from it, each time.
//! - *Flushing makes nothing durable*, and a discard changes nothing.
//!
//! What this is not: the overlay of the device crate, which is made to be cloned and to be used by many
//! threads, and is in memory.

use crate::stage::pages::{NUMBERS_END, PAGE_LEN, Page, PageStore};
use hectare_device::{Device, Error, Operation, Reason, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Pages of a region.
const REGION: u64 = 16;
/// In place of a page's number: it was not changed.
const NONE: u32 = NUMBERS_END;
/// It is all zeros.
const ZEROS: u32 = NUMBERS_END + 1;

/// A device whose changes are kept aside.
pub struct Overlay {
    inner: Arc<dyn Device>,
    store: Arc<PageStore>,
    state: RwLock<State>,
}

struct State {
    len: Bytes,
    /// The least length there ever was: what lay beyond it was truncated, and is zero if it came back.
    shown: Bytes,
    regions: HashMap<u64, [u32; 16]>,
}

/// Which pages of a region were changed: its number, and a bit for each page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    pub(crate) region: u64,
    pub(crate) pages: u16,
}

impl Changed {
    /// The pages, in ascending order.
    pub(crate) fn spans(self) -> impl Iterator<Item = Span> {
        let start = self.region * REGION;
        let pages = (0..REGION).filter(move |index| self.pages >> index & 1 == 1);
        pages.map(move |index| Span::new(offset(start + index), Bytes::of(PAGE_LEN)))
    }
}

/// Where a page begins.
fn offset(page: u64) -> Bytes {
    Bytes::new(page.saturating_mul(u64_of(PAGE_LEN)))
}

impl State {
    fn page(&self, number: u64) -> u32 {
        self.regions.get(&(number / REGION)).map_or(NONE, |region| region[index_of(number % REGION)])
    }

    /// Notes where a page is, and gives where it was.
    fn set(&mut self, number: u64, page: u32) -> u32 {
        let region = self.regions.entry(number / REGION).or_insert([NONE; 16]);
        std::mem::replace(&mut region[index_of(number % REGION)], page)
    }

    fn check(&self, name: &str, operation: Operation, span: Span) -> Result<()> {
        if span.fits(self.len) {
            return Ok(());
        }
        Err(Error::new(name, operation, Some(span), Reason::OutOfRange(self.len)))
    }
}

impl Overlay {
    /// Lays an overlay without changes over `inner`, which is never changed through it. Changes are kept in
    /// memory.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::within(inner, Arc::new(PageStore::in_memory()))
    }

    /// Likewise; changes are kept in `store`.
    #[must_use]
    pub fn within(inner: Arc<dyn Device>, store: Arc<PageStore>) -> Self {
        let len = inner.len();
        let state = RwLock::new(State { len, shown: len, regions: HashMap::new() });
        Self { inner, store, state }
    }

    /// The device below, without the changes.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }

    /// Where changes are kept.
    #[must_use]
    pub fn store(&self) -> &Arc<PageStore> {
        &self.store
    }

    /// What was changed, in ascending order. What was written may be what was there.
    pub(crate) fn changed(&self) -> Vec<Changed> {
        let state = self.state.read();
        let mut all: Vec<Changed> = state
            .regions
            .iter()
            .map(|(region, pages)| {
                let bits = (0..).zip(pages).filter(|(_, page)| **page != NONE);
                Changed { region: *region, pages: bits.fold(0, |bits, (index, _)| bits | 1 << index) }
            })
            .collect();
        all.sort_unstable_by_key(|changed| changed.region);
        all
    }

    /// Reads what the device below shows of a range.
    fn read_below(&self, state: &State, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let shown = state.shown.saturating_sub(at).min(Bytes::of(buf.len()));
        let (below, beyond) = buf.split_at_mut(index_of(shown.get()));
        beyond.fill(0);
        if below.is_empty() { Ok(()) } else { self.inner.read_at(at, below) }
    }

    /// Changes a part of one page to `data`.
    fn put(&self, state: &mut State, piece: Span, data: &[u8]) -> Result<()> {
        let number = piece.at.get() / u64_of(PAGE_LEN);
        let from = index_of(piece.at.get() % u64_of(PAGE_LEN));
        let within = from..from + data.len();
        let known = state.page(number);
        if known < NUMBERS_END {
            return self.store.change(known, |page| page[within].copy_from_slice(data));
        }
        let mut page: Page = [0; PAGE_LEN];
        if known == NONE && data.len() < PAGE_LEN {
            self.read_below(state, offset(number), &mut page)?;
        }
        page[within].copy_from_slice(data);
        let made = self.store.add(&page)?;
        state.set(number, made);
        Ok(())
    }
}

impl Drop for Overlay {
    /// Gives its pages back.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let pages = state.regions.values().flatten().copied();
        pages.filter(|page| *page < NUMBERS_END).for_each(|page| self.store.remove(page));
    }
}

impl Device for Overlay {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Bytes {
        self.state.read().len
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        let state = self.state.read();
        state.check(self.name(), Operation::Read, span)?;
        // Neighbouring pages that were not changed are read from below in one go.
        let (mut unchanged, mut done) = (0..0, 0);
        for piece in span.pieces(u64_of(PAGE_LEN)) {
            let target = done..done + index_of(piece.len.get());
            done = target.end;
            let page = state.page(piece.at.get() / u64_of(PAGE_LEN));
            if page == NONE {
                unchanged.end = done;
                continue;
            }
            self.read_below(&state, at + Bytes::of(unchanged.start), &mut buf[unchanged])?;
            unchanged = done..done;
            if page == ZEROS {
                buf[target].fill(0);
                continue;
            }
            let from = index_of(piece.at.get() % u64_of(PAGE_LEN));
            let target = &mut buf[target];
            self.store.read(page, |page| target.copy_from_slice(&page[from..from + target.len()]))?;
        }
        self.read_below(&state, at + Bytes::of(unchanged.start), &mut buf[unchanged])
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        let mut state = self.state.write();
        state.check(self.name(), Operation::Write, span)?;
        let mut rest = data;
        for piece in span.pieces(u64_of(PAGE_LEN)) {
            let (part, after) = rest.split_at(index_of(piece.len.get()));
            self.put(&mut state, piece, part)?;
            rest = after;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        const NOTHING: Page = [0; PAGE_LEN];
        let span = Span::new(at, len);
        let mut state = self.state.write();
        state.check(self.name(), Operation::Zero, span)?;
        for piece in span.pieces(u64_of(PAGE_LEN)) {
            if piece.len != Bytes::of(PAGE_LEN) {
                self.put(&mut state, piece, &NOTHING[..index_of(piece.len.get())])?;
                continue;
            }
            let before = state.set(piece.at.get() / u64_of(PAGE_LEN), ZEROS);
            if before < NUMBERS_END {
                self.store.remove(before);
            }
        }
        Ok(())
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.state.read().check(self.name(), Operation::Discard, Span::new(at, len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let mut state = self.state.write();
        if len < state.len {
            let (last, kept) = (len.get() / u64_of(PAGE_LEN), index_of(len.get() % u64_of(PAGE_LEN)));
            for (region, pages) in &mut state.regions {
                for (number, page) in (region * REGION..).zip(pages.iter_mut()) {
                    if number == last && kept > 0 && *page < NUMBERS_END {
                        self.store.change(*page, |page| page[kept..].fill(0))?;
                    } else if number > last || number == last && kept == 0 {
                        let cut = std::mem::replace(page, NONE);
                        if cut < NUMBERS_END {
                            self.store.remove(cut);
                        }
                    }
                }
            }
            state.regions.retain(|_, pages| pages.iter().any(|page| *page != NONE));
        }
        (state.len, state.shown) = (len, state.shown.min(len));
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
    use hectare_device::{MemoryDevice, OverlayDevice};
    use hectare_units::random::SplitMix64 as Random;

    fn read(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0xee; len];
        device.read_at(Bytes::new(at), &mut buf).unwrap();
        buf
    }

    fn starts(overlay: &Overlay) -> Vec<u64> {
        overlay.changed().into_iter().flat_map(Changed::spans).map(|span| span.at.get()).collect()
    }

    #[test]
    fn changes_show_and_the_device_below_stays() {
        let below = Arc::new(MemoryDevice::from_bytes(&[1; 20_000]));
        let device = Overlay::new(Arc::clone(&below) as Arc<dyn Device>);
        device.write_at(Bytes::new(4090), &[2; 10]).unwrap();
        device.zero(Bytes::new(8000), Bytes::new(9000)).unwrap();
        device.discard(Bytes::ZERO, Bytes::new(100)).unwrap();
        let mut expected = vec![1; 20_000];
        expected[4090..4100].fill(2);
        expected[8000..17_000].fill(0);
        assert!(read(&device, 0, 20_000) == expected);
        assert!(read(&device, 4095, 13_000) == expected[4095..17_095]);
        assert_eq!(starts(&device), [0, 4096, 4096 * 2, 4096 * 3, 4096 * 4]);
        assert!(below.to_vec() == [1; 20_000]);
        assert!(device.write_at(Bytes::new(19_999), b"ab").is_err());
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let device = Overlay::new(Arc::new(MemoryDevice::from_bytes(&[7; 10_000])));
        device.write_at(Bytes::new(4096), &[8; 4096]).unwrap();
        device.resize(Bytes::new(5000)).unwrap();
        device.resize(Bytes::new(30_000)).unwrap();
        device.write_at(Bytes::new(9000), b"!").unwrap();
        let expected = [&[7; 4096][..], &[8; 904], &[0; 4000], b"!", &[0; 20_999]].concat();
        assert!(read(&device, 0, 30_000) == expected);
    }

    /// With few frames it is the overlay in memory, whatever happens to both.
    #[test]
    fn it_is_the_overlay_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| hectare_units::low8(u64::from(at / 7))).collect();
        let below: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let model = OverlayDevice::new(Arc::clone(&below));
        let store = Arc::new(PageStore::within(Bytes::ZERO, folder.path().to_owned()));
        let device = Overlay::within(below, Arc::clone(&store));
        let mut random = Random::new(11);
        for step in 0..4000 {
            let len = device.len().get();
            let at = Bytes::new(random.below(len));
            let count = random.below(if step % 9 == 0 { 60_000 } else { 5000 }).min(len - at.get());
            match random.below(40) {
                0 => {
                    let to = Bytes::new(1_000_000 + random.below(3_000_000));
                    device.resize(to).unwrap();
                    model.resize(to).unwrap();
                }
                1..4 => {
                    device.zero(at, Bytes::new(count)).unwrap();
                    model.zero(at, Bytes::new(count)).unwrap();
                }
                4..25 => {
                    let data = vec![hectare_units::low8(random.below(256)); index_of(count)];
                    device.write_at(at, &data).unwrap();
                    model.write_at(at, &data).unwrap();
                }
                _ => assert!(
                    read(&device, at.get(), index_of(count)) == read(&model, at.get(), index_of(count))
                ),
            }
        }
        assert!(store.has_spilled());
        assert!(
            read(&device, 0, index_of(device.len().get())) == read(&model, 0, index_of(model.len().get()))
        );
        let expected: Vec<u64> = model.changed().iter().map(|span| span.at.get()).collect();
        assert_eq!(starts(&device), expected);
    }
}
