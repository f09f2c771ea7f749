//! The requests of one client, and their replies.
//!
//! A few threads take turns: one reads the next request, lets the next thread read, does what was asked, and
//! sends the reply. So requests are done side by side, and replies come in any order. The threads are started
//! as they are needed.
//!
//! A device that answers at once is given the small reads and writes that are received already in batches, and
//! their replies are sent together: taking turns and calling the kernel for each would cost more than the work.
//!
//! Invariant: a request that makes no sense is answered with an error and the next one is read; one whose end
//! can't be found ends the connection.

use super::Export;
use super::handshake::{Agreed, CONTEXT};
use crate::protocol::reply::{
    Chunk, Descriptor, Header, STATE_HOLE, STATE_ZERO, UNSUPPORTED, encode_status, kind, number_of,
};
use crate::protocol::request::{Command, Request};
use crate::protocol::{CommandFlags, Headers, PAYLOAD_MAX, bytes_from};
use crate::stream::{Stream, write_both};
use crate::{Error, Result};
use hectare_device::{Device, Extent, Reason, Span};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::Mutex;
use std::io::{self, BufReader, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, scope};
use std::time::Instant;

/// The threads of one client.
const THREADS_MAX: usize = 8;
/// The bytes of requests that are read at once.
const BUFFER_LEN: usize = 1 << 16;
/// The longest chunk of data.
const CHUNK_MAX: u64 = 1 << 20;
/// Holes are looked for in reads from this length on.
const HOLES_FROM: u64 = 1 << 16;
/// The most requests in a batch, and the most bytes of one of them.
const BATCH_MAX: usize = 8;
const SMALL: u64 = 1 << 14;
/// The most bytes of replies that are held back: those of a batch.
const HELD_MAX: usize = BATCH_MAX * ((1 << 14) + 64);
/// A device answers at once if a small request takes less than this, in nanoseconds, on average.
const AT_ONCE: u64 = 20_000;
/// The most extents in a reply.
const EXTENTS_MAX: usize = 4096;
/// The longest extent that a short descriptor takes, in whole blocks.
const SHORT_EXTENT: u64 = u32::MAX as u64 / 65536 * 65536;

const PERM: u32 = 1;
const INVAL: u32 = 22;
const NOSPC: u32 = 28;
const OVERFLOW: u32 = 75;

/// Answers requests until the client leaves or breaks the rules.
pub(super) fn serve(stream: &Stream, agreed: Agreed, export: &Export) {
    let talk = Talk {
        stream,
        agreed,
        export,
        receiving: Mutex::new(Some(BufReader::with_capacity(BUFFER_LEN, stream))),
        sending: Mutex::new(()),
        idle: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
        request_time: AtomicU64::new(u64::MAX / 16),
    };
    scope(|scope| talk.work(scope));
}

struct Talk<'a> {
    stream: &'a Stream,
    agreed: Agreed,
    export: &'a Export,
    /// `None` once no more is read.
    receiving: Mutex<Option<BufReader<&'a Stream>>>,
    sending: Mutex<()>,
    idle: AtomicUsize,
    threads: AtomicUsize,
    /// What a small request took of late, in nanoseconds.
    request_time: AtomicU64,
}

/// Requests with their payloads.
type Batch = Vec<(Request, Vec<u8>)>;

/// What a request leads to, or the number of an error.
type Done<T = ()> = std::result::Result<T, u32>;

