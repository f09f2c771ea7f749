//! Volumes on servers that fail: whether everything that was acknowledged as durable is still there.
//!
//! A run opens a volume over a connection to a server in this process, and works on it: overwrites,
//! appends, replacements by rename, removals, `fsync` and `sync`, by a seed ([`program`]). Meanwhile the
//! server and the network do what the seed chose ([`Fault`]). In the end the client is cut off in most
//! runs, and the server loses a random part of what was not flushed. What is left is recovered and checked:
//! by the checker, by an oracle such as e2fsck, and against what the program knows to be durable. A run
//! that takes too long has hung.
//!
//! What the client is promised is what `docs/remote.md` says: lost connections, crashed servers and late
//! replies are survived unseen; errors of the server end the volume, which then takes no further change.

mod network;
mod outside;
mod program;
mod store;

pub use outside::Outside;

use hectare_check::Options as CheckOptions;
use hectare_device::{CacheDevice, CacheLimits, Device, MemoryDevice};
use hectare_engine::Error::NeedsRepair;
use hectare_engine::{OpenOptions, Shutdown, Volume};
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::{SIZE, STATE_ERROR, SuperBlock};
use hectare_mkfs::{FormatOptions, Plan, execute, parse_features};
use hectare_nbd::{Address, NbdDevice, Options, Place};
use hectare_repair::{Options as RepairOptions, Staged, write_out};
use hectare_tools::error::{Error, Result};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use network::{Network, Served};
use program::{Program, STEPS};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use store::Store;

/// Bytes of the volume.
const LEN: Bytes = Bytes::mib(16);

/// How long the client tries to connect again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run that takes longer hangs: it has seconds of work, and one lost server of [`PATIENCE`].
const RUN_MAX: Duration = Duration::from_secs(240);

/// What goes wrong in a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// The connection is cut at every k-th request, before or after it is done.
    Cut,
    /// The server is killed, loses what was not flushed, and is started again.
    Killed,
    /// Replies come in another order than the requests.
    Reordered,
    /// Requests fail.
    Errors,
    /// Some requests take 200 ms.
    Slow,
    /// The server goes away for good.
    Gone,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Cut, Self::Killed, Self::Reordered, Self::Errors, Self::Slow, Self::Gone];

    /// The fault of a run.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        // The frequent ones are those with many moments.
        const TURNS: [Fault; 10] = [
            Fault::Cut,
            Fault::Killed,
            Fault::Reordered,
            Fault::Cut,
            Fault::Errors,
            Fault::Killed,
            Fault::Slow,
            Fault::Cut,
            Fault::Gone,
            Fault::None,
        ];
        TURNS[hectare_units::index_of(seed % 10)]
    }
}

/// What happened in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What went wrong on purpose.
    pub fault: Fault,
    /// The steps of the program that were done.
    pub steps: u32,
    /// The durable promises that were checked.
    pub promises: u64,
    /// How many times the connection was made again.
    pub reconnects: u64,
    /// The requests that the client made.
    pub requests: u64,
    /// Whether the volume ended with an error, as it must when the server is gone.
    pub ended: bool,
    /// The longest step.
    pub longest: Duration,
}

/// Checks the bytes of a volume: `Ok` if they are clean, or the problem.
pub type Oracle = dyn Fn(&[u8]) -> std::result::Result<(), String> + Send + Sync;

/// Makes one run, chosen by a seed.
///
/// # Errors
/// What is wrong, in a line; the seed makes the same run again, but for the timing of its threads.
pub fn run(seed: u64, oracle: Option<Arc<Oracle>>) -> Result<Outcome> {
    let (done, ended) = mpsc::channel();
    let failed = move |what: String| Error::at(format!("seed {seed} ({:?})", Fault::of(seed)), what);
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().map_err(|error| error.to_string());
        let result = folder.and_then(|folder| one_run(seed, folder.path(), oracle.as_deref()));
        // Nobody waits any more if it took too long.
        let _ = done.send(result);
    });
    match ended.recv_timeout(RUN_MAX) {
        Ok(result) => result.map_err(failed),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(failed(format!("it hangs: no end after {RUN_MAX:?}"))),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(failed("it panicked".to_owned())),
    }
}

type Checked<T = ()> = std::result::Result<T, String>;

fn text_of(error: impl ToString) -> String {
    error.to_string()
}

