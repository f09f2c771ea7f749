//! The event loop of a connection: several threads read requests, let a [`Server`] answer them, and write the
//! answers.
//!
//! [`Session`] needs no connection: it turns the bytes of a request into the bytes of an answer, which is
//! what tests and fuzzing drive ([`crate::client`]). [`run`] does that for a connection, with a thread for
//! each channel; where the device can be opened, each thread has a descriptor of its own, so that they don't
//! queue for one lock.
//!
//! Invariants: a request that has an answer gets exactly one, on the descriptor it was read from (the kernel
//! looks for it there); one whose answer panics gets `EIO`, and its thread continues; threads end when the
//! kernel has hung up.
//!
//! Hazards: after a panic all threads continue; the [`Server`] is notified, since its state is in doubt.
//! While a request waits for the kernel to write back a file, the process can't be killed: if it is, no
//! thread receives the rest of that data, and the mount hangs until root ends it (`umount -f`).

use crate::adaptive_polling::Pace;
use crate::errno::Answer;
use crate::protocol::NodeId;
use crate::protocol::init::{Features, NoSession, Offer, Wanted};
use crate::protocol::reply::{Reply, Stale, drop_content};
use crate::protocol::request::{self, Request, Wait};
use crate::thread_load::{Load, Member};
use hectare_units::usize_of;
use log::{debug, error, warn};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The device of all connections.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// The most threads that are added while others are held up.
const THREADS_MORE: usize = 64;
/// Bytes of a request besides its data: the kernel wants room for its headers.
const REQUEST_HEAD: u32 = 4096;
/// The longest value of an attribute (`XATTR_SIZE_MAX`), which comes in one request however short writes are.
const ATTRIBUTE_MAX: u32 = 65_536;

/// A server that answers requests.
pub(crate) trait Server: Send + Sync + 'static {
    /// Receives the features that the kernel offers, and returns what is requested of it.
    fn greet(&mut self, offered: Features) -> Wanted;

    /// Answers a request: puts data into the reply, or returns an error.
    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Answer;

    /// Called when answering a request has panicked, which was answered with `EIO`.
    fn panicked(&self);

    /// Whether the kernel must write back what it buffers of a file before such a request is answered.
    fn waits(&self, _: NodeId, _: Wait) -> bool {
        false
    }
}

/// The answer to a request.
pub(crate) struct Answered<'r> {
    pub(crate) bytes: &'r [u8],
    /// What the kernel is to drop before it gets the answer.
    pub(crate) stale: Vec<Stale>,
}

/// A server whose client has sent `INIT`.
pub(crate) struct Session<S> {
    server: S,
    agreed: Features,
    transfer_max: u32,
    pace: Arc<Pace>,
    /// Number of requests whose answer panicked.
    panics: AtomicUsize,
}

impl<S: Server> Session<S> {
    /// Answers the first request, and begins a session unless that is refused; returns the bytes to be sent
    /// in any case.
    pub(crate) fn greet(
        mut server: S,
        pace: Arc<Pace>,
        message: &[u8],
    ) -> (Vec<u8>, Result<Self, NoSession>) {
        let mut reply = Reply::default();
        let Some((header, body)) = request::header(message) else {
            return (Vec::new(), Err(NoSession::Short));
        };
        let unique = header.unique.get();
        let refuse =
            |why, mut reply: Reply| (reply.finish(unique, Err(Errno::PROTO.into())).to_vec(), Err(why));
        if header.opcode.get() != request::INIT {
            return refuse(NoSession::NoGreeting, reply);
        }
        let offer = match Offer::parse(body) {
            Ok(offer) => offer,
            Err(why) => return refuse(why, reply),
        };
        let wanted = server.greet(offer.features);
        reply.clear();
        reply.put(&offer.answer(&wanted));
        let (agreed, transfer_max) = (offer.agreed(wanted.features), wanted.transfer_max);
        let session = Self { server, agreed, transfer_max, pace, panics: AtomicUsize::new(0) };
        (reply.finish(unique, Ok(())).to_vec(), Ok(session))
    }

    /// The file of which the kernel must write back what it buffers before a message can be answered.
    fn waits_for(&self, message: &[u8]) -> Option<NodeId> {
        let (header, body) = request::header(message)?;
        let (node, why) = (NodeId(header.nodeid.get()), request::may_wait(header, body)?);
        self.server.waits(node, why).then_some(node)
    }

