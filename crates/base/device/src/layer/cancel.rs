//! Refuses operations once the caller wants no more ([`Cancel`]).
//!
//! So everything that works on a device can be ended early, without knowing of it. What a cancelled call
//! leaves depends on the moment up to which it is refused ([`Until`]); a call that changes a volume in place
//! is refused only before its first change, and then continues to its end, so that cancelling never leaves a
//! volume half changed.
//!
//! Hazard: a device whose mark is held (`hectare_mmp::hold`) is wrapped, not the one below it: writing the mark
//! would count as the first change.
//!
//! Hazard: work above may take a refused read for a damaged place, and continue. It can't act on that: a wish is
//! never withdrawn, and the first change is refused as well.

use crate::device::{of_inner, once_passed};
use crate::os::BorrowedFd;
use crate::{Cancel, Device, Error, Operation, Reason, Result, Span, total_len};
use hectare_units::Bytes;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU8, Ordering};

/// The moment up to which a call can be cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Until {
    /// Its last write: for what writes something new, which the caller then throws away. A flush is not refused:
    /// it belongs to the writes before it, and after the last of these the work is done.
    End,
    /// The first operation that changes the device.
    FirstChange,
    /// The first flush: for what writes to unused places before. The length may change at any time.
    FirstFlush,
}

/// A device whose operations are refused once the call is cancelled.
pub struct CancelDevice<D> {
    inner: D,
    cancel: Cancel,
    until: Until,
    /// What was decided: the first thread that must decide does so for all.
    decided: AtomicU8,
}

/// Nothing: the call may still be cancelled.
const OPEN: u8 = 0;
/// The moment is past: nothing is refused any more.
const PAST: u8 = 1;
/// The call is cancelled: everything is refused.
const REFUSED: u8 = 2;

impl<D: Device> CancelDevice<D> {
    /// Wraps a device for one call.
    #[must_use]
    pub fn new(inner: D, cancel: Cancel, until: Until) -> Self {
        Self { inner, cancel, until, decided: AtomicU8::new(OPEN) }
    }

    /// The device below, which refuses nothing.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Whether it is too late to cancel: the call continues to its end, whatever is wished.
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.decided.load(Ordering::Relaxed) == PAST
    }

    fn pass(&self, operation: Operation, span: Option<Span>) -> Result<()> {
        let is_of_writes = self.until == Until::End && operation == Operation::Flush;
        if self.is_past() || is_of_writes {
            return Ok(());
        }
        let ends = match self.until {
            Until::End => false,
            Until::FirstChange => operation.changes(),
            Until::FirstFlush => operation == Operation::Flush,
        };
        let wanted = match self.cancel.is_cancelled() {
            true => REFUSED,
            false if ends => PAST,
            false => OPEN,
        };
        if self.decide(wanted) == REFUSED {
            return Err(Error::new(self.inner.name(), operation, span, Reason::Cancelled));
        }
        Ok(())
    }

    /// Decides, unless that was done; returns what holds. Two threads can't disagree: one of them would be let
    /// through to the first change, and the other refused the second.
    fn decide(&self, wanted: u8) -> u8 {
        if wanted == OPEN {
            return self.decided.load(Ordering::Relaxed);
        }
        match self.decided.compare_exchange(OPEN, wanted, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => wanted,
            Err(decided) => decided,
        }
    }
}

