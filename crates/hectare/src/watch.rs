//! Long calls seen from outside: how far they are, and how they are ended early.
//!
//! One shape for all of them. A [`Watch`] is given to the call; it may have a closure that sees each
//! [`Progress`] and can end the call, and [`Watch::cancel`] ends it from any thread. What a cancelled call
//! leaves is written at each call; none leaves something that can be taken for the whole.
//!
//! Invariant: a call that was cancelled before its last checkpoint is never reported as done, whatever became of
//! the error on its way. A call that is cancelled after its last checkpoint succeeds.
//!
//! What it is not: a time-out. A call ends at its next checkpoint, after milliseconds as a rule; a read of the
//! host's that hangs is waited for.

use crate::error::{Error, Result};
use crate::sync::Mutex;
use hectare_device::{Cancel, CancelDevice, Device, Until};
use std::ffi::CStr;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time between two reports of one step, but for its first and its last.
const EVERY: Duration = Duration::from_millis(100);

/// What a long call is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Step {
    /// Nothing that is counted yet.
    #[default]
    Begin,
    /// Reading directories and archives; counted in names when all are read.
    Sources,
    /// Giving up what the device holds; counted in bytes.
    Discard,
    /// Writing the data of files; counted in bytes.
    Data,
    /// Writing the structures of a volume; counted in chunks of groups.
    Structures,
    /// Checking every inode; counted in groups.
    Inodes,
    /// Checking directories; counted in directories.
    Directories,
    /// Checking bitmaps; counted in groups.
    Bitmaps,
}

impl Step {
    /// The name that is displayed, as C has texts.
    #[doc(hidden)]
    #[must_use]
    pub const fn c_name(self) -> &'static CStr {
        match self {
            Self::Begin => c"begin",
            Self::Sources => c"sources",
            Self::Discard => c"discard",
            Self::Data => c"data",
            Self::Structures => c"structures",
            Self::Inodes => c"inodes",
            Self::Directories => c"directories",
            Self::Bitmaps => c"bitmaps",
        }
    }
}

/// Its name: one word in lower case.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.c_name().to_str().map_err(|_| fmt::Error)?)
    }
}

/// How far a long call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing. A step may come again: a check that finds something goes through its steps anew.
    pub step: Step,
    /// How much of the step is done, in what the step is counted in.
    pub done: u64,
    /// How much there is, if that is known.
    pub total: Option<u64>,
}

type Report = dyn FnMut(Progress) -> ControlFlow<()> + Send;

/// A long call seen from outside; clones are of the same call.
///
/// One that was cancelled stays so: take a new one for each call.
///
/// ```
/// use hectare::{Watch, check, mkfs};
/// use std::ops::ControlFlow;
///
/// # let place = tempfile::tempdir().unwrap();
/// # let image = place.path().join("disk.img");
/// # mkfs::Format::new().create(&image, 64 << 20).unwrap();
/// let watch = Watch::new(|progress| {
///     println!("{:?}: {} of {:?}", progress.step, progress.done, progress.total);
///     ControlFlow::Continue(()) // or Break(()), which cancels
/// });
/// let stop = watch.clone(); // for another thread: stop.cancel()
/// # stop.cancel();
/// let error = check::check_watched(&image, &watch).unwrap_err();
/// assert!(error.is_cancelled());
/// ```
#[derive(Clone)]
pub struct Watch {
    cancel: Cancel,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    now: Mutex<Progress>,
    report: Option<Mutex<Reporter>>,
}

struct Reporter {
    report: Box<Report>,
    last: Instant,
}

impl Default for Watch {
    /// One that reports nothing, and can cancel.
    fn default() -> Self {
        Self { cancel: Cancel::new(), state: Arc::default() }
    }
}

impl Watch {
    /// One that calls `report`: when a step begins, when it ends, and about ten times a second in between,
    /// whether or not there is progress. [`ControlFlow::Break`] cancels the call.
    ///
    /// It is called by one thread at a time, but by any of the call's; it delays the call as long as it takes.
    pub fn new(report: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) -> Self {
        let report = Mutex::new(Reporter { report: Box::new(report), last: Instant::now() });
        let state = Arc::new(State { now: Mutex::default(), report: Some(report) });
        let polled = Arc::clone(&state);
        Self { cancel: Cancel::polling(move || polled.beat()), state }
    }

    /// Ends the call at its next checkpoint, with an error of which
    /// [`is_cancelled`](crate::Error::is_cancelled) is true; unless it is so far that it continues to its end
    /// instead. Nothing happens if the call has ended.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_asked()
    }

    /// How far the call is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        *self.state.now.lock()
    }

    /// The device for one call of another crate, which this watch then cancels: operations are refused from
    /// then on, up to the moment that `until` names. [`admin`](crate::admin) says which one is whose.
    #[must_use]
    pub fn guard(&self, device: Arc<dyn Device>, until: Until) -> Arc<dyn Device> {
        Arc::new(self.wrap(device, until))
    }
}

/// For the calls themselves.
#[cfg_attr(not(feature = "build"), allow(dead_code))] // each feature has calls that use a part
impl Watch {
    pub(crate) fn wrap<D: Device>(&self, device: D, until: Until) -> CancelDevice<D> {
        CancelDevice::new(device, self.token(), until)
    }

    /// What asks at checkpoints.
    pub(crate) fn token(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Notes how far the call is, from any thread.
    pub(crate) fn at(&self, step: Step, done: u64, total: Option<u64>) {
        let (progress, is_edge) = {
            let mut now = self.state.now.lock();
            let begins = now.step != step;
            // Threads come in any order.
            let done = if begins { done } else { done.max(now.done) };
            *now = Progress { step, done, total };
            (*now, begins || total == Some(done))
        };
        if is_edge && self.state.report(progress, true) {
            self.cancel.cancel();
        }
    }

    /// Fails if the call was cancelled.
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::cancelled(place)) } else { Ok(()) }
    }

    /// The outcome of a call: that it was cancelled, if it was, and not what became of that on the way.
    pub(crate) fn outcome<T>(&self, place: &str, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(_) if self.cancel.is_asked() => Err(Error::cancelled(place)),
            other => other,
        }
    }
}

impl State {
    /// A checkpoint: reports where the call is, if it is time. True if that cancels it.
    fn beat(&self) -> bool {
        let is_due = |reporter: &Mutex<Reporter>| {
            // Where it is held, another thread reports.
            reporter.try_lock().is_some_and(|reporter| reporter.last.elapsed() >= EVERY)
        };
        if !self.report.as_ref().is_some_and(is_due) {
            return false;
        }
        let now = *self.now.lock();
        self.report(now, false)
    }

    /// Reports; true if that cancels the call. What is no edge of a step is left out while another thread
    /// reports.
    fn report(&self, progress: Progress, is_edge: bool) -> bool {
        let Some(reporter) = &self.report else { return false };
        let reporter = if is_edge { Some(reporter.lock()) } else { reporter.try_lock() };
        let Some(mut reporter) = reporter else { return false };
        if !is_edge && reporter.last.elapsed() < EVERY {
            return false;
        }
        reporter.last = Instant::now();
        (reporter.report)(progress).is_break()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
