//! Serves all connections in one thread, without waiting for any of them.
//!
//! A connection has one deadline, from its beginning to the last byte of its answer. When the limit of
//! connections is reached, a new one replaces the oldest whose request is not complete; a request that is
//! there when its connection is accepted is read at once, so that any number of idle connections can't
//! displace it before.
//!
//! What it is not: parallel. Answers are made one after the other, each from metrics that are at hand.

use super::{CONNECTIONS_MAX, PATIENCE, REQUEST_MAX, REST, has_ended};
use log::debug;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// Bytes of a request that are read at a time.
const CHUNK: usize = 1024;

/// The connections of a server, the oldest first.
#[derive(Default)]
pub(super) struct Connections(Vec<Connection>);

struct Connection {
    stream: TcpStream,
    until: Instant,
    state: State,
}

enum State {
    /// The part of the request that was received.
    Asking(Vec<u8>),
    /// The answer, and how much of it was sent.
    Answering(Vec<u8>, usize),
}

impl Connections {
    /// Waits until a connection is ready, and advances all that are.
    pub(super) fn turn(&mut self, listener: &TcpListener, answer: impl Fn(&[u8]) -> Vec<u8>) {
        let (ready, has_new) = self.wait(listener);
        let mut ready = ready.into_iter();
        self.0.retain_mut(|connection| {
            let goes_on = if ready.next().unwrap_or(false) { connection.advance(&answer) } else { true };
            goes_on && Instant::now() < connection.until
        });
        if has_new {
            self.accept(listener, &answer);
        }
    }

    /// Which connections are ready, and whether there are new ones; nothing when the next deadline has
    /// passed.
    fn wait(&self, listener: &TcpListener) -> (Vec<bool>, bool) {
        let mut waited: Vec<PollFd<'_>> = self.0.iter().map(Connection::awaited).collect();
        waited.push(PollFd::new(listener, PollFlags::IN));
        let next = self.0.iter().map(|connection| connection.until).min();
        let left = next.map(|until| until.saturating_duration_since(Instant::now()));
        // A time that can't be represented is no limit.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        if poll(&mut waited, left.as_ref()).is_err() {
            return (Vec::new(), false); // a signal
        }
        let mut ready: Vec<bool> = waited.iter().map(|fd| !fd.revents().is_empty()).collect();
        let has_new = ready.pop().unwrap_or(false);
        (ready, has_new)
    }

    /// Accepts waiting connections, no more than the limit at a time, so that the others get their turn.
    fn accept(&mut self, listener: &TcpListener, answer: &impl Fn(&[u8]) -> Vec<u8>) {
        for _ in 0..CONNECTIONS_MAX {
            match listener.accept() {
                Ok((stream, _)) => self.add(stream, answer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_of_client(&error) => {}
                Err(_) => {
                    // There is no descriptor left, or the server ends.
                    self.drop_one();
                    return thread::sleep(REST);
                }
            }
        }
    }

    fn add(&mut self, stream: TcpStream, answer: &impl Fn(&[u8]) -> Vec<u8>) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let state = State::Asking(Vec::new());
        let mut connection = Connection { stream, until: Instant::now() + PATIENCE, state };
        if !connection.advance(answer) {
            return;
        }
        if self.0.len() >= CONNECTIONS_MAX {
            self.drop_one();
        }
        self.0.push(connection);
    }

    /// Ends the oldest without a complete request, or the oldest.
    fn drop_one(&mut self) {
        let idle = self.0.iter().position(|connection| matches!(connection.state, State::Asking(_)));
        if !self.0.is_empty() {
            self.0.remove(idle.unwrap_or(0));
        }
    }
}

/// Whether only the one client's connection failed.
fn is_of_client(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

impl Connection {
    /// The event that it waits for.
    fn awaited(&self) -> PollFd<'_> {
        let flags = match self.state {
            State::Asking(_) => PollFlags::IN,
            State::Answering(..) => PollFlags::OUT,
        };
        PollFd::new(&self.stream, flags)
    }

    /// Advances it as far as possible without waiting; returns whether there is more to do.
    fn advance(&mut self, answer: impl Fn(&[u8]) -> Vec<u8>) -> bool {
        match self.step(answer) {
            Ok(()) => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => {
                debug!(error:%; "a client of the metrics went away");
                false
            }
        }
    }

    /// Serves it to its end, or to `WouldBlock`.
    fn step(&mut self, answer: impl Fn(&[u8]) -> Vec<u8>) -> io::Result<()> {
        if let State::Asking(request) = &mut self.state {
            read(&mut self.stream, request)?;
            self.state = State::Answering(answer(request), 0);
        }
        if let State::Answering(bytes, sent) = &mut self.state {
            write(&mut self.stream, bytes, sent)?;
        }
        // The rest of the client's data is not read; it may see a reset, but after the answer.
        self.stream.shutdown(std::net::Shutdown::Write)
    }
}

/// Reads a request up to the end of its headers, or up to the limit.
fn read(stream: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; CHUNK];
    while request.len() < REQUEST_MAX && !has_ended(request) {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => request.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write(stream: &mut TcpStream, bytes: &[u8], sent: &mut usize) -> io::Result<()> {
    while *sent < bytes.len() {
        match stream.write(&bytes[*sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => *sent += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
