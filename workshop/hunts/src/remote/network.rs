//! A server of ours on a socket, and a network before it that ends connections.

use super::store::{Cutter, Store};
use super::{Checked, text_of};
use hectare_device::Device;
use hectare_nbd::{Export, Listener, Place, Server, Stopper};
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A server that runs.
pub(super) struct Served {
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(super) fn start(store: Arc<Store>, socket: &Path) -> Checked<Self> {
        let device: Arc<dyn Device> = store;
        let export = Export { device, name: b"vol".to_vec(), description: String::new(), read_only: false };
        let listener = Listener::bind(&Place::Unix(socket.to_owned()), false).map_err(text_of)?;
        let server = Server::new(export, listener).map_err(text_of)?;
        let stopper = server.stopper();
        // Its last flush may fail on purpose.
        let thread = Some(std::thread::spawn(move || drop(server.run())));
        Ok(Self { stopper, thread })
    }

    /// Stops it, once it has done what it received.
    pub(super) fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it is over in any case
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Passes connections on, until it ends them.
pub(super) struct Network {
    state: Arc<State>,
    socket: PathBuf,
}

struct State {
    upstream: PathBuf,
    blocked: AtomicBool,
    stopped: AtomicBool,
    open: Mutex<Vec<UnixStream>>,
}

impl Network {
    pub(super) fn start(socket: &Path, upstream: &Path) -> Checked<Self> {
        let listener = UnixListener::bind(socket).map_err(text_of)?;
        let state = Arc::new(State {
            upstream: upstream.to_owned(),
            blocked: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let of_thread = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if of_thread.stopped.load(Ordering::SeqCst) {
                    break;
                }
                // A connection that can't be made ends, as the client's affair.
                let _ = of_thread.connect(client);
            }
        });
        Ok(Self { state, socket: socket.to_owned() })
    }

    /// Ends all connections; new ones end at once until [`Network::unblock`].
    pub(super) fn block(&self) {
        self.state.blocked.store(true, Ordering::SeqCst);
        self.state.cut();
    }

    pub(super) fn unblock(&self) {
        self.state.blocked.store(false, Ordering::SeqCst);
    }

    /// Ends all connections there are when it is called.
    pub(super) fn cutter(&self) -> Cutter {
        let state = Arc::clone(&self.state);
        Box::new(move || state.cut())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        self.state.cut();
        // The thread that accepts wakes up.
        drop(UnixStream::connect(&self.socket));
    }
}

impl State {
    fn connect(self: &Arc<Self>, client: UnixStream) -> std::io::Result<()> {
        let mut open = self.open.lock();
        if self.blocked.load(Ordering::SeqCst) {
            return Ok(());
        }
        let server = UnixStream::connect(&self.upstream)?;
        let (from_client, from_server) = ((client.try_clone()?, server.try_clone()?), (server, client));
        open.extend([from_client.0.try_clone()?, from_client.1.try_clone()?]);
        for (from, to) in [from_client, from_server] {
            std::thread::spawn(move || pass(from, to));
        }
        Ok(())
    }

    fn cut(&self) {
        for stream in self.open.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both); // it may be over already
        }
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream) {
    let mut buf = vec![0; 64 << 10];
    while let Ok(got @ 1..) = from.read(&mut buf) {
        if to.write_all(&buf[..got]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)); // likewise
}
