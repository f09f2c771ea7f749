//! The mark of this host: taking it, renewing it, leaving it.
//!
//! Each time before it writes, the thread checks that the block is as it left it. If another host has written
//! there, both use the volume: ours ends all changes at once, and does not touch the block any more. The kernel
//! does no more than that. Here, each change of the device also asks whether the block was seen as it should be
//! a short time ago ([`crate::lease`]), so that a process that was stopped, or whose network was away, writes
//! nothing after another host has taken its volume.
//!
//! Two hosts that find the volume *clean* at the same moment are kept apart by a pause between writing our
//! number and reading it again ([`Options::settle`]); the kernel has none.
//!
//! The thread is one of its own, not the one that commits: a commit may take longer than others wait.

use crate::block::{MmpBlock, described, user_name};
use crate::error::{Error, Result};
use crate::lease::Lease;
use hectare_device::{Clock, Device, Fence, FencedDevice, RememberingDevice};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockNr, low32, random};
use log::warn;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The shortest and the longest interval, in seconds, after which the user of a volume must have changed the
/// block.
const CHECK_MIN: u16 = 5;
pub(crate) const CHECK_MAX: u16 = 300;

/// The largest number that is no mark.
const SEQUENCE_MAX: u32 = 0xe24d_4d4f;

/// What is called, with the name of the other host, when that has written to the block.
pub type OnLoss = Box<dyn FnOnce(&str) + Send>;

/// How a volume is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether a volume that may be in use is watched, which takes up to two minutes, and taken if its mark stands
    /// still; else it is refused.
    pub waits: bool,
    /// How long to wait on a *clean* volume for another host that takes it at the same moment. The kernel does not.
    pub settle: Duration,
    /// The time that the block gets at the end, if time does not pass.
    pub fixed_time: Option<Timestamp>,
    /// The clock of all waits, and of the renewal.
    pub clock: Clock,
}

impl Default for Options {
    /// As the kernel does it.
    fn default() -> Self {
        Self { waits: true, settle: Duration::ZERO, fixed_time: None, clock: Clock::default() }
    }
}

/// A volume that others can see is in use. Dropping it stops the renewal and leaves the block as it is.
pub struct Guard {
    device: Arc<dyn Device>,
    /// The device for the use of the volume. It remembers failures of the renewal, too: the storage may tell that
    /// of other bytes.
    remembering: Arc<RememberingDevice<Arc<dyn Device>>>,
    /// Seconds between two changes of the block.
    interval: u16,
    lease: Arc<Lease>,
    /// The lease, as devices know it.
    fence: Arc<dyn Fence>,
    shared: Arc<Shared>,
    heartbeat: Option<JoinHandle<()>>,
    /// The time that everything is stamped with, if it does not pass: what is left when the volume is closed
    /// has it, too.
    fixed_time: Option<Timestamp>,
}

#[derive(Default)]
struct Shared {
    watch: Mutex<Watch>,
    changed: Condvar,
}

#[derive(Default)]
struct Watch {
    stop: bool,
    /// Whether another host has written to the block.
    lost: bool,
    on_loss: Option<OnLoss>,
}

/// Checks the MMP block and takes the volume for writing. Returns `None` where the volume has no such
/// protection.
///
/// # Errors
/// [`Error::InUse`] if another host has the volume; the others if the block can't be read or written.
pub fn enter(device: &Arc<dyn Device>, sb: &SuperBlock, options: &Options) -> Result<Option<Guard>> {
    let Some(place) = MmpBlock::of(sb) else { return Ok(None) };
    let began = options.clock.now();
    let found = place.read(&**device)?;
    let wait = match outwait(&**device, sb, place, &found, options)? {
        None => Wait::Settle(began, options.settle, wait_for(&found, sb, place.block)?),
        Some(wait) => Wait::Full(wait),
    };
    Ok(Some(Guard::take(device, sb, place, &wait, options)?))
}

/// Waits, where the block does not say *clean*, for as long as its user may take to change it; returns how long
/// that was.
///
/// # Errors
/// [`Error::InUse`] if it was changed, or is not to be waited for; the others if it can't be read.
pub(crate) fn outwait(
    device: &dyn Device,
    sb: &SuperBlock,
    place: MmpBlock,
    found: &Mmp,
    options: &Options,
) -> Result<Option<Duration>> {
    match &found.status {
        Status::Clean => Ok(None),
        Status::Fsck => Err(Error::InUse(
            "the volume is being checked by e2fsck (MMP): wait for it, or, if it was interrupted, clear \
             the mark with tune2fs -f -E clear_mmp"
                .into(),
        )),
        Status::InUse { .. } if !options.waits => {
            let gone = ", or, if that host is gone, take it over (--takeover) or clear the mark with \
                        tune2fs -f -E clear_mmp";
            Err(in_use(found, gone))
        }
        Status::InUse { .. } => {
            let wait = wait_for(found, sb, place.block)?;
            let (seconds, user) = (2 * wait.as_secs(), described(found));
            warn!("the volume may be in use by {user} (MMP): waiting {seconds} seconds to see");
            options.clock.sleep(wait);
            let again = place.read(device)?;
            if again.status != found.status { Err(in_use(&again, "")) } else { Ok(Some(wait)) }
        }
    }
}

