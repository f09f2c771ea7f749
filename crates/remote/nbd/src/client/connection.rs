//! One connection after the handshake: any number of threads send requests on it, one thread reads replies.
//!
//! A request that was sent has a [`Ticket`], on which its thread waits. When the connection ends, for
//! whatever reason, all tickets are answered with that reason, and nothing can be sent any more.
//!
//! Hazard: a message must not be torn. Whole requests are sent under a lock, and a request that could be sent
//! in part only ends the connection.

use super::assembly::{Answered, Assembly, Form, Reply, Waiting, read_next};
use super::handshake::Agreed;
use crate::protocol::CommandFlags;
use crate::protocol::reply::SHUTDOWN;
use crate::protocol::request::{Command, Request};
use crate::stream::{Stream, write_both};
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bytes of small replies that are read at once.
const BUFFER_LEN: usize = 1 << 15;

/// One request of a device's operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    pub(super) command: Command,
    pub(super) flags: CommandFlags,
    pub(super) at: u64,
    pub(super) len: u64,
    /// What a write writes.
    pub(super) data: &'a [u8],
}

/// Why a request has no reply that says it was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The connection ended before the reply came.
    Lost(Arc<str>),
    /// The server says that it failed, by the protocol's number.
    Failed(u32),
}

/// A connection.
pub(super) struct Connection {
    stream: Stream,
    form: Form,
    silence_max: Duration,
    depth: usize,
    sending: Mutex<()>,
    table: Mutex<Table>,
    room: Condvar,
}

struct Table {
    waiting: HashMap<u64, Waiter>,
    /// That of the last request.
    cookie: u64,
    /// The reason, once the connection is over.
    ended: Option<Arc<str>>,
    /// When the last reply came, or the first request after none were owed.
    heard: Instant,
}

struct Waiter {
    slot: Arc<Slot>,
    /// `None` while the reader works on it.
    assembly: Option<Assembly>,
}

#[derive(Default)]
struct Slot {
    answer: Mutex<Option<std::result::Result<Answered, Arc<str>>>>,
    came: Condvar,
}

/// A request that was sent.
pub(super) struct Ticket {
    slot: Arc<Slot>,
    connection: Arc<Connection>,
}

impl Slot {
    fn fill(&self, answer: std::result::Result<Answered, Arc<str>>) {
        *self.answer.lock() = Some(answer);
        self.came.notify_one();
    }
}

impl Ticket {
    /// Waits for the reply. A connection on which nothing comes for too long is given up.
    pub(super) fn wait(self) -> std::result::Result<Reply, Trouble> {
        let mut answer = self.slot.answer.lock();
        while answer.is_none() {
            if self.slot.came.wait_for(&mut answer, self.connection.silence_max).timed_out()
                && answer.is_none()
            {
                // The connection takes the slot's lock to answer.
                parking_lot::MutexGuard::unlocked(&mut answer, || self.connection.end_if_silent());
            }
        }
        match answer.take().expect("there is an answer after the loop") {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(SHUTDOWN)) => Err(Trouble::Lost("the server is being shut down".into())),
            Ok(Err(error)) => Err(Trouble::Failed(error)),
            Err(reason) => Err(Trouble::Lost(reason)),
        }
    }
}

