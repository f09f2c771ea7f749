//! The link of a device to its export, which outlives connections: requests are made until they are answered,
//! over as many sessions as that takes.
//!
//! The thread that finds the session lost makes the next one, while the others wait; then it writes again
//! what was acknowledged and not flushed ([`super::unflushed`]), and each thread makes its own request again.
//! That is harmless: a request done twice does what it does once, and no two threads work on the same bytes.
//!
//! Where no session can be made in time, the link is *latched*: every further request fails with the reason.
//! Time counts from the last reply that came, so a server that accepts connections and then does nothing is
//! given up, too.
//!
//! Hazard, and a limit of the protocol: a server that lives may do a request of the old connection late,
//! after the new connection made it again and later ones overwrote its bytes. The old connection is shut
//! down, and a moment passes, before a new one is made, and our own server does the old requests first; but
//! the protocol has nothing to make sure of it.
//!
//! Where the export is used by one host at a time, its *fences* are asked before each request that changes
//! something, and by a new session before anything is written again: another host may have taken the export
//! while this process was stopped. That latches the link, too.

use super::Options;
use super::assembly::Reply;
use super::connection::{Order, Ticket, Trouble};
use super::handshake::Agreed;
use super::session::Session;
use super::unflushed::{Content, Epoch, Unflushed};
use crate::address::Address;
use crate::protocol::request::Command;
use crate::protocol::{CommandFlags, ExportFlags};
use crate::{Error, Result};
use hectare_device::{Fence, Span};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The requests of one operation that are in flight at once.
const WINDOW: usize = 32;

/// How long one attempt to connect may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// The pauses before attempts double from the first to the last. The first one gives a server that lives the
/// time to do what the old connection had sent.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The server says so, by the protocol's number.
    Server(u32),
    /// The link is latched; the reason.
    Latched(Arc<str>),
}

type Outcome<T = ()> = std::result::Result<T, Failure>;

/// The link to an export.
pub(super) struct Link {
    address: Address,
    options: Options,
    /// What the first session agreed on: that holds for all.
    pub(super) agreed: Agreed,
    /// How many connections a session has.
    width: usize,
    state: Mutex<State>,
    unflushed: Mutex<Unflushed>,
    /// Taken by the thread that flushes because too much is kept.
    draining: Mutex<()>,
    /// Those that are asked before changes, with the places of their marks.
    fences: RwLock<Vec<(u64, Arc<dyn Fence>)>>,
    /// When the last reply came, by the clock of the options.
    heard: Mutex<Duration>,
    requests: AtomicU64,
    reconnects: AtomicU64,
}

enum State {
    Up {
        session: Arc<Session>,
        /// When it was made.
        made: Duration,
        /// How many before it were made without any reply.
        fruitless: u32,
    },
    Latched(Arc<str>),
}

/// A request that was sent, with the session it was sent on.
struct Flying<'a> {
    order: Order<'a>,
    ticket: Ticket,
    generation: u64,
}

impl Link {
    /// Connects.
    pub(super) fn open(address: Address, options: Options) -> Result<Self> {
        let within = options.reconnect_timeout.clamp(Duration::from_secs(1), ATTEMPT_MAX);
        let session = Session::open(&address, &options, 0, within)?;
        let (agreed, width, made) = (session.agreed, session.width(), options.clock.now());
        Ok(Self {
            address,
            options,
            agreed,
            width,
            state: Mutex::new(State::Up { session: Arc::new(session), made, fruitless: 0 }),
            unflushed: Mutex::default(),
            draining: Mutex::new(()),
            fences: RwLock::default(),
            heard: Mutex::new(made),
            requests: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
        })
    }

