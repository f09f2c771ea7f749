//! Commits soon after changes, for mounts whose server does not receive `sync(2)`.
//!
//! When a program calls `sync` on a plain FUSE mount, the kernel writes back what it buffers and returns 0;
//! the server receives the writes, but not that a caller relies on them. So a thread of the mount makes
//! everything durable as soon as nothing has changed for [`REST`], and at the latest [`LONGEST`] after the
//! first change.
//!
//! It ends when the kernel does send `SYNCFS`: then the volume's own interval is enough.

use crate::protocol::request::Body;
use hectare_engine::Volume;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The time without a change after which to commit.
const REST: Duration = Duration::from_millis(100);
/// The largest age of the first change.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    changes: AtomicU64,
    /// There is a change that no commit covers yet.
    is_due: AtomicBool,
    stop: AtomicBool,
}

/// The thread, as seen by the threads that answer requests. Dropping it ends it.
pub(crate) struct Settler {
    state: Arc<State>,
    thread: Thread,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Settler {
    pub(crate) fn start(volume: Volume) -> io::Result<Self> {
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let work = move || run(&volume, &shared);
        let handle = thread::Builder::new().name("hectare-settle".into()).spawn(work)?;
        Ok(Self { state, thread: handle.thread().clone(), handle: Mutex::new(Some(handle)) })
    }

    /// Notes that a request has been answered.
    pub(crate) fn answered(&self, request: &Body<'_>) {
        let state = &*self.state;
        if state.stop.load(Ordering::Relaxed) {
            return;
        }
        if matches!(request, Body::Syncfs) {
            self.end();
        } else if changes(request) {
            state.changes.fetch_add(1, Ordering::Relaxed);
            if !state.is_due.load(Ordering::Acquire) && !state.is_due.swap(true, Ordering::AcqRel) {
                self.thread.unpark();
            }
        }
    }

    fn end(&self) {
        self.state.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Ends the thread, and returns when it has ended.
    pub(crate) fn stop(&self) {
        self.end();
        if let Some(thread) = self.handle.lock().take() {
            // It ends whatever happened in it.
            let _ = thread.join();
        }
    }
}

impl Drop for Settler {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(volume: &Volume, state: &State) {
    let is_over = || state.stop.load(Ordering::Acquire);
    while !is_over() {
        if !state.is_due.load(Ordering::Acquire) {
            thread::park();
            continue;
        }
        let first = Instant::now();
        loop {
            let seen = state.changes.load(Ordering::Relaxed);
            thread::park_timeout(REST);
            let rests = state.changes.load(Ordering::Relaxed) == seen;
            if is_over() || rests || first.elapsed() >= LONGEST {
                break;
            }
        }
        // Later changes are for the next commit.
        state.is_due.store(false, Ordering::Release);
        if !is_over() {
            // A failure is latched, and reported to the next caller that syncs or changes something.
            let _ = volume.settle();
        }
    }
}

/// Whether a request changes something that a commit would make durable.
fn changes(request: &Body<'_>) -> bool {
    if let Body::Open(opening) = request {
        return opening.truncates();
    }
    matches!(
        request,
        Body::Setattr(_)
            | Body::Symlink { .. }
            | Body::Mknod { .. }
            | Body::Mkdir { .. }
            | Body::Unlink { .. }
            | Body::Rmdir { .. }
            | Body::Rename { .. }
            | Body::Link { .. }
            | Body::Create { .. }
            | Body::Tmpfile { .. }
            | Body::Write { .. }
            | Body::Setxattr { .. }
            | Body::Removexattr { .. }
            | Body::Ioctl { .. }
            | Body::Fallocate { .. }
            | Body::CopyFileRange(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::request::Opening;
    use rustix::fs::OFlags;

    /// With the kernel's writeback cache, opening truncates: it waited for the volume's own interval.
    #[test]
    fn regression_truncation_by_opening_is_a_change() {
        for (flags, expected) in [(OFlags::TRUNC, true), (OFlags::RDWR, false)] {
            let opening = Opening { flags: flags.bits(), kills_privileges: false };
            assert_eq!(changes(&Body::Open(opening)), expected, "{flags:?}");
        }
    }
}