impl Talk<'_> {
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        while let Some(batch) = self.next() {
            let may_start = self.idle.load(Ordering::Relaxed) == 0
                && self
                    .threads
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                        (n < THREADS_MAX).then_some(n + 1)
                    })
                    .is_ok();
            if may_start {
                // Without it, those there are go on.
                let _ =
                    Builder::new().name("nbd-requests".to_owned()).spawn_scoped(scope, || self.work(scope));
            }
            if self.answer_all(&batch).is_err() {
                // Wakes the thread that reads.
                self.stream.shutdown(Shutdown::Both);
                self.receiving.lock().take();
            }
        }
    }

    /// The next request with its payload, and those after it that belong to its batch.
    fn next(&self) -> Option<Batch> {
        self.idle.fetch_add(1, Ordering::Relaxed);
        let mut receiving = self.receiving.lock();
        self.idle.fetch_sub(1, Ordering::Relaxed);
        let from = receiving.as_mut()?;
        let is_fast = self.request_time.load(Ordering::Relaxed) < AT_ONCE;
        let mut batch = Vec::with_capacity(if is_fast { BATCH_MAX } else { 1 });
        match self.read(from) {
            Ok((request, payload)) if request.command != Command::Disconnect => {
                batch.push((request, payload));
            }
            _ => {
                receiving.take();
                return None;
            }
        }
        while is_fast && is_small(&batch[0].0) && batch.len() < BATCH_MAX && self.is_received(from) {
            // It is in the buffer, so this neither waits nor fails.
            batch.push(self.read(from).ok()?);
        }
        Some(batch)
    }

    /// Whether a small request is there, with its payload.
    fn is_received(&self, from: &BufReader<&Stream>) -> bool {
        let mut left = from.buffer();
        let request = Request::read(&mut left, self.agreed.headers);
        request.is_ok_and(|request| {
            is_small(&request) && request.payload(self.agreed.headers) <= u64_of(left.len())
        })
    }

    fn answer_all(&self, batch: &Batch) -> Result<()> {
        let start = Instant::now();
        let mut replies = Replies { talk: self, held: Vec::new(), are_held: batch.len() > 1 };
        for (request, payload) in batch {
            self.answer(request, payload, &mut replies)?;
        }
        if is_small(&batch[0].0) {
            let taken = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64_of(batch.len());
            let before = self.request_time.load(Ordering::Relaxed);
            self.request_time.store(before / 8 * 7 + taken / 8, Ordering::Relaxed);
        }
        Ok(replies.send_held()?)
    }

    fn read(&self, from: &mut BufReader<&Stream>) -> Result<(Request, Vec<u8>)> {
        let request = Request::read(from, self.agreed.headers)?;
        let len = request.payload(self.agreed.headers);
        let payload = bytes_from(from, len, PAYLOAD_MAX as usize, "a payload is longer than agreed on")?;
        Ok((request, payload))
    }

    fn answer(&self, request: &Request, payload: &[u8], replies: &mut Replies<'_, '_>) -> Result<()> {
        let done = self.check(request, payload).and_then(|()| match request.command {
            Command::Read => Ok(()),
            Command::BlockStatus => Ok(()),
            Command::Write => self.write(request, payload),
            Command::Flush => self.export.device.flush().map_err(|error| number(&error)),
            Command::Trim => self.change(request, |device, span| device.discard(span.at, span.len)),
            Command::WriteZeroes => self.zero(request),
            Command::Disconnect | Command::Other(_) => Err(INVAL),
        });
        match (done, request.command) {
            (Ok(()), Command::Read) if request.len > 0 => self.read_out(request, replies),
            (Ok(()), Command::BlockStatus) => self.status(request, replies),
            (Ok(()), _) => replies.end(request, 0),
            (Err(error), _) => replies.end(request, error),
        }
    }

    /// Whether a request can be done at all.
    fn check(&self, request: &Request, payload: &[u8]) -> Done {
        let Request { flags, command, offset, len, .. } = *request;
        // A client may set FUA everywhere.
        let (allowed, changes) = match command {
            Command::Read => (CommandFlags::DF, false),
            Command::Write if self.agreed.headers == Headers::Extended => (CommandFlags::PAYLOAD_LEN, true),
            Command::Write | Command::Trim => (CommandFlags::empty(), true),
            Command::WriteZeroes => (CommandFlags::NO_HOLE, true),
            Command::BlockStatus => (CommandFlags::REQ_ONE, false),
            Command::Flush => {
                return if (flags - CommandFlags::FUA).is_empty() { Ok(()) } else { Err(INVAL) };
            }
            Command::Disconnect | Command::Other(_) => return Err(INVAL),
        };
        if changes && self.export.is_read_only() {
            return Err(PERM);
        }
        if !(allowed | CommandFlags::FUA).contains(flags)
            || (command == Command::Write && u64_of(payload.len()) != len)
        {
            return Err(INVAL);
        }
        if !Span::new(Bytes::new(offset), Bytes::new(len)).fits(self.export.device.len()) {
            return Err(if matches!(command, Command::Write | Command::WriteZeroes) { NOSPC } else { INVAL });
        }
        match command {
            Command::Read if len > u64::from(PAYLOAD_MAX) => Err(OVERFLOW),
            Command::BlockStatus if len == 0 || !self.agreed.has_context => Err(INVAL),
            _ => Ok(()),
        }
    }

    fn write(&self, request: &Request, payload: &[u8]) -> Done {
        let (device, at) = (&self.export.device, Bytes::new(request.offset));
        let written = match request.flags.contains(CommandFlags::FUA) {
            true => device.write_durable(at, &[IoSlice::new(payload)]),
            false => device.write_at(at, payload),
        };
        written.map_err(|error| number(&error))
    }

    /// Changes a range, durably if requested.
    fn change(
        &self,
        request: &Request,
        change: impl FnOnce(&dyn Device, Span) -> hectare_device::Result<()>,
    ) -> Done {
        let device = &*self.export.device;
        let span = Span::new(Bytes::new(request.offset), Bytes::new(request.len));
        let changed = change(device, span).and_then(|()| match request.flags.contains(CommandFlags::FUA) {
            true => device.flush(),
            false => Ok(()),
        });
        changed.map_err(|error| number(&error))
    }

    fn zero(&self, request: &Request) -> Done {
        if !request.flags.contains(CommandFlags::NO_HOLE) {
            return self.change(request, |device, span| device.zero(span.at, span.len));
        }
        // Zeros that are written take space.
        let zeros = vec![0; index_of(request.len.min(CHUNK_MAX))];
        self.change(request, |device, span| {
            span.pieces(CHUNK_MAX)
                .try_for_each(|piece| device.write_at(piece.at, &zeros[..index_of(piece.len.get())]))
        })
    }

    /// Reads and sends what was read.
    fn read_out(&self, request: &Request, replies: &mut Replies<'_, '_>) -> Result<()> {
        let span = Span::new(Bytes::new(request.offset), Bytes::new(request.len));
        let device = &self.export.device;
        let in_one = request.flags.contains(CommandFlags::DF);
        if self.agreed.headers == Headers::Simple || in_one || request.len < HOLES_FROM {
            let mut data = vec![0; index_of(request.len)];
            return match device.read_at(span.at, &mut data) {
                Ok(()) if self.agreed.headers == Headers::Simple => replies.simple(request, 0, &data),
                Ok(()) => replies.data(request, span.at, &data, true),
                Err(error) => replies.end(request, number(&error)),
            };
        }
        let (mut at, mut left) = (span.at, span.len);
        let mut data = Vec::new();
        while left > Bytes::ZERO {
            let extent = device.extent_at(at, left).unwrap_or(Extent::data(left));
            let len = if extent.is_zero { extent.len } else { extent.len.min(Bytes::new(CHUNK_MAX)) };
            let done = len == left;
            if extent.is_zero {
                replies.hole(request, at, len, done)?;
            } else {
                data.resize(index_of(len.get()), 0);
                if let Err(error) = device.read_at(at, &mut data) {
                    return replies.end(request, number(&error));
                }
                replies.data(request, at, &data, done)?;
            }
            at += len;
            left = left - len;
        }
        Ok(())
    }

    fn status(&self, request: &Request, replies: &mut Replies<'_, '_>) -> Result<()> {
        let (extended, device) = (self.agreed.headers == Headers::Extended, &self.export.device);
        let most = if request.flags.contains(CommandFlags::REQ_ONE) { 1 } else { EXTENTS_MAX };
        let longest = if extended { u64::MAX } else { SHORT_EXTENT };
        let mut extents: Vec<Descriptor> = Vec::new();
        let (mut at, mut left) = (Bytes::new(request.offset), Bytes::new(request.len));
        while left > Bytes::ZERO && extents.len() < most {
            let extent = match device.extent_at(at, left) {
                Ok(extent) if extent.len > Bytes::ZERO => extent,
                Ok(_) => Extent::data(left),
                Err(error) => return replies.end(request, number(&error)),
            };
            let len = extent.len.min(Bytes::new(longest));
            let state = if extent.is_zero { STATE_HOLE | STATE_ZERO } else { 0 };
            extents.push(Descriptor { len: len.get(), state });
            at += len;
            left = left - len;
        }
        let mut payload = Vec::new();
        encode_status(&extents, CONTEXT, extended, &mut payload);
        let kind = if extended { kind::STATUS_EXTENDED } else { kind::STATUS };
        replies.chunk(request, kind, true, &[], &payload)
    }
}

