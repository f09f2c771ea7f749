//! Makes operations fail on demand, to show that code survives a failing disk.
//!
//! Rules are tried in the order in which they were added; the first that strikes decides. Each counts the
//! operations it applies to, so "the 7th write", "every flush" and "everything from the 100th operation on"
//! are one rule each. Trying k = 0, 1, 2 and so on until no rule strikes any more walks through every point
//! of failure.
//!
//! What this is not: it does not model a power cut (lost and reordered writes since the last flush); a torn
//! write is only the piece of it that one operation can show.

use crate::device::{of_inner, total_len};
use crate::os::{BorrowedFd, Errno};
use crate::{Device, Error, Operation, Reason, Request, Result};
use hectare_units::{Bytes, index_of};
use parking_lot::Mutex;
use std::io::IoSlice;

/// What happens to an operation that a rule strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It fails with this number of the host's and nothing is done.
    Fail(i32),
    /// It is done for its first `keep` bytes, then fails with this number of the host's.
    Short {
        /// How many bytes are done.
        keep: Bytes,
        /// What it fails with.
        errno: i32,
    },
    /// It is done for its first `keep` bytes only, and reported as done: a torn write, or a flush that isn't
    /// one.
    Torn {
        /// How many bytes are done.
        keep: Bytes,
    },
}

impl Outcome {
    /// Fails as a broken disk does (`EIO`).
    pub const IO: Self = Self::Fail(Errno::IO.raw_os_error());
    /// Fails as a full host file system does (`ENOSPC`).
    pub const NO_SPACE: Self = Self::Fail(Errno::NOSPC.raw_os_error());
}

type Condition = Box<dyn Fn(&Request) -> bool + Send + Sync>;

/// Which operations a fault strikes, and what it does to them. As made: every one.
pub struct Rule {
    outcome: Outcome,
    panics: bool,
    operations: Vec<Operation>,
    condition: Option<Condition>,
    spared: u64,
    strikes_left: u64,
}

impl Rule {
    /// Strikes every operation.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        let operations = Operation::ON_DEVICE.to_vec();
        Self { outcome, panics: false, operations, condition: None, spared: 0, strikes_left: u64::MAX }
    }

    /// Strikes every operation; nothing of it is done, and its caller panics, as if a defect of the
    /// program had struck there.
    #[must_use]
    pub fn panic() -> Self {
        Self { panics: true, ..Self::new(Outcome::IO) }
    }

    /// Applies only to operations of these kinds.
    #[must_use]
    pub fn on(mut self, operations: &[Operation]) -> Self {
        self.operations = operations.to_vec();
        self
    }

    /// Applies only to operations for which `condition` holds.
    #[must_use]
    pub fn when(mut self, condition: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }

    /// Spares the first `count` operations it applies to.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.spared = count;
        self
    }

    /// Strikes at most `count` times.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.strikes_left = count;
        self
    }

    fn strikes(&mut self, request: &Request) -> bool {
        let applies = self.operations.contains(&request.operation)
            && self.condition.as_ref().is_none_or(|condition| condition(request));
        if !applies {
            return false;
        }
        if self.spared > 0 {
            self.spared -= 1;
            return false;
        }
        let strikes = self.strikes_left > 0;
        self.strikes_left = self.strikes_left.saturating_sub(1);
        strikes
    }
}

/// A device whose operations fail on demand.
pub struct FaultDevice<D> {
    inner: D,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    operations: u64,
    strikes: u64,
}