    /// How many requests were sent, and how many times the connection was made again.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.reconnects.load(Ordering::Relaxed))
    }

    /// Has a fence asked before each change from here on; its mark lies at byte `at`.
    pub(super) fn add_fence(&self, at: u64, fence: Arc<dyn Fence>) {
        self.fences.write().push((at, fence));
    }

    /// Takes a fence away.
    pub(super) fn remove_fence(&self, fence: &Arc<dyn Fence>) {
        self.fences.write().retain(|(_, other)| !Arc::ptr_eq(other, fence));
    }

    /// Asks the fences before a change, and latches the link if one does not admit it.
    fn pass_fences(&self) -> Outcome {
        if self.fences.read().iter().all(|(_, fence)| fence.is_fresh()) {
            return Ok(());
        }
        let fences = self.fences.read().clone();
        for (at, fence) in fences {
            let passed = hectare_device::pass(&*fence, |mark| {
                let wide = super::pieces::around(mark_span(at, mark), self.agreed.sizes.least);
                self.run(super::pieces::reads(wide, &self.agreed), |order, reply| {
                    take_mark(at, mark, order, &reply);
                })
            })?;
            passed.map_err(|who| Failure::Latched(self.latch(who.into())))?;
        }
        Ok(())
    }

    /// Ends everything with a reason; the first one counts.
    fn latch(&self, reason: Arc<str>) -> Arc<str> {
        let mut state = self.state.lock();
        if let State::Latched(first) = &*state {
            return Arc::clone(first);
        }
        if let State::Up { session, .. } = &*state {
            session.end(&reason);
        }
        log::error!("{}: {reason}", self.address);
        *state = State::Latched(Arc::clone(&reason));
        reason
    }

    /// Makes requests, several at a time, and gives the reply of each to `done`, in any order. After the
    /// first failure no further ones are made, but those in flight are waited for: nothing is changed
    /// afterwards.
    pub(super) fn run<'a>(
        &self,
        orders: impl IntoIterator<Item = Order<'a>>,
        mut done: impl FnMut(&Order<'a>, Reply),
    ) -> Outcome {
        let began = self.options.clock.now();
        let mut orders = orders.into_iter();
        let mut again: Vec<Order<'a>> = Vec::new();
        let mut flying: VecDeque<Flying<'a>> = VecDeque::new();
        let mut failed = None;
        loop {
            while failed.is_none() && flying.len() < WINDOW {
                let Some(order) = again.pop().or_else(|| orders.next()) else { break };
                match self.send(order, began) {
                    Ok(sent) => flying.push_back(sent),
                    Err(failure) => failed = Some(failure),
                }
            }
            let Some(Flying { order, ticket, generation }) = flying.pop_front() else { break };
            match ticket.wait() {
                Ok(reply) => {
                    *self.heard.lock() = self.options.clock.now();
                    if self.note(&order, generation) { done(&order, reply) } else { again.push(order) }
                }
                Err(Trouble::Failed(error)) => failed = failed.or(Some(Failure::Server(error))),
                Err(Trouble::Lost(_)) if failed.is_some() => {}
                Err(Trouble::Lost(reason)) => match self.recover(generation, &reason, began) {
                    Ok(()) => again.push(order),
                    Err(failure) => failed = Some(failure),
                },
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Sends a request on a session that takes it.
    fn send<'a>(&self, order: Order<'a>, began: Duration) -> Outcome<Flying<'a>> {
        loop {
            if is_change(order.command) {
                self.pass_fences()?;
            }
            let session = match &*self.state.lock() {
                State::Up { session, .. } => Arc::clone(session),
                State::Latched(reason) => return Err(Failure::Latched(Arc::clone(reason))),
            };
            self.requests.fetch_add(1, Ordering::Relaxed);
            match session.send(&order) {
                Ok(ticket) => return Ok(Flying { order, ticket, generation: session.generation }),
                Err(Trouble::Lost(reason)) => self.recover(session.generation, &reason, began)?,
                Err(Trouble::Failed(error)) => return Err(Failure::Server(error)),
            }
        }
    }

    /// Notes what an acknowledgement means. Returns whether it counts: the session it came on is still the
    /// one, or what it says needs no session.
    fn note(&self, order: &Order<'_>, generation: u64) -> bool {
        if !is_change(order.command) || !self.agreed.flags.contains(ExportFlags::FLUSH) {
            return true;
        }
        let durable = order.flags.contains(CommandFlags::FUA);
        let content = match order.command {
            Command::Write if !durable => Some(Content::Bytes(order.data.into(), 0)),
            Command::WriteZeroes if !durable => Some(Content::Zeros),
            _ => None,
        };
        let mut unflushed = self.unflushed.lock();
        if unflushed.generation != generation {
            return false;
        }
        match content {
            Some(content) => unflushed.put(order.at, order.len, content),
            None => unflushed.cut(order.at, order.len),
        }
        true
    }

    /// Makes everything that was acknowledged durable.
    pub(super) fn flush(&self) -> Outcome {
        if !self.agreed.flags.contains(ExportFlags::FLUSH) {
            return Ok(());
        }
        let epoch: Epoch = self.unflushed.lock().end_epoch();
        let (flags, command) = (CommandFlags::empty(), Command::Flush);
        self.run([Order { command, flags, at: 0, len: 0, data: &[] }], |_, _| {
            self.unflushed.lock().flushed(epoch);
        })
    }

    /// Has the device flush if more is kept than may be; to be called after changes.
    pub(super) fn drain<E>(
        &self,
        flush: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self.unflushed.lock().cost() <= self.options.unflushed_max {
            return Ok(());
        }
        let Some(_one) = self.draining.try_lock() else {
            // The flush that runs makes room; nobody goes far ahead of it.
            drop(self.draining.lock());
            return Ok(());
        };
        flush()
    }

    /// Replaces a lost session, unless another thread did already.
    fn recover(&self, lost: u64, reason: &str, began: Duration) -> Outcome {
        let mut state = self.state.lock();
        let (old, mut fruitless) = match &*state {
            State::Latched(reason) => return Err(Failure::Latched(Arc::clone(reason))),
            State::Up { session, .. } if session.generation != lost => return Ok(()),
            State::Up { session, made, fruitless } => {
                let heard = *self.heard.lock() > *made;
                (Arc::clone(session), if heard { 0 } else { *fruitless })
            }
        };
        old.end(reason);
        let &Options { clock, reconnect_timeout: limit, .. } = &self.options;
        let since = began.max(*self.heard.lock());
        log::warn!(reason; "the connection to {} is lost", self.address);
        let mut last = Arc::<str>::from(reason);
        loop {
            let waited = clock.now().saturating_sub(since);
            if waited >= limit {
                let text = self.latched_text(&last);
                log::error!("{}: {text}", self.address);
                *state = State::Latched(Arc::clone(&text));
                return Err(Failure::Latched(text));
            }
            let left = limit - waited;
            clock.sleep(pause(fruitless).min(left));
            fruitless = fruitless.saturating_add(1);
            match self.attempt(lost + 1, left.min(ATTEMPT_MAX)) {
                Ok(Err(who)) => {
                    let text = Arc::<str>::from(who);
                    log::error!("{}: {text}", self.address);
                    *state = State::Latched(Arc::clone(&text));
                    return Err(Failure::Latched(text));
                }
                Ok(Ok(session)) => {
                    self.reconnects.fetch_add(1, Ordering::Relaxed);
                    *state = State::Up { session: Arc::new(session), made: clock.now(), fruitless };
                    return Ok(());
                }
                Err(error) => last = error.to_string().into(),
            }
        }
    }

    fn latched_text(&self, last: &str) -> Arc<str> {
        let seconds = self.options.reconnect_timeout.as_secs_f64();
        format!(
            "the connection was lost and could not be made again within {seconds} s ({last}); nothing more \
             is done here, open it again once the server is back"
        )
        .into()
    }

    /// A new session on which everything unflushed was written again; or who has the export now.
    fn attempt(&self, generation: u64, within: Duration) -> Result<std::result::Result<Session, String>> {
        let options = Options { connections: self.width, ..self.options.clone() };
        let session = Session::open(&self.address, &options, generation, within)?;
        if !session.agreed.covers(&self.agreed) {
            return Err(Error::Refused(
                "it has another export by that name now, or can do less with it".to_owned(),
            ));
        }
        let pieces = {
            let mut unflushed = self.unflushed.lock();
            // From here on acknowledgements of the old session don't count, as they are not among the pieces.
            unflushed.generation = generation;
            unflushed.pieces()
        };
        let mut tickets = VecDeque::new();
        let settle = |tickets: &mut VecDeque<Ticket>| match tickets.pop_front().map(Ticket::wait) {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(Trouble::Lost(reason))) => Err(Error::Refused(reason.to_string())),
            Some(Err(Trouble::Failed(error))) => {
                Err(Error::Refused(format!("it fails to take unflushed writes again, with error {error}")))
            }
        };
        for (at, piece) in &pieces {
            for order in super::pieces::of_unflushed(*at, piece, &self.agreed) {
                if tickets.len() >= WINDOW {
                    settle(&mut tickets)?;
                }
                if let Err(who) = self.pass_fences_on(&session)? {
                    return Ok(Err(who));
                }
                self.requests.fetch_add(1, Ordering::Relaxed);
                let sent = session.send(&order);
                tickets
                    .push_back(sent.map_err(|_| Error::Refused("the connection was lost again".to_owned()))?);
            }
        }
        while !tickets.is_empty() {
            settle(&mut tickets)?;
        }
        Ok(Ok(session))
    }

    /// Asks the fences about a session that is not in use yet.
    fn pass_fences_on(&self, session: &Session) -> Result<std::result::Result<(), String>> {
        let fences = self.fences.read();
        for (at, fence) in &*fences {
            let passed = hectare_device::pass(&**fence, |mark| {
                let wide = super::pieces::around(mark_span(*at, mark), self.agreed.sizes.least);
                for order in super::pieces::reads(wide, &self.agreed) {
                    self.requests.fetch_add(1, Ordering::Relaxed);
                    match session.send(&order).and_then(Ticket::wait) {
                        Ok(reply) => take_mark(*at, mark, &order, &reply),
                        Err(Trouble::Lost(reason)) => return Err(Error::Refused(reason.to_string())),
                        Err(Trouble::Failed(error)) => {
                            let what = format!("it can't read the mark of who has it, with error {error}");
                            return Err(Error::Refused(what));
                        }
                    }
                }
                Ok(())
            })?;
            if passed.is_err() {
                return Ok(passed);
            }
        }
        Ok(Ok(()))
    }

    /// Takes leave of the server.
    pub(super) fn leave(&self) {
        if let State::Up { session, .. } = &*self.state.lock() {
            session.leave();
        }
    }
}

fn is_change(command: Command) -> bool {
    matches!(command, Command::Write | Command::WriteZeroes | Command::Trim)
}

fn mark_span(at: u64, mark: &[u8]) -> Span {
    Span::new(Bytes::new(at), Bytes::of(mark.len()))
}

/// Takes the part of a mark, which lies at byte `at`, that a reply has.
fn take_mark(at: u64, mark: &mut [u8], order: &Order<'_>, reply: &Reply) {
    let Reply::Bytes(bytes) = reply else { return };
    let (first, last) = (order.at.max(at), (order.at + u64_of(bytes.len())).min(at + u64_of(mark.len())));
    if first < last {
        let from = &bytes[index_of(first - order.at)..index_of(last - order.at)];
        mark[index_of(first - at)..index_of(last - at)].copy_from_slice(from);
    }
}

fn pause(fruitless: u32) -> Duration {
    (PAUSES.0 * 2_u32.pow(fruitless.min(10))).min(PAUSES.1)
}
