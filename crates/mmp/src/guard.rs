//! The mark of this host: taking it, renewing it, leaving it.
//!
//! Each time before it writes, the thread checks that the block is as it left it. If another host has written
//! there, both use the volume: ours ends all changes at once, and does not touch the block any more.
//!
//! The thread is one of its own, not the one that commits: a commit may take longer than others wait.
//!
//! Hazard: where the mark moves ([`Guard::follow`]), its old block may become another's at once. So the
//! thread writes with the place locked.

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Incompat;
use hectare_ext4::mmp::{Mmp, RawMmp, Status};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::{SECONDS_MAX, Timestamp};
use hectare_units::{BlockNr, Bytes, low32, random};
use log::warn;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The shortest and the longest interval, in seconds, after which the user of a volume must have changed the
/// block.
const CHECK_MIN: u16 = 5;
const CHECK_MAX: u16 = 300;

/// The largest number that is no mark.
const SEQUENCE_MAX: u32 = 0xe24d_4d4f;

/// What is called, with who it was, when another host has written to the block.
pub type OnLoss = Box<dyn FnOnce(&str) + Send>;

/// Where the block lies, and how it is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MmpBlock {
    pub(crate) at: Bytes,
    pub(crate) block: BlockNr,
    pub(crate) seed: Option<Seed>,
}

/// Bytes of the block that are read and written.
pub(crate) const LEN: usize = size_of::<RawMmp>();

impl MmpBlock {
    /// That of a volume, if it has one.
    pub(crate) fn of(sb: &SuperBlock) -> Option<Self> {
        if !sb.features().incompat.contains(Incompat::MMP) {
            return None;
        }
        let (size, block) = (sb.geometry().block_size, BlockNr::new(sb.raw().s_mmp_block.get()));
        Some(Self { at: block.offset(size), block, seed: sb.seed() })
    }

    fn read(&self, device: &dyn Device) -> Result<Mmp> {
        let mut bytes = [0; LEN];
        // A device that keeps what it has read would show the mark of a living host as one that stands still.
        device.read_fresh(self.at, &mut bytes)?;
        Ok(Mmp::parse(&bytes, self.block, self.seed)?)
    }

    fn write(&self, device: &dyn Device, mmp: &Mmp) -> Result<()> {
        device.write_at(self.at, &mmp.render(self.seed))?;
        Ok(device.flush()?)
    }
}

/// A volume that others can see is in use. Dropping it stops the renewal and leaves the block as it is.
pub struct Guard {
    /// Seconds between two changes of the block.
    interval: u16,
    shared: Arc<Shared>,
    heartbeat: Option<JoinHandle<()>>,
    /// The time that everything is stamped with, if it does not pass: what is left when the volume is closed
    /// has it, too.
    fixed_time: Option<Timestamp>,
}

struct Shared {
    mark: Mutex<Mark>,
    watch: Mutex<Watch>,
    changed: Condvar,
}

/// What this host has written, and where; nowhere if the volume has lost the protection.
struct Mark {
    place: Option<MmpBlock>,
    mine: Mmp,
}

#[derive(Default)]
struct Watch {
    stop: bool,
    /// Who has written to the block, if anybody has.
    lost: Option<String>,
    on_loss: Option<OnLoss>,
}

/// Checks the MMP block and takes the volume for writing. Returns `None` where the volume has no such
/// protection. A volume that may be in use is watched if `waits`, which takes up to two minutes, and else
/// refused.
///
/// # Errors
/// [`Error::InUse`] if another host has the volume; the others if the block can't be read or written.
pub fn enter(device: &Arc<dyn Device>, sb: &SuperBlock, waits: bool) -> Result<Option<Guard>> {
    let Some(place) = MmpBlock::of(sb) else { return Ok(None) };
    let found = place.read(&**device)?;
    let wait = match &found.status {
        Status::Clean => Duration::ZERO,
        Status::Fsck => {
            return Err(Error::InUse(
                "the volume is being checked by e2fsck (MMP): wait for it, or, if it was interrupted, clear \
                 the mark with tune2fs -f -E clear_mmp"
                    .into(),
            ));
        }
        Status::InUse { .. } if !waits => {
            let gone = ", or, if that host is gone, clear the mark with tune2fs -f -E clear_mmp";
            return Err(in_use(&found, gone));
        }
        Status::InUse { .. } => {
            let wait = wait_for(&found, sb, place.block)?;
            let (seconds, user) = (2 * wait.as_secs(), described(&found));
            warn!("the volume may be in use by {user} (MMP): waiting {seconds} seconds to see");
            thread::sleep(wait);
            let again = place.read(&**device)?;
            if again.status != found.status {
                return Err(in_use(&again, ""));
            }
            wait
        }
    };
    Ok(Some(Guard::take(device, sb, place, wait)?))
}

