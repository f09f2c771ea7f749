//! A volume in an object store, as a [`Device`].
//!
//! Writes go to the local log and a map of it ([`crate::staged`]); reads take each byte from the newest of
//! four layers: the log, the log that is being uploaded, the patches of the manifest ([`crate::patches`]), and
//! its chunks. A flush uploads ([`flush`]).
//!
//! Invariants:
//! - The map, the log and the length change together, under one lock. So the log has the order of the
//!   writes.
//! - When the manifest was swapped, the new one with its patches, and the loss of the layer that is in it, are
//!   seen together.
//! - After a flush that failed every change and every flush fails: it is unknown whether the manifest was
//!   swapped. What was written can still be read.
//!
//! Hazard: objects are deleted when a newer manifest does not name them. A read that began on the older one
//! is begun again; a device that was opened for reading only reports that the volume has changed.

mod base;
#[cfg(test)]
mod cost_tests;
mod flush;
mod patching;
mod recovery;
mod work;

use crate::bucket::Bucket;
use crate::draw::draw;
use crate::lease::Lease;
use crate::manifest::Manifest;
use crate::patches::Patches;
use crate::staged::{Sealed, Source, Staged, or_below, read_log};
use crate::write_log::{Between, LogDirectory, RECORD_MAX, WriteLog};
use crate::{Cost, Error as StoreError, Options, runtime};
use base::Base;
use hectare_device::os::errno_of;
use hectare_device::{
    Device, Error, Extent, Operation, Reason, Result, Span, check_change, check_range, total_len,
};
use hectare_units::{Bytes, index_of, u64_of};
use object_store::UpdateVersion;
use parking_lot::{Mutex, RwLock};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Reads are begun anew this often where the volume was flushed meanwhile.
const AGAIN: usize = 8;

/// A volume in an object store.
pub struct StoreDevice {
    name: String,
    base: Arc<Base>,
    state: RwLock<State>,
    writer: Option<Writer>,
    zeroed: bool,
    discards_zero: AtomicBool,
    notes: Vec<String>,
    /// Where the last read ended.
    read_end: AtomicU64,
    /// The most bytes of patches, as far as the volume allows.
    patches_max: u64,
}

/// What changes.
struct State {
    len: u64,
    resized: bool,
    staged: Staged,
    log: Option<WriteLog>,
    sealed: Option<Arc<Sealed>>,
    manifest: Arc<Manifest>,
    /// Those of the manifest.
    patches: Arc<Patches>,
}

/// What a device has that may change the volume.
struct Writer {
    lease: Lease,
    session: u64,
    /// The number of the next object of this session.
    next_number: AtomicU64,
    logs: Mutex<LogDirectory>,
    /// The version of the manifest object; locked during a flush.
    version: Mutex<UpdateVersion>,
    failed: OnceLock<String>,
    log_max: u64,
}

/// A volume that was claimed for writing.
pub(crate) struct Claim {
    pub(crate) manifest: Manifest,
    pub(crate) version: UpdateVersion,
    pub(crate) lease: Lease,
    pub(crate) session: u64,
}

impl StoreDevice {
    /// A volume for reading, as its manifest has it.
    pub(crate) fn reading(
        bucket: Arc<Bucket>,
        manifest: Manifest,
        patches: Patches,
        options: &Options,
    ) -> Self {
        Self::new(bucket, (manifest, patches), options, None, None)
    }

    /// A claimed volume. What an earlier process left in the local log is written and flushed first, if it
    /// lies on this content.
    pub(crate) fn writing(bucket: Arc<Bucket>, claim: Claim, options: &Options) -> crate::Result<Self> {
        let Claim { manifest, version, lease, session } = claim;
        // No other writer deletes any from now on.
        let patches = runtime::wait(Patches::load(&bucket, &manifest))?;
        let mut logs = LogDirectory::open(options.log.as_deref(), manifest.uuid)?;
        let left = logs.left()?;
        let log = logs.create(Between { base: manifest.content, next: draw() })?;
        let writer = Writer {
            lease,
            session,
            next_number: AtomicU64::new(0),
            logs: Mutex::new(logs),
            version: Mutex::new(version),
            failed: OnceLock::new(),
            log_max: options.log_max.get(),
        };
        let content = manifest.content;
        let mut device = Self::new(bucket, (manifest, patches), options, Some(writer), Some(log));
        device.recover(left, content)?;
        Ok(device)
    }

