//! The connections to an export that are in use together, from the handshakes until one of them is lost.

use super::Options;
use super::connection::{Connection, Order, Ticket, Trouble};
use super::handshake::{Agreed, agree, greet, start_tls};
use crate::address::Address;
use crate::protocol::ExportFlags;
use crate::stream::{Stream, Until};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a connection beyond the first may take: it is not needed.
const EXTRA_WITHIN: Duration = Duration::from_secs(2);

/// Connections to an export.
pub(super) struct Session {
    /// Counts the sessions of a device.
    pub(super) generation: u64,
    /// What the first connection agreed on.
    pub(super) agreed: Agreed,
    connections: Vec<Arc<Connection>>,
    next: AtomicUsize,
}

impl Session {
    /// Connects. Further connections are made where the server allows them, and are done without if they
    /// fail; all must be to the same export.
    pub(super) fn open(
        address: &Address,
        options: &Options,
        generation: u64,
        within: Duration,
    ) -> Result<Self> {
        let (first, agreed) = connect(address, options, within)?;
        let allowed =
            if agreed.flags.contains(ExportFlags::CAN_MULTI_CONN) { options.connections } else { 1 };
        let extra = || match connect(address, options, within.min(EXTRA_WITHIN)) {
            Ok((connection, other)) if other.covers(&agreed) => Some(connection),
            Ok((connection, _)) => {
                connection.leave();
                None
            }
            Err(error) => {
                log::debug!(error:%; "a further connection to {address} was not made");
                None
            }
        };
        let mut connections = vec![first];
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..allowed).map(|_| scope.spawn(extra)).collect();
            // A thread that panicked made no connection.
            connections.extend(others.into_iter().filter_map(|other| other.join().ok().flatten()));
        });
        Ok(Self { generation, agreed, connections, next: AtomicUsize::new(0) })
    }

    /// How many connections there are.
    pub(super) fn width(&self) -> usize {
        self.connections.len()
    }

    /// Sends a request on the next connection.
    pub(super) fn send(&self, order: &Order<'_>) -> std::result::Result<Ticket, Trouble> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % self.connections.len()].send(order)
    }

    /// Gives all connections up.
    pub(super) fn end(&self, reason: &str) {
        self.connections.iter().for_each(|connection| connection.end(reason));
    }

    /// Takes leave of the server.
    pub(super) fn leave(&self) {
        self.connections.iter().for_each(|connection| connection.leave());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The threads that read hold the connections.
        self.end("it was closed");
    }
}

fn connect(address: &Address, options: &Options, within: Duration) -> Result<(Arc<Connection>, Agreed)> {
    let within = options.clock.real(within);
    let deadline = Instant::now() + within;
    let mut stream = Stream::connect(&address.place, &options.addresses, within)?;
    let padded = greet(&mut Until::new(&stream, deadline))?;
    if let Some(name) = &address.tls {
        let client = options.tls.as_ref().ok_or(Error::Address("TLS was not set up"))?;
        start_tls(&mut Until::new(&stream, deadline))?;
        stream.secure(client, name, deadline)?;
    }
    let agreed = agree(&mut Until::new(&stream, deadline), &address.export, padded)?;
    let silence_max = options.clock.real(options.silence_max());
    let connection = Connection::start(stream, &agreed, silence_max, options.depth)?;
    Ok((connection, agreed))
}
