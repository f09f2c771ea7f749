//! Replies: what a server answers to requests, as headers, chunks and descriptors of extents.

use super::{Headers, u16_from, u32_from, u64_from};
use crate::{Error, Result};
use hectare_device::os::{Errno, native_number};
use std::io::Read;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

/// The flag of the last chunk.
const DONE: u16 = 1;
/// The bit that is set in chunks that are errors.
const ERROR: u16 = 1 << 15;

/// Kinds of chunks.
pub(crate) mod kind {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const STATUS: u16 = 5;
    pub(crate) const STATUS_EXTENDED: u16 = 6;
    pub(crate) const ERROR: u16 = super::ERROR | 1;
}

/// The bit of a descriptor that says: these bytes read as zeros.
pub(crate) const STATE_ZERO: u32 = 2;
/// The bit that says: they take no storage.
pub(crate) const STATE_HOLE: u32 = 1;

/// The header of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// A whole reply; a read's data follows.
    Simple {
        /// Zero, or what went wrong.
        error: u32,
        /// That of the request.
        cookie: u64,
    },
    /// A part of a reply.
    Chunk(Chunk),
}

/// The header of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    /// Whether it is the last.
    pub(crate) done: bool,
    /// What kind of chunk.
    pub(crate) kind: u16,
    /// That of the request.
    pub(crate) cookie: u64,
    /// The place that the request named (extended headers only; 0 otherwise).
    pub(crate) offset: u64,
    /// How many bytes follow.
    pub(crate) len: u64,
}

impl Chunk {
    /// Whether it says that the request failed.
    pub(crate) const fn is_error(&self) -> bool {
        self.kind & ERROR != 0
    }
}

impl Header {
    /// Appends its bytes.
    pub(crate) fn encode(&self, headers: Headers, out: &mut Vec<u8>) {
        match self {
            Self::Simple { error, cookie } => {
                out.extend(SIMPLE_MAGIC.to_be_bytes());
                out.extend(error.to_be_bytes());
                out.extend(cookie.to_be_bytes());
            }
            Self::Chunk(chunk) => {
                let extended = headers == Headers::Extended;
                out.extend(if extended { EXTENDED_MAGIC } else { STRUCTURED_MAGIC }.to_be_bytes());
                out.extend(if chunk.done { DONE } else { 0 }.to_be_bytes());
                out.extend(chunk.kind.to_be_bytes());
                out.extend(chunk.cookie.to_be_bytes());
                if extended {
                    out.extend(chunk.offset.to_be_bytes());
                    out.extend(chunk.len.to_be_bytes());
                } else {
                    out.extend(u32::try_from(chunk.len).expect("a chunk fits its header").to_be_bytes());
                }
            }
        }
    }

    /// Reads one.
    pub(crate) fn read(from: &mut impl Read, headers: Headers) -> Result<Self> {
        match (u32_from(from)?, headers) {
            (SIMPLE_MAGIC, Headers::Simple | Headers::Structured) => {
                Ok(Self::Simple { error: u32_from(from)?, cookie: u64_from(from)? })
            }
            (STRUCTURED_MAGIC, Headers::Structured) => {
                let (flags, kind, cookie) = (u16_from(from)?, u16_from(from)?, u64_from(from)?);
                let len = u32_from(from)?.into();
                Ok(Self::Chunk(Chunk { done: flags & DONE != 0, kind, cookie, offset: 0, len }))
            }
            (EXTENDED_MAGIC, Headers::Extended) => {
                let (flags, kind, cookie) = (u16_from(from)?, u16_from(from)?, u64_from(from)?);
                let (offset, len) = (u64_from(from)?, u64_from(from)?);
                Ok(Self::Chunk(Chunk { done: flags & DONE != 0, kind, cookie, offset, len }))
            }
            _ => Err(Error::Protocol("a reply does not begin as one")),
        }
    }
}

/// An extent with its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    /// How many bytes.
    pub(crate) len: u64,
    /// What they are: the bits `STATE_`.
    pub(crate) state: u32,
}

/// Appends the payload of a chunk with the status of consecutive extents.
pub(crate) fn encode_status(extents: &[Descriptor], context: u32, extended: bool, out: &mut Vec<u8>) {
    out.extend(context.to_be_bytes());
    if extended {
        out.extend(u32::try_from(extents.len()).unwrap_or(0).to_be_bytes());
    }
    for extent in extents {
        if extended {
            out.extend(extent.len.to_be_bytes());
            out.extend([0; 4]);
        } else {
            out.extend(u32::try_from(extent.len).expect("the extent fits its descriptor").to_be_bytes());
        }
        out.extend(extent.state.to_be_bytes());
    }
}