/// How long the user of a volume may take to change the block.
fn wait_for(found: &Mmp, sb: &SuperBlock, block: BlockNr) -> Result<Duration> {
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

/// Who wrote the block, and when.
fn described(mmp: &Mmp) -> String {
    let seconds = i64::try_from(mmp.time).unwrap_or(SECONDS_MAX).min(SECONDS_MAX);
    let time = Timestamp::from_seconds(seconds).utc();
    match &mmp.status {
        Status::InUse { node, device, .. } => format!("host {node}, device {device}, last seen {time}"),
        Status::Fsck => format!("e2fsck, since {time}"),
        Status::Clean => format!("nobody, since {time}"),
    }
}

impl Guard {
    fn take(device: &Arc<dyn Device>, sb: &SuperBlock, place: MmpBlock, wait: Duration) -> Result<Self> {
        let interval = sb.raw().s_mmp_update_interval.get().max(1);
        let mine = Mmp {
            status: Status::InUse {
                node: node_name(),
                device: short_name(device.name()),
                sequence: arbitrary_sequence(),
            },
            time: now(),
            check_interval: interval.saturating_mul(2).clamp(CHECK_MIN, CHECK_MAX),
        };
        // As it will be read: names are cut to their fields.
        let mine = Mmp::parse(&mine.render(place.seed), place.block, place.seed)?;
        place.write(&**device, &mine)?;
        thread::sleep(wait);
        let found = place.read(&**device)?;
        if found.status != mine.status {
            return Err(in_use(&found, ""));
        }
        let mark = Mutex::new(Mark { place: Some(place), mine });
        let shared = Arc::new(Shared { mark, watch: Mutex::default(), changed: Condvar::new() });
        let heartbeat = {
            let (device, shared) = (Arc::clone(device), Arc::clone(&shared));
            let every = Duration::from_secs(interval.into());
            thread::Builder::new()
                .name("hectare-mmp".into())
                .spawn(move || beat(&*device, &shared, every))
                .map_err(|error| Error::InUse(format!("no thread can renew the mark (MMP): {error}")))?
        };
        Ok(Self { interval, shared, heartbeat: Some(heartbeat), fixed_time: None })
    }

    /// Has what is left at the end say this time, if there is one.
    #[must_use]
    pub fn at(mut self, fixed_time: Option<Timestamp>) -> Self {
        self.fixed_time = fixed_time;
        self
    }

    /// Has the mark stand where a superblock says that is about to be written, or nowhere.
    ///
    /// # Errors
    /// If it can't be written there.
    pub(crate) fn follow(&self, device: &dyn Device, sb: &SuperBlock) -> Result<()> {
        let mut mark = self.shared.mark.lock();
        let place = MmpBlock::of(sb);
        if place != mark.place {
            if let Some(place) = place {
                place.write(device, &mark.mine)?;
            }
            mark.place = place;
        }
        Ok(())
    }

    /// The block as it is left at the end.
    pub(crate) fn clean(&self, place: MmpBlock) -> [u8; LEN] {
        let time = self.fixed_time.map_or_else(now, seconds_of);
        let mmp = Mmp { status: Status::Clean, time, check_interval: self.interval };
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(&mmp.render(place.seed));
        bytes
    }

    /// Where the mark stands.
    pub(crate) fn place(&self) -> Option<MmpBlock> {
        self.shared.mark.lock().place
    }

    /// Another host that has written to the block, if one has.
    #[must_use]
    pub fn lost_to(&self) -> Option<String> {
        self.shared.watch.lock().lost.clone()
    }

    /// Sets what is done when another host has written to the block.
    pub fn on_loss(&self, act: OnLoss) {
        let mut watch = self.shared.watch.lock();
        match watch.lost.clone() {
            Some(who) => {
                drop(watch);
                act(&who);
            }
            None => watch.on_loss = Some(act),
        }
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

    /// Marks the volume as free again, unless another host has taken it. What was written is not flushed.
    ///
    /// # Errors
    /// If the block can't be written.
    pub fn leave(mut self, device: &dyn Device) -> Result<()> {
        self.halt();
        let place = self.place();
        let Some(place) = place.filter(|_| self.lost_to().is_none()) else { return Ok(()) };
        Ok(device.write_at(place.at, &self.clean(place))?)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Changes the block at intervals, until the guard stops it or another host has written to it.
fn beat(device: &dyn Device, shared: &Shared, every: Duration) {
    let mut last = Instant::now();
    loop {
        let mut watch = shared.watch.lock();
        while !watch.stop {
            if shared.changed.wait_until(&mut watch, last + every).timed_out() {
                break;
            }
        }
        if watch.stop {
            return;
        }
        drop(watch);
        // Others wait for longer than this host took.
        let took = low32((last.elapsed().as_secs() + 1).min(CHECK_MAX.into()));
        last = Instant::now();
        let mut mark = shared.mark.lock();
        let Some(place) = mark.place else { continue };
        let before = mark.mine.clone();
        if let Status::InUse { sequence, .. } = &mut mark.mine.status {
            *sequence = if *sequence < SEQUENCE_MAX { *sequence + 1 } else { 1 };
        }
        mark.mine.time = now();
        mark.mine.check_interval = u16::try_from(2 * took).unwrap_or(CHECK_MAX).clamp(CHECK_MIN, CHECK_MAX);
        let renewed = match place.read(device) {
            Ok(found) if found.status == before.status => place.write(device, &mark.mine),
            Ok(found) => return lose(shared, &described(&found)),
            Err(Error::Corrupt(what)) => return lose(shared, &format!("somebody unknown: {what}")),
            Err(error) => Err(error),
        };
        if let Err(error) = renewed {
            // After failed renewals other hosts may think the volume free; the next write fails too and
            // latches.
            warn!("the mark of this host could not be renewed (MMP): {error}");
            mark.mine.status = before.status;
        }
    }
}

/// Notes who has taken the volume, and has it end.
fn lose(shared: &Shared, who: &str) {
    let mut watch = shared.watch.lock();
    watch.lost = Some(who.to_owned());
    let act = watch.on_loss.take();
    drop(watch);
    if let Some(act) = act {
        act(who);
    }
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

/// The last part of a device's name: the block has room for 31 bytes.
fn short_name(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

/// This host's name, for others to read.
fn node_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "hectare".into(), |name| name.trim().into())
}
