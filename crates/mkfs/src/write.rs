//! What carrying out a plan takes, whatever the format: threads that each take the next chunk, and writers
//! that join neighbouring writes and take turns.
//!
//! Order matters only at both ends: old signatures are wiped first ([`wipe`]), so that a format that is cut
//! short leaves nothing that could be taken for the old volume, and the primary superblock is written last
//! ([`seal`]), after everything else is durable, so that a half-made volume is never taken for a whole one.
//! Meanwhile its place holds a mark that says what happened, for whoever opens the device next.

use crate::error::Result;
use crate::plan::{Payload, Write};
use crate::run::{Run, Step};
use hectare_device::Device;
use hectare_ext4::superblock::UNFINISHED;
use hectare_units::{Bytes, index_of, usize_of};
use hectare_xfs::superblock::copies;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes wiped at either end: signatures of other formats lie within the first 68 KiB, copies of some at the
/// end.
const WIPE: Bytes = Bytes::kib(128);
/// Bytes that a thread may render ahead of what is written.
const AHEAD: usize = 512 << 10;
/// Bytes from which on a thread looks whether it may write them.
const WORTH_A_TURN: usize = 64 << 10;
/// Bytes zeroed of an old superblock: the largest sector that one can have.
const SUPERBLOCK_MAX: u64 = 32 << 10;

/// Bytes given up at a time, at least, and such pieces at most: some devices take seconds for one.
const DISCARD: u64 = 2 << 30;
const DISCARDS_MAX: u64 = 1024;