/// The context and the extents of a payload: at least one, none of them empty.
pub(crate) fn parse_status(mut bytes: &[u8], extended: bool) -> Result<(u32, Vec<Descriptor>)> {
    let from = &mut bytes;
    let context = u32_from(from)?;
    let claimed = if extended { u32_from(from)? } else { 0 };
    let mut extents = Vec::new();
    while !from.is_empty() {
        let (len, state) = match extended {
            true => {
                let len = u64_from(from)?;
                u32_from(from)?;
                (len, u32_from(from)?)
            }
            false => (u32_from(from)?.into(), u32_from(from)?),
        };
        if len == 0 {
            return Err(Error::Protocol("an extent has no length"));
        }
        extents.push(Descriptor { len, state });
    }
    if extents.is_empty() || (claimed != 0 && u64::from(claimed) != extents.len() as u64) {
        return Err(Error::Protocol("a status has another number of extents than it claims"));
    }
    Ok((context, extents))
}

/// The protocol's numbers of errors, which are Linux's (its specification, "Error values").
mod error {
    pub(super) const PERM: u32 = 1;
    pub(super) const IO: u32 = 5;
    pub(super) const NOMEM: u32 = 12;
    pub(super) const INVAL: u32 = 22;
    pub(super) const NOSPC: u32 = 28;
    pub(super) const OVERFLOW: u32 = 75;
    pub(super) const NOTSUP: u32 = 95;
}
/// The number of a request that can't be served in this form.
pub(crate) const UNSUPPORTED: u32 = error::NOTSUP;

/// The number by which the protocol knows an error with this number of Linux's.
pub(crate) fn number_of(errno: i32) -> u32 {
    match errno.unsigned_abs() {
        13 | 30 => error::PERM,   // EACCES, EROFS
        27 | 122 => error::NOSPC, // EFBIG, EDQUOT
        known @ (error::PERM
        | error::NOMEM
        | error::INVAL
        | error::NOSPC
        | error::OVERFLOW
        | error::NOTSUP) => known,
        _ => error::IO,
    }
}

/// The host's number of the error that the protocol means by a number; one that is unknown is an I/O error.
pub(crate) fn errno_of(number: u32) -> i32 {
    let linux = i32::try_from(number).unwrap_or(0);
    match number {
        1 | 5 | 12 | 22 | 28 | 75 | 95 | 108 => native_number(linux),
        _ => Errno::IO.raw_os_error(),
    }
}

/// Whether an error says that a request can't be served in this form.
pub(crate) const fn is_unsupported(number: u32) -> bool {
    matches!(number, error::NOTSUP | error::INVAL | error::OVERFLOW)
}

/// The number of the error that says: the server is being shut down.
pub(crate) const SHUTDOWN: u32 = 108;

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::os::linux_number;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(done: bool, kind: u16, cookie: u64, offset: u64, len: u32, error: u32) {
            let mut chunk = Chunk { done, kind, cookie, offset: 0, len: len.into() };
            for headers in [Headers::Structured, Headers::Extended] {
                if headers == Headers::Extended {
                    chunk.offset = offset;
                }
                let mut bytes = Vec::new();
                Header::Chunk(chunk).encode(headers, &mut bytes);
                prop_assert_eq!(Header::read(&mut &bytes[..], headers).unwrap(), Header::Chunk(chunk));
            }
            let mut bytes = Vec::new();
            Header::Simple { error, cookie }.encode(Headers::Simple, &mut bytes);
            let read = Header::read(&mut &bytes[..], Headers::Simple).unwrap();
            prop_assert_eq!(read, Header::Simple { error, cookie });
            prop_assert!(Header::read(&mut &bytes[..], Headers::Extended).is_err());
        }

        #[test]
        fn extents_come_back(lens in vec(1_u32.., 1..20), state: u32, context: u32, extended: bool) {
            let extents: Vec<_> = lens.iter().map(|len| Descriptor { len: (*len).into(), state }).collect();
            let mut bytes = Vec::new();
            encode_status(&extents, context, extended, &mut bytes);
            prop_assert_eq!(parse_status(&bytes, extended).unwrap(), (context, extents));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            for extended in [false, true] {
                if let Ok((_, extents)) = parse_status(&bytes, extended) {
                    prop_assert!(extents.iter().all(|extent| extent.len > 0));
                }
            }
        }
    }

    #[test]
    fn errors_of_the_system_have_numbers_and_come_back() {
        for errno in [1, 5, 12, 22, 28, 75, 95] {
            assert_eq!(linux_number(errno_of(number_of(errno))), errno);
        }
        assert_eq!(number_of(linux_number(Errno::ROFS.raw_os_error())), 1);
        assert_eq!(linux_number(errno_of(4711)), 5);
    }
}