impl Connection {
    /// Begins to read replies on a stream whose handshake is over. Waits no longer than `silence_max` for a
    /// server that owes replies; has at most `depth` requests in flight.
    pub(super) fn start(
        stream: Stream,
        agreed: &Agreed,
        silence_max: Duration,
        depth: usize,
    ) -> Result<Arc<Self>> {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(silence_max))?;
        let reading = stream.try_clone()?;
        let table = Table { waiting: HashMap::new(), cookie: 0, ended: None, heard: Instant::now() };
        let connection = Arc::new(Self {
            stream,
            form: Form { headers: agreed.headers, context: agreed.context },
            silence_max,
            depth,
            sending: Mutex::new(()),
            table: Mutex::new(table),
            room: Condvar::new(),
        });
        let reader = Arc::clone(&connection);
        std::thread::Builder::new()
            .name("nbd-replies".to_owned())
            .spawn(move || reader.read_all(&reading))?;
        Ok(connection)
    }

    fn read_all(&self, stream: &Stream) {
        let mut from = BufReader::with_capacity(BUFFER_LEN, stream);
        let error = loop {
            if let Err(error) = read_next(&mut from, self.form, self) {
                break error;
            }
        };
        self.end(&error.to_string());
    }

    /// Sends a request.
    pub(super) fn send(self: &Arc<Self>, order: &Order<'_>) -> std::result::Result<Ticket, Trouble> {
        let slot = Arc::new(Slot::default());
        let assembly = match order.command {
            Command::Read => Assembly::bytes(order.at, hectare_units::index_of(order.len)),
            Command::BlockStatus => Assembly::extents(order.at),
            _ => Assembly::nothing(order.at),
        };
        let waiter = Waiter { slot: Arc::clone(&slot), assembly: Some(assembly) };
        let cookie = self.enter(waiter).map_err(Trouble::Lost)?;
        let Order { command, flags, at, len, data } = *order;
        let mut head = Vec::with_capacity(32);
        Request { flags, command, cookie, offset: at, len }.encode(self.form.headers, &mut head);
        let sent = {
            let _whole = self.sending.lock();
            write_both(&self.stream, &head, data)
        };
        if let Err(error) = sent {
            self.end(&Error::Io(error).to_string());
        }
        Ok(Ticket { slot, connection: Arc::clone(self) })
    }

    /// Gives a request its cookie, once there is room for it.
    fn enter(&self, waiter: Waiter) -> std::result::Result<u64, Arc<str>> {
        let mut table = self.table.lock();
        while table.ended.is_none() && table.waiting.len() >= self.depth {
            if self.room.wait_for(&mut table, self.silence_max).timed_out() && table.ended.is_none() {
                parking_lot::MutexGuard::unlocked(&mut table, || self.end_if_silent());
            }
        }
        if let Some(reason) = &table.ended {
            return Err(Arc::clone(reason));
        }
        if table.waiting.is_empty() {
            // The server owed nothing until now.
            table.heard = Instant::now();
        }
        table.cookie += 1;
        let cookie = table.cookie;
        table.waiting.insert(cookie, waiter);
        Ok(cookie)
    }

    fn end_if_silent(&self) {
        if self.table.lock().heard.elapsed() >= self.silence_max {
            self.end("the server does not answer");
        }
    }

    /// Ends the connection and answers all that wait. The first reason counts.
    pub(super) fn end(&self, reason: &str) {
        let reason = Arc::clone(self.table.lock().ended.get_or_insert_with(|| reason.into()));
        // Nobody makes a request again before the server can see that this connection is over.
        self.stream.shutdown(Shutdown::Both);
        for (_, waiter) in self.table.lock().waiting.drain() {
            waiter.slot.fill(Err(Arc::clone(&reason)));
        }
        self.room.notify_all();
    }

    /// Takes leave of the server.
    pub(super) fn leave(&self) {
        let (flags, command) = (CommandFlags::empty(), Command::Disconnect);
        let mut head = Vec::new();
        Request { flags, command, cookie: 0, offset: 0, len: 0 }.encode(self.form.headers, &mut head);
        if let Some(_whole) = self.sending.try_lock() {
            // It is mere politeness.
            let _: io::Result<()> = write_both(&self.stream, &head, &[]);
        }
        self.end("it was closed");
    }
}

impl Waiting for Connection {
    fn take(&self, cookie: u64) -> Option<Assembly> {
        self.table.lock().waiting.get_mut(&cookie)?.assembly.take()
    }

    fn put_back(&self, cookie: u64, assembly: Assembly) {
        let mut table = self.table.lock();
        table.heard = Instant::now();
        if let Some(waiter) = table.waiting.get_mut(&cookie) {
            waiter.assembly = Some(assembly);
        }
    }

    fn finish(&self, cookie: u64, answered: Answered) {
        let mut table = self.table.lock();
        table.heard = Instant::now();
        let Some(waiter) = table.waiting.remove(&cookie) else { return };
        drop(table);
        self.room.notify_one();
        waiter.slot.fill(Ok(answered));
    }
}
