//! Reads a device of which parts can't be read.
//!
//! What fails as a whole is read in halves, down to single sectors; a sector that can't be read is zeros. So
//! is what lies beyond the end of a device that is shorter than its volume.
//!
//! Reads of what lies close together are served from spans that were read at once ([`Source::read_ahead`]): a
//! caller that knows which small files it will read next saves a call, or the way to a server, for each.
//!
//! Invariants: a read always gives all bytes, and the ranges that are not from the device. A span of which
//! anything can't be read is not kept. No more than [`SPANS_MAX`] spans of [`SPAN_MAX`] bytes are.

use hectare_device::Device;
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The smallest part that is read by itself.
const SECTOR: u64 = 512;
/// Unreadable sectors that are remembered for the report.
const REMEMBERED_MAX: usize = 100_000;

/// The longest span that is read ahead, in bytes.
pub(crate) const SPAN_MAX: u64 = 1 << 20;
/// Spans that are kept, the last used.
const SPANS_MAX: usize = 16;
/// Bytes around a small read that are read with it ([`Source::read_near`]).
const NEAR: u64 = 1 << 16;

/// Bytes of the device that were read ahead.
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
}

/// A device with unreadable parts.
pub(crate) struct Source {
    device: Arc<dyn Device>,
    len: u64,
    ahead: Mutex<VecDeque<Arc<Ahead>>>,
    unreadable: Mutex<BTreeSet<u64>>,
}

impl Source {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        let len = device.len().get();
        Self { device, len, ahead: Mutex::default(), unreadable: Mutex::default() }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes of the device.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from byte `at`, and returns the ranges of the device that it could not be filled with.
    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> Vec<Range<u64>> {
        match self.kept(at, buffer.len()) {
            Some((ahead, from)) => buffer.copy_from_slice(&ahead.bytes[from..from + buffer.len()]),
            None => return self.read_now(at, buffer),
        }
        Vec::new()
    }

    /// Fills `buffer` as [`Self::read`] does, and keeps what lies around: for records of which many are read
    /// one after the other.
    pub(crate) fn read_near(&self, at: u64, buffer: &mut [u8]) {
        let first = at - at % NEAR;
        let end = at.saturating_add(u64_of(buffer.len()));
        if self.kept(at, buffer.len()).is_none() && end <= first.saturating_add(NEAR) {
            self.read_ahead(first..first.saturating_add(NEAR));
        }
        self.read(at, buffer);
    }

    /// Reads a range at once, for reads inside of it that follow. A range that is longer than a span, or of
    /// which anything can't be read, is left alone.
    pub(crate) fn read_ahead(&self, range: Range<u64>) {
        let end = range.end.min(self.len);
        let len = end.saturating_sub(range.start);
        if len == 0 || len > SPAN_MAX || self.kept(range.start, index_of(len)).is_some() {
            return;
        }
        // The oldest span gives its memory to the new one.
        let oldest = {
            let mut ahead = self.ahead.lock();
            if ahead.len() < SPANS_MAX { None } else { ahead.pop_front() }
        };
        let mut bytes = oldest.and_then(Arc::into_inner).map(|span| span.bytes).unwrap_or_default();
        bytes.resize(index_of(len), 0);
        if self.device.read_at(Bytes::new(range.start), &mut bytes).is_ok() {
            let mut ahead = self.ahead.lock();
            if ahead.len() == SPANS_MAX {
                ahead.pop_front();
            }
            ahead.push_back(Arc::new(Ahead { at: range.start, bytes }));
        }
    }

    /// The span that holds a range, and where in it.
    fn kept(&self, at: u64, len: usize) -> Option<(Arc<Ahead>, usize)> {
        let ahead = self.ahead.lock();
        ahead.iter().rev().find_map(|span| {
            let from = index_of(at.checked_sub(span.at).filter(|from| *from <= SPAN_MAX)?);
            let holds = from.checked_add(len).is_some_and(|end| end <= span.bytes.len());
            holds.then(|| (Arc::clone(span), from))
        })
    }

