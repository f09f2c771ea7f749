//! Network block devices, by the NBD protocol: exports of other servers as devices ([`NbdDevice`]), and
//! devices as exports for other clients ([`Server`]).
//!
//! Both sides speak the fixed newstyle with `NBD_OPT_GO`, structured replies and extended headers (requests
//! of up to 2^64 - 1 bytes), and make do with less. There is no asynchronous runtime: threads block on
//! sockets.
//!
//! Hazards, on both sides: what comes from the other side is a stranger's. Lengths are bounded before memory
//! is taken, the handshake has a time limit, texts are shown without control characters.
//!
//! Either side can speak TLS ([`TlsClient`], [`TlsServer`]), and then speaks nothing else.
//!
//! What this crate is not: it has no cache, and does not know what the bytes mean.

mod address;
mod client;
mod error;
mod os;
mod protocol;
mod server;
mod socket;
mod stream;
mod tls;

pub use address::{Address, Place};
pub use client::{NbdDevice, Options, digest};
pub use error::{Error, Result};
pub use protocol::PORT;
pub use server::{Export, Listener, Server, Stopper};
pub use tls::{TlsClient, TlsServer};
