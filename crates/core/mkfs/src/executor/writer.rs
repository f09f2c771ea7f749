//! Writers, one for each thread that renders: they join neighbouring writes, and one of them writes for all.
//!
//! The host serves writers of one file one at a time: the others spin for the inode's lock, on processors
//! that could render. And what the host touches for a write (the pages it makes, where they are listed) lies
//! in the cache of the processor that wrote before. So bytes are handed over ([`Out`]): a thread that finds
//! no writer writes, including what others hand over meanwhile, and the others continue rendering, until so
//! much waits that rendering more would only fill memory.
//!
//! Invariant: while something waits, a thread writes; that is decided under one lock. So nothing is left
//! behind when all threads have handed over what they had and returned.
//!
//! An error is returned to the thread that wrote, even if another rendered the bytes. What waits then is
//! dropped, and so are later bytes: the other threads end as usual, without an error, so everything is
//! written only if none had one. The same applies if the device panics. Zeros bypass all this and go to the
//! device at once.

use crate::error::Result;
use crate::write::{Payload, Write};
use hectare_device::Device;
use hectare_units::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;

/// Writes are joined to batches of at most this many bytes.
const BATCH: usize = 128 << 10;
/// A write of this many bytes goes by itself: copying it into a batch would cost more than handing it over.
const ALONE: usize = 16 << 10;
/// Batches that may wait.
const WAITING_MAX: usize = 16;

/// Writes that wait.
#[derive(Default)]
struct Batch {
    /// Neighbours side by side.
    bytes: Vec<u8>,
    /// Where each run of neighbours belongs, and where in `bytes` it begins; in the order they were put.
    runs: Vec<(Bytes, usize)>,
}

impl Batch {
    /// One that is this write.
    fn of(at: Bytes, bytes: Vec<u8>) -> Self {
        Self { bytes, runs: vec![(at, 0)] }
    }

    fn put(&mut self, at: Bytes, bytes: &[u8]) {
        let joins = |(start, from): &(Bytes, usize)| *start + Bytes::of(self.bytes.len() - from) == at;
        if !self.runs.last().is_some_and(joins) {
            self.runs.push((at, self.bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn write(&self, device: &dyn Device) -> Result<()> {
        let ends = self.runs.iter().skip(1).map(|(_, from)| *from).chain([self.bytes.len()]);
        for ((at, from), end) in self.runs.iter().zip(ends) {
            device.write_at(*at, &self.bytes[*from..end])?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.bytes.clear();
    }
}

/// Where all writers bring their batches.
pub(crate) struct Out<'a> {
    device: &'a dyn Device,
    zeroed: bool,
    state: Mutex<State>,
    /// Few batches wait.
    room: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Batch>,
    /// Empty ones, whose memory is used again.
    spare: Vec<Batch>,
    /// A thread is writing what waits.
    is_writing: bool,
    has_failed: bool,
}

impl<'a> Out<'a> {
    /// For a device; `zeroed` says that it reads as zeros where nothing was written.
    pub(crate) fn new(device: &'a dyn Device, zeroed: bool) -> Self {
        Self { device, zeroed, state: Mutex::default(), room: Condvar::new() }
    }

    /// One for a thread. What is put into it is written only when it is [flushed](Writer::flush).
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { out: self, batch: Batch::default() }
    }

    /// Takes a batch, and gives an empty one; returns when others write it, or when all that waits is
    /// written.
    fn take(&self, batch: Batch) -> Result<Batch> {
        let mut state = self.state.lock();
        while state.waiting.len() == WAITING_MAX {
            self.room.wait(&mut state);
        }
        if state.has_failed {
            return Ok(Batch::default());
        }
        state.waiting.push_back(batch);
        if !std::mem::replace(&mut state.is_writing, true) {
            state = self.write_waiting(state)?;
            state.is_writing = false;
        }
        Ok(state.spare.pop().unwrap_or_default())
    }

    /// Writes until nothing waits.
    fn write_waiting<'s>(&'s self, mut state: MutexGuard<'s, State>) -> Result<MutexGuard<'s, State>> {
        while let Some(mut batch) = state.waiting.pop_front() {
            // One at a time would be woken for each batch; so a waiter gets room for many.
            if state.waiting.len() == WAITING_MAX / 4 {
                self.room.notify_all();
            }
            drop(state);
            let failing = Failing(self);
            batch.write(self.device)?;
            std::mem::forget(failing);
            batch.clear();
            state = self.state.lock();
            state.spare.push(batch);
        }
        Ok(state)
    }
}

/// Ends all writing when it is dropped.
struct Failing<'a>(&'a Out<'a>);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_failed = true;
        state.waiting.clear();
        self.0.room.notify_all();
    }
}

/// Joins the writes of one thread.
pub(crate) struct Writer<'a> {
    out: &'a Out<'a>,
    batch: Batch,
}

