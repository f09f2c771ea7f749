//! Progress of what takes long: shown on a terminal only, and only once a second has passed.

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_secs(1);

/// Counts files and bytes, and shows them when it is time to.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Starts counting. `what` is shown before the figures ("copying").
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            bar.set_prefix(what);
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar
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
        if self.started.elapsed() < QUIET {
            return;
        }
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        bar.set_message(format!("{files} files, {}", HumanBytes(bytes)));
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
