//! The other side of a connection, without a kernel: requests as bytes over a socket, answers as bytes back.
//!
//! For tests and for fuzzing: the adapter behind it is the one that a mount has, and so is the session that
//! reads the requests. The bytes of a request are whatever the caller likes; only its header is made here,
//! and even that can be left out ([`Client::send`]).
//!
//! Not for speed: one request at a time, and answers must fit a socket's message (about 200 KiB).

use crate::adapter::Adapter;
use fuser::{Config, Session, SessionACL};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// Bytes before the body of a request, and of an answer.
const REQUEST_HEADER: usize = 40;
const ANSWER_HEADER: usize = 16;
/// The request that begins a session, and the protocol it speaks.
const INIT: u32 = 26;
const PROTOCOL: (u32, u32) = (7, 40);
/// Capabilities of both words, as a kernel that can do everything offers them.
const EVERYTHING: u32 = !(1 << 31);
/// The longest an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
const ANSWER_MAX: usize = 2 << 20;

/// A connection to an adapter.
pub struct Client {
    socket: OwnedFd,
    unique: u64,
}

impl Client {
    /// Starts a session for the adapter on a thread of its own, and shakes hands with it.
    ///
    /// # Errors
    /// If the session can't be started.
    pub fn start(adapter: Adapter) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let mut client = Self { socket: ours, unique: 0 };
        let mut init = Vec::new();
        for word in [PROTOCOL.0, PROTOCOL.1, 128 << 10, EVERYTHING, 0xff] {
            init.extend_from_slice(&u32::to_le_bytes(word));
        }
        init.resize(64, 0);
        let request = client.message(INIT, 0, &init);
        client.send(&request)?;
        // It reads the hand-shake at once, which therefore must have been sent.
        let session = Session::from_fd(adapter, theirs, SessionACL::All, Config::default())?;
        thread::Builder::new().name("hectare-client".into()).spawn(move || session.run())?;
        client.answer()?.map_err(io::Error::from_raw_os_error)?;
        Ok(client)
    }

    /// A whole request: header and body.
    fn message(&mut self, operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        self.unique += 1;
        let len = u32::try_from(REQUEST_HEADER + body.len()).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(REQUEST_HEADER + body.len());
        message.extend_from_slice(&len.to_le_bytes());
        message.extend_from_slice(&operation.to_le_bytes());
        message.extend_from_slice(&self.unique.to_le_bytes());
        message.extend_from_slice(&node.to_le_bytes());
        message.resize(REQUEST_HEADER, 0); // root asks, no process
        message.extend_from_slice(body);
        message
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
        let message = self.message(operation, node, body);
        self.send(&message)
    }

    /// Sends a request and waits for its answer: the body, or the error number.
    ///
    /// # Errors
    /// If the session has ended, or does not answer.
    pub fn ask(&mut self, operation: u32, node: u64, body: &[u8]) -> io::Result<Result<Vec<u8>, i32>> {
        self.tell(operation, node, body)?;
        self.answer()
    }

    fn answer(&self) -> io::Result<Result<Vec<u8>, i32>> {
        let mut answer = vec![0; ANSWER_MAX];
        let (len, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(len);
        let word = |at: usize| answer.get(at..).and_then(<[u8]>::first_chunk).copied();
        let (Some(error), Some(unique)) = (word(4), answer.get(8..).and_then(<[u8]>::first_chunk)) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if u64::from_le_bytes(*unique) != self.unique {
            return Err(io::Error::other("the answer is to another request"));
        }
        match i32::from_le_bytes(error) {
            0 => Ok(Ok(answer.split_off(ANSWER_HEADER))),
            error => Ok(Err(error.saturating_neg())),
        }
    }
}