/// How long to wait between writing our mark and reading it again.
pub(crate) enum Wait {
    /// As long as the volume's user may take to change it.
    Full(Duration),
    /// Of a volume that is clean, and was read at a moment: so long if it is written no later than that,
    /// else the time after it.
    Settle(Duration, Duration, Duration),
}

impl Wait {
    /// The wait once our mark is written.
    pub(crate) fn after(&self, written: Duration) -> Duration {
        match *self {
            Self::Full(wait) => wait,
            Self::Settle(_, settle, _) if settle.is_zero() => settle,
            Self::Settle(began, settle, _) if written.saturating_sub(began) <= settle => settle,
            Self::Settle(_, _, full) => full,
        }
    }
}

/// How long the user of a volume may take to change the block.
pub(crate) fn wait_for(found: &Mmp, sb: &SuperBlock, block: BlockNr) -> Result<Duration> {
    let interval = sb.raw().s_mmp_update_interval.get().max(CHECK_MIN).max(found.check_interval);
    if interval > CHECK_MAX {
        let what = format!("it asks to wait {interval} seconds, and {CHECK_MAX} is the most");
        return Err(Corrupt::new("multiple mount protection", Place::Block(block), what).into());
    }
    let interval = u64::from(interval);
    Ok(Duration::from_secs((2 * interval + 1).min(interval + 60)))
}

fn in_use(mmp: &Mmp, hint: &str) -> Error {
    Error::InUse(format!("the volume is in use by {} (MMP): close it there{hint}", described(mmp)))
}

impl Guard {
    /// Puts this host's mark into the block, and has it renewed if it is still there after a wait.
    pub(crate) fn take(
        device: &Arc<dyn Device>,
        sb: &SuperBlock,
        place: MmpBlock,
        wait: &Wait,
        options: &Options,
    ) -> Result<Self> {
        let interval = sb.raw().s_mmp_update_interval.get().max(1);
        let mine = Mmp {
            status: Status::InUse {
                node: node_name(),
                device: user_name(device.name()),
                sequence: arbitrary_sequence(),
            },
            time: now(),
            check_interval: interval.saturating_mul(2).clamp(CHECK_MIN, CHECK_MAX),
        };
        // As it will be read: names are cut to their fields.
        let mine = Mmp::parse(&mine.render(place.seed), place.block, place.seed)?;
        place.write(&**device, &mine)?;
        let &Options { clock, fixed_time, .. } = options;
        clock.sleep(wait.after(clock.now()));
        let seen = clock.now();
        let found = place.read(&**device)?;
        if found.status != mine.status {
            return Err(in_use(&found, ""));
        }
        let shared = Arc::new(Shared::default());
        let alarm = {
            let shared = Arc::clone(&shared);
            move || {
                shared.watch.lock().lost = true;
                shared.changed.notify_all();
            }
        };
        let lease = Arc::new(Lease::new(place, Box::new(move || clock.now()), mine, seen, Box::new(alarm)));
        let remembering = Arc::new(RememberingDevice::new(Arc::clone(device)));
        let heartbeat = {
            let (shared, lease) = (Arc::clone(&shared), Arc::clone(&lease));
            let device = remembering.unwaiting();
            let every = Duration::from_secs(interval.into());
            thread::Builder::new()
                .name("hectare-mmp".into())
                .spawn(move || beat(&device, &shared, &lease, clock, every))
                .map_err(|error| Error::InUse(format!("no thread can renew the mark (MMP): {error}")))?
        };
        let fence: Arc<dyn Fence> = Arc::clone(&lease) as _;
        device.add_fence(place.at, &fence);
        let device = Arc::clone(device);
        let heartbeat = Some(heartbeat);
        Ok(Self { device, remembering, interval, lease, fence, shared, heartbeat, fixed_time })
    }

    /// The device for the use of the volume, whose block stays where it is: it takes changes only as long as the
    /// volume is ours.
    #[must_use]
    pub fn fenced(&self) -> Arc<dyn Device> {
        let device = self.unfenced();
        match self.lease.place() {
            Some(place) => Arc::new(FencedDevice::new(device, place.at, Arc::clone(&self.fence))),
            None => device,
        }
    }

