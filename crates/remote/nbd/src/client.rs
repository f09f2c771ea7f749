//! An export of an NBD server as a [`Device`].
//!
//! [`NbdDevice::open`] connects, agrees with the server on the newest form of the protocol that both know,
//! and keeps as many connections as the server allows. Operations are cut into requests ([`pieces`]), which
//! any number of threads have in flight. Lost connections are made again ([`link`]).
//!
//! What is promised:
//! - What [`Device::flush`] or [`Device::write_durable`] reported done is durable, as far as the server keeps
//!   its word. A server without a flush is taken to write through.
//! - What was acknowledged but not flushed is kept in memory and written again after a lost connection, so
//!   that a server that was restarted loses nothing. Where too much would be kept, the device flushes by
//!   itself.
//! - A connection that can't be made again in time ends everything: each later operation fails.
//!
//! Hazards:
//! - Parts of blocks smaller than the server's least block are changed by reading and writing the block,
//!   under a lock, so that threads that change different bytes of a block, or all of it, don't undo each other's
//!   change.
//!   Other clients of the export are not kept out.
//! - What the server says is zeros is believed, and not read.

mod assembly;
mod connection;
mod fuzz;
mod handshake;
mod link;
mod pieces;
mod session;
mod unflushed;

pub use fuzz::digest;

use crate::address::Address;
use crate::protocol::reply::{Descriptor, STATE_ZERO, errno_of, is_unsupported};
use crate::protocol::request::Command;
use crate::protocol::{CommandFlags, ExportFlags};
use crate::tls::TlsClient;
use assembly::Reply;
use hectare_device::{
    Clock, Device, Durability, Error, Extent, Fence, Operation, Reason, Result, Span, check_change,
    check_range, total_len,
};
use hectare_units::{Bytes, index_of};
use link::{Failure, Link};
use parking_lot::RwLock;
use pieces::Part;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Reads from this length on are preceded by the question where there is data.
const ASK_MIN: u64 = 1 << 20;

/// The most requests that trimming a whole export is worth. On a larger one, hints are left out that take several
/// requests: a caller that trims all of it may do so in pieces.
const HINTS_MAX: u64 = 1 << 16;

/// The most requests to find out whether a whole export is zeros.
const ZERO_CHECKS: usize = 64;

/// How an export is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether it is to be changed.
    pub write: bool,
    /// How many connections there may be, if the server allows more than one.
    pub connections: usize,
    /// How many requests each may have in flight.
    pub depth: usize,
    /// How long a lost connection may take to be made again.
    pub reconnect_timeout: Duration,
    /// The bytes that are kept until a flush; beyond, the device flushes by itself.
    pub unflushed_max: u64,
    /// What to show and to verify where the address wants TLS; `None` fails there.
    pub tls: Option<TlsClient>,
    /// Where the host is, if that was looked up already; else it is looked up for each connection.
    pub addresses: Vec<SocketAddr>,
    /// The clock of all waits for the server.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            write: false,
            connections: 4,
            depth: 64,
            reconnect_timeout: Duration::from_secs(60),
            unflushed_max: 64 << 20,
            tls: None,
            addresses: Vec::new(),
            clock: Clock::REAL,
        }
    }
}

impl Options {
    /// How long a server that owes replies may be silent: then there is time left to connect again.
    fn silence_max(&self) -> Duration {
        (self.reconnect_timeout / 2).max(Duration::from_secs(1))
    }
}

/// An export of an NBD server.
pub struct NbdDevice {
    name: String,
    len: Bytes,
    read_only: bool,
    zeroed: bool,
    link: Link,
    durability: Durability,
    /// Held exclusively while a part of a block is changed by reading and writing all of it, shared by what changes
    /// whole blocks.
    blocks: RwLock<()>,
    /// The place up to which the export is known to hold data, so that reading needs no question.
    data_until: AtomicU64,
    /// Whether all that was discarded reads as zeros.
    discards_zero: AtomicBool,
}

