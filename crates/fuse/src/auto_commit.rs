//! Commits soon after changes, for mounts whose server is never told of `sync(2)`.
//!
//! A program that calls `sync` on a plain FUSE mount has the kernel write back what it gathered, and gets 0;
//! whoever serves hears of the writes, but not that somebody relies on them. So a thread of the mount makes
//! everything durable as soon as nothing has changed for [`REST`], and [`LONGEST`] after the first change
//! where changes go on.
//!
//! It ends by itself when the kernel does tell (`SYNCFS`): then the volume's own interval is enough.

use crate::protocol::request::Body;
use hectare_engine::Volume;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long nothing has changed when it is time to commit.
const REST: Duration = Duration::from_millis(100);
/// How old the first change becomes at most.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    changes: AtomicU64,
    /// There is a change that no commit has begun after.
    is_due: AtomicBool,
    stop: AtomicBool,
}

/// The thread, as those see it who answer requests. Dropped, it ends.
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

    /// A request has been answered.
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

    /// Ends it, and returns when it has ended.
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
        // Whatever changes from here on is for the next time.
        state.is_due.store(false, Ordering::Release);
        if !is_over() {
            // A failure is latched, and told to whoever syncs or changes something next.
            let _ = volume.sync();
        }
    }
}

/// Whether a request changes something that a commit would make durable.
fn changes(request: &Body<'_>) -> bool {
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
