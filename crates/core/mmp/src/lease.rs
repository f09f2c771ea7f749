//! The mark of this process in the MMP block, and for how long it allows changes.
//!
//! Others take a volume over when its mark did not change while they waited, put their own mark in its place,
//! and wait as long again before they change anything else. Both waits are longer than twice the interval in
//! the mark that they saw ([`Lease::valid`]). So a process that saw its own mark in its place may change the volume
//! for that interval: another's first change comes later, even if that other host came right after. What is
//! left, the interval and a second, is for requests that are on their way.
//!
//! Time is that of a clock ([`hectare_device::Clock`]) that goes on while the machine is suspended and while the
//! process is stopped.
//!
//! Invariant: once another's mark was seen, the lease is lost for good.
//!
//! Hazard: where the mark moves ([`Lease::moved`]), its old block may become a file's at once. So nothing is written
//! in the old place from then on: a mark is renewed and moved one at a time.

use crate::block::{MmpBlock, described};
use crate::error::Result;
use hectare_device::{Device, Fence, Mark, Operation, Reason};
use hectare_ext4::mmp::{Mmp, RawMmp, Status};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Says what time it is.
pub(crate) type Now = Box<dyn Fn() -> Duration + Send + Sync>;

/// The mark of this process.
pub(crate) struct Lease {
    /// Held while the mark is written or moved.
    writing: Mutex<()>,
    clock: Now,
    marks: Mutex<Marks>,
    /// When the mark was last seen in its place, in milliseconds of the clock: when that reading began.
    seen: AtomicU64,
    /// How long that allows changes, in milliseconds.
    valid: AtomicU64,
    /// Called when the lease is lost.
    alarm: Box<dyn Fn() + Send + Sync>,
}

