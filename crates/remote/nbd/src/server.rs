//! A device as an export for NBD clients.
//!
//! [`Server::run`] accepts clients until it is stopped, each with a thread for the handshake
//! ([`handshake`]) and some for its requests ([`transmission`]); then requests that were received are
//! answered, and the device is flushed.
//!
//! Hazards:
//! - *Who may connect.* The protocol has no passwords. A socket is made for its owner alone, and a TCP port
//!   on loopback only, unless the caller insists. With TLS, clients may have to show a certificate, and
//!   nothing is answered before TLS has begun.
//! - *Hostile clients.* The handshake has a time limit; the number of clients, of their threads and the
//!   length of payloads are bounded. A client that does not read its replies blocks its own threads only.
//! - *Requests of broken connections* can be done late. Those of a client that is known to be gone are done
//!   before a new client's first; of one whose network fails in silence nothing is known.
//! - *Failed flushes* are reported to the client that asked, and at the end to the caller.

mod handshake;
mod listener;
mod transmission;

pub use listener::Listener;

use crate::Result;
use crate::os::Waker;
use crate::protocol::ExportFlags;
use crate::stream::{Stream, Until};
use crate::tls::TlsServer;
use handshake::{Agreed, End, Security};
use hectare_device::{Clock, Device, RememberingDevice};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a client may take for the handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(15);
/// How long clients may take for the last replies when the server is stopped.
const GRACE: Duration = Duration::from_secs(5);
/// The most clients at once.
const CLIENTS_MAX: usize = 64;
/// The pause after an attempt to accept failed, for lack of descriptors for instance.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients see.
pub struct Export {
    /// Its bytes.
    pub device: Arc<dyn Device>,
    /// Its name; clients that give none get it as well.
    pub name: Vec<u8>,
    /// A text that lists show.
    pub description: String,
    /// Whether changes are refused; those to a read-only device always are.
    pub read_only: bool,
}

impl Export {
    fn is_read_only(&self) -> bool {
        self.read_only || self.device.is_read_only()
    }

    /// What it can do, for a client with whom chunks were agreed on or not.
    fn flags(&self, chunks: bool) -> ExportFlags {
        let always = ExportFlags::HAS_FLAGS | ExportFlags::FLUSH | ExportFlags::CAN_MULTI_CONN;
        let for_kind = if self.is_read_only() {
            ExportFlags::READ_ONLY
        } else {
            ExportFlags::FUA | ExportFlags::TRIM | ExportFlags::WRITE_ZEROES
        };
        let for_client = if chunks { ExportFlags::DF } else { ExportFlags::empty() };
        always | for_kind | for_client
    }
}

/// A server of one export.
pub struct Server {
    export: Export,
    listener: Listener,
    tls: Option<TlsServer>,
    clock: Clock,
    shared: Arc<Shared>,
}

struct Shared {
    stopped: AtomicBool,
    waker: Waker,
    clients: Mutex<Clients>,
    gone: Condvar,
}

#[derive(Default)]
struct Clients {
    streams: HashMap<u64, Stream>,
    next: u64,
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops it: no further clients, no further requests.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.waker.wake();
        for stream in self.0.clients.lock().streams.values() {
            stream.shutdown(Shutdown::Read);
        }
    }
}