    /// The same without the fence.
    pub(crate) fn unfenced(&self) -> Arc<dyn Device> {
        Arc::<RememberingDevice<_>>::clone(&self.remembering)
    }

    /// What says whether a change may be made.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// Has the mark stand where a superblock says that is about to be written, or nowhere.
    ///
    /// # Errors
    /// If it can't be written there.
    pub(crate) fn follow(&self, sb: &SuperBlock) -> Result<()> {
        let place = MmpBlock::of(sb);
        if self.lease.moved(&self.remembering.unwaiting(), place)? {
            self.device.remove_fence(&self.fence);
            if let Some(place) = place {
                self.device.add_fence(place.at, &self.fence);
            }
        }
        Ok(())
    }

    /// The block as it is left at the end.
    pub(crate) fn clean(&self) -> Mmp {
        let time = self.fixed_time.map_or_else(now, seconds_of);
        Mmp { status: Status::Clean, time, check_interval: self.interval }
    }

    /// Sets what is done when another host has written to the block.
    pub fn on_loss(&self, act: OnLoss) {
        self.shared.watch.lock().on_loss = Some(act);
        self.shared.changed.notify_all();
    }

    fn halt(&mut self) {
        self.shared.watch.lock().stop = true;
        self.shared.changed.notify_all();
        let heartbeat = self.heartbeat.take();
        // It may be the one that closes the volume.
        if let Some(heartbeat) = heartbeat.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = heartbeat.join(); // it does not panic; the result does not matter
        }
    }

    /// Marks the volume as free again and durably so, unless another host has taken it.
    ///
    /// # Errors
    /// If the block can't be read or written.
    pub fn leave(self) -> Result<()> {
        let last = self.clean();
        self.leave_as(last).map(drop)
    }

    /// The same with these words; returns whether the volume was still ours.
    pub(crate) fn leave_as(mut self, last: Mmp) -> Result<bool> {
        self.halt();
        self.lease.renew(&*self.device, last)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.halt();
        self.device.remove_fence(&self.fence);
    }
}

/// Changes the block at intervals, until the guard stops it or another host has written to it.
fn beat(device: &dyn Device, shared: &Shared, lease: &Lease, clock: Clock, every: Duration) {
    let mut last = clock.now();
    loop {
        if !rest(shared, clock, last + every) {
            return;
        }
        let mut mine = lease.newest();
        if let Status::InUse { sequence, .. } = &mut mine.status {
            *sequence = if *sequence < SEQUENCE_MAX { *sequence + 1 } else { 1 };
        }
        // Others wait for longer than this host took.
        let took = low32((clock.now().saturating_sub(last).as_secs() + 1).min(CHECK_MAX.into()));
        mine.time = now();
        mine.check_interval = u16::try_from(2 * took).unwrap_or(CHECK_MAX).clamp(CHECK_MIN, CHECK_MAX);
        last = clock.now();
        if let Err(error) = lease.renew(device, mine) {
            // Changes are admitted for some time, and then only if the mark can be read and is still ours.
            warn!("the mark of this host could not be renewed (MMP): {error}");
        }
        if let Some(who) = lease.lost() {
            return end_changes(shared, &who);
        }
    }
}

/// Waits until a moment. Returns whether to go on; if the volume is lost, it is ended here.
fn rest(shared: &Shared, clock: Clock, until: Duration) -> bool {
    let mut watch = shared.watch.lock();
    while !watch.stop && !watch.lost {
        if shared.changed.wait_for(&mut watch, clock.until(until)).timed_out() {
            break;
        }
    }
    !watch.stop
}

/// Ends the volume, which another host has. Waits for it to be there, or the guard's end.
fn end_changes(shared: &Shared, who: &str) {
    let mut watch = shared.watch.lock();
    let act = loop {
        match watch.on_loss.take() {
            Some(act) => break act,
            None if watch.stop => return,
            None => shared.changed.wait(&mut watch),
        }
    };
    drop(watch);
    act(who);
}

fn now() -> u64 {
    seconds_of(Timestamp::now())
}

fn seconds_of(time: Timestamp) -> u64 {
    time.seconds.cast_unsigned()
}

/// A number that no other host is likely to start with.
fn arbitrary_sequence() -> u32 {
    let time = Timestamp::now();
    let seed = time.seconds.cast_unsigned() << 30
        ^ u64::from(time.nanoseconds)
        ^ u64::from(std::process::id()) << 44;
    low32(random::mixed(seed)) % SEQUENCE_MAX + 1
}

/// This host's name, for others to read.
fn node_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "hectare".into(), |name| name.trim().into())
}
