//! Gives ranges back to the host, and zeroes ranges without writing zeros.
//!
//! `fallocate` does both, on regular files and on block devices: `PUNCH_HOLE` frees the storage and makes it
//! read as zeros (a block device unmaps it, if it promises zeros then), `ZERO_RANGE` makes it zero without
//! freeing. What neither serves is written. The first refusal is remembered, so that a host without them is
//! not asked a million times.
//!
//! Hazard: a block device takes only whole sectors here, so the ragged ends of a range are written, or, when
//! the range is only given up, left as they are.

use super::{FileDevice, FileKind};
use crate::device::Device;
use crate::scratch::with_scratch;
use crate::{Operation, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the host has been found unable to do.
#[derive(Default)]
pub(super) struct Holes {
    no_punching: AtomicBool,
    no_zeroing: AtomicBool,
    no_discard: AtomicBool,
}

/// Tries a call; false, and remembered, if the host cannot do it.
fn attempt(refused: &AtomicBool, call: impl Fn() -> rustix::io::Result<()>) -> rustix::io::Result<bool> {
    if refused.load(Ordering::Relaxed) {
        return Ok(false);
    }
    match rustix::io::retry_on_intr(call) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
            refused.store(true, Ordering::Relaxed);
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Frees a range; it then reads as zeros.
fn punch(file: &File, span: Span) -> rustix::io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, mode, span.at.get(), span.len.get())
}

/// Makes a range read as zeros.
fn zero(file: &File, span: Span) -> rustix::io::Result<()> {
    let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    fallocate(file, mode, span.at.get(), span.len.get())
}

/// Discards a range of whole sectors of a block device.
#[allow(unsafe_code)] // no safe wrapper of this ioctl exists
fn block_discard(file: &File, span: Span) -> rustix::io::Result<()> {
    use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
    /// `BLKDISCARD`, `_IO(0x12, 119)`; takes a pointer to start and length, two 64-bit numbers of bytes.
    const BLKDISCARD: Opcode = opcode::none(0x12, 119);
    let range = [span.at.get(), span.len.get()];
    // SAFETY: the opcode is BLKDISCARD, for which the kernel reads two 64-bit integers from the pointer and
    // writes nothing to memory; a file that is no block device answers ENOTTY.
    unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new(range)) }
}

impl FileDevice {
    /// The part of a range that the host can serve without writing.
    fn servable(&self, span: Span) -> Option<Span> {
        match self.kind {
            FileKind::Regular => (span.len > Bytes::ZERO).then_some(span),
            FileKind::Block(topology) => span.inner_aligned(topology.logical_sector.into()),
        }
    }

    pub(super) fn zero_range(&self, span: Span) -> Result<()> {
        let Some(inner) = self.servable(span) else { return self.write_zeros(span) };
        let served = {
            let _shared = self.direct.as_ref().map(|direct| direct.share());
            attempt(&self.holes.no_punching, || punch(&self.file, inner))
                .and_then(|done| {
                    if done { Ok(true) } else { attempt(&self.holes.no_zeroing, || zero(&self.file, inner)) }
                })
                .map_err(self.fail_errno(Operation::Zero, span))?
        };
        if !served {
            return self.write_zeros(span);
        }
        let head = Span::new(span.at, inner.at - span.at);
        let tail_at = inner.at + inner.len;
        self.write_zeros(head)?;
        self.write_zeros(Span::new(tail_at, span.len - head.len - inner.len))
    }

    fn write_zeros(&self, span: Span) -> Result<()> {
        if span.len == Bytes::ZERO {
            return Ok(());
        }
        with_scratch(|scratch| {
            let most = index_of(span.len.get().min(u64_of(scratch.len())));
            scratch[..most].fill(0);
            span.pieces(u64_of(scratch.len()))
                .try_for_each(|piece| self.write_at(piece.at, &scratch[..index_of(piece.len.get())]))
        })
    }

    /// Whether what is given up becomes a hole; a block device promises nothing of it.
    pub(super) fn punches_discarded(&self) -> bool {
        self.kind == FileKind::Regular && !self.holes.no_discard.load(Ordering::Relaxed)
    }

    pub(super) fn discard_range(&self, span: Span) -> Result<()> {
        let Some(inner) = self.servable(span) else { return Ok(()) };
        let _shared = self.direct.as_ref().map(|direct| direct.share());
        attempt(&self.holes.no_discard, || match self.kind {
            FileKind::Regular => punch(&self.file, inner),
            FileKind::Block(_) => block_discard(&self.file, inner),
        })
        .map(|_| ())
        .map_err(self.fail_errno(Operation::Discard, span))
    }
}