impl NbdDevice {
    /// Connects to an export.
    ///
    /// # Errors
    /// If the server can't be reached, has no such export, or has it for reading only and it is to be
    /// written.
    pub fn open(address: &Address, options: &Options) -> Result<Self> {
        let name = address.to_string();
        let fail = |reason| Error::new(&name, Operation::Open, None, reason);
        let link = Link::open(address.clone(), options.clone());
        let link = link.map_err(|error| fail(Reason::Remote(error.to_string())))?;
        let flags = link.agreed.flags;
        if options.write && flags.contains(ExportFlags::READ_ONLY) {
            return Err(fail(Reason::Remote("the server exports it for reading only".to_owned())));
        }
        let mut device = Self {
            len: Bytes::new(link.agreed.len),
            read_only: !options.write,
            zeroed: false,
            link,
            durability: Durability::default(),
            blocks: RwLock::default(),
            data_until: AtomicU64::new(0),
            discards_zero: AtomicBool::new(flags.contains(ExportFlags::FAST_ZERO)),
            name,
        };
        device.zeroed = options.write && device.is_all_zeros()?;
        Ok(device)
    }

    /// How many requests were made so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.link.counts().0
    }

    /// How many times a lost connection was made again.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.link.counts().1
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.link.agreed.flags.contains(flag)
    }

    fn block(&self) -> u32 {
        self.link.agreed.sizes.least
    }

    fn fail(&self, operation: Operation, span: Option<Span>) -> impl Fn(Failure) -> Error + '_ {
        move |failure| {
            let reason = match failure {
                Failure::Server(number) => Reason::Io(errno_of(number)),
                Failure::Latched(text) => Reason::Remote(text.to_string()),
            };
            Error::new(&self.name, operation, span, reason)
        }
    }

    /// Whether the server says that there is nothing but zeros.
    fn is_all_zeros(&self) -> Result<bool> {
        let mut at = Bytes::ZERO;
        for _ in 0..ZERO_CHECKS {
            if at == self.len {
                return Ok(true);
            }
            let extent = self.extent_at(at, self.len - at)?;
            if !extent.is_zero {
                return Ok(false);
            }
            at += extent.len;
        }
        Ok(at == self.len)
    }

    /// Reads whole blocks.
    fn read_blocks(&self, at: Bytes, buf: &mut [u8]) -> std::result::Result<(), Failure> {
        let span = Span::new(at, Bytes::of(buf.len()));
        self.link.run(pieces::reads(span, &self.link.agreed), |order, reply| {
            let Reply::Bytes(bytes) = reply else { return };
            let start = index_of(order.at - at.get());
            buf[start..start + bytes.len()].copy_from_slice(&bytes);
        })
    }

    /// Reads any range inside the export.
    fn read_range(&self, at: Bytes, buf: &mut [u8]) -> std::result::Result<(), Failure> {
        let span = Span::new(at, Bytes::of(buf.len()));
        let wide = pieces::around(span, self.block());
        if wide == span {
            return self.read_blocks(at, buf);
        }
        let mut blocks = vec![0; index_of(wide.len.get())];
        self.read_blocks(wide.at, &mut blocks)?;
        let from = index_of((at - wide.at).get());
        buf.copy_from_slice(&blocks[from..from + buf.len()]);
        Ok(())
    }

    /// Writes any range inside the export.
    fn write_range(&self, at: Bytes, data: &[u8], flags: CommandFlags) -> std::result::Result<(), Failure> {
        for part in pieces::parts(Span::new(at, Bytes::of(data.len())), self.block()) {
            let (Part::Whole(span) | Part::Within(span)) = part;
            let from = index_of((span.at - at).get());
            let data = &data[from..from + index_of(span.len.get())];
            match part {
                Part::Whole(_) => {
                    let _whole = self.blocks.read();
                    self.link.run(pieces::writes(span.at, data, flags, &self.link.agreed), |_, _| {})?;
                }
                Part::Within(_) => self.change_block(span, flags, |bytes| bytes.copy_from_slice(data))?,
            }
        }
        Ok(())
    }

    /// Flushes if much is kept; to be called after changes. A failure may have lost the bytes of anyone, so that
    /// later flushes report it, too.
    fn drain(&self) -> Result<()> {
        self.link.drain(|| self.flush_unwaiting())
    }

    /// Flushes without a wait for others that do: another's bytes are not promised by it.
    fn flush_unwaiting(&self) -> Result<()> {
        self.durability.attempt_unwaiting(|| self.link.flush().map_err(self.fail(Operation::Flush, None)))
    }

    /// Changes a part of one block.
    fn change_block(
        &self,
        span: Span,
        flags: CommandFlags,
        change: impl FnOnce(&mut [u8]),
    ) -> std::result::Result<(), Failure> {
        let wide = pieces::around(span, self.block());
        let _alone = self.blocks.write();
        let mut block = vec![0; index_of(wide.len.get())];
        self.read_blocks(wide.at, &mut block)?;
        let from = index_of((span.at - wide.at).get());
        change(&mut block[from..from + index_of(span.len.get())]);
        self.link.run(pieces::writes(wide.at, &block, flags, &self.link.agreed), |_, _| {})
    }

    /// Zeros whole blocks: fast if the server can, else by itself, else with zeros that are sent.
    fn zero_blocks(&self, span: Span) -> std::result::Result<(), Failure> {
        let _whole = self.blocks.read();
        if self.has(ExportFlags::WRITE_ZEROES) {
            if self.zero_fast(span)? {
                return Ok(());
            }
            match self.link.run(pieces::zeros(span), |_, _| {}) {
                Err(Failure::Server(number)) if is_unsupported(number) => {}
                ended => return ended,
            }
        }
        self.link.run(pieces::written_zeros(span, &self.link.agreed), |_, _| {})
    }

    /// Zeros whole blocks if the server can do that faster than by writing; whether it did.
    fn zero_fast(&self, span: Span) -> std::result::Result<bool, Failure> {
        if !self.has(ExportFlags::FAST_ZERO) {
            return Ok(false);
        }
        let step = pieces::range_max(&self.link.agreed);
        let orders = pieces::bare(Command::WriteZeroes, CommandFlags::FAST_ZERO, span, step);
        match self.link.run(orders, |_, _| {}) {
            Ok(()) => Ok(true),
            Err(Failure::Server(number)) if is_unsupported(number) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Gives whole blocks up; whether they read as zeros now.
    fn discard_blocks(&self, span: Span) -> std::result::Result<bool, Failure> {
        let step = pieces::range_max(&self.link.agreed);
        if self.len().get() / step > HINTS_MAX && span.len.get() > step {
            return Ok(false);
        }
        if self.has(ExportFlags::TRIM) {
            self.link.run(pieces::bare(Command::Trim, CommandFlags::empty(), span, step), |_, _| {})?;
        }
        if self.discards_zero.load(Ordering::Relaxed) { self.zero_fast(span) } else { Ok(false) }
    }

    /// The first extent from a place on, as the server says.
    fn ask(&self, span: Span) -> std::result::Result<Extent, Failure> {
        let wide = pieces::around(span, self.block());
        let step = pieces::range_max(&self.link.agreed);
        let first = Span::new(wide.at, wide.len.min(Bytes::new(step)));
        let orders = pieces::bare(Command::BlockStatus, CommandFlags::empty(), first, u64::MAX);
        let mut extent = Extent::data(span.len);
        self.link.run(orders, |_, reply| {
            let Reply::Extents(extents) = reply else { return };
            let (len, is_zero) = leading(&extents);
            let before = (span.at - first.at).get();
            // An extent that ends before the place, inside its block, says nothing of it.
            if len > before {
                extent = Extent { len: span.len.min(Bytes::new(len - before)), is_zero };
            }
        })?;
        Ok(extent)
    }
}

/// How many bytes from the start are alike, and whether they are zeros.
fn leading(extents: &[Descriptor]) -> (u64, bool) {
    let is_zero = |extent: &Descriptor| extent.state & STATE_ZERO != 0;
    let first = extents.first().is_some_and(is_zero);
    let alike = extents.iter().take_while(|extent| is_zero(extent) == first);
    (alike.fold(0, |sum, extent| sum.saturating_add(extent.len)), first)
}

impl Device for NbdDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        self.len
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        let (mut at, mut rest) = (at, buf);
        while !rest.is_empty() {
            let left = Bytes::of(rest.len());
            // That there is data is never wrong: so that alone is remembered.
            let known = self.data_until.load(Ordering::Relaxed) > at.get();
            let extent = match left.get() >= ASK_MIN && !known {
                true => self.extent_at(at, self.len - at)?,
                false => Extent::data(left),
            };
            if !extent.is_zero && extent.len > left {
                self.data_until.store(at.get() + extent.len.get(), Ordering::Relaxed);
            }
            let (part, after) = rest.split_at_mut(index_of(extent.len.min(left).get()));
            if extent.is_zero {
                part.fill(0);
            } else {
                self.read_range(at, part).map_err(self.fail(Operation::Read, Some(span)))?;
            }
            at += Bytes::of(part.len());
            rest = after;
        }
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        check_change(self, Operation::Write, span)?;
        self.write_range(at, data, CommandFlags::empty()).map_err(self.fail(Operation::Write, Some(span)))?;
        self.drain()
    }

    fn write_all_at(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, total_len(parts)))?;
        match parts {
            [one] => self.write_at(at, one),
            // One large request instead of many small ones.
            _ => self.write_at(at, &gathered(parts)),
        }
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        let span = Span::new(at, total_len(parts));
        check_change(self, Operation::Write, span)?;
        if !self.has(ExportFlags::FUA) {
            self.write_all_at(at, parts)?;
            return self.flush_unwaiting();
        }
        let data = gathered(parts);
        self.durability.attempt_unwaiting(|| {
            self.write_range(at, &data, CommandFlags::FUA).map_err(self.fail(Operation::Write, Some(span)))
        })?;
        self.drain()
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.durability.attempt(|| self.link.flush().map_err(self.fail(Operation::Flush, None)))
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Zero, span)?;
        let parts = if len == Bytes::ZERO { Vec::new() } else { pieces::parts(span, self.block()) };
        let zeroed = parts.into_iter().try_for_each(|part| match part {
            Part::Whole(span) => self.zero_blocks(span),
            Part::Within(span) => self.change_block(span, CommandFlags::empty(), |bytes| bytes.fill(0)),
        });
        zeroed.map_err(self.fail(Operation::Zero, Some(span)))?;
        self.drain()
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        check_change(self, Operation::Discard, span)?;
        if len == Bytes::ZERO {
            return Ok(());
        }
        let inside = pieces::inside(span, self.block());
        let zeroed = inside.map_or(Ok(false), |span| self.discard_blocks(span));
        if !zeroed.map_err(self.fail(Operation::Discard, Some(span)))? || inside != Some(span) {
            self.discards_zero.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let reason = Reason::Unsupported("an export has the length that its server gives it");
        Err(Error::new(&self.name, Operation::Resize, Some(Span::new(Bytes::ZERO, len)), reason))
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn discards_to_zeros(&self) -> bool {
        self.discards_zero.load(Ordering::Relaxed)
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        check_range(self, Operation::Read, span)?;
        if self.link.agreed.context.is_none() || len == Bytes::ZERO {
            return Ok(Extent::data(len));
        }
        match self.ask(span) {
            // It can be refused without any consequence.
            Err(Failure::Server(_)) => Ok(Extent::data(len)),
            asked => asked.map_err(self.fail(Operation::Read, Some(span))),
        }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn add_fence(&self, at: Bytes, fence: &Arc<dyn Fence>) {
        self.link.add_fence(at.get(), Arc::clone(fence));
    }

    fn remove_fence(&self, fence: &Arc<dyn Fence>) {
        self.link.remove_fence(fence);
    }

    fn alignment(&self) -> u32 {
        self.block()
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.link.leave();
    }
}

fn gathered(parts: &[IoSlice<'_>]) -> Vec<u8> {
    let mut data = Vec::with_capacity(index_of(total_len(parts).get()));
    parts.iter().for_each(|part| data.extend_from_slice(part));
    data
}
