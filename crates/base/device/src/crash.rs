//! Makes the states in which a power cut can leave a device from the log of a
//! [`RecordDevice`](crate::RecordDevice).
//!
//! A *point* n lies before the n-th event of the log. Durable there: everything before the last flush that
//! had succeeded by then, and of a part that is flushed by itself, what was done to it before its last flush.
//! The log up to where all is durable is applied to a *base*, which advances through the log once; later
//! writes are laid over it anew for each state, so a state costs what was written since the last flush.
//!
//! - [`CrashStates::prefix`]: all of it arrived.
//! - [`CrashStates::torn`]: a random choice. A write arrived whole, not at all, or some of its sectors of 512
//!   bytes did; of writes to one sector that arrived, the last counts. The same seed makes the same choice.
//!
//! A durable write ([`Device::write_durable`]) that had returned has arrived. As long as it is the very last
//! event before the point, it may not have returned yet, and may be torn as any other; a mark behind it says
//! that it had. A new length always arrived.
//!
//! The base starts as the device was when the recording began. To share one image, record on one overlay of
//! it and use another as the base:
//!
//! ```
//! use hectare_device::{CrashStates, Device, MemoryDevice, OverlayDevice, RecordDevice};
//! use hectare_units::Bytes;
//! use std::sync::Arc;
//!
//! let image = Arc::new(MemoryDevice::new(Bytes::mib(1)));
//! let device = RecordDevice::new(OverlayDevice::new(Arc::clone(&image)));
//! device.write_at(Bytes::ZERO, b"first")?;
//! device.flush()?;
//! device.write_at(Bytes::kib(4), b"second")?;
//!
//! let mut states = CrashStates::new(OverlayDevice::new(image), device.log());
//! for point in states.points() {
//!     let whole = states.prefix(point)?; // recover it, check it, write to it: it is a device like any other
//!     drop(whole);
//!     for seed in 0..10 {
//!         let torn = states.torn(point, seed)?;
//!         # let _ = torn;
//!     }
//! }
//! # Ok::<(), hectare_device::Error>(())
//! ```
//!
//! Hazard: the base advances under the states made from it. So while one still exists, the base stays, and
//! states that need it further on are refused ([`Reason::Busy`]).

mod storage;

use crate::scratch::with_scratch;
use crate::{Device, Error, Event, Operation, OverlayDevice, Reason, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use std::sync::Arc;

/// What a discarded range holds afterwards. Anything is allowed; trying several values finds code that
/// relies on one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discarded {
    /// What it held before.
    Kept,
    /// Zeros.
    Zeros,
    /// The byte 0xab, which can't be taken for anything else.
    #[default]
    Garbage,
}

/// The value of the bytes that [`Discarded::Garbage`] leaves.
const GARBAGE: u8 = 0xab;

/// Makes the states of one log, on a base that goes forward.
pub struct CrashStates<D> {
    log: Arc<[Event]>,
    /// Of each event, the flush that makes it durable; beyond the log if none does.
    flushed_by: Vec<usize>,
    base: Arc<D>,
    /// How many events the base holds: up to and with a flush.
    based: usize,
    /// The first point at which all of these are durable.
    based_from: usize,
    /// Over the base, the events from there on up to another point, as the states that lost nothing share it.
    whole: OverlayDevice<Arc<D>>,
    whole_to: usize,
    discarded: Discarded,
}

impl<D: Device> CrashStates<D> {
    /// The states of a log that was recorded from the content of `base` on; `base` is changed.
    #[must_use]
    pub fn new(base: D, log: Arc<[Event]>) -> Self {
        let base = Arc::new(base);
        let whole = OverlayDevice::new(Arc::clone(&base));
        let flushed_by = flushes(&log);
        Self {
            log,
            flushed_by,
            base,
            based: 0,
            based_from: 0,
            whole,
            whole_to: 0,
            discarded: Discarded::default(),
        }
    }

