//! The life of a mount: attached, served by several threads, closed cleanly.
//!
//! It ends when it is unmounted (by `umount` or `fusermount3 -u`), or by `SIGTERM`, `SIGINT` or `SIGHUP`:
//! then the kernel writes back what it buffers, and the mount is detached. Programs that still have files
//! open are given a moment; after that they get errors, and the volume is closed under them. A process that
//! is killed leaves a volume that recovers.
//!
//! A `fuseblk` mount ends with a request (`DESTROY`), for whose answer the kernel and so `umount` wait: the
//! volume is closed, and the image released, before that is answered ([`Ending`]).

use crate::adapter::{Adapter, Behaviour};
use crate::adaptive_polling::busy_poll::BusyPoll;
use crate::adaptive_polling::idle_poll::IdlePoll;
use crate::adaptive_polling::{Aid, Governor, Pace};
use crate::auto_commit::Settler;
use crate::ending::ending_signals;
use crate::errno::Answer;
use crate::event_loop::{self, DEVICE, Server};
use crate::mount::{self, Mounted, Mounting};
use crate::null::Null;
use crate::options::MountOptions;
use crate::privileged_helper::Keeper;
use crate::protocol::NodeId;
use crate::protocol::init::{Features, Wanted};
use crate::protocol::reply::Reply;
use crate::protocol::request::{Body, Request, Wait};
use crate::request_stats::Operations;
use hectare_device::Claim;
use hectare_engine::Volume;
use log::{error, info, warn};
use parking_lot::Mutex;
use rustix::fs::{Access, access};
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long to wait for programs with open files after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// The default number of threads: one waits for the device while another answers.
const THREADS_MIN: usize = 4;

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It could not be mounted.
    #[error("can't be mounted: {0}")]
    Mount(#[source] io::Error),
    /// The connection to the kernel broke.
    #[error("the connection to the kernel broke: {0}")]
    Connection(#[source] io::Error),
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] hectare_engine::Error),
}

enum Event {
    Ended(io::Result<()>),
    Signal,
}

/// The image of a volume to be mounted, and the process that mounts it.
pub struct Image {
    /// The image, as it is open: the mount is `fuseblk` if possible, and when it is unmounted, other
    /// processes may open the image before this process has ended. `None` if it is no file of this machine.
    pub claim: Option<Claim>,
    /// The process that mounts and unmounts.
    pub keeper: Keeper,
}

/// Mounts a volume on a directory, calls `ready` once it can be used, and serves it until it is unmounted or
/// a signal ends it; then closes the volume. Answers are counted in `operations`. Without an `image`, this
/// process mounts and unmounts without a helper, as plain `fuse`.
///
/// # Errors
/// What kept it from being mounted, or from ending cleanly. The volume is closed in any case.
pub fn serve(
    volume: Volume,
    what: &Mounting<'_>,
    image: Option<Image>,
    operations: Arc<Operations>,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let options =
        &MountOptions { read_only: what.options.read_only || volume.is_read_only(), ..what.options.clone() };
    let what = &Mounting { options, ..*what };
    for note in &options.notes {
        info!("{note}");
    }
    if options.writeback && !options.read_only {
        warn!(
            "-o writeback: on a full volume the last write may be lost; the next, fsync or close report it"
        );
    }
    let (claim, keeper) = image.map_or((None, None), |image| (image.claim, Some(image.keeper)));
    let claim = Arc::new(claim);
    let closed = Arc::<Mutex<Option<hectare_engine::Result<()>>>>::default();
    let (ending, kept, outcome) = (volume.clone(), Arc::clone(&claim), Arc::clone(&closed));
    let end = move || {
        *outcome.lock() = Some(ending.close());
        kept.iter().for_each(Claim::release);
    };
    let served = adapter(&volume, what.options, operations).and_then(|server| {
        let settles = !what.options.read_only && what.options.settles();
        let settler =
            settles.then(|| Settler::start(volume.clone())).transpose().map_err(ServeError::Mount)?;
        attend(Ending { server, settler, end }, what, (&claim, keeper), ready)
    });
    let last = volume.close();
    let closed = closed.lock().take().unwrap_or(last);
    served?;
    Ok(closed?)
}

/// Mounts a file system that answers at once and keeps nothing, the upper limit of benchmarks; otherwise as
/// [`serve`].
///
/// # Errors
/// What kept it from being mounted, or from ending cleanly.
pub fn serve_null(dir: &Path, options: &MountOptions, ready: impl FnOnce()) -> Result<(), ServeError> {
    attend(Null::new(), &Mounting { source: "null", dir, options }, (&None, None), ready)
}

/// A server that calls a function before the kernel's last request is answered, and commits changes soon
/// while the kernel does not pass on `sync`.
struct Ending<S, E> {
    server: S,
    settler: Option<Settler>,
    end: E,
}

impl<S: Server, E: Fn() + Send + Sync + 'static> Server for Ending<S, E> {
    fn greet(&mut self, offered: Features) -> Wanted {
        self.server.greet(offered)
    }

    fn panicked(&self) {
        self.server.panicked();
    }

    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Answer {
        if matches!(request.body, Body::Destroy) {
            self.settler.iter().for_each(Settler::stop);
            (self.end)();
        }
        let answer = self.server.answer(request, reply);
        self.settler.iter().for_each(|settler| settler.answered(&request.body));
        answer
    }

    fn waits(&self, node: NodeId, why: Wait) -> bool {
        self.server.waits(node, why)
    }
}