struct Marks {
    /// Where they stand; nowhere if the volume has no protection any more.
    place: Option<MmpBlock>,
    /// The last one that is durable.
    durable: Mmp,
    /// The last one that was written, or may have been.
    newest: Mmp,
    /// Who has the volume now.
    lost: Option<String>,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Lease {
    /// A lease of which the mark was seen by a reading that began at `seen`.
    pub(crate) fn new(
        place: MmpBlock,
        clock: Now,
        mark: Mmp,
        seen: Duration,
        alarm: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let valid = AtomicU64::new(valid_for(&mark, &mark));
        let marks = Marks { place: Some(place), durable: mark.clone(), newest: mark, lost: None };
        let (writing, marks) = (Mutex::default(), Mutex::new(marks));
        Self { writing, clock, marks, seen: AtomicU64::new(milliseconds(seen)), valid, alarm }
    }

    /// Who has the volume, if it is lost.
    pub(crate) fn lost(&self) -> Option<String> {
        self.marks.lock().lost.clone()
    }

    /// Where the mark stands, if it stands anywhere.
    pub(crate) fn place(&self) -> Option<MmpBlock> {
        self.marks.lock().place
    }

    /// Has the mark stand in another place, or nowhere. Returns whether it did not stand there before.
    ///
    /// # Errors
    /// If it can't be written there.
    pub(crate) fn moved(&self, device: &dyn Device, to: Option<MmpBlock>) -> Result<bool> {
        let _writing = self.writing.lock();
        let (from, newest) = (self.place(), self.newest());
        if from == to {
            return Ok(false);
        }
        if let Some(to) = to {
            to.write(device, &newest)?;
        }
        let mut marks = self.marks.lock();
        (marks.place, marks.durable) = (to, newest);
        Ok(true)
    }

    /// Returns an error if nothing may be changed any more: another host has the volume. Reads the mark if it was
    /// not seen for long.
    pub(crate) fn check(&self, device: &dyn Device, operation: Operation) -> hectare_device::Result<()> {
        let Some(place) = self.place() else { return Ok(()) };
        hectare_device::pass(self, |mark| device.read_fresh(place.at, mark))?
            .map_err(|who| hectare_device::Error::new(device.name(), operation, None, Reason::Taken(who)))
    }

    /// The mark that was written last.
    pub(crate) fn newest(&self) -> Mmp {
        self.marks.lock().newest.clone()
    }

    /// Puts a new mark in the place of ours, if that is still there. Returns whether it was.
    ///
    /// # Errors
    /// If the device fails; the mark on it is then the new one or an older one of ours.
    pub(crate) fn renew(&self, device: &dyn Device, new: Mmp) -> Result<bool> {
        let _writing = self.writing.lock();
        let Some(place) = self.place() else { return Ok(true) };
        let looked = hectare_device::look(self, |mark| device.read_fresh(place.at, mark))?;
        {
            let mut marks = self.marks.lock();
            match looked {
                Ok(()) => {}
                Err(_) if marks.lost.is_some() => return Ok(false),
                Err(why) => {
                    self.lose(&mut marks, format!("an unknown host ({why})"));
                    return Ok(false);
                }
            }
            self.valid.store(valid_for(&marks.durable, &new), Ordering::SeqCst);
            marks.newest = new.clone();
        }
        place.write(device, &new)?;
        let mut marks = self.marks.lock();
        self.valid.store(valid_for(&new, &new), Ordering::SeqCst);
        marks.durable = new;
        Ok(true)
    }

    /// Notes who has the volume.
    fn lose(&self, marks: &mut Marks, who: String) -> Mark {
        marks.lost = Some(who.clone());
        self.seen.store(0, Ordering::SeqCst);
        self.valid.store(0, Ordering::SeqCst);
        (self.alarm)();
        Mark::Lost(taken(&who))
    }
}

/// How long one of the marks allows changes: as the shorter one says, in milliseconds.
fn valid_for(one: &Mmp, other: &Mmp) -> u64 {
    u64::from(one.check_interval.min(other.check_interval)) * 1000
}

/// What an error says once another host has the volume.
#[must_use]
pub fn taken(who: &str) -> String {
    format!(
        "another host has the volume in use as well (MMP): {who}; nothing more is changed here, run \
         e2fsck -fy"
    )
}

impl Marks {
    /// Whether a status is one that this process has written since the last durable one.
    fn are_like(&self, found: &Status) -> bool {
        let (durable, newest) = (&self.durable.status, &self.newest.status);
        if found == durable || found == newest {
            return true;
        }
        match (found, durable, newest) {
            (
                Status::InUse { node, device, sequence },
                Status::InUse { node: our_node, device: our_device, sequence: first },
                Status::InUse { sequence: last, .. },
            ) => {
                let between = if first <= last {
                    first <= sequence && sequence <= last
                } else {
                    first <= sequence || sequence <= last
                };
                node == our_node && device == our_device && between
            }
            _ => false,
        }
    }
}

impl Fence for Lease {
    fn mark_len(&self) -> usize {
        size_of::<RawMmp>()
    }

    fn is_fresh(&self) -> bool {
        let (seen, valid) = (self.seen.load(Ordering::SeqCst), self.valid.load(Ordering::SeqCst));
        milliseconds((self.clock)()) < seen.saturating_add(valid)
    }

    fn now(&self) -> Duration {
        (self.clock)()
    }

    fn judge(&self, asked: Duration, mark: &[u8]) -> Mark {
        let mut marks = self.marks.lock();
        if let Some(who) = &marks.lost {
            return Mark::Lost(taken(who));
        }
        let Some(place) = marks.place else { return Mark::Ours };
        match Mmp::parse(mark, place.block, place.seed) {
            Ok(found) if marks.are_like(&found.status) => {
                self.seen.fetch_max(milliseconds(asked), Ordering::SeqCst);
                Mark::Ours
            }
            Ok(found) => self.lose(&mut marks, described(&found)),
            Err(corrupt) => Mark::Unclear(corrupt.to_string()),
        }
    }
}