fn one_run(seed: u64, folder: &Path, oracle: Option<&Oracle>) -> Checked<Outcome> {
    let mut random = SplitMix64::stream(seed, 1);
    let fault = Fault::of(seed);
    let store = Arc::new(Store::new(LEN, seed));
    format(&store, &mut random)?;
    let mut served = Served::start(Arc::clone(&store), &folder.join("behind"))?;
    let network = Network::start(&folder.join("front"), &folder.join("behind"))?;
    let patience = if fault == Fault::Gone { Duration::from_secs(1) } else { PATIENCE };
    let options = Options {
        write: true,
        connections: 1 + hectare_units::index_of(random.below(4)),
        reconnect_timeout: patience,
        unflushed_max: if random.below(3) == 0 { 64 << 10 } else { 64 << 20 },
        ..Options::default()
    };
    let address = Address { place: Place::Unix(folder.join("front")), export: b"vol".to_vec(), tls: None };
    let client = Arc::new(NbdDevice::open(&address, &options).map_err(text_of)?);
    let device: Arc<dyn Device> = match random.below(2) {
        0 => Arc::clone(&client) as _,
        _ => Arc::new(CacheDevice::new(Arc::clone(&client), CacheLimits::of(2 << 20))),
    };
    let volume = Volume::open(device, open_options(seed)).map_err(text_of)?;
    let mut program = Program::new(seed);
    let stop = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let (served, network, store, stop) = (&mut served, &network, &store, &stop);
        let harm = scope.spawn(move || harm(fault, seed, served, network, store, folder, stop));
        let longest = program.work(&volume, |steps| steps < STEPS);
        stop.store(true, Ordering::SeqCst);
        harm.join().map_err(|_| "the thread that makes faults panicked".to_owned())??;
        Ok::<_, String>(longest)
    })?;
    let may_end = matches!(fault, Fault::Errors | Fault::Gone);
    if let Some(error) = program.ended().filter(|_| !may_end) {
        return Err(format!("an operation failed: {error}"));
    }
    if fault == Fault::Gone {
        program.is_latched(&volume)?;
    }
    store.behave();
    // The server may have gone after the last step.
    let closes = fault != Fault::Gone && program.ended().is_none() && random.below(4) == 0;
    match closes {
        true => {
            volume.close().map_err(|error| format!("it can't be closed: {error}"))?;
            program.everything_is_durable();
        }
        // As if the client's machine had lost its power.
        false => drop(volume.shut_down(Shutdown::Cut)),
    }
    let (requests, reconnects) = (client.requests(), client.reconnects());
    if volume.superblock().features().incompat.contains(Incompat::MMP) {
        // Without the server it would try for its whole patience to release its mark.
        drop(volume);
        network.block();
    } else {
        network.block();
        drop(volume);
    }
    drop(client);
    let promises = judge(&store.after_power_cut(), seed, &program, oracle)?;
    let (steps, ended) = (program.steps(), program.ended().is_some());
    Ok(Outcome { fault, steps, promises, reconnects, requests, ended, longest })
}

fn open_options(seed: u64) -> OpenOptions {
    OpenOptions {
        seed: Some(seed),
        commit_interval: Some(Duration::from_millis(300)),
        cache_bytes: 1 << 20,
        mmp_wait: true,
        ..OpenOptions::default()
    }
}

/// Makes a volume, with what differs for how things become durable.
fn format(store: &Store, random: &mut SplitMix64) -> Checked {
    const FEATURES: [&str; 5] = ["", "mmp", "fast_commit", "^metadata_csum,orphan_file", "quota"];
    format_with(store, random.pick(&FEATURES).copied().unwrap_or_default())
}

fn format_with(store: &Store, features: &str) -> Checked {
    let mut options = FormatOptions { journal_mib: Some(4), ..FormatOptions::default() };
    options.features.extend(parse_features(features).map_err(text_of)?);
    let plan = Plan::new(&options, LEN, true).map_err(text_of)?;
    execute(&plan, store, &plan.empty(), 1).map_err(text_of)?;
    store.flush().map_err(text_of)
}

