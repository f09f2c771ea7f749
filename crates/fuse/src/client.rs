//! The other side of a connection, without a kernel: requests as bytes over a socket, answers as bytes back.
//!
//! For tests and for fuzzing: the adapter behind it is the one that a mount has, and so is the session that
//! reads the requests. The bytes of a request are whatever the caller likes; only its header is made here,
//! and even that can be left out ([`Client::send`]).
//!
//! Between the two sits a relay that looks at each request ([`crate::guard`]): a kernel does not send what
//! the session library can't stand, but whoever holds a socket may.
//!
//! Not for speed: one request at a time, and answers must fit a socket's message.

use crate::adapter::Adapter;
use crate::guard::{REQUEST_HEADER, Verdict, judge};
use fuser::{Config, Session, SessionACL};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
    sockopt,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes before the body of an answer.
const ANSWER_HEADER: usize = 16;
/// The request that begins a session, and the protocol it speaks.
const INIT: u32 = 26;
const PROTOCOL: (u32, u32) = (7, 40);
/// Capabilities of both words, as a kernel that can do everything offers them.
const EVERYTHING: u32 = !(1 << 31);
/// The longest an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest message of either side.
const MESSAGE_MAX: usize = 256 << 10;
/// The most data in an answer: with its header it fits a message.
const ANSWER_DATA_MAX: u32 = 128 << 10;
/// The error number of a request that is not what it says.
const EINVAL: i32 = 22;

/// A connection to an adapter.
pub struct Client {
    socket: OwnedFd,
    unique: u64,
    session: JoinHandle<io::Result<()>>,
}

impl Client {
    /// Starts a session for the adapter on a thread of its own, and shakes hands with it.
    ///
    /// # Errors
    /// If the session can't be started.
    pub fn start(adapter: Adapter) -> io::Result<Self> {
        let (socket, outside) = pair()?;
        let (inside, theirs) = pair()?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let mut init = Vec::new();
        for word in [PROTOCOL.0, PROTOCOL.1, 128 << 10, EVERYTHING, 0xff] {
            init.extend_from_slice(&u32::to_le_bytes(word));
        }
        init.resize(64, 0);
        // The session reads the hand-shake at once, which therefore must have been sent.
        send(&inside, &message(INIT, 0, 0, &init), SendFlags::NOSIGNAL)?;
        let session = Session::from_fd(adapter, theirs, SessionACL::All, Config::default())?;
        let session = thread::Builder::new().name("hectare-client".into()).spawn(move || session.run())?;
        let client = Self { socket, unique: 0, session };
        relay(outside, inside)?;
        client.answer()?.map_err(io::Error::from_raw_os_error)?;
        Ok(client)
    }

    /// Hangs up, and waits until the session has ended.
    ///
    /// # Errors
    /// If it did not end because of that: a thread of it has panicked.
    pub fn end(self) -> io::Result<()> {
        drop(self.socket);
        match self.session.join() {
            // What it makes of a message without bytes.
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Ok(()),
            Ok(ended) => ended,
            Err(_) => Err(io::Error::other("the session has panicked")),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        send(&self.socket, message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a request that has no answer (`FORGET`).
    ///
    /// # Errors
    /// If the session has ended.
    pub fn tell(&mut self, operation: u32, node: u64, body: &[u8]) -> io::Result<()> {
        self.unique += 1;
        self.send(&message(operation, self.unique, node, body))
    }

    /// Sends a request and waits for its answer: the body, or the error number.
    ///
    /// # Errors
    /// If the session has ended, or does not answer.
    pub fn ask(&mut self, operation: u32, node: u64, body: &[u8]) -> io::Result<Result<Vec<u8>, i32>> {
        self.tell(operation, node, body)?;
        self.answer()
    }

    /// The answer to the last request. Others are passed over: a request that has no answer gets one if it
    /// is not what it should be.
    fn answer(&self) -> io::Result<Result<Vec<u8>, i32>> {
        let mut answer = vec![0; MESSAGE_MAX];
        loop {
            let len = receive(&self.socket, &mut answer)?;
            let answer = &answer[..len];
            let (Some(error), Some(unique)) = (
                answer.get(4..).and_then(<[u8]>::first_chunk),
                answer.get(8..).and_then(<[u8]>::first_chunk),
            ) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            if u64::from_le_bytes(*unique) == self.unique {
                return Ok(match i32::from_le_bytes(*error) {
                    0 => Ok(answer.get(ANSWER_HEADER..).unwrap_or_default().to_vec()),
                    error => Err(error.saturating_neg()),
                });
            }
        }
    }
}

/// The next message, whatever signals arrive meanwhile; none when the other side has hung up.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (len, _) = retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::empty()))?;
    Ok(len)
}

/// Two ends of a connection that keeps messages apart.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// A whole request of root's: header and body.
fn message(operation: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(REQUEST_HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(REQUEST_HEADER + body.len());
    message.extend_from_slice(&len.to_le_bytes());
    message.extend_from_slice(&operation.to_le_bytes());
    message.extend_from_slice(&unique.to_le_bytes());
    message.extend_from_slice(&node.to_le_bytes());
    message.resize(REQUEST_HEADER, 0); // root asks, no process
    message.extend_from_slice(body);
    message
}

/// Carries messages between a client and a session, on threads of its own, until either hangs up. Requests
/// that the session must not see are answered here.
fn relay(outside: OwnedFd, inside: OwnedFd) -> io::Result<()> {
    let ends = Arc::new((outside, inside));
    let same = Arc::clone(&ends);
    let spawn =
        |name: &str, carry: fn(&OwnedFd, &OwnedFd) -> io::Result<()>, ends: Arc<(OwnedFd, OwnedFd)>| {
            thread::Builder::new().name(name.into()).spawn(move || {
                let _ = carry(&ends.0, &ends.1); // it ends when somebody hangs up
                for end in [&ends.0, &ends.1] {
                    let _ = shutdown(end, Shutdown::Both);
                }
            })
        };
    spawn("hectare-requests", carry_requests, ends)?;
    spawn("hectare-answers", carry_answers, same)?;
    Ok(())
}

fn carry_requests(outside: &OwnedFd, inside: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        let len = receive(outside, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        match judge(&buffer[..len], ANSWER_DATA_MAX) {
            Verdict::Pass => send(inside, &buffer[..len], SendFlags::NOSIGNAL)?,
            Verdict::Refuse(unique) => send(outside, &refusal(unique), SendFlags::NOSIGNAL)?,
            Verdict::Drop => 0,
        };
    }
}

fn carry_answers(outside: &OwnedFd, inside: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        let len = receive(inside, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        send(outside, &buffer[..len], SendFlags::NOSIGNAL)?;
    }
}

/// The answer to a request that is not what it says.
fn refusal(unique: u64) -> [u8; ANSWER_HEADER] {
    let mut answer = [0; ANSWER_HEADER];
    answer[0] = 16;
    answer[4..8].copy_from_slice(&(-EINVAL).to_le_bytes());
    answer[8..].copy_from_slice(&unique.to_le_bytes());
    answer
}
