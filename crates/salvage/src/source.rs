//! Reads a device of which parts can't be read.
//!
//! What fails as a whole is read in halves, down to single sectors; a sector that can't be read is zeros. So
//! is what lies beyond the end of a device that is shorter than its volume.
//!
//! Invariant: a read always gives all bytes, and the ranges that are not from the device.

use hectare_device::Device;
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// The smallest part that is read by itself.
const SECTOR: u64 = 512;
/// Unreadable sectors that are remembered for the report.
const REMEMBERED_MAX: usize = 100_000;

/// A device with unreadable parts.
pub(crate) struct Source {
    device: Arc<dyn Device>,
    len: u64,
    unreadable: Mutex<BTreeSet<u64>>,
}

impl Source {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        let len = device.len().get();
        Self { device, len, unreadable: Mutex::default() }
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
        assert_eq!(source.unreadable(), [4608..5120]);
    }
}