impl<D: Device> FaultDevice<D> {
    /// Wraps `inner`; without rules everything passes.
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// The device below, which works.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Adds a rule after those there are.
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push(rule);
    }

    /// Removes all rules: the disk is whole again.
    pub fn clear(&self) {
        self.state.lock().rules.clear();
    }

    /// How many operations were asked for so far, struck or not.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// How many of them were struck.
    #[must_use]
    pub fn strikes(&self) -> u64 {
        self.state.lock().strikes
    }

    /// What strikes an operation.
    ///
    /// # Panics
    /// If a rule that was made to does.
    fn decide(&self, request: &Request) -> Option<Outcome> {
        let mut state = self.state.lock();
        state.operations += 1;
        // Every rule counts every operation, so all are asked even when an earlier one decides.
        let mut decided = None;
        for rule in &mut state.rules {
            if rule.strikes(request) {
                decided = decided.or(Some((rule.outcome, rule.panics)));
            }
        }
        state.strikes += u64::from(decided.is_some());
        drop(state);
        let (outcome, panics) = decided?;
        assert!(!panics, "injected: {:?} at byte {}", request.operation, request.span.at);
        Some(outcome)
    }

    fn injected(&self, request: &Request, errno: i32) -> Error {
        let span = (request.operation != Operation::Flush).then_some(request.span);
        Error::new(self.inner.name(), request.operation, span, Reason::Io(errno))
    }

    /// Does the operation in full, in part (`part` gets the bytes to do), or not at all.
    fn pass<T>(&self, request: Request, pretended: T, part: impl FnOnce(Bytes) -> Result<T>) -> Result<T> {
        match self.decide(&request) {
            None => part(request.span.len),
            Some(Outcome::Fail(errno)) => Err(self.injected(&request, errno)),
            Some(Outcome::Short { keep, errno }) => {
                part(keep.min(request.span.len))?;
                Err(self.injected(&request, errno))
            }
            Some(Outcome::Torn { keep }) => {
                part(keep.min(request.span.len))?;
                Ok(pretended)
            }
        }
    }

    /// As [`FaultDevice::pass`], for what can only be done or left.
    fn pass_whole(&self, request: Request, work: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.decide(&request) {
            None => work(),
            Some(Outcome::Torn { .. }) => Ok(()),
            Some(Outcome::Fail(errno) | Outcome::Short { errno, .. }) => Err(self.injected(&request, errno)),
        }
    }
}

