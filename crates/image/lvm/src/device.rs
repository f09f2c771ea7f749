//! A logical volume as a device: runs of bytes on the physical volumes below.
//!
//! A range is cut at the ends of segments and chunks, and each part goes to the physical volume that has it. A
//! flush reaches all of them.
//!
//! Hazard: a fence is known to the device that its mark lies on. Requests that other devices make again by
//! themselves, after a lost connection, are not fenced.

use hectare_device::{
    Device, Error, Extent, Fence, Operation, Reason, Result, Span, check_change, check_range, total_len,
};
use hectare_units::{Bytes, index_of, u64_of};
use std::io::IoSlice;
use std::sync::Arc;

/// A part of a logical volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Its first byte in the logical volume, and the first one after it.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The bytes of a stripe that follow one another.
    pub(crate) chunk: u64,
    /// The device and the first byte of each stripe.
    pub(crate) stripes: Vec<(usize, u64)>,
}

/// A logical volume.
pub struct LogicalVolume {
    name: String,
    len: Bytes,
    devices: Vec<Arc<dyn Device>>,
    pieces: Vec<Piece>,
    read_only: bool,
}

/// Where a byte lies, and how many that follow it.
struct Run {
    device: usize,
    at: u64,
    len: u64,
}

impl LogicalVolume {
    /// The pieces follow one another without a gap, and lie on the devices.
    pub(crate) fn new(
        name: String,
        devices: Vec<Arc<dyn Device>>,
        pieces: Vec<Piece>,
        read_only: bool,
    ) -> Self {
        let len = Bytes::new(pieces.last().map_or(0, |piece| piece.end));
        Self { name, len, devices, pieces, read_only }
    }

    /// Where the byte at a place inside lies.
    fn run(&self, at: u64) -> Run {
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.end <= at)];
        let (within, count) = (at - piece.start, u64_of(piece.stripes.len()));
        if let [(device, first)] = piece.stripes[..] {
            return Run { device, at: first + within, len: piece.end - at };
        }
        let (chunk, into) = (within / piece.chunk, within % piece.chunk);
        let (device, first) = piece.stripes[index_of(chunk % count)];
        Run { device, at: first + chunk / count * piece.chunk + into, len: piece.chunk - into }
    }

    /// The runs of a range inside: the device, the place on it, and which part of the range it is.
    fn runs(&self, span: Span) -> impl Iterator<Item = (&Arc<dyn Device>, Bytes, std::ops::Range<u64>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let left = span.len.get().checked_sub(done).filter(|left| *left > 0)?;
            let run = self.run(span.at.get() + done);
            let part = done..done + run.len.min(left);
            done = part.end;
            Some((&self.devices[run.device], Bytes::new(run.at), part))
        })
    }

    /// The only run of a range, if there is only one.
    fn only_run(&self, span: Span) -> Option<(&Arc<dyn Device>, Bytes)> {
        let mut runs = self.runs(span);
        let (device, at, _) = runs.next()?;
        runs.next().is_none().then_some((device, at))
    }
}

impl Device for LogicalVolume {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        self.len
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        self.runs(span).try_for_each(|(device, at, part)| {
            device.read_at(at, &mut buf[index_of(part.start)..index_of(part.end)])
        })
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        self.runs(span).try_for_each(|(device, at, part)| {
            device.read_fresh(at, &mut buf[index_of(part.start)..index_of(part.end)])
        })
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        check_change(self, Operation::Write, span)?;
        self.runs(span).try_for_each(|(device, at, part)| {
            device.write_at(at, &data[index_of(part.start)..index_of(part.end)])
        })
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        if let Some((device, at)) = self.only_run(span) {
            return device.write_all_at(at, parts);
        }
        let mut at = at;
        for part in parts {
            self.write_at(at, part)?;
            at += Bytes::of(part.len());
        }
        Ok(())
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        if let Some((device, at)) = self.only_run(span) {
            return device.write_durable(at, parts);
        }
        self.write_all_at(at, parts)?;
        self.flush()
    }

    fn flush(&self) -> Result<()> {
        // All of them, also after a failure.
        self.devices.iter().map(|device| device.flush()).fold(Ok(()), Result::and)
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        self.runs(span).try_for_each(|(device, at, part)| device.zero(at, Bytes::new(part.end - part.start)))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Discard, span)?;
        self.runs(span)
            .try_for_each(|(device, at, part)| device.discard(at, Bytes::new(part.end - part.start)))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let reason =
            Reason::Unsupported("a logical volume has the length that its group gives it: see lvresize");
        Err(Error::new(&self.name, Operation::Resize, Some(Span::new(Bytes::ZERO, len)), reason))
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn discards_to_zeros(&self) -> bool {
        self.devices.iter().all(|device| device.discards_to_zeros())
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        check_range(self, Operation::Read, span)?;
        let Some((device, at, part)) = self.runs(span).next() else { return Ok(Extent::data(len)) };
        device.extent_at(at, Bytes::new(part.end))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Where the mark lies on one device, that device applies the fence.
    fn add_fence(&self, at: Bytes, fence: &Arc<dyn Fence>) {
        let mark = Span::new(at, Bytes::of(fence.mark_len()));
        if mark.fits(self.len)
            && let Some((device, at)) = self.only_run(mark)
        {
            device.add_fence(at, fence);
        }
    }

    fn remove_fence(&self, fence: &Arc<dyn Fence>) {
        self.devices.iter().for_each(|device| device.remove_fence(fence));
    }

    fn alignment(&self) -> u32 {
        self.devices.iter().map(|device| device.alignment()).max().unwrap_or(1)
    }
}

impl LogicalVolume {
    /// Where its first byte lies on a device, if it lies on that one.
    pub(crate) fn begins_on(&self, device: &Arc<dyn Device>) -> Option<Bytes> {
        let &(index, at) = self.pieces.first()?.stripes.first()?;
        Arc::ptr_eq(&self.devices[index], device).then(|| Bytes::new(at))
    }
}