    /// The answer to a message; `None` if it has none.
    pub(crate) fn answer<'r>(&self, message: &[u8], reply: &'r mut Reply) -> Option<Answered<'r>> {
        let (header, rest) = request::header(message)?;
        self.pace.request();
        reply.clear();
        let parsed = Request::parse(header, rest, self.agreed.contains(Features::SETXATTR_EXT));
        let answer = parsed.and_then(|request| self.server.answer(&request, reply));
        if !request::is_answered(header.opcode.get()) {
            return None;
        }
        let stale = reply.take_stale();
        Some(Answered { stale, bytes: reply.finish(header.unique.get(), answer) })
    }
}

/// Reads the first request of a connection, answers it, and begins a session.
pub(crate) fn greet<S: Server>(server: S, pace: Arc<Pace>, connection: &OwnedFd) -> io::Result<Session<S>> {
    let mut buffer = vec![0; usize_of(REQUEST_HEAD) * 2];
    let len = next(connection, &mut buffer)?.ok_or(io::ErrorKind::NotConnected)?;
    let (answer, session) = Session::greet(server, pace, &buffer[..len]);
    rustix::io::write(connection, &answer)?;
    session.map_err(io::Error::other)
}

/// Serves a connection with N threads until the kernel hangs up, and with more while these are held up. With
/// `clones`, each thread gets a descriptor of its own.
///
/// # Errors
/// If the connection breaks, or answering panicked; returned when all threads have ended.
pub(crate) fn run<S: Server>(
    session: Session<S>,
    connection: OwnedFd,
    (threads, clones): (usize, bool),
) -> io::Result<()> {
    let (session, load) = (Arc::new(session), Load::new());
    let start = |number: usize| {
        let channel = if clones { clone(&connection)? } else { connection.try_clone()? };
        let (session, member) = (Arc::clone(&session), load.join());
        let work = move || serve(&session, &channel, &member, number >= threads);
        thread::Builder::new().name(format!("hectare-fuse-{number}")).spawn(work)
    };
    let workers = (0..threads).map(&start).collect::<io::Result<Vec<_>>>()?;
    let mut numbers = threads..;
    load.watch(threads.saturating_add(THREADS_MORE), || {
        if let Some(Err(error)) = numbers.next().map(&start) {
            warn!(error:%; "all threads are held up, and there is no other");
        }
    });
    let ended = workers.into_iter().map(|worker| {
        worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread that served it has panicked")))
    });

    // All threads have ended before the first error is returned.
    let ended: Vec<_> = ended.collect();
    if session.panics.load(Ordering::Relaxed) > 0 {
        return Err(io::Error::other("answering a request has panicked; the log says where"));
    }
    ended.into_iter().collect()
}

/// Serves a channel until the kernel hangs up, or for as long as it is needed.
fn serve<S: Server>(
    session: &Arc<Session<S>>,
    channel: &OwnedFd,
    member: &Member,
    is_added: bool,
) -> io::Result<()> {
    let data = session.transfer_max.max(ATTRIBUTE_MAX);
    let mut buffer = vec![0; usize_of(data.saturating_add(REQUEST_HEAD))];
    let mut reply = Reply::default();
    while let Some(len) = next(channel, &mut buffer)? {
        let message = &buffer[..len];
        let busy = member.begin();
        match session.waits_for(message) {
            Some(node) => answer_after_writing_back(session, channel, message, node),
            None => answer(session, channel, message, &mut reply),
        }
        drop(busy);
        if is_added && member.is_spare() {
            break;
        }
    }
    Ok(())
}

fn answer<S: Server>(session: &Session<S>, channel: &OwnedFd, message: &[u8], reply: &mut Reply) {
    let mut unanswered = Some(Unanswered { channel, message });
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let answer = session.answer(message, reply);
        std::mem::forget(unanswered.take());
        let Some(Answered { bytes, stale }) = answer else { return };
        send_after(channel, &stale, bytes);
    }));
    if tried.is_err() {
        // Before the answer is sent: the caller's next request must find that all changes have ended.
        session.panics.fetch_add(1, Ordering::Relaxed);
        session.server.panicked();
        drop(unanswered);
    }
}