/// The replies to a batch.
struct Replies<'a, 's> {
    talk: &'a Talk<'s>,
    held: Vec<u8>,
    /// Whether they are sent together.
    are_held: bool,
}

impl Replies<'_, '_> {
    fn data(&mut self, request: &Request, at: Bytes, data: &[u8], done: bool) -> Result<()> {
        self.chunk(request, kind::DATA, done, &at.get().to_be_bytes(), data)
    }

    fn hole(&mut self, request: &Request, at: Bytes, len: Bytes, done: bool) -> Result<()> {
        let len =
            u32::try_from(len.get()).map_err(|_| Error::Protocol("a hole is longer than its request"))?;
        self.chunk(request, kind::HOLE, done, &at.get().to_be_bytes(), &len.to_be_bytes())
    }

    /// The reply to a request that has no data in its reply, or failed.
    fn end(&mut self, request: &Request, error: u32) -> Result<()> {
        match (self.talk.agreed.headers, error) {
            (Headers::Simple, _) => self.simple(request, error, &[]),
            (_, 0) => self.chunk(request, kind::NONE, true, &[], &[]),
            // Without a text: those for a terminal name files of this machine.
            _ => self.chunk(request, kind::ERROR, true, &error.to_be_bytes(), &[0; 2]),
        }
    }