impl Writer<'_> {
    /// Takes a write that is made some time before the last thread has [flushed](Self::flush).
    ///
    /// # Errors
    /// If the device failed, at this or another thread's write.
    pub(crate) fn put(&mut self, write: Write) -> Result<()> {
        match write.payload {
            Payload::Zeros(_) if self.out.zeroed => Ok(()),
            Payload::Zeros(len) => Ok(self.out.device.zero(write.at, len)?),
            Payload::Bytes(bytes) if bytes.len() >= ALONE => {
                self.flush()?;
                self.batch = Batch::of(write.at, bytes);
                self.flush()
            }
            Payload::Bytes(bytes) => {
                if self.batch.bytes.len() + bytes.len() > BATCH {
                    self.flush()?;
                }
                self.batch.put(write.at, &bytes);
                Ok(())
            }
        }
    }

    /// Hands over the current batch. It is written when all threads have flushed without an error.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.batch.runs.is_empty() {
            return Ok(());
        }
        self.batch = self.out.take(std::mem::take(&mut self.batch))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::{FaultDevice, MemoryDevice, Operation, Outcome, Rule};
    use hectare_units::{index_of, low32};

    const THREADS: u64 = 4;
    /// Each thread puts this many pieces, in pairs of neighbours: many more bytes than may wait.
    const PIECES: u64 = 2000;
    const PIECE: u64 = 4096;

    /// Where a thread's piece lies, and its bytes.
    fn piece(thread: u64, nr: u64) -> (Bytes, Vec<u8>) {
        let at = ((nr / 2 * THREADS + thread) * 2 + nr % 2) * PIECE;
        (Bytes::new(at), low32(at).to_le_bytes().repeat(index_of(PIECE / 4)))
    }

    /// What came of every thread that put all its pieces.
    fn put_all(device: &dyn Device) -> Vec<Result<()>> {
        let out = Out::new(device, true);
        let work = |thread| {
            let mut writer = out.writer();
            for (at, bytes) in (0..PIECES).map(|nr| piece(thread, nr)) {
                writer.put(Write { at, payload: Payload::Bytes(bytes) })?;
            }
            writer.flush()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn what_all_threads_put_is_written() {
        let device = MemoryDevice::new(Bytes::new(THREADS * PIECES * PIECE));
        put_all(&device).into_iter().for_each(|result| result.unwrap());
        let mut found = vec![0; index_of(PIECE)];
        for (at, bytes) in (0..THREADS).flat_map(|thread| (0..PIECES).map(move |nr| piece(thread, nr))) {
            device.read_at(at, &mut found).unwrap();
            assert!(found == bytes, "at {at}");
        }
    }

    /// A device on which every write panics.
    struct Panics(MemoryDevice);

    impl Device for Panics {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn len(&self) -> Bytes {
            self.0.len()
        }
        fn read_at(&self, at: Bytes, buf: &mut [u8]) -> hectare_device::Result<()> {
            self.0.read_at(at, buf)
        }
        fn write_at(&self, _: Bytes, _: &[u8]) -> hectare_device::Result<()> {
            panic!("on purpose")
        }
        fn flush(&self) -> hectare_device::Result<()> {
            self.0.flush()
        }
        fn zero(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
            self.0.zero(at, len)
        }
        fn discard(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
            self.0.discard(at, len)
        }
        fn resize(&self, len: Bytes) -> hectare_device::Result<()> {
            self.0.resize(len)
        }
        fn is_zeroed(&self) -> bool {
            self.0.is_zeroed()
        }
        fn is_read_only(&self) -> bool {
            self.0.is_read_only()
        }
    }

    #[test]
    fn a_panic_keeps_nobody_waiting() {
        let device = Panics(MemoryDevice::new(Bytes::new(THREADS * PIECES * PIECE)));
        let put = std::panic::AssertUnwindSafe(|| put_all(&device));
        assert!(std::panic::catch_unwind(put).is_err());
    }

    #[test]
    fn an_error_is_told_once_and_keeps_nobody_waiting() {
        for after in [0, 1, 50, 3000] {
            let device = FaultDevice::new(MemoryDevice::new(Bytes::new(THREADS * PIECES * PIECE)));
            device.add(Rule::new(Outcome::IO).on(&[Operation::Write]).after(after));
            let failed = put_all(&device).into_iter().filter(Result::is_err).count();
            assert_eq!((failed, device.strikes()), (1, 1), "after {after} writes");
        }
    }
}
