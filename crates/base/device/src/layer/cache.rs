//! A cache for devices of which each operation costs a round trip: exports of servers.
//!
//! - *Reads* are kept in pages, up to a bound; of reads that follow each other, more is fetched than was asked for
//!   ([`streams`]).
//! - *Writes* are buffered ([`buffered`]) and done later: adjacent ones as one, several at a time. A flush does
//!   all of them before it flushes the device below.
//!
//! What a crash leaves is something that it could have left without this layer: a write that has not reached the
//! device is a write that was lost, and until a flush any may be. A durable write is done at once; that is all it
//! promises. Nothing buffered before a flush is done after it.
//!
//! Invariants:
//! - A page has what the device would have if all buffered writes were done. It is changed where the write is
//!   buffered, or after the device was changed.
//! - A *fill* (a read of the device that makes pages) is thrown away if a change of its range began before it
//!   ended, or had not ended when it began.
//! - Of two changes of the same bytes, the older has ended on the device before the newer begins.
//!
//! Hazards:
//! - *Late errors.* A buffered write that fails is reported by the next change or flush, and then by all of them:
//!   what the device holds is not known any more.
//! - *One user.* Changes that others make to the storage are not seen, but by [`Device::read_fresh`]. With a fence
//!   ([`Device::add_fence`]) the device begins to be one's own: nothing from before is kept.
//! - Dropping the device does what was buffered, but nobody learns whether that failed: flush before.

mod buffered;
mod pages;
mod streams;

use crate::device::{check_change, check_range, copy_through_memory, of_inner, total_len};
use crate::os::BorrowedFd;
use crate::{Device, Error, Extent, Fence, Operation, Result, Span};
use buffered::Buffered;
use hectare_units::{Bytes, index_of, u64_of};
use pages::Pages;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use streams::Streams;

/// The least size of a page.
const PAGE: u64 = 4096;

/// Reads of this length and more are not kept: they would push everything else out.
const LARGE: usize = 256 << 10;

/// How many writes are under way at once.
const WRITERS: usize = 8;

/// How much a [`CacheDevice`] keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// The bytes of memory in all, about.
    pub bytes: usize,
    /// The most bytes that are fetched at once of reads that follow each other; zero for no more than is asked.
    pub read_ahead: usize,
    /// The bytes of writes that are buffered before they are done; zero if each is to be done at once.
    pub buffer: usize,
}

impl CacheLimits {
    /// Limits that suit a number of bytes in all: at most half of them, and 8 MiB, for writes.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        // Writes that are under way are kept beside those that are buffered.
        Self { bytes, read_ahead: (bytes / 16).min(1 << 20), buffer: (bytes / 4).min(8 << 20) }
    }

    fn pages(&self) -> usize {
        self.bytes.saturating_sub(2 * self.buffer)
    }
}

/// What a [`CacheDevice`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Reads that were answered from memory.
    pub hits: u64,
    /// Reads that needed the device.
    pub misses: u64,
    /// The bytes that were read from the device.
    pub fetched: Bytes,
    /// Writes that were buffered.
    pub buffered: u64,
    /// The writes of the device that they became.
    pub written: u64,
}

#[derive(Default)]
struct Tally {
    hits: AtomicU64,
    misses: AtomicU64,
    fetched: AtomicU64,
    buffered: AtomicU64,
    written: AtomicU64,
}

impl Tally {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// A device with a cache over it.
pub struct CacheDevice<D: Device> {
    inner: D,
    limits: CacheLimits,
    page: u64,
    state: Mutex<State>,
    /// Told when writes or changes have ended.
    ended: Condvar,
    /// Held by the thread that does the buffered writes.
    writing: Mutex<()>,
    tally: Tally,
    at_end: Option<AtEnd<D>>,
}

/// What is called when a cache ends.
type AtEnd<D> = Box<dyn FnOnce(&D, CacheCounters) + Send + Sync>;

struct State {
    pages: Pages,
    streams: Streams,
    /// What is to be written.
    buffered: Buffered,
    /// What is being written, older than what is buffered.
    under_way: Arc<Buffered>,
    /// Other changes that are under way.
    changes: Vec<Span>,
    fills: Vec<(Span, Arc<AtomicBool>)>,
    /// The first failure of a buffered write.
    failed: Option<Error>,
}

fn overlap(a: Span, b: Span) -> bool {
    // Both lie inside the device, so their ends are numbers.
    let end = |span: Span| span.at.get() + span.len.get();
    a.at.get() < end(b) && b.at.get() < end(a)
}

impl State {
    /// What was read of a range before now is not what it holds.
    fn spoil_fills(&self, span: Span) {
        self.fills.iter().filter(|(other, _)| overlap(*other, span)).for_each(|(_, good)| {
            good.store(false, Ordering::Relaxed);
        });
    }