    fn read_now(&self, at: u64, buffer: &mut [u8]) -> Vec<Range<u64>> {
        let mut lost = Vec::new();
        let there = index_of(self.len.saturating_sub(at).min(u64_of(buffer.len())));
        let (inside, beyond) = buffer.split_at_mut(there);
        beyond.fill(0);
        self.read_inside(at, inside, &mut lost);
        if !beyond.is_empty() {
            let from = at.saturating_add(u64_of(there));
            lost.push(from..from.saturating_add(u64_of(beyond.len())));
        }
        lost
    }

    /// Recursion is bounded: each step halves the range.
    fn read_inside(&self, at: u64, buffer: &mut [u8], lost: &mut Vec<Range<u64>>) {
        if buffer.is_empty() || self.device.read_at(Bytes::new(at), buffer).is_ok() {
            return;
        }
        let end = at + u64_of(buffer.len());
        let first = at / SECTOR;
        let middle = (first + (end.div_ceil(SECTOR) - first).div_ceil(2)) * SECTOR;
        if middle >= end || middle <= at {
            buffer.fill(0);
            let mut unreadable = self.unreadable.lock();
            if unreadable.len() < REMEMBERED_MAX {
                unreadable.insert(first);
            }
            lost.push(at..end);
            return;
        }
        let (left, right) = buffer.split_at_mut(index_of(middle - at));
        self.read_inside(at, left, lost);
        self.read_inside(middle, right, lost);
    }

    /// The parts that could not be read so far, in bytes of the device, in order.
    pub(crate) fn unreadable(&self) -> Vec<Range<u64>> {
        let mut joined: Vec<Range<u64>> = Vec::new();
        for sector in self.unreadable.lock().iter() {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::{FaultDevice, MemoryDevice, Operation, Outcome, Rule};

    #[test]
    fn only_the_sectors_that_fail_are_lost() {
        let memory = MemoryDevice::new(Bytes::kib(64));
        memory.write_at(Bytes::ZERO, &[7; 64 << 10]).unwrap();
        let device = FaultDevice::new(memory);
        let bad = 5000..5100_u64;
        device.add(Rule::new(Outcome::IO).on(&[Operation::Read]).when(move |request| {
            request.span.at.get() < bad.end && request.span.end().unwrap().get() > bad.start
        }));
        let source = Source::new(Arc::new(device));
        let mut buffer = vec![1; 65 << 10];
        let lost = source.read(0, &mut buffer);
        assert_eq!(lost, [4608..5120, 65536..66560]);
        assert!(buffer[..4608].iter().chain(&buffer[5120..65536]).all(|byte| *byte == 7));
        assert!(buffer[4608..5120].iter().chain(&buffer[65536..]).all(|byte| *byte == 0));
        let unreadable = source.unreadable();
        assert_eq!((unreadable.len(), unreadable[0].start, unreadable[0].end), (1, 4608, 5120));
    }

    #[test]
    fn what_is_read_ahead_is_what_is_there() {
        let memory = MemoryDevice::new(Bytes::mib(3));
        let content: Vec<u8> = (0..3_u32 << 18).flat_map(u32::to_le_bytes).collect();
        memory.write_at(Bytes::ZERO, &content).unwrap();
        let device = FaultDevice::new(memory);
        device.add(Rule::new(Outcome::IO).on(&[Operation::Read]).when(|request| {
            request.span.at.get() < 2_000_001 && request.span.end().unwrap().get() > 2_000_000
        }));
        let source = Source::new(Arc::new(device));
        // The second can't be read as a whole, the third ends behind the device.
        for range in [1000..900_000, 1_900_000..2_100_000, 2_900_000..3_900_000] {
            source.read_ahead(range.clone());
            for (at, len) in [(range.start, 10), (range.start + 5, 70_000), (range.end - 3, 4)] {
                let mut buffer = vec![0; len];
                let lost = source.read(at, &mut buffer);
                let at = index_of(at);
                let there = buffer.len().min(content.len().saturating_sub(at));
                let is_whole = there == 0 || buffer[..there] == content[at..at + there];
                assert!(is_whole || !lost.is_empty(), "{at} {len}");
            }
        }
        assert_eq!(source.ahead.lock().len(), 2);
        (0..40).for_each(|n| source.read_ahead(2_500_000 + n * 100..2_500_001 + n * 100));
        assert_eq!(source.ahead.lock().len(), SPANS_MAX);
        let mut record = [0; 256];
        source.read_near(70_000, &mut record);
        assert_eq!(record[..], content[70_000..70_256]);
    }
}
