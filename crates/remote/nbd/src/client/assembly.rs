//! Puts a reply together from its parts, for every request that waits for one.
//!
//! A server may split the reply to a read into chunks, in any order, and mix the chunks of several requests.
//! Invariant: memory is what the requests asked for, whatever the server says; a chunk that lies outside its
//! request, or covers a byte twice, ends the connection, and so does a reply that leaves bytes out.

use crate::protocol::reply::{Chunk, Descriptor, Header, kind, parse_status};
use crate::protocol::{Headers, STRING_MAX, bytes_from, u16_from, u32_from, u64_from};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::io::Read;

/// The most extents that a reply may list, as the protocol recommends to servers.
const EXTENTS_MAX: usize = 1 << 20;

/// A complete reply.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// It was done.
    Done,
    /// The bytes that were read.
    Bytes(Vec<u8>),
    /// The extents from the place asked about on.
    Extents(Vec<Descriptor>),
}

/// A complete reply, or the number of an error of the protocol.
pub(crate) type Answered = std::result::Result<Reply, u32>;

/// What a request waits for.
#[derive(Debug)]
enum Wanted {
    Nothing,
    Bytes,
    Extents,
}

/// A reply of which some parts are there.
#[derive(Debug)]
pub(crate) struct Assembly {
    wanted: Wanted,
    offset: u64,
    bytes: Vec<u8>,
    /// The parts of `bytes` that are there: start and end.
    covered: BTreeMap<usize, usize>,
    extents: Vec<Descriptor>,
    error: Option<u32>,
}

impl Assembly {
    /// Of a request with no data in its reply.
    pub(crate) fn nothing(offset: u64) -> Self {
        Self::of(Wanted::Nothing, offset, 0)
    }

    /// Of a read of `len` bytes.
    pub(crate) fn bytes(offset: u64, len: usize) -> Self {
        Self::of(Wanted::Bytes, offset, len)
    }

    /// Of a question about extents.
    pub(crate) fn extents(offset: u64) -> Self {
        Self::of(Wanted::Extents, offset, 0)
    }

    fn of(wanted: Wanted, offset: u64, len: usize) -> Self {
        let bytes = vec![0; len];
        Self { wanted, offset, bytes, covered: BTreeMap::new(), extents: Vec::new(), error: None }
    }

    /// Takes in what follows the header of a simple reply.
    fn simple(&mut self, error: u32, form: Form, from: &mut impl Read) -> Result<()> {
        if error != 0 {
            self.error = Some(error);
        } else if matches!(self.wanted, Wanted::Bytes) && form.headers == Headers::Simple {
            from.read_exact(&mut self.bytes)?;
            self.cover(0, self.bytes.len())?;
        } else if !matches!(self.wanted, Wanted::Nothing) {
            return Err(Error::Protocol("a reply that must come in chunks comes without"));
        }
        Ok(())
    }

    /// Takes in what follows the header of a chunk.
    fn chunk(&mut self, chunk: &Chunk, form: Form, from: &mut impl Read) -> Result<()> {
        if form.headers == Headers::Extended && chunk.offset != self.offset {
            return Err(Error::Protocol("a chunk names another place than its request"));
        }
        match (chunk.kind, &self.wanted) {
            (kind::NONE, _) if chunk.len == 0 && chunk.done => Ok(()),
            (kind::DATA, Wanted::Bytes) => {
                let len = chunk.len.checked_sub(8).ok_or(Error::Protocol("a chunk is too short"))?;
                let at = u64_from(from)?;
                let (start, end) = self.place(at, len)?;
                self.cover(start, end)?;
                Ok(from.read_exact(&mut self.bytes[start..end])?)
            }
            (kind::HOLE, Wanted::Bytes) if chunk.len == 12 => {
                let (at, len) = (u64_from(from)?, u32_from(from)?);
                let (start, end) = self.place(at, len.into())?;
                // The bytes are zeros already: nothing was written there.
                self.cover(start, end)
            }
            (kind::STATUS | kind::STATUS_EXTENDED, Wanted::Extents) => self.status(chunk, form, from),
            _ if chunk.is_error() => self.failed(chunk, from),
            _ => Err(Error::Protocol("a chunk does not fit its request")),
        }
    }