    /// The bytes of a range that are not on the device yet, oldest first.
    fn ahead_of_device(&self, span: Span) -> Vec<(u64, Vec<u8>)> {
        let mut parts = self.under_way.within(span);
        parts.extend(self.buffered.within(span));
        parts
    }
}

/// Lays parts over what was read of a range.
fn lay_over(parts: &[(u64, Vec<u8>)], at: Bytes, buf: &mut [u8]) {
    for (place, bytes) in parts {
        let from = index_of(place - at.get());
        buf[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

impl<D: Device> CacheDevice<D> {
    /// Puts a cache over a device that nobody else changes.
    #[must_use]
    pub fn new(inner: D, limits: CacheLimits) -> Self {
        let page = PAGE.max(inner.alignment().into());
        let state = State {
            pages: Pages::new(index_of(page), limits.pages()),
            streams: Streams::new(limits.read_ahead),
            buffered: Buffered::default(),
            under_way: Arc::default(),
            changes: Vec::new(),
            fills: Vec::new(),
            failed: None,
        };
        let (state, ended, writing) = (Mutex::new(state), Condvar::new(), Mutex::new(()));
        Self { inner, limits, page, state, ended, writing, tally: Tally::default(), at_end: None }
    }

    /// Calls `tell` with the device below and the final counters when the cache is dropped.
    #[must_use]
    pub fn at_end(self, tell: impl FnOnce(&D, CacheCounters) + Send + Sync + 'static) -> Self
    where
        D: 'static,
    {
        let mut this = self;
        this.at_end = Some(Box::new(tell));
        this
    }

    /// The device below, which lacks what is buffered.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let Tally { hits, misses, fetched, buffered, written } = &self.tally;
        CacheCounters {
            hits: load(hits),
            misses: load(misses),
            fetched: Bytes::new(load(fetched)),
            buffered: load(buffered),
            written: load(written),
        }
    }

    /// The state, unless a buffered write has failed.
    fn unfailed(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        match &state.failed {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }

    /// The pages that a range touches, as far as the device goes.
    fn whole_pages(&self, span: Span) -> Span {
        let start = span.at.get() / self.page * self.page;
        let end = (span.at.get() + span.len.get()).next_multiple_of(self.page).min(self.inner.len().get());
        Span::new(Bytes::new(start), Bytes::new(end - start))
    }

    /// Reads from the device what is not in memory, and keeps it.
    fn fill(&self, mut state: MutexGuard<'_, State>, wanted: Span, buf: &mut [u8]) -> Result<()> {
        let ahead = state.streams.ahead(wanted);
        let longest = self.inner.len() - wanted.at;
        let long = Span::new(wanted.at, wanted.len.max(Bytes::new(u64_of(ahead))).min(longest));
        let span = self.whole_pages(long);
        let good = Arc::new(AtomicBool::new(!state.changes.iter().any(|other| overlap(*other, span))));
        state.fills.push((span, Arc::clone(&good)));
        let parts = state.ahead_of_device(span);
        drop(state);
        let mut bytes = vec![0; index_of(span.len.get())];
        let read = self.inner.read_at(span.at, &mut bytes);
        let mut state = self.state.lock();
        state.fills.retain(|(_, other)| !Arc::ptr_eq(other, &good));
        read?;
        lay_over(&parts, span.at, &mut bytes);
        if good.load(Ordering::Relaxed) {
            state.pages.insert(span, &bytes);
        }
        drop(state);
        Tally::add(&self.tally.fetched, span.len.get());
        let from = index_of((wanted.at - span.at).get());
        buf.copy_from_slice(&bytes[from..from + buf.len()]);
        Ok(())
    }

    /// Reads from the device alone, and keeps nothing.
    fn read_past(&self, state: MutexGuard<'_, State>, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let parts = state.ahead_of_device(Span::new(at, Bytes::of(buf.len())));
        drop(state);
        self.inner.read_at(at, buf)?;
        lay_over(&parts, at, buf);
        Tally::add(&self.tally.fetched, u64_of(buf.len()));
        Ok(())
    }

    /// Gathers a write.
    fn buffer(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        let full = {
            let mut state = self.unfailed()?;
            // A change of these bytes that is under way is older.
            while state.changes.iter().any(|other| overlap(*other, span)) {
                self.ended.wait(&mut state);
            }
            state.spoil_fills(span);
            let mut at = at.get();
            for part in parts {
                state.pages.change(at, part);
                state.buffered.put(at, part);
                at += u64_of(part.len());
            }
            state.buffered.bytes() > self.limits.buffer
        };
        Tally::add(&self.tally.buffered, 1);
        if full { self.write_buffered() } else { Ok(()) }
    }

    /// Does what was buffered, and waits for what another thread does of it.
    fn write_buffered(&self) -> Result<()> {
        let _alone = self.writing.lock();
        let batch = {
            let mut state = self.unfailed()?;
            state.under_way = Arc::new(std::mem::take(&mut state.buffered));
            Arc::clone(&state.under_way)
        };
        let runs = batch.runs();
        Tally::add(&self.tally.written, u64_of(runs.len()));
        let written = self.write_runs(&runs);
        let mut state = self.state.lock();
        if let Err(error) = &written {
            // Nobody is to read what may not be there.
            state.pages.clear();
            state.failed.get_or_insert_with(|| error.clone());
        }
        state.under_way = Arc::default();
        drop(state);
        self.ended.notify_all();
        written
    }

    /// Writes runs, several at a time.
    fn write_runs(&self, runs: &[buffered::Run<'_>]) -> Result<()> {
        let next = AtomicU64::new(0);
        let work = || loop {
            let turn = index_of(next.fetch_add(1, Ordering::Relaxed));
            let Some(run) = runs.get(turn) else { return Ok(()) };
            self.inner.write_all_at(run.at, &run.parts)?;
        };
        if runs.len() < 2 {
            return work();
        }
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..runs.len().min(WRITERS)).map(|_| scope.spawn(work)).collect();
            let mine = work();
            let theirs = others.into_iter().map(|other| match other.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            theirs.fold(mine, Result::and)
        })
    }

    /// Makes a change of the device itself. It comes after older writes of the same bytes; `keep` changes what is
    /// in memory if it succeeds.
    fn change(
        &self,
        span: Span,
        change: impl FnOnce() -> Result<()>,
        keep: impl FnOnce(&mut Pages),
    ) -> Result<()> {
        {
            let mut state = self.unfailed()?;
            let in_the_way = |state: &State| {
                state.under_way.touches(span) || state.changes.iter().any(|other| overlap(*other, span))
            };
            while in_the_way(&state) {
                self.ended.wait(&mut state);
            }
            state.buffered.cut(span);
            state.spoil_fills(span);
            state.changes.push(span);
        }
        let changed = change();
        let mut state = self.state.lock();
        if let Some(mine) = state.changes.iter().position(|other| *other == span) {
            state.changes.swap_remove(mine);
        }
        match &changed {
            Ok(()) => keep(&mut state.pages),
            Err(_) => state.pages.remove(span),
        }
        drop(state);
        self.ended.notify_all();
        changed
    }
}

impl<D: Device> Device for CacheDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, is_read_only, alignment);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        if buf.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if buf.len() >= LARGE {
            Tally::add(&self.tally.misses, 1);
            return self.read_past(state, at, buf);
        }
        if state.pages.read(at.get(), buf) {
            state.streams.note(span);
            Tally::add(&self.tally.hits, 1);
            return Ok(());
        }
        Tally::add(&self.tally.misses, 1);
        self.fill(state, span, buf)
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        let mut state = self.state.lock();
        state.pages.remove(span);
        state.spoil_fills(span);
        let parts = state.ahead_of_device(span);
        drop(state);
        self.inner.read_fresh(at, buf)?;
        lay_over(&parts, at, buf);
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.write_all_at(at, &[IoSlice::new(data)])
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        if span.len == Bytes::ZERO {
            return Ok(());
        }
        if span.len.get() < u64_of(self.limits.buffer / 2) {
            return self.buffer(at, parts);
        }
        self.change(span, || self.inner.write_all_at(at, parts), |pages| pages.change_parts(at.get(), parts))
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        self.change(span, || self.inner.write_durable(at, parts), |pages| pages.change_parts(at.get(), parts))
    }

    fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return self.inner.flush();
        }
        self.write_buffered()?;
        self.inner.flush()
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        self.change(span, || self.inner.zero(at, len), |pages| pages.zero(span))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Discard, span)?;
        self.change(span, || self.inner.discard(at, len), |pages| pages.remove(span))
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        check_change(self, Operation::Copy, Span::new(at, len))?;
        copy_through_memory(self, at, source, source_at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.write_buffered()?;
        let all = Span::new(Bytes::ZERO, self.inner.len().max(len));
        self.change(all, || self.inner.resize(len), |pages| pages.clear())
    }

    fn add_fence(&self, at: Bytes, fence: &Arc<dyn Fence>) {
        self.inner.add_fence(at, fence);
        let mut state = self.state.lock();
        state.pages.clear();
        state.spoil_fills(Span::new(Bytes::ZERO, self.inner.len()));
    }

    fn remove_fence(&self, fence: &Arc<dyn Fence>) {
        self.inner.remove_fence(fence);
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        check_range(self, Operation::Read, span)?;
        let first = {
            let state = self.state.lock();
            [state.buffered.first(span), state.under_way.first(span)]
                .into_iter()
                .flatten()
                .min_by_key(|s| s.at)
        };
        match first {
            Some(data) if data.at <= at => Ok(Extent::data(data.len.min(len))),
            Some(data) => self.inner.extent_at(at, data.at - at),
            None => self.inner.extent_at(at, len),
        }
    }
}

impl<D: Device> Drop for CacheDevice<D> {
    fn drop(&mut self) {
        // Where it matters, it was flushed.
        let _ = self.write_buffered();
        if let Some(tell) = self.at_end.take() {
            tell(&self.inner, self.counters());
        }
    }
}

#[cfg(test)]
mod tests;
