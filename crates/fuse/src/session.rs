//! A mount from beginning to end: attached, served by several threads, closed cleanly.
//!
//! It ends when it is unmounted (by `umount` or `fusermount3 -u`), or by `SIGTERM`, `SIGINT` or `SIGHUP`:
//! then the kernel is made to write what it has gathered, and the mount is detached. Programs that still
//! have files open are given a moment; after that they get errors, and the volume is closed under them. A
//! process that is killed leaves a volume that recovers.

use crate::adapter::{Adapter, Behaviour};
use crate::burst::busy_poll::BusyPoll;
use crate::burst::idle_poll::IdlePoll;
use crate::burst::{Aid, Governor, Pace};
use crate::mount::{self, Mounted};
use crate::null::Null;
use crate::operations::Operations;
use crate::options::MountOptions;
use crate::serving::{self, DEVICE, Server};
use hectare_engine::Volume;
use log::{error, info, warn};
use rustix::fs::{Access, access};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long programs with open files are waited for after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// Threads where nobody says how many: one waits for the device while another answers.
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

/// Mounts a volume on a folder, calls `ready` once it can be used, and serves it until it is unmounted or a
/// signal says to end; then closes the volume. `source` is what `/proc/mounts` shows; what is answered is
/// counted in `operations`.
///
/// # Errors
/// What kept it from being mounted, or from ending well. The volume is closed in any case.
pub fn serve(
    volume: Volume,
    source: &str,
    dir: &Path,
    options: &MountOptions,
    operations: Arc<Operations>,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let served = adapter(&volume, options, operations)
        .and_then(|adapter| attend(adapter, source, dir, options, ready));
    let closed = volume.close();
    served?;
    Ok(closed?)
}

/// Mounts a file system that answers at once and keeps nothing, the limit of what can be measured; otherwise
/// as [`serve`].
///
/// # Errors
/// What kept it from being mounted, or from ending well.
pub fn serve_null(dir: &Path, options: &MountOptions, ready: impl FnOnce()) -> Result<(), ServeError> {
    attend(Null::new(), "null", dir, options, ready)
}

fn adapter(
    volume: &Volume,
    options: &MountOptions,
    operations: Arc<Operations>,
) -> Result<Adapter, ServeError> {
    let behaviour = Behaviour {
        read_only: options.read_only,
        atime: options.atime,
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

/// Mounts whatever answers requests, and serves it to the end.
fn attend(
    server: impl Server,
    source: &str,
    dir: &Path,
    options: &MountOptions,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let (sender, events) = channel();
    let signals = on_signals(sender.clone()).map_err(ServeError::Mount)?;
    let (connection, mut mounted) = mount::attach(source, dir, options).map_err(ServeError::Mount)?;
    // Where the device is closed to us, all threads share the descriptor that the helper gave.
    let clones = access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_ok();
    let pace = Arc::<Pace>::default();
    let governor = aid(options, clones, &connection)
        .and_then(|aid| aid.map(|aid| Governor::start(aid, Arc::clone(&pace))).transpose())
        .map_err(ServeError::Mount)?;
    let session = serving::greet(server, pace, &connection).map_err(ServeError::Connection)?;
    let threads = (threads(options), clones);
    thread::Builder::new()
        .name("hectare-serve".into())
        .spawn(move || sender.send(Event::Ended(serving::run(session, connection, threads))))
        .map_err(ServeError::Mount)?;
    mounted.read_ahead(options.read_ahead);
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

/// What is to help in bursts; nothing with one processor, on which nothing is woken while something runs.
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
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let handle = signals.handle();
    thread::Builder::new().name("hectare-signals".into()).spawn(move || {
        for _ in signals.forever() {
            let _ = sender.send(Event::Signal);
        }
    })?;
    Ok(handle)
}

/// Waits for the end, however it comes.
fn wait(events: &Receiver<Event>, mounted: &mut Mounted) -> io::Result<()> {
    if let Ok(Event::Ended(ended)) = events.recv() {
        if ended.is_ok() {
            mounted.forget();
        }
        return ended;
    }
    info!("a signal says to end");
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
