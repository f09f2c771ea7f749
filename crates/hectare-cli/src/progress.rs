//! Progress of long operations: shown on a terminal only, and only after a second.

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_secs(1);

/// Counts files and bytes, and shows them periodically.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    files: AtomicU64,
    bytes: AtomicU64,
}

/// A bar that is hidden as yet, if there is a terminal to show it on.
fn hidden_bar(template: &str) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    })
}

/// Shows a bar once a second has passed; returns whether it is shown.
fn unhide(bar: &ProgressBar, started: Instant) -> bool {
    if started.elapsed() < QUIET {
        return false;
    }
    if bar.is_hidden() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    true
}

impl Progress {
    /// Starts counting. `what` is shown before the numbers ("copying").
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = hidden_bar("{spinner} {prefix} {msg} {elapsed}");
        bar.iter().for_each(|bar| bar.set_prefix(what));
        Self { bar, started: Instant::now(), files: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Likewise, with this many bytes to come: the remaining time is estimated from them.
    pub(crate) fn of_size(what: &'static str, all: u64) -> Self {
        let bar = hidden_bar("{prefix} {msg} {wide_bar} {percent}% {eta} left");
        bar.iter().for_each(|bar| {
            bar.set_prefix(what);
            bar.set_length(all);
        });
        Self { bar, started: Instant::now(), files: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts a file that is done.
    pub(crate) fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// Counts bytes that are done.
    pub(crate) fn bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.show();
    }

    fn show(&self) {
        let Some(bar) = &self.bar else { return };
        if !unhide(bar, self.started) {
            return;
        }
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        bar.set_message(format!("{files} files, {}", HumanBytes(bytes)));
        if bar.length().is_some() {
            bar.set_position(bytes);
        }
        bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows the progress of an operation of known size, and the estimated remaining time.
pub(crate) struct Meter {
    bar: Option<ProgressBar>,
    started: Instant,
    /// What is being done.
    step: Mutex<&'static str>,
}

impl Meter {
    /// Shows nothing yet.
    pub(crate) fn new() -> Self {
        let bar = hidden_bar("{prefix} {wide_bar} {percent}% {eta} left");
        Self { bar, started: Instant::now(), step: Mutex::new("") }
    }

    /// Records the progress of `step` ("writing"), from any thread.
    pub(crate) fn show(&self, step: &'static str, done: u64, all: u64) {
        let Some(bar) = &self.bar else { return };
        let mut last = self.step.lock();
        if *last != step {
            *last = step;
            bar.set_prefix(step);
            bar.reset(); // the remaining time is estimated from this step's speed
        }
        drop(last);
        bar.set_length(all);
        bar.set_position(done);
        unhide(bar, self.started);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