    /// Decides what discarded ranges hold (garbage by default).
    #[must_use]
    pub fn discarded(mut self, discarded: Discarded) -> Self {
        self.discarded = discarded;
        self
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Arc<[Event]> {
        &self.log
    }

    /// The points worth trying, in order: those before a mark are left out, as behind it the same states are
    /// possible and more is known of them.
    pub fn points(&self) -> impl Iterator<Item = usize> + use<D> {
        let log = Arc::clone(&self.log);
        (0..=log.len()).filter(move |point| !matches!(log.get(*point), Some(Event::Mark(_))))
    }

    /// The marks before a point, oldest first.
    pub fn marks(&self, point: usize) -> impl Iterator<Item = u64> {
        self.log.iter().take(point).filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        })
    }

    /// How many changes a point has that may still be lost; with none, there is one state only.
    #[must_use]
    pub fn pending(&self, point: usize) -> usize {
        let start = self.durable_before(point);
        (start..point.min(self.log.len())).filter(|n| self.may_be_lost(*n, point)).count()
    }

    /// The state at a point if every write before it arrived.
    ///
    /// # Errors
    /// If the point is beyond the end of the log, or before the last flush of one asked for earlier; if a
    /// state made earlier still exists; if the base fails.
    pub fn prefix(&mut self, point: usize) -> Result<OverlayDevice<Arc<D>>> {
        self.advance(point)?;
        if self.whole_to > point {
            self.whole.reset();
            self.whole_to = self.based;
        }
        for n in self.whole_to..point {
            self.replay(&self.whole, n)?;
            self.whole_to = n + 1;
        }
        Ok(self.whole.clone())
    }

    /// A state at a point that storage may have left, chosen by the seed.
    ///
    /// # Errors
    /// As [`CrashStates::prefix`].
    pub fn torn(&mut self, point: usize, seed: u64) -> Result<OverlayDevice<Arc<D>>> {
        self.advance(point)?;
        let state = OverlayDevice::new(Arc::clone(&self.base));
        let mut storage = storage::Storage::new(seed, point, self.pending(point));
        for n in self.based..point {
            if self.may_be_lost(n, point) {
                self.replay_parts(&state, n, &storage.choose(span_of(&self.log[n])))?;
            } else {
                self.replay(&state, n)?;
            }
        }
        Ok(state)
    }

    /// How many events are known to be durable at a point, all of them: up to and with a flush before it.
    fn durable_before(&self, point: usize) -> usize {
        let flushed = |n: &usize| self.flushed_by[*n] < point || !self.log[*n].changes();
        let all = (0..point.min(self.log.len())).take_while(flushed);
        let flushes = all.filter(|n| matches!(self.log[*n], Event::Flush | Event::FlushOf(_)));
        flushes.last().map_or(0, |flush| flush + 1)
    }

    /// Whether an event after the last flush before a point may not have arrived, or only in part.
    fn may_be_lost(&self, n: usize, point: usize) -> bool {
        match &self.log[n] {
            _ if self.flushed_by[n] < point => false,
            Event::Write { durable, .. } => !durable || n + 1 == point,
            Event::Zero(_) | Event::Discard(_) => true,
            Event::Resize(_) | Event::Flush | Event::FlushOf(_) | Event::Mark(_) => false,
        }
    }

    /// Brings the base forward to the last flush before a point.
    fn advance(&mut self, point: usize) -> Result<()> {
        let refuse = |reason| Err(Error::new(self.base.name(), Operation::Open, None, reason));
        if point > self.log.len() {
            return refuse(Reason::Unsupported("there is no such point in the log"));
        }
        let durable = self.durable_before(point);
        if durable < self.based || point < self.based_from {
            return refuse(Reason::Unsupported("the states of a log are to be made in its order"));
        }
        if durable == self.based {
            return Ok(());
        }
        // Ours and the one in our overlay.
        if Arc::strong_count(&self.base) > 2 {
            return refuse(Reason::Busy("a state made earlier is still in use; drop it first".to_owned()));
        }
        for n in self.based..durable {
            self.replay(&*self.base, n)?;
            self.based = n + 1;
            if self.log[n].changes() {
                self.based_from = self.based_from.max(self.flushed_by[n] + 1);
            }
        }
        self.whole.reset();
        self.whole_to = self.based;
        Ok(())
    }

    /// Does again what an event did.
    fn replay(&self, device: &dyn Device, n: usize) -> Result<()> {
        match &self.log[n] {
            Event::Resize(len) => device.resize(*len),
            Event::Flush | Event::FlushOf(_) | Event::Mark(_) => Ok(()),
            event => self.replay_parts(device, n, &[span_of(event)]),
        }
    }

    /// Does again what an event did to some parts of its range.
    fn replay_parts(&self, device: &dyn Device, n: usize, parts: &[Span]) -> Result<()> {
        let event = &self.log[n];
        for part in parts {
            match event {
                Event::Write { at, data, .. } => {
                    let start = index_of((part.at - *at).get());
                    device.write_at(part.at, &data[start..start + index_of(part.len.get())])?;
                }
                Event::Zero(_) => fill(device, *part, 0)?,
                Event::Discard(_) => match self.discarded {
                    Discarded::Kept => {}
                    Discarded::Zeros => fill(device, *part, 0)?,
                    Discarded::Garbage => fill(device, *part, GARBAGE)?,
                },
                Event::Resize(_) | Event::Flush | Event::FlushOf(_) | Event::Mark(_) => {}
            }
        }
        Ok(())
    }
}

/// Of each event of a log, the flush after it that makes it durable; the log's length if there is none.
fn flushes(log: &[Event]) -> Vec<usize> {
    let mut flushed_by = vec![log.len(); log.len()];
    let (mut whole, mut parts) = (log.len(), Vec::<(Span, usize)>::new());
    for (n, event) in log.iter().enumerate().rev() {
        match event {
            Event::Flush => whole = n,
            Event::FlushOf(part) => {
                parts.retain(|(other, _)| other != part);
                parts.push((*part, n));
            }
            _ => {
                let inside = |(part, _): &&(Span, usize)| {
                    let span = span_of(event);
                    part.at <= span.at && span.end() <= part.end()
                };
                let first = parts.iter().filter(inside).map(|(_, flush)| *flush).min();
                flushed_by[n] = first.map_or(whole, |flush| flush.min(whole));
            }
        }
    }
    flushed_by
}

/// The range an event changes.
fn span_of(event: &Event) -> Span {
    match event {
        Event::Write { at, data, .. } => Span::new(*at, Bytes::of(data.len())),
        Event::Zero(span) | Event::Discard(span) => *span,
        Event::Resize(_) | Event::Flush | Event::FlushOf(_) | Event::Mark(_) => Span::default(),
    }
}

/// Gives every byte of a range one value.
fn fill(device: &dyn Device, span: Span, value: u8) -> Result<()> {
    if value == 0 {
        return device.zero(span.at, span.len);
    }
    with_scratch(|buf| {
        let most = index_of(span.len.get().min(u64_of(buf.len())));
        buf[..most].fill(value);
        span.pieces(u64_of(buf.len()))
            .try_for_each(|piece| device.write_at(piece.at, &buf[..index_of(piece.len.get())]))
    })
}

#[cfg(test)]
mod tests;