/// Does what the fault is while the program works.
fn harm(
    fault: Fault,
    seed: u64,
    served: &mut Served,
    network: &Network,
    store: &Arc<Store>,
    folder: &Path,
    stop: &AtomicBool,
) -> Checked {
    let mut random = SplitMix64::stream(seed, 2);
    store.misbehave(fault, network.cutter());
    let (began, mut crashes) = (Instant::now(), 0);
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(2 + random.below(25)));
        match fault {
            Fault::Killed => {
                // No reply gets through that says what is not so.
                network.block();
                store.die();
                served.stop();
                store.revive();
                *served = Served::start(Arc::clone(store), &folder.join("behind"))?;
                network.unblock();
                // On a busy machine a connection takes longer to be made than the first pauses last.
                crashes += 1;
                std::thread::sleep(Duration::from_millis((20 + random.below(200)) * (1 + crashes / 8)));
            }
            Fault::Gone if began.elapsed() > Duration::from_millis(100 + seed % 400) => {
                network.block();
                return Ok(());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Recovers what is left, and checks it. Returns how many promises were kept.
fn judge(bytes: &[u8], seed: u64, program: &Program, oracle: Option<&Oracle>) -> Checked<u64> {
    let memory = Arc::new(MemoryDevice::new(LEN));
    memory.write_at(Bytes::ZERO, bytes).map_err(text_of)?;
    clear_mark(&memory)?;
    let device: Arc<dyn Device> = Arc::clone(&memory) as _;
    let failed = |error| format!("not recovered: {error}");
    if has_noted_errors(&memory)? {
        // An error of the server was noted in the superblock. What is promised is there even so, and the
        // volume is sound but for that note: to take it away loses nothing, and nothing of what was
        // promised.
        program.check(&Volume::open(Arc::clone(&device), OpenOptions::read_only()).map_err(failed)?)?;
        mend(&device)?;
    }
    let volume = Volume::open(device, open_options(seed)).map_err(failed)?;
    let promises = program.check(&volume)?;
    volume.close().map_err(|error| format!("after recovery it can't be closed: {error}"))?;
    drop(volume);
    let report = hectare_check::check(&*memory, &CheckOptions::default()).map_err(text_of)?;
    if let Some(first) = report.problems.first() {
        return Err(format!("after recovery: {first}"));
    }
    oracle.map_or(Ok(()), |oracle| oracle(&memory.to_vec()))?;
    Ok(promises)
}

/// Mends a volume with an error in its superblock; it must not need more than could be taken from it
/// without loss.
fn mend(device: &Arc<dyn Device>) -> Checked {
    let failed = |error: &dyn std::fmt::Display| format!("after an error it can't be mended: {error}");
    let staged = Staged::new(Arc::clone(device));
    let repaired = staged.repair(&RepairOptions::default()).map_err(|error| failed(&error))?;
    for mend in repaired.mends.iter() {
        let mend = mend.map_err(|error| failed(&error))?;
        if mend.loses {
            return Err(format!("after an error something is lost: {mend}"));
        }
    }
    let written = write_out(&staged, &repaired.order, 1, None::<Vec<u8>>, || Ok(()));
    written.map(drop).map_err(|error| failed(&error))
}

fn superblock(memory: &MemoryDevice) -> Checked<SuperBlock> {
    let mut bytes = [0; SIZE];
    memory.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(text_of)?;
    SuperBlock::parse(&bytes, LEN).map_err(text_of)
}

/// Whether an error is noted: in the superblock, in one that is in the journal, or in the journal's own. A device
/// that has failed takes no other.
fn has_noted_errors(memory: &Arc<MemoryDevice>) -> Checked<bool> {
    let volume = Volume::open(Arc::clone(memory) as _, OpenOptions::read_only());
    let volume = volume.map_err(|error| format!("it can't even be read: {error}"))?;
    let noted =
        superblock(memory)?.state() & STATE_ERROR != 0 || volume.superblock().state() & STATE_ERROR != 0;
    let copy = MemoryDevice::from_bytes(&memory.to_vec());
    Ok(noted || matches!(Volume::open(Arc::new(copy), OpenOptions::default()), Err(NeedsRepair(_))))
}

/// The client is gone for good, so its mark (`mmp`) need not be waited for.
fn clear_mark(memory: &MemoryDevice) -> Checked {
    let sb = superblock(memory)?;
    if sb.features().incompat.contains(Incompat::MMP) {
        let block = hectare_units::BlockNr::new(sb.raw().s_mmp_block.get());
        let clean = Mmp { status: Status::Clean, time: 0, check_interval: 5 };
        let at = block.offset(sb.geometry().block_size);
        memory.write_at(at, &clean.render(sb.seed())).map_err(text_of)?;
    }
    Ok(())
}