/// The process that has mounted it, and is to unmount it.
enum Attached {
    Here(Mounted),
    Kept(Keeper),
}

impl Attached {
    fn tune(&self, options: &MountOptions) {
        match self {
            Self::Here(mounted) => mounted.tune(options),
            Self::Kept(keeper) => {
                if let Err(error) = keeper.tune() {
                    warn!(error:%; "the readahead is unchanged");
                }
            }
        }
    }

    fn detach(&mut self) {
        match self {
            Self::Here(mounted) => {
                if !mounted.detach() {
                    warn!("it can't be reached and stays; is something mounted over it?");
                }
            }
            Self::Kept(keeper) => keeper.detach(),
        }
    }

    fn forget(&mut self) {
        match self {
            Self::Here(mounted) => mounted.forget(),
            Self::Kept(keeper) => keeper.forget(),
        }
    }
}

/// Attaches a connection, by the privileged helper if there is one.
fn attach(
    what: &Mounting<'_>,
    (claim, keeper): (&Option<Claim>, Option<Keeper>),
) -> io::Result<(OwnedFd, Attached)> {
    let Some(mut keeper) = keeper else {
        let (connection, mounted) = mount::attach(what, None)?;
        return Ok((connection, Attached::Here(mounted)));
    };
    let connection = keeper.mount(claim.as_ref().map(AsFd::as_fd), what.options.read_only)?;
    Ok((connection, Attached::Kept(keeper)))
}

fn adapter(
    volume: &Volume,
    options: &MountOptions,
    operations: Arc<Operations>,
) -> Result<Adapter, ServeError> {
    let behaviour = Behaviour {
        read_only: options.read_only,
        atime: options.atime,
        directory_atime: options.directory_atime,
        acl: options.acl,
        directory_groups: options.directory_groups,
        counts_overhead: options.counts_overhead,
        check_permissions: mount::checks_permissions(options),
        writeback: options.writeback,
        no_open: options.no_open,
        creation_times: options.creation_times,
        list_attributes: options.list_attributes,
        kept: options.kept,
        kept_absent: options.kept_absent.unwrap_or(options.kept),
        ask_flush: options.ask_flush,
        ask_opendir: options.ask_opendir,
        parallel_directories: options.parallel_directories,
        transfer_max: options.transfer_max,
    };
    Ok(Adapter::new(volume.clone(), behaviour, operations)?)
}

/// Mounts a server, and serves it to the end.
fn attend(
    server: impl Server,
    what: &Mounting<'_>,
    by: (&Option<Claim>, Option<Keeper>),
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let Mounting { source, dir, options } = *what;
    let (sender, events) = channel();
    let signals = on_signals(sender.clone()).map_err(ServeError::Mount)?;
    let (connection, mut mounted) = attach(what, by).map_err(ServeError::Mount)?;
    // Where the device can't be opened, all threads share the descriptor from the helper.
    let clones = access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_ok();
    let pace = Arc::<Pace>::default();
    let governor = aid(options, clones, &connection)
        .and_then(|aid| aid.map(|aid| Governor::start(aid, Arc::clone(&pace))).transpose())
        .map_err(ServeError::Mount)?;
    let session = event_loop::greet(server, pace, &connection).map_err(ServeError::Connection)?;
    let threads = (threads(options), clones);
    thread::Builder::new()
        .name("hectare-serve".into())
        .spawn(move || sender.send(Event::Ended(event_loop::run(session, connection, threads))))
        .map_err(ServeError::Mount)?;
    mounted.tune(options);
    info!(source, dir:% = dir.display(), read_only = options.read_only; "mounted");
    ready();
    let ended = wait(&events, &mut mounted);
    signals.close();
    drop(governor);
    match &ended {
        Ok(()) => info!(source; "the mount has ended"),
        Err(error) => error!(source, error:%; "the connection to the kernel broke"),
    }
    ended.map_err(ServeError::Connection)
}

fn threads(options: &MountOptions) -> usize {
    if options.threads == 0 { cores().max(THREADS_MIN) } else { options.threads }
}

/// The aid for bursts; none with one processor, on which no thread is woken while another runs.
fn aid(options: &MountOptions, clones: bool, connection: &OwnedFd) -> io::Result<Option<Box<dyn Aid>>> {
    if cores() == 1 {
        return Ok(None);
    }
    if let Some(polling) = options.idle_poll.then(IdlePoll::new).flatten() {
        return Ok(Some(Box::new(polling)));
    }
    let polls = options.busy_poll && clones;
    let polling = polls.then(|| connection.try_clone().map(BusyPoll::new)).transpose()?;
    Ok(polling.map(|polling| Box::new(polling) as Box<dyn Aid>))
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn on_signals(sender: Sender<Event>) -> io::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new(ending_signals())?;
    let handle = signals.handle();
    thread::Builder::new().name("hectare-signals".into()).spawn(move || {
        for _ in signals.forever() {
            let _ = sender.send(Event::Signal);
        }
    })?;
    Ok(handle)
}

/// Waits for the end, however it comes.
fn wait(events: &Receiver<Event>, mounted: &mut Attached) -> io::Result<()> {
    if let Ok(Event::Ended(ended)) = events.recv() {
        if ended.is_ok() {
            mounted.forget();
        }
        return ended;
    }
    info!("ending on a signal");
    mounted.detach();
    loop {
        match events.recv_timeout(GRACE) {
            Ok(Event::Ended(ended)) => return ended,
            Ok(Event::Signal) => {}
            Err(_) => {
                warn!("programs still have files open: they get errors from now on");
                return Ok(());
            }
        }
    }
}