    fn status(&mut self, chunk: &Chunk, form: Form, from: &mut impl Read) -> Result<()> {
        let extended = chunk.kind == kind::STATUS_EXTENDED;
        if extended && form.headers != Headers::Extended {
            return Err(Error::Protocol("extents come in a form that was not agreed on"));
        }
        let most = EXTENTS_MAX * if extended { 16 } else { 8 } + 8;
        let bytes = bytes_from(from, chunk.len, most, "there are too many extents")?;
        let (context, extents) = parse_status(&bytes, extended)?;
        if Some(context) != form.context || !self.extents.is_empty() {
            return Err(Error::Protocol("extents are of a context that was not asked for"));
        }
        self.extents = extents;
        Ok(())
    }

    fn failed(&mut self, chunk: &Chunk, from: &mut impl Read) -> Result<()> {
        // The error, a text with its length, and eight bytes at most.
        let bytes = bytes_from(from, chunk.len, STRING_MAX + 16, "an error is too long")?;
        let rest = &mut &bytes[..];
        let (error, text_len) = (u32_from(rest)?, u16_from(rest)?);
        if error == 0 || usize::from(text_len) > rest.len() {
            return Err(Error::Protocol("an error makes no sense"));
        }
        // The first counts.
        self.error.get_or_insert(error);
        Ok(())
    }

    /// Where in the buffer a range of the export lies.
    fn place(&self, at: u64, len: u64) -> Result<(usize, usize)> {
        let start = at.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
        let end = start.and_then(|start| start.checked_add(usize::try_from(len).ok()?));
        match (start, end) {
            (Some(start), Some(end)) if start < end && end <= self.bytes.len() => Ok((start, end)),
            _ => Err(Error::Protocol("a chunk lies outside of its request")),
        }
    }

    /// Notes that a part is there, which must be new.
    fn cover(&mut self, start: usize, end: usize) -> Result<()> {
        let before = self.covered.range(..end).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, covered)| covered > start) {
            return Err(Error::Protocol("a chunk covers bytes that were there already"));
        }
        match before {
            // Most come in order, which makes one part of all.
            Some((earlier, covered)) if covered == start => self.covered.insert(earlier, end),
            _ => self.covered.insert(start, end),
        };
        Ok(())
    }

    /// The complete reply.
    fn finish(self) -> Result<Answered> {
        if let Some(error) = self.error {
            return Ok(Err(error));
        }
        Ok(Ok(match self.wanted {
            Wanted::Nothing => Reply::Done,
            Wanted::Extents if self.extents.is_empty() => {
                return Err(Error::Protocol("a question about extents is answered without any"));
            }
            Wanted::Extents => Reply::Extents(self.extents),
            Wanted::Bytes => {
                let there: usize = self.covered.iter().map(|(start, end)| end - start).sum();
                if there != self.bytes.len() {
                    return Err(Error::Protocol("a reply leaves bytes out"));
                }
                Reply::Bytes(self.bytes)
            }
        }))
    }
}

/// The form of replies that was agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The headers.
    pub(crate) headers: Headers,
    /// The context of extents.
    pub(crate) context: Option<u32>,
}

/// The requests that wait for replies.
pub(crate) trait Waiting {
    /// Removes one by its cookie.
    fn take(&self, cookie: u64) -> Option<Assembly>;
    /// Puts one back of which parts are missing.
    fn put_back(&self, cookie: u64, assembly: Assembly);
    /// Gives one its reply.
    fn finish(&self, cookie: u64, answered: Answered);
}

/// Reads the next reply, or part of one, and gives it to its request.
pub(crate) fn read_next(from: &mut impl Read, form: Form, waiting: &impl Waiting) -> Result<()> {
    let header = Header::read(from, form.headers)?;
    let (Header::Simple { cookie, .. } | Header::Chunk(Chunk { cookie, .. })) = header;
    let mut assembly = waiting.take(cookie).ok_or(Error::Protocol("a reply is to no request that waits"))?;
    let read = match &header {
        Header::Simple { error, .. } => assembly.simple(*error, form, from).map(|()| true),
        Header::Chunk(chunk) => assembly.chunk(chunk, form, from).map(|()| chunk.done),
    };
    match read {
        Ok(false) => waiting.put_back(cookie, assembly),
        Ok(true) => waiting.finish(cookie, assembly.finish()?),
        Err(error) => return Err(error),
    }
    Ok(())
}
