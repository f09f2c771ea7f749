//! The messages of the NBD protocol as bytes, in both directions: no sockets, no threads, no policy.
//!
//! All numbers are big-endian. [`option`] has the messages of the handshake, [`request`] what a client sends
//! after it, [`reply`] what a server answers. Reading is generic over [`std::io::Read`], so that tests and
//! the fuzzer feed bytes.
//!
//! Invariant: no length that a peer claims is believed: each has a bound here, and memory is taken only after
//! the bound was checked.

pub(crate) mod option;
pub(crate) mod reply;
pub(crate) mod request;

use crate::{Error, Result};
use bitflags::bitflags;
use std::io::Read;

/// The port that IANA gave the protocol.
pub const PORT: u16 = 10809;

/// The greeting of every server.
pub(crate) const GREETING: u64 = 0x4e42_444d_4147_4943;
/// What follows it from a server that takes options, and precedes each option.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// What follows it from a server of the old style, which takes none.
pub(crate) const OLD_STYLE: u64 = 0x0000_4202_8186_1253;

/// The longest name or message of the protocol.
pub(crate) const STRING_MAX: usize = 4096;

/// The context that says which parts are allocated, and which are zeros.
pub(crate) const ALLOCATION: &[u8] = b"base:allocation";

/// The largest payload where none was agreed on.
pub(crate) const PAYLOAD_MAX: u32 = 32 << 20;

bitflags! {
    /// What a server says of itself, and a client of itself, before the options.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct HandshakeFlags: u16 {
        /// Options are answered in the fixed form.
        const FIXED_NEWSTYLE = 1;
        /// No padding after the reply to the oldest option.
        const NO_ZEROES = 1 << 1;
    }

    /// What an export can do.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct ExportFlags: u16 {
        /// There are flags: always set.
        const HAS_FLAGS = 1;
        /// Changes are refused.
        const READ_ONLY = 1 << 1;
        /// There is a flush.
        const FLUSH = 1 << 2;
        /// A write can be made durable alone.
        const FUA = 1 << 3;
        /// Ranges can be given up.
        const TRIM = 1 << 5;
        /// Ranges can be zeroed without sending zeros.
        const WRITE_ZEROES = 1 << 6;
        /// A read can ask for a reply in one piece.
        const DF = 1 << 7;
        /// A flush on one connection covers what others wrote, and each sees what others wrote.
        const CAN_MULTI_CONN = 1 << 8;
        /// Zeroing can be refused where it would be slow.
        const FAST_ZERO = 1 << 11;
    }

    /// Modifies a request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct CommandFlags: u16 {
        /// Durable before the reply.
        const FUA = 1;
        /// Zeroed, but allocated.
        const NO_HOLE = 1 << 1;
        /// The reply in one piece.
        const DF = 1 << 2;
        /// One extent only.
        const REQ_ONE = 1 << 3;
        /// Zeroed fast or not at all.
        const FAST_ZERO = 1 << 4;
        /// The length is that of a payload (extended headers only).
        const PAYLOAD_LEN = 1 << 5;
    }
}

/// The form of requests and replies that was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Headers {
    /// Short requests, simple replies.
    Simple,
    /// Short requests, replies in chunks.
    Structured,
    /// Requests of up to 2^64 - 1 bytes, replies in chunks.
    Extended,
}

/// Reads an array of bytes.
pub(crate) fn array<const N: usize>(from: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a number of 16 bits.
pub(crate) fn u16_from(from: &mut impl Read) -> Result<u16> {
    array(from).map(u16::from_be_bytes)
}

/// Reads a number of 32 bits.
pub(crate) fn u32_from(from: &mut impl Read) -> Result<u32> {
    array(from).map(u32::from_be_bytes)
}

/// Reads a number of 64 bits.
pub(crate) fn u64_from(from: &mut impl Read) -> Result<u64> {
    array(from).map(u64::from_be_bytes)
}

/// Reads `len` bytes, if that is not more than `max`.
pub(crate) fn bytes_from(from: &mut impl Read, len: u64, max: usize, what: &'static str) -> Result<Vec<u8>> {
    let len = usize::try_from(len).ok().filter(|len| *len <= max).ok_or(Error::Protocol(what))?;
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Takes a string with its length before it off the front of bytes.
pub(crate) fn string_from(bytes: &mut &[u8]) -> Result<Vec<u8>> {
    let len = u32_from(bytes)?;
    bytes_from(bytes, len.into(), STRING_MAX, "a name is longer than 4096 bytes")
}

/// Appends a string with its length before it.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    // A length beyond 32 bits is refused by every peer; nothing here has one.
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(text);
}