    fn simple(&mut self, request: &Request, error: u32, data: &[u8]) -> Result<()> {
        let mut head = Vec::with_capacity(16);
        Header::Simple { error, cookie: request.cookie }.encode(Headers::Simple, &mut head);
        Ok(self.send(&head, data)?)
    }

    fn chunk(&mut self, request: &Request, kind: u16, done: bool, first: &[u8], rest: &[u8]) -> Result<()> {
        let mut head = Vec::with_capacity(48);
        let len = u64_of(first.len() + rest.len());
        let chunk = Chunk { done, kind, cookie: request.cookie, offset: request.offset, len };
        Header::Chunk(chunk).encode(self.talk.agreed.headers, &mut head);
        head.extend(first);
        Ok(self.send(&head, rest)?)
    }

    /// Sends a part of a reply, or holds it back.
    fn send(&mut self, head: &[u8], rest: &[u8]) -> io::Result<()> {
        if self.are_held && head.len() + rest.len() + self.held.len() <= HELD_MAX {
            self.held.extend_from_slice(head);
            self.held.extend_from_slice(rest);
            return Ok(());
        }
        // What was held back may be the start of the same reply.
        let _whole = self.talk.sending.lock();
        if !self.held.is_empty() {
            write_both(self.talk.stream, &self.held, &[])?;
            self.held.clear();
        }
        write_both(self.talk.stream, head, rest)
    }

    fn send_held(self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let _whole = self.talk.sending.lock();
        write_both(self.talk.stream, &self.held, &[])
    }
}

/// Whether a request is one for a batch.
fn is_small(request: &Request) -> bool {
    let plain = matches!(request.command, Command::Read | Command::Write);
    plain && request.len <= SMALL && !request.flags.contains(CommandFlags::FUA)
}

/// The protocol's number for a failure of the device.
fn number(error: &hectare_device::Error) -> u32 {
    match error.reason() {
        Reason::ReadOnly => PERM,
        Reason::Unsupported(_) => UNSUPPORTED,
        _ => number_of(error.raw_os_error()),
    }
}
