//! A device with a cache that a crash loses: what a server's machine is.

use hectare_device::{Device, MemoryDevice, Result};
use hectare_units::{Bytes, index_of};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes, and those of them that are durable.
pub(crate) struct Volatile {
    now: MemoryDevice,
    durable: MemoryDevice,
    /// What was changed since the last flush, in order.
    changed: Mutex<Vec<(Bytes, Bytes)>>,
    dying: AtomicBool,
    /// How long the next write takes, in milliseconds.
    delay_ms: AtomicU64,
    /// How many more changes are made before the next waits for a crash.
    budget: AtomicU64,
}

impl Volatile {
    pub(crate) fn new(len: Bytes) -> Self {
        let [now, durable] = [MemoryDevice::new(len), MemoryDevice::new(len)];
        Self {
            now,
            durable,
            changed: Mutex::default(),
            dying: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            budget: AtomicU64::new(u64::MAX),
        }
    }

    /// From here on nothing becomes durable any more.
    pub(crate) fn die(&self) {
        self.dying.store(true, Ordering::SeqCst);
    }

    /// The machine is back: of each unflushed change, `keep` says whether it is there.
    pub(crate) fn revive(&self, mut keep: impl FnMut() -> bool) {
        for (at, len) in std::mem::take(&mut *self.changed.lock()) {
            let (from, to) = if keep() { (&self.now, &self.durable) } else { (&self.durable, &self.now) };
            copy(from, to, at, len);
        }
        self.dying.store(false, Ordering::SeqCst);
    }

    /// Lets `changes` more be made; the one after waits until the machine dies.
    pub(crate) fn wait_after(&self, changes: u64) {
        self.budget.store(changes, Ordering::SeqCst);
    }

    /// Whether no change is made any more until the machine dies.
    pub(crate) fn waits(&self) -> bool {
        self.budget.load(Ordering::SeqCst) == 0
    }

    /// Takes one change from the budget.
    fn spend(&self) {
        let less = |left: u64| left.checked_sub(1);
        while self.budget.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            if self.dying.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes the next write take that long before it is done.
    pub(crate) fn delay_next_write(&self, milliseconds: u64) {
        self.delay_ms.store(milliseconds, Ordering::SeqCst);
    }

    /// What is durable.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.durable.to_vec()
    }

    fn note(&self, at: Bytes, len: Bytes) {
        self.changed.lock().push((at, len));
    }
}

fn copy(from: &MemoryDevice, to: &MemoryDevice, at: Bytes, len: Bytes) {
    let mut bytes = vec![0; index_of(len.get())];
    from.read_at(at, &mut bytes).unwrap();
    to.write_at(at, &bytes).unwrap();
}

impl Device for Volatile {
    fn name(&self) -> &'static str {
        "volatile"
    }

    fn len(&self) -> Bytes {
        self.now.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.now.read_at(at, buf)
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.spend();
        std::thread::sleep(Duration::from_millis(self.delay_ms.swap(0, Ordering::SeqCst)));
        self.now.write_at(at, data)?;
        self.note(at, Bytes::of(data.len()));
        Ok(())
    }

    fn write_durable(&self, at: Bytes, parts: &[std::io::IoSlice<'_>]) -> Result<()> {
        self.write_all_at(at, parts)?;
        if !self.dying.load(Ordering::SeqCst) {
            let len = parts.iter().map(|part| part.len()).sum();
            copy(&self.now, &self.durable, at, Bytes::of(len));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut changed = self.changed.lock();
        if self.dying.load(Ordering::SeqCst) {
            return Ok(());
        }
        for (at, len) in changed.drain(..) {
            copy(&self.now, &self.durable, at, len);
        }
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.now.zero(at, len)?;
        self.note(at, len);
        Ok(())
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.zero(at, len)
    }

    fn resize(&self, _: Bytes) -> Result<()> {
        unreachable!("a server does not resize")
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