    fn new(
        bucket: Arc<Bucket>,
        (manifest, patches): (Manifest, Patches),
        options: &Options,
        writer: Option<Writer>,
        log: Option<WriteLog>,
    ) -> Self {
        let notes = bucket.cache_note().into_iter().collect();
        let zeroed = writer.is_some() && manifest.tables.is_empty() && patches.is_empty();
        let (len, staged) = (manifest.len, Staged::default());
        let patches_max = crate::patches::limit(options.patches.get(), &manifest);
        let (manifest, patches) = (Arc::new(manifest), Arc::new(patches));
        let state = State { len, resized: false, staged, log, sealed: None, manifest, patches };
        Self {
            name: bucket.name().to_owned(),
            base: Arc::new(Base::new(bucket, index_of(options.cache.get()))),
            state: RwLock::new(state),
            writer,
            zeroed,
            discards_zero: AtomicBool::new(true),
            notes,
            read_end: AtomicU64::new(0),
            patches_max,
        }
    }

    /// What the user should know of the opening, each a line.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.base.bucket.cost()
    }

    /// The prefix, to ask for costs when the device is gone.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.base.bucket
    }

    fn fail(&self, operation: Operation, span: Option<Span>, reason: Reason) -> Error {
        Error::new(&self.name, operation, span, reason)
    }

    /// The writer, unless it has failed.
    fn writer(&self, operation: Operation, span: Option<Span>) -> Result<&Writer> {
        let writer = self.writer.as_ref().ok_or_else(|| self.fail(operation, span, Reason::ReadOnly))?;
        match writer.failed.get() {
            Some(text) => Err(self.fail(operation, span, Reason::Remote(text.clone()))),
            None => Ok(writer),
        }
    }

    /// Makes a change in the log and the map, and flushes if there is much to flush.
    fn change(
        &self,
        operation: Operation,
        span: Span,
        change: impl FnOnce(&mut State, &mut WriteLog) -> std::io::Result<()>,
    ) -> Result<()> {
        let writer = self.writer(operation, Some(span))?;
        let logged = {
            let mut state = self.state.write();
            let mut log = state.log.take().ok_or_else(|| self.fail(operation, None, Reason::ReadOnly))?;
            let changed = change(&mut state, &mut log);
            let logged = log.len();
            state.log = Some(log);
            changed.map_err(|error| {
                let reason = Reason::Io(errno_of(&error).raw_os_error());
                self.fail(operation, Some(span), reason)
            })?;
            logged
        };
        if logged > writer.log_max {
            self.flush_if(|log| log.len() > writer.log_max)?;
        }
        Ok(())
    }

    /// Where the bytes of a range are, newest first, with the manifest for what lies below.
    fn sources(&self, range: Range<u64>) -> (Vec<(Range<u64>, Source)>, Arc<Manifest>) {
        let state = self.state.read();
        let mut parts = match &state.log {
            Some(log) => state.staged.sources(&range, log.file()),
            None => vec![(range, Source::Below)],
        };
        if let Some(sealed) = &state.sealed {
            parts = or_below(parts, |range| sealed.staged.sources(range, &sealed.file));
        }
        parts = or_below(parts, |range| state.patches.sources(range));
        (parts, Arc::clone(&state.manifest))
    }

    fn read_once(&self, at: u64, buf: &mut [u8]) -> std::result::Result<(), Trouble> {
        let (parts, manifest) = self.sources(at..at + u64_of(buf.len()));
        let mut below = Vec::new();
        let mut rest = buf;
        for (range, source) in parts {
            let (part, after) = rest.split_at_mut(index_of(range.end - range.start));
            rest = after;
            match source {
                Source::Zero => part.fill(0),
                Source::Log(file, from) => read_log(&file, from, part).map_err(Trouble::Log)?,
                Source::Memory(bytes) => part.copy_from_slice(&bytes),
                Source::Below => below.push((range.start, part)),
            }
        }
        if below.is_empty() {
            return Ok(());
        }
        let read = runtime::wait(self.base.read(&manifest, below));
        read.map_err(|error| Trouble::Store(error, manifest.generation))
    }

    /// What reading on from `end` will need, if reading has been going that way.
    fn read_ahead(&self, at: u64, end: u64) {
        let is_next = self.read_end.swap(end, Ordering::Relaxed) == at && at > 0;
        let manifest = Arc::clone(&self.state.read().manifest);
        // Once for each chunk.
        if is_next && at.div_ceil(manifest.chunk()) != end.div_ceil(manifest.chunk()) {
            self.base.read_ahead(manifest, end);
        }
    }
}

/// Why a read failed.
enum Trouble {
    Log(std::io::Error),
    /// And the generation of the manifest that was used.
    Store(StoreError, u64),
}