/// Writes the first `len` bytes of several buffers.
fn write_first(device: &impl Device, at: Bytes, parts: &[IoSlice<'_>], len: Bytes) -> Result<()> {
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    device.write_at(at, &whole[..index_of(len.get())])
}

impl<D: Device> Device for FaultDevice<D> {
    of_inner!(name, len, is_zeroed, discards_to_zeros, extent_at, is_read_only, alignment, fences);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let request = Request::new(Operation::Read, at, Bytes::of(buf.len()));
        self.pass(request, (), |len| self.inner.read_at(at, &mut buf[..index_of(len.get())]))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let request = Request::new(Operation::Write, at, Bytes::of(data.len()));
        self.pass(request, (), |len| self.inner.write_at(at, &data[..index_of(len.get())]))
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let request = Request::new(Operation::Write, at, total_len(parts));
        self.pass(request, (), |len| {
            if len == request.span.len {
                return self.inner.write_all_at(at, parts);
            }
            write_first(&self.inner, at, parts, len)
        })
    }

    /// A write and then a flush, to the rules; if neither is struck, one operation below.
    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let write = Request::new(Operation::Write, at, total_len(parts));
        let flush = Request::new(Operation::Flush, Bytes::ZERO, Bytes::ZERO);
        self.pass(write, (), |len| {
            if len < write.span.len {
                return write_first(&self.inner, at, parts, len);
            }
            match self.decide(&flush) {
                None => self.inner.write_durable(at, parts),
                Some(Outcome::Torn { .. }) => self.inner.write_all_at(at, parts),
                Some(Outcome::Fail(errno) | Outcome::Short { errno, .. }) => {
                    self.inner.write_all_at(at, parts)?;
                    Err(self.injected(&flush, errno))
                }
            }
        })
    }

    fn flush(&self) -> Result<()> {
        let request = Request::new(Operation::Flush, Bytes::ZERO, Bytes::ZERO);
        self.pass_whole(request, || self.inner.flush())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.pass(Request::new(Operation::Zero, at, len), (), |len| self.inner.zero(at, len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.pass(Request::new(Operation::Discard, at, len), (), |len| self.inner.discard(at, len))
    }

    fn copy_from(&self, at: Bytes, source: BorrowedFd<'_>, source_at: Bytes, len: Bytes) -> Result<Bytes> {
        let request = Request::new(Operation::Copy, at, len);
        self.pass(request, len, |len| self.inner.copy_from(at, source, source_at, len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let request = Request::new(Operation::Resize, Bytes::ZERO, len);
        self.pass_whole(request, || self.inner.resize(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn device() -> FaultDevice<MemoryDevice> {
        FaultDevice::new(MemoryDevice::new(Bytes::new(8)))
    }

    #[test]
    fn the_kth_write_fails_and_only_that() {
        let device = device();
        device.add(Rule::new(Outcome::NO_SPACE).on(&[Operation::Write]).after(1).times(1));
        device.write_at(Bytes::ZERO, b"ab").unwrap();
        device.read_at(Bytes::ZERO, &mut [0; 2]).unwrap();
        let error = device.write_at(Bytes::ZERO, b"cd").unwrap_err();
        assert!(error.is_no_space());
        assert_eq!(
            error.to_string(),
            "memory device: cannot write 2 bytes at byte 0: No space left on device"
        );
        device.write_at(Bytes::new(2), b"ef").unwrap();
        assert_eq!(device.inner().to_vec(), b"abef\0\0\0\0");
        assert_eq!((device.operations(), device.strikes()), (4, 1));
    }

    #[test]
    fn everything_from_the_nth_operation_on_fails_until_cleared() {
        let device = device();
        device.add(Rule::new(Outcome::IO).after(2));
        device.flush().unwrap();
        device.flush().unwrap();
        assert_eq!(
            device.flush().unwrap_err().to_string(),
            "memory device: cannot flush: Input/output error"
        );
        device.write_at(Bytes::ZERO, b"x").unwrap_err();
        device.clear();
        device.write_at(Bytes::ZERO, b"x").unwrap();
    }

    #[test]
    fn short_and_torn_writes_leave_their_first_bytes() {
        let device = device();
        let keep = Bytes::new(3);
        let far = |request: &Request| request.span.at >= Bytes::new(4);
        device.add(Rule::new(Outcome::Torn { keep }).when(far));
        device.add(Rule::new(Outcome::Short { keep, errno: 5 }));
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        device.write_all_at(Bytes::ZERO, &parts).unwrap_err();
        device.write_all_at(Bytes::new(4), &parts).unwrap();
        assert_eq!(device.inner().to_vec(), b"abc\0abc\0");
    }

    #[test]
    fn a_panic_is_one_of_the_thread_that_asks_and_leaves_the_device() {
        let device = device();
        device.add(Rule::panic().on(&[Operation::Write]).times(1));
        let write = || device.write_at(Bytes::ZERO, b"ab");
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_err();
        assert_eq!((device.inner().to_vec(), device.strikes()), (vec![0; 8], 1));
        write().unwrap();
    }

    #[test]
    fn a_durable_write_can_fail_as_a_write_and_as_a_flush() {
        let device = device();
        device.add(Rule::new(Outcome::IO).on(&[Operation::Flush]).times(1));
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        let error = device.write_durable(Bytes::ZERO, &parts).unwrap_err();
        assert_eq!(
            (error.operation(), device.inner().to_vec()),
            (Operation::Flush, b"abcd\0\0\0\0".to_vec())
        );
        device.add(
            Rule::new(Outcome::Short { keep: Bytes::new(3), errno: 5 }).on(&[Operation::Write]).times(1),
        );
        let error = device.write_durable(Bytes::new(4), &parts).unwrap_err();
        assert_eq!((error.operation(), device.inner().to_vec()), (Operation::Write, b"abcdabc\0".to_vec()));
        device.write_durable(Bytes::new(4), &parts).unwrap();
        assert_eq!((device.operations(), device.inner().to_vec()), (5, b"abcdabcd".to_vec()));
    }
}