impl<D: Device> Device for CancelDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);
    once_passed!(write_at, write_all_at, flush, zero, discard);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.pass(Operation::Read, Some(Span::new(at, Bytes::of(buf.len()))))?;
        self.inner.read_at(at, buf)
    }

    fn read_fresh(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.pass(Operation::Read, Some(Span::new(at, Bytes::of(buf.len()))))?;
        self.inner.read_fresh(at, buf)
    }

    /// Counts as a change, and as a flush.
    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.pass(Operation::Write, Some(Span::new(at, total_len(parts))))?;
        self.pass(Operation::Flush, None)?;
        self.inner.write_durable(at, parts)
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        self.pass(Operation::Copy, Some(Span::new(at, len)))?;
        self.inner.copy_from(at, source, source_at, len)
    }

    fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> Result<()> {
        self.pass(Operation::Copy, Some(Span::new(to, len)))?;
        self.inner.copy_within(from, to, len)
    }

    /// Never refused where the length may change at any time: a cancelled call takes its own change back.
    fn resize(&self, len: Bytes) -> Result<()> {
        if self.until != Until::FirstFlush {
            self.pass(Operation::Resize, Some(Span::new(Bytes::ZERO, len)))?;
        }
        self.inner.resize(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use std::sync::{Arc, Weak};

    type Deed = fn(&dyn Device) -> Result<()>;

    const READ: Deed = |device| device.read_at(Bytes::ZERO, &mut [0; 9]);
    const WRITE: Deed = |device| device.write_at(Bytes::new(8), b"x");
    const FLUSH: Deed = |device| device.flush();
    /// Where it is in the list.
    const FLUSH_AT: usize = 2;
    const DEEDS: [Deed; 9] = [
        READ,
        WRITE,
        FLUSH,
        |device| device.read_fresh(Bytes::ZERO, &mut [0; 9]),
        |device| device.write_all_at(Bytes::new(8), &[IoSlice::new(b"x")]),
        |device| device.write_durable(Bytes::new(8), &[IoSlice::new(b"x")]),
        |device| device.zero(Bytes::new(8), Bytes::new(1)),
        |device| device.discard(Bytes::new(8), Bytes::new(1)),
        |device| device.copy_within(Bytes::ZERO, Bytes::new(512), Bytes::new(9)),
    ];

    fn device(until: Until) -> (CancelDevice<MemoryDevice>, Cancel) {
        let cancel = Cancel::new();
        (CancelDevice::new(MemoryDevice::new(Bytes::kib(4)), cancel.clone(), until), cancel)
    }

    fn is_refused(device: &dyn Device, deed: Deed) -> bool {
        deed(device).is_err_and(|error| *error.reason() == Reason::Cancelled && error.raw_os_error() == 125)
    }

    #[test]
    fn everything_is_refused_once_a_call_is_cancelled() {
        for until in [Until::End, Until::FirstChange, Until::FirstFlush] {
            let (device, cancel) = device(until);
            READ(&device).unwrap();
            let before = device.inner().to_vec();
            cancel.cancel();
            let refused = DEEDS.iter().filter(|deed| is_refused(&device, **deed)).count();
            assert_eq!(refused, DEEDS.len() - usize::from(until == Until::End), "{until:?}");
            assert_eq!(FLUSH(&device).is_ok(), until == Until::End, "{until:?}");
            assert!(before == device.inner().to_vec());
            assert_eq!(device.resize(Bytes::kib(1)).is_ok(), until == Until::FirstFlush, "{until:?}");
        }
    }

    #[test]
    fn two_changes_at_the_moment_are_not_let_through_and_refused() {
        let calls = AtomicU8::new(0);
        let device: Arc<CancelDevice<MemoryDevice>> = Arc::new_cyclic(|device: &Weak<_>| {
            let device = device.clone();
            let cancel = Cancel::polling(move || {
                if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                    return true;
                }
                // Between this answer and its use another change is refused.
                let other: Arc<CancelDevice<MemoryDevice>> = device.upgrade().unwrap();
                assert!(is_refused(&*other, WRITE));
                false
            });
            CancelDevice::new(MemoryDevice::new(Bytes::kib(4)), cancel, Until::FirstChange)
        });
        assert!(is_refused(&*device, WRITE));
        assert!(device.inner().to_vec().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn it_is_too_late_after_the_moment_and_not_before() {
        for (until, before, after) in [
            (Until::End, &[WRITE, FLUSH][..], None),
            (Until::FirstChange, &[READ, FLUSH][..], Some(WRITE)),
            (Until::FirstFlush, &[READ, WRITE][..], Some(FLUSH)),
        ] {
            let (device, cancel) = device(until);
            before.iter().for_each(|deed| deed(&device).unwrap());
            assert!(!device.is_past(), "{until:?}");
            if let Some(last) = after {
                last(&device).unwrap();
                assert!(device.is_past());
            }
            cancel.cancel();
            for (at, deed) in DEEDS.into_iter().enumerate().filter(|(at, _)| *at != FLUSH_AT) {
                assert_eq!(is_refused(&device, deed), after.is_none(), "{until:?}, {at}");
            }
        }
    }
}