impl Device for StoreDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        Bytes::new(self.state.read().len)
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        if buf.is_empty() {
            return Ok(());
        }
        let fail = |reason| self.fail(Operation::Read, Some(span), reason);
        self.read_ahead(at.get(), at.get() + u64_of(buf.len()));
        let mut tries = 0;
        loop {
            match self.read_once(at.get(), buf) {
                Ok(()) => return Ok(()),
                Err(Trouble::Log(error)) => {
                    let errno = errno_of(&error).raw_os_error();
                    return Err(fail(Reason::Io(errno)));
                }
                Err(Trouble::Store(error, generation)) => {
                    tries += 1;
                    if tries == AGAIN || self.state.read().manifest.generation == generation {
                        return Err(fail(error.reason()));
                    }
                }
            }
        }
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.write_all_at(at, &[IoSlice::new(data)])
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        if span.len == Bytes::ZERO {
            return Ok(());
        }
        let mut at = at.get();
        let mut records = Vec::new();
        for part in parts.iter().flat_map(|part| part.chunks(RECORD_MAX)).filter(|part| !part.is_empty()) {
            let fits =
                |(_, list, len): &(u64, Vec<_>, usize)| len + part.len() <= RECORD_MAX && list.len() < 1024;
            match records.last_mut() {
                Some(last) if fits(last) => {
                    last.1.push(IoSlice::new(part));
                    last.2 += part.len();
                }
                _ => records.push((at, vec![IoSlice::new(part)], part.len())),
            }
            at += u64_of(part.len());
        }
        for (at, parts, len) in records {
            let span = Span::new(Bytes::new(at), Bytes::of(len));
            self.change(Operation::Write, span, |state, log| {
                let from = log.write(at, &parts)?;
                state.staged.write(at..at + u64_of(len), from);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.writer.is_none() {
            return Ok(());
        }
        self.flush_if(|_| true)
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        if len == Bytes::ZERO {
            return Ok(());
        }
        let (at, len) = (at.get(), len.get());
        self.change(Operation::Zero, span, |state, log| {
            log.zero(at, len)?;
            state.staged.zero(at..at + len);
            Ok(())
        })
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Discard, span)?;
        // Whole chunks only: parts of them would be uploaded to say that they are not needed.
        let (start, end) = (at.get(), at.get() + len.get());
        let chunk = self.state.read().manifest.chunk();
        let to = if end == self.len().get() { end } else { end / chunk * chunk };
        let from = start.next_multiple_of(chunk);
        if (from, to) != (start, end) {
            self.discards_zero.store(false, Ordering::Relaxed);
        }
        if from < to { self.zero(Bytes::new(from), Bytes::new(to - from)) } else { Ok(()) }
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let span = Span::new(Bytes::ZERO, len);
        self.writer(Operation::Resize, Some(span))?;
        let new = len.get();
        let checked = self.state.read().manifest.check_len(new);
        checked.map_err(|error| self.fail(Operation::Resize, Some(span), error.reason()))?;
        self.change(Operation::Resize, span, |state, log| {
            // What was behind the new end is zeros if it comes back; read from the log, this does the same.
            log.resize(new)?;
            if new < state.len {
                state.staged.zero(new..state.len);
            }
            (state.len, state.resized) = (new, true);
            Ok(())
        })
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn discards_to_zeros(&self) -> bool {
        self.discards_zero.load(Ordering::Relaxed)
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        check_range(self, Operation::Read, span)?;
        if len == Bytes::ZERO {
            return Ok(Extent::data(len));
        }
        let (parts, manifest) = self.sources(at.get()..at.get() + len.get());
        let Some((range, source)) = parts.into_iter().next() else { return Ok(Extent::data(len)) };
        let first = Bytes::new(range.end - range.start);
        match source {
            Source::Zero => Ok(Extent::zeros(first)),
            Source::Log(..) | Source::Memory(_) => Ok(Extent::data(first)),
            Source::Below => {
                let found = runtime::wait(self.base.extent(&manifest, range.clone()));
                // A table that was superseded meanwhile: that there may be data is never wrong.
                let (is_zero, end) = found.unwrap_or((false, range.end));
                Ok(Extent { len: Bytes::new(end - range.start), is_zero })
            }
        }
    }

    fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    fn alignment(&self) -> u32 {
        1
    }
}

impl Drop for StoreDevice {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        // A log with writes stays, for the next opening.
        if let Some(log) = state.log.as_ref().filter(|_| state.staged.is_empty() && !state.resized) {
            log.remove();
        }
    }
}
