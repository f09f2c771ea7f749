//! Copying the content of files, by several threads.
//!
//! The walker hands over open files; a bounded queue keeps it from running ahead with more open files than
//! the system allows. A file with a read error is reported and left truncated there; the first write error
//! stops everything.

use super::ends::{Content, Meta, Reason, Target, Xattrs};
use crate::failure::{Failure, LeftOut, Outcome};
use crate::progress::Progress;
use hectare_units::{index_of, u64_of};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// Files handed over and not yet begun.
const WAITING_MAX: usize = 64;

/// A file whose content is to be copied.
pub(super) struct Job<C, F> {
    pub(super) content: C,
    pub(super) file: F,
    /// Attributes to set after the content is copied.
    pub(super) keep: Option<(Meta, Xattrs)>,
    /// The names of both, for messages.
    pub(super) from: String,
    pub(super) to: String,
}

type Sender<C, T> = SyncSender<Job<C, <T as Target>::File>>;

/// Threads that copy content.
pub(super) struct Pool<'a, C: Content, T: Target> {
    target: &'a T,
    left_out: &'a LeftOut,
    progress: &'a Progress,
    sender: Mutex<Option<Sender<C, T>>>,
    receiver: Mutex<Receiver<Job<C, T::File>>>,
    has_threads: AtomicBool,
    /// For copying without threads.
    buffer: Mutex<Vec<u8>>,
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

/// Which side a file failed on.
enum Side {
    Origin(Reason),
    Target(Reason),
}

impl<'a, C: Content, T: Target> Pool<'a, C, T> {
    pub(super) fn new(target: &'a T, left_out: &'a LeftOut, progress: &'a Progress) -> Self {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        Self {
            target,
            left_out,
            progress,
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(receiver),
            has_threads: AtomicBool::new(false),
            buffer: Mutex::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Starts the threads; they end after [`Pool::finish`].
    pub(super) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, threads: NonZeroUsize) {
        self.has_threads.store(true, Ordering::Relaxed);
        for _ in 0..threads.get() {
            scope.spawn(|| self.work());
        }
    }

    /// Takes a file, and waits while too many are waiting. Without threads it is copied at once.
    pub(super) fn take(&self, job: Job<C, T::File>) {
        if !self.has_threads.load(Ordering::Relaxed) {
            return self.copy(&job, &mut self.buffer.lock());
        }
        let sender = self.sender.lock().clone();
        if let Some(sender) = sender {
            // The receiver lives as long as the pool.
            let _ = sender.send(job);
        }
    }

    /// Ends the input: no more files come.
    pub(super) fn finish(&self) {
        *self.sender.lock() = None;
    }

    /// Whether writing failed, so that continuing makes no sense.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// How it went, once all threads have ended.
    pub(super) fn outcome(&self) -> Outcome {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    fn work(&self) {
        let mut buffer = Vec::new();
        loop {
            let next = self.receiver.lock().recv();
            let Ok(job) = next else { return };
            if self.has_failed() {
                continue; // the walker may still be waiting for room in the queue
            }
            self.copy(&job, &mut buffer);
        }
    }

    /// Stops all threads; the caller has the reason.
    pub(super) fn stop(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Copies the content of a file.
    pub(super) fn copy(&self, job: &Job<C, T::File>, buffer: &mut Vec<u8>) {
        buffer.resize(index_of(STEP), 0);
        match self.run(job, buffer) {
            Ok(()) => self.progress.file(),
            Err(Side::Origin(reason)) => self.left_out.tell(&job.from, reason),
            Err(Side::Target(reason)) => {
                self.failed.store(true, Ordering::Relaxed);
                self.failure.lock().get_or_insert(Failure::of(&job.to, reason));
            }
        }
    }

    fn run(&self, job: &Job<C, T::File>, buffer: &mut [u8]) -> Result<(), Side> {
        let copied = self.content(job, buffer);
        if let (Some((meta, xattrs)), Ok(()) | Err(Side::Origin(_))) = (&job.keep, &copied) {
            let unkept = self.target.finish_file(&job.file, meta, xattrs).map_err(Side::Target)?;
            if let Some(reason) = unkept {
                self.left_out.tell(&job.to, reason);
            }
        }
        copied
    }

    fn content(&self, job: &Job<C, T::File>, buffer: &mut [u8]) -> Result<(), Side> {
        let size = job.content.size();
        let mut end = 0;
        for (start, length) in job.content.ranges().map_err(Side::Origin)? {
            end = start.saturating_add(length).min(size);
            self.range(job, start, end, buffer)?;
        }
        if end < size {
            // A size that the target does not take is that of a damaged inode.
            let set = self.target.set_len(&job.file, size);
            set.map_err(|reason| Side::Origin(format!("its size of {size} bytes: {reason}")))?;
        }
        Ok(())
    }

    fn range(&self, job: &Job<C, T::File>, start: u64, end: u64, buffer: &mut [u8]) -> Result<(), Side> {
        let mut at = start;
        while at < end {
            if self.has_failed() {
                return Ok(());
            }
            let want = index_of((end - at).min(STEP));
            let n = job.content.read_at(at, &mut buffer[..want]).map_err(Side::Origin)?;
            if n == 0 {
                return Err(Side::Origin("it became shorter while it was read".to_owned()));
            }
            self.target.write_at(&job.file, at, &buffer[..n]).map_err(Side::Target)?;
            at += u64_of(n);
            self.progress.bytes(u64_of(n));
        }
        Ok(())
    }
}
