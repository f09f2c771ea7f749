//! Servers for tests: our own in this process, and the programs of others.

use hectare_device::{Clock, Device};
use hectare_nbd::{Address, Export, Listener, NbdDevice, Options, Place, Server, Stopper};
use hectare_oracle::Skip;
use hectare_oracle::tool::need;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How a server of ours waits: a second or so in the place of five, which is longer than any request here is
/// under way.
const CLOCK: Clock = Clock::fast(4);

/// A server of ours on a socket.
pub(crate) struct Ours {
    stopper: Stopper,
    thread: Option<JoinHandle<hectare_device::Result<()>>>,
}

impl Ours {
    pub(crate) fn start(device: Arc<dyn Device>, socket: &Path, read_only: bool) -> Self {
        let export = Export { device, name: b"vol".to_vec(), description: "a volume".to_owned(), read_only };
        let listener = Listener::bind(&Place::Unix(socket.to_owned()), false).unwrap();
        Self::run(Server::new(export, listener).unwrap().with_clock(CLOCK))
    }

    /// Runs a server that is ready.
    pub(crate) fn run(server: Server) -> Self {
        let stopper = server.stopper();
        Self { stopper, thread: Some(std::thread::spawn(move || server.run())) }
    }

    /// Stops it; the result of its last flush.
    pub(crate) fn stop(mut self) -> hectare_device::Result<()> {
        self.stopper.stop();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Another project's server, killed at the end.
pub(crate) struct Theirs(Child);

impl Theirs {
    /// Starts a program that will listen on a socket.
    pub(crate) fn start(command: &mut Command, socket: &Path) -> Self {
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let started = Self(child);
        hectare_oracle::until(|| UnixStream::connect(socket).is_ok());
        started
    }

    /// `nbdkit` on a socket, with these arguments.
    pub(crate) fn nbdkit(arguments: &[&str], socket: &Path) -> Result<Self, Skip> {
        let mut command = need("nbdkit")?;
        command.args(["--foreground", "--exit-with-parent", "-U"]).arg(socket).args(arguments);
        Ok(Self::start(&mut command, socket))
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address of an export on a socket.
pub(crate) fn on(socket: &Path, export: &str) -> Address {
    Address { place: Place::Unix(socket.to_owned()), export: export.as_bytes().to_vec(), tls: None }
}

/// For writing, with little patience.
pub(crate) fn options() -> Options {
    Options { write: true, reconnect_timeout: Duration::from_secs(20), ..Options::default() }
}

/// An export on a socket, opened for writing.
pub(crate) fn open(socket: &Path, export: &str) -> NbdDevice {
    NbdDevice::open(&on(socket, export), &options()).unwrap()
}
