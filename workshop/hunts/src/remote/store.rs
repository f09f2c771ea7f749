//! What a server has: bytes of which a crash loses those that were not flushed, and that fail on demand.

use super::Fault;
use hectare_device::{Device, Error, MemoryDevice, Operation, Reason, Result, Span};
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::time::Duration;

/// The number of an input or output error.
const EIO: i32 = 5;

/// Cuts the connections.
pub(super) type Cutter = Box<dyn Fn() + Send + Sync>;

/// Bytes, and those of them that are durable.
pub(super) struct Store {
    now: MemoryDevice,
    durable: MemoryDevice,
    state: Mutex<State>,
}

struct State {
    random: SplitMix64,
    /// What was changed since the last flush, in order.
    changed: Vec<Span>,
    /// Whether a flush does nothing, since nobody will learn of it.
    dying: bool,
    fault: Fault,
    cutter: Option<Cutter>,
    /// Requests until the next cut or error.
    left: u64,
}

/// What becomes of one request.
enum Fate {
    Done,
    /// The connection is cut before or after it is done.
    CutBefore,
    CutAfter,
    Fails,
}

impl Store {
    pub(super) fn new(len: Bytes, seed: u64) -> Self {
        let [now, durable] = [MemoryDevice::new(len), MemoryDevice::new(len)];
        let random = SplitMix64::stream(seed, 3);
        let state =
            State { random, changed: Vec::new(), dying: false, fault: Fault::None, cutter: None, left: 0 };
        Self { now, durable, state: Mutex::new(state) }
    }

    /// Begins with a fault.
    pub(super) fn misbehave(&self, fault: Fault, cutter: Cutter) {
        let mut state = self.state.lock();
        state.fault = fault;
        state.cutter = Some(cutter);
        state.left = 5 + state.random.below(20);
    }

    /// Ends with it.
    pub(super) fn behave(&self) {
        self.state.lock().fault = Fault::None;
    }

    /// From here on nothing becomes durable.
    pub(super) fn die(&self) {
        self.state.lock().dying = true;
    }

    /// It is back: of each unflushed change, chance decides whether it is there.
    pub(super) fn revive(&self) {
        let mut state = self.state.lock();
        for span in std::mem::take(&mut state.changed) {
            let kept = state.random.below(2) == 0;
            let (from, to) = if kept { (&self.now, &self.durable) } else { (&self.durable, &self.now) };
            copy(from, to, span);
        }
        state.dying = false;
    }

    /// What a power cut leaves.
    pub(super) fn after_power_cut(&self) -> Vec<u8> {
        self.revive();
        self.durable.to_vec()
    }

    /// Decides about a request, and takes the time it takes.
    fn fate(&self) -> Fate {
        let (pause, fate) = {
            let mut state = self.state.lock();
            state.left = state.left.saturating_sub(1);
            let is_turn = state.left == 0;
            match state.fault {
                Fault::Cut if is_turn => {
                    // Far enough apart for some progress: a lost connection costs a handshake.
                    state.left = 10 + state.random.below(150);
                    let before = state.random.below(2) == 0;
                    (0, if before { Fate::CutBefore } else { Fate::CutAfter })
                }
                Fault::Errors if is_turn => {
                    state.left = 1 + state.random.below(3);
                    let fails = state.random.below(200) == 0;
                    (0, if fails { Fate::Fails } else { Fate::Done })
                }
                Fault::Reordered => (state.random.below(4), Fate::Done),
                Fault::Slow => (if state.random.below(60) == 0 { 200 } else { 0 }, Fate::Done),
                _ => (0, Fate::Done),
            }
        };
        if pause > 0 {
            std::thread::sleep(Duration::from_millis(pause));
        }
        fate
    }

    fn cut(&self) {
        // The lock is not held while connections end, whose requests want it.
        let cutter = self.state.lock().cutter.take();
        if let Some(cutter) = cutter {
            cutter();
            self.state.lock().cutter.get_or_insert(cutter);
        }
    }

    /// Does a request as fate wants it.
    fn served(
        &self,
        operation: Operation,
        span: Option<Span>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match self.fate() {
            Fate::Done => work(),
            Fate::CutBefore => {
                self.cut();
                work()
            }
            Fate::CutAfter => {
                let done = work();
                self.cut();
                done
            }
            Fate::Fails => Err(Error::new(self.name(), operation, span, Reason::Io(EIO))),
        }
    }

    /// Does a change. It is noted with the bytes under one lock: a flush covers both or none.
    fn change(&self, span: Span, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        work()?;
        state.changed.push(span);
        Ok(())
    }

    fn make_durable(&self, only: Option<Span>) {
        let mut state = self.state.lock();
        if state.dying {
            return;
        }
        match only {
            Some(span) => copy(&self.now, &self.durable, span),
            None => state.changed.drain(..).for_each(|span| copy(&self.now, &self.durable, span)),
        }
    }
}

fn copy(from: &MemoryDevice, to: &MemoryDevice, span: Span) {
    let mut bytes = vec![0; index_of(span.len.get())];
    // Both have the range, and memory does not fail.
    let copied = from.read_at(span.at, &mut bytes).and_then(|()| to.write_at(span.at, &bytes));
    debug_assert!(copied.is_ok());
}

impl Device for Store {
    fn name(&self) -> &'static str {
        "store"
    }

    fn len(&self) -> Bytes {
        self.now.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        self.served(Operation::Read, Some(span), || self.now.read_at(at, buf))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        self.served(Operation::Write, Some(span), || self.change(span, || self.now.write_at(at, data)))
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, hectare_device::total_len(parts));
        self.served(Operation::Write, Some(span), || {
            self.change(span, || self.now.write_all_at(at, parts))?;
            self.make_durable(Some(span));
            Ok(())
        })
    }

    fn flush(&self) -> Result<()> {
        self.served(Operation::Flush, None, || {
            self.make_durable(None);
            Ok(())
        })
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        self.served(Operation::Zero, Some(span), || self.change(span, || self.now.zero(at, len)))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.zero(at, len)
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        self.now.resize(len)
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