/// Sends an answer after the messages that have the kernel drop what is stale. If that may wait until the
/// kernel has written back a file, a thread of its own sends all of it; without one, the kernel keeps the
/// content.
fn send_after(channel: &OwnedFd, stale: &[Stale], answer: &[u8]) {
    if stale.iter().any(|stale| matches!(stale, Stale::Content(_))) {
        let messages: Vec<_> = stale.iter().map(|stale| stale.message()).chain([answer.to_vec()]).collect();
        let sent = channel.try_clone().and_then(|own| {
            let work = move || messages.iter().for_each(|message| send(&own, message));
            thread::Builder::new().name("hectare-drop".into()).spawn(work)
        });
        match sent {
            Ok(_) => return,
            Err(error) => {
                error!(error:%; "no thread to drop cached content: the kernel may show what it was");
            }
        }
    }
    for stale in stale {
        let at_once = if let Stale::Content(node) = *stale { Stale::Attributes(node) } else { *stale };
        send(channel, &at_once.message());
    }
    send(channel, answer);
}

/// Answers on a thread of its own, which waits until the kernel has written back what it buffers of a file:
/// the other threads must be free to receive that.
fn answer_after_writing_back<S: Server>(
    session: &Arc<Session<S>>,
    channel: &OwnedFd,
    message: &[u8],
    node: NodeId,
) {
    let unanswered = Unanswered { channel, message };
    let Ok(own) = channel.try_clone() else { return };
    let (session, message) = (Arc::clone(session), message.to_vec());
    let wait_and_answer = move || {
        send(&own, &drop_content(node));
        answer(&session, &own, &message, &mut Reply::default());
    };
    if thread::Builder::new().name("hectare-wait".into()).spawn(wait_and_answer).is_ok() {
        std::mem::forget(unanswered);
    }
}

/// The next request; `None` when the other side has hung up.
fn next(channel: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(channel, &mut *buffer) {
            Ok(0) => return Ok(None),
            Err(errno) if is_end(errno) => return Ok(None),
            Ok(len) => return Ok(Some(len)),
            // The caller is gone, a signal came, or a non-blocking read found nothing.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether an error says that the kernel has hung up: `ECONNABORTED` where it did so between taking a request
/// out of its queue and handing it over (one without a waiting caller, such as `RELEASE` during unmount).
fn is_end(errno: Errno) -> bool {
    matches!(errno, Errno::NODEV | Errno::CONNABORTED)
}

fn send(channel: &OwnedFd, answer: &[u8]) {
    match rustix::io::write(channel, answer) {
        Ok(_) => {}
        // The caller is gone meanwhile, or the kernel has hung up.
        Err(errno) if errno == Errno::NOENT || is_end(errno) => {
            debug!(error:% = errno; "nobody waits for an answer");
        }
        Err(errno) => error!(error:% = errno; "the kernel refuses an answer"),
    }
}

/// A request without an answer yet; dropped (by a panic, or for want of threads), it is answered with `EIO`.
struct Unanswered<'a> {
    channel: &'a OwnedFd,
    message: &'a [u8],
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Some((header, _)) = request::header(self.message) else { return };
        if request::is_answered(header.opcode.get()) {
            send(self.channel, Reply::default().finish(header.unique.get(), Err(Errno::IO.into())));
        }
    }
}