/// Has every chunk from 0 on rendered once, by as many threads as the run has, with a writer each.
///
/// # Errors
/// The first that a chunk gave; the others are then cut short.
pub(crate) fn each_chunk(
    device: &dyn Device,
    zeroed: bool,
    (chunks, run): (u32, Run<'_>),
    one: &(dyn Fn(u32, &mut Writer<'_>) -> Result<()> + Sync),
) -> Result<()> {
    let (next, done, turn) = (AtomicU32::new(0), AtomicU32::new(0), Mutex::new(()));
    let work = || {
        let mut writer = Writer::new(device, zeroed, &turn);
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return writer.flush();
            }
            if let Err(error) = one(chunk, &mut writer) {
                next.store(chunks, Ordering::Relaxed); // the others need not go on
                return Err(error);
            }
            let before = done.fetch_add(1, Ordering::Relaxed);
            run.tell(Step::Write, u64::from(before) + 1, chunks.into());
        }
    };
    let results = std::thread::scope(|scope| {
        let threads = run.threads.clamp(1, usize_of(chunks.max(1)));
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = vec![work()];
        for worker in workers {
            results.push(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.into_iter().collect()
}

/// Zeros both ends of the device, where signatures lie, and of an old XFS volume the two superblock copies
/// that repair would go by, unless the device is known to read as zeros anyway. Then marks the place of the
/// superblock.
pub(crate) fn wipe(device: &dyn Device, zeroed: bool, superblock: Bytes) -> Result<()> {
    if zeroed {
        return Ok(device.write_at(superblock, UNFINISHED)?);
    }
    let len = device.len();
    let head = WIPE.min(len);
    for at in old_copies(device)? {
        device.zero(at, Bytes::new(SUPERBLOCK_MAX.min(len.get() - at.get())))?;
    }
    device.zero(Bytes::ZERO, head)?;
    let tail = head.get().max(len.get().saturating_sub(WIPE.get()));
    if tail < len.get() {
        device.zero(Bytes::new(tail), len - Bytes::new(tail))?;
    }
    device.write_at(superblock, UNFINISHED)?;
    device.flush()?;
    Ok(())
}

/// Gives up what a [wiped](wipe) device holds up to the volume's `end`; whether all of that now reads as
/// zeros. A device that fails at it is one that can't: many do, and writing will show whether it is broken.
pub(crate) fn discard(device: &dyn Device, end: Bytes, run: Run<'_>) -> bool {
    let (len, start) = (end.get(), WIPE.min(end).get());
    let piece = DISCARD.max(len / DISCARDS_MAX);
    let mut at = start;
    while at < len {
        let piece = piece.min(len - at);
        if device.discard(Bytes::new(at), Bytes::new(piece)).is_err() {
            return false;
        }
        at += piece;
        run.tell(Step::Discard, at, len);
    }
    device.discards_to_zeros()
}

/// Where an XFS volume on the device keeps those superblock copies that name its root directory.
fn old_copies(device: &dyn Device) -> Result<Vec<Bytes>> {
    let mut sector = vec![0; index_of(device.len().get().min(512))];
    device.read_at(Bytes::ZERO, &mut sector)?;
    let Some((groups, apart)) = copies(&sector) else { return Ok(Vec::new()) };
    let last = groups.saturating_sub(1);
    let places = [last / 2, last].into_iter().filter_map(|group| u64::from(group).checked_mul(apart));
    Ok(places.filter(|at| *at < device.len().get()).map(Bytes::new).collect())
}

/// Makes everything durable, then the primary superblock.
pub(crate) fn seal(device: &dyn Device, at: Bytes, superblock: &[u8]) -> Result<()> {
    device.flush()?;
    device.write_at(at, superblock)?;
    device.flush()?;
    Ok(())
}

/// Gathers the writes of one thread, and brings them to the device when it is their turn.
///
/// The host serves those who write to one file one at a time: whoever comes meanwhile spins for the inode's
/// lock, on a processor that could render. So threads take turns here, and one that finds another writing
/// goes on rendering, until it has gathered [`AHEAD`].
pub(crate) struct Writer<'a> {
    device: &'a dyn Device,
    zeroed: bool,
    turn: &'a Mutex<()>,
    /// What waits, neighbours side by side. It is used again and again, so that it stays in the processor's
    /// cache.
    bytes: Vec<u8>,
    /// Where each run of neighbours belongs, and where in `bytes` it begins; in the order they were put.
    runs: Vec<(Bytes, usize)>,
}

impl<'a> Writer<'a> {
    /// One of those that take turns by `turn`.
    pub(crate) fn new(device: &'a dyn Device, zeroed: bool, turn: &'a Mutex<()>) -> Self {
        Self { device, zeroed, turn, bytes: Vec::new(), runs: Vec::new() }
    }

    pub(crate) fn put(&mut self, write: Write) -> Result<()> {
        match write.payload {
            Payload::Zeros(_) if self.zeroed => Ok(()),
            Payload::Zeros(len) => Ok(self.device.zero(write.at, len)?),
            Payload::Bytes(bytes) => self.put_bytes(write.at, &bytes),
        }
    }

    fn put_bytes(&mut self, at: Bytes, bytes: &[u8]) -> Result<()> {
        if !self.runs.is_empty() && self.bytes.len() + bytes.len() > AHEAD {
            self.flush()?;
        }
        let joins = |(start, from): &(Bytes, usize)| *start + Bytes::of(self.bytes.len() - from) == at;
        if !self.runs.last().is_some_and(joins) {
            self.runs.push((at, self.bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
        let turn = if self.bytes.len() >= WORTH_A_TURN { self.turn.try_lock() } else { None };
        if turn.is_some() { self.write_waiting() } else { Ok(()) }
    }

    /// Writes what waits, when nobody else writes.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let _turn = self.turn.lock();
        self.write_waiting()
    }

    fn write_waiting(&mut self) -> Result<()> {
        let ends = self.runs.iter().skip(1).map(|(_, from)| *from).chain([self.bytes.len()]);
        for ((at, from), end) in self.runs.iter().zip(ends) {
            self.device.write_at(*at, &self.bytes[*from..end])?;
        }
        self.runs.clear();
        self.bytes.clear();
        Ok(())
    }
}
