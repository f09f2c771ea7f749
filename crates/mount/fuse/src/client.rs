//! The kernel's side of a connection, without a kernel: takes requests as bytes, returns answers as bytes.
//!
//! For tests and for fuzzing: the adapter behind it is the one that a mount has, and so is everything between
//! the bytes of a request and those of its answer (`crate::event_loop`). The body of a request is up to the
//! caller; only the header is made here, and even that can be left out ([`Client::send`]).
//!
//! What it is not: a mount's threads and descriptors, which only tests on real mounts have.

use crate::adapter::Adapter;
use crate::event_loop::Session;
use crate::protocol::reply::{Reply, Stale};
use crate::protocol::request::INIT;
use std::sync::Arc;

/// Bytes before the body of a request, and of an answer.
const REQUEST_HEADER: usize = 40;
const ANSWER_HEADER: usize = 16;
/// The version of the protocol.
const PROTOCOL: (u32, u32) = (7, 45);
/// Features of the second word, as offered by a kernel that supports everything.
const EVERYTHING: u32 = 0xff;

/// A connection to an adapter.
pub struct Client {
    session: Session<Adapter>,
    reply: Reply,
    unique: u64,
    stale: Option<u64>,
}

impl Client {
    /// Begins a session with the adapter, as a kernel that supports everything.
    ///
    /// # Panics
    /// If the adapter will not speak the newest protocol.
    #[must_use]
    pub fn start(adapter: Adapter) -> Self {
        let mut init = Vec::new();
        for word in [PROTOCOL.0, PROTOCOL.1, 128 << 10, u32::MAX, EVERYTHING] {
            init.extend_from_slice(&u32::to_ne_bytes(word));
        }
        init.resize(64, 0);
        let (_, session) = Session::greet(adapter.trusting(), Arc::default(), &message(INIT, 0, 0, &init));
        let session = session.expect("it is the newest protocol");
        Self { session, reply: Reply::default(), unique: 0, stale: None }
    }

    /// The inode whose attributes a kernel would have had to drop before the last answer.
    #[must_use]
    pub fn stale(&self) -> Option<u64> {
        self.stale
    }

    /// Sends bytes as they are; returns the answer, if there is one.
    pub fn send(&mut self, message: &[u8]) -> Option<&[u8]> {
        self.stale = None;
        let answered = self.session.answer(message, &mut self.reply)?;
        self.stale = answered.stale.iter().find_map(|stale| match stale {
            Stale::Attributes(node) | Stale::Content(node) => Some(node.0),
            Stale::Names => None,
        });
        Some(answered.bytes)
    }

    /// Sends a request that has no answer (`FORGET`).
    ///
    /// # Panics
    /// If it has one.
    pub fn tell(&mut self, operation: u32, node: u64, body: &[u8]) {
        self.unique += 1;
        let answer = self.send(&message(operation, self.unique, node, body));
        assert_eq!(answer, None);
    }

    /// Sends a request; returns the body of its answer.
    ///
    /// # Errors
    /// The error number in the answer.
    ///
    /// # Panics
    /// If there is no answer, or it belongs to another request.
    pub fn ask(&mut self, operation: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.unique += 1;
        let unique = self.unique;
        let answer = self.send(&message(operation, unique, node, body)).expect("an answer");
        let (header, body) = answer.split_at(ANSWER_HEADER);
        assert_eq!(header[..4], u32::try_from(answer.len()).unwrap_or(0).to_ne_bytes(), "its length");
        assert_eq!(header[8..], unique.to_ne_bytes(), "whose answer it is");
        match header[4..8].first_chunk().map_or(0, |error| i32::from_ne_bytes(*error)) {
            0 => Ok(body.to_vec()),
            error => Err(error.saturating_neg()),
        }
    }
}

/// A whole request from root: header and body.
fn message(operation: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(REQUEST_HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(REQUEST_HEADER + body.len());
    message.extend_from_slice(&len.to_ne_bytes());
    message.extend_from_slice(&operation.to_ne_bytes());
    message.extend_from_slice(&unique.to_ne_bytes());
    message.extend_from_slice(&node.to_ne_bytes());
    message.resize(REQUEST_HEADER, 0); // the caller is root, without a process: see `Adapter::trusting`
    message.extend_from_slice(body);
    message
}