/// Another descriptor of the same connection, with a queue of its own for the requests read through it.
#[allow(unsafe_code)]
fn clone(connection: &OwnedFd) -> io::Result<OwnedFd> {
    /// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let device = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let number = u32::try_from(connection.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: this request of the FUSE device reads a number of 32 bits, the descriptor of a connection, from
    // where the argument points, as `include/uapi/linux/fuse.h` and the kernel's `fuse_dev_ioctl` have it;
    // `number` lives until it returns, and nothing is written.
    unsafe { rustix::ioctl::ioctl(&device, rustix::ioctl::Setter::<CLONE, u32>::new(number)) }?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::request::Body;
    use parking_lot::Mutex;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    #[derive(Default)]
    struct Panics(Arc<AtomicUsize>);

    impl Server for Panics {
        fn greet(&mut self, _: Features) -> Wanted {
            Wanted { features: Features::empty(), transfer_max: 4096, background_max: 1, time_step: 1 }
        }

        fn answer(&self, _: &Request<'_>, _: &mut Reply) -> Answer {
            panic!("on purpose")
        }

        fn panicked(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn message(operation: u32, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(40 + body.len()).unwrap();
        let mut message = [len.to_ne_bytes(), operation.to_ne_bytes()].concat();
        message.extend_from_slice(&7_u64.to_ne_bytes());
        message.resize(40, 0);
        [&message, body].concat()
    }

    fn greeting() -> Vec<u8> {
        let words: Vec<u8> = [7_u32, 45, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        message(request::INIT, &words)
    }

    #[test]
    fn a_session_begins_with_a_greeting() {
        let (answer, session) = Session::greet(Panics::default(), Arc::default(), &greeting());
        assert_eq!((answer.len(), session.is_ok()), (16 + 64, true));
        for (message, answer_len) in
            [(message(3, &[0; 16]), 16), (message(request::INIT, &[7; 8]), 16), (vec![1], 0)]
        {
            let (answer, session) = Session::greet(Panics::default(), Arc::default(), &message);
            assert_eq!((answer.len(), session.is_err()), (answer_len, true));
        }
    }

    /// A thread had taken the `RELEASE` of a file out of the queue when the mount was unmounted.
    #[test]
    fn regression_a_request_that_is_taken_back_while_unmounting_is_no_error() {
        let ends = [Errno::NODEV, Errno::CONNABORTED, Errno::IO, Errno::NOENT].map(is_end);
        assert_eq!(ends, [true, true, false, false]);
    }

    /// Answers `STATFS` when it is told to, everything else at once.
    struct Slow(Mutex<Receiver<()>>);

    impl Server for Slow {
        fn greet(&mut self, _: Features) -> Wanted {
            Wanted { features: Features::empty(), transfer_max: 4096, background_max: 1, time_step: 1 }
        }

        fn answer(&self, request: &Request<'_>, _: &mut Reply) -> Answer {
            if matches!(request.body, Body::Statfs) {
                self.0.lock().recv().expect("the test tells");
            }
            Ok(())
        }

        fn panicked(&self) {}
    }

    /// As many long copies, syncs or trims as there were threads stopped the whole mount.
    #[test]
    fn regression_requests_are_answered_while_all_threads_are_held_up() {
        const STATFS: u32 = 17;
        const SYNCFS: u32 = 50;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(Duration::from_secs(20))).unwrap();
        rustix::io::write(&ours, &greeting()).unwrap();
        let (tell, told) = channel();
        let session = greet(Slow(Mutex::new(told)), Arc::default(), &theirs).unwrap();
        let worker = thread::spawn(move || run(session, theirs, (2, false)));
        let mut answer = [0; 200];
        rustix::io::read(&ours, &mut answer).unwrap();
        for (operation, unique) in [(STATFS, 1), (STATFS, 2), (STATFS, 3), (SYNCFS, 4), (SYNCFS, 5)] {
            let mut message = message(operation, &[]);
            message[8] = unique;
            rustix::io::write(&ours, &message).unwrap();
        }
        let mut answered = || rustix::io::read(&ours, &mut answer).map(|_| answer[8]);
        assert_eq!([answered(), answered()], [Ok(4), Ok(5)], "the others wait");
        (0..3).for_each(|_| tell.send(()).unwrap());
        let mut last = [answered(), answered(), answered()].map(Result::unwrap);
        last.sort_unstable();
        assert_eq!(last, [1, 2, 3]);
        drop(ours);
        worker.join().unwrap().unwrap();
    }

    #[test]
    fn regression_the_only_thread_goes_on_serving_after_a_panic() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::io::write(&ours, &greeting()).unwrap();
        let told = Arc::default();
        let session = greet(Panics(Arc::clone(&told)), Arc::default(), &theirs).unwrap();
        let worker = thread::spawn(move || run(session, theirs, (1, false)));
        let mut answer = [0; 200];
        assert_eq!(rustix::io::read(&ours, &mut answer).unwrap(), 16 + 64);
        for panics in 1..4 {
            rustix::io::write(&ours, &message(17, &[])).unwrap();
            assert_eq!(rustix::io::read(&ours, &mut answer).unwrap(), 16);
            assert_eq!(answer[4..8], (-5_i32).to_ne_bytes());
            assert_eq!(told.load(Ordering::SeqCst), panics, "notified before the answer");
        }
        drop(ours);
        assert!(worker.join().unwrap().unwrap_err().to_string().contains("panicked"));
    }
}
