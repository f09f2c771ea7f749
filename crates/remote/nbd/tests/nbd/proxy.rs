//! A network between a client and a server that fails: connections end after so many bytes, in the middle of
//! anything, and none can be made for a while.

use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Passes bytes on from one socket to another.
pub(crate) struct Proxy {
    state: Arc<State>,
}

struct State {
    upstream: PathBuf,
    /// How many bytes pass until the next cut; `u64::MAX` for never.
    left: AtomicU64,
    cuts: AtomicU64,
    /// The distances between cuts.
    plan: Mutex<Box<dyn FnMut() -> u64 + Send>>,
    blocked: AtomicBool,
    open: Mutex<Vec<UnixStream>>,
    stopped: AtomicBool,
}

impl Proxy {
    /// Listens on `socket` and passes on to `upstream`; `plan` gives the bytes until each cut.
    pub(crate) fn start(
        socket: &Path,
        upstream: &Path,
        mut plan: impl FnMut() -> u64 + Send + 'static,
    ) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let state = Arc::new(State {
            upstream: upstream.to_owned(),
            left: AtomicU64::new(plan()),
            cuts: AtomicU64::new(0),
            plan: Mutex::new(Box::new(plan)),
            blocked: AtomicBool::new(false),
            open: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if of_thread.stopped.load(Ordering::SeqCst) {
                    break;
                }
                of_thread.connect(client);
            }
        });
        Self { state }
    }

    /// Ends all connections; new ones end at once until [`Proxy::unblock`].
    pub(crate) fn block(&self) {
        self.state.blocked.store(true, Ordering::SeqCst);
        self.state.cut();
    }

    pub(crate) fn unblock(&self) {
        self.state.blocked.store(false, Ordering::SeqCst);
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        self.state.cut();
    }
}

impl State {
    fn connect(self: &Arc<Self>, client: UnixStream) {
        let mut open = self.open.lock();
        if self.blocked.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = UnixStream::connect(&self.upstream) else { return };
        open.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        for (from, to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
            let state = Arc::clone(self);
            std::thread::spawn(move || state.pass(from, to));
        }
    }

    fn pass(&self, mut from: UnixStream, mut to: UnixStream) {
        let mut buf = [0; 16 << 10];
        while let Ok(got @ 1..) = from.read(&mut buf) {
            let before = self.left.fetch_sub(got as u64, Ordering::SeqCst);
            let is_cut = before <= got as u64;
            let passed = if is_cut { usize::try_from(before).unwrap() } else { got };
            if to.write_all(&buf[..passed]).is_err() {
                break;
            }
            if is_cut {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                self.cut();
                let next = (self.plan.lock())();
                self.left.store(next, Ordering::SeqCst);
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn cut(&self) {
        for stream in self.open.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