impl Server {
    /// A server that will listen there.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(export: Export, listener: Listener) -> Result<Self> {
        // Each client flushes: what one of them is told, all are.
        let device: Arc<dyn Device> = Arc::new(RememberingDevice::new(export.device));
        let export = Export { device, ..export };
        let waker = listener.waker()?;
        let stopped = AtomicBool::new(false);
        let shared = Arc::new(Shared { stopped, waker, clients: Mutex::default(), gone: Condvar::new() });
        Ok(Self { export, listener, tls: None, clock: Clock::REAL, shared })
    }

    /// The same one, which speaks TLS with all of its clients, and nothing else.
    #[must_use]
    pub fn with_tls(self, tls: TlsServer) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same one, which waits for clients by this clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// To stop it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Serves until it is stopped, then flushes the device.
    ///
    /// # Errors
    /// If the last flush fails.
    pub fn run(&self) -> hectare_device::Result<()> {
        std::thread::scope(|scope| {
            while !self.shared.stopped.load(Ordering::Acquire) {
                let Ok(stream) = self.listener.accept() else {
                    if !self.shared.stopped.load(Ordering::Acquire) {
                        std::thread::sleep(PAUSE);
                    }
                    continue;
                };
                let Some(client) = self.enter(&stream) else { continue };
                let work = move || {
                    if let Err(error) = self.serve(stream) {
                        log::debug!(error:%; "a client was sent away");
                    }
                    self.leave(client);
                };
                if let Err(error) =
                    std::thread::Builder::new().name("nbd-client".to_owned()).spawn_scoped(scope, work)
                {
                    log::warn!(error:%; "a client can't be served");
                    self.leave(client);
                }
            }
            self.see_off();
        });
        self.export.device.flush()
    }

    /// Notes a client; `None` if there is no room for it.
    fn enter(&self, stream: &Stream) -> Option<u64> {
        let mut clients = self.shared.clients.lock();
        // Stopping looks at the clients under this lock: one that it does not see is sent away here.
        if clients.streams.len() >= CLIENTS_MAX || self.shared.stopped.load(Ordering::Acquire) {
            return None;
        }
        let handle = stream.try_clone().ok()?;
        clients.next += 1;
        let number = clients.next;
        clients.streams.insert(number, handle);
        Some(number)
    }

    fn leave(&self, client: u64) {
        self.shared.clients.lock().streams.remove(&client);
        self.shared.gone.notify_all();
    }

    fn serve(&self, mut stream: Stream) -> Result<()> {
        let deadline = Instant::now() + self.clock.real(HANDSHAKE_MAX);
        let Some(agreed) = self.shake_hands(&mut stream, deadline)? else { return Ok(()) };
        self.outlive_the_gone();
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        transmission::serve(&stream, agreed, &self.export);
        stream.shutdown(Shutdown::Both);
        Ok(())
    }

    /// Does the handshake, with TLS in the middle if that is required; `None` if the client leaves.
    fn shake_hands(&self, stream: &mut Stream, deadline: Instant) -> Result<Option<Agreed>> {
        let padded = handshake::greet(&mut Until::new(stream, deadline))?;
        let mut security = if self.tls.is_some() { Security::Required } else { Security::Plain };
        loop {
            let talk = &mut Until::new(stream, deadline);
            match (handshake::agree(talk, &self.export, padded, security)?, &self.tls) {
                (End::Chosen(agreed), _) => return Ok(Some(agreed)),
                (End::StartTls, Some(tls)) => stream.secure_for(tls, deadline)?,
                (End::StartTls | End::Left, _) => return Ok(None),
            }
            security = Security::Encrypted;
        }
    }

    /// Waits until the requests of clients that are gone are done. A client whose connections broke comes
    /// back with others and makes its requests again: what the old ones still bring must not undo what it
    /// does next.
    fn outlive_the_gone(&self) {
        let deadline = Instant::now() + self.clock.real(GRACE);
        let mut clients = self.shared.clients.lock();
        while clients.streams.values().any(Stream::is_gone) {
            if self.shared.gone.wait_until(&mut clients, deadline).timed_out() {
                log::warn!("the requests of a client that is gone are still not done");
                break;
            }
        }
    }

    /// Waits for the clients' last replies, but not for ever.
    fn see_off(&self) {
        let deadline = Instant::now() + self.clock.real(GRACE);
        let mut clients = self.shared.clients.lock();
        while !clients.streams.is_empty() {
            if self.shared.gone.wait_until(&mut clients, deadline).timed_out() {
                clients.streams.values().for_each(|stream| stream.shutdown(Shutdown::Both));
                break;
            }
        }
    }
}
